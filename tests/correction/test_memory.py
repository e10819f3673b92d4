"""A remembered average per training example, as reference of the algebra."""

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
