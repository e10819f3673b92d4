"""Table 1 of the paper: what CCE, LS, CP and LC have in common and where they differ.

Each row is a test and each column a parameter. What the library's own catalogue says about a method
is held against the same numbers.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DataObject, SearchStrategy
from torch import Tensor
from torch.distributions import Categorical, kl_divergence
from torch.nn import functional as F
from torch.testing import assert_close

from proselflc import functional, methods
from proselflc.correction import target as catalogue
from proselflc.correction.target import Target

Batches = SearchStrategy[tuple[Tensor, Tensor]]
Gradient = Callable[[Callable[[Tensor], Tensor], Tensor], Tensor]
Entropy = Callable[[Tensor], Tensor]
few = settings(deadline=None, max_examples=25, derandomize=True)


@dataclass(frozen=True)
class Column:
    """One method of the table: q̃ = (share of annotation) q + u_share·ε u + p_share·ε p."""

    name: str
    make: Callable[[float], Target]
    annotation: Callable[[float], float]  # of ε
    u_share: int
    p_share: int
    formula: str
    entropy: str
    learns_class: bool
    has_structure: bool

    def target(self, q: Tensor, p: Tensor, epsilon: float) -> Tensor:
        u = torch.full_like(p, 1 / p.shape[1])
        return self.annotation(epsilon) * q + epsilon * (self.u_share * u + self.p_share * p)


CCE = Column(
    "cce", lambda epsilon: catalogue.cce(), lambda epsilon: 1, 0, 0,
    "q", "–", learns_class=False, has_structure=False,
)  # fmt: skip
LS = Column(
    "label_smoothing", catalogue.label_smoothing, lambda epsilon: 1 - epsilon, 1, 0,
    "(1 − ε) q + ε u", "penalises", learns_class=False, has_structure=False,
)  # fmt: skip
CP = Column(
    "confidence_penalty", catalogue.confidence_penalty, lambda epsilon: 1 - epsilon, 0, -1,
    "(1 − ε) q − ε p", "penalises", learns_class=False, has_structure=False,
)  # fmt: skip
LC = Column(
    "boot_soft", catalogue.boot_soft, lambda epsilon: 1 - epsilon, 0, 1,
    "(1 − ε) q + ε p", "rewards", learns_class=True, has_structure=True,
)  # fmt: skip

columns = pytest.mark.parametrize("column", [CCE, LS, CP, LC], ids=lambda column: column.name)
WORD = {1: "penalises", -1: "rewards", 0: "–"}


@columns
@few
@given(data=st.data(), epsilon=st.floats(0, 1))
def test_row_learning_target(
    batches: Batches, column: Column, data: DataObject, epsilon: float
) -> None:
    z, y = data.draw(batches)
    q = F.one_hot(y, z.shape[1]).to(z.dtype)
    method = column.make(epsilon)

    assert_close(functional.correct(method, z, y).target, column.target(q, z.softmax(-1), epsilon))
    assert method.formula == column.formula


@columns
@few
@given(data=st.data(), epsilon=st.floats(0, 1))
def test_row_cross_entropy(
    batches: Batches, column: Column, data: DataObject, epsilon: float
) -> None:
    z, y = data.draw(batches)
    q = F.one_hot(y, z.shape[1]).to(z.dtype)
    q_tilde = column.target(q, z.softmax(-1), epsilon)

    assert_close(
        functional.loss(column.make(epsilon), z, y, reduction="none"),
        F.cross_entropy(z, q_tilde, reduction="none"),
    )


@columns
@few
@given(data=st.data(), epsilon=st.floats(0, 1))
def test_row_divergence(batches: Batches, column: Column, data: DataObject, epsilon: float) -> None:
    """The divergences of the table, with the constant that it leaves out: ±ε log C."""
    z, y = data.draw(batches)
    p, u = Categorical(logits=z), Categorical(logits=torch.zeros_like(z))
    q = Categorical(probs=F.one_hot(y, z.shape[1]).to(z.dtype))
    added = column.u_share * kl_divergence(u, p) - column.p_share * kl_divergence(p, u)
    constant = (column.u_share + column.p_share) * math.log(z.shape[1])

    assert_close(
        functional.loss(column.make(epsilon), z, y, reduction="none"),
        column.annotation(epsilon) * kl_divergence(q, p) + epsilon * (added + constant),
    )


def slope_towards_low_entropy(
    method: Target, annotation: float, z: Tensor, y: Tensor, gradient: Gradient
) -> Tensor:
    """How the loss beyond its share of cross entropy changes as logits are scaled up [N]."""
    field = gradient(lambda x: functional.loss(method, x, y, progress=0.9, reduction="none"), z)
    plain = gradient(lambda x: F.cross_entropy(x, y, reduction="none"), z)
    return ((field - annotation * plain) * z).sum(-1)


@columns
@few
@given(data=st.data(), epsilon=st.floats(0.05, 0.95))
def test_row_entropy_minimisation(
    entropy: Entropy,
    batches: Batches,
    gradient: Gradient,
    column: Column,
    data: DataObject,
    epsilon: float,
) -> None:
    """Penalise: the loss rises where entropy falls. Reward: it falls."""
    z, y = data.draw(batches)
    assume((entropy(z) > 1e-3).all())
    assume((z.std(-1) > 0.05).all())
    slope = slope_towards_low_entropy(
        column.make(epsilon), column.annotation(epsilon), z, y, gradient
    )
    slope = slope.masked_fill(slope.abs() < 1e-12, 0)

    assert {WORD[int(sign)] for sign in slope.sign()} == {column.entropy}
    assert methods.find(column.name).entropy == column.entropy


@pytest.mark.parametrize("name", ["boot_hard", "proselflc", "proselflc_lt"])
@few
@given(data=st.data())
def test_row_entropy_minimisation_for_the_relatives_of_label_correction(
    entropy: Entropy, batches: Batches, gradient: Gradient, name: str, data: DataObject
) -> None:
    """They reward low entropy, as the catalogue says."""
    z, y = data.draw(batches)
    assume((entropy(z) > 1e-3).all())
    assume((z.std(-1) > 0.05).all())
    target = methods.find(name).default_target()
    assert target is not None
    for i in range(len(z)):
        one, its_y = z[i : i + 1], y[i : i + 1]
        trust = functional.correct(target, one, its_y, progress=0.9).trust.item()
        slope = slope_towards_low_entropy(target, 1 - trust, one, its_y, gradient)
        assert WORD[int(slope.sign())] == methods.find(name).entropy == "rewards"


def as_label(q_tilde: Tensor) -> Tensor:
    """The target read as a distribution: negative values become 0, as the paper's proof does."""
    return q_tilde.clamp(min=0)


@columns
def test_row_semantic_class(column: Column) -> None:
    """Annotated throughout, or also learned where a confident prediction disagrees."""
    z = torch.tensor([[0.95, 0.01, 0.04]], dtype=torch.float64).log()
    y = torch.tensor([2])
    classes = {
        epsilon: as_label(functional.correct(column.make(epsilon), z, y).target).argmax().item()
        for epsilon in (0.0, 0.2, 0.4, 0.8)
    }

    assert classes == {0.0: 2, 0.2: 2, 0.4: 2, 0.8: 0 if column.learns_class else 2}
    described = methods.find(column.name).semantic_class
    assert described == ("annotated and learned" if column.learns_class else "annotated")


@columns
@few
@given(data=st.data(), epsilon=st.floats(0.05, 0.49))
def test_row_similarity_structure(
    batches: Batches, column: Column, data: DataObject, epsilon: float
) -> None:
    """Yes: other classes differ in the target as they do in p. No: they are all alike."""
    z, y = data.draw(batches)
    C = z.shape[1]
    assume(C > 2)
    others = F.one_hot(y, C) == 0
    p = z.softmax(-1)[others].reshape(-1, C - 1)
    q_tilde = as_label(functional.correct(column.make(epsilon), z, y).target)
    rest = q_tilde[others].reshape(-1, C - 1)
    differences = rest[:, :, None] - rest[:, None, :]

    if column.has_structure:
        assert_close(differences, epsilon * (p[:, :, None] - p[:, None, :]))
        assert (rest.amax(-1) > rest.amin(-1)).all()
    else:
        assert_close(differences, torch.zeros_like(differences))
