"""The paper's measures of learning: how well right labels, wrong labels and truth are fitted."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from proselflc.correction.evidence import entropy

# The sums kept for all examples, and for those whose given label is right or wrong.
_SUBSETS = ("all", "right", "wrong")
_MEASURES = ("examples", "fits given", "predicts truth", "entropy", "trust")


@dataclass(frozen=True)
class FittingPoint:
    """The measures of one evaluation point, named as in `history.jsonl`.

    Unknown measures are None: all but the first three if the true labels are not known, and those
    of a subset without examples. A new measure is a field here and a line in `Fitting.result`; the
    history then has it, and a `Panel` of `pages/learning_dynamics.py` draws it.

    Attributes:
        train_accuracy: share of examples with argmax p = the given label.
        entropy: mean H(p).
        epsilon: mean trust.
        correct_fitting: share with argmax p = the given label, among right labels.
        wrong_fitting: share with argmax p = the given label, among wrong labels; high is bad.
        semantic_correction: share with argmax p = the true class, among wrong labels.
        entropy_clean: mean H(p) of examples with a right label.
        entropy_noisy: mean H(p) of examples with a wrong label.
        epsilon_clean: mean trust of examples with a right label.
        epsilon_noisy: mean trust of examples with a wrong label.
    """

    train_accuracy: float | None
    entropy: float | None
    epsilon: float | None
    correct_fitting: float | None
    wrong_fitting: float | None
    semantic_correction: float | None
    entropy_clean: float | None
    entropy_noisy: float | None
    epsilon_clean: float | None
    epsilon_noisy: float | None


class Fitting:
    """Measures a training set batch by batch in fifteen sums.

    Processes that each measured a part of the set add their `sums()` and continue with
    `from_sums`.

    Args:
        num_classes: C.
        clean_known: whether every batch comes with its true labels.
    """

    def __init__(self, num_classes: int, clean_known: bool) -> None:
        self.num_classes = num_classes
        self.clean_known = clean_known
        self._sums = torch.zeros(len(_SUBSETS), len(_MEASURES), dtype=torch.float64)

    @classmethod
    def from_sums(cls, sums: Tensor, *, num_classes: int, clean_known: bool) -> Fitting:
        """Return the state with the given `sums()`, or with the total of several."""
        fitting = cls(num_classes, clean_known)
        fitting._sums += sums.cpu().view_as(fitting._sums)
        return fitting

    def add(self, log_p: Tensor, given: Tensor, clean: Tensor | None, trust: Tensor) -> None:
        """Add a batch on any device.

        Args:
            log_p: [N, C] log-probabilities, with test-time transforms.
            given: [N] given labels.
            clean: [N] true labels; None if and only if they are not known.
            trust: [N] ε of every example.
        """
        assert log_p.size(1) == self.num_classes
        with torch.no_grad():
            log_p = log_p.to(torch.promote_types(log_p.dtype, torch.float32))
            self.add_measured(log_p.argmax(-1), entropy(log_p), given, clean, trust)

    def add_measured(
        self, predicted: Tensor, entropy: Tensor, given: Tensor, clean: Tensor | None, trust: Tensor
    ) -> None:
        """Add a batch whose argmax p and H(p), [N] each, are already computed; see `add`."""
        assert (clean is not None) == self.clean_known
        # Only [N, 5] leaves the device; double precision may not exist on it.
        wrong = torch.zeros_like(given) if clean is None else given != clean
        rows = (
            torch.ones_like(given),
            predicted == given,
            torch.zeros_like(given) if clean is None else predicted == clean,
            entropy,
            trust,
            wrong,
        )
        *measures, where = torch.stack([r.to(entropy.dtype) for r in rows]).cpu().double()
        values = torch.stack(measures, dim=1)
        self._sums[0] += values.sum(0)
        if clean is not None:
            self._sums[1] += values[where == 0].sum(0)
            self._sums[2] += values[where == 1].sum(0)

    def sums(self) -> Tensor:
        """Return a copy of the sums, [15] float64 on the CPU."""
        return self._sums.flatten().clone()

    def result(self) -> FittingPoint:
        """Return the means over all batches."""
        overall, right, wrong = (_means(row) for row in self._sums.tolist())
        return FittingPoint(
            train_accuracy=overall["fits given"],
            entropy=overall["entropy"],
            epsilon=overall["trust"],
            correct_fitting=right["fits given"],
            wrong_fitting=wrong["fits given"],
            semantic_correction=wrong["predicts truth"],
            entropy_clean=right["entropy"],
            entropy_noisy=wrong["entropy"],
            epsilon_clean=right["trust"],
            epsilon_noisy=wrong["trust"],
        )


def _means(sums: list[float]) -> dict[str, float | None]:
    n = sums[0]
    return {name: s / n if n else None for name, s in zip(_MEASURES, sums, strict=True)}
