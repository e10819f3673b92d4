"""Table 2 of the paper: when ProSelfLC trusts a prediction, and when that changes the class."""

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DataObject, SearchStrategy
from torch import Tensor
from torch.testing import assert_close

from proselflc import BootSoft, ProSelfLC
from proselflc.correction.trust import Fixed

Batches = SearchStrategy[tuple[Tensor, Tensor]]
Entropy = Callable[[Tensor], Tensor]
ProSelfLCTrust = Callable[[Tensor, float, float], Tensor]
few = settings(deadline=None, max_examples=50, derandomize=True)
SHARPNESS = 10.0


def moment_when_global_trust_is(g: float) -> float:
    """t/Γ, by inverting the logistic function."""
    return 0.5 + math.log(g / (1 - g)) / SHARPNESS


def logits_with_local_trust(entropy: Entropy, confidence: float, C: int) -> Tensor:
    """Logits [1, C] that favour class 0, all classes apart, with 1 − H(p)/log C = confidence."""
    direction = torch.linspace(0, -1, C, dtype=torch.float64)
    direction[0] = 1

    def local(scale: float) -> float:
        return 1 - entropy(scale * direction).item() / math.log(C)

    low, high = 0.0, 1000.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if local(middle) < confidence else (low, middle)
    assert abs(local(low) - confidence) < 1e-12
    return (low * direction)[None]


# Columns: l(p), whether p and q share the semantic class. Bold in the paper: the last one, late.
CASES = [
    (0.1, 0.1, True, 0.01),
    (0.1, 0.1, False, 0.01),
    (0.1, 0.9, True, 0.09),
    (0.1, 0.9, False, 0.09),
    (0.9, 0.1, True, 0.09),
    (0.9, 0.1, False, 0.09),
    (0.9, 0.9, True, 0.81),
    (0.9, 0.9, False, 0.81),
]


@pytest.mark.parametrize("C", [3, 10, 100])
@pytest.mark.parametrize(("g", "confidence", "consistent", "epsilon"), CASES)
def test_cell(
    entropy: Entropy, C: int, g: float, confidence: float, consistent: bool, epsilon: float
) -> None:
    """ε = g·l; the class changes only late in training, for a confidently inconsistent p."""
    z = logits_with_local_trust(entropy, confidence, C)
    y = 0 if consistent else C - 1
    criterion = ProSelfLC(total_steps=1, sharpness=SHARPNESS)
    correction = criterion.correct(z, torch.tensor([y]), progress=moment_when_global_trust_is(g))
    bold = g == 0.9 and confidence == 0.9 and not consistent

    assert_close(correction.trust, torch.tensor([epsilon], dtype=torch.float64))
    assert correction.target.argmax().item() == (0 if bold else y)


@pytest.mark.parametrize(("g", "confidence", "consistent", "epsilon"), CASES)
def test_similarity_structure_is_corrected_in_every_cell(
    entropy: Entropy, g: float, confidence: float, consistent: bool, epsilon: float
) -> None:
    """The first tactic of the case analysis: the target follows p between the other classes."""
    z = logits_with_local_trust(entropy, confidence, 5)
    y = 0 if consistent else 4
    criterion = ProSelfLC(total_steps=1, sharpness=SHARPNESS)
    correction = criterion.correct(z, torch.tensor([y]), progress=moment_when_global_trust_is(g))
    steps = correction.target[0, 1:4].diff()

    assert_close(steps, epsilon * z.softmax(-1)[0, 1:4].diff())
    assert (steps < 0).all()


def test_worked_example() -> None:
    """p = [.95, .01, .04], q = [0, 0, 1], ε = 0.8 ⇒ q̃ = [.76, .008, .232]."""
    z = torch.tensor([[0.95, 0.01, 0.04]], dtype=torch.float64).log()
    y = torch.tensor([2])
    expected = torch.tensor([[0.76, 0.008, 0.232]], dtype=torch.float64)
    for criterion in (BootSoft(0.8), ProSelfLC(1, trust=Fixed(0.8))):
        correction = criterion.correct(z, y)
        assert_close(correction.target, expected)
        assert_close(correction.trust, torch.tensor([0.8], dtype=torch.float64))
        assert correction.target.argmax().item() == 0


@few
@given(data=st.data(), epsilon=st.floats(0, 1))
def test_class_changes_exactly_when_trust_outweighs_the_annotation(
    batches: Batches, data: DataObject, epsilon: float
) -> None:
    """argmax q̃ ≠ y iff ε (p_k − p_y) > 1 − ε for some k."""
    z, y = data.draw(batches)
    z = 3 * z
    p = z.softmax(-1)
    lead = (p - p.gather(1, y[:, None])).amax(-1)
    margin = epsilon * lead - (1 - epsilon)
    assume((margin.abs() > 1e-9).all())
    changed = BootSoft(epsilon).correct(z, y).target.argmax(-1) != y

    assert_close(changed, margin > 0)
    assert not changed.any() or epsilon > 0.5


@few
@given(data=st.data(), B=st.floats(0, 50), progress=st.floats(0.5, 1))
def test_proselflc_changes_the_class_exactly_when_trust_outweighs_the_annotation(
    proselflc_trust: ProSelfLCTrust, batches: Batches, data: DataObject, B: float, progress: float
) -> None:
    """The same with every example at its own ε = g(t)·l(p), computed apart."""
    z, y = data.draw(batches)
    z = 3 * z
    p = z.softmax(-1)
    epsilon = proselflc_trust(z, progress - 0.5, B)
    lead = (p - p.gather(1, y[:, None])).amax(-1)
    margin = epsilon * lead - (1 - epsilon)
    assume((margin.abs() > 1e-9).all())
    target = ProSelfLC(1, sharpness=B).correct(z, y, progress=progress).target

    assert_close(target.argmax(-1) != y, margin > 0)


@few
@given(data=st.data(), B=st.floats(0, 1e4), midpoint=st.floats(0, 1), share=st.floats(0, 1))
def test_class_never_changes_before_the_midpoint(
    batches: Batches, data: DataObject, B: float, midpoint: float, share: float
) -> None:
    """While t ≤ Γ/2 (or another midpoint) no class beats y, however confident p is."""
    z, y = data.draw(batches)
    for moment in (share * midpoint, midpoint):
        for confidence in (1, 100):
            criterion = ProSelfLC(1, sharpness=B, midpoint=midpoint)
            correction = criterion.correct(confidence * z, y, progress=moment)
            annotated = correction.target.gather(1, y[:, None])[:, 0]
            assert (correction.trust <= 0.5).all()
            assert (annotated >= correction.target.amax(-1)).all()


def test_class_can_change_right_after_the_midpoint() -> None:
    """The bound is sharp: a certain, inconsistent prediction wins at once."""
    z, y = torch.tensor([[60.0, 0.0, 0.0]], dtype=torch.float64), torch.tensor([1])
    criterion = ProSelfLC(1, sharpness=SHARPNESS)
    before = criterion.correct(z, y, progress=0.499).target
    after = criterion.correct(z, y, progress=0.501).target

    assert before.argmax().item() == 1
    assert after.argmax().item() == 0
