"""D2L: the dimension of features, the turning point, and labels that are trusted less."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from proselflc.correction.criteria import CrossEntropy
from proselflc.data.inputs import Ints
from proselflc.errors import InputError
from proselflc.methods import d2l
from proselflc.methods.d2l import DimensionalityDriven, local_dimension
from proselflc.training.loop import Training, train_steps
from proselflc.training.recipe import Recipe

EPOCHS = 10
# Flat until the beginning of epoch 6, where they rise: it is gone back to epoch 5.
RISING = [3.0, 2.9, 3.1, 3.0, 2.8, 3.0, 4.0, 4.2, 5.0, 6.0]
TURN = 6


def strategy(crowd: Any, epochs: int = EPOCHS, begin: float = 0.1) -> DimensionalityDriven:
    return DimensionalityDriven(crowd.context(epochs), begin=begin, window=5)


@pytest.fixture
def prescribe(monkeypatch: pytest.MonkeyPatch) -> Callable[[Sequence[float]], None]:
    """Lets the features have given dimensions."""

    def prescribed(values: Sequence[float]) -> None:
        monkeypatch.setattr(
            DimensionalityDriven, "_dimension", lambda self, epoch, snapshot: values[epoch]
        )

    return prescribed


@pytest.mark.parametrize("dimension", [1, 2, 5, 10])
@pytest.mark.parametrize("kind", ["cube", "sphere"])
def test_data_of_known_dimension_has_it(dimension: int, kind: str) -> None:
    """Points of a cube or of a sphere's surface, turned into 50 dimensions.

    Neighbours that are far away, as they are among few points of many dimensions, see edges and
    the curvature: the estimate of ten dimensions is known to be some fifth too low.
    """
    generator = np.random.default_rng(0)
    if kind == "cube":
        x = generator.random((1500, dimension))
    else:
        x = generator.normal(size=(1500, dimension + 1))
        x /= np.linalg.norm(x, axis=1, keepdims=True)
    turn, _ = np.linalg.qr(generator.normal(size=(50, 50)))
    found = local_dimension(torch.from_numpy(x @ turn[: x.shape[1]]))
    assert found.shape == (1500,)
    # The mean of 1/LID is that of Hill's estimate, which is unbiased but for those edges.
    assert float((1 / found).mean()) == pytest.approx(1 / dimension, rel=0.1 + 0.02 * dimension)
    assert float(found.mean()) == pytest.approx(dimension, rel=0.12 + 0.01 * dimension)


@pytest.mark.parametrize("k", [3, 20])
def test_it_is_the_formula(k: int) -> None:
    x = np.random.default_rng(1).normal(size=(40, 6))
    found = local_dimension(torch.from_numpy(x).float(), k)
    x = x.astype(np.float32).astype(float)
    for i in range(len(x)):
        r = sorted(math.dist(x[i], x[j]) for j in range(len(x)) if j != i)[:k]
        expected = -k / sum(math.log(one / r[-1] + 1e-8) for one in r)
        assert float(found[i]) == pytest.approx(expected, rel=1e-6)


def test_the_dimension_does_not_depend_on_scale() -> None:
    x = torch.randn(64, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for scale in (1e-30, 1e-9, 1e6):
        assert_close(local_dimension(scale * x), local_dimension(x), rtol=1e-6, atol=0)


def test_copies_and_equal_distances_do_not_break_it() -> None:
    generator = torch.Generator().manual_seed(0)
    some = torch.randn(40, 5, generator=generator)
    pairs = local_dimension(torch.cat((some, some)))
    assert pairs.isfinite().all()
    assert (pairs > 0).all()
    same = local_dimension(torch.ones(30, 5))
    assert_close(same, torch.full((30,), 1 / -math.log(1e-8), dtype=torch.float64))
    # All of a simplex's corners are as far from each other: no dimension, and not a positive one.
    assert (local_dimension(torch.eye(30)) < 0).all()


def test_the_mean_is_over_groups_of_a_sample_in_a_drawn_order(
    crowd: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the last layer sees of 60 of 120 examples, among 25: the last ten have too few."""
    monkeypatch.setattr(d2l, "SAMPLE", 60)
    monkeypatch.setattr(d2l, "GROUP", 25)
    model, asked = crowd.network(), list[Ints]()
    snapshot = crowd.snapshot(model)

    def predict(rows: Ints | None = None) -> Iterator[tuple[Tensor, Tensor]]:
        assert rows is not None
        asked.append(rows)
        return iter(snapshot.predict(rows))

    one = strategy(crowd)
    found = [one._dimension(epoch, replace(snapshot, predict=predict)) for epoch in (0, 0, 1)]
    assert found[0] == found[1] != found[2]
    assert all(len(set(rows.tolist())) == 60 for rows in asked)
    assert (asked[0] != asked[2]).any()
    model.eval()
    with torch.no_grad():
        h = model[:-1](crowd.x[asked[0]])
    expected = torch.cat([local_dimension(h[:25]), local_dimension(h[25:50])]).mean()
    assert found[0] == pytest.approx(float(expected), rel=1e-6)


def turned_at(values: Sequence[float], begin: int, window: int) -> int | None:
    """The rule, written again."""
    for e in range(len(values)):
        before = list(values[:e])[-window:]
        if e + 1 > begin + window and values[e] - sum(before) / window > 2 * statistics.pstdev(
            before
        ):
            return e - 1
    return None


@pytest.mark.parametrize(
    ("values", "begin", "expected"),
    [
        (RISING, 0.1, 5),
        ([3.0] * 10, 0.1, None),  # no rise at all
        ([3.0] * 9 + [3.001], 0.1, 8),  # any rise after none
        ([5, 4, 3, 2.5, 2.2, 2.1, 2.05, 2.0, 2.0, 2.0], 0.0, None),
        (
            [3.0, 9.0, 3.0, 3.1, 2.9, 3.0, 4.0, 4.0, 4.0, 9.0],
            0.1,
            8,
        ),  # 9 is within the first window
        (RISING, 0.4, 8),  # not looked for until ten have been seen
        ([1.0, 1.0, 1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 2.0, 2.0], 0.0, 4),  # as early as it can be
    ],
)
def test_the_turn_is_where_the_rule_says(
    crowd: Any,
    prescribe: Callable[[Sequence[float]], None],
    values: Sequence[float],
    begin: float,
    expected: int | None,
) -> None:
    prescribe(values)
    one = strategy(crowd, begin=begin)
    assert turned_at(values, round(begin * EPOCHS), 5) == expected
    ours = crowd.training(one, EPOCHS)
    for _ in train_steps(ours, crowd, crowd.snapshot):
        pass
    assert one.facts() == {"turned_at_epoch": expected}
    assert_close(one.dimensions, torch.tensor(values, dtype=torch.float32))
    assert len(crowd.notes) == (expected is not None)
    if expected is not None:
        assert f"after epoch {expected + 1} the dimension" in crowd.notes[0]
        assert f"rose to {values[expected + 1]:.2f}" in crowd.notes[0]


@pytest.mark.parametrize("bad", [0.0, -1e8, math.nan, math.inf])
def test_a_dimension_that_is_none_is_the_one_before(
    crowd: Any, prescribe: Callable[[Sequence[float]], None], bad: float
) -> None:
    prescribe([bad, 2.0, bad, bad, 3.0, bad, bad, bad, bad, bad])
    one = strategy(crowd, begin=1.0)
    for _ in train_steps(crowd.training(one, EPOCHS), crowd, crowd.snapshot):
        pass
    assert one.dimensions.tolist() == [1, 2, 2, 2, 3, 3, 3, 3, 3, 3]


def copied(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


@pytest.mark.parametrize("ema", [None, 0.9])
def test_the_weights_of_an_epoch_earlier_are_really_taken(
    crowd: Any, prescribe: Callable[[Sequence[float]], None], ema: float | None
) -> None:
    prescribe(RISING)
    recipe = Recipe(optimizer="sgd", lr=0.1, weight_decay=0.0, schedule="constant", ema=ema)
    ours = crowd.training(strategy(crowd), EPOCHS, recipe)
    after: list[dict[str, Tensor]] = []
    for result in train_steps(ours, crowd, crowd.snapshot):
        if result.ends_epoch:
            after.append(copied(ours.module))
            if result.epoch == TURN - 1:
                state = copied(ours.evaluated)
    # After epoch 6, which is epoch 5 from 0, the weights are those after epoch 5.
    assert any(name.endswith("running_var") for name in after[0])
    for name, tensor in after[TURN - 1].items():
        assert torch.equal(tensor, after[TURN - 2][name]), name
        assert torch.equal(state[name], after[TURN - 2][name]), name
        assert not torch.equal(after[TURN - 2][name], after[TURN - 3][name]), name
        assert not torch.equal(after[TURN][name], after[TURN - 1][name]), name
    assert (ours.average is not None) == (ema is not None)


def test_labels_are_believed_by_the_schedule(
    crowd: Any, prescribe: Callable[[Sequence[float]], None]
) -> None:
    prescribe(RISING)
    one = strategy(crowd)
    steps = train_steps(crowd.training(one, EPOCHS), crowd, crowd.snapshot)
    in_steps = [float(one.alpha.value) for _ in steps]
    found = in_steps[:: crowd.total]  # in the first step of every epoch
    expected = [1.0] * TURN + [
        math.exp(-(e / EPOCHS) * RISING[e] / min(RISING[: e + 1])) for e in range(TURN, EPOCHS)
    ]
    assert found == pytest.approx(expected, rel=1e-6)
    assert found[-1] == pytest.approx(math.exp(-0.9 * 6.0 / 2.8), rel=1e-6)


@pytest.mark.parametrize("alpha", [1.0, 0.3])
def test_the_target_is_the_label_and_the_largest_class(crowd: Any, alpha: float) -> None:
    one = strategy(crowd)
    one.alpha.value.fill_(alpha)
    batch = next(crowd.batches())
    z = torch.randn(20, 4, generator=torch.Generator().manual_seed(3), requires_grad=True)
    (found,) = torch.autograd.grad(one.loss(z, batch, 0.5), z)
    p, target = z.detach().double().softmax(1).numpy(), np.zeros((20, 4))
    for i in range(20):
        target[i, batch.y[i]] += alpha
        target[i, p[i].argmax()] += 1 - alpha
    loss = -(target * np.log(p)).sum(1).mean()
    assert one.loss(z, batch, 0.5).item() == pytest.approx(loss, rel=1e-5)
    assert_close(found, torch.from_numpy((p - target) / 20).float(), rtol=1e-4, atol=1e-6)
    taught, trust = one.taught(one.evidence(z.detach(), batch, 0.5), batch)
    assert_close(taught, torch.from_numpy(target).float())
    assert_close(trust, torch.full((20,), 1 - alpha))
    if alpha == 1:
        assert_close(one.loss(z, batch, 0.5), CrossEntropy()(z, batch.y))


def test_what_learns_is_cross_entropy_until_the_turn(
    crowd: Any, prescribe: Callable[[Sequence[float]], None]
) -> None:
    from proselflc.training.strategy import Strategy

    prescribe(RISING)
    plain = [
        one.loss for one in train_steps(crowd.training(Strategy(CrossEntropy()), EPOCHS), crowd)
    ]
    ours = crowd.training(strategy(crowd), EPOCHS)
    found = [one.loss for one in train_steps(ours, crowd, crowd.snapshot)]
    turn = TURN * crowd.total
    assert found[:turn] == pytest.approx(plain[:turn], rel=1e-4)
    assert found[turn:] != pytest.approx(plain[turn:], rel=0.01)


@pytest.mark.parametrize("ema", [None, 0.9])
@pytest.mark.parametrize("stop", [1, 29, 35, 36, 37, 50])  # it goes back after step 36
def test_resuming_before_and_after_the_turn_changes_nothing(
    crowd: Any,
    prescribe: Callable[[Sequence[float]], None],
    assert_goes_on: Callable[..., dict[str, Tensor]],
    stop: int,
    ema: float | None,
) -> None:
    prescribe(RISING)
    recipe = Recipe(optimizer="sgd", lr=0.1, weight_decay=0.0, schedule="constant", ema=ema)
    ours = assert_goes_on(lambda: crowd.training(strategy(crowd), EPOCHS, recipe), crowd, stop)
    assert ours["strategy.turned"] == 5
    assert_close(ours["strategy.dimensions"], torch.tensor(RISING))


@pytest.mark.parametrize("compiled", [False, True])
def test_a_model_that_is_compiled_or_learns_in_parts_has_dimensions_too(
    crowd: Any, compiled: bool
) -> None:
    one = strategy(crowd, epochs=3)
    ours = crowd.training(one, 3, Recipe(optimizer="sgd", lr=0.1, weight_decay=0.0, accumulate=3))
    if compiled:
        torch._dynamo.reset()
        ours.module.compile(backend="eager")
    losses = [result.loss for result in train_steps(ours, crowd, crowd.snapshot)]
    torch._dynamo.reset()
    assert all(map(math.isfinite, losses))
    assert (one.dimensions > 0.5).all()
    assert (one.dimensions < 24).all()


@pytest.mark.parametrize("n", [1, 20])
def test_too_few_examples_are_refused(crowd: Any, n: int) -> None:
    with pytest.raises(InputError) as caught:
        DimensionalityDriven(crowd.context(5, n=n), begin=0.3, window=5)
    assert caught.value.field == "method"
    assert f"only {n} examples" in caught.value.reason


def test_just_enough_examples_have_a_dimension(crowd: Any) -> None:
    one = DimensionalityDriven(crowd.context(5, n=21), begin=0.3, window=5)
    assert 0 < one._dimension(0, crowd.snapshot(crowd.network())) < 24


def test_a_model_without_a_linear_head_is_refused(crowd: Any) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 9))
    with pytest.raises(InputError) as caught:
        strategy(crowd).arrange(0, model)
    assert caught.value.reason.endswith("Sequential does not end in one")
    assert caught.value.fix is not None
    assert caught.value.fix.startswith("use another method= or model=")


def test_nothing_of_the_copy_learns(crowd: Any) -> None:
    one = strategy(crowd)
    ours: Training = crowd.training(one, EPOCHS)
    assert not [name for name, weight in one.named_parameters() if weight.requires_grad]
    learning = {id(p) for group in ours.bare_optimizer.param_groups for p in group["params"]}
    assert learning == {id(p) for p in ours.module.parameters()}
