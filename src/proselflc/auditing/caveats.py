"""Reasons to be careful with an audit, as data: a code for programs and a message for people."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from proselflc.auditing.judge import Judge, skill
from proselflc.auditing.noise_estimate import FEWEST_EPOCHS
from proselflc.auditing.noise_range import NoiseRange
from proselflc.auditing.records import Records
from proselflc.data.inputs import Ints
from proselflc.data.request import TABLES
from proselflc.data.tables.summary import about_leaks
from proselflc.wording import command, option

MEMORISED = 0.98  # share of labels fitted before half of training: too late to find wrong ones
BARELY_LEARNED = 0.06  # skill of the network on the labels it learned
WIDE = 0.1  # width of a range of the noise rate that a person should narrow
REVIEWED = 30  # labels whose review turns the estimate into a measurement
NARROWED = 100  # labels whose review makes the measurement more precise
OWN_CORRECTIONS = (
    "these labels were corrected by a model of this kind, which cannot detect the errors that it "
    "left: the number of labels that look wrong does not measure improvement"
)
LEAK = "leaking_columns"  # code of a warning that is known while the data is at hand
_RUN = "RUN"  # stands for the path of the run in a message that is kept in it
_PAIRS = 3  # of confused classes that a message names
_LABEL_FILES = (*TABLES, ".npz", ".pt")
_RANKED = "labels are ranked, but none is called suspect"


@dataclass(frozen=True)
class AuditWarning:
    """A reason to be careful.

    Attributes:
        code: a word for programs.
        message: a sentence without its period.
    """

    code: str
    message: str

    @property
    def abstains(self) -> bool:
        """Return whether an audit with this warning names no suspects."""
        return self.code in ABSTAINING

    def about(self, run: Path) -> AuditWarning:
        """Return the warning with the path of the run, which may have moved, in its commands."""
        kept, present = (f"{command('review', path)} " for path in (_RUN, run))
        return replace(self, message=self.message.replace(kept, present))


ABSTAINING = ("few_epochs", "barely_learned", "memorised", "too_weak")


def warnings_of(
    records: Records,
    given: Ints,
    num_classes: int,
    judge: Judge,
    noise: NoiseRange,
    reviewed: int = 0,
) -> Iterator[AuditWarning]:
    """Yield the reasons that follow from the records of a run and its verdict.

    Args:
        records: the records of n examples.
        given: [n] their labels.
        num_classes: C.
        judge: how far the predictions can be relied on.
        noise: the share of wrong labels.
        reviewed: number of labels that it was measured on; 0 if it is an estimate.
    """
    if records.held_out is None:
        yield from epoch_warnings(len(records.observed))
    fitted = fitted_shares(records, given)
    if fitted and skill(fitted[-1], 1 / num_classes) < BARELY_LEARNED:
        yield AuditWarning(
            "barely_learned",
            f"the model fits only {fitted[-1]:.1%} of the given labels, barely more than chance "
            f"with {num_classes:,} classes, so {_RANKED}; raise {option('epochs')}, lower "
            f"{option('batch_size')}, or try another {option('model')} or {option('lr')}",
        )
    most = max(fitted[: math.ceil(len(fitted) / 2)], default=0.0)
    if judge.kind is None and most > MEMORISED:
        yield AuditWarning(
            "memorised",
            f"the model fitted {most:.1%} of the given labels in the first half of training, and "
            f"there is no second opinion, so {_RANKED}; try fewer {option('epochs')}, a lower "
            f"{option('lr')} or a smaller {option('model')}, or audit with {option('folds', 4)}",
        )
    if judge.is_too_weak:
        little = (
            f"are right for about {judge.accuracy:.0%} of the examples, hardly better than chance"
            if judge.skill
            else "agree with them no more often than by chance"
        )
        yield AuditWarning(
            "too_weak", f"the predictions that judge the labels {little}, so {_RANKED}"
        )
    elif judge.kind is None:
        yield AuditWarning(
            "no_witness",
            "there is no second opinion on these labels, so none is changed without a person; an "
            f"audit with {option('folds', 4)} gives one",
        )
    elif judge.is_weak:
        yield AuditWarning(
            "weak_judge",
            f"the predictions that judge the labels are right for only about {judge.accuracy:.0%} "
            "of the examples, so no label is changed without a person",
        )
    if reviewed and noise.high - noise.low > WIDE:
        yield AuditWarning(
            "wide_range",
            f"{reviewed:,} reviewed labels say that from {noise.low:.0%} to {noise.high:.0%} of "
            f"the labels are wrong; {command('review', _RUN, sample=NARROWED)} narrows this",
        )
    elif noise.high - noise.low > WIDE:
        yield AuditWarning(
            "wide_range",
            f"the estimates of how many labels are wrong differ, from {noise.low:.0%} to "
            f"{noise.high:.0%}; reviewing {REVIEWED} labels with "
            f"{command('review', _RUN, sample=REVIEWED)} measures it",
        )
    if judge.confused:
        pairs = [f"{pair.one} and {pair.other}" for pair in judge.confused[:_PAIRS]]
        more = len(judge.confused) - len(pairs)
        pairs += [f"{more:,} more pair{'s' if more > 1 else ''}"] if more else []
        yield AuditWarning(
            "confused_classes",
            f"the predictions that judge the labels can hardly tell apart {'; '.join(pairs)}, so "
            "labels between these are not changed without a person",
        )


def rare(rate: float, accuracy: float) -> AuditWarning:
    """Return why sure changes are not made where wrong labels are rarer than wrong predictions."""
    return AuditWarning(
        "rare_errors",
        f"perhaps only {rate:.1%} of the labels are wrong, and the predictions that judge them are "
        f"then wrong for about {1 - accuracy:.0%} of the examples, so no label is changed without "
        "a person",
    )


def fitted_shares(records: Records, given: Ints) -> list[float]:
    """Return the share of the given labels that each epoch predicted."""
    shares = []
    for epoch in records.observed:
        seen = ~np.isnan(epoch["p_given"])
        shares.append(float((epoch["predicted"] == given)[seen].mean()) if seen.any() else 0.0)
    return shares


def epoch_warnings(epochs: float) -> Iterator[AuditWarning]:
    """Yield the reason that follows from the number of epochs alone."""
    if epochs < FEWEST_EPOCHS:
        yield AuditWarning(
            "few_epochs",
            f"the model was trained for {epochs:.3g} epoch{'' if epochs == 1 else 's'}, but an "
            f"audit needs at least {FEWEST_EPOCHS}, so {_RANKED}; train for more epochs",
        )


def label_warnings(
    config: Mapping[str, Any], leaking: Sequence[str] = ()
) -> Iterator[AuditWarning]:
    """Yield the reasons that are known before training.

    Args:
        config: of a run, which may learn labels that a model corrected.
        leaking: names of columns that predict every label perfectly.
    """
    if leaking:
        yield AuditWarning(LEAK, about_leaks(leaking))
    if learns_own_corrections(config):
        yield AuditWarning(
            "own_corrections",
            f"{OWN_CORRECTIONS}; decide about the suspects with {command('review')}, and train "
            f"with {option('reviewed', True)}",
        )


def learns_own_corrections(config: Mapping[str, Any]) -> bool:
    """Return whether the labels come from another run and were not reviewed."""
    labels = config.get("labels")
    return isinstance(labels, str) and _is_run(labels) and config.get("reviewed") is not True


def _is_run(path: str) -> bool:
    """Return whether a path is a run rather than a file of labels, by its name if it is gone.

    >>> _is_run("gone/run"), _is_run("gone/labels.CSV")
    (True, False)
    """
    if os.path.exists(path):
        return os.path.isdir(path)
    return bool(path) and Path(path).suffix.lower() not in _LABEL_FILES
