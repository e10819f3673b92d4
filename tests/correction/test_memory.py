"""A remembered average per training example, as reference of the algebra."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from proselflc import (
    BootSoft,
    Criterion,
    Fixed,
    Growth,
    LabelSmoothing,
    Memory,
    ProSelfLC,
    Target,
)
from proselflc.correction import memory_rule as rules
from proselflc.correction.target import Prediction, RememberedPrediction


def make() -> Criterion:
    target = Target(RememberedPrediction(), Fixed(0.4))
    return Criterion(target, memory=Memory(10, 3, momentum=0.8))


def test_average_is_exponential_and_keyed_by_index() -> None:
    criterion = make()
    g = torch.Generator().manual_seed(0)
    average: dict[int, Tensor] = {}
    for step in range(4):
        index = torch.tensor([[1, 7], [7, 3], [1, 3], [9, 7]][step])
        z = torch.randn(2, 3, generator=g)
        y = torch.tensor([0, 2])
        loss = criterion(z, y, index=index)
        p = z.softmax(-1)
        for row, i in enumerate(index.tolist()):
            average[i] = 0.8 * average[i] + 0.2 * p[row] if i in average else p[row]
        r = torch.stack([average[i] for i in index.tolist()])
        q_tilde = 0.6 * torch.eye(3)[y] + 0.4 * r
        assert_close(loss, -(q_tilde * z.log_softmax(-1)).sum(-1).mean())
    assert criterion.memory is not None
    assert_close(criterion.memory.average[7], average[7])
    assert criterion.memory.seen.nonzero().flatten().tolist() == [1, 3, 7, 9]


def test_reference_is_a_constant() -> None:
    criterion = make()
    z = torch.randn(2, 3, requires_grad=True)
    index, y = torch.tensor([4, 5]), torch.tensor([0, 1])
    (gradient,) = torch.autograd.grad(criterion(z, y, index=index), z)
    p = z.detach().softmax(-1)
    assert_close(gradient, (p - (0.6 * torch.eye(3)[y] + 0.4 * p)) / 2)


def test_looking_does_not_change_it() -> None:
    criterion = make()
    index, y = torch.tensor([4, 5]), torch.tensor([0, 1])
    z = torch.randn(2, 3)
    unseen = criterion.correct(z, y, index=index)
    assert_close(unseen.target, 0.6 * torch.eye(3)[y] + 0.4 * z.softmax(-1))
    criterion(z, y, index=index)
    before = criterion.state_dict()
    before = {name: value.clone() for name, value in before.items()}
    later = criterion.correct(-z, y, index=index)
    assert_close(later.target, 0.6 * torch.eye(3)[y] + 0.4 * z.softmax(-1))
    with torch.no_grad():
        criterion(-z, y, index=index)
    assert_close(criterion.state_dict(), before)


def test_state_dict_carries_the_memory() -> None:
    first, second = make(), make()
    index, y, z = torch.tensor([4, 5]), torch.tensor([0, 1]), torch.randn(2, 3)
    first(z, y, index=index)
    second.load_state_dict(first.state_dict())
    assert_close(second(-z, y, index=index), first(-z, y, index=index))


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_predictions_that_are_not_finite_are_not_remembered(bad: float) -> None:
    criterion, clean = make(), make()
    index, y = torch.tensor([4, 5, 6]), torch.tensor([0, 1, 2])
    z = torch.randn(3, 3)
    criterion(z[:2], y[:2], index=index[:2])
    clean(z[:2], y[:2], index=index[:2])
    broken = -z
    broken[1:, 0] = bad
    assert criterion(broken, y, index=index).isnan()
    clean(-z[:1], y[:1], index=index[:1])
    assert criterion.memory is not None
    assert clean.memory is not None
    assert_close(criterion.memory.state_dict(), clean.memory.state_dict())
    assert not criterion.memory.seen[6]
    assert_close(criterion(z, y, index=index), clean(z, y, index=index))


@given(st.lists(st.integers(0, 3), min_size=1, max_size=12), st.integers(0, 2**31))
def test_one_example_several_times_in_a_batch_counts_with_its_mean(
    index: list[int], seed: int
) -> None:
    g = torch.Generator().manual_seed(seed)
    memory = Memory(4, 3, momentum=0.8)
    first = torch.randn(2, 3, generator=g).softmax(-1)
    memory.update(torch.tensor([0, 1]), first)
    p = torch.randn(len(index), 3, generator=g).softmax(-1)
    memory.update(torch.tensor(index), p)
    for i in range(4):
        rows = [row for row, j in enumerate(index) if i == j]
        assert memory.seen[i] == (i < 2 or bool(rows))
        expected = first[i] if i < 2 else torch.zeros(3)
        if rows:
            mean = p[rows].mean(0)
            expected = 0.8 * expected + 0.2 * mean if i < 2 else mean
        assert_close(memory.average[i], expected)


def test_a_repeated_example_counts_without_its_broken_copies() -> None:
    memory = Memory(2, 2)
    p = torch.tensor([[0.2, 0.8], [torch.nan, 0.5], [0.4, 0.6]])
    memory.update(torch.tensor([1, 1, 1]), p)
    assert_close(memory.average, torch.tensor([[0.0, 0.0], [0.3, 0.7]]))


def test_a_call_that_fails_is_not_remembered() -> None:
    timeless = Criterion(Target(RememberedPrediction(), Growth(10)), memory=Memory(10, 3))
    with pytest.raises(ValueError, match="total_steps"):
        timeless(torch.randn(2, 3), torch.tensor([0, 1]), index=torch.tensor([4, 5]))
    own = Criterion(Target(Prediction(), Fixed(0.4)), memory=Memory(10, 3))
    with pytest.raises(ValueError, match="class id 7"):
        own(torch.randn(2, 3), torch.tensor([0, 7]), index=torch.tensor([4, 5]))
    for criterion in (timeless, own):
        assert criterion.memory is not None
        assert not criterion.memory.seen.any()
        assert not criterion.memory.average.any()
        assert criterion.t == 0


def test_a_memory_for_another_number_of_classes_is_refused() -> None:
    with pytest.raises(ValueError, match=r"3 classes, but the logits have 4.*Memory\(10, 4\)"):
        make()(torch.zeros(2, 4), torch.tensor([0, 1]), index=torch.tensor([4, 5]))


def test_index_is_welcome_where_nothing_is_remembered() -> None:
    z, y = torch.randn(2, 3), torch.tensor([0, 1])
    for criterion in (BootSoft(0.3), ProSelfLC(10), LabelSmoothing(0.1)):
        given = criterion(z, y, index=torch.tensor([4, 5]), progress=0.5)
        assert_close(given, criterion(z, y, progress=0.5))


@pytest.mark.parametrize(
    ("index", "says"),
    [
        (None, "pass index="),
        (torch.tensor([1]), r"shaped \[2\]"),
        (torch.tensor([1.0, 2.0]), "int64"),
        (torch.tensor([1, 10]), "from 1 to 10.*holds 10 examples"),
        (torch.tensor([-1, 1]), "from -1 to 1"),
    ],
)
def test_a_wrong_index_is_refused(index: Tensor | None, says: str) -> None:
    criterion = make()
    with pytest.raises(ValueError, match=says):
        criterion(torch.zeros(2, 3), torch.tensor([0, 1]), index=index)
    assert criterion.t == 0


def test_without_a_memory_the_reference_says_what_it_needs() -> None:
    forgetful = Criterion(Target(RememberedPrediction(), Fixed(0.4)))
    with pytest.raises(ValueError, match="memory="):
        forgetful(torch.zeros(2, 3), torch.tensor([0, 1]))


RULES = {
    "exponential": rules.ExponentialAverage(0.8),
    "from zero": rules.AverageFromZero(0.8),
    "from label": rules.AverageFromLabel(0.8),
    "bias-corrected": rules.BiasCorrectedAverage(0.8),
    "mean": rules.RunningMean(),
    "last": rules.LastValue(),
    "label, then last": rules.LabelThenLast(),
}


def expected_row(name: str, first: Tensor, history: list[Tensor]) -> Tensor:
    """Return the row after a history of predictions, by sums instead of recurrences."""
    k = len(history)
    weights = torch.tensor([0.2 * 0.8 ** (k - 1 - j) for j in range(k)])
    summed = sum((w * p for w, p in zip(weights, history, strict=True)), torch.zeros(3))
    if name == "exponential":
        return summed + 0.8**k * history[0]
    if name == "from label":
        return summed + 0.8**k * first
    if name == "bias-corrected":
        return summed / weights.sum()
    if name == "mean":
        return torch.stack(history).mean(0)
    return summed if name == "from zero" else history[-1]


@pytest.mark.parametrize("name", RULES)
def test_a_rule_is_its_sum(name: str) -> None:
    given_classes = torch.arange(6) % 3
    memory = Memory(6, 3, rule=RULES[name], given=given_classes)
    one_hot = torch.eye(3)[given_classes]
    begins = one_hot if "label" in name else torch.zeros(6, 3)
    assert torch.equal(memory.average, begins)
    g = torch.Generator().manual_seed(0)
    for _ in range(2):  # the second time after a restart
        history: dict[int, list[Tensor]] = {i: [] for i in range(6)}
        for _ in range(8):
            index = torch.randperm(6, generator=g)[:4]
            p = torch.randn(4, 3, generator=g).softmax(-1)
            memory.update(index, p)
            for i, row in zip(index.tolist(), p, strict=True):
                history[i].append(row)
        for i, rows in history.items():
            assert_close(memory.average[i], expected_row(name, one_hot[i], rows))
            assert memory.updates[i] == len(rows)
        memory.restart()
        assert torch.equal(memory.average, begins)
        assert not memory.seen.any()


@pytest.mark.parametrize("storage", ["dense", "half", "top"])
@pytest.mark.parametrize("world", [1, 2, 3])
def test_shards_together_are_the_whole_memory(storage: Any, world: int) -> None:
    n, C = 11, 7
    y = torch.arange(n) % C
    options: dict[str, Any] = {"rule": rules.RunningMean(), "given": y, "storage": storage}
    whole = Memory(n, C, **options)
    parts = [Memory(n, C, shard=(rank, world), **options) for rank in range(world)]
    g = torch.Generator().manual_seed(0)
    for _ in range(5):
        index = torch.randperm(n, generator=g)[:8]
        p = (3 * torch.randn(8, C, generator=g)).softmax(-1)
        whole.update(index, p)
        for rank, part in enumerate(parts):
            mine = index % world == rank
            part.update(index[mine], p[mine])
            assert torch.equal(part.at(index[mine]).average, whole.at(index[mine]).average)
    states = [part.per_example() for part in parts]
    saved = whole.per_example()
    assert saved.keys() == whole.state_dict().keys() == states[0].keys()
    for name, tensor in saved.items():
        together = Memory.interleaved([state[name] for state in states], n)
        assert together.dtype == tensor.dtype
        assert len(tensor) == n
        assert torch.equal(together, tensor)
        for rank, state in enumerate(states):
            assert torch.equal(Memory.own(together, (rank, world)), state[name])


def test_an_example_of_another_process_is_refused() -> None:
    memory = Memory(10, 3, shard=(1, 2))
    with pytest.raises(ValueError, match=r"example 4 belongs to process 0, but.*process 1 of 2"):
        memory.update(torch.tensor([3, 4]), torch.full((2, 3), 1 / 3))
    with pytest.raises(ValueError, match=r"0 ≤ rank < world, got \(2, 2\)"):
        Memory(10, 3, shard=(2, 2))
    with pytest.raises(ValueError, match=r"begins at the label: pass given="):
        Memory(10, 3, rule=rules.AverageFromLabel())


def test_a_state_of_an_earlier_version_is_understood() -> None:
    memory = Memory(4, 3)
    old = {
        "average": torch.rand(4, 3),
        "seen": torch.tensor([True, False, True, True]),
    }
    memory.load_state_dict(old)
    assert torch.equal(memory.average, old["average"])
    assert memory.updates.tolist() == [1, 0, 1, 1]


@pytest.mark.parametrize("storage", ["dense", "half", "top"])
@pytest.mark.parametrize("world", [1, 2, 3])
def test_a_process_takes_its_examples_from_the_state_of_all(storage: Any, world: int) -> None:
    n, C = 11, 7
    options: dict[str, Any] = {"given": torch.arange(n) % C, "storage": storage}
    whole = Memory(n, C, **options)
    whole.update(torch.arange(n), torch.randn(n, C).softmax(1))
    for rank in range(world):
        part = Memory(n, C, shard=(rank, world), **options)
        part.load_state_dict(whole.state_dict())
        assert torch.equal(part.average, whole.average[rank::world])
        again = Memory(n, C, shard=(rank, world), **options)
        again.load_state_dict(part.state_dict())  # of its own examples alone
        assert torch.equal(again.average, part.average)


def test_a_process_takes_its_examples_from_a_state_of_an_earlier_version() -> None:
    old = {"average": torch.rand(5, 3), "seen": torch.tensor([True, False, True, True, False])}
    part = Memory(5, 3, shard=(1, 2))
    part.load_state_dict(old)
    assert torch.equal(part.average, old["average"][1::2])
    assert part.updates.tolist() == [0, 1]


def test_a_state_of_other_examples_is_refused() -> None:
    for shard in ((0, 1), (1, 2)):
        with pytest.raises(RuntimeError, match="remembers 7 examples, and this memory 12"):
            Memory(12, 3, shard=shard).load_state_dict(Memory(7, 3).state_dict())
