"""Why what a run says about its labels may not be trusted."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from proselflc.auditing import own_corrections
from proselflc.auditing.noise_estimate import FEWEST_EPOCHS
from proselflc.training.run_directory import Json

LEARNED_BY_HEART = 0.98  # of the labels, before half of training: nothing is left to correct
HARDLY = 1.5  # times as many labels fitted as by chance


def doubts(
    history: Sequence[Json], num_classes: int, config: Mapping[str, Any] | None = None
) -> list[str]:
    """A sentence for each reason, without its period; none is good.

    Args:
        history: the run's evaluation points, as they were found in its directory.
        num_classes: C.
        config: the run's, as its directory holds it.
    """
    found = of_labels(config or {})
    epochs = max((_number(line, "epoch") for line in history), default=math.inf)
    found += too_short(epochs)
    fitted = [_number(line, "train_accuracy") for line in history]
    if fitted and fitted[-1] < HARDLY / num_classes:
        found.append(
            f"the model fits only {fitted[-1]:.1%} of the given labels, hardly more than chance "
            f"would with {num_classes:,} classes: what it suspects means little; raise --epochs, "
            "lower --batch-size, or try another --model or --lr"
        )
    early = [k for k, line in enumerate(history) if _number(line, "progress") <= 0.5]
    most = max((fitted[k] for k in early), default=0.0)
    if most > LEARNED_BY_HEART:
        found.append(
            f"{most:.1%} of the given labels were fitted before half of training was over: if some "
            "are wrong they were learned by heart and are not found; try fewer --epochs, a lower "
            "--lr, a smaller --model or more --augment"
        )
    return found


def of_labels(config: Mapping[str, Any]) -> list[str]:
    """The reason that is known before anything is learned: whose labels they are."""
    if not own_corrections.are_unreviewed(config):
        return []
    return [
        f"{own_corrections.NO_MEASURE}; decide about suspects with proselflc review, and train "
        "with --reviewed"
    ]


def too_short(epochs: float) -> list[str]:
    """The reason that is known from the number of epochs alone; NaN is none."""
    if not epochs < FEWEST_EPOCHS:
        return []
    return [
        f"the run saw its examples for {epochs:.3g} epoch{'' if epochs == 1 else 's'}, and an "
        f"audit needs {FEWEST_EPOCHS} at least: what it suspects means little; train for more "
        "epochs"
    ]


def _number(line: Json, key: str) -> float:
    """NaN, which no comparison is true of, where there is no number."""
    value = line.get(key)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(str(value)) if is_number else math.nan
