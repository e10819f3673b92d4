"""`proselflc audit`: which labels of a run are probably wrong, judged anew."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from proselflc.auditing import suspects
from proselflc.auditing.audit import Audit
from proselflc.auditing.doubts import doubts
from proselflc.auditing.examples import write_parquet
from proselflc.auditing.suspect_pairs import suspect_pairs
from proselflc.data.dataset import Dataset
from proselflc.errors import InputError, printable
from proselflc.pages.names import in_ten
from proselflc.run import folds as folds_of
from proselflc.run.export_advice import export_command
from proselflc.run.folds import Data
from proselflc.run.reader import Run, load_run
from proselflc.run.summary import label_summary
from proselflc.terminal.display import Display, Silent
from proselflc.training.run_directory import Json

if TYPE_CHECKING:
    import pyarrow as pa

PAIRS = 5  # of given and suggested label that are told
_ID, _NAME = 44, 24  # characters of an id and of a class name that are shown
_MADE_ANEW = ("examples", "audit", "summary")


def audit(
    run: Run | str | Path,
    *,
    folds: int | None = None,
    dataset: Dataset | None = None,
    data: str | None = None,
    model: str | None = None,
    display: Display | None = None,
) -> Audit:
    """Judge the labels of a finished run anew: `examples.parquet`, `audit.json` and the summary.

    Args:
        run: a run or its directory.
        folds: train so many models, each without a part of the examples, and judge every label by
            the one that has not seen it; 0 for what was seen in training, even if there have been
            folds; None for folds if there have been any.
        dataset: the data that the run was made from, for folds of what was given in Python.
        data: where the data is now, if it has moved; for folds.
        model: `package.module:factory`, for folds of a run whose model is the user's own.
        display: who is told how folds go; left out, nobody.

    Raises:
        InputError: the run is missing, unfinished, damaged, in use or without dynamics; or folds
            of it cannot be made.
        DivergenceError: the loss of a fold is no number any more.
        Interrupted: somebody wanted it to stop; the message says how to go on.
    """
    if os.environ.get("WORLD_SIZE", "1") != "1":
        raise InputError("an audit is made by one process: start it without torchrun")
    if folds is not None and folds != 0 and folds < 2:
        raise InputError(f"--folds must be 0 or at least 2, got {folds}")
    if not isinstance(run, Run) or model is not None:
        run = load_run(run.path if isinstance(run, Run) else run, model=model)
    _check(run)
    with run.directory.locked():
        run.directory.sweep()
        directory = run.directory
        summary = directory.read_json(directory.summary, or_replaced=True)
        if folds:
            folds_of.predict(run, folds, Data(dataset, data), display or Silent(notes=False))
        records = run.records_of_training if folds == 0 else run.records
        table, audited = suspects.examine(run.labels, records)
        labels = label_summary(run.labels, table, audited)
        files = directory.examples, directory.audit, directory.audit_arrays, directory.summary
        with directory.replacing(*files):
            write_parquet(table, directory.examples)
            audited.save(directory)
            directory.write_json(directory.summary, {**summary, **labels})
    for name in _MADE_ANEW:
        vars(run).pop(name, None)  # what the run has read before
    return audited


def _check(run: Run) -> None:
    """Refuse a run that has nothing to look at, or labels of another one."""
    if next(iter(run.dynamics), None) is None:
        raise InputError(
            f"{run.path} has no dynamics: they are what an audit looks at; train it again"
        )
    if run.config.get("fingerprint") != run.labels.fingerprint:
        raise InputError(
            f"{run.directory.labels} does not hold the labels that {run.path} was trained on, "
            "their fingerprints differ: put the run's own file back"
        )


def worst(table: pa.Table, count: int) -> list[Json]:
    """So many suspects of the lowest quality, the worst first.

    Args:
        table: as `suspects.examine` makes it.
        count: how many.
    """
    columns = ("index", "id", "given_label", "suggested_label", "quality", "p_suggested")
    suspect = np.flatnonzero(table["is_suspect"].to_numpy())
    quality = table["quality"].to_numpy()[suspect]
    rows = suspect[np.argsort(quality, kind="stable")[:count]]
    found: list[Json] = table.select(columns).take(rows).to_pylist()
    return found


def pairs(table: pa.Table, count: int = PAIRS) -> list[Json]:
    """The suspects by given and suggested label: so many pairs, the most frequent first.

    Args:
        table: as `suspects.examine` makes it.
        count: how many pairs at most.
    """
    kept = ("given_label", "suggested_label", "count")
    return [{name: getattr(one, name) for name in kept} for one in suspect_pairs(table, count)]


def in_words(run: Run, audit: Audit, table: pa.Table, count: int) -> str:
    """What an audit has found, and what to do next, for a person to read.

    Args:
        run: that was audited.
        audit, table: as `suspects.examine` makes them.
        count: how many suspects to list.
    """
    lines = [*_verdict(audit)]
    config = run.config if run.directory.config.is_file() else {}
    doubted = doubts(run.history, len(audit.names), config)
    for doubt in doubted:
        lines += ["", f"But {doubt}."]
    found = suspect_pairs(table, PAIRS)
    if found:
        labelled = [
            (f"{_short(one.given_label)} → {_short(one.suggested_label)}", f"{one.count:,}")
            for one in found
        ]
        lines += ["", "Suspects, most often (given → suggested):", *_aligned(labelled)]
    listed = worst(table, count) if count else []
    if listed:
        rows = [("id", "given → suggested", "quality")]
        for one in listed:
            change = f"{_short(one['given_label'])} → {_short(one['suggested_label'])}"
            rows.append((_short(one["id"], _ID), change, f"{one['quality']:.3f}"))
        least = f"The {len(listed)} least likely to be right:" if len(listed) > 1 else "This one:"
        lines += ["", least, *_aligned(rows)]
    return "\n".join(
        [
            *lines,
            "",
            f"Every label is in {printable(str(run.directory.examples))}. Next:",
            *_next(run, suspects=audit.suspects, is_doubted=bool(doubted)),
            "",
        ]
    )


def _next(run: Run, *, suspects: int, is_doubted: bool) -> list[str]:
    """The commands that help now: nobody should take over at once what is in doubt."""
    path = printable(shlex.quote(str(run.path)))
    rows = [(f"proselflc report {path}", "# a page to look at them")]
    if suspects:
        rows.append((f"proselflc review {path}", "# decide about them by keyboard"))
    if suspects and not is_doubted:
        rows.append((export_command(run), "# the corrected labels"))
    return _aligned(rows)


def _verdict(audit: Audit) -> list[str]:
    n = audit.num_examples
    if audit.suspects:
        share = audit.suspects / n
        verb = "is" if audit.suspects == 1 else "are"
        some = f"{audit.suspects:,} of {n:,} labels {verb} suspect ({share:.1%})"
    else:
        some = f"none of {n:,} labels is suspect"
    rate = f"roughly {audit.estimated_noise_rate:.0%} are estimated to be wrong"
    if audit.realised_noise_rate is not None:
        rate += f", {audit.realised_noise_rate:.1%} really are"
    lines = [f"{some}; {rate}."]
    if audit.expected_precision is not None and audit.suspects > 1:
        lines.append(
            f"{in_ten(audit.expected_precision).capitalize()} suspects should really be wrong."
        )
    if audit.folds is not None:
        lines.append(f"Each was judged by one of {audit.folds} models that has not seen it.")
    return lines


def _short(name: object, length: int = _NAME) -> str:
    """A stranger's name as it fits into a line."""
    text = printable(str(name))
    return text if len(text) <= length else text[: length - 1] + "…"


def _aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Lines with their cells below each other."""
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    cells = ([cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in rows)
    return [("  " + "  ".join(row)).rstrip() for row in cells]
