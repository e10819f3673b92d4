"""The audit of a run: how many labels are wrong, and which class was taken for which."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from proselflc.auditing.caveats import AuditWarning
from proselflc.auditing.judge import Judge
from proselflc.auditing.measured import Measured
from proselflc.data import class_matrix
from proselflc.data.class_matrix import ClassMatrix, rows_to_1
from proselflc.data.sources import npz
from proselflc.errors import InputError
from proselflc.files.regular import is_regular, whole_file
from proselflc.files.typed import Count, Share
from proselflc.training.run_directory import Json, RunDirectory
from proselflc.wording import command


@dataclass(frozen=True)
class Audit:
    """The estimates for n labels of C classes, and the true values where they are known.

    Attributes:
        num_examples: n.
        suspects: number of labels that are suspect.
        changes: number of suspects that are changed without asking a person; None if an older
            version made the audit.
        folds: number of folds that the scores come from, or None if they come from training itself.
        estimated_noise_rate: estimated share of wrong labels.
        noise_low, noise_high: range that this share is probably in; None if an older version made
            the audit.
        realised_noise_rate: true share of wrong labels, or None.
        expected_precision: estimated share of wrong labels among the suspects; None where it
            cannot be known.
        judge: how far the predictions that judge the labels can be relied on, or None.
        warnings: reasons to be careful.
        unlabelled: number of rows without a label, which are predicted and not judged; they are
            not among the n.
        measured: what a review of randomly drawn labels says, or None without one. Then the
            noise rate, its range and the precision are the measured ones.
        names: C class names.
        joint: [C, C] estimated number of examples; row = true class, column = given class. Beyond
            `memory_budget.DENSE_CLASSES` classes it is a scipy.sparse.csr_array.
        realised: [C, C] true numbers in the same form, or None.
    """

    num_examples: int
    suspects: int
    folds: int | None
    estimated_noise_rate: float
    realised_noise_rate: float | None
    expected_precision: float | None
    names: tuple[str, ...]
    joint: ClassMatrix
    realised: ClassMatrix | None
    changes: int | None = None
    noise_low: float | None = None
    noise_high: float | None = None
    judge: Judge | None = None
    warnings: tuple[AuditWarning, ...] = ()
    measured: Measured | None = None
    unlabelled: int = 0

    @property
    def abstains(self) -> bool:
        """Return whether the audit ranks the labels, but names no suspects."""
        return any(warning.abstains for warning in self.warnings)

    @property
    def transition(self) -> ClassMatrix:
        """Return [C, C] the estimated chance of each given class by true class; rows sum to 1."""
        return rows_to_1(self.joint)

    @property
    def realised_transition(self) -> ClassMatrix | None:
        """Return [C, C] the realised chances, or None."""
        return None if self.realised is None else rows_to_1(self.realised)

    def to_json(self) -> Json:
        """Return the content of `audit.json`."""
        given = self.joint.sum(0)
        wrong = given - self.joint.diagonal()
        totals = rights = given
        if self.realised is not None:
            totals, rights = self.realised.sum(0), self.realised.diagonal()
        classes = []
        for k, name in enumerate(self.names):
            facts: Json = {
                "name": name,
                "examples": round(float(given[k])),
                "estimated_noise_rate": float(wrong[k] / given[k]) if given[k] else None,
            }
            if self.realised is not None:
                total, right = float(totals[k]), float(rights[k])
                facts["realised_noise_rate"] = 1 - right / total if total else None
            classes.append(facts)
        return {
            "examples": self.num_examples,
            **({"unlabelled": self.unlabelled} if self.unlabelled else {}),
            "suspects": self.suspects,
            "changes": self.changes,
            "folds": self.folds,
            "estimated_noise_rate": self.estimated_noise_rate,
            "noise_low": self.noise_low,
            "noise_high": self.noise_high,
            "realised_noise_rate": self.realised_noise_rate,
            "expected_precision": self.expected_precision,
            "judge": None if self.judge is None else asdict(self.judge),
            "warnings": [asdict(warning) for warning in self.warnings],
            "measured": None if self.measured is None else asdict(self.measured),
            "classes": classes,
        }

    def save(self, directory: RunDirectory) -> None:
        """Write `audit.npz` and `audit.json`, each whole or not at all."""
        arrays = class_matrix.arrays("joint", self.joint)
        if self.realised is not None:
            arrays |= class_matrix.arrays("realised", self.realised)
        with whole_file(directory.audit_arrays) as file:
            np.savez_compressed(file, allow_pickle=False, **arrays)
        directory.write_json(directory.audit, self.to_json())

    def about(self, run: Path) -> Audit:
        """Return the audit with the path of the run in the commands of its warnings."""
        return replace(self, warnings=tuple(one.about(run) for one in self.warnings))

    @classmethod
    def load(cls, directory: RunDirectory) -> Audit:
        """Read the files that `save` wrote.

        Raises:
            InputError: there are none, or they are damaged.
        """
        for path in (directory.audit, directory.audit_arrays):
            if not is_regular(directory.checked(path)):
                raise InputError(
                    f"{directory.path} has no {path.name}",
                    fix=f"make it with {command('audit', directory.path)}",
                )
        fix = f"write it again with {command('audit', directory.path)}"
        path, matrices = directory.audit_arrays, ("joint", "realised")
        stored = [part for name in matrices for part in class_matrix.array_names(name)]
        arrays = npz.arrays(path, stored)
        try:
            facts = directory.read(directory.audit, _AuditFile)
            C = len(facts.classes)
            joint, realised = (class_matrix.read(arrays, name, C, path) for name in matrices)
        except InputError as error:
            raise InputError(error.reason, fix=fix) from None
        if (
            joint is None
            or not all(_are_counts(matrix, facts.examples, C) for matrix in (joint, realised))
            # A run that is audited again gets two new files, one after the other.
            or abs(noise_rate(joint) - facts.estimated_noise_rate) > 1e-6
            or facts.suspects > facts.examples
            or (facts.changes or 0) > facts.suspects
        ):
            raise InputError(
                f"{directory.audit} is damaged: it does not agree with {path.name}", fix=fix
            )
        return cls(
            num_examples=facts.examples,
            suspects=facts.suspects,
            folds=facts.folds,
            estimated_noise_rate=facts.estimated_noise_rate,
            realised_noise_rate=facts.realised_noise_rate,
            expected_precision=facts.expected_precision,
            names=tuple(one.name for one in facts.classes),
            joint=joint,
            realised=realised,
            changes=facts.changes,
            noise_low=facts.noise_low,
            noise_high=facts.noise_high,
            judge=facts.judge,
            warnings=(OLDER,) if facts.changes is None else facts.warnings,
            measured=facts.measured,
            unlabelled=facts.unlabelled,
        ).about(directory.path)


OLDER = AuditWarning(
    "older_audit",
    "an older version made this audit, which stated more than it knew; audit the run again",
)


@dataclass(frozen=True)
class _ClassName:
    """The part of a class in `audit.json` that is read again."""

    name: str


@dataclass(frozen=True)
class _AuditFile:
    """The part of `audit.json` that is read again; the matrices hold the rest."""

    examples: Count
    suspects: Count
    estimated_noise_rate: Share
    classes: tuple[_ClassName, ...]
    folds: Count | None = None
    realised_noise_rate: Share | None = None
    expected_precision: Share | None = None
    changes: Count | None = None
    noise_low: Share | None = None
    noise_high: Share | None = None
    judge: Judge | None = None
    warnings: tuple[AuditWarning, ...] = ()
    measured: Measured | None = None
    unlabelled: Count = 0


def noise_rate(counts: ClassMatrix) -> float:
    """Return the share of examples that are not on the diagonal; 0 without examples."""
    # The two sums are rounded in different orders, so that the first can be the larger.
    return max(0.0, float(1 - counts.trace() / counts.sum())) if counts.sum() else 0.0


def _are_counts(matrix: ClassMatrix | None, n: int, C: int) -> bool:
    """Return whether the cells can count n examples; None is allowed."""
    if matrix is None:
        return True
    if matrix.dtype != np.float64 or matrix.shape != (C, C):
        return False
    cells = matrix if isinstance(matrix, np.ndarray) else matrix.data
    return bool(((cells >= 0) & (cells <= n + 0.5)).all() and abs(matrix.sum() - n) <= 0.5)
