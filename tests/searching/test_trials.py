"""The trials of a stage: their values, what is proposed, and that none is ended too early."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.distributions import CategoricalDistribution as Values
from optuna.distributions import FloatDistribution, IntDistribution
from optuna.trial import TrialState

from proselflc.queue import storage as queue_storage
from proselflc.queue.run_queue import Claim, Queue
from proselflc.searching import trials
from proselflc.searching.search_space import Candidates
from proselflc.searching.study import SearchStage, TrialRecord
from proselflc.searching.trials import Trials

GRID: dict[str, Candidates] = {
    "a": Values((1, 2, 3)),
    "b": Values(("x", "y")),
}
RANGES: dict[str, Candidates] = {
    "lr": FloatDistribution(0.001, 1.0, log=True),
    "epochs": IntDistribution(1, 50),
    "kind": Values(("x", "y")),
}

Make = Callable[..., Trials]


@pytest.fixture(autouse=True)
def _silent() -> Iterator[None]:
    was = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    yield
    optuna.logging.set_verbosity(was)


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Return a function that makes the trials, each time as another process would."""

    def stage(choices: Mapping[str, Candidates] = GRID, **options: Any) -> Trials:
        storage = queue_storage.opened(tmp_path / "journal.log")
        settings = {"count": 8, "seed": 0, "prune": False, **options}
        return Trials(Queue(storage, "a/b", tmp_path / "runs"), choices, **settings)

    return stage


def claimed(stage: Trials) -> Claim:
    claim = stage.claim()
    assert claim is not None
    return claim


def test_a_grid_is_tried_whole_in_its_order(make: Make) -> None:
    stage = make()
    assert len(stage.planned) == 6
    assert {one.state for one in stage.records()} == {"waiting"}
    for k in range(6):
        with claimed(stage) as claim:
            assert claim.name == k
            claim.complete(k / 10, f"run-{k}")
    assert stage.claim() is None
    expected = [{"a": a, "b": b} for a in (1, 2, 3) for b in ("x", "y")]
    records = make().records()
    assert [one.values for one in records] == expected
    assert [one.val_accuracy for one in records] == [k / 10 for k in range(6)]
    assert [one.run for one in records] == [f"run-{k}" for k in range(6)]
    assert {one.state for one in records} == {"complete"}
    assert all(one.seconds is not None and 0 <= one.seconds < 60 for one in records)


def test_nothing_is_still_one_trial(make: Make) -> None:
    stage = make({})
    with claimed(stage) as claim:
        assert claim.values == {}
        claim.complete(0.5, "run")
    assert [one.is_over for one in stage.records()] == [True]


def test_trials_that_version_0_1_0_has_put_in_are_done(make: Make) -> None:
    """That version fixed the values of a grid in an attribute of Optuna's own."""
    stage = make()
    study = optuna.create_study(study_name="a/b", storage=stage.queue.storage, direction="maximize")
    for place, (a, b) in enumerate([(1, "x"), (1, "y")]):
        study.enqueue_trial({"a": a, "b": b}, user_attrs={"place": place})
    study.enqueue_trial({"a": 2, "b": "x"}, user_attrs={"place": 2})
    first = study.ask()
    first.suggest_categorical("a", [1, 2, 3])
    first.suggest_categorical("b", ["x", "y"])
    for name, value in {"host": "elsewhere", "process": 7, "alive": 0.0}.items():
        first.set_user_attr(name, value)  # killed
    for k in range(6):
        with claimed(make()) as claim:
            assert claim.name == k
            claim.complete(k / 10, "run")
    records = make().records()
    assert [one.values for one in records] == [{"a": a, "b": b} for a in (1, 2, 3) for b in "xy"]
    assert [one.val_accuracy for one in records] == [k / 10 for k in range(6)]


def test_a_diverged_trial_of_version_0_1_0_is_over(make: Make) -> None:
    stage = make({"a": Values((1,))})
    study = optuna.create_study(study_name="a/b", storage=stage.queue.storage, direction="maximize")
    study.enqueue_trial({"a": 1}, user_attrs={"place": 0})
    trial = study.ask()
    trial.set_user_attr("run", "run")
    trial.set_user_attr("reason", "the loss is nan")
    study.tell(trial, state=TrialState.FAIL)
    assert stage.claim() is None
    assert [one.state for one in stage.records()] == ["diverged"]


def test_what_is_proposed_does_not_depend_on_when_a_worker_stopped(
    make: Make, tmp_path: Path
) -> None:
    def accuracy(claim: Claim) -> float:
        return 1 / (1 + abs(float(claim.values["lr"]) - 0.1) + int(claim.values["epochs"]) / 100)

    def run(stage: Callable[[], Trials], *stops: int) -> list[Any]:
        left = set(stops)
        while (claim := stage().claim()) is not None:
            with claim:
                if claim.name not in left:
                    claim.complete(accuracy(claim), "run")
                left.discard(int(claim.name))
        return [dict(one.values) for one in stage().records()]

    def in_memory(name: str, count: int, seed: int) -> Trials:
        return Trials(Queue(storage, name, tmp_path / "memory"), RANGES, count, seed, False)

    storage = optuna.storages.InMemoryStorage()
    whole = run(lambda: in_memory("c", 14, 0))
    assert run(lambda: make(RANGES, count=14), 3, 8, 11) == whole
    assert len({str(one) for one in whole}) == 14  # the sampler does not repeat itself
    assert run(lambda: in_memory("d", 1, 1))[0] != whole[0]  # another seed


def test_two_trials_that_run_at_the_same_time_have_different_values(make: Make) -> None:
    stage = make(RANGES, count=16)
    claims = [claimed(stage) for _ in range(16)]
    assert [one.name for one in claims] == list(range(16))
    assert len({str(one.values) for one in claims}) == 16
    assert stage.claim() is None
    assert {one.state for one in stage.records()} == {"running"}


def test_a_trial_is_never_ended_before_half_of_training(make: Make) -> None:
    stage = make(RANGES, prune=True)
    for _ in range(trials.STARTUP):
        with claimed(stage) as claim:
            for k in range(1, 20):
                assert not stage.is_behind(claim, k / 20, 0.9)
            claim.complete(0.9, "run")
    with claimed(stage) as bad:
        ends = [k / 200 for k in range(1, 200) if stage.is_behind(bad, k / 200, 0.1)]
        assert ends[0] == 0.5  # t = Γ/2 and no earlier
        bad.prune("run")
    with claimed(stage) as good:
        assert not any(stage.is_behind(good, k / 20, 0.95) for k in range(1, 20))
        good.complete(0.95, "run")
    assert [one.state for one in stage.records()][4] == "pruned"


def test_nothing_is_ended_unless_that_was_asked_for(make: Make) -> None:
    stage = make(RANGES, prune=False)
    for _ in range(trials.STARTUP):
        with claimed(stage) as claim:
            stage.is_behind(claim, 0.7, 0.9)
            claim.complete(0.9, "run")
    assert not stage.is_behind(claimed(stage), 0.7, 0.1)


def best(records: list[TrialRecord]) -> TrialRecord | None:
    return SearchStage("cce", False, tuple(records)).best


def test_the_best_is_the_first_of_the_highest() -> None:
    records = [
        TrialRecord(0, "pruned", {}),
        TrialRecord(1, "complete", {}, 0.5),
        TrialRecord(2, "complete", {}, 0.75),
        TrialRecord(3, "complete", {}, 0.75),
        TrialRecord(4, "diverged", {}),
    ]
    assert best(records) is records[2]
    assert best(records[:1]) is None
    zero = TrialRecord(0, "complete", {}, 0.0)
    assert best([zero]) is zero


def test_importance_tells_what_matters_from_what_does_not(make: Make) -> None:
    choices = {"a": Values((1, 2, 3, 4)), "b": Values((1, 2, 3))}
    stage = make(choices)
    while (claim := stage.claim()) is not None:
        with claim:
            claim.complete(int(claim.values["a"]) / 10 + int(claim.values["b"]) / 1000, "run")
    found = stage.importance()
    assert found["a"] > 0.9
    assert abs(sum(found.values()) - 1) < 1e-6
    assert make({"a": Values((1, 2))}).importance() == {}
