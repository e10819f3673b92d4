"""Columns of several kinds as numbers: dense ones for networks and distances, others for trees.

Everything is measured on the training part and saved as plain JSON. The rules are scikit-learn's:
missing numbers get the median, as `SimpleImputer` does, and are standardised; categories are
one-hot with rare ones pooled, as `OneHotEncoder(handle_unknown="infrequent_if_exist")` does. No
column is encoded by the labels, which may be wrong.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from proselflc.data.inputs import Bools, Floats, Inputs, Texts
from proselflc.data.preprocessing import Finite, Preprocessing, Standardization, TextHashing
from proselflc.data.tables.kinds import Column, ColumnKind
from proselflc.data.tables.mixed import MixedColumns
from proselflc.errors import InputError
from proselflc.models.shape import FeatureShape

MOST = 64  # categories that have a dense column of their own
MOST_CODES = 254  # categories that have a code of their own; trees take 255 at most
RARE, RARE_IN_SMALL, SMALL = 5, 2, 100  # examples below which a category is pooled; of few rows
WIDTH = 64  # numbers of a text
CLIP = 1e6  # deviations

_TEXT = TextHashing(2**12, (1, 1), (3, 4), 1024, 20_000, b"\xff" * 2**9)  # every bucket counts
_YEAR, _WEEK, _DAY = 365.2425, 7.0, 1.0  # days of the cycles of a date
_MONDAY = 4.0  # 1970-01-05 in days
_Doubles: TypeAlias = npt.NDArray[np.float64]


@dataclass(frozen=True)
class EncodedColumn:
    """What the training part says about one column.

    Attributes:
        kind: how its cells are read.
        missing: whether a training cell is missing, so that there is an indicator.
        fill: the median, which stands for missing numbers and dates.
        mean, std: of the numbers or dates after that; std is 0 for a constant.
        newest: the newest date, from which the age is counted.
        has_times: whether dates have a time of day.
        categories: the categories with codes of their own, the most frequent first.
        pooled: whether training cells hold rarer categories.
    """

    kind: ColumnKind
    missing: bool = False
    fill: Finite = 0.0
    mean: Finite = 0.0
    std: Annotated[float, msgspec.Meta(ge=0, lt=1e300)] = 0.0
    newest: Finite = 0.0
    has_times: bool = False
    categories: Annotated[tuple[str, ...], msgspec.Meta(max_length=MOST_CODES)] = ()
    pooled: bool = False

    @classmethod
    def fit(cls, column: Column) -> EncodedColumn:
        """Measure the training cells of a column."""
        gone, kind = column.is_missing, column.kind
        missing = bool(gone.any())
        if kind.kind == "text":
            return cls(kind, missing)
        if kind.kind == "category":
            return cls._of_words(column, missing)
        values = column.values[~gone].astype(np.float64)
        if not len(values):
            return cls(kind, missing)
        fill = float(np.median(values))
        filled = np.where(gone, fill, column.values.astype(np.float64))
        std = 0.0 if values.min() == values.max() and not missing else float(filled.std())
        has_times = kind.kind == "date" and bool((values != np.floor(values)).any())
        newest = float(values.max()) if kind.kind == "date" else 0.0
        return cls(kind, missing, fill, float(filled.mean()), std, newest, has_times)

    @classmethod
    def _of_words(cls, column: Column, missing: bool) -> EncodedColumn:
        codes = column.values[column.values >= 0]
        counts = np.bincount(codes.astype(np.int64), minlength=len(column.words))
        least = RARE if len(column) >= SMALL else RARE_IN_SMALL
        there = Counter({w: int(k) for w, k in zip(column.words, counts, strict=True) if k})
        usual = sorted((w for w, k in there.items() if k >= least), key=lambda w: (-there[w], w))
        kept = tuple(usual[:MOST_CODES])
        return cls(column.kind, missing, categories=kept, pooled=len(kept) < len(there))

    @property
    def width(self) -> int:
        """Return the number of dense columns."""
        if self.kind.kind == "category":
            return len(self._dense_categories) + self._is_pooled_densely + self.missing
        if self.kind.kind == "text":
            return WIDTH + self.missing
        if self.kind.kind == "date":
            return 1 + 2 * len(self._cycles) + self.missing
        return 1 + self.missing

    @property
    def is_measured(self) -> list[bool]:
        """Return for each dense column whether it is a measurement, rather than 0 or 1."""
        first = self.kind.kind in ("number", "boolean", "date")
        return [first, *[False] * (self.width - 1)] if self.width else []

    def dense(self, column: Column) -> Iterator[Floats | _Doubles]:
        """Yield the dense columns, [N] or [N, k], of N cells."""
        gone = column.is_missing
        if self.kind.kind == "category":
            codes = self._codes(column)
            for code in range(len(self._dense_categories)):
                yield (codes == code).astype(np.float32)
            if self._is_pooled_densely:
                yield (codes >= len(self._dense_categories)).astype(np.float32)
        elif self.kind.kind == "text":
            yield _hashed(column)
        else:
            values = np.where(gone, self.fill, column.values)
            scale = 1 / self.std if self.std > 0 else 0.0
            yield np.clip((values - self.mean) * scale, -CLIP, CLIP)
            for start, length in self._cycles:
                angle = 2 * np.pi * (((values - start) / length) % 1.0)
                yield np.where(gone, 0.0, np.sin(angle))
                yield np.where(gone, 0.0, np.cos(angle))
        if self.missing:
            yield gone.astype(np.float32)

    def for_trees(self, column: Column) -> Iterator[tuple[Floats, bool]]:
        """Yield the columns, [N] or [N, k], for trees, and whether each holds categories."""
        if self.kind.kind == "category":
            codes = self._codes(column).astype(np.float32)
            yield np.where(codes < 0, np.nan, codes).astype(np.float32), True
        elif self.kind.kind == "text":
            hashed = _hashed(column)
            hashed[column.is_missing] = np.nan
            yield hashed, False
        elif self.kind.kind == "date":
            for part in self._date_parts(column.values.astype(np.float64)):
                yield part.astype(np.float32), False
        else:
            yield column.values.astype(np.float32), False

    @property
    def width_for_trees(self) -> int:
        """Return the number of columns for trees."""
        if self.kind.kind == "text":
            return WIDTH
        if self.kind.kind != "date":
            return 1
        is_time = self.kind.form == "time"
        return 5 * (not is_time) + (self.has_times or is_time)

    @property
    def _cycles(self) -> tuple[tuple[float, float], ...]:
        """Return the start and the length in days of the cycles of a date."""
        if self.kind.kind != "date":
            return ()
        if self.kind.form == "time":
            return ((0.0, _DAY),)
        times = ((0.0, _DAY),) if self.has_times else ()
        return ((0.0, _YEAR), (_MONDAY, _WEEK), *times)

    def _date_parts(self, values: _Doubles) -> Iterator[_Doubles]:
        """Yield the age in days, the year, the month, the day, the weekday and the hour."""
        gone = np.isnan(values)
        if self.kind.form != "time":
            # Beyond what a date can be, for instance in a table made to do harm.
            inside = np.clip(np.where(gone, 0.0, values), -719_000.0, 2_932_000.0)
            days = np.floor(inside).astype("datetime64[D]")
            months = days.astype("datetime64[M]")
            years = days.astype("datetime64[Y]")
            yield self.newest - values
            for part in (
                years.astype(np.int64) + 1970,
                (months - years).astype(np.int64) + 1,
                (days - months).astype(np.int64) + 1,
                (days.astype(np.int64) - int(_MONDAY)) % 7,
            ):
                yield np.where(gone, np.nan, part)
        if self.has_times or self.kind.form == "time":
            yield (values % 1.0) * 24

    @property
    def _dense_categories(self) -> tuple[str, ...]:
        return self.categories[:MOST]

    @property
    def _is_pooled_densely(self) -> bool:
        return self.pooled or len(self.categories) > MOST

    def constant(self, many: int) -> Column | None:
        """Return `many` cells with the only value of training; None if there were several."""
        if self.missing or self.pooled or self.std > 0 or self.kind.kind == "text":
            return None
        if self.kind.kind == "category":
            alone = len(self.categories) == 1
            return Column(self.kind, np.zeros(many, np.int32), self.categories) if alone else None
        values = np.full(many, self.fill, np.float64)
        return Column(self.kind, values if self.kind.kind == "date" else values.astype(np.float32))

    def _codes(self, column: Column) -> npt.NDArray[np.int64]:
        """Return [N] the codes of categories; −1 if missing or, without a pool, unseen.

        The code of the pool is the number of categories.
        """
        place = {word: k for k, word in enumerate(self.categories)}
        other = len(self.categories) if self.pooled else -1
        there = np.array([*(place.get(word, other) for word in column.words), -1], np.int64)
        return there[column.values.astype(np.int64)]

    def validate(self) -> None:
        """Refuse values, read from a file, that do not go together."""
        if self.kind.kind == "ignored" or len(set(self.categories)) < len(self.categories):
            raise ValueError(f'the column "{self.kind.name}" is damaged')


@dataclass(frozen=True)
class TableEncoding(Preprocessing):
    """The columns of a table as dense numbers, for a network.

    Attributes:
        encoded: the columns, in the order of the training table.
    """

    encoded: Annotated[tuple[EncodedColumn, ...], msgspec.Meta(min_length=1)]
    kind = "columns"

    @classmethod
    def fit(cls, train: MixedColumns) -> TableEncoding:
        """Measure the training rows."""
        if len(train) == 0:
            raise InputError("no training rows to measure")
        found = cls(tuple(map(EncodedColumn.fit, train.cells)))
        if found.width == 0:
            raise InputError(
                "every column has only rare values, so there is nothing to learn from",
                fix="add rows or columns",
            )
        return found

    @property
    def kinds(self) -> tuple[ColumnKind, ...]:
        """Return how the columns of a table are read."""
        return tuple(column.kind for column in self.encoded)

    @property
    def optional(self) -> frozenset[str]:
        """Return the columns that were constant in training, which later tables may lack."""
        return frozenset(c.kind.name for c in self.encoded if c.constant(0) is not None)

    @property
    def width(self) -> int:
        """Return D, the number of dense columns."""
        return sum(column.width for column in self.encoded)

    @property
    def shape(self) -> FeatureShape:
        return FeatureShape(self.width)

    @property
    def is_measured(self) -> Bools:
        """Return [D] whether a dense column is a measurement, rather than 0 or 1 or a hash."""
        return np.array([flag for column in self.encoded for flag in column.is_measured])

    def check(self, inputs: Inputs) -> None:
        """Refuse inputs that are not a table with the columns that were fitted."""
        self.select(inputs)

    def __call__(self, inputs: Inputs) -> Tensor:
        """Return [N, D] float32 for N rows."""
        return torch.from_numpy(self.dense(inputs))

    def dense(self, inputs: Inputs) -> Floats:
        """Return [N, D] the numbers of N rows, all finite."""
        result = np.empty((len(inputs), self.width), np.float32)
        at = 0
        for known, column in zip(self.encoded, self.select(inputs), strict=True):
            for part in known.dense(column):
                width = 1 if part.ndim == 1 else part.shape[1]
                result[:, at : at + width] = part.reshape(len(part), width)
                at += width
        return result

    def select(self, inputs: Inputs) -> tuple[Column, ...]:
        """Return the fitted columns of some rows, in their order.

        A column that is absent and was constant in training has the same value again.
        """
        if not isinstance(inputs, MixedColumns):
            raise InputError(
                f"this model was made for the columns of a table, got {inputs.kind}",
                fix="give a table with the same columns",
            )
        place = {column.kind.name: column for column in inputs.cells}
        for known in self.encoded:
            here = place.get(known.kind.name)
            if here is None:
                here = known.constant(len(inputs))
            if here is None:
                raise InputError(
                    f'the column "{known.kind.name}" that this model was made for is missing; '
                    f"columns here: {', '.join(place)}"
                )
            if here.kind.kind != known.kind.kind:
                raise InputError(
                    f'the column "{known.kind.name}" is a {here.kind.kind} here, but the model was '
                    f"made for a {known.kind.kind}"
                )
            place[known.kind.name] = here
        return tuple(place[known.kind.name] for known in self.encoded)

    def validate(self) -> None:
        names = [column.kind.name for column in self.encoded]
        if len(set(names)) < len(names):
            raise ValueError("columns must name every column once")
        for column in self.encoded:
            column.validate()
        if self.width == 0:
            raise ValueError("no column has a value")


def for_trees(preprocessing: Preprocessing, inputs: Inputs) -> tuple[Floats, Bools]:
    """Return [n, D] the rows of a table for trees, and [D] which columns hold categories.

    Missing cells are NaN. A category is its code, from 0 to at most 254; rare categories have a
    code together, and one that training did not show is NaN unless there are such. Numbers are not
    scaled. A date is its age, year, month, day, weekday and hour; a text is `WIDTH` hashed numbers.

    Args:
        preprocessing: fitted on the training part: a `TableEncoding`, or a `Standardization`, whose
            columns are returned as they are.
        inputs: rows with the same columns.
    """
    if isinstance(preprocessing, Standardization):
        values = preprocessing.select(inputs)
        return np.asarray(values, np.float32), np.zeros(values.shape[1], np.bool_)
    if not isinstance(preprocessing, TableEncoding):
        raise InputError(f"trees learn from the columns of a table, got {inputs.kind}")
    total = sum(known.width_for_trees for known in preprocessing.encoded)
    result = np.empty((len(inputs), total), np.float32)  # filled as it is made: rows may be many
    categorical: list[bool] = []
    for known, column in zip(preprocessing.encoded, preprocessing.select(inputs), strict=True):
        for part, is_category in known.for_trees(column):
            width = 1 if part.ndim == 1 else part.shape[1]
            at = len(categorical)
            result[:, at : at + width] = part.reshape(len(part), width)
            categorical += [is_category] * width
    assert len(categorical) == total
    return result, np.array(categorical)


def _hashed(column: Column) -> Floats:
    """Return [N, WIDTH] texts as signed sums of their hashed words and letters, of length 1."""
    used, which = np.unique(column.values, return_inverse=True)  # each distinct text is hashed once
    texts = Texts(tuple(column.words[int(k)] if k >= 0 else "" for k in used))
    bags = _TEXT.bags(texts)
    owner = np.repeat(np.arange(len(texts)), np.diff(bags.bounds))
    sign = np.where((bags.numbers // WIDTH) % 2, 1.0, -1.0)
    flat = np.bincount(owner * WIDTH + bags.numbers % WIDTH, sign, len(texts) * WIDTH)
    values = flat.reshape(len(texts), WIDTH)
    length = np.linalg.norm(values, axis=1, keepdims=True)
    values = (values / np.maximum(length, 1e-12)).astype(np.float32)
    return np.asarray(values[which.reshape(-1)])
