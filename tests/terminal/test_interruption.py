"""Which signals stop a run, and that one under `nohup` goes on."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from proselflc.terminal import stop_signals, stopping_on_signals


@pytest.fixture(params=["default", "ignored"])
def hangup(request: pytest.FixtureRequest) -> Iterator[bool]:
    """Whether SIGHUP is ignored when the program starts, as under `nohup`."""
    ignored = request.param == "ignored"
    handler = signal.SIG_IGN if ignored else signal.SIG_DFL
    before = signal.signal(signal.SIGHUP, handler)
    yield ignored
    assert signal.getsignal(signal.SIGHUP) is handler  # it is left as it was
    signal.signal(signal.SIGHUP, before)


def test_a_hangup_stops_training_unless_it_is_ignored(hangup: bool) -> None:
    training: Any = SimpleNamespace(wants_stop=False)
    with stop_signals(training):
        os.kill(os.getpid(), signal.SIGHUP) if hangup else signal.raise_signal(signal.SIGHUP)
        assert training.wants_stop is not hangup


@pytest.mark.parametrize("world", [1, 2])
def test_a_second_signal_ends_a_process_unless_a_launcher_may_have_repeated_the_first(
    world: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", str(world))
    received: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: received.append(number))
    try:
        training: Any = SimpleNamespace(wants_stop=False)
        with stop_signals(training):
            signal.raise_signal(signal.SIGTERM)
            assert training.wants_stop
            signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert received == [signal.SIGTERM] * (world == 1)


def test_a_hangup_interrupts_a_search_unless_it_is_ignored(hangup: bool) -> None:
    interrupted = False
    try:
        with stopping_on_signals():
            signal.raise_signal(signal.SIGHUP)
    except KeyboardInterrupt:
        interrupted = True
    assert interrupted is not hangup
