"""`examples.parquet`: which training labels are probably wrong, and what they should be."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from proselflc.data.dataset import Bools, Floats, Ints
from proselflc.data.labels import Labels
from proselflc.data.sources.table import open_parquet
from proselflc.data.writing import whole_file
from proselflc.errors import InputError
from proselflc.training.observations import TOP, TOP_CLASSES, Mean, Rows

if TYPE_CHECKING:
    import pyarrow as pa

MANY_CLASSES = 100  # above which a corrected distribution is kept as its five largest classes

_ELEMENTS = 1 << 20  # of [rows, classes] that are worked on at once


@dataclass(frozen=True)
class Recent:
    """Means over the last epochs, as `training.observations.recent` reads them.

    Attributes:
        p: of the prediction, [n, C] or the five largest classes; NaN where it was not seen.
        target: of the target q̃ that was taught, in the same form.
    """

    p: Mean
    target: Mean


def examples(labels: Labels, observed: Iterable[Rows], recent: Recent) -> pa.Table:
    """One row per training example, in their order.

    | column | holds |
    |---|---|
    | `index`, `id` | the example's position and name |
    | `given_label` | the label that was learned from |
    | `suggested_label` | the class with the largest mean p; the given one if that is as large |
    | `is_suspect` | whether the two differ |
    | `quality` | mean p of the given label, in [0, 1]; **low means probably mislabelled** |
    | `trust`, `entropy` | ε and H(p) in the last epoch in which it was seen |
    | `p_given`, `p_suggested` | mean p of the two labels |
    | `first_learned_epoch` | the first epoch, from 0, that predicted the given label, or null |
    | `flips` | how often the predicted class changed from one epoch that saw it to the next |
    | `corrected_distribution` | mean q̃, clipped at 0 and normalised: C numbers, or for more than \
100 classes the five largest as structs {label, p}, the largest first |
    | `clean_label` | the true label, a column only where that is known |

    Of an example that was not seen in the last epochs nothing is known: its label stays, the
    corrected distribution is that label's, and quality and p are null. Where only five classes are
    remembered and the given label is none of them, its p is that of the last epoch that saw the
    example, but no more than the smallest of the five.

    Args:
        labels: of n examples and C classes.
        observed: [n] what was seen in each epoch, in order; gone through once.
        recent: means over the last epochs.

    Raises:
        InputError: the records are of other examples or classes than the labels.
    """
    import pyarrow as pa

    for mean in (recent.p, recent.target):
        _check_shape(mean, labels)
    names = pa.array(labels.names, pa.string())
    past = _past(observed, labels.given)
    tables = []
    width = min(len(names), max(recent.p.shape[1], MANY_CLASSES))
    for rows in _slices(len(labels.given), width):
        given = labels.given[rows]
        suggested, p_given, p_suggested = _suggestion(
            recent.p, rows, given, past.p_given[rows], len(names)
        )
        columns = {
            "index": pa.array(np.arange(rows.start, rows.stop)),
            "id": pa.array(labels.ids[rows], pa.string()),
            "given_label": names.take(pa.array(given)),
            "suggested_label": names.take(pa.array(suggested)),
            "is_suspect": pa.array(suggested != given),
            "quality": _nullable(p_given),
            "trust": _nullable(past.trust[rows]),
            "entropy": _nullable(past.entropy[rows]),
            "p_given": _nullable(p_given),
            "p_suggested": _nullable(p_suggested),
            "first_learned_epoch": pa.array(past.learned[rows], mask=past.learned[rows] < 0),
            "flips": pa.array(past.flips[rows]),
            "corrected_distribution": _distribution(recent.target, rows, given, names),
        }
        if labels.clean is not None:
            columns["clean_label"] = names.take(pa.array(labels.clean[rows]))
        tables.append(pa.table(columns))
    return pa.concat_tables(tables)


@dataclass(frozen=True)
class Detection:
    """How well wrong labels were found; everything is in [0, 1] and low is bad.

    None is what cannot be said: without wrong labels there is nothing to find, without right ones
    nothing to rank them against, and without suspects no precision.

    Attributes:
        auroc: the chance that a wrong label has a lower quality than a right one.
        average_precision: of the ranking by quality, lowest first.
        precision: share of wrong labels among the suspects.
        recall: share of suspects among the wrong labels.
        f1: harmonic mean of the two.
    """

    auroc: float | None
    average_precision: float | None
    precision: float | None
    recall: float | None
    f1: float | None


def detection(is_suspect: Bools, quality: npt.NDArray[Any], flipped: Bools) -> Detection:
    """Compare suspects with the labels that are known to be wrong.

    Args:
        is_suspect: [n].
        quality: [n], low = probably mislabelled; NaN where unknown, which is left out of the
            ranking.
        flipped: [n] where the given label is wrong.
    """
    from sklearn.metrics import average_precision_score, roc_auc_score

    ranked = ~np.isnan(quality)
    wrong, badness = flipped[ranked], -quality[ranked].astype(np.float64)
    both = bool(wrong.any()) and not bool(wrong.all())
    found = int((is_suspect & flipped).sum())
    suspects, mistakes = int(is_suspect.sum()), int(flipped.sum())
    return Detection(
        auroc=float(roc_auc_score(wrong, badness)) if both else None,
        average_precision=float(average_precision_score(wrong, badness)) if both else None,
        precision=found / suspects if suspects else None,
        recall=found / mistakes if mistakes else None,
        f1=2 * found / (suspects + mistakes) if suspects + mistakes else None,
    )


def label_accuracy(table: pa.Table) -> tuple[float | None, float | None]:
    """The share of given labels that are true, and of suggested ones; None where unknown.

    Args:
        table: as `examples` makes it.
    """
    import pyarrow.compute as pc

    if "clean_label" not in table.column_names or len(table) == 0:
        return None, None
    before, after = (
        float(pc.mean(pc.equal(table[name], table["clean_label"])).as_py())
        for name in ("given_label", "suggested_label")
    )
    return before, after


def write_parquet(table: pa.Table, path: Path) -> None:
    """Write a table, whole or not at all."""
    import pyarrow.parquet as pq

    with whole_file(path) as file:
        pq.write_table(table, file, compression="zstd")


def read_examples(path: Path) -> pa.Table:
    """Read `examples.parquet` and believe no column that is not what `examples` writes.

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
    table = file.read([name for name in wanted if name in file.columns])
    for name, kind in zip(table.column_names, table.schema.types, strict=True):
        if kind not in wanted[name]:
            raise InputError(
                f'the column "{name}" of {path} holds {kind}, but '
                f"{' or '.join(str(k) for k in wanted[name])} is expected: write the run again"
            )
    _check_values(table, path)
    return table


@dataclass(frozen=True)
class _Past:
    """What all epochs together say, each [n]; NaN or −1 where there is nothing."""

    learned: npt.NDArray[np.int32]
    flips: npt.NDArray[np.int32]
    p_given: Floats
    trust: Floats
    entropy: Floats


def _past(observed: Iterable[Rows], given: Ints) -> _Past:
    n = len(given)
    learned = np.full(n, -1, np.int32)
    flips = np.zeros(n, np.int32)
    last = {name: np.full(n, np.nan, np.float32) for name in ("p_given", "trust", "entropy")}
    predicted = np.full(n, -1, np.int32)
    for e, epoch in enumerate(observed):
        if epoch.shape != (n,):
            raise InputError(
                f"the record of epoch {e} is of {len(epoch)} examples, but there are {n} labels: "
                "it belongs to another run"
            )
        seen = ~np.isnan(epoch["p_given"])
        now = np.where(seen, epoch["predicted"], predicted).astype(np.int32)
        flips += (now != predicted) & (predicted >= 0)
        learned[seen & (now == given) & (learned < 0)] = e
        predicted = now
        for name, values in last.items():
            values[seen] = epoch[name][seen]
    return _Past(learned, flips, **last)


def _slices(n: int, width: int) -> Iterator[slice]:
    step = max(1, _ELEMENTS // width)
    # One slice without rows for no examples, so that the columns are there all the same.
    for begin in range(0, max(n, 1), step):
        yield slice(begin, min(begin + step, n))


def _check_shape(mean: Mean, labels: Labels) -> None:
    n, C = len(labels.given), len(labels.names)
    if mean.shape != (n, min(C, TOP_CLASSES) if mean.dtype == TOP else C):
        raise InputError(
            f"the mean over the last epochs is {list(mean.shape)}, but there are {n} labels of {C} "
            "classes: it belongs to another run"
        )


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


def _suggestion(
    mean: Mean, rows: slice, given: Ints, last: Floats, C: int
) -> tuple[Ints, Floats, Floats]:
    """The class to suggest, the p of the given class, and that of the suggested one, [rows] each.

    Args:
        mean: of p.
        rows: the examples.
        given: [rows].
        last: [rows] p of the given class in the last epoch that saw the example.
        C: number of classes.
    """
    classes, values, seen = _known(mean, rows, C)
    own = classes == given[:, None]
    elsewhere = np.fmin(last, values.min(1))
    p_given = np.where(own.any(1), np.where(own, values, 0).max(1), elsewhere).clip(0, 1)
    best = values.argmax(1)[:, None]
    p_best = np.take_along_axis(values, best, 1)[:, 0].clip(0, 1)
    better = seen & (p_best > p_given)
    suggested = np.where(better, np.take_along_axis(classes, best, 1)[:, 0], given)
    unknown = np.float32(np.nan)
    return (
        suggested,
        np.where(seen, p_given, unknown),
        np.where(seen, np.where(better, p_best, p_given), unknown),
    )


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
        order = np.argsort(-values, axis=1, kind="stable")[:, :TOP_CLASSES]
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
