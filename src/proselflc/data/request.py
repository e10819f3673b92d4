"""The options that choose data and say how to read it.

Nothing slow is imported here, so that `--help` shows them at once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from proselflc.data.corrections import Corrections
from proselflc.options import LabelColumn, Required, Several

FROM_PYTHON = "given in Python"  # what config.toml says of data that no --data names
PARQUET = (".parquet", ".pq")
FEATHER = (".feather", ".arrow", ".ipc")
JSON_LINES = (".jsonl", ".ndjson")
EXCEL = (".xlsx", ".xlsm")
DELIMITED = (".csv", ".tsv", ".tab")
TABLES = (*DELIMITED, *PARQUET, *FEATHER, *JSON_LINES, *EXCEL)
KINDS_ASKED = ("categorical", "numeric", "text")  # options that name columns of a kind
SPREADSHEETS = (".xlsb", ".xls", ".ods")  # which are not read


XLSX = ".xlsx"
PACKED = (*DELIMITED, *JSON_LINES)  # formats that are written with gzip too
COPIES = (*PACKED, *PARQUET, *FEATHER, XLSX, *(f"{suffix}.gz" for suffix in PACKED))


def table_suffix(path: Path | str) -> str:
    """Return the suffix of a file in lower case, without .gz after it.

    >>> table_suffix("a/Patients.CSV.gz"), table_suffix("photos.zip")
    ('.csv', '.zip')
    """
    path = Path(path)
    if path.suffix.lower() == ".gz":
        path = path.with_suffix("")
    return path.suffix.lower()


def is_table(path: Path | str) -> bool:
    """Return whether a file is a table by its name."""
    return table_suffix(path) in TABLES


@dataclass(frozen=True)
class Request:
    """Which data to open, and how to read it.

    Attributes:
        data: a named data set (`proselflc datasets` lists them), an image folder, a table (.csv,
            .tsv, .parquet, .feather, .jsonl or .xlsx, each also with .gz; - for standard input), or
            an .npz file.
        data_root: folder that holds the named data sets.
        labels: labels to use instead of the data's own: a file, or a run directory, which stands
            for the run's corrected labels: those that its audit would change without asking a
            person. Review decisions take precedence.
        suspects: change all suspects of the run given by --labels; more of these changes are wrong.
        reviewed: use only the reviewed labels of the run given by --labels; add --min-confidence to
            use confident suggestions as well.
        min_confidence: change the suspects of the run given by --labels whose suggested label has
            at least this confidence, from 0 to 1.
        force: use the labels of the run given by --labels although its audit corrects none.
        fill: use the suggested labels of the run given by --labels for its rows without a label,
            with --min-confidence those that have this confidence.
        label_column: column of the table that holds the labels.
        text_column: column of the table that holds texts.
        path_column: column of the table that holds image paths.
        id_column: column of the table that holds ids.
        ignore_column: columns of the table to ignore; separate several names by spaces.
        categorical: columns of the table that hold categories, whatever they look like.
        numeric: columns of the table that hold numbers; other cells in them are missing.
        text: columns of the table that hold free text, to be used beside the other columns.
        sheet: sheet of a spreadsheet, by its name (default: the only one).
        unlabelled: text in the label column, or name of the class folder, that means that there is
            no label; instead of NA, NaN, null, None and ? in a table, where an empty cell always
            means it. Examples without a label are predicted, but neither learned nor judged.
        features: precomputed embeddings (.npy or .npz, one row per example) to use as inputs.
        on_bad_image: what to do with an image that cannot be read: stop with an error, or skip it.
        cache: folder for copies of archives that are faster to read.
    """

    data: str = "digits"
    data_root: Path | None = None
    labels: Path | None = None
    reviewed: bool | None = None  # not False: a run that was begun without it can be resumed
    min_confidence: float | None = None
    suspects: bool | None = None
    force: bool | None = None
    fill: bool | None = None
    label_column: LabelColumn = None
    text_column: str | None = None
    path_column: str | None = None
    id_column: str | None = None
    ignore_column: Several = ()
    categorical: Several = ()
    numeric: Several = ()
    text: Several = ()
    sheet: str | None = None
    unlabelled: str | None = None
    features: Path | None = None
    on_bad_image: Literal["error", "skip"] = "error"
    cache: Path | None = None

    def __post_init__(self) -> None:
        # From Python, a path is often a string and --data often a Path.
        object.__setattr__(self, "data", str(self.data))
        for name in ("data_root", "labels", "features", "cache"):
            value = getattr(self, name)
            object.__setattr__(self, name, None if value is None else Path(value))
        for name in ("ignore_column", *KINDS_ASKED):
            value = getattr(self, name)
            several = (value,) if isinstance(value, str) else tuple(value)
            object.__setattr__(self, name, several)

    @property
    def with_own_labels(self) -> Request:
        """Return the request for the data with its own labels."""
        return replace(
            self,
            labels=None,
            suspects=None,
            reviewed=None,
            min_confidence=None,
            force=None,
            fill=None,
        )

    @property
    def corrections(self) -> Corrections:
        """Return which suggestions are followed if the labels are those of a run."""
        return Corrections(
            bool(self.suspects),
            self.min_confidence,
            bool(self.reviewed),
            bool(self.force),
            bool(self.fill),
        )


@dataclass(frozen=True)
class InputsRequest(Request):
    """Which data to predict: it has no default, and features may be given alone."""

    data: Required = ""
