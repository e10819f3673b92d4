"""Corrected labels of a run for other programs: tables, arrays, and cleanlab's columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np

from proselflc.analysis.run import Run, load_run
from proselflc.data import spreadsheet
from proselflc.data.dataset import Bools, Floats, Ints
from proselflc.data.exported import Exported
from proselflc.errors import InputError
from proselflc.training.observations import TOP_CLASSES

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]
    import pyarrow as pa

_ROWS = 1 << 16  # that become Python objects at once


@dataclass(frozen=True)
class Corrected:
    """The labels of a run, corrected where that is sure enough.

    Attributes:
        run: whose labels they are.
        min_confidence: a suggestion that the run is less sure of (`p_suggested`) is not followed.
        only_suspects: leave the others out.
    """

    run: Run
    min_confidence: float = 0.0
    only_suspects: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.min_confidence <= 1:
            raise InputError(f"--min-confidence must be from 0 to 1, got {self.min_confidence}")

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

        Args:
            soft: add the corrected distribution, a column `p(NAME)` per class; for more than 100
                classes the five likeliest, as `label_1`, `p_1` to `label_5`, `p_5`. Where a
                suggestion is not followed it is the given label alone.
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
        `corrected_label`, which follows a suggestion only if that is sure enough, and `id`.
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

    def write_npz(self, file: IO[bytes], *, soft: bool = False) -> None:
        """`ids`, `labels`, `given`, `names`, `is_suspect`, `quality`, as `--labels` reads them.

        Args:
            file: to write to.
            soft: add `probabilities` [n, C]; for more than 100 classes `classes` and
                `probabilities`, both [n, 5].
        """
        examples = self.examples
        probabilities, classes = self._distribution() if soft else (None, None)
        Exported(
            ids=tuple(examples["id"].to_pylist()),
            labels=self.labels,
            given=self._class_ids(examples["given_label"]),
            names=self.run.labels.names,
        ).save(
            file,
            is_suspect=examples["is_suspect"].to_numpy(),
            quality=_floats(examples["quality"]),
            probabilities=probabilities,
            classes=classes,
        )

    @cached_property
    def examples(self) -> pa.Table:
        """The rows of `examples.parquet` that are meant."""
        if not self.run.directory.examples.is_file():
            raise InputError(
                f"the run {self.run.path} has no {self.run.directory.examples.name}, so nothing is "
                "known about its labels: train it again"
            )
        table = self.run.examples
        return table.filter(table["is_suspect"]) if self.only_suspects else table

    @property
    def labels(self) -> Ints:
        """[n] class ids."""
        return self._class_ids(self._labels())

    @property
    def corrections(self) -> int:
        """How many labels are not the given ones."""
        return int(self._followed(self.examples).sum())

    def _labels(self) -> pa.ChunkedArray:
        import pyarrow as pa
        import pyarrow.compute as pc

        examples = self.examples
        followed = pa.array(self._followed(examples))
        return pc.if_else(followed, examples["suggested_label"], examples["given_label"])

    def _followed(self, examples: pa.Table) -> Bools:
        """[n] whose suggestion is followed; an unknown confidence is none."""
        sure = _floats(examples["p_suggested"]) >= np.float32(self.min_confidence)
        followed: Bools = examples["is_suspect"].to_numpy() & sure
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
        kept_back = examples["is_suspect"].to_numpy() & ~self._followed(examples)
        given = self._class_ids(examples["given_label"])
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
        if kept_back.any():
            probabilities = probabilities.copy()  # Arrow's own memory is not to be written to
            probabilities[kept_back] = 0
            first = 0 if many else given[kept_back]
            probabilities[kept_back, first] = 1
        if not many:
            return probabilities, None
        classes = self._class_ids(pc.struct_field(cells, "label")).reshape(n, width)
        # The given class comes first; where it was among the five, what was first takes its place.
        again = (classes == given[:, None]) & kept_back[:, None]
        classes = np.where(again, classes[:, :1], classes)
        classes[kept_back, 0] = given[kept_back]
        return probabilities, classes


def corrected_labels(run: Run | str | Path, *, min_confidence: float = 0.0) -> list[str]:
    """The class names of a run's training examples, corrected, in the order of training.

    Args:
        run: finished, or its directory.
        min_confidence: a suggestion that the run is less sure of leaves the label as it was given.
    """
    corrected = Corrected(_loaded(run), min_confidence)
    names = corrected.run.labels.names
    return [names[k] for k in corrected.labels]


def find_label_issues(run: Run | str | Path) -> pd.DataFrame:
    """Which labels of a run's training examples are probably wrong, as cleanlab gives it.

    Args:
        run: finished, or its directory.

    Returns:
        A pandas data frame with a row per training example, in their order, and the columns of
        cleanlab's `CleanLearning.get_label_issues()`: `is_label_issue`, `label_quality` (low =
        probably mislabelled), `given_label`, `predicted_label`; then `corrected_label` and `id`.
        Labels are class names.
    """
    try:
        import pandas  # noqa: F401
    except ImportError:
        raise InputError(
            'a data frame of label issues needs pandas: pip install "proselflc[cleanlab]"'
        ) from None
    return Corrected(_loaded(run)).issues().to_pandas()


def text_lines(table: pa.Table, delimiter: str = ",") -> Iterator[str]:
    """A table as the lines of a CSV or TSV file, neutralised for spreadsheets, heading first."""
    yield spreadsheet.line(table.column_names, delimiter)
    for batch in table.to_batches(max_chunksize=_ROWS):
        for row in zip(*(_cells(column) for column in batch.columns), strict=True):
            yield spreadsheet.line(row, delimiter)


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


def _loaded(run: Run | str | Path) -> Run:
    return run if isinstance(run, Run) else load_run(run)
