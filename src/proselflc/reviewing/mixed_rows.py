"""Rows of a table with columns of several kinds, as the review page shows them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from proselflc.data.inputs import Bools, Ints
from proselflc.data.tables.kinds import Column
from proselflc.data.tables.mixed import MixedColumns
from proselflc.pages.values import shorten
from proselflc.training.run_directory import Json

_LONGEST = 200  # characters of a cell


class MixedRows:
    """The cells of examples, beside what is usual in their class.

    Args:
        inputs: the rows.
        members: returns [n] which rows are typical of a class.
    """

    def __init__(self, inputs: MixedColumns, members: Callable[[int], Bools]) -> None:
        self._inputs, self._members = inputs, members
        self._stored: dict[int, list[_Usual]] = {}

    def columns(self, index: int, given: int, suggested: int, most: int) -> tuple[list[Json], int]:
        """Return the columns of a row, the most unusual first, and how many are left out."""
        usual, other = self._usual(given), self._usual(suggested)
        found: list[Json] = [
            {
                **self._cell(index, int(j)),
                "given": usual[j].summary,
                "suggested": other[j].summary,
            }
            for j in self._order(index, given)[:most]
        ]
        return found, len(self._inputs.cells) - len(found)

    def few(self, index: int, beside: int, given: int, most: int) -> list[Json]:
        """Return the cells of a row in the columns that are unusual of the row `beside`."""
        return [self._cell(index, int(j)) for j in self._order(beside, given)[:most]]

    def _cell(self, index: int, j: int) -> Json:
        column = self._inputs.cells[j]
        text = shorten(column.cell(index), _LONGEST) or "missing"
        return {"name": shorten(column.kind.name), "value": text}

    def _order(self, index: int, label: int) -> Ints:
        distance = [usual.distance(index) for usual in self._usual(label)]
        return np.argsort(-np.array(distance), kind="stable")

    def _usual(self, label: int) -> list[_Usual]:
        if label not in self._stored:
            members = np.flatnonzero(self._members(label))
            self._stored[label] = [_Usual(column, members) for column in self._inputs.cells]
        return self._stored[label]


class _Usual:
    """What is usual in one column of some rows."""

    def __init__(self, column: Column, members: Ints) -> None:
        self._column = column
        cells = column.take(members)
        there = cells.values[~cells.is_missing].astype(np.float64)
        kind = column.kind.kind
        self._is_measured = kind in ("number", "date")
        self.summary: str | list[float] = ""
        self._mean, self._std, self._shares = 0.0, 0.0, {-1: 1 - len(there) / max(1, len(cells))}
        if not len(there):
            return
        if self._is_measured:
            self._mean, self._std = float(there.mean()), float(there.std())
            self.summary = [self._mean, self._std]
            if kind == "date":
                middle = int(members[~cells.is_missing][np.argsort(there)[len(there) // 2]])
                self.summary = column.cell(middle)
            return
        values, counts = np.unique(there, return_counts=True)
        self._shares |= {int(v): c / len(cells) for v, c in zip(values, counts, strict=True)}
        if kind != "text":
            first = int(values[counts.argmax()])
            where = int(members[np.flatnonzero(cells.values == first)[0]])
            share = self._shares[first]
            self.summary = f"{shorten(column.cell(where), _LONGEST)} ({share:.0%})"

    def distance(self, index: int) -> float:
        """Return how unusual a cell is, in deviations or, for categories, as rare as these."""
        value = float(self._column.values[index])
        is_missing = bool(self._column.is_missing[index])
        if self._column.kind.kind == "text":
            return 0.0
        if self._is_measured and not is_missing:
            return abs(value - self._mean) / self._std if self._std > 0 else 0.0
        share = self._shares.get(-1 if is_missing else int(value), 0.0)
        return float(np.sqrt(-2 * np.log(max(share, 1e-4))))
