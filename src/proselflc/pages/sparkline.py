"""A learning curve the size of a word."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

POINTS = 28  # of a curve; more could not be told apart
_WIDTH, _HEIGHT = 90, 30

Probabilities = Sequence[float] | npt.NDArray[np.floating[Any]]


def learning_curve(p_given: Probabilities, p_other: Probabilities) -> str:
    """p of the given label and the largest other p over the epochs, a gap where it was not seen.

    An inline SVG of at most 600 bytes, which a page may hold by the hundred. The page says how its
    paths look: "given", "other", and "frame", which is p = 0 and p = 1.

    Args:
        p_given: [epochs] in [0, 1], NaN where the example was not seen.
        p_other: [epochs], in the same way.
    """
    given, other = _shares(p_given), _shares(p_other)
    said = f"p of the given label {_ends(given)}, of another class {_ends(other)}"
    return (
        f'<svg class="curve" viewBox="0 0 {_WIDTH} {_HEIGHT}" preserveAspectRatio="none" '
        f'role="img" aria-label="{said}" fill="none" stroke-linecap="round">'
        f'<path class="frame" d="M0 0h{_WIDTH}M0 {_HEIGHT}h{_WIDTH}"/>'
        f'<path class="other" d="{_path(_means(other))}" stroke="var(--line-1)"/>'
        f'<path class="given" d="{_path(_means(given))}" stroke="var(--line-2)"/></svg>'
    )


def _shares(values: Probabilities) -> npt.NDArray[np.float64]:
    return np.asarray(values, np.float64).clip(0, 1)


def _means(p: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """[epochs] → [≤ POINTS] means over the epochs of each part that saw the example, else NaN."""
    parts = np.array_split(p, min(len(p), POINTS)) if len(p) else []
    return np.array([_mean(part[np.isfinite(part)]) for part in parts])


def _mean(known: npt.NDArray[np.float64]) -> float:
    return float(known.mean()) if len(known) else float("nan")


def _ends(p: npt.NDArray[np.float64]) -> str:
    known = p[np.isfinite(p)]
    return f"{known[0]:.2f} → {known[-1]:.2f}" if len(known) else "not seen"


def _path(p: npt.NDArray[np.float64]) -> str:
    """A path in whole units, relative to the point before; it begins anew after a gap.

    A point alone is a line of no length, which round ends make visible.
    """
    text, x, y = "", 0, 0
    for k, value in enumerate(p):
        if not np.isfinite(value):
            continue
        right = round(k * _WIDTH / max(len(p) - 1, 1))
        down = round(_HEIGHT * (1 - value))
        if k and np.isfinite(p[k - 1]):
            text += f"{right - x:+d}{down - y:+d}"
        else:
            goes_on = k + 1 < len(p) and np.isfinite(p[k + 1])
            text += f"M{right} {down}{'l' if goes_on else 'h0'}"
        x, y = right, down
    return text.replace("l+", "l").replace("+", " ")
