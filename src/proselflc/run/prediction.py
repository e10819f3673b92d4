"""`proselflc predict`: what a run's model says about any data, as a table or arrays."""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from proselflc.data.dataset import Floats, Inputs, Ints
from proselflc.data.examples import Examples, Wanted
from proselflc.data.memory_budget import gigabytes, keeps_all
from proselflc.data.opening import open_inputs
from proselflc.data.request import TABLES, Request
from proselflc.data.standardization import Standardization
from proselflc.data.tables import spreadsheet
from proselflc.data.tables.table import columns_there
from proselflc.errors import InputError
from proselflc.files.whole import whole_file
from proselflc.run.reader import Predictions, Run

SUFFIXES = (".csv", ".tsv", ".parquet", ".npz")
_COLUMNS = ("label_column", "id_column", "text_column", "path_column")


@dataclass(frozen=True)
class Likeliest:
    """What a model says about n examples, in short.

    Attributes:
        classes: [n] the likeliest class id of each example.
        confidence: [n] its probability.
        names: C class names.
        pieces: asks the model again, for probabilities [N, C] in the order of the examples.
    """

    classes: Ints
    confidence: Floats
    names: tuple[str, ...]
    pieces: Callable[[], Iterator[Floats]]

    @property
    def class_names(self) -> list[str]:
        """Return the names of the likeliest classes."""
        return [self.names[k] for k in self.classes]


@dataclass(frozen=True)
class Judged:
    """Examples and what the model says about them."""

    examples: Examples
    predictions: Predictions | Likeliest

    @property
    def accuracy(self) -> float | None:
        """The share of labels that the model agrees with; None where there are none."""
        if self.examples.labels is None or len(self.examples) == 0:
            return None
        return float((self.predictions.classes == self.examples.labels).mean())

    def columns(self) -> dict[str, list[str] | list[float]]:
        """`id`, `predicted_label`, `confidence`, and `given_label` where there is one."""
        names = self.predictions.names
        columns: dict[str, list[str] | list[float]] = {
            "id": list(self.examples.ids),
            "predicted_label": self.predictions.class_names,
            "confidence": [round(float(p), 6) for p in self.predictions.confidence],
        }
        if self.examples.labels is not None:
            columns["given_label"] = [names[k] for k in self.examples.labels]
        return columns


def judge(run: Run, request: Request, split: Wanted, *, workers: int = 2) -> Judged:
    """Open the data and have the run's model look at it.

    Of a table, a model of numbers gets the columns that it was made for and no others. Those that
    the user does not name are called what they were when the run was trained.
    """
    scaling = run.preprocessing
    columns = scaling.columns if isinstance(scaling, Standardization) else None
    asked = _named_as_trained(run, request)
    examples = open_inputs(asked, run.names, split=split, columns=columns)
    if keeps_all(len(examples), len(run.names)):
        return Judged(examples, run.judge(examples.inputs, workers=workers))
    return Judged(examples, _likeliest(run, examples.inputs, workers))


def _likeliest(run: Run, inputs: Inputs, workers: int) -> Likeliest:
    """Return the likeliest classes, without a number for every example and class."""
    classes, confidence = np.zeros(len(inputs), np.int64), np.zeros(len(inputs), np.float32)
    for rows, p in run.judged(inputs, workers=workers):
        classes[rows], confidence[rows] = p.argmax(1), p.max(1)

    def pieces() -> Iterator[Floats]:
        for _, p in run.judged(inputs, workers=workers):
            yield p

    return Likeliest(classes, confidence, run.names, pieces)


def _named_as_trained(run: Run, request: Request) -> Request:
    """The request with the names of columns that the run was told, where the table has them.

    What the user says about a column comes first.
    """
    path = Path(request.data)
    if path.suffix.lower() not in TABLES or not path.is_file():
        return request
    asked = {option: getattr(request, option) for option in _COLUMNS}
    kept = run.config.get("ignore_column")
    ignored = kept if isinstance(kept, list) else []
    known = columns_there(
        path,
        [
            name
            for name in (*map(run.config.get, _COLUMNS), *ignored)
            if isinstance(name, str) and name not in (*asked.values(), *request.ignore_column)
        ],
    )
    is_open = {option: name is None for option, name in asked.items()}
    if not (is_open["text_column"] and is_open["path_column"]):
        is_open["text_column"] = is_open["path_column"] = False
    told: dict[str, Any] = {one: run.config.get(one) for one in _COLUMNS if is_open[one]}
    told = {option: name for option, name in told.items() if name in known}
    left = [name for name in known if name in ignored and name not in told.values()]
    return replace(request, **told, ignore_column=(*request.ignore_column, *left))


def check_out(
    out: Path, overwrite: bool, suffixes: Sequence[str] = SUFFIXES, option: str = "--out"
) -> None:
    """Refuse a file that cannot be written, before anything is computed."""
    if out.suffix.lower() not in suffixes:
        raise InputError(f'{option} must end in {", ".join(suffixes)}, got "{out.name}"')
    if not out.parent.is_dir():
        raise InputError(f"there is no folder {out.parent} to write {out.name}: make it")
    if out.exists() and not overwrite:
        raise InputError(f"{out} exists: choose another name or pass --overwrite")


def write(judged: Judged, out: Path) -> None:
    """Write a table, or an .npz with `ids`, `probabilities`, `names` and `labels` if there are."""
    suffix = out.suffix.lower()
    if suffix == ".npz":
        said = judged.predictions
        arrays: dict[str, npt.NDArray[Any]] = {"ids": np.array(judged.examples.ids, dtype=np.str_)}
        if not isinstance(said, Likeliest):
            arrays["probabilities"] = said.probabilities
        arrays["names"] = np.array(said.names, dtype=np.str_)
        if judged.examples.labels is not None:
            arrays["labels"] = judged.examples.labels
        if isinstance(said, Likeliest):
            _write_pieces(said, arrays, out)
            return
        with whole_file(out) as file:
            np.savez(file, allow_pickle=False, **arrays)
    elif suffix == ".parquet":
        import pyarrow as pa

        from proselflc.auditing.examples import write_parquet

        write_parquet(pa.table(judged.columns()), out)
    else:
        with whole_file(out) as file:
            text = table(judged, "\t" if suffix == ".tsv" else ",")
            file.write(text.encode("utf-8", errors="surrogateescape"))


def _write_pieces(
    predictions: Likeliest, arrays: Mapping[str, npt.NDArray[Any]], out: Path
) -> None:
    """Write an .npz as `np.savez` does, its probabilities one piece after the other.

    Raises:
        InputError: there is not enough room on the disk.
    """
    shape = len(predictions.classes), len(predictions.names)
    size, free = 4 * shape[0] * shape[1], shutil.disk_usage(out.parent).free
    if size > free:
        raise InputError(
            f"the probabilities of {shape[0]:,} examples of {shape[1]:,} classes take "
            f"{gigabytes(size)}, and {out.parent} has {gigabytes(free)} left: write a .csv or "
            ".parquet file, which has the likeliest class alone"
        )
    with whole_file(out) as file, zipfile.ZipFile(file, "w", allowZip64=True) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as stream:
                np.lib.format.write_array(stream, array, allow_pickle=False)
        with archive.open("probabilities.npy", "w", force_zip64=True) as stream:
            header = {"descr": "<f4", "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(stream, header)
            for piece in predictions.pieces():
                stream.write(np.ascontiguousarray(piece, dtype="<f4").data)


def table(judged: Judged, delimiter: str = ",") -> str:
    """The predictions as text with a heading, neutralised for spreadsheets."""
    columns = judged.columns()
    rows = zip(*columns.values(), strict=True)
    return "".join(spreadsheet.line(cells, delimiter) for cells in (tuple(columns), *rows))
