"""Tables 1 and 2 and Figure 1, which are computed without any run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from proselflc import methods
from proselflc.correction.reference import Prediction, Uniform
from proselflc.correction.target import Target
from proselflc.pages.drawing import PLAIN, ROUND, Drawing, Figure, Style, figure
from proselflc.paper import printed
from proselflc.paper.output import MISSING, Output, ResultTable
from proselflc.paper.plan import RunPlan

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from torch import Tensor

SHARPNESS = 10.0  # of Table 2, which holds for any value
CASES = ("0.1 (non-confident)", "0.9 (confidently consistent)", "0.9 (confidently inconsistent)")
EPSILON = 0.5  # of Figure 1
_BAR = 0.26  # width of a bar; each target has width 1


def table1(plan: RunPlan) -> Output:
    """Return the summary of the methods, made from their definitions in the code."""
    rows = []
    for title in printed.OWN:
        method = methods.titled(title)
        target = method.default_target()
        assert target is not None
        trust = MISSING if target.reference is None else target.trust.symbol
        structure = "yes" if "learned" in method.semantic_class else "no"
        facts = (_divergence(target), method.entropy, method.semantic_class, structure)
        rows.append((method.title, target.formula, trust, method.loss, *facts))
    shared = ("low entropy", "semantic class", "similarity structure")
    columns = ("ours", "target q̃", "ε", "loss H(q̃, p)", "divergence", *shared)
    theirs = tuple((name, *cells) for name, cells in printed.SUMMARY.items())
    words = (
        "Made from the same definitions as the criteria; tests verify the identities. The "
        "divergence is the loss without its constant. Low entropy: whether the method penalises or "
        "rewards it, apart from its cross-entropy term. The paper's LC is any label correction: "
        "Boot-soft with a fixed ε, ProSelfLC with its own ε.",
    )
    tables = {
        "": ResultTable(columns, tuple(rows)),
        "printed": ResultTable(("printed", "learning target", "divergence", *shared), theirs),
    }
    return Output("Table 1: summary of the methods", tables, words)


def _divergence(target: Target) -> str:
    """Return the loss as divergences, without its constant; `test_row_divergence` verifies it."""
    if target.reference is None:
        return "KL(q‖p)"
    if isinstance(target.reference, Uniform):
        return "(1 − ε) KL(q‖p) + ε KL(u‖p)"
    assert isinstance(target.reference, Prediction)
    return f"(1 − ε) KL(q‖p) {'−' if target.sign > 0 else '+'} ε KL(p‖u)"


def table2(plan: RunPlan) -> Output:
    """Return the case analysis of ε = g(t) · l(p), computed by the criterion itself."""
    import torch

    from proselflc.correction import criteria

    rows = []
    for phase, g in (("earlier phase", 0.1), ("later phase", 0.9)):
        cells = [f"{phase}, g(t) = {g}"]
        for confidence, is_consistent in ((0.1, True), (0.9, True), (0.9, False)):
            logits = _logits_with_confidence(confidence)
            y = 0 if is_consistent else 1
            criterion = criteria.ProSelfLC(1, SHARPNESS)
            found = criterion.correct(logits, torch.tensor([y]), progress=_progress_at(g))
            changes = int(found.target.argmax()) != y
            cells.append(f"{float(found.trust):.2f}{' (class changes)' if changes else ''}")
        rows.append(tuple(cells))
    cases = tuple(f"l(p) = {case}" for case in CASES)
    theirs = tuple(
        (row[0], *(f"{value:.2f}" for value in values))
        for row, values in zip(rows, printed.CASES, strict=True)
    )
    tables = {
        "": ResultTable(("ours: ε = g(t) · l(p)", *cases), tuple(rows)),
        "printed": ResultTable(("printed: ε", *cases), theirs),
    }
    words = (
        "Computed by the criterion itself, at the progress where g(t) has the given value and for "
        "predictions over three classes with the given l(p). The semantic class changes where "
        "ε > 1/2 and p favours another class.",
    )
    return Output("Table 2: case analysis", tables, words)


def _progress_at(g: float) -> float:
    """Return the progress at which g(t) has the given value, by the inverse of g."""
    return 0.5 + math.log(g / (1 - g)) / SHARPNESS


def _logits_with_confidence(confidence: float) -> Tensor:
    """Return [1, 3] logits for class 0 with the given local trust 1 − H(p)/H(u), by bisection."""
    import torch

    from proselflc.correction.information import entropy

    low, high = 0.0, 30.0
    for _ in range(100):
        middle = (low + high) / 2
        logits = torch.tensor([[middle, 0.0, 0.0]], dtype=torch.float64)
        found = 1 - float(entropy(torch.log_softmax(logits, 1))) / math.log(3)
        low, high = (middle, high) if found < confidence else (low, middle)
    return torch.tensor([[high, 0.0, 0.0]], dtype=torch.float64)


def figure1(plan: RunPlan) -> Output:
    """Return the targets of one example with three classes."""
    import torch

    from proselflc.correction import criteria

    p = torch.tensor([0.55, 0.35, 0.10])
    y = torch.tensor([1])
    targets: dict[str, list[float]] = {"q": [0.0, 1.0, 0.0], "p": p.tolist(), "u": [1 / 3] * 3}
    for name, criterion in {
        "LS": criteria.LabelSmoothing(EPSILON),
        "CP": criteria.ConfidencePenalty(EPSILON),
        "LC": criteria.BootSoft(EPSILON),
    }.items():
        targets[name] = criterion.correct(p.log()[None], y).target[0].tolist()
    rows = tuple((name, *(f"{value:+.3f}" for value in values)) for name, values in targets.items())
    words = (
        f"Three classes, the second annotated, ε = {EPSILON:g}. q is the annotation, p the "
        "prediction, u the uniform distribution. To (1 − ε) q, label smoothing (LS) adds ε u and "
        "label correction (LC) adds ε p; the confidence penalty (CP) subtracts ε p.",
    )
    columns = ("target", "class 1", "class 2", "class 3")
    title = "Figure 1: targets of target modification"
    return Output(
        title, {"": ResultTable(columns, rows)}, words, (_target_figure("figure1", targets),)
    )


def _target_figure(name: str, targets: Mapping[str, Sequence[float]]) -> Figure:
    """Return bars of every class, one group per target; heights may be negative."""
    classes = len(next(iter(targets.values())))
    styles = [Style(f"line-{k + 1}", marker="s", width=0) for k in range(classes)]

    def plot(axes: Axes) -> None:
        from matplotlib.ticker import MaxNLocator

        for k, style in enumerate(styles):
            centres = [i + (k - (classes - 1) / 2) * _BAR for i in range(len(targets))]
            heights = [values[k] for values in targets.values()]
            axes.bar(centres, heights, _BAR * 0.9, color=style.paint)
        axes.axhline(0.0, linewidth=0.6, color="black")
        axes.set_xticks(range(len(targets)))
        axes.set_xticklabels(list(targets), size=PLAIN)
        axes.tick_params(axis="x", length=0)
        axes.yaxis.set_major_locator(MaxNLocator(5, steps=ROUND))
        axes.set_ylim(min(-0.35, *(min(v) for v in targets.values())) - 0.05, 1.05)

    legend = tuple((f"class {k + 1}", style) for k, style in enumerate(styles))
    values = "; ".join(
        f"{target} {', '.join(f'{height:.2f}' for height in heights)}"
        for target, heights in targets.items()
    )
    return figure(
        name,
        Drawing("Targets of one example", "probability of each class", plot, legend, below=22.0),
        f"Targets of one example with {classes} classes: {values}.",
    )
