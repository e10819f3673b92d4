"""Stages and the hooks around the loop, with a strategy made up for it."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.testing import assert_close

from proselflc import methods
from proselflc.correction.criteria import BootSoft, CrossEntropy, ProSelfLC
from proselflc.data.batches import Batch
from proselflc.errors import InputError
from proselflc.training import checkpoint, loop, processes
from proselflc.training.checkpoint import State
from proselflc.training.loop import DivergenceError, Observer, StepResult, Training, train_steps
from proselflc.training.recipe import SCHEDULES, Recipe
from proselflc.training.strategy import (
    Snapshot,
    Stage,
    Strategy,
    all_probabilities,
    described,
    spans,
)

N, C, FEATURES, BATCHES = 6, 3, 5, 2
EPOCHS = 6
TOTAL = EPOCHS * BATCHES
BOUNDARY = 4 * BATCHES
RECIPE = Recipe(optimizer="sgd", lr=0.1, weight_decay=0.01, schedule="cosine", ema=0.7)


class Few:
    """Two batches per epoch of the same 12 examples, in an order that depends on the epoch."""

    x = torch.randn(N * BATCHES, FEATURES, generator=torch.Generator().manual_seed(0))
    y = torch.arange(N * BATCHES) % C

    def __len__(self) -> int:
        return BATCHES

    def batches(self, epoch: int = 0, start: int = 0) -> Iterator[Batch]:
        order = torch.randperm(N * BATCHES, generator=torch.Generator().manual_seed(epoch))
        for number in range(start, BATCHES):
            index = order[number * N : (number + 1) * N]
            yield Batch(self.x[index], self.y[index], index)


class Odd(Strategy):
    """Remembers what it saw, learns a number, and has the first stage's model beside it later."""

    stages = (Stage("one", 2 / 3, schedule="constant"), Stage("two", 1 / 3, fresh=True))
    seen: Tensor

    def __init__(self) -> None:
        super().__init__(CrossEntropy())
        self.register_buffer("seen", torch.zeros(N * BATCHES, C))
        self.scale = nn.Parameter(torch.ones(()))
        self.teacher: nn.Module | None = None
        self.told: list[tuple[object, ...]] = []

    def arrange(self, stage: int, model: nn.Module) -> None:
        self.told.append(("arrange", stage))
        if stage > 0:
            self.criterion = BootSoft(0.3)
            self.teacher = copy.deepcopy(model).requires_grad_(False).eval()

    def enter(self, stage: int, snapshot: Snapshot) -> None:
        self.told.append(("enter", stage, len(snapshot.given)))
        if self.teacher is not None:
            self.teacher.load_state_dict(snapshot.model.state_dict())
            self.seen.copy_(all_probabilities(snapshot))

    def penalty(self, logits: Tensor, batch: Batch) -> Tensor | None:
        penalty = (self.scale * logits - self.seen[batch.index]).square().mean()
        if self.teacher is not None:
            penalty = penalty + (logits - self.teacher(batch.x)).square().mean()
        return penalty

    def after_step(self, logits: Tensor, batch: Batch) -> None:
        assert not logits.requires_grad
        self.told.append(("step", len(batch.y)))
        self.seen[batch.index] = 0.5 * self.seen[batch.index] + 0.5 * logits.softmax(1)

    def after_epoch(self, stage: int, epoch: int, snapshot: Snapshot) -> None:
        self.told.append(("epoch", stage, epoch))


class TwoCriteria(Strategy):
    """No state; the second stage goes on with the weights of the first."""

    stages = (Stage("one", 0.5), Stage("two", 0.5, schedule="poly"))

    def __init__(self) -> None:
        super().__init__(ProSelfLC(10))


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(FEATURES, 7), nn.BatchNorm1d(7), nn.ReLU(), nn.Dropout(0.2), nn.Linear(7, C)
    )


def training(strategy: Strategy, recipe: Recipe = RECIPE, total: int = TOTAL) -> Training:
    accelerator = processes.accelerator("no")
    return Training(network(), strategy, recipe, total, BATCHES, accelerator=accelerator)


def snapshot(model: nn.Module) -> Snapshot:
    def predict(rows: Any = None) -> Iterator[tuple[Tensor, Tensor]]:
        model.eval()
        with torch.no_grad():
            for start in range(0, len(Few.y), 5):
                index = torch.arange(start, min(start + 5, len(Few.y)))
                yield index, model(Few.x[index])

    return Snapshot(model, Few.y.numpy(), C, predict, pytest.fail)


def taught(one: Training) -> Iterator[StepResult]:
    return train_steps(one, Few(), snapshot)


def saved_state(one: Training) -> State:
    return State(
        one.step, {name: t.clone() for name, t in one.tensors().items()}, copy.deepcopy(one.facts())
    )


def assert_same(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    assert one.keys() == other.keys()
    for name, tensor in one.items():
        assert torch.equal(tensor, other[name]), name


@settings(max_examples=200, deadline=None)
@given(
    shares=st.lists(st.integers(1, 50), min_size=1, max_size=5),
    epochs=st.integers(1, 60),
    batches=st.integers(1, 9),
    cut=st.integers(0, 8),
)
def test_stages_tile_training_in_whole_epochs(
    shares: list[int], epochs: int, batches: int, cut: int
) -> None:
    stages = tuple(Stage(str(k), share / sum(shares)) for k, share in enumerate(shares))
    total = max(1, epochs * batches - cut % batches)
    begun = -(-total // batches)
    if begun < len(stages):
        with pytest.raises(InputError, match=r"needs an epoch for each, got \d+: raise epochs="):
            spans(stages, total, batches)
        return
    found = spans(stages, total, batches)
    assert [span.stage for span in found] == list(stages)
    assert found[0].first == 0
    assert found[-1].first + found[-1].steps == total
    for one, following in pairwise(found):
        assert one.first + one.steps == following.first
        assert one.steps % batches == 0
        assert one.steps >= batches
    assert found[-1].steps >= 1
    if all(begun * stage.share >= 1.5 for stage in stages):  # else each gets one epoch at least
        done = 0.0
        for span in found:
            done += span.stage.share
            assert abs(-(-(span.first + span.steps) // batches) - done * begun) <= 0.5 + 1e-6
    told = described(found, batches)
    assert sum(cast("int", one["epochs"]) for one in told) == begun
    assert [one["first_step"] for one in told] == [span.first for span in found]
    assert [cast("int", one["first_epoch"]) * batches for one in told] == [s.first for s in found]


def test_an_epoch_for_each_stage_even_where_its_share_is_less() -> None:
    stages = (Stage("a", 0.01), Stage("b", 0.98), Stage("c", 0.01))
    assert [span.steps for span in spans(stages, 30, 10)] == [10, 10, 10]
    assert [span.steps for span in spans(stages, 45, 10)] == [10, 30, 5]


def test_progress_and_learning_rate_are_the_stages_own() -> None:
    one = training(Odd())
    rates, progress, stages = [], [], []
    for result in taught(one):
        rates.append(result.lr)
        progress.append(one.progress)
        stages.append(one.stage)
    first, second = BOUNDARY, TOTAL - BOUNDARY
    assert stages == [0] * first + [1] * second
    assert progress == pytest.approx(
        [*((k + 1) / first for k in range(first)), *((k + 1) / second for k in range(second))]
    )
    assert rates == pytest.approx(
        [0.1] * first + [0.1 * SCHEDULES["cosine"](k / second) for k in range(second)]
    )


def test_the_loss_is_told_the_stages_progress() -> None:
    seen: list[float] = []

    class Watching(Strategy):
        stages = TwoCriteria.stages

        def loss(self, logits: Tensor, batch: Batch, progress: float) -> Tensor:
            seen.append(progress)
            return super().loss(logits, batch, progress)

    list(taught(training(Watching(CrossEntropy()))))
    half = [(k + 1) / 6 for k in range(6)]
    assert seen == pytest.approx(half + half)


def test_a_fresh_stage_begins_with_the_initial_weights_and_nothing_else_of_the_past() -> None:
    one = training(Odd())
    initial = {name: t.clone() for name, t in one.module.state_dict().items()}
    for result in taught(one):
        if result.step == BOUNDARY:
            trained = {name: t.clone() for name, t in one.module.state_dict().items()}
            averaged = {name: t.clone() for name, t in one.evaluated.state_dict().items()}
            break
    assert any(not torch.equal(initial[name], trained[name]) for name in initial)
    assert one.bare_optimizer.state
    one.enter(1, snapshot)
    began = {name: t.clone() for name, t in one.module.state_dict().items()}
    assert_same(began, initial)
    assert one.average is not None
    assert_same(dict(one.average.module.state_dict()), initial)
    assert int(one.average.n_averaged) == 0
    assert not one.bare_optimizer.state
    strategy = cast("Odd", one.strategy)
    assert strategy.teacher is not None
    assert_same(dict(strategy.teacher.state_dict()), averaged)  # what was trained is looked at
    p = all_probabilities(snapshot(strategy.teacher))
    assert_close(strategy.seen, p)
    assert one.begins_stage() is None


def test_a_stage_that_is_not_fresh_goes_on_with_the_weights_but_not_with_the_momentum() -> None:
    one = training(TwoCriteria())
    for result in taught(one):
        if result.step == TOTAL // 2:
            break
    before = {name: t.clone() for name, t in one.module.state_dict().items()}
    assert one.average is not None
    count = int(one.average.n_averaged)
    one.enter(1, snapshot)
    assert_same(dict(one.module.state_dict()), before)
    assert not one.bare_optimizer.state
    assert int(one.average.n_averaged) == count


def test_hooks_are_called_when_they_say() -> None:
    one = training(Odd())
    for _ in taught(one):
        pass
    strategy = cast("Odd", one.strategy)
    epoch = [("step", N)] * BATCHES
    expected: list[tuple[object, ...]] = [("arrange", 0), ("arrange", 0), ("enter", 0, 12)]
    for k in range(4):
        expected += [*epoch, ("epoch", 0, k)]
    expected += [("arrange", 1), ("enter", 1, 12)]
    for k in range(2):
        expected += [*epoch, ("epoch", 1, k)]
    assert strategy.told == expected


def test_an_epoch_that_training_cuts_short_is_over_too() -> None:
    one = training(Odd(), total=TOTAL - 1)
    for _ in taught(one):
        pass
    assert cast("Odd", one.strategy).told[-2:] == [("step", N), ("epoch", 1, 1)]


def test_after_a_step_the_strategy_sees_what_the_model_said_before_it() -> None:
    one = training(Odd(), replace(RECIPE, accumulate=2))
    result = next(taught(one))
    strategy = cast("Odd", one.strategy)
    assert_close(strategy.seen[result.batch.index], 0.5 * result.logits.softmax(1))


def test_parameters_of_a_strategy_learn_and_are_kept() -> None:
    one = training(Odd())
    for _ in taught(one):
        pass
    strategy = cast("Odd", one.strategy)
    assert float(strategy.scale.detach()) != 1
    assert strategy.teacher is not None
    tensors = one.tensors()
    assert {"strategy.scale", "strategy.seen", "strategy.teacher.0.weight"} <= tensors.keys()
    parameters = [*one.module.parameters(), strategy.scale]  # the teacher does not learn
    number = len(parameters) - 1
    assert f"optimizer.{number}.momentum_buffer" in tensors
    assert f"optimizer.{number + 1}.momentum_buffer" not in tensors


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
@pytest.mark.parametrize("stop", [1, 3, BOUNDARY - 1, BOUNDARY, BOUNDARY + 1, TOTAL - 1])
def test_a_run_that_is_resumed_in_any_stage_is_the_same(
    stop: int, optimizer: Any, tmp_path: Path
) -> None:
    recipe = replace(RECIPE, optimizer=optimizer, accumulate=2)
    whole, losses = training(Odd(), recipe), []
    for result in taught(whole):
        losses.append(result.loss)
        if result.step == stop:
            checkpoint.write(tmp_path, saved_state(whole))
    state, notes = checkpoint.read_last(tmp_path)
    assert state is not None
    assert not notes
    resumed = training(Odd(), recipe)
    for parameter in resumed.module.parameters():
        nn.init.normal_(parameter)  # the user's own model may not be as it was
    resumed.restore(state)
    assert [result.loss for result in taught(resumed)] == losses[stop:]
    assert_same(whole.tensors(), resumed.tensors())
    assert whole.facts() == resumed.facts()


def test_initial_weights_are_kept_as_long_as_they_are_needed() -> None:
    one = training(Odd())
    names = {f"initial.{name}" for name in one.module.state_dict()}
    for result in taught(one):
        kept = {name for name in one.tensors() if name.startswith("initial.")}
        assert kept == (names if result.step <= BOUNDARY else set())
    assert not any(name.startswith("initial.") for name in training(TwoCriteria()).tensors())


def test_initial_weights_of_another_model_are_refused() -> None:
    one = training(Odd())
    next(taught(one))
    state = saved_state(one)
    del state.tensors["initial.0.weight"]
    with pytest.raises(InputError, match="does not fit this model: its initial weights differ"):
        training(Odd()).restore(state)


@pytest.mark.parametrize("stage", [None, True, "0", 1, -1, 7])
def test_a_checkpoint_of_another_stage_is_refused(stage: object) -> None:
    one = training(Odd())
    next(taught(one))
    state = replace(saved_state(one), facts={**one.facts(), "stage": stage})
    with pytest.raises(InputError, match="does not fit the stages of this method: it names stage "):
        training(Odd()).restore(state)


def test_a_state_from_before_a_stages_first_step_is_of_that_stage() -> None:
    """As one is that was saved because the loss of the step was no number."""

    class Broken(Few):
        def batches(self, epoch: int = 0, start: int = 0) -> Iterator[Batch]:
            for batch in super().batches(epoch, start):
                nan = torch.full_like(batch.x, torch.nan)
                yield batch._replace(x=nan) if epoch == BOUNDARY // BATCHES else batch

    whole, losses = training(Odd()), [result.loss for result in taught(training(Odd()))]
    with pytest.raises(DivergenceError, match=f"the loss of step {BOUNDARY + 1} is nan"):
        for _ in train_steps(whole, Broken(), snapshot):
            pass
    resumed = training(Odd())
    resumed.restore(saved_state(whole))
    # Batch normalisation has seen what was no number, so that alone is mended by hand.
    resumed.module.load_state_dict(training(Odd()).module.state_dict())
    assert [result.loss for result in taught(resumed)] == losses[BOUNDARY:]
    assert ("enter", 1, 12) not in cast("Odd", resumed.strategy).told


def test_a_strategy_that_is_a_criterion_is_its_criterion() -> None:
    batch = next(Few().batches())
    logits = torch.randn(N, C, generator=torch.Generator().manual_seed(1))
    criterion = ProSelfLC(10)
    found = Strategy(criterion).loss(logits, batch, 0.7)
    assert_close(found, criterion(logits, batch.y, progress=0.7))
    e = Strategy(criterion).evidence(logits, batch, 0.7)
    target, trust = criterion.method(e)
    expected = criterion.correct(logits, batch.y, progress=0.7)
    assert_close(target, expected.target)
    assert_close(trust, expected.trust)


def test_all_probabilities_are_in_the_order_of_the_examples() -> None:
    order = torch.tensor([4, 1, 0, 3, 2])
    logits = torch.randn(5, C, generator=torch.Generator().manual_seed(2))
    one = Snapshot(
        nn.Identity(),
        np.zeros(5, np.int64),
        C,
        lambda rows=None: iter(
            [(order[:2], logits[order[:2]]), (order[2:], logits[order[2:]].bfloat16())]
        ),
        pytest.fail,
    )
    assert_close(all_probabilities(one), logits.softmax(1), rtol=0.02, atol=0.01)
    assert_close(all_probabilities(one)[order[:2]], logits[order[:2]].softmax(1))


def test_the_loop_names_no_method() -> None:
    text = Path(loop.__file__).read_text(encoding="utf-8").casefold()
    for innocent in ("accelerator.backward(", "forward pass", "from proselflc."):
        text = text.replace(innocent, "")
    words = set("".join(c if c.isalnum() or c == "_" else " " for c in text).split())
    assert not words & {name.casefold() for name in methods.names()}
    assert "methods" not in words


def test_a_step_is_observed_before_its_epoch_ends() -> None:
    """What is recorded of an epoch's last batch is of that epoch, not of the next."""

    class Counting(Strategy):
        epoch = 0

        def after_epoch(self, stage: int, epoch: int, snapshot: Snapshot) -> None:
            self.epoch = epoch + 1

    strategy = Counting(CrossEntropy())
    ours = training(strategy)
    seen: list[tuple[int, int]] = []

    class Epochs(Observer):
        def observe(self, result: StepResult) -> None:
            seen.append((result.epoch, strategy.epoch))

    for _ in train_steps(ours, Few(), snapshot, observers=(Epochs(),)):
        pass
    assert len(seen) == TOTAL
    assert all(epoch == state for epoch, state in seen)
    assert strategy.epoch > 1


@pytest.mark.parametrize("make", [CrossEntropy, lambda: ProSelfLC(10), lambda: BootSoft(0.3)])
def test_a_batch_is_the_weighted_mean_of_its_examples(make: Any) -> None:
    """Value and gradient, against one call per example."""
    weight = np.array([2.0, 0.0, 0.5, 1.0, 3.0, 0.0], np.float32)
    z = torch.randn(4, C, generator=torch.Generator().manual_seed(0), requires_grad=True)
    batch = Batch(torch.zeros(4, 1), torch.tensor([0, 1, 2, 2]), torch.tensor([4, 1, 0, 2]))
    found = Strategy(make(), weight).loss(z, batch, 0.7)
    plain = Strategy(make())
    losses = [
        plain.loss(z[k : k + 1], Batch(*(t[k : k + 1] for t in batch)), 0.7) for k in range(4)
    ]
    expected = (3.0 * losses[0] + 2.0 * losses[2] + 0.5 * losses[3]) / 5.5
    assert_close(found, expected)
    slopes = (torch.autograd.grad(loss, z)[0] for loss in (found, expected))
    assert_close(*slopes)


def test_examples_that_do_not_count_teach_nothing() -> None:
    z = torch.randn(2, C, generator=torch.Generator().manual_seed(0), requires_grad=True)
    batch = Batch(torch.zeros(2, 1), torch.tensor([0, 1]), torch.tensor([0, 2]))
    loss = Strategy(CrossEntropy(), np.array([0, 1, 0], np.float32)).loss(z, batch, 0.5)
    loss.backward()  # type: ignore[no-untyped-call]
    assert loss.item() == 0
    assert z.grad is not None
    assert z.grad.abs().max() == 0
