"""Corrected labels of a run for other programs: tables, arrays, and cleanlab's columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from proselflc.auditing.examples import check_examples
from proselflc.data.inputs import Bools, Floats, Ints
from proselflc.data.labels.decisions import Decisions
from proselflc.data.labels.label_files import least_confidence
from proselflc.data.labels.label_values import Returned, returned
from proselflc.data.labels.labels import CorrectedLabels
from proselflc.data.tables.cells import format_row
from proselflc.errors import InputError
from proselflc.files.regular import is_regular
from proselflc.run.reader import Run, load_run
from proselflc.training.observations import TOP_CLASSES

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]
    import pyarrow as pa

_ROWS = 1 << 16  # that become Python objects at once


@dataclass(frozen=True)
class Corrected:
    """The labels of a run: as people have decided, else corrected where that is sure enough.

    Attributes:
        run: whose labels they are.
        min_confidence: a suggestion that the run is less sure of (`p_suggested`) is not followed.
        only_suspects: leave the others out.
        reviewed: unless a least confidence is given, follow no suggestion at all.
    """

    run: Run
    min_confidence: float | None = None
    only_suspects: bool = False
    reviewed: bool = False

    def __post_init__(self) -> None:
        least_confidence(self.reviewed, self.min_confidence)

    def table(self, *, soft: bool = False) -> pa.Table:
        """A row per example, in the order of training.

        | column | holds |
        |---|---|
        | `id` | the example's name |
        | `label` | corrected |
        | `given_label` | as it was |
        | `is_suspect` | whether the given label is probably wrong, however sure the other one is |
        | `quality` | of the given label, in [0, 1]; **low means probably mislabelled** |
        | `confidence` | how sure the run is of the label that it suggests, in [0, 1] |
        | `reviewed` | "kept", "corrected" or "unsure", by a person; null if nobody has looked |

        Args:
            soft: add the corrected distribution, a column `p(NAME)` per class; for more than 100
                classes the five likeliest, as `label_1`, `p_1` to `label_5`, `p_5`. Where a
                suggestion is not followed it is the given label alone, and where a person has
                decided, what they said.
        """
        import pyarrow as pa

        examples = self.examples
        columns = {
            "id": examples["id"],
            "label": self._labels(),
            "given_label": examples["given_label"],
            "is_suspect": examples["is_suspect"],
            "quality": examples["quality"],
            "confidence": examples["p_suggested"],
            "reviewed": self._reviews,
        }
        if soft:
            names = self.run.labels.names
            probabilities, classes = self._distribution()
            if classes is None:
                for k, name in enumerate(names):
                    columns[f"p({name})"] = pa.array(np.ascontiguousarray(probabilities[:, k]))
            else:
                texts = pa.array(names, pa.string())
                for k in range(classes.shape[1]):
                    columns[f"label_{k + 1}"] = texts.take(pa.array(classes[:, k]))
                    columns[f"p_{k + 1}"] = pa.array(np.ascontiguousarray(probabilities[:, k]))
        return pa.table(columns)

    def issues(self) -> pa.Table:
        """The same under the names of cleanlab's `CleanLearning.get_label_issues()`.

        `is_label_issue`, `label_quality`, `given_label` and `predicted_label`, then ours:
        `corrected_label`, which is what a person has decided or else follows a suggestion only if
        that is sure enough, and `id`.
        """
        import pyarrow as pa

        examples = self.examples
        return pa.table(
            {
                "is_label_issue": examples["is_suspect"],
                "label_quality": examples["quality"],
                "given_label": examples["given_label"],
                "predicted_label": examples["suggested_label"],
                "corrected_label": self._labels(),
                "id": examples["id"],
            }
        )

    def class_ids_of_issues(self) -> dict[str, Ints]:
        """[n] class ids of each column of `issues` that holds labels."""
        examples = self.examples
        return {
            "given_label": self._class_ids(examples["given_label"]),
            "predicted_label": self._class_ids(examples["suggested_label"]),
            "corrected_label": self.labels,
        }

    def write_npz(self, file: IO[bytes], *, soft: bool = False) -> None:
        """`ids`, `labels`, `given`, `names`, `is_suspect`, `quality`, `reviewed` for `--labels`.

        Args:
            file: to write to.
            soft: add `probabilities` [n, C]; for more than 100 classes `classes` and
                `probabilities`, both [n, 5].
        """
        examples = self.examples
        probabilities, classes = self._distribution() if soft else (None, None)
        CorrectedLabels(
            ids=tuple(examples["id"].to_pylist()),
            labels=self.labels,
            given=self._class_ids(examples["given_label"]),
            names=self.run.labels.names,
        ).save(
            file,
            is_suspect=examples["is_suspect"].to_numpy(),
            quality=_floats(examples["quality"]),
            reviewed=self._decided >= 0,
            probabilities=probabilities,
            classes=classes,
        )

    @cached_property
    def examples(self) -> pa.Table:
        """The rows of `examples.parquet` that are meant."""
        if not is_regular(self.run.directory.examples):
            raise InputError(
                f"the run {self.run.path} has no {self.run.directory.examples.name}, so nothing is "
                "known about its labels: train it again"
            )
        table = self.run.examples
        check_examples(table, self.run.labels, self.run.directory.examples)
        return table.filter(table["is_suspect"]) if self.only_suspects else table

    @cached_property
    def labels(self) -> Ints:
        """[n] class ids."""
        examples = self.examples
        followed = self._class_ids(examples["suggested_label"])
        given = self._class_ids(examples["given_label"])
        labels: Ints = np.where(self._followed, followed, given)
        return np.where(self._decided >= 0, self._decided, labels)

    @property
    def corrections(self) -> int:
        """How many labels are not the given ones."""
        return int((self.labels != self._class_ids(self.examples["given_label"])).sum())

    @property
    def decided(self) -> int:
        """How many labels are what a person has said."""
        return int((self._decided >= 0).sum())

    @cached_property
    def _decisions(self) -> Decisions:
        return self.run.decisions

    @property
    def notes(self) -> tuple[str, ...]:
        """What the user may not expect, in words."""
        return tuple(self._decisions.notes)

    @cached_property
    def _decided(self) -> Ints:
        """[n] the class that a person has said; −1 where nobody has, −2 for who cannot tell."""
        standing = self._decisions.standing
        place = {name: k for k, name in enumerate(self.run.labels.names)}
        found = np.full(len(self.examples), -1, np.int64)
        if standing:
            for row, name in enumerate(self.examples["id"].to_pylist()):
                if (one := standing.get(name)) is not None:
                    found[row] = -2 if one.label is None else place[one.label]
        return found

    @property
    def _reviews(self) -> pa.Array:
        """[n] what a person has done."""
        import pyarrow as pa

        is_kept = self._decided == self._class_ids(self.examples["given_label"])
        which = np.select([self._decided == -1, self._decided == -2, is_kept], [-1, 0, 1], 2)
        words = pa.array(["unsure", "kept", "corrected"])
        return words.take(pa.array(which, mask=which < 0))

    def _labels(self) -> pa.Array:
        import pyarrow as pa

        return pa.array(self.run.labels.names, pa.string()).take(pa.array(self.labels))

    @cached_property
    def _followed(self) -> Bools:
        """[n] whose suggestion is followed; an unknown confidence is none."""
        least = least_confidence(self.reviewed, self.min_confidence)
        sure = _floats(self.examples["p_suggested"]) >= np.float32(least)
        followed: Bools = self.examples["is_suspect"].to_numpy() & sure & (self._decided < 0)
        return followed

    def _class_ids(self, labels: pa.ChunkedArray) -> Ints:
        import pyarrow as pa
        import pyarrow.compute as pc

        found = pc.index_in(labels, pa.array(self.run.labels.names, pa.string()))
        if found.null_count:
            raise InputError(
                f"{self.run.directory.examples} has classes that {self.run.directory.labels} does "
                "not know: they are of different runs"
            )
        return np.asarray(found.to_numpy()).astype(np.int64)

    def _distribution(self) -> tuple[Floats, Ints | None]:
        """[n, C] soft labels, or those of the five likeliest classes and which they are."""
        import pyarrow as pa
        import pyarrow.compute as pc

        examples = self.examples
        n, C = len(examples), len(self.run.labels.names)
        column = examples["corrected_distribution"]
        cells = pc.list_flatten(column)
        # One label alone: of those who were decided about, and of suggestions that are held back.
        alone = (examples["is_suspect"].to_numpy() & ~self._followed) | (self._decided >= 0)
        labels = self.labels
        many = pa.types.is_struct(cells.type)
        width = len(cells) // n if n else TOP_CLASSES if many else C
        lengths = pc.list_value_length(column).to_numpy()
        if not (lengths == width).all() or (not many and width != C):
            raise InputError(
                f"the corrected distributions in {self.run.directory.examples} are not of {C} "
                "classes each: it is damaged"
            )
        values = pc.struct_field(cells, "p") if many else cells
        probabilities: Floats = _floats(values).reshape(n, width)
        if alone.any():
            probabilities = probabilities.copy()  # Arrow's own memory is not to be written to
            probabilities[alone] = 0
            probabilities[alone, 0 if many else labels[alone]] = 1
        if not many:
            return probabilities, None
        classes = self._class_ids(pc.struct_field(cells, "label")).reshape(n, width)
        # That label comes first; where it was among the five, what was first takes its place.
        again = (classes == labels[:, None]) & alone[:, None]
        classes = np.where(again, classes[:, :1], classes)
        classes[alone, 0] = labels[alone]
        return probabilities, classes


def corrected_labels(
    run: Run | str | Path, *, min_confidence: float | None = None, reviewed: bool = False
) -> Returned:
    """The labels of a run's training examples, corrected, in the order of training.

    They are of the type that the labels of `fit` or `record` were of, so that they can be compared:
    a list for lists; an array of the same dtype for arrays and for columns of data frames; a tensor
    for tensors. Class names, in a list, where the run has its labels from files.

    What a person has decided in `proselflc review` comes before what the run suggests.

    Args:
        run: finished, or its directory.
        min_confidence: a suggestion that the run is less sure of leaves the label as it was given.
        reviewed: unless a least confidence is given, follow no suggestion at all.
    """
    corrected = Corrected(_loaded(run), min_confidence, reviewed=reviewed)
    labels = corrected.run.labels
    return returned(corrected.labels, labels.names, labels.values)


def find_label_issues(run: Run | str | Path) -> pd.DataFrame:
    """Which labels of a run's training examples are probably wrong, as cleanlab gives it.

    Args:
        run: finished, or its directory.

    Returns:
        A pandas data frame with a row per training example, in their order, and the columns of
        cleanlab's `CleanLearning.get_label_issues()`: `is_label_issue`, `label_quality` (low =
        probably mislabelled), `given_label`, `predicted_label`; then `corrected_label` and `id`.
        Labels are of the type that `fit` was given, or class names where they came from files.
    """
    _pandas()
    corrected = Corrected(_loaded(run))
    frame = corrected.issues().to_pandas()
    values = corrected.run.labels.values
    if values is not None:
        for name, classes in corrected.class_ids_of_issues().items():
            frame[name] = values.column(classes)
    return frame


def issues_frame(
    given: npt.NDArray[Any], suggested: npt.NDArray[Any], quality: npt.NDArray[np.floating]
) -> pd.DataFrame:
    """The four columns of cleanlab's `CleanLearning.get_label_issues()`, a row per example.

    Args:
        given: [n] labels.
        suggested: [n] what they should be; the given one unless it is an issue.
        quality: [n] in [0, 1]; **low means probably mislabelled**.
    """
    return _pandas().DataFrame(
        {
            "is_label_issue": suggested != given,
            "label_quality": quality,
            "given_label": given,
            "predicted_label": suggested,
        }
    )


def text_lines(table: pa.Table, delimiter: str = ",") -> Iterator[str]:
    """A table as the lines of a CSV or TSV file, neutralised for spreadsheets, heading first."""
    yield format_row(table.column_names, delimiter)
    for batch in table.to_batches(max_chunksize=_ROWS):
        for row in zip(*(_cells(column) for column in batch.columns), strict=True):
            yield format_row(row, delimiter)


def _cells(column: pa.Array) -> list[object]:
    import pyarrow as pa

    cells: list[object] = column.to_pylist()
    if pa.types.is_floating(column.type):
        return [None if cell is None else round(cell, 6) for cell in cells]  # type: ignore[call-overload]
    return cells


def _floats(column: pa.ChunkedArray) -> Floats:
    """[n] NaN where there is nothing."""
    import pyarrow as pa

    return np.asarray(column.cast(pa.float32()).to_numpy(), dtype=np.float32)


def _pandas() -> Any:
    try:
        import pandas
    except ImportError:
        raise InputError(
            'a data frame of label issues needs pandas: pip install "proselflc[cleanlab]"'
        ) from None
    return pandas


def _loaded(run: Run | str | Path) -> Run:
    return run if isinstance(run, Run) else load_run(run)
