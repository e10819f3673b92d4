"""`proselflc predict`: predictions of a run's model for any data, as a table or arrays."""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from proselflc.data.dataset import NO_LABEL, Part, Skipped, SplitChoice
from proselflc.data.inputs import Floats, Ints
from proselflc.data.memory_budget import gigabytes, keeps_all
from proselflc.data.opening import open_inputs
from proselflc.data.preprocessing import Standardization
from proselflc.data.request import Request, is_table
from proselflc.data.tables.cells import format_row
from proselflc.data.tables.encoding import TableEncoding
from proselflc.data.tables.table import columns_there
from proselflc.errors import InputError
from proselflc.files.regular import whole_file
from proselflc.run.reader import Run

SUFFIXES = (".csv", ".tsv", ".parquet", ".npz")
_COLUMNS = ("label_column", "id_column", "text_column", "path_column")


@dataclass(frozen=True)
class PredictedExamples:
    """Examples and the likeliest of C classes for each of them."""

    data: str  # what the user asked for
    examples: Part[Ints | None]
    names: tuple[str, ...]
    classes: Ints  # [n]
    confidence: Floats  # [n] the probabilities of the classes
    probabilities: Callable[[], Iterator[Floats]]  # yields [N, C] in the order of the examples
    skipped: tuple[Skipped, ...]  # examples that could not be read
    notes: tuple[str, ...] = ()  # sentences about what may be unexpected in the data

    @property
    def accuracy(self) -> float | None:
        """Return the share of labels that agree with the predictions; None without labels."""
        if self.examples.labels is None or len(self.examples) == 0:
            return None
        known = self.examples.labels != NO_LABEL
        return float((self.classes == self.examples.labels)[known].mean()) if known.any() else None

    def columns(self) -> dict[str, list[str] | list[float]]:
        """Return the columns `id`, `predicted_label`, `confidence` and, if known, `given_label`."""
        columns: dict[str, list[str] | list[float]] = {
            "id": list(self.examples.ids),
            "predicted_label": [self.names[k] for k in self.classes],
            "confidence": [round(float(p), 6) for p in self.confidence],
        }
        if self.examples.labels is not None:
            names = (*self.names, "")  # the last is for `NO_LABEL`
            columns["given_label"] = [names[k] for k in self.examples.labels]
        return columns


def predict(
    run: Run, request: Request, split: SplitChoice, *, workers: int = 2
) -> PredictedExamples:
    """Open the data and predict it with the run's model.

    A model of numbers gets only the columns of a table that it was trained on. Columns that the
    user does not name have the names they had when the run was trained. Probabilities that do not
    fit into memory are computed again when they are asked for.
    """
    scaling = run.preprocessing
    columns, fill, optional = None, None, frozenset[str]()
    if isinstance(scaling, Standardization) and scaling.columns is not None:
        columns, fill, optional = scaling.columns, scaling.fill, scaling.optional
    kinds = scaling.kinds if isinstance(scaling, TableEncoding) else None
    if isinstance(scaling, TableEncoding):
        columns, optional = tuple(kind.name for kind in scaling.kinds), scaling.optional
    named = _with_trained_columns(run, request)
    found = open_inputs(
        named,
        run.names,
        split=split,
        columns=columns,
        kinds=kinds,
        fill=fill,
        optional=optional,
    )
    examples = found.joined()

    def batches() -> Iterator[Floats]:
        for _, p in run.predict_batches(examples.inputs, workers=workers):
            yield p

    kept = list(batches()) if keeps_all(len(examples), len(run.names)) else None
    classes, confidence = np.zeros(len(examples), np.int64), np.zeros(len(examples), np.float32)
    done = 0
    for p in batches() if kept is None else kept:
        rows = slice(done, done := done + len(p))
        classes[rows], confidence[rows] = p.argmax(1), p.max(1)
    again = batches if kept is None else partial(iter, kept)
    return PredictedExamples(
        found.name, examples, run.names, classes, confidence, again, found.skipped, found.notes
    )


def _with_trained_columns(run: Run, request: Request) -> Request:
    """Return the request with the run's own column names, if the table has them.

    The user's own names take precedence.
    """
    path = Path(request.data)
    if not is_table(path) or not path.is_file():
        return request
    own = {column: getattr(request, column) for column in _COLUMNS}
    stored = run.config.get("ignore_column")
    ignored = stored if isinstance(stored, list) else []
    known = columns_there(
        path,
        [
            name
            for name in (*map(run.config.get, _COLUMNS), *ignored)
            if isinstance(name, str) and name not in (*own.values(), *request.ignore_column)
        ],
        request.sheet,
    )
    is_open = {column: name is None for column, name in own.items()}
    if not (is_open["text_column"] and is_open["path_column"]):
        is_open["text_column"] = is_open["path_column"] = False
    used: dict[str, Any] = {
        column: run.config.get(column) for column in _COLUMNS if is_open[column]
    }
    used = {column: name for column, name in used.items() if name in known}
    left = [name for name in known if name in ignored and name not in used.values()]
    return replace(request, **used, ignore_column=(*request.ignore_column, *left))


def write(predicted: PredictedExamples, out: Path) -> None:
    """Write a table, or an .npz with `ids`, `names`, `probabilities` and, if known, `labels`."""
    suffix = out.suffix.lower()
    if suffix == ".npz":
        _write_arrays(predicted, out)
    elif suffix == ".parquet":
        import pyarrow as pa

        from proselflc.auditing.examples import write_parquet

        write_parquet(pa.table(predicted.columns()), out)
    else:
        with whole_file(out) as file:
            text = table(predicted, "\t" if suffix == ".tsv" else ",")
            file.write(text.encode("utf-8", errors="surrogateescape"))


def _write_arrays(predicted: PredictedExamples, out: Path) -> None:
    """Write an .npz as `np.savez` does, with the probabilities batch by batch."""
    arrays: dict[str, npt.NDArray[Any]] = {
        "ids": np.array(predicted.examples.ids, dtype=np.str_),
        "names": np.array(predicted.names, dtype=np.str_),
    }
    if predicted.examples.labels is not None:
        arrays["labels"] = predicted.examples.labels
    shape = len(predicted.classes), len(predicted.names)
    size, free = 4 * shape[0] * shape[1], shutil.disk_usage(out.parent).free
    if size > free:
        raise InputError(
            f"the probabilities of {shape[0]:,} examples of {shape[1]:,} classes take "
            f"{gigabytes(size)}, and {out.parent} has {gigabytes(free)} left",
            field="out",
            fix="write a .csv or .parquet file, which holds only the likeliest class",
        )
    with whole_file(out) as file, zipfile.ZipFile(file, "w", allowZip64=True) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as stream:
                np.lib.format.write_array(stream, array, allow_pickle=False)
        with archive.open("probabilities.npy", "w", force_zip64=True) as stream:
            header = {"descr": "<f4", "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(stream, header)
            for p in predicted.probabilities():
                stream.write(np.ascontiguousarray(p, dtype="<f4").data)


def table(predicted: PredictedExamples, delimiter: str = ",") -> str:
    """Return the predictions as text with a header, safe for spreadsheets."""
    columns = predicted.columns()
    rows = zip(*columns.values(), strict=True)
    return "".join(format_row(cells, delimiter) for cells in (tuple(columns), *rows))
