"""Data frames of pandas and polars and Arrow tables, as columns of several kinds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from proselflc.data.inputs import Features
from proselflc.data.tables import kinds
from proselflc.data.tables.cells import short
from proselflc.data.tables.kinds import Column, ColumnKind, Found
from proselflc.data.tables.mixed import MixedColumns
from proselflc.errors import InputError, unknown


@dataclass(frozen=True)
class AskedColumns:
    """What the caller says about the columns of a data frame, by their names."""

    categorical: tuple[str, ...] = ()
    numeric: tuple[str, ...] = ()
    text: tuple[str, ...] = ()
    ignore_column: tuple[str, ...] = ()

    @classmethod
    def of(cls, **names: str | Sequence[str]) -> AskedColumns:
        """Return the names as tuples; one name may be a text."""
        return cls(**{k: (v,) if isinstance(v, str) else tuple(v) for k, v in names.items()})

    def __bool__(self) -> bool:
        return bool(self.kinds or self.ignore_column)

    @property
    def kinds(self) -> tuple[tuple[str, Literal["category", "number", "text"]], ...]:
        """Return pairs of a name and the kind that is asked for it."""
        return (
            *((name, "category") for name in self.categorical),
            *((name, "number") for name in self.numeric),
            *((name, "text") for name in self.text),
        )

    def check(self, names: Sequence[str], what: str) -> None:
        """Refuse names that the frame does not have, and those that are given twice."""
        given = [*(name for name, _ in self.kinds), *self.ignore_column]
        for name in given:
            if name not in names:
                raise InputError(f"{what}: {unknown('column', short(name), names)}")
            if given.count(name) > 1:
                raise InputError(
                    f'{what}: the column "{short(name)}" is named twice, among categorical=, '
                    "numeric=, text= and ignore_column=",
                    fix="name it once",
                )


def is_frame(x: object) -> bool:
    """Return whether it is a data frame: rows with named columns."""
    columns = getattr(x, "columns", None)
    return columns is not None and (hasattr(x, "__arrow_c_stream__") or hasattr(x, "dtypes"))


def column_names(x: Any) -> tuple[str, ...]:
    """Return the names of the columns of a data frame."""
    names = getattr(x, "column_names", None)  # Arrow's columns are their cells
    return tuple(str(name) for name in (x.columns if names is None else names))


def without(x: Any, ignored: Sequence[str]) -> Any:
    """Return a data frame without some columns."""
    if not ignored:
        return x
    kept = [k for k, name in enumerate(column_names(x)) if name not in ignored]
    if hasattr(x, "iloc"):
        return x.iloc[:, kept]
    names = column_names(x)
    return x.select([names[k] for k in kept])  # polars and Arrow


def has_categories(x: Any) -> bool:
    """Return whether a column is a category by its type, whatever its values are."""
    if hasattr(x, "column_names"):
        return any(_is_category(column) for column in x.columns)
    return any(str(dtype).startswith(("category", "Categorical", "Enum")) for dtype in x.dtypes)


def of_frame(
    x: Any,
    what: str,
    known: tuple[ColumnKind, ...] | None = None,
    asked: AskedColumns | None = None,
) -> MixedColumns:
    """Return the columns of a data frame, of kinds that are known or are found.

    Types count: what pandas calls a category and texts are never numbers.

    Args:
        x: the data frame.
        what: its name in messages.
        known: kinds of the columns that a model was trained on.
        asked: the kinds that the caller names.
    """
    cells = _arrow_columns(x, what)
    if known is not None:
        for kind in known:
            if kind.name not in cells:
                raise InputError(
                    f'{what} lacks the column "{short(kind.name)}" that the model was trained on; '
                    f"its columns: {', '.join(map(short, list(cells)[:30]))}",
                    fix="add it",
                )
        return MixedColumns(tuple(_read(what, kind, cells[kind.name]) for kind in known))
    named = dict(asked.kinds) if asked else {}
    found: list[Found] = []
    columns: list[Column] = []
    for name, column in cells.items():
        wanted = named.get(name, "category" if _is_category(column) else None)
        try:
            one = kinds.find(name, column, wanted)
        except InputError as error:
            raise InputError(f"{what}: {error.reason}", fix=error.fix) from None
        found.append(one)
        if one.kind.kind != "ignored":
            columns.append(_read(what, one.kind, column))
    if not columns:
        reasons = ", ".join(f'"{short(f.kind.name)}" ({f.kind.reason})' for f in found[:10])
        raise InputError(
            f"{what} has nothing to learn from: its columns are ignored, {reasons or 'none'}",
            fix="add other columns",
        )
    return MixedColumns(tuple(columns), tuple(found))


def numbers(x: Any, what: str, columns: Sequence[str] | None, fill: Sequence[float]) -> Features:
    """Return the columns of numbers that a model was trained on, filled where they are missing."""
    known = tuple(ColumnKind(name, "number", "point") for name in columns or column_names(x))
    for name, column in _arrow_columns(x, what).items():
        found = kinds.find(name, column, "number")
        if found.misfits and name in {kind.name for kind in known}:
            raise InputError(
                f'{what}: the column "{short(name)}" holds "{short(found.misfit)}", which is not a '
                "number as in training",
                fix="fix the cells",
            )
    cells = of_frame(x, what, known).cells
    if len(cells) != len(fill):
        raise InputError(f"this model was made for {len(fill)} columns, got {len(cells)}")
    filled = [
        np.where(column.is_missing, value, column.values)
        for column, value in zip(cells, fill, strict=True)
    ]
    return Features(np.stack(filled, axis=1).astype(np.float32), tuple(k.name for k in known))


def _read(what: str, kind: ColumnKind, column: Any) -> Column:
    try:
        return kinds.read(kind, column)
    except InputError as error:
        raise InputError(f"{what}: {error.reason}", fix=error.fix) from None


def _is_category(column: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_dictionary(column.type))


def _arrow_columns(x: Any, what: str) -> dict[str, Any]:
    """Return the columns as Arrow has them, by name; a column of mixed objects becomes texts."""
    import pyarrow as pa

    names = column_names(x)
    twice = next((name for name, count in Counter(names).items() if count > 1), None)
    if twice is not None:
        raise InputError(f'{what} has two columns named "{twice}"', fix="rename one of them")
    if isinstance(x, pa.Table):
        return dict(zip(names, x.columns, strict=True))
    if hasattr(x, "to_arrow"):  # polars
        return dict(zip(names, x.to_arrow().columns, strict=True))
    found = {}
    for k, name in enumerate(names):
        series = x.iloc[:, k]
        try:
            column = pa.array(series, from_pandas=True)
        except (pa.ArrowException, TypeError, ValueError):
            gone = series.isna().to_numpy()
            texts = [None if no else str(one) for one, no in zip(series, gone, strict=True)]
            column = pa.array(texts, pa.string())
        chunks = column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])
        found[name] = chunks
    return found
