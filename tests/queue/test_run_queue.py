"""The queue of runs: nothing is done twice or lost, whichever worker dies, in every storage."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.distributions import FloatDistribution
from optuna.storages import BaseStorage
from optuna.trial import TrialState

from proselflc.errors import InputError
from proselflc.queue import run_queue
from proselflc.queue import storage as queue_storage
from proselflc.queue.run_queue import Claim, Queue

Make = Callable[..., Queue]
RANGES = {"lr": FloatDistribution(0.0, 1.0)}


@pytest.fixture(autouse=True)
def _silent() -> Iterator[None]:
    was = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    yield
    optuna.logging.set_verbosity(was)


@pytest.fixture(params=["journal", "sqlite"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    """Return a function that makes a queue, each time as another process would."""
    url = None if request.param == "journal" else f"sqlite:///{tmp_path / 'trials.db'}"

    def queue(folder: str = "runs") -> Queue:
        storage = queue_storage.opened(tmp_path / "journal.log", url)
        return Queue(storage, "a/b", tmp_path / folder)

    return queue


def claimed(queue: Queue, names: Any = range(3)) -> Claim:
    claim = queue.claim(names)
    assert claim is not None
    return claim


def states(queue: Queue) -> dict[Any, list[str]]:
    found = queue.entries()
    return {name: [one.state.name for one in entry.attempts] for name, entry in found.items()}


def note(queue: Queue, number: int, **facts: object) -> None:
    """Change what a trial says of its worker."""
    study = queue.storage.get_study_id_from_name(queue.name)
    trial = queue.storage.get_trial_id_from_study_id_trial_number(study, number)
    for name, value in facts.items():
        queue.storage.set_trial_user_attr(trial, name, value)


def test_entries_are_claimed_in_their_order_and_each_once(make: Make) -> None:
    one, other = make(), make()
    found = []
    for k in range(3):
        claim = claimed((one, other)[k % 2])
        found.append(claim.name)
        assert states(one) == {**{j: ["COMPLETE"] for j in range(k)}, k: ["RUNNING"]}
        with claim:
            assert make().claim([k]) is None  # another worker has it
            claim.complete(k / 10, f"run-{k}")
    assert found == [0, 1, 2]
    assert one.claim(range(3)) is None
    assert {entry.is_over for entry in make().entries().values()} == {True}
    currents = [entry.current for entry in make().entries().values()]
    assert [(one.value, one.user_attrs["run"]) for one in currents if one] == [
        (0.0, "run-0"),
        (0.1, "run-1"),
        (0.2, "run-2"),
    ]
    assert not list(make().folder.iterdir())  # no lock is left


def test_names_may_be_keys_of_runs(make: Make) -> None:
    queue = make()
    with claimed(queue, ["one"]) as claim:
        claim.complete(1.0, "run")
    assert claimed(queue, ["one", "two"]).name == "two"
    assert states(queue) == {"one": ["COMPLETE"], "two": ["RUNNING"]}


def test_an_entry_that_is_not_finished_is_left_with_its_values_and_reports(make: Make) -> None:
    claim = claimed(make())
    claim.fix({"lr": 0.25}, RANGES)
    claim.report(3, 0.5)
    with pytest.raises(KeyboardInterrupt), claim:
        raise KeyboardInterrupt
    again = claimed(make("elsewhere"))  # at once, also for a worker in another directory
    assert (again.name, again.values, again.reports) == (0, {"lr": 0.25}, {3: 0.5})
    with again:
        again.fix(again.values, RANGES)
        again.report(5, 0.75)
        again.complete(0.5, "run")
    queue = make()
    assert states(queue)[0] == ["FAIL", "COMPLETE"]
    current = queue.entries()[0].current
    assert current is not None
    assert (current.params, current.intermediate_values) == ({"lr": 0.25}, {3: 0.5, 5: 0.75})


KILLED = """
import os, signal, sys
from pathlib import Path
from proselflc.queue import storage as queue_storage
from proselflc.queue.run_queue import Queue
folder, url = Path(sys.argv[1]), sys.argv[2] or None
queue = Queue(queue_storage.opened(folder.parent / "journal.log", url), "a/b", folder)
with queue.claim(range(3)) as claim:
    claim.report(1, 0.125)
    print(claim.name, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("kind", ["journal", "sqlite"])
def test_a_killed_worker_s_entry_is_claimed_at_once_in_the_same_directory(
    kind: str, tmp_path: Path
) -> None:
    url = "" if kind == "journal" else f"sqlite:///{tmp_path / 'trials.db'}"
    folder = tmp_path / "runs"
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", KILLED, str(folder), url], capture_output=True, check=False
        )
        assert (done.returncode, done.stdout) == (-9, b"0\n"), done.stderr.decode()
    storage = queue_storage.opened(tmp_path / "journal.log", url or None)
    queue = Queue(storage, "a/b", folder)
    elsewhere = Queue(storage, "a/b", tmp_path / "elsewhere")
    assert claimed(elsewhere).name == 1  # another directory cannot know that it is dead yet
    with claimed(queue, [0]) as claim:
        assert claim.reports == {1: 0.125}
        claim.complete(0.5, "run")
    assert states(queue)[0] == ["FAIL", "FAIL", "COMPLETE"]


@pytest.mark.parametrize(
    ("facts", "is_claimed"),
    [
        ({}, False),
        ({"alive": time.time() - 1e4}, True),
        ({"alive": "never"}, True),
        ({"claim": "../../" + "0" * 16}, False),
    ],
)
def test_elsewhere_a_worker_is_dead_when_it_is_silent(
    make: Make, facts: dict[str, object], is_claimed: bool
) -> None:
    before = claimed(make())
    note(make(), 0, **facts)
    queue = make("elsewhere")
    again = queue.claim([0])
    assert (again is not None) == is_claimed
    assert not (queue.folder.exists() and [*queue.folder.iterdir()]) or is_claimed
    if again is not None:
        with again:
            again.complete(0.25, "run")
        with before:  # it was not dead after all: too late
            before.complete(0.75, "run")
        current = queue.entries()[0].current
        assert current is not None
        assert current.value == 0.25


def test_a_claim_shows_signs_of_life(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_queue, "ALIVE_EVERY", 0.01)
    queue = make()

    def alive() -> float:
        current = queue.entries()[0].current
        assert current is not None
        return float(current.user_attrs["alive"])

    with claimed(queue):
        note(queue, 0, alive=0.0)
        deadline = time.monotonic() + 30
        while alive() == 0.0:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert abs(alive() - time.time()) < 30


def test_of_two_attempts_at_the_same_moment_the_first_counts(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = make(), make("elsewhere")
    found: list[Claim] = []
    entries = Queue._entries

    def late(self: Queue, study: int) -> dict[Any, Any]:
        """Have another worker claim the same entry right after this one has looked."""
        seen = entries(self, study)
        if self is one and not found:
            found.append(claimed(other))
        return seen

    monkeypatch.setattr(Queue, "_entries", late)
    claim = claimed(one)
    assert (found[0].name, claim.name) == (0, 1)
    assert states(one) == {0: ["RUNNING", "FAIL"], 1: ["RUNNING"]}
    assert len(list(one.folder.iterdir())) == 1  # the lock of what it has


def test_an_entry_that_diverged_is_over_and_one_that_was_pruned_has_its_last_report(
    make: Make,
) -> None:
    queue = make()
    with claimed(queue) as claim:
        claim.diverge("the loss became NaN at step 412", "run")
    with claimed(queue) as claim:
        claim.report(5, 0.5)
        claim.report(6, 0.25)
        claim.prune("run")
    entries = queue.entries()
    assert entries[0].is_over
    assert entries[1].is_over
    current = entries[1].current
    assert current is not None
    assert (current.state, current.value) == (TrialState.PRUNED, 0.25)


def test_a_folder_that_cannot_be_written_to_is_an_input_error(make: Make, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot write to"):
        make("file").claim([0])


class _Away:
    """A storage that is away from a certain moment on."""

    def __init__(self, storage: BaseStorage) -> None:
        self.storage, self.is_away = storage, False

    def __getattr__(self, name: str) -> Any:
        if self.is_away:
            raise optuna.exceptions.StorageInternalError("away")
        return getattr(self.storage, name)


def test_a_worker_whose_storage_is_away_leaves_its_entry_and_its_lock(make: Make) -> None:
    queue = make()
    away = _Away(queue.storage)
    claim = claimed(Queue(away, queue.name, queue.folder))  # type: ignore[arg-type]
    away.is_away = True
    with pytest.raises(optuna.exceptions.StorageInternalError), claim:
        claim.complete(0.5, "run")
    assert states(queue)[0] == ["RUNNING"]
    assert not list(queue.folder.iterdir())
