"""Tables 1 and 2 and Figure 1: what the code says itself, without any run."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from proselflc import methods
from proselflc.correction.reference import Prediction, Uniform
from proselflc.correction.target import Target
from proselflc.paper import printed
from proselflc.paper.output import MISSING, Output, Table
from proselflc.paper.plan import Study

if TYPE_CHECKING:
    from torch import Tensor

SHARPNESS = 10.0  # of Table 2, where any does
CASES = ("0.1 (non-confident)", "0.9 (confidently consistent)", "0.9 (confidently inconsistent)")
EPSILON = 0.5  # of Figure 1


def table1(study: Study) -> Output:
    """Summary of the methods, from what the code itself uses."""
    rows = []
    for title in printed.OWN:
        one = methods.titled(title)
        target = one.default_target()
        assert target is not None
        trust = MISSING if target.reference is None else target.trust.symbol
        structure = "yes" if "learned" in one.semantic_class else "no"
        facts = (_divergence(target), one.entropy, one.semantic_class, structure)
        rows.append((one.title, target.formula, trust, one.loss, *facts))
    shared = ("low entropy", "semantic class", "similarity structure")
    columns = ("ours", "target q̃", "ε", "loss H(q̃, p)", "divergence", *shared)
    theirs = tuple((name, *cells) for name, cells in printed.SUMMARY.items())
    words = (
        "Made from the catalogue that the criteria are made from; the identities behind it are "
        "tests. The divergence is the loss without a constant. Low entropy: what the method does "
        "to it beside cross entropy. The paper's LC is any label correction, as Boot-soft with a "
        "fixed ε and ProSelfLC with its own.",
    )
    tables = {
        "": Table(columns, tuple(rows)),
        "printed": Table(("printed", "learning target", "divergence", *shared), theirs),
    }
    return Output("Table 1: summary of the methods", tables, words)


def _divergence(target: Target) -> str:
    """The loss as divergences, without its constant; `test_row_divergence` is the proof."""
    if target.reference is None:
        return "KL(q‖p)"
    if isinstance(target.reference, Uniform):
        return "(1 − ε) KL(q‖p) + ε KL(u‖p)"
    assert isinstance(target.reference, Prediction)
    return f"(1 − ε) KL(q‖p) {'−' if target.sign > 0 else '+'} ε KL(p‖u)"


def table2(study: Study) -> Output:
    """Case analysis of ε = g(t) · l(p), computed by the criterion's own trust."""
    import torch

    from proselflc.correction import criteria

    rows = []
    for phase, g in (("earlier phase", 0.1), ("later phase", 0.9)):
        cells = [f"{phase}, g(t) = {g}"]
        for confidence, is_consistent in ((0.1, True), (0.9, True), (0.9, False)):
            logits = _with_confidence(confidence)
            y = 0 if is_consistent else 1
            criterion = criteria.ProSelfLC(1, SHARPNESS)
            found = criterion.correct(logits, torch.tensor([y]), progress=_when(g))
            changes = int(found.target.argmax()) != y
            cells.append(f"{float(found.trust):.2f}{' (class changes)' if changes else ''}")
        rows.append(tuple(cells))
    cases = tuple(f"l(p) = {case}" for case in CASES)
    theirs = tuple(
        (row[0], *(f"{value:.2f}" for value in values))
        for row, values in zip(rows, printed.CASES, strict=True)
    )
    tables = {
        "": Table(("ours: ε = g(t) · l(p)", *cases), tuple(rows)),
        "printed": Table(("printed: ε", *cases), theirs),
    }
    words = (
        "Computed by the criterion itself: the progress at which g(t) has its value, and "
        "predictions of three classes with such an l(p). The semantic class changes where ε > 1/2 "
        "and p says so.",
    )
    return Output("Table 2: case analysis", tables, words)


def _when(g: float) -> float:
    """The progress at which g(t) has a value, by its inverse."""
    return 0.5 + math.log(g / (1 - g)) / SHARPNESS


def _with_confidence(wanted: float) -> Tensor:
    """[1, 3] logits for class 0 with a wanted local trust 1 − H(p)/H(u), by bisection."""
    import torch

    from proselflc.correction.information import entropy

    low, high = 0.0, 30.0
    for _ in range(100):
        middle = (low + high) / 2
        logits = torch.tensor([[middle, 0.0, 0.0]], dtype=torch.float64)
        found = 1 - float(entropy(torch.log_softmax(logits, 1))) / math.log(3)
        low, high = (middle, high) if found < wanted else (low, middle)
    return torch.tensor([[high, 0.0, 0.0]], dtype=torch.float64)


def figure1(study: Study) -> Output:
    """The targets of one example with three classes."""
    import torch

    from proselflc.correction import criteria
    from proselflc.paper.target_figure import targets

    p = torch.tensor([0.55, 0.35, 0.10])
    y = torch.tensor([1])
    found: dict[str, list[float]] = {"q": [0.0, 1.0, 0.0], "p": p.tolist(), "u": [1 / 3] * 3}
    for name, criterion in {
        "LS": criteria.LabelSmoothing(EPSILON),
        "CP": criteria.ConfidencePenalty(EPSILON),
        "LC": criteria.BootSoft(EPSILON),
    }.items():
        found[name] = criterion.correct(p.log()[None], y).target[0].tolist()
    rows = tuple((name, *(f"{value:+.3f}" for value in values)) for name, values in found.items())
    words = (
        f"Three classes, the second annotated, ε = {EPSILON:g}. q is the annotation, p the "
        "prediction, u uniform. Label smoothing (LS) adds ε u to (1 − ε) q, the confidence penalty "
        "(CP) takes ε p away, label correction (LC) adds ε p.",
    )
    columns = ("target", "class 1", "class 2", "class 3")
    title = "Figure 1: targets of target modification"
    return Output(title, {"": Table(columns, rows)}, words, (targets("figure1", found),))
