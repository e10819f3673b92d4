"""A queue of trials: nothing is done twice or lost, whoever dies, and none is ended too early."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.trial import TrialState

from proselflc.app import trial_storage, trials
from proselflc.app.search_space import Choice, Range, Values
from proselflc.app.study_directory import StudyDirectory
from proselflc.app.trials import Queue, Record, Taken, best
from proselflc.errors import InputError

GRID: dict[str, Choice] = {"a": Values((1, 2, 3)), "b": Values(("x", "y"))}
RANGES: dict[str, Choice] = {
    "lr": Range(0.001, 1.0, False, True),
    "epochs": Range(1, 50, True),
    "kind": Values(("x", "y")),
}

Make = Callable[..., Queue]


@pytest.fixture(autouse=True)
def _silent() -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)


@pytest.fixture(params=["journal", "sqlite"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    """Makes a queue, each time as another process would."""
    url = None if request.param == "journal" else f"sqlite:///{tmp_path / 'trials.db'}"

    def queue(choices: Mapping[str, Choice] = GRID, **options: Any) -> Queue:
        storage = trial_storage.opened(StudyDirectory(tmp_path), url)
        settings = {"trials": 8, "seed": 0, "prune": False, **options}
        return Queue(storage, "a/b", choices, **settings)

    return queue


def take(queue: Queue) -> Taken:
    taken = queue.take()
    assert taken is not None
    return taken


def is_done_by(queue: Queue, number: int, **facts: object) -> None:
    """Have somebody else run a trial."""
    (study,) = optuna.get_all_study_names(queue.storage)
    one = optuna.load_study(study_name=study, storage=queue.storage).trials[number]
    for name, value in facts.items():
        queue.storage.set_trial_user_attr(one._trial_id, name, value)


def gone() -> int:
    """The number of a process that has ended."""
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def test_a_grid_is_tried_whole_in_its_order(make: Make) -> None:
    queue = make()
    queue.fill()
    assert queue.size == 6
    for k in range(6):
        taken = take(queue)
        assert taken.number == k
        taken.complete(k / 10, f"run-{k}")
    assert queue.take() is None
    expected = [{"a": a, "b": b} for a in (1, 2, 3) for b in ("x", "y")]
    records = make().records()
    assert [one.values for one in records] == expected
    assert [one.accuracy for one in records] == [k / 10 for k in range(6)]
    assert [one.run for one in records] == [f"run-{k}" for k in range(6)]
    assert {one.state for one in records} == {"complete"}


def test_nothing_is_still_one_trial(make: Make) -> None:
    queue = make({})
    queue.fill()
    taken = take(queue)
    assert taken.values == {}
    taken.complete(0.5, "run")
    assert [one.is_over for one in queue.records()] == [True]


def test_filling_again_adds_what_is_missing_only(make: Make) -> None:
    queue = make()
    study = optuna.create_study(study_name="a/b", storage=queue.storage, direction="maximize")
    study.enqueue_trial({"a": 1, "b": "x"}, user_attrs={"place": 0})  # killed while filling
    for _ in range(2):
        make().fill()
    assert [one.number for one in make().records()] == list(range(6))
    assert len(study.trials) == 6


def test_of_two_trials_of_one_place_the_first_counts(make: Make) -> None:
    queue = make({"a": Values((5,))})
    queue.fill()
    study = optuna.load_study(study_name="a/b", storage=queue.storage)
    study.enqueue_trial({"a": 5}, user_attrs={"place": 0})  # another machine filled it as well
    take(queue).complete(0.5, "run")
    assert queue.take() is None
    assert len(queue.records()) == 1


def test_two_processes_never_take_the_same_trial(make: Make) -> None:
    one, other = make(), make()
    one.fill()
    found = []
    for k in range(6):
        taken = take((one, other)[k % 2])
        is_done_by(one, taken.number, host="elsewhere")  # so that it is not this process's own
        found.append(taken.number)
    assert found == list(range(6))
    assert one.take() is None
    assert other.take() is None


def test_a_trial_of_a_dead_process_is_taken_again_with_its_number_and_values(make: Make) -> None:
    queue = make(RANGES)
    queue.fill()
    before = take(queue)
    is_done_by(queue, 0, process=gone())
    assert [one.state for one in queue.records()][:2] == ["running", "waiting"]
    again = take(make(RANGES))
    assert (again.number, again.values) == (before.number, before.values)
    again.complete(0.25, "run")
    before.complete(0.75, "run")  # it was not dead after all: too late
    records = queue.records()
    assert len(records) == 8
    assert records[0].accuracy == 0.25


def test_a_machine_is_known_by_its_boot_and_its_processes_not_by_its_name_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    boot = tmp_path / "boot_id"
    monkeypatch.setattr(trials, "BOOT", boot)
    without = trials.machine()
    assert without.startswith(platform.node())
    boot.write_text("one\n")
    first = trials.machine()
    assert first == trials.machine()
    boot.write_text("two\n")
    assert len({without, first, trials.machine()}) == 3
    monkeypatch.setattr(trials, "PROCESSES", tmp_path / "elsewhere")
    os.symlink("pid:[7]", tmp_path / "elsewhere")
    assert "pid:[7]" in trials.machine()


@pytest.mark.parametrize(
    ("facts", "is_taken"),
    [
        ({"process": os.getppid()}, False),
        ({"process": os.getppid(), "alive": time.time() - 1e4}, True),
        ({"host": f"{trials.machine()} of another boot", "process": gone()}, False),
        ({"host": "elsewhere"}, False),
        ({"host": "elsewhere", "alive": time.time() - 1e4}, True),
        ({"process": "none"}, True),
    ],
)
def test_only_a_trial_whose_process_is_gone_is_taken(
    make: Make, facts: dict[str, object], is_taken: bool
) -> None:
    queue = make({"a": Values((1, 2))})
    queue.fill()
    take(queue)
    is_done_by(queue, 0, **facts)
    assert take(queue).number == (0 if is_taken else 1)


def test_a_trial_gives_signs_of_life(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "ALIVE_EVERY", 0.01)
    queue = make({})
    queue.fill()
    taken = take(queue)
    is_done_by(queue, 0, alive=0.0)
    study = optuna.load_study(study_name="a/b", storage=queue.storage)
    with taken.living():
        deadline = time.monotonic() + 30
        while study.trials[0].user_attrs["alive"] == 0.0:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    assert abs(study.trials[0].user_attrs["alive"] - time.time()) < 30


def test_what_is_proposed_does_not_depend_on_when_one_stopped(make: Make) -> None:
    def accuracy(taken: Taken) -> float:
        return 1 / (1 + abs(float(taken.values["lr"]) - 0.1) + int(taken.values["epochs"]) / 100)

    def value_of(queue: Queue) -> list[Any]:
        return [dict(one.values) for one in queue.records()]

    def run(queue: Queue, *stops: int) -> list[Any]:
        left = set(stops)
        queue.fill()
        while (taken := queue.take()) is not None:
            if taken.number in left:
                left.remove(taken.number)
                is_done_by(queue, taken.number, process=gone())
                queue = make(RANGES, trials=12)
                continue
            taken.complete(accuracy(taken), "run")
        return value_of(queue)

    storage = optuna.storages.InMemoryStorage()
    whole = run(Queue(storage, "c", RANGES, 12, 0, False))
    queue = make(RANGES, trials=12)
    assert run(queue, 3, 11) == whole
    assert len({str(one) for one in whole}) == 12  # the sampler does not repeat itself
    other = Queue(storage, "d", RANGES, 1, 1, False)
    assert run(other)[0] != whole[0]  # another seed


def test_a_trial_is_never_ended_before_half_of_training(make: Make) -> None:
    queue = make(RANGES, prune=True)
    queue.fill()
    for _ in range(trials.STARTUP):
        taken = take(queue)
        for k in range(1, 20):
            assert not taken.is_behind(k / 20, 0.9)
        taken.complete(0.9, "run")
    bad = take(queue)
    ends = [k / 200 for k in range(1, 200) if bad.is_behind(k / 200, 0.1)]
    assert ends[0] == 0.5  # t = Γ/2 and no earlier
    bad.prune("run")
    good = take(queue)
    assert not any(good.is_behind(k / 20, 0.95) for k in range(1, 20))
    assert [one.state for one in queue.records()][4] == "pruned"


def test_nothing_is_ended_unless_that_was_asked_for(make: Make) -> None:
    queue = make(RANGES, prune=False)
    queue.fill()
    for _ in range(trials.STARTUP):
        taken = take(queue)
        taken.is_behind(0.7, 0.9)
        taken.complete(0.9, "run")
    assert not take(queue).is_behind(0.7, 0.1)


def test_the_best_is_the_first_of_the_highest() -> None:
    records = [
        Record(0, "pruned", {}),
        Record(1, "complete", {}, 0.5),
        Record(2, "complete", {}, 0.75),
        Record(3, "complete", {}, 0.75),
        Record(4, "diverged", {}),
    ]
    assert best(records) is records[2]
    assert best(records[:1]) is None
    zero = Record(0, "complete", {}, 0.0)
    assert best([zero]) is zero


def test_a_diverged_trial_is_over(make: Make) -> None:
    queue = make({"a": Values((1,))})
    queue.fill()
    take(queue).diverged("the loss is nan", "run")
    assert queue.take() is None
    assert queue.records()[0].state == "diverged"


def test_importance_tells_what_matters_from_what_does_not(make: Make) -> None:
    choices = {"a": Values((1, 2, 3, 4)), "b": Values((1, 2, 3))}
    queue = make(choices)
    queue.fill()
    while (taken := queue.take()) is not None:
        taken.complete(int(taken.values["a"]) / 10 + int(taken.values["b"]) / 1000, "run")
    found = queue.importance()
    assert found["a"] > 0.9
    assert abs(sum(found.values()) - 1) < 1e-6
    assert make({"a": Values((1, 2))}).importance() == {}


def test_half_a_line_of_a_killed_process_is_dropped(tmp_path: Path) -> None:
    directory = StudyDirectory(tmp_path)
    queue = Queue(trial_storage.opened(directory, None), "a", GRID, 8, 0, False)
    queue.fill()
    with directory.journal.open("ab") as file:
        file.write(b'{"op_code":5,"tri')
    again = Queue(trial_storage.opened(directory, None), "a", GRID, 8, 0, False)
    take(again).complete(0.5, "run")
    third = Queue(trial_storage.opened(directory, None), "a", GRID, 8, 0, False)
    assert third.records()[0].accuracy == 0.5
    assert sum(one.state == "waiting" for one in third.records()) == 5


def test_a_damaged_journal_is_said(tmp_path: Path) -> None:
    directory = StudyDirectory(tmp_path)
    directory.journal.write_text("not a journal\nat all\n")
    with pytest.raises(InputError, match=r"journal\.log is damaged"):
        trial_storage.opened(directory, None)


@pytest.mark.parametrize(
    ("line", "is_dropped"),
    [
        (b'{"op_code":5,"tri\n', True),
        (b"\xff\xfe\n", True),
        (b"[1]\n", True),
        (b'{"op_code":99,"worker_id":"a"}\n', False),
        (b'{"op_code":4}\n', False),
    ],
)
def test_a_damaged_last_line_is_dropped_or_said(
    tmp_path: Path, line: bytes, is_dropped: bool
) -> None:
    directory = StudyDirectory(tmp_path)
    Queue(trial_storage.opened(directory, None), "a", GRID, 8, 0, False).fill()
    whole = directory.journal.read_bytes()
    directory.journal.write_bytes(whole + line)
    notes: list[str] = []
    if not is_dropped:  # it is well written, so what it did is not known
        with pytest.raises(InputError, match=r"journal\.log is damaged .*--overwrite"):
            trial_storage.opened(directory, None, notes.append)
        assert directory.journal.read_bytes() == whole + line
        return
    queue = Queue(trial_storage.opened(directory, None, notes.append), "a", GRID, 8, 0, False)
    assert directory.journal.read_bytes() == whole
    assert len(notes) == 1
    assert "the last line of" in notes[0]
    assert "is dropped" in notes[0]
    take(queue).complete(0.5, "run")
    assert queue.records()[0].accuracy == 0.5


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:s3cret@host/db", "postgresql://me:***@host/db"),
        ("postgresql://host/db?user=me&password=s3cret", "postgresql://host/db"),
        ("postgresql://me:s3cret@host/db?sslpassword=s3cret", "postgresql://me:***@host/db"),
        ("postgresql://me:s3%40cret@host/db", "postgresql://me:***@host/db"),
        ("postgresql://me:p@s3cret@host/db", "postgresql://***"),
        ("postgresql://m/e:s3cret@host/db", "postgresql://***"),
        ("postgresql://me:s3cret@host:port/db", "postgresql://***"),
        ("me:s3cret@host", "***"),
        ("nonsense?password=s3cret", "***"),
        ("nonsense", "nonsense"),
        ("sqlite:///a b@c.db", "sqlite:///a b@c.db"),
        ("sqlite://", "sqlite://"),
    ],
)
def test_of_an_address_nothing_secret_is_shown(url: str, shown: str) -> None:
    assert trial_storage.redacted(url) == shown
    assert trial_storage.redacted(shown) == shown


def test_a_password_with_an_at_sign_is_said_how_to_write(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"postgresql://\*\*\* .*%40") as caught:
        trial_storage.opened(StudyDirectory(tmp_path), "postgresql://me:p@s3cret@host/db")
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        *("nonsense", "sqlite:////nowhere/at/all.db", "mydb://me:s3cret@localhost:1/x"),
        *("mydb://host/x?password=s3cret", "me:s3cret@host"),
    ],
)
def test_a_storage_that_cannot_be_reached_is_said_without_its_password(
    url: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="cannot be reached") as caught:
        trial_storage.opened(StudyDirectory(tmp_path), url)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        *("postgresql://me:s3cret@host/db", "postgresql://me:s3%63ret@host/db"),
        *("postgresql://host/db?password=s3cret&x=1", "postgresql://host/db?password=s3%63ret"),
    ],
)
def test_a_storage_that_is_lost_is_said_without_its_password(url: str) -> None:
    with (
        pytest.raises(InputError, match=r"cannot be reached any more .*--resume") as caught,
        trial_storage.storage_errors(url),
    ):
        raise optuna.exceptions.StorageInternalError(f"lost {url}, password is s3cret")
    assert "password is ***" in str(caught.value)
    assert "ret@" not in str(caught.value)
    assert "s3" not in str(caught.value)


def test_optuna_keeps_its_own_loudness(tmp_path: Path) -> None:
    optuna.logging.set_verbosity(optuna.logging.INFO)
    with trial_storage.storage_errors(None):
        assert optuna.logging.get_verbosity() == optuna.logging.ERROR
    assert optuna.logging.get_verbosity() == optuna.logging.INFO
    assert TrialState.FAIL.is_finished()
