"""`proselflc predict`: what a run's model says about any data, as a table or arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from proselflc.analysis.run import Predictions, Run
from proselflc.data import spreadsheet
from proselflc.data.examples import Examples, Wanted
from proselflc.data.opening import open_inputs
from proselflc.data.request import Request
from proselflc.data.writing import whole_file
from proselflc.errors import InputError

SUFFIXES = (".csv", ".tsv", ".parquet", ".npz")


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
            "predicted_label": self.predictions.labels,
            "confidence": [round(float(p), 6) for p in self.predictions.confidence],
        }
        if self.examples.labels is not None:
            columns["given_label"] = [names[k] for k in self.examples.labels]
        return columns


def judge(run: Run, request: Request, split: Wanted, *, workers: int = 2) -> Judged:
    """Open the data and have the run's model look at it."""
    examples = open_inputs(request, run.names, split=split)
    return Judged(examples, run.judge(examples.inputs, workers=workers))


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
