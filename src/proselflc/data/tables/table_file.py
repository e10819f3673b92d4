"""A table as its file has it: named columns of cells, from any format that is read."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from proselflc.data.request import (
    EXCEL,
    FEATHER,
    JSON_LINES,
    PARQUET,
    TABLES,
    is_table,
    table_suffix,
)
from proselflc.data.tables.cells import one_line, parse_numbers
from proselflc.data.tables.encodings import NAMES, find_encoding, is_packed, open_bytes, open_text
from proselflc.data.tables.feather import open_feather
from proselflc.data.tables.loaded import (
    Loaded,
    open_excel,
    open_json_lines,
    open_packed_parquet,
)
from proselflc.data.tables.parquet import Parquet, open_parquet
from proselflc.errors import InputError
from proselflc.files.regular import is_regular
from proselflc.wording import option

if TYPE_CHECKING:
    import pyarrow as pa

_DELIMITERS = {".csv": ",;\t|", ".tsv": "\t", ".tab": "\t"}
_SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
_FEW = 10_000  # distinct cells up to which equal ones are one object
LONGEST_CELL = 1 << 24  # bytes
_ROWS = 1 << 15  # rows that are Python strings at a time
_CHARACTERS = 1 << 28  # and their total length, about; an Arrow array of strings holds 2 GiB


@dataclass(frozen=True)
class Delimited:
    """A CSV or TSV file, whose cells are held by Arrow."""

    path: Path
    columns: tuple[str, ...]  # names
    cells: tuple[pa.ChunkedArray, ...]  # strings by column, with white space as in the file
    delimiter: str
    has_quotes: bool  # whether a quotation mark encloses a cell, or is an ordinary character
    encoding: str = "utf-8-sig"

    def __len__(self) -> int:
        return len(self.cells[0])

    def texts(self, column: str) -> list[str]:
        """Return the cells without surrounding white space; "" if empty."""
        known: dict[str, str] = {}  # so that the cells of a few classes are a few objects
        found: list[str] = []
        for chunk in self.cells[self.columns.index(column)].chunks:
            cells = (cell.strip() for cell in chunk.to_pylist())
            if len(known) < _FEW:
                found += [known.setdefault(cell, cell) for cell in cells]
            else:
                found += cells
        return found

    def numbers(self, columns: Sequence[str]) -> npt.NDArray[np.float64]:
        """Return the cells of some columns as numbers [n, D]."""
        import pyarrow as pa
        import pyarrow.compute as pc

        values = np.empty((len(self), len(columns)))
        for k, name in enumerate(columns):
            cells = self.cells[self.columns.index(name)]
            try:
                values[:, k] = pc.utf8_trim_whitespace(cells).cast(pa.float64()).to_numpy()
            except pa.ArrowInvalid:  # Python also reads forms such as 1_000
                values[:, k] = parse_numbers(self.path, name, self.texts(name))
        return values

    def arrow(self, columns: Sequence[str]) -> list[pa.ChunkedArray]:
        """Return some columns as Arrow has them."""
        return [self.cells[self.columns.index(name)] for name in columns]

    @property
    def form(self) -> str:
        """Return how the file is written."""
        name = _SEPARATORS[self.delimiter]
        quotes = "" if self.has_quotes else ", quotation marks are ordinary characters"
        packed = " in gzip" if is_packed(self.path) else ""
        return f"separated by {name}, {NAMES[self.encoding]}{quotes}{packed}"

    @property
    def finding(self) -> str:
        """Return what was found out about the file; empty for the usual separator in UTF-8."""
        usual = _DELIMITERS[table_suffix(self.path)][0]
        is_usual = self.delimiter == usual and self.encoding == "utf-8-sig" and self.has_quotes
        return "" if is_usual else self.form

    @property
    def notes(self) -> tuple[str, ...]:
        """Return sentences about cells that could not be read: none."""
        return ()

    def where(self, row: int) -> str:
        """Return the line on which a row begins; this reads the file again.

        It returns the number of the row instead if the file has changed or is gone meanwhile.
        """
        try:
            for k, (line, _) in enumerate(
                _csv_rows(self.path, self.delimiter, self.has_quotes, self.encoding)
            ):
                if k == row + 1:  # after the header
                    return f"line {line}"
        except (OSError, InputError):
            pass
        return f"row {row + 1}"


Table: TypeAlias = Delimited | Parquet | Loaded


def open_table(path: Path, sheet: str | None = None, wanted: Collection[str] = ()) -> Table:
    """Return the table in a file, with its column names checked.

    Args:
        path: CSV, TSV, Parquet, Feather, JSON lines or Excel by its suffix, maybe with .gz.
        sheet: the sheet of an Excel file that has several.
        wanted: names of columns; a sheet that has them is suggested if none is named.
    """
    if not is_table(path):
        raise InputError(
            f"{path} is not a table by its suffix: expected one of {', '.join(TABLES)}"
        )
    if not is_regular(path):
        raise InputError(
            f"the table {path} does not exist",
            fix="give the path of a CSV, TSV, Parquet, Feather, JSON lines or Excel file",
        )
    suffix = table_suffix(path)
    if sheet is not None and suffix not in EXCEL:
        raise InputError(
            f"{option('sheet', sheet)} names a sheet, but {path} is not an Excel file",
            field="sheet",
            fix="leave it out",
        )
    table = open_excel(path, sheet, wanted) if suffix in EXCEL else _open(path, suffix)
    twice = next((name for name, count in Counter(table.columns).items() if count > 1), None)
    if twice is not None:
        places = [k + 1 for k, name in enumerate(table.columns) if name == twice]
        raise InputError(
            f'{path} has two columns named "{twice}", the columns {places[0]} and {places[1]}',
            fix="rename one of them",
        )
    return table


def _open(path: Path, suffix: str) -> Table:
    if suffix in PARQUET:
        return open_packed_parquet(path) if is_packed(path) else open_parquet(path)
    if suffix in FEATHER:
        return open_feather(path)
    if suffix in JSON_LINES:
        return open_json_lines(path)
    return _open_delimited(path, suffix)


def _open_delimited(path: Path, suffix: str) -> Delimited:
    encoding, has_marks = find_encoding(path)
    with open_text(path, encoding) as file:
        first = next((line.rstrip("\r\n") for line in file if line.strip("\r\n")), "")
    delimiters = _DELIMITERS[suffix]
    delimiter = next((d for d in delimiters if _divides(first, d)), delimiters[0])
    read = partial(_read_delimited, path, delimiter, encoding)
    try:
        table = read(has_quotes=True, has_marks=has_marks)
    except InputError:
        # Tabs need no quotes, so a quotation mark in a TSV may be an ordinary character.
        if delimiter != "\t" or not has_marks:
            raise
        return read(has_quotes=False, has_marks=True)
    if delimiter == "\t" and has_marks and _spans_cells(table):
        # If the file is also a valid table without quotes, the quotation marks that enclose tabs
        # and line breaks are ordinary characters of different rows.
        try:
            return read(has_quotes=False, has_marks=True)
        except InputError:
            return table
    return table


def _divides(first: str, delimiter: str) -> bool:
    """Return whether this delimiter divides the first line into several columns."""
    try:
        return any(len(row) > 1 for row in csv.reader([first], delimiter=delimiter))
    except csv.Error:
        return False


def _spans_cells(table: Delimited) -> bool:
    import pyarrow.compute as pc

    return any(pc.any(pc.match_substring_regex(column, "[\t\n]")).as_py() for column in table.cells)


def _read_delimited(
    path: Path, delimiter: str, encoding: str, *, has_quotes: bool, has_marks: bool
) -> Delimited:
    import pyarrow.compute as pc

    columns = None
    if not (has_quotes and has_marks):
        columns = _read_with_arrow(path, delimiter, encoding)
    if columns is None:
        columns = _read_with_csv(path, delimiter, has_quotes, encoding)
    header, cells = columns
    names = [one_line(name.strip()) for name in header]
    kept = [
        k
        for k, name in enumerate(names)
        if name or k == 0 or pc.any(pc.not_equal(pc.utf8_trim_whitespace(cells[k]), "")).as_py()
    ]
    for k in kept[1:]:
        if not names[k]:
            raise InputError(f"column {k + 1} of {path} has cells but no name: name or remove it")
    return Delimited(
        path,
        tuple(names[k] for k in kept),
        tuple(cells[k] for k in kept),
        delimiter,
        has_quotes,
        encoding,
    )


def _read_with_arrow(
    path: Path, delimiter: str, encoding: str
) -> tuple[list[str], list[pa.ChunkedArray]] | None:
    """Return the header and the columns of a file without quotes.

    None if Arrow refuses the file or could read it in another way than `csv`, which then decides.
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import csv as arrow_csv

    with open_text(path, encoding) as file:
        first = next((line.rstrip("\r\n") for line in file if line.strip("\r\n")), "")
    width = first.count(delimiter) + 1
    if width == 1:
        return None  # empty lines are cells
    try:
        with open_bytes(path) as stream:
            table = arrow_csv.read_csv(
                stream,
                read_options=arrow_csv.ReadOptions(
                    autogenerate_column_names=True,
                    encoding="utf8" if encoding == "utf-8-sig" else encoding,
                ),
                parse_options=arrow_csv.ParseOptions(delimiter=delimiter, quote_char=False),
                convert_options=arrow_csv.ConvertOptions(
                    column_types={f"f{k}": pa.string() for k in range(width)}
                ),
            )
    except pa.ArrowInvalid:
        return None
    if len(table.columns) != width or any(
        pc.max(pc.binary_length(column)).as_py() > LONGEST_CELL for column in table.columns
    ):
        return None
    return [column[0].as_py() for column in table.columns], table.slice(1).columns


def _read_with_csv(
    path: Path, delimiter: str, has_quotes: bool, encoding: str
) -> tuple[list[str], list[pa.ChunkedArray]]:
    """Return the header and the columns; few rows are Python strings at any time."""
    import pyarrow as pa

    rows = _csv_rows(path, delimiter, has_quotes, encoding)
    _, header = next(rows)
    chunks: list[list[pa.Array]] = [[] for _ in header]
    block: list[list[str]] = []
    length = 0  # of the texts in the block, in characters

    def flush() -> None:
        for k, cells in enumerate(zip(*block, strict=True)):
            chunks[k].append(pa.array(cells, pa.string()))
        block.clear()

    for _, row in rows:
        block.append(row)
        length += sum(map(len, row))
        if len(block) == _ROWS or length > _CHARACTERS:
            flush()
            length = 0
    flush()
    return header, [pa.chunked_array(column, pa.string()) for column in chunks]


def _csv_rows(
    path: Path, delimiter: str, has_quotes: bool, encoding: str
) -> Iterator[tuple[int, list[str]]]:
    """Yield the line on which each row begins and its cells, the header first."""
    quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if has_quotes else csv.QUOTE_NONE
    width = 0
    blank: int | None = None  # an empty line that rows may follow
    begin = 1
    limit = csv.field_size_limit(LONGEST_CELL)
    try:
        with open_text(path, encoding) as file:
            reader = csv.reader(file, delimiter=delimiter, quoting=quoting, strict=True)
            for row in reader:
                line, begin = begin, reader.line_num + 1
                if not row:
                    blank = blank or (line if width else None)
                elif not width:
                    width = len(row)
                    yield line, row
                elif len(row) != width:
                    raise InputError(
                        f"line {line} of {path} has {len(row)} cell{'s' * (len(row) != 1)}, but "
                        f"the first line names {width} column{'s' * (width != 1)}: fix that line"
                    )
                elif blank is not None and width == 1:
                    raise InputError(
                        f"line {blank} of {path} is empty, but rows follow: fill it in or remove it"
                    )
                else:
                    yield line, row
    except csv.Error as error:
        raise InputError(
            f"line {begin} of {path} cannot be read ({error}): look for a quotation mark that is "
            "not closed, or a cell that is too long"
        ) from None
    finally:
        csv.field_size_limit(limit)
    if not width:
        raise InputError(f"{path} is empty: expected a first line with the names of the columns")
