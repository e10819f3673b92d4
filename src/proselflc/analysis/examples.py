"""`examples.parquet`: one row per training example, with what is suspected of its label."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from proselflc.analysis.records import Records, slices
from proselflc.data.dataset import Bools, Floats, Ints
from proselflc.data.labels import Labels
from proselflc.data.sources.table import open_parquet
from proselflc.data.writing import whole_file
from proselflc.errors import InputError
from proselflc.training.observations import TOP, TOP_CLASSES, Mean

if TYPE_CHECKING:
    import pyarrow as pa

MANY_CLASSES = 100  # above which a corrected distribution is kept as its five largest classes


@dataclass(frozen=True)
class Judgement:
    """What is thought of n labels.

    Attributes:
        quality: [n] the estimated chance that the given label is right, in [0, 1]; **low means
            probably mislabelled**; NaN for an example of which nothing was seen.
        suggested: [n] what the label should be; the given one unless it is suspect.
    """

    quality: Floats
    suggested: Ints


def table(labels: Labels, records: Records, judgement: Judgement) -> pa.Table:
    """One row per training example, in their order.

    | column | holds |
    |---|---|
    | `index`, `id` | the example's position and name |
    | `given_label` | the label that was learned from |
    | `suggested_label` | what it should be; the given one unless it is suspect |
    | `is_suspect` | whether the given label is more likely wrong than right |
    | `quality` | estimated chance that the given label is right, in [0, 1]; **low means probably \
mislabelled** |
    | `trust`, `entropy` | ε and H(p) in the last epoch in which it was seen |
    | `p_given`, `p_suggested` | mean p of the two labels over the last epochs |
    | `first_learned_epoch` | the first epoch, from 0, that predicted the given label, or null |
    | `flips` | how often the predicted class changed from one epoch that saw it to the next |
    | `corrected_distribution` | mean q̃ over the last epochs, clipped at 0 and normalised: C \
numbers, or for more than 100 classes the five largest as structs {label, p}, the largest first |
    | `clean_label` | the true label, a column only where that is known |

    Of an example that was never seen nothing is known: its label stays, the corrected distribution
    is that label's, and quality and p are null. Where only five classes are remembered and a label
    is none of them, its p is no more than the smallest of the five.

    Args:
        labels: of n examples and C classes.
        records: of the same examples.
        judgement: of their labels.
    """
    import pyarrow as pa

    names = pa.array(labels.names, pa.string())
    past = _past(records, labels.given)
    tables = []
    width = min(len(names), max(records.p.shape[1], MANY_CLASSES))
    for rows in slices(len(labels.given), width):
        given, suggested = labels.given[rows], judgement.suggested[rows]
        last = past.p_given[rows]
        last_of_suggested = np.where(suggested == given, last, np.float32(np.inf))
        columns = {
            "index": pa.array(np.arange(rows.start, rows.stop)),
            "id": pa.array(labels.ids[rows], pa.string()),
            "given_label": names.take(pa.array(given)),
            "suggested_label": names.take(pa.array(suggested)),
            "is_suspect": pa.array(suggested != given),
            "quality": _nullable(judgement.quality[rows]),
            "trust": _nullable(past.trust[rows]),
            "entropy": _nullable(past.entropy[rows]),
            "p_given": _nullable(_p_of(records.p, rows, given, last, len(names))),
            "p_suggested": _nullable(
                _p_of(records.p, rows, suggested, last_of_suggested, len(names))
            ),
            "first_learned_epoch": pa.array(past.learned[rows], mask=past.learned[rows] < 0),
            "flips": pa.array(past.flips[rows]),
            "corrected_distribution": _distribution(records.target, rows, given, names),
        }
        if labels.clean is not None:
            columns["clean_label"] = names.take(pa.array(labels.clean[rows]))
        tables.append(pa.table(columns))
    return pa.concat_tables(tables)


def write_parquet(table: pa.Table, path: Path) -> None:
    """Write a table, whole or not at all."""
    import pyarrow.parquet as pq

    with whole_file(path) as file:
        pq.write_table(table, file, compression="zstd")


def read_examples(path: Path) -> pa.Table:
    """Read `examples.parquet` and believe no column that is not what `table` writes.

    Columns beyond those are left alone.

    Raises:
        InputError: damaged, or not such a file.
    """
    file = open_parquet(path)
    wanted = _types()
    missing = [name for name in wanted if name not in file.columns and name != "clean_label"]
    if missing:
        raise InputError(
            f'{path} has no column "{missing[0]}": it is not an examples.parquet of a run'
        )
    columns = file.read([name for name in wanted if name in file.columns])
    for name, kind in zip(columns.column_names, columns.schema.types, strict=True):
        if kind not in wanted[name]:
            raise InputError(
                f'the column "{name}" of {path} holds {kind}, but '
                f"{' or '.join(str(k) for k in wanted[name])} is expected: write the run again"
            )
    _check_values(columns, path)
    return columns


@dataclass(frozen=True)
class _Past:
    """What all epochs together say, each [n]; NaN or −1 where there is nothing."""

    learned: npt.NDArray[np.int32]
    flips: npt.NDArray[np.int32]
    p_given: Floats
    trust: Floats
    entropy: Floats


def _past(records: Records, given: Ints) -> _Past:
    n = len(given)
    learned = np.full(n, -1, np.int32)
    flips = np.zeros(n, np.int32)
    last = {name: np.full(n, np.nan, np.float32) for name in ("p_given", "trust", "entropy")}
    predicted = np.full(n, -1, np.int32)
    for e, epoch in enumerate(records.observed):
        seen = ~np.isnan(epoch["p_given"])
        now = np.where(seen, epoch["predicted"], predicted).astype(np.int32)
        flips += (now != predicted) & (predicted >= 0)
        learned[seen & (now == given) & (learned < 0)] = e
        predicted = now
        for name, values in last.items():
            values[seen] = epoch[name][seen]
    return _Past(learned, flips, **last)


def _known(mean: Mean, rows: slice, C: int) -> tuple[Ints, Floats, Bools]:
    """Classes and their values, both [rows, K], and [rows] whether the example was seen.

    K is C or five. A slot that holds no class has the value 0.
    """
    if mean.dtype == TOP:
        classes = mean["class"][rows].astype(np.int64)
        values: Floats = mean["value"][rows].astype(np.float32)
        empty = classes >= C
        classes[empty], values[empty & np.isfinite(values)] = 0, 0
    else:
        values = mean[rows].astype(np.float32)
        classes = np.broadcast_to(np.arange(C), values.shape)
    seen: Bools = np.asarray(np.isfinite(values).all(axis=1))
    values[~seen] = 0
    return classes, values, seen


def _p_of(mean: Mean, rows: slice, label: Ints, last: Floats, C: int) -> Floats:
    """[rows] mean p of a label; NaN where the example was not seen.

    Where the label is none of the classes that are known, p is what was seen of it last, infinite
    if nothing was, but no more than the smallest that is known.
    """
    classes, values, seen = _known(mean, rows, C)
    own = classes == label[:, None]
    elsewhere = np.fmin(last, values.min(1))
    p: Floats = np.where(own.any(1), np.where(own, values, 0).max(1), elsewhere).clip(0, 1)
    return np.where(seen, p, np.float32(np.nan))


def _distribution(mean: Mean, rows: slice, given: Ints, names: pa.Array) -> pa.ListArray:
    """The mean target, max(q̃, 0) divided by its sum: the given label's where that is nothing.

    Where only five classes are known, all positive, the others have what is missing to a sum of 1,
    if anything; a five that is not positive shows that the others are nothing.
    """
    import pyarrow as pa

    m, C = len(given), len(names)
    classes, values, _ = _known(mean, rows, C)
    hidden = values.shape[1] < C and (values > 0).all(1)
    values.clip(0, out=values)
    total = np.where(hidden, np.maximum(values.sum(1), 1), values.sum(1))
    nothing = total == 0
    values /= np.where(nothing, 1, total)[:, None]
    if C <= MANY_CLASSES:
        width = C
        dense = np.zeros((m, C), np.float32)
        np.add.at(dense, (np.arange(m)[:, None], classes), values)
        dense[nothing, given[nothing]] = 1
        cells = pa.array(dense.reshape(-1))
    else:
        width = TOP_CLASSES
        # The five largest first: to put a thousand classes in order takes ten times as long.
        largest = np.sort(np.argpartition(-values, TOP_CLASSES - 1, axis=1)[:, :TOP_CLASSES], 1)
        classes = np.take_along_axis(classes, largest, 1)
        values = np.take_along_axis(values, largest, 1)
        order = np.argsort(-values, axis=1, kind="stable")
        classes = np.take_along_axis(classes, order, 1)
        values = np.take_along_axis(values, order, 1)
        classes[nothing, 0], values[nothing, 0] = given[nothing], 1
        cells = pa.StructArray.from_arrays(
            [
                names.take(pa.array(_distinct(classes, values).reshape(-1))),
                pa.array(values.reshape(-1)),
            ],
            names=["label", "p"],
        )
    offsets = np.arange(0, m * width + 1, width, dtype=np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), cells)


def _distinct(classes: Ints, values: Floats) -> Ints:
    """[rows, 5] the classes, and where a value is 0 the first ones that are not among them yet.

    Slots without a class would otherwise repeat one. Values fall from left to right.
    """
    positive = values > 0
    candidates = np.arange(2 * TOP_CLASSES)
    taken = ((classes[:, :, None] == candidates) & positive[:, :, None]).any(1)
    free = np.argsort(taken, axis=1, kind="stable")
    turn = np.maximum(np.arange(TOP_CLASSES) - positive.sum(1)[:, None], 0)
    return np.where(positive, classes, np.take_along_axis(free, turn, 1))


def _nullable(values: Floats) -> pa.Array:
    import pyarrow as pa

    return pa.array(values, pa.float32(), mask=np.isnan(values))


def _types() -> dict[str, tuple[pa.DataType, ...]]:
    """The columns of `examples.parquet`, in order, and what each may hold."""
    import pyarrow as pa

    text, number = pa.string(), pa.float32()
    five = pa.list_(pa.struct([("label", text), ("p", number)]))
    return {
        "index": (pa.int64(),),
        "id": (text,),
        "given_label": (text,),
        "suggested_label": (text,),
        "is_suspect": (pa.bool_(),),
        "quality": (number,),
        "trust": (number,),
        "entropy": (number,),
        "p_given": (number,),
        "p_suggested": (number,),
        "first_learned_epoch": (pa.int32(),),
        "flips": (pa.int32(),),
        "corrected_distribution": (pa.list_(number), five),
        "clean_label": (text,),
    }


_MAY_BE_NULL = ("quality", "trust", "entropy", "p_given", "p_suggested", "first_learned_epoch")


def _check_values(table: pa.Table, path: Path) -> None:
    for name in table.column_names:
        if table[name].null_count and name not in _MAY_BE_NULL:
            raise InputError(f'the column "{name}" of {path} has empty cells: write the run again')
    if not np.array_equal(table["index"].to_numpy(), np.arange(len(table))):
        raise InputError(f"the rows of {path} are not numbered from 0 in order: write it again")
    for name in ("quality", "p_given", "p_suggested"):
        numbers = table[name].drop_null().to_numpy()
        if not ((numbers >= 0) & (numbers <= 1)).all():
            raise InputError(f'the column "{name}" of {path} holds numbers outside 0 … 1')
