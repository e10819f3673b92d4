"""Export of the duplicates of a run, the examples that are also in its test part, and outliers."""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING

import numpy as np

from proselflc.auditing.caveats import AuditWarning
from proselflc.auditing.neighbours import Examination
from proselflc.data.inputs import Ints
from proselflc.errors import invalid_option
from proselflc.exporting.command import Export
from proselflc.exporting.formats import FORMATS, Format, write_table
from proselflc.files.regular import whole_file
from proselflc.options import check_out
from proselflc.run import neighbours
from proselflc.run.corrections import audit_of
from proselflc.run.reader import Run
from proselflc.wording import option

if TYPE_CHECKING:
    import pyarrow as pa

_FORMATS: tuple[Format, ...] = ("csv", "parquet")
_OF_LABELS = (
    *("copy", "links", "link", "soft", "min_confidence", "reviewed", "only_suspects"),
    *("suspects", "force", "fill"),
)


@dataclass(frozen=True)
class DuplicateExport:
    """What was written.

    Attributes:
        examples: number of rows.
        groups: number of groups of examples with the same content.
        conflicting: number of examples in groups with different labels.
        in_test: number of examples that are also in the test part.
        outliers: number of examples that are far from all others.
        written: paths of files by option.
        notes: sentences about what may be unexpected.
        warnings: reasons to be careful with the audit.
    """

    examples: int
    groups: int
    conflicting: int
    in_test: int
    outliers: int
    written: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    warnings: tuple[AuditWarning, ...] = ()


def check(options: Export) -> None:
    """Refuse options that are about labels, before anything is read."""
    for name in _OF_LABELS:
        if getattr(options, name) != getattr(Export, name):  # the default
            raise invalid_option(
                name, f"is about labels, not about {option('what', 'duplicates')}", fix="omit it"
            )
    if options.kind not in _FORMATS:
        raise invalid_option("format", f"must be csv or parquet for duplicates, got {options.kind}")
    if options.out is not None:
        kinds = _FORMATS if options.format is None else (options.format,)
        suffixes = tuple(suffix for kind in kinds for suffix in FORMATS[kind].suffixes)
        check_out(options.out, options.overwrite, suffixes)


def export(run: Run, options: Export, stream: IO[bytes] | None = None) -> DuplicateExport:
    """Write the list to the file that the options name and to a stream, such as standard output.

    The neighbours of a run that has none are found from its data first.
    """
    check(options)
    found = Examination.of(neighbours.of_run(run, data=options.data), run.labels.given)
    listed = table(run, found)
    written = {}
    if options.out is not None:
        with whole_file(options.out) as file:
            write_table(listed, file, options.out.suffix.lower())
        written["out"] = str(options.out)
    if stream is not None:
        buffer = io.BytesIO()  # Parquet needs to seek
        write_table(listed, buffer, FORMATS[options.kind].suffixes[0])
        stream.write(buffer.getvalue())
    return DuplicateExport(
        examples=len(listed),
        groups=int(found.duplicate_group.max(initial=-1)) + 1,
        conflicting=int(found.conflicting.sum()),
        in_test=int(found.in_test.sum()),
        outliers=int(found.is_outlier.sum()),
        written=written,
        notes=run.notes,
        warnings=() if (audit := audit_of(run)) is None else audit.warnings,
    )


def table(run: Run, found: Examination) -> pa.Table:
    """Return a row per duplicate, leaked example or outlier, conflicting duplicates first.

    | column | holds |
    |---|---|
    | `id` | the example's name |
    | `given_label` | its label; null if it has none |
    | `duplicate_group` | number of the group of examples with the same content; null for none |
    | `conflicting` | whether labels of the group differ, so that some of them are wrong |
    | `in_test` | whether a test example has the same content |
    | `test_index` | position of that example in the test part; null for none |
    | `is_outlier` | whether it is far from all other examples |
    | `outlier` | mean distance to its neighbours over the usual one; **high means unusual** |
    """
    import pyarrow as pa

    rows = in_order(found)
    group, test = found.duplicate_group[rows], found.neighbours.test_index[rows]
    given = run.labels.given[rows]
    names = pa.array(run.labels.names, pa.string())
    return pa.table(
        {
            "id": pa.array([run.labels.ids[i] for i in rows], pa.string()),
            "given_label": names.take(pa.array(given, mask=given < 0)),
            "duplicate_group": pa.array(group, mask=group < 0),
            "conflicting": pa.array(found.conflicting[rows]),
            "in_test": pa.array(found.in_test[rows]),
            "test_index": pa.array(test, mask=~found.in_test[rows]),
            "is_outlier": pa.array(found.is_outlier[rows]),
            "outlier": pa.array(found.outlier[rows]),
        }
    )


def in_order(found: Examination) -> Ints:
    """Return the positions of the listed examples.

    Groups with different labels come first, then other groups, then examples that are also in the
    test part, then outliers, the farthest first.
    """
    group = found.duplicate_group.astype(np.int64)
    conflicts = np.isin(group, group[found.conflicting])
    kind = np.select([conflicts, group >= 0, found.in_test, found.is_outlier], range(4), 4)
    within = np.where(group >= 0, group, np.where(kind == 3, -found.outlier, 0))
    order = np.lexsort((np.arange(len(group)), within, kind))
    rows: Ints = order[kind[order] < 4]
    return rows
