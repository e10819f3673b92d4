"""Tables that are read whole: JSON lines, Excel, and compressed Parquet."""

from __future__ import annotations

import datetime
import io
import tempfile
import zipfile
from array import array
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import numpy.typing as npt

from proselflc.data.memory_budget import require
from proselflc.data.tables.cells import parse_numbers, short
from proselflc.data.tables.encodings import find_encoding, open_bytes, open_text
from proselflc.data.tables.parquet import arrow_numbers, arrow_texts, open_parquet
from proselflc.errors import InputError
from proselflc.wording import option

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS = 1 << 15  # rows that are Python objects at a time
_MOST_COLUMNS = 100_000
_MOST_ROWS = 1_048_576  # of a sheet
_HEADER_ROWS = 100  # of a sheet, in which its names of columns are looked for
_CELL = 8  # bytes of an empty cell in memory
_INSTEAD = "use fewer rows or columns"
_UNPACKED, _RATIO = 1 << 28, 100  # bytes of a spreadsheet's parts: any, and per byte of its file


@dataclass(frozen=True)
class Loaded:
    """A table in memory."""

    path: Path
    columns: tuple[str, ...]
    table: pa.Table
    form: str  # how the file is written
    unit: str = "row"  # of positions in messages
    first: int = 1  # position of the first row
    notes: tuple[str, ...] = ()  # sentences about cells that could not be read
    places: Sequence[int] = ()  # position of each row, if they do not follow each other
    sheet: str = ""  # of an Excel file

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def texts(self, column: str) -> list[str]:
        """Return the cells as text; "" if empty."""
        return arrow_texts(self.path, column, self.arrow([column])[0])

    def numbers(self, columns: Sequence[str]) -> npt.NDArray[np.float64]:
        """Return the cells of some columns as numbers [n, D]; NaN if empty."""
        values = np.empty((len(self), len(columns)))
        for k, (name, cells) in enumerate(zip(columns, self.arrow(columns), strict=True)):
            found = arrow_numbers(self.path, cells)
            if found is None:
                found = parse_numbers(self.path, name, arrow_texts(self.path, name, cells))
            values[:, k] = found
        return values

    def arrow(self, columns: Sequence[str]) -> list[pa.ChunkedArray]:
        """Return some columns as Arrow has them."""
        return [self.table.column(self.columns.index(name)) for name in columns]

    @property
    def finding(self) -> str:
        """Return what was found out about the file; empty where its name says it all."""
        return self.form.partition(" ")[2] if self.form.startswith("Excel, ") else ""

    def where(self, row: int) -> str:
        """Return the position of a row in its file."""
        return f"{self.unit} {self.places[row] if self.places else row + self.first}"


def open_packed_parquet(path: Path) -> Loaded:
    """Return the table in a Parquet file that is compressed as a whole."""
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder) / "table.parquet"
        with open_bytes(path) as stream, open(plain, "wb") as file:
            for block in iter(partial(stream.read, 1 << 20), b""):
                file.write(block)
        found = open_parquet(plain)
        return Loaded(path, found.columns, found.read(found.columns), "Parquet in gzip")


def open_json_lines(path: Path) -> Loaded:
    """Return the table in a file with one JSON object per line; an absent key is a missing cell."""
    encoding, _ = find_encoding(path)
    header: dict[str, int] = {}
    blocks = _Blocks(path)
    rows: list[dict[int, str | None]] = []
    places = array("q")
    with open_text(path, encoding) as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            rows.append(_json_row(path, number, line, header))
            places.append(number)
            if len(rows) == _ROWS:
                blocks.add(rows, len(header))
                rows = []
    blocks.add(rows, len(header))
    if not header:
        raise InputError(f"{path} holds no cells: expected one JSON object per line")
    found = blocks.table(tuple(header))
    return Loaded(path, tuple(header), found, "JSON lines", "line", places=places)


def _json_row(path: Path, number: int, line: str, header: dict[str, int]) -> dict[int, str | None]:
    try:
        found = msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InputError(
            f"line {number} of {path} is not JSON ({error}): write one object per line"
        ) from None
    if not isinstance(found, dict):
        raise InputError(
            f"line {number} of {path} holds a {type(found).__name__}, but one JSON object per line "
            "is expected"
        )
    for key in found:
        header.setdefault(key.strip(), len(header))
    if len(header) > _MOST_COLUMNS:
        raise InputError(f"{path} has more than {_MOST_COLUMNS:,} keys: use fewer columns")
    row: dict[int, str | None] = {}
    for key, value in found.items():
        if isinstance(value, dict | list):
            raise InputError(
                f'the key "{short(key)}" in line {number} of {path} holds a '
                f"{type(value).__name__}, but one text or number per row is expected",
                fix="split it into several keys",
            )
        place = header[key.strip()]
        if place in row:
            raise InputError(
                f'line {number} of {path} has two keys "{short(key.strip())}" that differ only in '
                "white space",
                fix="rename one of them",
            )
        row[place] = _cell(value)
    return row


def sheet_names(path: Path) -> list[str]:
    """Return the names of the sheets of an Excel file."""
    book, _ = _open_book(path)
    return [page.title for page in book.worksheets]


def _open_book(path: Path) -> tuple[Any, io.BytesIO]:
    """Return an Excel file opened with openpyxl, and its bytes."""
    try:
        import openpyxl
    except ImportError:
        raise InputError(
            f"reading {path} needs openpyxl, which is not installed",
            fix="pip install 'proselflc[excel]', or save the sheet as CSV UTF-8 and give that file",
        ) from None
    try:
        with open_bytes(path) as stream:
            content = io.BytesIO(stream.read())
        _check_parts(path, content)
        book = openpyxl.load_workbook(content, read_only=True, data_only=True, keep_links=False)
    except InputError:
        raise
    except Exception as error:
        raise _damaged(path, error) from None
    return book, content


def open_excel(path: Path, sheet: str | None, wanted: Collection[str] = ()) -> Loaded:
    """Return a sheet of an Excel file; of a formula, the value that was last computed.

    If there are several, the error suggests the one with most of the wanted columns.
    """
    book, content = _open_book(path)
    names = [page.title for page in book.worksheets]
    if sheet is None and len(names) != 1:
        raise InputError(
            f"{path} has the sheets {', '.join(map(short, names[:20]))}",
            field="sheet",
            fix=f"choose one with {option('sheet', _likeliest(path, book, wanted))}",
        )
    if sheet is not None and sheet not in names:
        raise InputError(
            f'{path} has no sheet "{short(sheet)}", only {", ".join(map(short, names[:20]))}',
            field="sheet",
            fix="choose one of them",
        )
    page = next(page for page in book.worksheets if sheet in (None, page.title))
    try:
        formulas = None
        if _has_formulas(content):
            import openpyxl

            both = openpyxl.load_workbook(content, read_only=True, keep_links=False)
            formulas = both[page.title]
        return _of_sheet(path, page, formulas)
    except InputError:
        raise
    except Exception as error:
        raise _damaged(path, error) from None


def _likeliest(path: Path, book: Any, wanted: Collection[str]) -> str | None:
    """Return the name of the sheet with most of the wanted columns, and of most columns."""
    lower = {name.strip().lower() for name in wanted}

    def found(page: Any) -> tuple[int, int]:
        page.reset_dimensions()
        rows = islice(page.iter_rows(values_only=True), _HEADER_ROWS)
        header = next((row for row in rows if any(row)), ())
        names = {str(cell).strip().lower() for cell in header if cell is not None}
        return len(lower & names), len(names)

    try:
        best = max(book.worksheets, key=found, default=None)
    except Exception as error:
        raise _damaged(path, error) from None
    return None if best is None else str(best.title)


def _has_formulas(content: io.BytesIO) -> bool:
    """Return whether a sheet of an Excel file has formulas."""
    with zipfile.ZipFile(content) as archive:
        for part in archive.namelist():
            if part.startswith("xl/worksheets/"):
                with archive.open(part) as stream:
                    before = b""
                    for block in iter(partial(stream.read, 1 << 20), b""):
                        if b"<f>" in before + block or b"<f " in before + block:
                            return True
                        before = block[-2:]
    return False


class _Formulas:
    """Counts the formulas of a sheet that no program has computed, so that they have no value."""

    def __init__(self, page: Any | None) -> None:
        if page is not None:
            page.reset_dimensions()
        self._rows = iter(()) if page is None else page.iter_rows()
        self.count, self.first = 0, ""

    def look(self, values: Sequence[object]) -> None:
        """Compare the next row with its values."""
        for value, cell in zip(values, next(self._rows, ()), strict=False):
            if value is None and cell.data_type == "f":
                self.first = self.first or str(cell.coordinate)
                self.count += 1

    @property
    def notes(self) -> tuple[str, ...]:
        """Return a sentence about these formulas, or nothing."""
        if not self.count:
            return ()
        what = "1 formula has no computed value and counts as missing, in cell "
        if self.count > 1:
            what = f"{self.count:,} formulas have no computed value and count as missing, the "
            what += "first in cell "
        return (f"{what}{self.first}; to use them, open the file in a spreadsheet and save it",)


def _of_sheet(path: Path, page: Any, formula_page: Any | None = None) -> Loaded:
    page.reset_dimensions()  # what a file claims about its size may be anything
    formulas = _Formulas(formula_page)
    header: list[str] = []
    first = 0
    blocks = _Blocks(path)
    rows: list[dict[int, str | None]] = []
    places = array("q")
    for number, cells in enumerate(page.iter_rows(values_only=True), 1):
        if number > _MOST_ROWS:
            raise InputError(
                f"{path} has a row beyond {_MOST_ROWS:,}, the last one of a sheet: save it again "
                "as .xlsx"
            )
        formulas.look(cells)
        row = [_cell(cell) for cell in cells]
        while row and row[-1] in (None, ""):
            row.pop()
        if not header:
            if row:
                header, first = [(name or "").strip() for name in row], number + 1
                if len(header) > _MOST_COLUMNS:
                    raise InputError(f"{path} has more than {_MOST_COLUMNS:,} columns")
            continue
        if not row:
            continue
        if len(row) > len(header):
            raise InputError(
                f"row {number} of {path} has {len(row)} cells, but row {first - 1} names "
                f"{len(header)} column{'s' * (len(header) != 1)}: name or remove them"
            )
        rows.append(dict(enumerate(row)))
        places.append(number)
        if len(rows) == _ROWS:
            blocks.add(rows, len(header))
            rows = []
    if not header:
        raise InputError(
            f'the sheet "{short(page.title)}" of {path} is empty: expected a first row with the '
            "names of the columns"
        )
    blocks.add(rows, len(header))
    for k, name in enumerate(header):
        if not name:
            raise InputError(f"column {k + 1} of {path} has cells but no name: name or remove it")
    form = f'Excel, sheet "{short(page.title)}"'
    found = blocks.table(tuple(header))
    notes = formulas.notes
    return Loaded(path, tuple(header), found, form, "row", first, notes, places, page.title)


def sheet_rows(path: Path, sheet: str) -> Iterator[tuple[Any, ...]]:
    """Yield the values of the rows of a sheet that are not empty, its heading first."""
    book, _ = _open_book(path)
    page = book[sheet]
    page.reset_dimensions()
    for row in page.iter_rows(values_only=True):
        if any(value not in (None, "") for value in row):
            yield row


def _check_parts(path: Path, content: io.BytesIO) -> None:
    """Refuse a spreadsheet that unpacks to far more than its size, before it is unpacked."""
    size = content.getbuffer().nbytes
    with zipfile.ZipFile(content) as archive:
        parts = archive.infolist()
        total = sum(part.file_size for part in parts)
    if total > max(_UNPACKED, _RATIO * size) or len(parts) > 10_000:
        raise InputError(
            f"{path} has {size:,} bytes and unpacks to {total:,}, more than {_RATIO} times as many",
            fix="if these are your data, save the sheet as CSV UTF-8",
        )
    content.seek(0)


def _damaged(path: Path, error: Exception) -> InputError:
    words = " ".join(str(error).split())[:200] or type(error).__name__
    return InputError(f"cannot read the Excel file {path} ({words}): save it again as .xlsx")


def _cell(value: object) -> str | None:
    """Return a value as the text of a cell; None if it is empty."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    if isinstance(value, datetime.datetime):
        whole = value.time() == datetime.time()
        return value.date().isoformat() if whole else value.isoformat(" ")
    return str(value)


class _Blocks:
    """Columns of texts, which are added some rows at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._blocks: list[tuple[int, list[pa.Array]]] = []  # rows, and columns known by then
        self._rows = 0

    def add(self, rows: Sequence[dict[int, str | None]], width: int) -> None:
        """Add rows, each with its cells by column."""
        import pyarrow as pa

        if not rows:
            return
        self._rows += len(rows)
        self._require(width)
        try:
            columns = [pa.array([row.get(k) for row in rows], pa.string()) for k in range(width)]
        except UnicodeEncodeError as error:
            raise InputError(
                f"a cell holds {error.object[error.start]!r}, which is not valid Unicode"
            ) from None
        self._blocks.append((len(rows), columns))

    def table(self, names: Sequence[str]) -> pa.Table:
        """Return the table; a block may know fewer columns than the last one."""
        import pyarrow as pa

        self._require(len(names))

        def chunks(k: int) -> Iterator[pa.Array]:
            for rows, columns in self._blocks:
                yield columns[k] if k < len(columns) else pa.nulls(rows, pa.string())

        arrays = [pa.chunked_array(list(chunks(k)), pa.string()) for k in range(len(names))]
        return pa.Table.from_arrays(arrays, names=list(names))

    def _require(self, width: int) -> None:
        what = f"{self._path}, with {self._rows:,} rows and {width:,} columns,"
        require(_CELL * self._rows * width, what, _INSTEAD)
