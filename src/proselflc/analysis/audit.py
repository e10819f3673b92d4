"""What the suspects of a run say together: how many labels are wrong, and which way they went."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from proselflc.data.noise import Matrix
from proselflc.data.sources import npz
from proselflc.data.writing import whole_file
from proselflc.errors import InputError
from proselflc.regular_files import is_regular
from proselflc.training.run_directory import Json, RunDirectory

if TYPE_CHECKING:
    from proselflc.data.dataset import Ints


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
        joint: [C, C] estimated number of examples; row = true class, column = given class.
        realised: [C, C] the true numbers, or None.
    """

    num_examples: int
    suspects: int
    folds: int | None
    estimated_noise_rate: float
    realised_noise_rate: float | None
    expected_precision: float | None
    names: tuple[str, ...]
    joint: Matrix
    realised: Matrix | None

    @property
    def transition(self) -> Matrix:
        """[C, C] the estimated chance of every given class, by the true one; rows sum to 1."""
        return _rows_to_1(self.joint)

    @property
    def realised_transition(self) -> Matrix | None:
        """[C, C] the realised chances, or None."""
        return None if self.realised is None else _rows_to_1(self.realised)

    def to_json(self) -> Json:
        """What `audit.json` holds."""
        given = self.joint.sum(0)
        wrong = given - self.joint.diagonal()
        classes = []
        for k, name in enumerate(self.names):
            one: Json = {
                "name": name,
                "examples": round(float(given[k])),
                "estimated_noise_rate": float(wrong[k] / given[k]) if given[k] else None,
            }
            if self.realised is not None:
                total = float(self.realised[:, k].sum())
                right = float(self.realised[k, k])
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
        arrays = {"joint": self.joint.astype("<f8")}
        if self.realised is not None:
            arrays["realised"] = self.realised.astype("<f8")
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
        arrays = npz.arrays(directory.audit_arrays, ("joint", "realised"))
        for matrix in arrays.values():
            if (
                matrix.dtype != np.float64
                or matrix.shape != (len(names), len(names))
                or not ((matrix >= 0) & (matrix <= n + 0.5)).all()
                or abs(matrix.sum() - n) > 0.5
            ):
                raise _damaged(directory)
        joint = arrays.get("joint")
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
            realised=arrays.get("realised"),
        )


def counted(clean: Ints, given: Ints, C: int) -> Matrix:
    """[C, C] how many examples have which true (row) and given (column) class."""
    cells = np.bincount(clean * C + given, minlength=C * C)
    counts: Matrix = cells.reshape(C, C).astype(np.float64)
    return counts


def noise_rate(counts: Matrix) -> float:
    """The share of examples that are not on the diagonal; 0 without examples."""
    # The two sums are rounded in another order, so that the first can be the larger.
    return max(0.0, float(1 - counts.trace() / counts.sum())) if counts.sum() else 0.0


def _rows_to_1(counts: Matrix) -> Matrix:
    """Each row divided by its sum; a class without examples keeps its label."""
    total = counts.sum(1, keepdims=True)
    empty = total[:, 0] == 0
    rates: Matrix = counts / np.where(total == 0, 1, total)
    rates[empty, empty] = 1
    return rates


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
