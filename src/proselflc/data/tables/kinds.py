"""The kind of a column: a number, a boolean, a date, a category or a text, or one to ignore.

A kind is found from the cells of the training part, and then every cell is read by it: a cell that
does not fit is missing. Nothing here looks at labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from proselflc.data.tables import dates
from proselflc.data.tables.cells import MISSING, DecimalMark, decimal_mark, number_in, short
from proselflc.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

Kind: TypeAlias = Literal["number", "boolean", "date", "category", "text", "ignored"]
Form: TypeAlias = Literal["", "point", "comma", "ymd", "dmy", "mdy", "time"]
Values: TypeAlias = npt.NDArray[np.float32] | npt.NDArray[np.float64] | npt.NDArray[np.int32]

TRUE = frozenset({"true", "yes", "y", "t", "on", "1"})
FALSE = frozenset({"false", "no", "n", "f", "off", "0"})

CONSTANT = "constant"  # note about a column with one value
FITTING = 0.95  # share of the cells of a number or a date that fit; the others become missing
MIXED = 0.05  # share of numbers from which a column of words is said to hold both
FEW = 40  # distinct values up to which words are categories, whatever their number
MIN_ROWS = 20  # with fewer rows, values are distinct by chance
LONG = 30  # mean length in characters from which words are a text
IMAGES = (".png", ".jpg", ".jpeg", ".gif", ".bmp", ".webp", ".tif", ".tiff")
_DAY = 86_400_000_000  # microseconds
_FIRST_DAY, _LAST_DAY = -719_161, 2_932_895  # of Python, from 1970, but for one in any time zone


@dataclass(frozen=True)
class ColumnKind:
    """How the cells of one column are read.

    Attributes:
        name: name of the column.
        kind: what its cells are.
        form: how numbers and dates are written: a decimal mark, or the order of day and month.
        reason: why it is ignored; empty for other kinds.
    """

    name: str
    kind: Kind
    form: Form = ""
    reason: str = ""


@dataclass(frozen=True)
class Found:
    """The kind of a column, and what its training cells look like.

    Attributes:
        kind: the kind.
        rows: number of cells.
        missing: number of missing cells.
        distinct: number of distinct values among the others.
        example: the most frequent value, or an empty text.
        misfits: number of cells that do not fit and become missing.
        misfit: the first of them, or the first word of a column that holds numbers as well.
        notes: what may be unexpected, as clauses without a subject.
    """

    kind: ColumnKind
    rows: int
    missing: int
    distinct: int
    example: str = ""
    misfits: int = 0
    misfit: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Column:
    """The cells of one column, read by its kind.

    Attributes:
        kind: the kind; never "ignored".
        values: [n] numbers as float32 and days since 1970 as float64, NaN where missing; or the
            positions of words as int32, −1 where missing.
        words: the distinct words of a category or a text.
    """

    kind: ColumnKind
    values: Values
    words: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.values)

    @property
    def has_words(self) -> bool:
        """Return whether the values are positions of words."""
        return self.kind.kind in ("category", "text")

    @property
    def is_missing(self) -> npt.NDArray[np.bool_]:
        """Return [n] whether each cell is missing."""
        return self.values < 0 if self.has_words else np.isnan(self.values)

    def take(self, index: npt.NDArray[np.int64]) -> Column:
        """Return the cells at these positions."""
        return replace(self, values=self.values[index])

    def concat(self, others: Sequence[Column]) -> Column:
        """Return these cells followed by others of the same kind."""
        if not self.has_words:
            return replace(self, values=np.concatenate([c.values for c in (self, *others)]))
        words = tuple(dict.fromkeys(word for c in (self, *others) for word in c.words))
        place = {word: k for k, word in enumerate(words)}
        parts = []
        for column in (self, *others):
            there = np.array([*(place[word] for word in column.words), -1], np.int32)
            parts.append(there[column.values.astype(np.int64)])  # −1 is the last
        return replace(self, values=np.concatenate(parts), words=words)

    def cell(self, row: int) -> str:
        """Return one cell as text; empty if it is missing."""
        value = self.values[row]
        if self.has_words:
            return self.words[int(value)] if value >= 0 else ""
        if np.isnan(value):
            return ""
        if self.kind.kind == "boolean":
            return "true" if value else "false"
        if self.kind.kind == "date":
            return dates.text(float(value), self.kind.form == "time")
        return str(int(value)) if value == round(value) else str(value)


def find(
    name: str, cells: pa.ChunkedArray, asked: Literal["number", "category", "text"] | None = None
) -> Found:
    """Return the kind of a column, from its training cells.

    Args:
        name: name of the column.
        cells: the cells: texts, or any other flat Arrow type.
        asked: the kind that the user asks for.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    values = without_missing(name, cells)
    rows, missing = len(values), values.null_count
    if missing == rows:
        return Found(_ignored(name, "all cells are missing"), rows, missing, 0)
    counts = pc.value_counts(values.drop_null())
    many = counts.field("counts").to_numpy(zero_copy_only=False)
    order = int(np.argmax(many))
    about = Found(
        ColumnKind(name, "category"),
        rows,
        missing,
        len(counts),
        short(str(counts.field("values")[order].as_py())),
    )
    typed = _typed(values)
    if typed is not None and asked in (None, "number"):
        form: Form = "time" if pa.types.is_time(values.type) else ""
        return replace(about, kind=ColumnKind(name, typed, form), notes=_constant(about))
    words = counts.field("values")
    found = _of_words(about, [str(word) for word in words.to_pylist()], many, asked)
    return replace(found, notes=(*found.notes, *_constant(found)))


def read(kind: ColumnKind, cells: pa.ChunkedArray) -> Column:
    """Return the cells of a column as a kind says; what does not fit is missing."""
    values = without_missing(kind.name, cells)
    if kind.kind in ("category", "text"):
        return of_words(kind, _texts(values))
    plain = _numbers(values, kind)
    if plain is None:
        coded = of_words(kind, _texts(values))
        parsed = np.array([*(_parsed(kind, word) for word in coded.words), np.nan])
        plain = parsed[coded.values.astype(np.int64)]  # −1 is the last
    if kind.kind == "date":
        return Column(kind, plain)
    with np.errstate(over="ignore"):
        narrow = plain.astype(np.float32)
    huge = np.flatnonzero(np.isinf(narrow))
    if len(huge):
        raise InfiniteError(kind.name, int(huge[0]), float(plain[huge[0]]))
    return Column(kind, narrow)


def of_words(kind: ColumnKind, texts: pa.ChunkedArray) -> Column:
    """Return a column of words from texts, null where missing, in the order of their occurrence."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(texts.type):
        texts = texts.cast(pa.string())
    codes = texts.dictionary_encode().combine_chunks()
    if isinstance(codes, pa.ChunkedArray):  # older versions, and a column without chunks
        codes = pa.concat_arrays(codes.unify_dictionaries().chunks)
    places = pc.fill_null(codes.indices, -1).to_numpy(zero_copy_only=False)
    words = tuple(codes.dictionary.to_pylist())
    return Column(kind, places.astype(np.int32, copy=False), words)


class InfiniteError(InputError):
    """A cell holds a number that is infinite or too large; the caller says where it is."""

    def __init__(self, column: str, row: int, value: float) -> None:
        self.column, self.row, self.value = column, row, value
        super().__init__(
            f'the column "{short(column)}" holds {value:g} in row {row + 1}, where a finite number '
            "is expected",
            fix="fill it in or drop the row",
        )


def without_missing(name: str, cells: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the cells with null in place of every usual spelling of a missing value."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(cells.type):
        cells = cells.cast(cells.type.value_type)
    cells = _without_views(name, cells)
    kind = cells.type
    if pa.types.is_nested(kind):
        raise InputError(
            f'the column "{short(name)}" holds {kind} values, but one text or number per row is '
            "expected",
            fix="split it into several columns",
        )
    if pa.types.is_null(kind):
        return cells.cast(pa.string())
    if pa.types.is_floating(kind):
        return pc.if_else(pc.is_nan(cells), pa.scalar(None, kind), cells)
    if pa.types.is_duration(kind):
        per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[kind.unit]
        return pc.divide(cells.cast(pa.int64()).cast(pa.float64(), safe=False), float(per_second))
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return _without_far_dates(cells)
    if _is_text(cells.type):
        cells = pc.utf8_trim_whitespace(cells)
        gone = pc.is_in(pc.utf8_lower(cells), pa.array(sorted(MISSING), cells.type))
        return pc.if_else(gone, pa.scalar(None, cells.type), cells)
    return cells


def _without_views(name: str, cells: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return texts and bytes as texts of a type that all functions of Arrow take."""
    import pyarrow as pa

    kind = cells.type
    if str(kind) == "string_view":  # as polars writes; older versions of Arrow have no such type
        return cells.cast(pa.large_string())
    if str(kind) == "binary_view":
        cells = cells.cast(pa.large_binary())
    elif pa.types.is_fixed_size_binary(kind):
        cells = cells.cast(pa.binary())
    if not (pa.types.is_binary(cells.type) or pa.types.is_large_binary(cells.type)):
        return cells
    try:
        return cells.cast(pa.large_string())
    except pa.ArrowInvalid:
        raise InputError(
            f'the column "{short(name)}" holds bytes that are not UTF-8 text',
            fix="write it as text, or leave the column out",
        ) from None


def _without_far_dates(cells: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return dates and times with null in place of those outside the years 1 to 9999."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = cells.type
    if pa.types.is_date32(kind):
        per_day, plain = 1, cells.cast(pa.int32()).cast(pa.int64())
    elif getattr(kind, "unit", "ms") == "ns":
        return cells  # 64 bits end in the year 2262
    else:
        per_second = {"s": 1, "ms": 10**3, "us": 10**6}[getattr(kind, "unit", "ms")]
        per_day, plain = 86_400 * per_second, cells.cast(pa.int64())
    is_far = pc.or_(
        pc.less(plain, _FIRST_DAY * per_day), pc.greater_equal(plain, _LAST_DAY * per_day)
    )
    return pc.if_else(is_far, pa.scalar(None, kind), cells)


def _is_text(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _texts(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return values as texts; a whole number that pandas has made a float has no point."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if _is_text(values.type):
        return values.cast(pa.string())
    if pa.types.is_floating(values.type):
        whole = pc.equal(values, pc.round(values))
        if bool(pc.all(whole).as_py()):
            values = values.cast(pa.int64(), safe=False)
    return values.cast(pa.string())


def _typed(values: pa.ChunkedArray) -> Literal["number", "boolean", "date"] | None:
    """Return the kind that the Arrow type says, or None for texts; texts of numbers are numbers."""
    import pyarrow as pa

    kind = values.type
    if pa.types.is_boolean(kind):
        return "boolean"
    if pa.types.is_temporal(kind):
        return "date"
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return "number"
    if _is_text(kind):
        try:
            values.cast(pa.float64())
        except pa.ArrowInvalid:
            return None
        return "number"
    return None


def _numbers(values: pa.ChunkedArray, kind: ColumnKind) -> npt.NDArray[np.float64] | None:
    """Return [n] the numbers or days that Arrow can read by itself, NaN where missing; or None."""
    import pyarrow as pa
    import pyarrow.compute as pc

    here = values.type
    if pa.types.is_boolean(here):
        values = values.cast(pa.uint8())
    elif pa.types.is_temporal(here):
        if pa.types.is_time(here):
            values = values.cast(pa.time64("us"), safe=False)
        else:
            values = values.cast(pa.timestamp("us", getattr(here, "tz", None)), safe=False)
        days = pc.divide(values.cast(pa.int64()).cast(pa.float64(), safe=False), float(_DAY))
        return np.asarray(days.to_numpy(), np.float64)
    elif _is_text(here) and (kind.kind != "number" or kind.form == "comma"):
        return None
    try:
        found = values.cast(pa.float64(), safe=False).to_numpy()
    except pa.ArrowInvalid:
        return None
    return np.asarray(found, np.float64)


def _parsed(kind: ColumnKind, word: str) -> float:
    """Return a word as a number of the kind; NaN if it does not fit."""
    value: float | None = None
    if kind.kind == "number":
        value = number_in(word, _mark(kind.form))
    elif kind.kind == "boolean":
        low = word.lower()
        value = 1.0 if low in TRUE else 0.0 if low in FALSE else None
    elif kind.kind == "date":
        value = dates.days(word, kind.form)
    return np.nan if value is None else value


def _mark(form: str) -> DecimalMark:
    return "," if form == "comma" else "."


def _of_words(
    about: Found, words: Sequence[str], many: npt.NDArray[np.int64], asked: str | None
) -> Found:
    """Return the kind of a column of texts, of which `words` are the distinct ones."""
    name, total = about.kind.name, int(many.sum())
    if asked in ("category", "text"):
        return replace(about, kind=ColumnKind(name, asked))  # type: ignore[arg-type]
    mark = decimal_mark(words)
    fits = np.array([number_in(word, mark) is not None for word in words])
    share = float(many[fits].sum()) / total
    if asked == "number" or (share >= FITTING and fits.any()):
        form: Form = "comma" if mark == "," else "point"
        return _with_misfits(
            replace(about, kind=ColumnKind(name, "number", form)), words, many, fits
        )
    low = {word.lower() for word in words}
    if low <= TRUE | FALSE and len(low) == 2 and len(low & TRUE) == 1:
        return replace(about, kind=ColumnKind(name, "boolean"))
    if sum(map(dates.looks_like_date, words[:1000])) >= FITTING * min(len(words), 1000):
        order = dates.order(words)
        if order is not None:
            fits = np.array([dates.days(word, order) is not None for word in words])
            if float(many[fits].sum()) / total >= FITTING:
                about = replace(about, kind=ColumnKind(name, "date", order))
                return _with_misfits(about, words, many, fits)
    about = replace(about, misfit=words[int(np.argmin(fits))] if share >= MIXED else "")
    return _of_plain_words(about, words, many, share)


def _with_misfits(
    about: Found, words: Sequence[str], many: npt.NDArray[np.int64], fits: npt.NDArray[np.bool_]
) -> Found:
    odd = np.flatnonzero(~fits)
    if not len(odd):
        return about
    return replace(
        about,
        misfits=int(many[odd].sum()),
        misfit=words[int(odd[0])],
        distinct=about.distinct - len(odd),
    )


def _of_plain_words(
    about: Found, words: Sequence[str], many: npt.NDArray[np.int64], numbers: float
) -> Found:
    """Tell categories, texts and names apart; `numbers` is the share of cells that are numbers."""
    name, total, distinct = about.kind.name, int(many.sum()), len(words)
    length = float(np.average([len(word) for word in words], weights=many))
    spaces = float(np.average([word.count(" ") for word in words], weights=many))
    notes = (f"{numbers:.0%} of its cells are numbers, the others words",) * (numbers >= MIXED)
    if all(PurePath(word).suffix.lower() in IMAGES for word in words):
        return replace(about, kind=_ignored(name, "names of image files"))
    if distinct == total >= MIN_ROWS and spaces < 1 and length <= LONG:
        return replace(about, kind=_ignored(name, "id-like: different in every row"), misfit="")
    is_text = distinct > FEW and (2 * distinct > total or length > LONG)
    if is_text:
        return replace(about, kind=ColumnKind(name, "text"), notes=notes)
    return replace(about, kind=ColumnKind(name, "category"), notes=notes)


def _constant(about: Found) -> tuple[str, ...]:
    return (CONSTANT,) if about.distinct == 1 and not about.missing else ()


def _ignored(name: str, reason: str) -> ColumnKind:
    return ColumnKind(name, "ignored", reason=reason)
