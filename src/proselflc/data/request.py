"""What data is asked for, as options of the command line say it.

Nothing that is slow to import is, so that `--help` shows them at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from proselflc.options import Several

FROM_PYTHON = "given in Python"  # what config.toml says of data that no --data names
PARQUET = (".parquet", ".pq")
TABLES = (".csv", ".tsv", ".tab", *PARQUET)
SPREADSHEETS = (".xlsx", ".xlsm", ".xlsb", ".xls", ".ods")  # which are not read


@dataclass(frozen=True)
class Request:
    """Which data to open, and how to read it.

    Attributes:
        data: a name (see `proselflc datasets`), an image folder, a .csv, .tsv or .parquet table,
            or an .npz file.
        data_root: where named data sets live.
        labels: a file of labels to use instead of the data's own, or a run, whose corrected labels
            are meant; what a person has decided comes before what the run suggests.
        reviewed: of the labels of a run, follow what a person has decided and, unless
            --min-confidence says how sure they must be, no suggestions.
        min_confidence: of the labels of a run, follow a suggestion only if the run is at least so
            sure of it, from 0 to 1.
        label_column: the table's column of labels.
        text_column: the table's column of texts.
        path_column: the table's column of image paths.
        id_column: the table's column of ids.
        ignore_column: columns of the table that are not learned from; several, one after the
            other.
        features: precomputed embeddings (.npy or .npz) to use instead of the inputs, row for row.
        on_bad_image: what to do with an image that cannot be read.
        cache: a folder for faster copies of archives.
    """

    data: str = "digits"
    data_root: Path | None = None
    labels: Path | None = None
    reviewed: bool | None = None  # not False: a run that was begun without it can be resumed
    min_confidence: float | None = None
    label_column: str | None = None
    text_column: str | None = None
    path_column: str | None = None
    id_column: str | None = None
    ignore_column: Several = ()
    features: Path | None = None
    on_bad_image: Literal["error", "skip"] = "error"
    cache: Path | None = None

    def __post_init__(self) -> None:
        # From Python, a path is often a string and --data often a Path.
        object.__setattr__(self, "data", str(self.data))
        for name in ("data_root", "labels", "features", "cache"):
            value = getattr(self, name)
            object.__setattr__(self, name, None if value is None else Path(value))
        ignored = self.ignore_column
        ignored = (ignored,) if isinstance(ignored, str) else tuple(ignored)
        object.__setattr__(self, "ignore_column", ignored)


@dataclass(frozen=True)
class InputsRequest(Request):
    """Which data to ask a model about: there is no default, and features may stand alone."""

    data: str = ""
