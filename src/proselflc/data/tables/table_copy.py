"""A corrected copy of a table: one column changed, one added, everything else as it was."""

from __future__ import annotations

import codecs
import gzip
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, cast

import msgspec
import numpy as np

from proselflc.data.inputs import Ints
from proselflc.data.request import DELIMITED, JSON_LINES, PARQUET, XLSX, table_suffix
from proselflc.data.tables.cells import format_row, neutralize, one_line, quote
from proselflc.data.tables.columns import BEFORE
from proselflc.data.tables.encodings import find_encoding, is_packed, open_bytes, open_text
from proselflc.data.tables.loaded import Loaded, sheet_rows
from proselflc.data.tables.parquet import Parquet, codec
from proselflc.data.tables.table_file import Delimited, Table
from proselflc.errors import InputError
from proselflc.files.regular import open_regular, whole_file

if TYPE_CHECKING:
    import pyarrow as pa

_WRITTEN = {"utf-8-sig": "utf-8", "utf-16": "utf-16-le"}  # the byte order mark is written apart


@dataclass(frozen=True)
class CopyResult:
    """The result of a corrected copy."""

    changed: int  # labels that differ from the table's
    before: str  # name of the column with the previous labels


@dataclass(frozen=True)
class TableCorrection:
    """New labels for some rows of a table, which is not changed itself."""

    table: Table
    column: str
    rows: Ints  # [m] rows with known labels
    labels: Ints  # [m] new class ids of these rows
    names: Sequence[str]  # C texts to write for classes that no cell of the column has
    known: Mapping[str, int]  # class id of each text in the column; others have no class

    def write(self, out: Path) -> CopyResult:
        """Write the copy, whole or not at all.

        A text file keeps every byte, a Parquet or Feather file every type, JSON lines the spelling
        of every value, and an Excel file the values of the sheet, except for the changed labels and
        a last column `label_before` with the previous labels. A class is written like an
        existing cell of that class, so that the column is read back correctly.
        """
        n = len(self.table)
        texts = self.table.texts(self.column)
        classes = np.array([self.known.get(text, -1) for text in texts], dtype=np.int64)
        model = np.full(len(self.names), -1, dtype=np.int64)  # a row of each class
        with_class = np.flatnonzero(classes >= 0)
        model[classes[with_class[::-1]]] = with_class[::-1]
        changed = classes[self.rows] != self.labels
        # The row whose cell is written into each row; from n on, a class whose name is written.
        source = np.arange(n)
        labels = self.labels[changed]
        source[self.rows[changed]] = np.where(model[labels] < 0, n + labels, model[labels])
        before = self._new_name()
        with whole_file(out) as file:
            if is_packed(out):
                with gzip.GzipFile(fileobj=file, mode="wb", filename="", mtime=0) as packed:
                    self._write(cast(BinaryIO, packed), source, before, table_suffix(out))
            else:
                self._write(file, source, before, table_suffix(out))
        return CopyResult(int(changed.sum()), before)

    def _new_name(self) -> str:
        taken = {name.strip().lower() for name in self.table.columns}
        names = (f"{BEFORE}_{k}" if k > 1 else BEFORE for k in range(1, len(taken) + 2))
        return next(name for name in names if name not in taken)

    def _write(self, file: BinaryIO, source: Ints, before: str, suffix: str) -> None:
        table = self.table
        if isinstance(table, Delimited):
            self._write_text(file, table, source, before)
        elif isinstance(table, Parquet):
            self._write_parquet(file, table, source, before)
        elif suffix in JSON_LINES:
            self._write_json_lines(file, table, source, before)
        elif suffix == XLSX:
            self._write_excel(file, table, source, before)
        elif suffix in DELIMITED:
            self._write_as_text(file, table, source, before, "," if suffix == ".csv" else "\t")
        else:
            self._write_arrow(file, self._amended(table.table, source, before), suffix)

    def _write_parquet(self, file: BinaryIO, table: Parquet, source: Ints, before: str) -> None:
        import pyarrow.parquet as pq

        with open_regular(table.path) as stream, pq.ParquetFile(stream) as old:
            groups = old.metadata
            size = groups.row_group(0).num_rows if groups.num_row_groups else None
        pq.write_table(
            self._amended(table.read(table.columns), source, before),
            file,
            row_group_size=size or None,
            compression=codec(table.path).lower(),
        )

    def _write_arrow(self, file: BinaryIO, amended: pa.Table, suffix: str) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        if suffix in PARQUET:
            pq.write_table(amended, file)
            return
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        with pa.ipc.new_file(file, amended.schema, options=options) as writer:
            writer.write(amended)

    def _amended(self, whole: pa.Table, source: Ints, before: str) -> pa.Table:
        """Return the table with the new labels and a last column of the previous ones."""
        import pyarrow as pa

        n, k = len(whole), self.table.columns.index(self.column)
        field, column = whole.field(k), whole.column(k)
        cells = column
        missing = np.unique(source[source >= n])
        if len(missing):
            cells = pa.chunked_array(
                [*column.chunks, *(self._value(int(c) - n, field.type) for c in missing)]
            )
            source = np.where(source >= n, n + np.searchsorted(missing, source), source)
        if pa.types.is_dictionary(field.type):
            cells = cells.unify_dictionaries()
        new = cells.combine_chunks().take(pa.array(source)).cast(field.type)
        amended = whole.set_column(k, field, new)
        amended = amended.append_column(field.with_name(before).remove_metadata(), column)
        return amended.replace_schema_metadata(whole.schema.metadata)

    def _write_json_lines(self, file: BinaryIO, table: Loaded, source: Ints, before: str) -> None:
        """Write the objects with their values as they are spelled in the file."""
        raw, column = msgspec.Raw, self.column

        def label(row: dict[str, msgspec.Raw]) -> tuple[str, msgspec.Raw]:
            key = next((key for key in row if key.strip() == column), column)
            return key, row.get(key, raw(b"null"))

        every = [label(row)[1] for row in _objects(table)]
        self._must_be_whole(len(every))
        every += [raw(msgspec.json.encode(name)) for name in self.names]
        for k, (new, row) in enumerate(zip(source, _objects(table), strict=True)):
            key, old = label(row)
            if new != k:
                row[key] = every[new]
            file.write(msgspec.json.encode({**row, before: old}) + b"\n")

    def _write_excel(self, file: BinaryIO, table: Loaded, source: Ints, before: str) -> None:
        """Write the values of the sheet. Texts are texts, also those that begin like formulas."""
        import openpyxl
        from openpyxl.cell import WriteOnlyCell

        book = openpyxl.Workbook(write_only=True)
        page = book.create_sheet(table.sheet)

        def cell(value: object) -> object:
            if not isinstance(value, str):
                return value
            made = WriteOnlyCell(page, value)
            made.data_type = "s"
            return made

        k, width = table.columns.index(self.column), len(table.columns)
        heading, *others = sheet_rows(table.path, table.sheet)
        self._must_be_whole(len(others))
        every = [*(row[k] if k < len(row) else None for row in others), *self.names]
        page.append([cell(value) for value in (*heading[:width], before)])
        for row, new, old in zip(others, source, every, strict=False):
            values = [*row[:width], *[None] * (width - len(row))]
            values[k] = every[new]
            page.append([cell(value) for value in (*values, old)])
        book.save(file)

    def _must_be_whole(self, count: int) -> None:
        if count != len(self.table):
            raise InputError(f"{self.table.path} changed while it was read: run the command again")

    def _write_as_text(
        self, file: BinaryIO, table: Loaded, source: Ints, before: str, delimiter: str
    ) -> None:
        old = table.texts(self.column)
        every = [*old, *self.names]
        new = [every[k] for k in source]
        file.write(format_row((*table.columns, before), delimiter).encode())
        cells = [new if c == self.column else table.texts(c) for c in table.columns]
        for row in zip(*cells, old, strict=True):
            file.write(format_row(row, delimiter).encode())

    def _value(self, label: int, kind: object) -> object:
        """Return an Arrow array of this type with the name of a class as its only value."""
        import pyarrow as pa

        try:
            if pa.types.is_dictionary(kind):
                text = pa.array([self.names[label]]).cast(kind.value_type)  # type: ignore[attr-defined]
                return text.dictionary_encode().cast(kind)
            return pa.array([self.names[label]]).cast(kind)
        except pa.ArrowException:
            raise InputError(
                f'the column "{self.column}" of {self.table.path} holds {kind} values, so the '
                f'class "{self.names[label]}" cannot be written into it'
            ) from None

    def _write_text(self, file: BinaryIO, table: Delimited, source: Ints, before: str) -> None:
        with open_text(table.path, table.encoding) as whole:
            text = whole.read()
        encoding = _WRITTEN.get(table.encoding, table.encoding)
        with open_bytes(table.path) as stream:
            if table.encoding == "utf-16":
                file.write(codecs.BOM_UTF16_LE)
            elif stream.read(3) == codecs.BOM_UTF8 and encoding == "utf-8":
                file.write(codecs.BOM_UTF8)
        cells = table.texts(self.column)
        names = [neutralize(name) for name in self.names]  # not in the file yet
        written = 0  # characters of the original

        def put(until: int, instead: str = "", skip: int = 0) -> None:
            nonlocal written
            file.write((text[written:until] + instead).encode(encoding))
            written = until + skip

        records = _records(text, table.delimiter, table.has_quotes)
        heading = next(records)
        titles = [_content(text[slice(*cell)], table.has_quotes) for cell in heading.cells]
        place = [one_line(title.strip()) for title in titles].index(self.column)
        put(heading.end, table.delimiter + before)
        count = 0
        for row, record in enumerate(records):
            begin, end = record.cells[place]
            raw = text[begin:end]
            is_quoted = table.has_quotes and raw.startswith('"')
            content = _content(raw, table.has_quotes)
            if row >= len(cells) or content.strip() != cells[row]:
                raise InputError(f"{table.path} changed while it was read: run the command again")
            new = int(source[row])
            if new != row:
                # An existing cell is copied as it is: another spelling would be another class.
                core = cells[new] if new < len(cells) else names[new - len(cells)]
                put(begin, self._cell(table, _around(content, core), is_quoted), end - begin)
            put(record.end, table.delimiter + self._cell(table, neutralize(content), is_quoted))
            count += 1
        put(len(text))
        self._must_be_whole(count)

    def _cell(self, table: Delimited, content: str, is_quoted: bool) -> str:
        if not table.has_quotes:
            if any(c in content for c in (table.delimiter, "\r", "\n")):
                raise InputError(
                    f'{table.path} has no quotation marks, so "{content}" cannot be a cell of it'
                )
            return content
        if is_quoted:
            return '"' + content.replace('"', '""') + '"'
        return quote(content, table.delimiter)


def _objects(table: Loaded) -> Iterator[dict[str, msgspec.Raw]]:
    """Yield the objects of a file of JSON lines, with their values as they are spelled."""
    encoding, _ = find_encoding(table.path)
    with open_text(table.path, encoding) as lines:
        for line in lines:
            if line.strip():
                yield msgspec.json.decode(line, type=dict[str, msgspec.Raw])


class _Record(NamedTuple):
    """The positions of a row's cells in the text, and of its end."""

    cells: list[tuple[int, int]]
    end: int


def _records(text: str, delimiter: str, has_quotes: bool) -> Iterator[_Record]:
    """Yield the rows of a text that `csv` accepts, the header first, without empty lines."""
    plain = rf"[^{re.escape(delimiter)}\r\n]*"
    cell = rf'"[^"]*(?:""[^"]*)*"|{plain}' if has_quotes else plain
    one = re.compile(rf"({cell})({re.escape(delimiter)}|\r\n|\r|\n|\Z)")
    cells: list[tuple[int, int]] = []
    position = 0
    while position < len(text) or cells:
        found = one.match(text, position)
        assert found is not None, "csv has read it"
        cells.append(found.span(1))
        position = found.end()
        if found[2] == delimiter:
            continue
        if len(cells) > 1 or cells[0][0] < cells[0][1]:
            yield _Record(cells, found.end(1))
        cells = []


def _content(raw: str, has_quotes: bool) -> str:
    """Return the content of a cell without its quotation marks."""
    return raw[1:-1].replace('""', '"') if has_quotes and raw.startswith('"') else raw


def _around(cell: str, core: str) -> str:
    """Return another text with the white space that surrounds a cell."""
    inner = cell.strip()
    begin = cell.index(inner)
    return cell[:begin] + core + cell[begin + len(inner) :]
