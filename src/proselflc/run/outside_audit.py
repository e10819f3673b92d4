"""Audits of labels that the model has not learned: those of files, and of a run's test part."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from proselflc.auditing.detection import suspect_pairs
from proselflc.auditing.predictions.outside import PredictionsAudit, audit_predictions
from proselflc.data import opening
from proselflc.data.dataset import NO_LABEL
from proselflc.data.memory_budget import require
from proselflc.data.sources.predictions import read_predictions
from proselflc.errors import InputError, printable
from proselflc.pages.values import format_chance
from proselflc.run import original, prediction
from proselflc.run.audit_words import PAIRS, given_to_suggested, indented, short_id
from proselflc.run.reader import Run
from proselflc.training.run_directory import Json
from proselflc.wording import option

if TYPE_CHECKING:
    import pyarrow as pa


def audit_files(
    pred_probs: Path,
    labels: Path,
    *,
    label_column: str | None = None,
    id_column: str | None = None,
) -> OutsideAudit:
    """Audit the labels of a file by the probabilities of another; see `read_predictions`.

    Raises:
        InputError: a file cannot be read, or the two do not fit together.
    """
    read = read_predictions(pred_probs, labels, label_column=label_column, id_column=id_column)
    return OutsideAudit(audit_predictions(read.given, read.p, read.names), read.ids)


def audit_test_part(run: Run, *, data: str | None = None) -> OutsideAudit:
    """Audit the labels of a run's test part, which were not learned, by the run's own model.

    Args:
        run: a finished run.
        data: the present location of its data, if it has moved.

    Raises:
        InputError: the data cannot be opened again, or has no test part with labels.
    """
    stored = opening.without_labels(original.request(run, data=data))
    try:
        predicted = prediction.predict(run, stored, "test")
    except InputError as error:
        if error.field != "split":
            raise
        fix = f"audit the training part, without {option('part')}"
        raise InputError(error.reason, field="part", fix=fix) from None
    given, n, C = predicted.examples.labels, len(predicted.examples), len(run.names)
    if given is None or not n:
        raise InputError(f"the test part of {predicted.data} has no labels to audit", field="data")
    known = np.flatnonzero(given != NO_LABEL)  # some rows may have no label
    require(4 * n * C, f"predictions for {n:,} examples of {C:,} classes", "audit fewer examples")
    p = np.concatenate([*predicted.probabilities()])
    ids = tuple(predicted.examples.ids[i] for i in known)
    return OutsideAudit(audit_predictions(given[known], p[known], run.names), ids)


@dataclass(frozen=True)
class OutsideAudit:
    """An audit by out-of-sample predictions, with the ids of its examples.

    Attributes:
        audit: the audit.
        ids: n names of the examples.
    """

    audit: PredictionsAudit
    ids: tuple[str, ...]

    def table(self) -> pa.Table:
        """Return a row per example, in the order of the probabilities.

        | column | holds |
        |---|---|
        | `index` | position of the example, from 0 |
        | `id` | the example's name |
        | `given_label`, `suggested_label` | class names; equal unless the label is suspect |
        | `is_suspect` | whether the given label is more likely wrong than right |
        | `quality` | of the given label, in [0, 1]; **low means probably mislabelled** |
        | `action` | `keep`, `review` or `change` |
        """
        import pyarrow as pa

        found, names = self.audit, pa.array(self.audit.names, pa.string())
        return pa.table(
            {
                "index": pa.array(np.arange(len(self.ids))),
                "id": pa.array(self.ids, pa.string()),
                "given_label": names.take(pa.array(found.given)),
                "suggested_label": names.take(pa.array(found.suggested)),
                "is_suspect": pa.array(found.is_suspect),
                "quality": pa.array(found.quality.astype(np.float32)),
                "action": pa.array(found.action, pa.string()),
            }
        )

    def to_json(self, worst: int) -> Json:
        """Return the result as data, with this number of the worst suspects."""
        found = self.audit
        return {
            "examples": len(found.given),
            "suspects": int(found.is_suspect.sum()),
            "changes": found.action.count("change"),
            "estimated_noise_rate": found.estimated_noise_rate,
            "noise_low": found.noise_low,
            "noise_high": found.noise_high,
            "expected_precision": found.expected_precision,
            "precision_low": found.precision_low,
            "precision_high": found.precision_high,
            "agreement": found.agreement,
            "warnings": list(found.warnings),
            "pairs": [
                {name: getattr(pair, name) for name in ("given_label", "suggested_label", "count")}
                for pair in suspect_pairs(self.table(), PAIRS)
            ],
            "worst": self.worst(worst),
        }

    def worst(self, count: int) -> list[dict[str, Any]]:
        """Return the suspects of the lowest quality, the worst first."""
        suspect = np.flatnonzero(self.audit.is_suspect)
        rows = suspect[np.argsort(self.audit.quality[suspect], kind="stable")[:count]]
        listed: list[dict[str, Any]] = self.table().take(rows).to_pylist()
        return listed

    def describe(self, worst: int) -> str:
        """Return the result as text, with this number of the worst suspects."""
        lines = _verdict(self.audit)
        for warning in self.audit.warnings:
            lines += ["", f"Caution: {printable(warning['message'])}."]
        pairs = suspect_pairs(self.table(), PAIRS)
        if pairs:
            counts = [
                (given_to_suggested(one.given_label, one.suggested_label), f"{one.count:,}")
                for one in pairs
            ]
            lines += ["", "Most frequent suspects (given → suggested):", *indented(counts)]
        listed = self.worst(worst)
        if listed:
            rows = [("id", "given → suggested", "quality", "action")]
            for row in listed:
                change = given_to_suggested(row["given_label"], row["suggested_label"])
                quality = format_chance(row["quality"])
                rows.append((short_id(row["id"]), change, quality, str(row["action"])))
            many = len(listed)
            title = f"The {many} least likely to be right:" if many > 1 else "The suspect:"
            lines += ["", title, *indented(rows)]
        return "\n".join([*lines, ""])


def _verdict(audit: PredictionsAudit) -> list[str]:
    n, suspects = len(audit.given), int(audit.is_suspect.sum())
    changes = audit.action.count("change")
    rate = _range(audit.noise_low, audit.noise_high, audit.estimated_noise_rate, 1)
    agreement = f"The model predicts {audit.agreement:.0%} of the given labels."
    if not suspects:
        none = f"None of {n:,} labels is suspect; {rate} of all are estimated to be wrong."
        return [none, agreement]
    precision = []
    if audit.precision_low is not None and audit.precision_high is not None:
        share = _range(audit.precision_low, audit.precision_high, audit.expected_precision, 0)
        precision = [f"{share} of the suspects should really be wrong."]
    some = f"{changes:,} of them {_is(changes)}" if changes else "None of them is"
    return [
        f"{suspects:,} of {n:,} labels {_is(suspects)} suspect ({suspects / n:.1%}); "
        f"{rate} of all are estimated to be wrong.",
        *precision,
        f"{some} sure enough to change without a review.",
        agreement,
    ]


def _is(number: int) -> str:
    return "is" if number == 1 else "are"


def _range(low: float, high: float, likely: float | None, digits: int) -> str:
    """Return a range of shares, and the likeliest one if it is known.

    >>> _range(0.1, 0.25, 0.2, 0)
    '10% to 25% (most likely 20%)'
    """
    words = f"{low:.{digits}%} to {high:.{digits}%}"
    if f"{low:.{digits}%}" == f"{high:.{digits}%}":
        return f"{low:.{digits}%}"
    return words if likely is None else f"{words} (most likely {likely:.{digits}%})"
