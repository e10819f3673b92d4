"""What the paper plots while a network learns: does it fit right labels, wrong ones, the truth?"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from proselflc.correction.information import entropy

# The sums that are kept, for all examples and for those whose given label is right or wrong.
_SUBSETS = ("all", "right", "wrong")
_MEASURES = ("examples", "fits given", "predicts truth", "entropy", "trust")


@dataclass(frozen=True)
class FittingPoint:
    """The state of learning at one moment, named as in `history.jsonl`.

    What cannot be known is None: all but the first three where no true label is known, and the
    measures of a subset without examples.

    Attributes:
        train_accuracy: share of examples with argmax p = the given label.
        entropy: mean H(p).
        epsilon: mean trust.
        correct_fitting: the share with argmax p = the given label where that is right.
        wrong_fitting: the same where it is wrong; high is bad.
        semantic_correction: the share with argmax p = the true class where the given label is
            wrong.
        entropy_clean: mean H(p) where the given label is right.
        entropy_noisy: mean H(p) where it is wrong.
        epsilon_clean: mean trust where the given label is right.
        epsilon_noisy: mean trust where it is wrong.
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
    """Measures a training set batch by batch and keeps fifteen sums, whatever its size.

    Processes that each saw a part of the set add up their `sums()` and go on with `from_sums`.

    Args:
        num_classes: C.
        clean_known: whether the true labels will be given.
    """

    def __init__(self, num_classes: int, clean_known: bool) -> None:
        self.num_classes = num_classes
        self.clean_known = clean_known
        self._sums = torch.zeros(len(_SUBSETS), len(_MEASURES), dtype=torch.float64)

    @classmethod
    def from_sums(cls, sums: Tensor, *, num_classes: int, clean_known: bool) -> Fitting:
        """Go on from what `sums()` gave, or from the total of several such."""
        fitting = cls(num_classes, clean_known)
        fitting._sums += sums.cpu().view_as(fitting._sums)
        return fitting

    def add(self, log_p: Tensor, given: Tensor, clean: Tensor | None, trust: Tensor) -> None:
        """Take in one batch, on whatever device it is.

        Args:
            log_p: [N, C] log-probabilities, with test-time transforms.
            given: [N] the labels that are learned.
            clean: [N] the true ones; None if and only if they are not known.
            trust: [N] ε of every example.
        """
        assert log_p.size(1) == self.num_classes
        with torch.no_grad():
            log_p = log_p.to(torch.promote_types(log_p.dtype, torch.float32))
            self.add_measured(log_p.argmax(-1), entropy(log_p), given, clean, trust)

    def add_measured(
        self, predicted: Tensor, entropy: Tensor, given: Tensor, clean: Tensor | None, trust: Tensor
    ) -> None:
        """Take in one batch of which argmax p and H(p), [N] each, are known already; see `add`."""
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
        """[15] float64 on the CPU, a copy; those of several processes add up."""
        return self._sums.flatten().clone()

    def result(self) -> FittingPoint:
        """The means over all that was added."""
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
