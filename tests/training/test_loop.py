"""The loop against loops written by hand, and against itself when interrupted."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.testing import assert_close

from proselflc.correction.criteria import CrossEntropy, ProSelfLC
from proselflc.correction.criterion import Criterion
from proselflc.correction.memory import Memory
from proselflc.correction.target import RememberedPrediction, Target
from proselflc.correction.trust import Fixed
from proselflc.data.batches import Batch
from proselflc.data.inputs import Floats
from proselflc.errors import InputError
from proselflc.training import processes
from proselflc.training.checkpoint import State
from proselflc.training.loop import DivergenceError, Observer, StepResult, Training, train_steps
from proselflc.training.recipe import SCHEDULES, Recipe, factor
from proselflc.training.strategy import Strategy

N, C, FEATURES = 12, 3, 5
STEPS = 6
SGD = Recipe(optimizer="sgd", lr=0.2, weight_decay=0.01, schedule="cosine", steps=STEPS)
ADAMW = replace(SGD, optimizer="adamw", lr=0.02, weight_decay=0.1)


class Few:
    """Three batches of N examples that are different in every epoch."""

    def __init__(self, dtype: torch.dtype = torch.float32, batches: int = 3) -> None:
        self.dtype, self.count = dtype, batches
        self.asked: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return self.count

    def batch(self, epoch: int, number: int) -> Batch:
        generator = torch.Generator().manual_seed(100 * epoch + number)
        x = torch.randn(N, FEATURES, generator=generator).to(self.dtype)
        y = torch.randint(C, (N,), generator=generator)
        return Batch(x, y, torch.arange(N) + N * number)

    def batches(self, epoch: int = 0, start: int = 0) -> Iterator[Batch]:
        self.asked.append((epoch, start))
        for number in range(start, self.count):
            yield self.batch(epoch, number)


def network(*, norm: bool = False, dropout: float = 0.0) -> nn.Sequential:
    torch.manual_seed(0)
    layers: list[nn.Module] = [nn.Linear(FEATURES, 7)]
    if norm:
        layers.append(nn.BatchNorm1d(7))
    layers += [nn.ReLU(), nn.Dropout(dropout), nn.Linear(7, C)]
    return nn.Sequential(*layers)


def training(
    recipe: Recipe,
    model: nn.Module | None = None,
    criterion: Criterion | None = None,
    weight: Floats | None = None,
) -> Training:
    return Training(
        network() if model is None else model,
        Strategy(ProSelfLC(STEPS, 8.0) if criterion is None else criterion, weight),
        recipe,
        STEPS,
        len(Few()),
        accelerator=processes.accelerator(recipe.precision),
    )


def weights(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def assert_equal(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    assert one.keys() == other.keys()
    for name, tensor in one.items():
        assert torch.equal(tensor, other[name]), name


def by_hand(
    recipe: Recipe, model: nn.Module, *, dtype: torch.dtype = torch.float32
) -> tuple[list[float], list[dict[str, Tensor]]]:
    """Losses and weights of a plain torch loop with ProSelfLC, written anew."""
    optimizer: torch.optim.Optimizer
    assert recipe.lr is not None
    assert recipe.weight_decay is not None
    if recipe.optimizer == "adamw":
        optimizer = torch.optim.AdamW(model.parameters(), weight_decay=recipe.weight_decay)
    else:
        optimizer = torch.optim.SGD(
            model.parameters(), momentum=recipe.momentum, weight_decay=recipe.weight_decay
        )
    loader, losses, states = Few(dtype), [], []
    for step in range(STEPS):
        batch = loader.batch(*divmod(step, 3))
        for group in optimizer.param_groups:
            group["lr"] = recipe.lr * factor(recipe.schedule, step, STEPS, recipe.warmup)
        p = model(batch.x).softmax(1)
        entropy = -(p.detach() * p.detach().log()).sum(1)
        g = 1 / (1 + math.exp(-8 * ((step + 1) / STEPS - 0.5)))
        eps = (g * (1 - entropy / math.log(C)))[:, None]
        target = (1 - eps) * F.one_hot(batch.y, C) + eps * p
        loss = -(target * p.log()).sum(1).mean()
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        if recipe.clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), recipe.clip)
        optimizer.step()
        losses.append(loss.item())
        states.append(weights(model))
    return losses, states


@pytest.mark.parametrize("clip", [None, 0.1])
@pytest.mark.parametrize("recipe", [SGD, ADAMW], ids=["sgd", "adamw"])
@pytest.mark.parametrize("warmup", [0, 3])
def test_a_step_is_that_of_a_plain_loop(recipe: Recipe, clip: float | None, warmup: int) -> None:
    recipe = replace(recipe, clip=clip, warmup=warmup)
    losses, states = by_hand(recipe, network().double(), dtype=torch.float64)
    ours = training(recipe, network().double())
    for result, loss, state in zip(
        train_steps(ours, Few(torch.float64)), losses, states, strict=True
    ):
        assert result.loss == pytest.approx(loss, rel=1e-6)
        assert_close(dict(ours.module.state_dict()), state, rtol=1e-9, atol=1e-12)


def test_clipping_changes_what_is_learned() -> None:
    _, plain = by_hand(SGD, network())
    _, clipped = by_hand(replace(SGD, clip=0.1), network())
    assert not torch.equal(plain[-1]["0.weight"], clipped[-1]["0.weight"])


@pytest.mark.parametrize("parts", [2, 5, N, N + 3])
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-6), (torch.float32, 1e-5)], ids=str
)
def test_a_batch_in_parts_is_the_batch(parts: int, dtype: torch.dtype, tolerance: float) -> None:
    whole, cut = (training(replace(SGD, accumulate=k), network().to(dtype)) for k in (1, parts))
    for one, other in zip(
        train_steps(whole, Few(dtype)), train_steps(cut, Few(dtype)), strict=True
    ):
        assert one.loss == pytest.approx(other.loss, rel=1e-5)
        assert_close(one.logits, other.logits, rtol=tolerance, atol=tolerance)
        assert len(other.logits) == other.size == N
    assert_close(
        dict(whole.module.state_dict()),
        dict(cut.module.state_dict()),
        rtol=tolerance,
        atol=tolerance,
    )


@pytest.mark.parametrize("parts", [1, 2, 5, N])
def test_weights_count_in_the_whole_batch_and_not_in_its_parts(parts: int) -> None:
    """The first gradient is that of Σ_i w_i L_i / Σ_i w_i, by hand; one part weighs nothing."""
    weight = np.linspace(0, 2, 3 * N, dtype=np.float32)
    weight[2:5] = 0
    model, batch = network().double(), Few(torch.float64).batch(0, 0)
    losses = F.cross_entropy(model(batch.x), batch.y, reduction="none")
    w = torch.from_numpy(weight).double()[batch.index]
    loss = (w * losses).sum() / w.sum()
    torch.autograd.backward(loss)
    torch.optim.SGD(model.parameters(), lr=0.2).step()
    recipe = replace(SGD, weight_decay=0.0, momentum=0.0, accumulate=parts)
    ours = training(recipe, network().double(), CrossEntropy(), weight)
    assert ours.learn(batch).loss == pytest.approx(loss.item(), rel=1e-6)
    assert_close(weights(ours.module), weights(model), rtol=1e-7, atol=1e-9)


def test_a_batch_that_weighs_nothing_teaches_nothing() -> None:
    recipe = replace(SGD, weight_decay=0.0, accumulate=2)
    ours = training(recipe, None, CrossEntropy(), np.zeros(3 * N, np.float32))
    before = weights(ours.module)
    assert ours.learn(Few().batch(0, 0)).loss == 0
    assert_equal(weights(ours.module), before)


def test_the_average_of_the_weights_is_what_the_formula_says() -> None:
    decay, model = 0.8, training(replace(SGD, ema=0.8))
    assert model.average is not None
    expected: dict[str, Tensor] | None = None
    for _ in train_steps(model, Few()):
        now = weights(model.module)
        expected = (
            now
            if expected is None
            else {name: decay * expected[name] + (1 - decay) * now[name] for name in now}
        )
        assert_close(dict(model.evaluated.state_dict()), expected)
    assert model.evaluated is model.average.module
    assert not torch.equal(model.evaluated.state_dict()["0.weight"], now["0.weight"])


def test_without_an_average_the_weights_themselves_are_evaluated() -> None:
    model = training(SGD)
    assert model.evaluated is model.module


def test_the_average_does_not_change_what_is_learned() -> None:
    with_one, without = training(replace(SGD, ema=0.9)), training(SGD)
    for _ in zip(train_steps(with_one, Few()), train_steps(without, Few()), strict=True):
        pass
    assert_equal(weights(with_one.module), weights(without.module))


def test_running_statistics_are_averaged_too() -> None:
    model = training(replace(SGD, ema=0.5), network(norm=True))
    before = training(SGD, network(norm=True)).module.state_dict()["1.running_mean"]
    for _ in train_steps(model, Few()):
        pass
    averaged = model.evaluated.state_dict()["1.running_mean"]
    assert not torch.equal(averaged, before)
    assert not torch.equal(averaged, model.module.state_dict()["1.running_mean"])


def test_bfloat16_learns_about_the_same() -> None:
    half, full = training(replace(SGD, precision="bf16")), training(SGD)
    for one, other in zip(train_steps(half, Few()), train_steps(full, Few()), strict=True):
        assert one.logits.dtype in (torch.bfloat16, torch.float32)
        assert one.loss == pytest.approx(other.loss, rel=0.05)
        assert one.loss != other.loss
    for name, tensor in half.module.state_dict().items():
        assert tensor.dtype == torch.float32
        assert_close(tensor, full.module.state_dict()[name], rtol=0.05, atol=0.05)


def test_channels_last_is_only_another_order_in_memory() -> None:
    results = []
    for channels_last in (False, True):
        torch.manual_seed(0)
        conv = nn.Conv2d(3, 4, 3, padding=1)
        model = nn.Sequential(conv, nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, C))
        ours = training(replace(SGD, channels_last=channels_last), model)
        order = torch.channels_last if channels_last else torch.contiguous_format
        assert conv.weight.is_contiguous(memory_format=order)
        generator = torch.Generator().manual_seed(1)
        for _ in range(STEPS):
            x = torch.randn(N, 3, 6, 6, generator=generator).contiguous(memory_format=order)
            y = torch.randint(C, (N,), generator=generator)
            ours.learn(Batch(x, y, torch.arange(N)))
        results.append(weights(ours.module))
    assert_close(results[0], results[1], rtol=1e-4, atol=1e-5)


def test_dropout_is_a_function_of_seed_and_step() -> None:
    batch = Few().batch(0, 0)

    def first(seed: int, step: int) -> Tensor:
        one = training(replace(SGD, seed=seed), network(dropout=0.5))
        one.step = step
        torch.rand(seed + step + 1)  # whatever was drawn before
        return one.learn(batch).logits

    assert torch.equal(first(0, 2), first(0, 2))
    assert not torch.equal(first(0, 2), first(0, 3))
    assert not torch.equal(first(0, 2), first(1, 2))


def test_every_part_of_a_batch_has_its_own_dropout() -> None:
    batch = Few().batch(0, 0)
    twice = Batch(*(torch.cat((tensor, tensor)) for tensor in batch))
    logits = training(replace(SGD, accumulate=2), network(dropout=0.5)).learn(twice).logits
    assert not torch.equal(logits[:N], logits[N:])


@pytest.mark.parametrize(
    "recipe",
    [SGD, replace(SGD, momentum=0.0), ADAMW, replace(ADAMW, ema=0.7, clip=1.0, accumulate=2)],
    ids=["sgd", "no momentum", "adamw", "adamw, average, parts"],
)
@pytest.mark.parametrize("stop", [1, 3, 4])
def test_a_restored_run_goes_on_as_if_nothing_had_happened(recipe: Recipe, stop: int) -> None:
    model = network(norm=True, dropout=0.3)
    whole = training(recipe, copy.deepcopy(model))
    losses = []
    state = None
    for result in train_steps(whole, Few()):
        losses.append(result.loss)
        if result.step == stop:
            tensors = {name: tensor.clone() for name, tensor in whole.tensors().items()}
            state = State(stop, tensors, whole.facts())
    assert state is not None
    torch.manual_seed(99)
    resumed = training(recipe, nn.Sequential(*copy.deepcopy(model)))
    for parameter in resumed.module.parameters():
        nn.init.normal_(parameter)  # nothing of the beginning may be left
    resumed.restore(state)
    loader = Few()
    assert [result.loss for result in train_steps(resumed, loader)] == losses[stop:]
    assert loader.asked[0] == divmod(stop, 3)
    assert_equal(
        {name: tensor.clone() for name, tensor in whole.tensors().items()},
        {name: tensor.clone() for name, tensor in resumed.tensors().items()},
    )


def test_a_state_holds_tensors_alone() -> None:
    model = training(replace(ADAMW, ema=0.9))
    next(train_steps(model, Few()))
    tensors = model.tensors()
    assert all(isinstance(tensor, Tensor) for tensor in tensors.values())
    assert {name.split(".")[0] for name in tensors} == {
        "model",
        "strategy",
        "average",
        "optimizer",
    }
    assert {name.split(".")[2] for name in tensors if name.startswith("optimizer")} == {
        "step",
        "exp_avg",
        "exp_avg_sq",
    }


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("optimizer.0.momentum_buffer", torch.zeros(2)),
        ("optimizer.99.momentum_buffer", torch.zeros(7)),
        ("optimizer.x.momentum_buffer", torch.zeros(7)),
        ("model.0.weight", torch.zeros(2)),
        ("model.stranger", torch.zeros(2)),
    ],
)
def test_a_state_of_something_else_is_refused(name: str, value: Tensor) -> None:
    model = training(SGD)
    next(train_steps(model, Few()))
    state = State(1, {**model.tensors(), name: value}, model.facts())
    with pytest.raises(InputError, match=r"the checkpoint does not fit this (model|optimiser): "):
        training(SGD).restore(state)


@pytest.mark.parametrize("value", [torch.inf, torch.nan])
@pytest.mark.parametrize("recipe", [SGD, replace(ADAMW, ema=0.9, clip=1.0)], ids=["sgd", "adamw"])
def test_a_loss_that_is_no_number_stops_before_the_weights_change(
    recipe: Recipe, value: float
) -> None:
    model = training(recipe)
    good = Few().batch(0, 0)
    model.learn(good)
    before = {name: tensor.clone() for name, tensor in model.tensors().items()}
    x = good.x.clone()
    x[3, 1] = value
    with pytest.raises(DivergenceError, match=r"the loss of step 2 is (nan|inf) at learning rate"):
        model.learn(good._replace(x=x))
    assert model.step == 1
    assert_equal({name: tensor.clone() for name, tensor in model.tensors().items()}, before)


def test_steps_come_in_order_and_say_where_an_epoch_ends() -> None:
    recipe, total = replace(SGD, steps=8), 8
    model = Training(
        network(),
        Strategy(CrossEntropy()),
        recipe,
        total,
        len(Few()),
        accelerator=processes.accelerator("no"),
    )
    loader = Few()
    seen = list(train_steps(model, loader))
    assert [result.step for result in seen] == list(range(1, 9))
    assert [result.epoch for result in seen] == [0, 0, 0, 1, 1, 1, 2, 2]
    assert [result.ends_epoch for result in seen] == [False, False, True] * 2 + [False, True]
    for number, result in enumerate(seen):
        expected = loader.batch(*divmod(number, 3))
        assert torch.equal(result.batch.x, expected.x)
        assert result.size == N
        assert result.lr == 0.2 * SCHEDULES["cosine"](number / 8)
        assert not result.stop
    assert loader.asked == [(0, 0), (1, 0), (2, 0)]
    assert model.progress == 1
    assert list(train_steps(model, loader)) == []


def test_the_logits_of_a_result_are_from_before_the_step() -> None:
    model = training(SGD, criterion=CrossEntropy())
    before = copy.deepcopy(model.module)
    result = next(train_steps(model, Few()))
    assert_close(result.logits, before(result.batch.x).detach())
    assert not result.logits.requires_grad
    assert result.loss == pytest.approx(F.cross_entropy(result.logits, result.batch.y).item())


def test_resuming_in_the_middle_of_an_epoch_reads_only_what_is_left() -> None:
    model = training(SGD)
    model.step = 4
    loader = Few()
    seen = [(result.step, result.epoch, result.ends_epoch) for result in train_steps(model, loader)]
    assert seen == [(5, 1, False), (6, 1, True)]
    assert loader.asked == [(1, 1)]


def test_a_request_to_stop_ends_the_loop_after_the_next_step() -> None:
    model = training(SGD)
    stops = []
    for result in train_steps(model, Few()):
        stops.append(result.stop)
        model.wants_stop = result.step == 2
    assert stops == [False, False, True]


class Journal(Observer):
    """Notes every call, and asks for a stop after the evaluation of a step."""

    def __init__(self, last: int | None = None) -> None:
        self.calls: list[tuple[str, int]] = []
        self.last = last

    def observe(self, result: StepResult) -> None:
        self.calls.append(("observe", result.step))

    def after_evaluation(self, line: Mapping[str, Any]) -> None:
        self.calls.append(("evaluation", line["step"]))
        if line["step"] == self.last:
            self.stop_reason = "enough"

    def after_step(self, result: StepResult) -> None:
        self.calls.append(("step", result.step))


def test_observers_are_called_in_order_and_may_stop_the_loop() -> None:
    journal, model = Journal(last=2), training(SGD)
    steps = train_steps(
        model,
        Few(),
        observers=(Observer(), journal),
        evaluate=lambda result: {"step": result.step} if result.step % 2 == 0 else None,
    )
    assert [(result.step, result.stop) for result in steps] == [(1, False), (2, False), (3, True)]
    one, two, three = (("observe", 1), ("step", 1)), ("observe", 2), ("observe", 3)
    assert journal.calls == [*one, two, ("evaluation", 2), ("step", 2), three, ("step", 3)]
    assert model.step == 3


def test_a_step_computes_what_is_taught_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model = training(SGD, criterion=ProSelfLC(10))
    calls = []
    made = Strategy.evidence

    def counted(strategy: Strategy, *arguments: Any) -> Any:
        calls.append(arguments)
        return made(strategy, *arguments)

    monkeypatch.setattr(Strategy, "evidence", counted)
    result = model.learn(Few().batch(0, 0))
    assert calls == []  # nothing but the loss, for a step that is not observed
    p, corrected = result.logits.softmax(1), result.corrected
    eps = corrected.trust[:, None]
    q = F.one_hot(result.batch.y, C).float()
    assert_close(corrected.target, (1 - eps) * q + eps * p)
    assert_close(corrected.entropy, -(p * p.log()).sum(1))
    for tensor in (corrected.target, corrected.trust, corrected.entropy):
        assert not tensor.requires_grad
    assert len(calls) == 1


def test_a_step_learns_in_training_mode_whatever_happened_between() -> None:
    model = training(SGD, network(norm=True))
    model.module.eval()
    before = model.module.state_dict()["1.running_mean"].clone()
    model.learn(Few().batch(0, 0))
    assert all(module.training for module in model.module.modules())
    assert not torch.equal(model.module.state_dict()["1.running_mean"], before)


def test_frozen_parameters_stay_as_they_are() -> None:
    model = network()
    for parameter in model[0].parameters():
        parameter.requires_grad_(False)
    before = weights(model)
    for _ in train_steps(training(SGD, model), Few()):
        pass
    after = weights(model)
    unchanged = {name for name in before if torch.equal(before[name], after[name])}
    assert unchanged == {"0.weight", "0.bias"}


def test_a_method_that_remembers_is_told_which_examples_it_sees() -> None:
    memory = Memory(3 * N, C)
    criterion = Criterion(Target(RememberedPrediction(), Fixed(0.5)), memory=memory)
    model = training(replace(SGD, accumulate=2), criterion=criterion)
    some = train_steps(model, Few())
    result = next(some)
    assert memory.seen.tolist() == [True] * N + [False] * 2 * N
    assert_close(memory.average[:N], result.logits.softmax(1))
    assert "strategy.criterion.memory.rows.average" in model.tensors()
