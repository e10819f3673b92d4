"""Forward correction where numbers are extreme; its formulas are in tests/identities."""

import pytest
import torch
from torch.nn import functional as F
from torch.testing import assert_close

from proselflc import BackwardCorrection, ForwardCorrection
from proselflc.correction import robust


def test_forward_with_the_identity_is_cross_entropy_where_p_underflows() -> None:
    z = torch.tensor([[0.0, 200.0], [0.0, -1e4]], requires_grad=True)
    for target in (torch.tensor([0, 1]), torch.eye(2)):
        ours, expected = ForwardCorrection(torch.eye(2))(z, target), F.cross_entropy(z, target)
        assert_close(ours, expected)
        assert_close(torch.autograd.grad(ours, z), torch.autograd.grad(expected, z))


def test_forward_of_many_classes_takes_the_matrix_product(monkeypatch: pytest.MonkeyPatch) -> None:
    z = torch.randn(5, 7, dtype=torch.float64)
    q = torch.randn(5, 7, dtype=torch.float64).softmax(-1)
    T = torch.rand(7, 7, dtype=torch.float64)
    criterion = ForwardCorrection(T / T.sum(1, keepdim=True))
    exact = criterion(z, q)
    monkeypatch.setattr(robust, "EXACT", 0)
    assert_close(criterion(z, q), exact)


def test_a_label_that_the_matrix_rules_out_is_named() -> None:
    T = torch.tensor([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [1.0, 0.0, 0.0]])
    criterion = ForwardCorrection(T)
    with pytest.raises(ValueError, match="class 2 is given as a label"):
        criterion(torch.zeros(2, 3), torch.tensor([0, 2]))
    assert criterion(torch.zeros(2, 3), torch.tensor([0, 1])).isfinite()
    assert criterion(torch.zeros(2, 3), torch.tensor([0, -100])).isfinite()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_matrix_keeps_its_precision_and_moves_with_the_criterion(dtype: torch.dtype) -> None:
    T = (torch.eye(3) * 0.7 + 0.1).to(dtype)
    forward, backward = ForwardCorrection(T), BackwardCorrection(T)
    assert forward.state_dict()["method.transition"].dtype is dtype
    assert_close(backward.state_dict()["method.inverse"] @ T, torch.eye(3, dtype=dtype))
    T.zero_()  # the user's own matrix is copied
    assert forward(torch.zeros(1, 3), torch.tensor([1])).isfinite()
