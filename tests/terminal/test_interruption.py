"""Which signals stop a run, and that one under `nohup` goes on."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from proselflc.terminal import PATIENCE, stop_signals, stopping_on_signals


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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_takes_long_is_interrupted_soon_but_not_while_it_saves(number: int) -> None:
    training: Any = SimpleNamespace(wants_stop=False)
    alarm = signal.getsignal(signal.SIGALRM)
    begun = time.monotonic()
    until = begun + PATIENCE + 0.5

    def take_long() -> None:
        with stop_signals(training, lambda: time.monotonic() < until):
            signal.raise_signal(number)
            assert training.wants_stop
            time.sleep(20)

    with pytest.raises(KeyboardInterrupt):
        take_long()
    assert 0.5 <= time.monotonic() - begun - PATIENCE < 10
    assert signal.getsignal(signal.SIGALRM) is alarm
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)


def test_what_ends_in_time_is_not_interrupted() -> None:
    training: Any = SimpleNamespace(wants_stop=False)
    with stop_signals(training, lambda: False):
        signal.raise_signal(signal.SIGINT)
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 0
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)


SLOW = """
import time

import torch


class Slow(torch.nn.Linear):
    def forward(self, x):
        if self.training:
            open("begun", "w").close()
            time.sleep(100)
        return super().forward(x)


def model(shape, num_classes):
    return Slow(4, num_classes)
"""


def test_a_long_step_from_scratch_ends_soon(program: Any, tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "data.npz", x=rng.normal(size=(60, 4)), y=np.arange(60) % 3)
    train = ("train", "--data", "data.npz", "--model", "slow:model", "--out", "run")
    running = program.start(*train, folder=tmp_path)
    running.until(lambda: (tmp_path / "begun").exists())
    running.send(signal.SIGINT)
    done = running.wait(60)  # less than the step would take
    assert done.code == 130
    assert done.stdout == ""
    assert done.stderr.splitlines()[-1] == (
        "stopped after step 0 of 30, no state was saved yet; begin again with: "
        "proselflc train --out run --resume --model slow:model"
    )
