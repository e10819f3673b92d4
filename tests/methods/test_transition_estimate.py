"""Transition matrices from predictions: what is known is found, what fails falls back."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.testing import assert_close

from proselflc.methods import loss_correction
from proselflc.methods.loss_correction import (
    ESTIMATES,
    MOST_CONDITION,
    anchor,
    confident,
    invertible,
    percentile,
)

C, n = 5, 4000
NAMES = tuple("abcdefghij")


def pairs(rate: float, classes: int = C) -> Tensor:
    identity = torch.eye(classes, dtype=torch.float64)
    return (1 - rate) * identity + rate * identity.roll(1, 1)


def uniform(rate: float) -> Tensor:
    return (1 - rate * C / (C - 1)) * torch.eye(C, dtype=torch.float64) + rate / (C - 1)


def posteriors(T: Tensor, *, sure: float, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """P(given | x) = Tᵀ P(true | x) of n examples, labels drawn from it, and true classes.

    A share of `sure` examples is of its class for certain, the others are somewhere between two.
    """
    generator = torch.Generator().manual_seed(seed)
    clean = torch.arange(n) % C
    share = torch.rand(n, 1, generator=generator, dtype=torch.float64) * 0.4
    share[torch.rand(n, generator=generator) < sure] = 0
    eta = (1 - share) * F.one_hot(clean, C) + share * F.one_hot((clean + 2) % C, C)
    drawn = torch.multinomial(eta, 1, generator=generator)[:, 0]
    given = torch.multinomial(T[drawn], 1, generator=generator)[:, 0]
    return eta @ T, given, drawn


def distance(one: Tensor, other: Tensor) -> float:
    """Total variation, the mean over rows."""
    return float(0.5 * (one - other).abs().sum(1).mean())


@pytest.mark.parametrize("T", [pairs(0.4), uniform(0.5), pairs(0.0)], ids=["pair", "even", "clean"])
def test_the_true_matrix_is_found_where_some_examples_are_certain(T: Tensor) -> None:
    p, given, _ = posteriors(T, sure=0.3)
    for rule in (anchor, percentile):
        found, notes = rule(p, given, NAMES)
        assert_close(found, T)
        assert notes == ()
    found, notes = confident(p, given, NAMES)
    assert distance(found, T) < 0.11  # whose examples between two classes count too
    assert notes == ()
    assert_close(found.sum(1), torch.ones(C, dtype=torch.float64))


def test_confident_counts_are_the_true_ones_where_all_examples_are_certain() -> None:
    p, given, clean = posteriors(pairs(0.3), sure=1.0)
    counts = torch.zeros(C, C, dtype=torch.float64)
    counts.index_put_((clean, given), torch.ones(n, dtype=torch.float64), accumulate=True)
    assert_close(confident(p, given, NAMES).T, counts / counts.sum(1, keepdim=True))


def test_the_confident_joint_is_that_of_a_plain_loop() -> None:
    _, given, _ = posteriors(uniform(0.4), sure=0.2)
    noise = torch.randn(n, C, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    p = (noise + F.one_hot(given, C)).softmax(1)
    tau = [float(p[given == j, j].mean()) for j in range(C)]
    joint = np.zeros((C, C))
    for row, y in zip(p.tolist(), given.tolist(), strict=True):
        above = [j for j in range(C) if row[j] >= tau[j]]
        if above:
            joint[y, max(above, key=lambda j: row[j])] += 1
    assert 0 < joint.sum() < n  # some count nowhere
    for y in range(C):
        joint[y] *= int((given == y).sum()) / joint[y].sum()
    expected = torch.from_numpy((joint / joint.sum(0)).T)
    assert_close(confident(p, given, NAMES).T, expected)


def test_outliers_spoil_the_anchor_and_not_the_percentile() -> None:
    T = pairs(0.4)
    p, given, _ = posteriors(T, sure=0.3)
    for k in range(C):  # some labels that are learned by heart
        p[k::400] = F.one_hot(torch.tensor(k), C).double()
    assert distance(anchor(p, given, NAMES).T, T) == pytest.approx(0.4)
    assert_close(percentile(p, given, NAMES).T, T)


def test_the_percentile_is_that_of_numpy() -> None:
    generator = torch.Generator().manual_seed(0)
    p = torch.rand(101, 3, generator=generator).softmax(1)
    p[:, 0] += 1
    p = p / p.sum(1, keepdim=True)  # everything is predicted to be of the first class
    row = percentile(p, torch.zeros(101, dtype=torch.int64), NAMES).T[0]
    assert float(row[0]) == pytest.approx(float(np.percentile(p[:, 0].numpy(), 97)))


def test_a_class_that_is_never_predicted_keeps_its_label() -> None:
    p, given, _ = posteriors(pairs(0.4), sure=0.3)
    p[:, 1] *= 1e-3
    p = p / p.sum(1, keepdim=True)
    for rule in (anchor, percentile):
        found, notes = rule(p, given, NAMES)
        assert found[1].tolist() == [0, 1, 0, 0, 0]
        assert notes == (
            "class b is never predicted, so the transition matrix lets it keep its label",
        )


def test_more_classes_than_the_percentile_has_room_for() -> None:
    classes = 50
    T = pairs(0.3, classes)
    p = T[torch.arange(1000) % classes]
    given = torch.arange(1000) % classes
    found, notes = percentile(p, given, [f"c{k}" for k in range(classes)])
    assert_close(found, T)
    (note,) = notes
    assert "for each of 50 classes (c0, c1, c2, c3, c4, …)" in note
    assert "the surest example" in note


def test_a_class_without_confident_examples_has_the_row_of_the_percentile() -> None:
    p, given, _ = posteriors(pairs(0.3), sure=1.0)
    given[given == 2] = 3  # nobody is labelled so, and no threshold can be told
    found, notes = confident(p, given, NAMES)
    assert_close(found[2], percentile(p, given, NAMES).T[2])
    assert notes[0].startswith("no example is confidently of class c, so its row")


def test_a_label_whose_examples_are_all_unsure_is_taken_to_be_right() -> None:
    p = torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.7, 0.3], [0.6, 0.4]], dtype=torch.float64)
    given = torch.tensor([0, 0, 1, 1])  # τ = 0.85, 0.35: the third is of neither, the last of b
    assert confident(p, given, NAMES).T.tolist() == [[1, 0], [0, 1]]
    p = torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.6, 0.4], [0.2, 0.8]], dtype=torch.float64)
    given = torch.tensor([0, 0, 0, 0])
    found, notes = confident(p, given, NAMES)
    assert found[0].tolist() == [1, 0]
    assert found[1].tolist() == pytest.approx([0.2, 0.8])
    assert len(notes) == 1


@pytest.mark.parametrize("name", ESTIMATES)
def test_predictions_that_say_nothing_still_give_a_matrix(name: str) -> None:
    p = torch.full((8, 3), 1 / 3)
    T, notes = ESTIMATES[name](p, torch.arange(8) % 3, NAMES)
    assert_close(T.sum(1), torch.ones(3, dtype=torch.float64))
    assert bool((T >= 0).all())
    assert all("\n" not in note for note in notes)


def test_a_matrix_that_can_be_inverted_is_left_alone() -> None:
    T = pairs(0.4)
    found, notes = invertible(T)
    assert torch.equal(found, T)
    assert notes == ()


@pytest.mark.parametrize(
    "T", [torch.full((4, 4), 0.25), pairs(0.5, 4).float(), uniform(0.7999)], ids=str
)
def test_a_singular_matrix_is_mixed_with_the_identity_as_little_as_possible(T: Tensor) -> None:
    found, (note,) = invertible(T)
    identity = torch.eye(len(T), dtype=torch.float64)
    assert np.linalg.cond(found.numpy()) <= MOST_CONDITION
    share = float(((found - T) / (identity - T.double())).nanmedian())
    less = (1.05 - share) * T + (share - 0.05) * identity
    assert np.linalg.cond(less.numpy()) > MOST_CONDITION
    assert f"so {share:.0%} of the identity is mixed into it" in note


@pytest.mark.parametrize("name", list(ESTIMATES))
@pytest.mark.parametrize("numbers", [1, 700])
def test_an_estimate_in_blocks_is_the_same(
    name: str, numbers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = torch.Generator().manual_seed(0)
    p = torch.softmax(3 * torch.randn(200, 7, generator=generator), 1)
    given, names = torch.randint(0, 7, (200,), generator=generator), list("abcdefg")
    whole = ESTIMATES[name](p, given, names)
    monkeypatch.setattr(loss_correction, "NUMBERS", numbers)
    parts = ESTIMATES[name](p, given, names)
    assert torch.equal(parts.T, whole.T)
    assert parts.notes == whole.notes
