"""`examples.parquet`: one row per training example, with what is suspected of its label."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from proselflc.auditing.records import Records
from proselflc.data.inputs import Bools, Floats, Ints
from proselflc.data.labels.labels import Labels
from proselflc.data.tables.parquet import open_parquet
from proselflc.errors import InputError
from proselflc.files.whole import whole_file
from proselflc.training.observations import TOP_CLASSES, recent_epochs

if TYPE_CHECKING:
    import pyarrow as pa

MANY_CLASSES = 100  # above which a corrected distribution is kept as its five largest classes


class Likeliest(NamedTuple):
    """The classes that N examples are likeliest to be of.

    Attributes:
        classes: [N, 5] the likeliest first.
        p: [N, 5] their chances.
        of_suggested: [N] the chance of the suggested class.
    """

    classes: Ints
    p: Floats
    of_suggested: Floats


@dataclass(frozen=True)
class Judgement:
    """What is thought of n labels.

    Attributes:
        quality: [n] the estimated chance that the given label is right, in [0, 1]; **low means
            probably mislabelled**; NaN for an example of which nothing was seen.
        suggested: [n] what the label should be; the given one unless it is suspect.
        distribution: of some of the examples, [rows, C]: the estimated chance of every class to be
            the true one; of what was not seen, anything. Beyond `memory_budget.DENSE_CLASSES`
            classes it gives the five likeliest.
    """

    quality: Floats
    suggested: Ints
    distribution: Callable[[slice], Floats | Likeliest]


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
    | `trust`, `entropy` | ε and H(p), averaged over the last quarter of the epochs, at least two; \
null if it was not seen in them |
    | `p_given`, `p_suggested` | estimated chance of the two labels to be the true one |
    | `first_learned_epoch` | the first epoch, from 0, that predicted the given label, or null |
    | `flips` | how often the predicted class changed from one epoch that saw it to the next |
    | `corrected_distribution` | that chance for every class: C numbers, or for more than 100 \
classes the five largest as structs {label, p}, the largest first |
    | `clean_label` | the true label, a column only where that is known |

    Of an example that was never seen nothing is known: its label stays, the corrected distribution
    is that label's, and quality and p are null.

    Args:
        labels: of n examples and C classes.
        records: of the same examples.
        judgement: of their labels.
    """
    import pyarrow as pa

    names = pa.array(labels.names, pa.string())
    past = _past(records, labels.given)
    tables = []
    for rows in records.slices(len(labels.given), len(names)):
        given, suggested = labels.given[rows], judgement.suggested[rows]
        quality = judgement.quality[rows]
        chances = judgement.distribution(rows)
        unseen = np.isnan(quality)
        if isinstance(chances, Likeliest):
            likeliest = _known(chances, given, unseen)
            p_suggested = chances.of_suggested
            distribution = _five(likeliest.classes, likeliest.p, names)
        else:
            chances[unseen] = 0
            chances[unseen, given[unseen]] = 1
            p_suggested = chances[np.arange(len(given)), suggested]
            distribution = _listed(chances, names)
        columns = {
            "index": pa.array(np.arange(rows.start, rows.stop)),
            "id": pa.array(labels.ids[rows], pa.string()),
            "given_label": names.take(pa.array(given)),
            "suggested_label": names.take(pa.array(suggested)),
            "is_suspect": pa.array(suggested != given),
            "quality": _nullable(quality),
            "trust": _nullable(past.trust[rows]),
            "entropy": _nullable(past.entropy[rows]),
            "p_given": _nullable(quality),
            "p_suggested": _nullable(np.where(unseen, np.float32(np.nan), p_suggested)),
            "first_learned_epoch": pa.array(past.learned[rows], mask=past.learned[rows] < 0),
            "flips": pa.array(past.flips[rows]),
            "corrected_distribution": distribution,
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


def read_examples(path: Path, rows: int | None = None) -> pa.Table:
    """Read `examples.parquet` and believe no column that is not what `table` writes.

    Columns beyond those are left alone.

    Args:
        path: the file.
        rows: how many the run has examples, which is looked at before they are read.

    Raises:
        InputError: damaged, or not such a file.
    """
    file = open_parquet(path)
    if rows is not None and len(file) != rows:
        raise InputError(
            f"{path} has {len(file):,} rows, but the run has {rows:,} examples: write it again "
            f"with proselflc audit {path.parent}"
        )
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


def check_examples(table: pa.Table, labels: Labels, path: Path) -> None:
    """Refuse `examples.parquet` of other examples, or of some of them alone.

    Args:
        table: as `read_examples` gives it.
        labels: of the same run.
        path: of the file, for the message.

    Raises:
        InputError: its rows are not those of the labels, one for each and in their order.
    """
    ids = tuple(table["id"].to_pylist())
    if ids != labels.ids:
        at = next(
            (k for k, two in enumerate(zip(ids, labels.ids, strict=False)) if two[0] != two[1]),
            None,
        )
        how = f"it has {len(ids):,} rows for {len(labels.ids):,} labels"
        if at is not None:
            how = f'its row {at} is of "{ids[at]}" and the label there of "{labels.ids[at]}"'
        raise InputError(
            f"{path} is not of the same run as its labels, {how}: restore it from a copy, or make "
            f"it anew with proselflc audit {path.parent}"
        )


@dataclass(frozen=True)
class _Past:
    """What all epochs together say, each [n]; NaN or −1 where there is nothing."""

    learned: npt.NDArray[np.int32]
    flips: npt.NDArray[np.int32]
    trust: Floats
    entropy: Floats


def _past(records: Records, given: Ints) -> _Past:
    n = len(given)
    learned = np.full(n, -1, np.int32)
    flips = np.zeros(n, np.int32)
    sums = {name: np.zeros(n, np.float32) for name in ("trust", "entropy")}
    count = np.zeros(n, np.float32)
    predicted = np.full(n, -1, np.int32)
    epochs = len(records.observed)
    for e, epoch in enumerate(records.observed):
        seen = ~np.isnan(epoch["p_given"])
        now = np.where(seen, epoch["predicted"], predicted).astype(np.int32)
        flips += (now != predicted) & (predicted >= 0)
        learned[seen & (now == given) & (learned < 0)] = e
        predicted = now
        if e >= epochs - recent_epochs(epochs):
            count[seen] += 1
            for name, values in sums.items():
                values[seen] += epoch[name][seen]
    with np.errstate(invalid="ignore"):
        means = {name: values / count for name, values in sums.items()}
    return _Past(learned, flips, **means)


def _listed(chances: Floats, names: pa.Array) -> pa.ListArray:
    """[rows, C] as lists of C numbers, or of the five largest, the first of equals first."""
    import pyarrow as pa

    m, C = chances.shape
    if C <= MANY_CLASSES:
        return _lists(pa.array(chances.reshape(-1)), m, C)
    width = TOP_CLASSES
    # The five largest first: to put a thousand classes in order takes ten times as long.
    largest = np.sort(np.argpartition(-chances, width - 1, axis=1)[:, :width], 1)
    values = np.take_along_axis(chances, largest, 1)
    order = np.argsort(-values, axis=1, kind="stable")
    classes = np.take_along_axis(largest, order, 1)
    return _five(classes, np.take_along_axis(values, order, 1), names)


def _five(classes: Ints, p: Floats, names: pa.Array) -> pa.ListArray:
    """Return classes and their chances, [rows, 5] each, as lists of structs."""
    import pyarrow as pa

    cells = pa.StructArray.from_arrays(
        [names.take(pa.array(classes.reshape(-1))), pa.array(p.reshape(-1))], names=["label", "p"]
    )
    return _lists(cells, *classes.shape)


def _lists(cells: pa.Array, rows: int, width: int) -> pa.ListArray:
    import pyarrow as pa

    offsets = np.arange(0, rows * width + 1, width, dtype=np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), cells)


def _known(chances: Likeliest, given: Ints, unseen: Bools) -> Likeliest:
    """Return the chances with the given label alone where nothing was seen."""
    classes, p = chances.classes.copy(), chances.p.copy()
    first = np.arange(classes.shape[1])
    # The given label, then the first of the others.
    classes[unseen] = np.where(first - 1 < given[unseen, None], first - 1, first)
    classes[unseen, 0] = given[unseen]
    p[unseen] = first == 0
    return Likeliest(classes, p, chances.of_suggested)


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
