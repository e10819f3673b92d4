"""A remembered average per training example, as reference of the algebra."""

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from proselflc import Criterion, Fixed, Memory, Target
from proselflc.correction.reference import RememberedPrediction


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
