"""Which suggestions of a run's audit replace the given labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from proselflc.errors import InputError, invalid_option
from proselflc.wording import option

if TYPE_CHECKING:
    from proselflc.data.inputs import Bools, Floats

CHANGE = "change"  # the action of a suggestion that is followed without asking a person


@dataclass(frozen=True)
class Corrections:
    """Which suggestions of a run are followed; a person's decision always takes precedence.

    By default these are the suggestions whose action is "change". All suspects are followed in a
    run of an older version, whose audit knows no actions.

    Attributes:
        suspects: follow all suspects.
        min_confidence: follow the suspects whose suggested label has at least this confidence.
        reviewed: follow no suggestions but those of `min_confidence`.
        force: use the labels of a run whose audit corrects none.
        fill: use the suggested labels for examples without a label; with `min_confidence`, those
            that have at least this confidence.
    """

    suspects: bool = False
    min_confidence: float | None = None
    reviewed: bool = False
    force: bool = False
    fill: bool = False

    def __post_init__(self) -> None:
        least = self.min_confidence
        if least is not None and not 0 <= least <= 1:
            raise invalid_option("min_confidence", f"must be from 0 to 1, got {least}")
        others = {"min_confidence": least, "reviewed": self.reviewed or None}
        for field, value in others.items():
            if self.suspects and value is not None:
                raise InputError(
                    f"{option('suspects', True)} follows all suspects, but {option(field, value)} "
                    "follows fewer",
                    field="suspects",
                    fix="give one of them",
                )

    @property
    def is_default(self) -> bool:
        """Return whether the actions of the audit decide."""
        return not self.suspects and not self.reviewed and self.min_confidence is None

    def followed(self, is_suspect: Bools, confidence: Floats, is_change: Bools | None) -> Bools:
        """Return [n] whether the suggestion for each example is followed.

        Args:
            is_suspect: [n] whether another label than the given one is suggested.
            confidence: [n] chance that the suggested label is right; NaN if it is unknown.
            is_change: [n] whether the action is "change"; None if there are no actions.
        """
        if self.is_default and is_change is not None:
            return is_suspect & is_change
        if self.reviewed and self.min_confidence is None:
            return is_suspect & False
        return is_suspect & self._is_sure(confidence)

    def filled(self, is_unlabelled: Bools, confidence: Floats) -> Bools:
        """Return [n] whether an example without a label gets the suggested one."""
        return is_unlabelled & self._is_sure(confidence) & self.fill

    def _is_sure(self, confidence: Floats) -> Bools:
        least = 0.0 if self.min_confidence is None else self.min_confidence
        # As in the file, so that a confidence that is shown there is not missed by rounding.
        is_sure: Bools = confidence >= confidence.dtype.type(least)
        return is_sure
