"""`examples.parquet`: one row per training example, with the audit's scores of its label."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from proselflc.auditing.neighbours import Examination
from proselflc.auditing.records import Records
from proselflc.data.inputs import Bools, Floats, Ints
from proselflc.data.labels import Labels
from proselflc.data.tables.parquet import open_parquet
from proselflc.errors import InputError
from proselflc.files.regular import whole_file
from proselflc.training.observations import TOP_CLASSES, recent_epochs
from proselflc.wording import command

if TYPE_CHECKING:
    import pyarrow as pa

ACTIONS = ("keep", "review", "change")
MANY_CLASSES = 100  # above which a corrected distribution is kept as its five largest classes


class TopClasses(NamedTuple):
    """The five likeliest true classes of N examples.

    Attributes:
        classes: [N, 5] likeliest first.
        p: [N, 5] their chances.
        of_suggested: [N] chance of the suggested class.
    """

    classes: Ints
    p: Floats
    of_suggested: Floats


@dataclass(frozen=True)
class LabelScores:
    """The audit's scores of n labels.

    Attributes:
        quality: [n] estimated chance that the given label is right, in [0, 1]; **low means
            probably mislabelled**; NaN for an example that was never seen.
        suggested: [n] what the label should be; the given one unless it is suspect.
        change: [n] whether the suggestion is followed without asking a person.
        witness: [n] the likeliest class by predictions that did not see the label, or None.
        distribution: takes a slice of examples and returns [rows, C], the estimated chance of each
            class to be the true one, arbitrary for examples that were never seen. Beyond
            `memory_budget.DENSE_CLASSES` classes it returns the five likeliest.
    """

    quality: Floats
    suggested: Ints
    change: Bools
    witness: Ints | None
    distribution: Callable[[slice], Floats | TopClasses]


def table(
    labels: Labels,
    records: Records,
    scores: LabelScores,
    examination: Examination | None = None,
) -> pa.Table:
    """Return one row per training example that has a label, in their order.

    | column | holds |
    |---|---|
    | `index`, `id` | the example's position and name |
    | `given_label` | the label that was learned from |
    | `suggested_label` | what it should be; the given one unless it is suspect |
    | `is_suspect` | whether the given label is more likely wrong than right |
    | `action` | what the audit would do: `keep` the label, ask for a `review`, or `change` it to \
the suggested one |
    | `quality` | estimated chance that the given label is right, in [0, 1]; **low means probably \
mislabelled** |
    | `witness` | the class by a model that did not see this label; null without one |
    | `trust`, `entropy` | ε and H(p), averaged over the last quarter of the epochs, at least two; \
null if it was not seen in these |
    | `p_given`, `p_suggested` | estimated chance of the two labels to be the true one |
    | `first_learned_epoch` | the first epoch, from 0, that predicted the given label, or null |
    | `flips` | how often the predicted class changed from one epoch that saw it to the next |
    | `corrected_distribution` | that chance for every class: C numbers, or for more than 100 \
classes the five largest as structs {label, p}, the largest first |
    | `duplicate_group` | number of the examples with the same content; null if there is no other |
    | `conflicting` | whether one of them has another label |
    | `in_test` | whether a test example has the same content |
    | `outlier` | mean distance to the nearest examples, where 1 is usual |
    | `clean_label` | the true label, a column only where that is known |

    The four columns about the content are there only if the inputs could be compared. Examples in
    conflict are to be reviewed, even if their own label is not suspect.

    Examples without a label are added to it by `run.unlabelled`: `given_label`, `quality` and
    `p_given` are null, the suggested label is the predicted one, and the action is `review`.

    An example that was never seen keeps its label: the corrected distribution is that label's, and
    quality and p are null.
    """
    import pyarrow as pa

    names = pa.array(labels.names, pa.string())
    actions = pa.array(ACTIONS, pa.string())
    change, witness = scores.change.astype(np.int8), scores.witness
    asked = scores.suggested != labels.given
    if examination is not None:
        asked |= examination.conflicting
    dynamics = _dynamics(records, labels.given)
    tables = []
    for rows in records.slices(len(labels.given), len(names)):
        given, suggested = labels.given[rows], scores.suggested[rows]
        quality = scores.quality[rows]
        chances = scores.distribution(rows)
        unknown = pa.nulls(len(given), pa.string())
        unseen, learned = np.isnan(quality), dynamics.first_learned[rows]
        if isinstance(chances, TopClasses):
            top = _with_unseen(chances, given, unseen)
            p_suggested = chances.of_suggested
            distribution = top_lists(top.classes, top.p, names)
        else:
            chances[unseen] = 0
            chances[unseen, given[unseen]] = 1
            p_suggested = chances[np.arange(len(given)), suggested]
            distribution = distribution_lists(chances, names)
        columns = {
            "index": pa.array(np.arange(rows.start, rows.stop)),
            "id": pa.array(labels.ids[rows], pa.string()),
            "given_label": names.take(pa.array(given)),
            "suggested_label": names.take(pa.array(suggested)),
            "is_suspect": pa.array(suggested != given),
            "action": actions.take(pa.array(asked[rows].astype(np.int8) + change[rows])),
            "quality": _nullable(quality),
            "witness": unknown if witness is None else names.take(pa.array(witness[rows])),
            "trust": _nullable(dynamics.trust[rows]),
            "entropy": _nullable(dynamics.entropy[rows]),
            "p_given": _nullable(quality),
            "p_suggested": _nullable(np.where(unseen, np.float32(np.nan), p_suggested)),
            "first_learned_epoch": pa.array(learned, mask=learned < 0),
            "flips": pa.array(dynamics.flips[rows]),
            "corrected_distribution": distribution,
        }
        if examination is not None:
            groups = examination.duplicate_group[rows]
            columns["duplicate_group"] = pa.array(groups, mask=groups < 0)
            columns["conflicting"] = pa.array(examination.conflicting[rows])
            columns["in_test"] = pa.array(examination.in_test[rows])
            columns["outlier"] = pa.array(examination.outlier[rows])
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
    """Return the columns of `examples.parquet` that `table` writes; others are ignored.

    Args:
        path: the file.
        rows: number of examples of the run, which is checked before anything is read.
    """
    file = open_parquet(path)
    if rows is not None and len(file) != rows:
        raise InputError(
            f"{path} has {len(file):,} rows, but the run has {rows:,} examples",
            fix=_audit_again(path),
        )
    wanted = _types()
    missing = [name for name in wanted if name not in (*file.columns, *_MAY_BE_MISSING)]
    if missing:
        raise InputError(f'{path} has no column "{missing[0]}", so it is not from a run')
    columns = file.read([name for name in wanted if name in file.columns])
    for name, kind in zip(columns.column_names, columns.schema.types, strict=True):
        if kind not in wanted[name]:
            raise InputError(
                f'the column "{name}" of {path} holds {kind}, expected '
                f"{' or '.join(str(k) for k in wanted[name])}",
                fix=_audit_again(path),
            )
    _check_values(columns, path)
    return columns


def check_examples(table: pa.Table, labels: Labels, path: Path) -> None:
    """Refuse `examples.parquet` whose rows are not the examples of the labels, in their order.

    Args:
        table: as `read_examples` returns it.
        labels: the labels of the same run.
        path: the file, for the message.
    """
    ids, expected_ids = tuple(table["id"].to_pylist()), labels.all_ids
    if ids == expected_ids:
        is_labelled = table["given_label"].is_valid().to_numpy()
        if not np.array_equal(is_labelled, labels.is_labelled):
            raise InputError(
                f"{path} does not belong to the labels of the run: others are missing",
                fix=f"restore it from a copy, or {_audit_again(path)}",
            )
        return
    pairs = enumerate(zip(ids, expected_ids, strict=False))
    row = next((k for k, (found, expected) in pairs if found != expected), None)
    difference = f"it has {len(ids):,} rows for {len(expected_ids):,} labels"
    if row is not None:
        difference = f'row {row} is "{ids[row]}", but the label there is of "{expected_ids[row]}"'
    raise InputError(
        f"{path} does not belong to the labels of the run, {difference}",
        fix=f"restore it from a copy, or {_audit_again(path)}",
    )


def _audit_again(path: Path) -> str:
    return f"write it again with {command('audit', path.parent)}"


@dataclass(frozen=True)
class _Dynamics:
    """Columns computed from all epochs together, each [n]; NaN or −1 where nothing is known."""

    first_learned: npt.NDArray[np.int32]
    flips: npt.NDArray[np.int32]
    trust: Floats
    entropy: Floats


def _dynamics(records: Records, given: Ints) -> _Dynamics:
    n = len(given)
    first_learned = np.full(n, -1, np.int32)
    flips = np.zeros(n, np.int32)
    sums = {name: np.zeros(n, np.float32) for name in ("trust", "entropy")}
    count = np.zeros(n, np.float32)
    predicted = np.full(n, -1, np.int32)
    epochs = len(records.observed)
    for e, epoch in enumerate(records.observed):
        recorded = ~np.isnan(epoch["p_given"])
        now = np.where(recorded, epoch["predicted"], predicted).astype(np.int32)
        flips += (now != predicted) & (predicted >= 0)
        first_learned[recorded & (now == given) & (first_learned < 0)] = e
        predicted = now
        if e >= epochs - recent_epochs(epochs):
            count[recorded] += 1
            for name, values in sums.items():
                values[recorded] += epoch[name][recorded]
    with np.errstate(invalid="ignore"):
        means = {name: values / count for name, values in sums.items()}
    return _Dynamics(first_learned, flips, **means)


def distribution_lists(chances: Floats, names: pa.Array) -> pa.ListArray:
    """Return [rows, C] as lists of C numbers, or of the five largest, ties by class."""
    import pyarrow as pa

    m, C = chances.shape
    if C <= MANY_CLASSES:
        return _lists(pa.array(chances.reshape(-1)), m, C)
    width = TOP_CLASSES
    # Sorting a thousand classes takes ten times as long as finding the five largest.
    largest = np.sort(np.argpartition(-chances, width - 1, axis=1)[:, :width], 1)
    values = np.take_along_axis(chances, largest, 1)
    order = np.argsort(-values, axis=1, kind="stable")
    classes = np.take_along_axis(largest, order, 1)
    return top_lists(classes, np.take_along_axis(values, order, 1), names)


def top_lists(classes: Ints, p: Floats, names: pa.Array) -> pa.ListArray:
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


def _with_unseen(chances: TopClasses, given: Ints, unseen: Bools) -> TopClasses:
    """Return the chances with the given label alone for examples that were never seen."""
    classes, p = chances.classes.copy(), chances.p.copy()
    first = np.arange(classes.shape[1])
    # The given label, then the first of the others.
    classes[unseen] = np.where(first - 1 < given[unseen, None], first - 1, first)
    classes[unseen, 0] = given[unseen]
    p[unseen] = first == 0
    return TopClasses(classes, p, chances.of_suggested)


def _nullable(values: Floats) -> pa.Array:
    import pyarrow as pa

    return pa.array(values, pa.float32(), mask=np.isnan(values))


def _types() -> dict[str, tuple[pa.DataType, ...]]:
    """Return the columns of `examples.parquet`, in order, and the types each may have."""
    import pyarrow as pa

    text, number = pa.string(), pa.float32()
    five = pa.list_(pa.struct([("label", text), ("p", number)]))
    return {
        "index": (pa.int64(),),
        "id": (text,),
        "given_label": (text,),
        "suggested_label": (text,),
        "is_suspect": (pa.bool_(),),
        "action": (text,),
        "quality": (number,),
        "witness": (text,),
        "trust": (number,),
        "entropy": (number,),
        "p_given": (number,),
        "p_suggested": (number,),
        "first_learned_epoch": (pa.int32(),),
        "flips": (pa.int32(),),
        "corrected_distribution": (pa.list_(number), five),
        "duplicate_group": (pa.int32(),),
        "conflicting": (pa.bool_(),),
        "in_test": (pa.bool_(),),
        "outlier": (number,),
        "clean_label": (text,),
    }


_MAY_BE_MISSING = (
    "action",  # in a run of an older version
    "witness",
    "duplicate_group",
    "conflicting",
    "in_test",
    "outlier",
    "clean_label",
)
_NULL_WITHOUT_LABEL = ("given_label", "outlier", "clean_label")
_MAY_BE_NULL = (
    "witness",
    "duplicate_group",
    "quality",
    "trust",
    "entropy",
    "p_given",
    "p_suggested",
    "first_learned_epoch",
)


def _check_values(table: pa.Table, path: Path) -> None:
    """Refuse empty cells, rows out of order and chances outside [0, 1]."""
    fix = _audit_again(path)
    without = table["given_label"].null_count
    for name in table.column_names:
        allowed = without if name in _NULL_WITHOUT_LABEL else 0
        if table[name].null_count != allowed and name not in _MAY_BE_NULL:
            raise InputError(f'the column "{name}" of {path} has empty cells', fix=fix)
    if not np.array_equal(table["index"].to_numpy(), np.arange(len(table))):
        raise InputError(f"the rows of {path} are not numbered from 0 in order", fix=fix)
    for name in ("quality", "p_given", "p_suggested"):
        numbers = table[name].drop_null().to_numpy()
        if not ((numbers >= 0) & (numbers <= 1)).all():
            raise InputError(f'the column "{name}" of {path} holds numbers outside 0 … 1', fix=fix)
