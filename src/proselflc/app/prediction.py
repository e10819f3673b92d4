"""`proselflc predict`: what a run's model says about any data, as a table or arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from proselflc.analysis.run import Predictions, Run
from proselflc.data import spreadsheet
from proselflc.data.examples import Examples, Wanted
from proselflc.data.opening import open_inputs
from proselflc.data.request import TABLES, Request
from proselflc.data.sources.table import columns_there
from proselflc.data.standardization import Standardization
from proselflc.data.writing import whole_file
from proselflc.errors import InputError

SUFFIXES = (".csv", ".tsv", ".parquet", ".npz")
_COLUMNS = ("label_column", "id_column", "text_column", "path_column")


@dataclass(frozen=True)
class Judged:
    """Examples and what the model says about them."""

    examples: Examples
    predictions: Predictions

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
    return Judged(examples, run.judge(examples.inputs, workers=workers))


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
        arrays = {
            "ids": np.array(judged.examples.ids, dtype=np.str_),
            "probabilities": judged.predictions.probabilities,
            "names": np.array(judged.predictions.names, dtype=np.str_),
        }
        if judged.examples.labels is not None:
            arrays["labels"] = judged.examples.labels
        with whole_file(out) as file:
            np.savez(file, allow_pickle=False, **arrays)
    elif suffix == ".parquet":
        import pyarrow as pa

        from proselflc.analysis.examples import write_parquet

        write_parquet(pa.table(judged.columns()), out)
    else:
        with whole_file(out) as file:
            text = table(judged, "\t" if suffix == ".tsv" else ",")
            file.write(text.encode("utf-8", errors="surrogateescape"))


def table(judged: Judged, delimiter: str = ",") -> str:
    """The predictions as text with a heading, neutralised for spreadsheets."""
    columns = judged.columns()
    rows = zip(*columns.values(), strict=True)
    return "".join(spreadsheet.line(cells, delimiter) for cells in (tuple(columns), *rows))
