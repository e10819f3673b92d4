"""What the suspects of a run say together: how many labels are wrong, and which way they went."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from proselflc.data.labels import class_matrix
from proselflc.data.labels.class_matrix import ClassMatrix, rows_to_1
from proselflc.data.sources import npz
from proselflc.errors import InputError
from proselflc.files.regular import is_regular
from proselflc.files.whole import whole_file
from proselflc.training.run_directory import Json, RunDirectory

if TYPE_CHECKING:
    from proselflc.data.inputs import Ints


@dataclass(frozen=True)
class Audit:
    """What is estimated of n labels of C classes, and what is true where that is known.

    Attributes:
        num_examples: n.
        suspects: how many labels are suspect.
        folds: of how many folds the scores are, or None where they are of training itself.
        estimated_noise_rate: the share of labels that is wrong.
        realised_noise_rate: the same, counted, or None.
        expected_precision: the share of suspects that is really wrong, as estimated; None
            without suspects.
        names: C class names.
        joint: [C, C] estimated number of examples; row = true class, column = given class. Beyond
            `memory_budget.DENSE_CLASSES` classes it is a scipy.sparse.csr_array.
        realised: [C, C] the true numbers in the same form, or None.
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

    @property
    def transition(self) -> ClassMatrix:
        """[C, C] the estimated chance of every given class, by the true one; rows sum to 1."""
        return rows_to_1(self.joint)

    @property
    def realised_transition(self) -> ClassMatrix | None:
        """[C, C] the realised chances, or None."""
        return None if self.realised is None else rows_to_1(self.realised)

    def to_json(self) -> Json:
        """What `audit.json` holds."""
        given = self.joint.sum(0)
        wrong = given - self.joint.diagonal()
        totals = rights = given
        if self.realised is not None:
            totals, rights = self.realised.sum(0), self.realised.diagonal()
        classes = []
        for k, name in enumerate(self.names):
            one: Json = {
                "name": name,
                "examples": round(float(given[k])),
                "estimated_noise_rate": float(wrong[k] / given[k]) if given[k] else None,
            }
            if self.realised is not None:
                total, right = float(totals[k]), float(rights[k])
                one["realised_noise_rate"] = 1 - right / total if total else None
            classes.append(one)
        return {
            "examples": self.num_examples,
            "suspects": self.suspects,
            "folds": self.folds,
            "estimated_noise_rate": self.estimated_noise_rate,
            "realised_noise_rate": self.realised_noise_rate,
            "expected_precision": self.expected_precision,
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

    @classmethod
    def load(cls, directory: RunDirectory) -> Audit:
        """Read what `save` wrote.

        Raises:
            InputError: there is none, or it is damaged.
        """
        for path in (directory.audit, directory.audit_arrays):
            if not is_regular(directory.checked(path)):
                raise InputError(
                    f"{directory.path} has no {path.name}: make it with proselflc audit "
                    f"{directory.path}"
                )
        facts = directory.read_json(directory.audit)
        classes = facts.get("classes")
        if not isinstance(classes, list) or not all(isinstance(one, dict) for one in classes):
            raise _damaged(directory)
        names = tuple(one.get("name") for one in classes)
        if not all(isinstance(name, str) for name in names):
            raise _damaged(directory)
        n, suspects = (_count(directory, facts, name) for name in ("examples", "suspects"))
        rate = _share(directory, facts, "estimated_noise_rate")
        path, C = directory.audit_arrays, len(names)
        wanted = [*class_matrix.array_names("joint"), *class_matrix.array_names("realised")]
        arrays = npz.arrays(path, wanted)
        try:
            joint, realised = (
                class_matrix.read(arrays, name, C, path) for name in ("joint", "realised")
            )
        except InputError:
            raise _damaged(directory) from None
        if any(not _are_numbers(matrix, n, C) for matrix in (joint, realised)):
            raise _damaged(directory)
        # A run that is audited again gets two new files, one after the other.
        if joint is None or rate is None or abs(noise_rate(joint) - rate) > 1e-6 or suspects > n:
            raise _damaged(directory)
        return cls(
            num_examples=n,
            suspects=suspects,
            folds=None if facts.get("folds") is None else _count(directory, facts, "folds"),
            estimated_noise_rate=rate,
            realised_noise_rate=_share(directory, facts, "realised_noise_rate"),
            expected_precision=_share(directory, facts, "expected_precision"),
            names=names,
            joint=joint,
            realised=realised,
        )


def counted(clean: Ints, given: Ints, C: int) -> ClassMatrix:
    """[C, C] how many examples have which true (row) and given (column) class."""
    return class_matrix.counted(clean, given, C)


def _are_numbers(matrix: ClassMatrix | None, n: int, C: int) -> bool:
    """Return whether the cells can be numbers of n examples; None can be, too."""
    if matrix is None:
        return True
    if matrix.dtype != np.float64 or matrix.shape != (C, C):
        return False
    cells = matrix if isinstance(matrix, np.ndarray) else matrix.data
    return bool(((cells >= 0) & (cells <= n + 0.5)).all() and abs(matrix.sum() - n) <= 0.5)


def noise_rate(counts: ClassMatrix) -> float:
    """The share of examples that are not on the diagonal; 0 without examples."""
    # The two sums are rounded in another order, so that the first can be the larger.
    return max(0.0, float(1 - counts.trace() / counts.sum())) if counts.sum() else 0.0


def _count(directory: RunDirectory, facts: Json, name: str) -> int:
    value = facts.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 48:
        raise _damaged(directory)
    return value


def _share(directory: RunDirectory, facts: Json, name: str) -> float | None:
    value = facts.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise _damaged(directory)
    return float(value)


def _damaged(directory: RunDirectory) -> InputError:
    return InputError(
        f"{directory.audit} is damaged: make it anew with proselflc audit {directory.path}"
    )
