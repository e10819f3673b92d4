"""`proselflc audit`: an audit of the labels of a finished run, and its result as text."""

from __future__ import annotations

import itertools
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from proselflc.auditing import held_out, verdict, witness
from proselflc.auditing.audit import Audit
from proselflc.auditing.caveats import LEAK, NARROWED, REVIEWED, AuditWarning, label_warnings
from proselflc.auditing.detection import suspect_pairs
from proselflc.auditing.examples import write_parquet
from proselflc.auditing.measured import Reviewed, in_words
from proselflc.auditing.records import Records, Witness
from proselflc.data.dataset import Dataset
from proselflc.data.request import COPIES, FROM_PYTHON, is_table, table_suffix
from proselflc.errors import InputError, invalid_option, printable
from proselflc.pages.values import format_chance, share_in_words
from proselflc.run import audit_words, neighbours, original
from proselflc.run import folds as folds_of
from proselflc.run.audit_words import PAIRS, given_to_suggested, indented, short_id, short_name
from proselflc.run.folds import Data
from proselflc.run.reader import Run, epochs_of, load_run
from proselflc.run.summary import label_summary
from proselflc.run.unlabelled import with_unlabelled
from proselflc.terminal import Display, Silent
from proselflc.training.run_directory import Json
from proselflc.wording import command

if TYPE_CHECKING:
    import pyarrow as pa

_REWRITTEN = ("examples", "audit", "summary")


def audit(
    run: Run | str | Path,
    *,
    folds: int | None = None,
    dataset: Dataset | None = None,
    data: str | None = None,
    model: str | None = None,
    display: Display | None = None,
) -> Audit:
    """Audit the labels of a finished run; rewrite `examples.parquet`, `audit.json` and the summary.

    Args:
        run: a run or its directory.
        folds: number of folds; trains one model per fold, and each label is assessed by the model
            that has not seen it. 0 uses the records of training alone; None uses folds if they
            have been trained before.
        dataset: the data of the run, for folds of data that was given in Python.
        data: the present location of the data, if it has moved; for folds.
        model: `package.module:factory`, for folds of a run whose model is the user's own.
        display: shows the progress of folds; by default nothing is shown.

    Raises:
        InputError: the run is missing, unfinished, damaged, in use or without dynamics; or its
            folds cannot be trained.
        DivergenceError: the loss of a fold became NaN or infinite.
        Interrupted: the audit was stopped; the message says how to continue.
    """
    if os.environ.get("WORLD_SIZE", "1") != "1":
        raise InputError("an audit runs in one process", fix="start it without torchrun")
    if folds is not None and folds != 0 and folds < 2:
        raise invalid_option("folds", f"must be 0 or at least 2, got {folds}")
    if not isinstance(run, Run) or model is not None:
        run = load_run(run.path if isinstance(run, Run) else run, model=model)
    _check(run)
    if dataset is None:
        with suppress(InputError):  # an audit without neighbours is an audit too
            neighbours.of_run(run, data=data)
    with run.directory.locked():
        run.directory.sweep()
        directory = run.directory
        summary = directory.read_json(directory.summary, or_replaced=True)
        if folds:
            folds_of.predict(run, folds, Data(dataset, data), display or Silent())
        held = None if folds == 0 else held_out.of_run(directory, run.labels)
        second, is_new = _witness(run, Data(dataset, data))
        records = Records(epochs_of(directory), held, second)
        warnings = (*label_warnings(run.config), *_about_columns(run))
        examination = None
        with suppress(InputError):  # a damaged file of neighbours is found again by an export
            examination = neighbours.examination(run)
        reviewed = Reviewed.of(run.decisions, run.labels)
        table, audited = verdict.audit_labels(
            run.labels, records, warnings, examination, reviewed=reviewed
        )
        labels = label_summary(run.labels, table, audited)
        whole = with_unlabelled(table, run.labels, directory)
        files = [directory.examples, directory.audit, directory.audit_arrays, directory.summary]
        with directory.replacing(*files, directory.witness):
            if second is not None and is_new:
                witness.write(directory, second)
            write_parquet(whole, directory.examples)
            audited.save(directory)
            directory.write_json(directory.summary, {**summary, **labels})
    for name in _REWRITTEN:
        vars(run).pop(name, None)  # cached before
    return audited


def _witness(run: Run, data: Data) -> tuple[Witness | None, bool]:
    """Return a second opinion on the labels of a run, or None, and whether it was computed now.

    It is computed if the run has none, or a damaged one.
    """
    try:
        kept = run.records_of_training.witness
    except InputError:
        found = _second_opinion(run, data)
        if found is None:
            raise
        return found, True
    return (_second_opinion(run, data), True) if kept is None else (kept, False)


def _second_opinion(run: Run, data: Data) -> Witness | None:
    """Return a second opinion on the labels of a run, or None if its inputs cannot be compared."""
    labels, preprocessing = run.labels, None
    with suppress(InputError):  # a recorded run has none
        preprocessing = run.preprocessing
    with suppress(InputError):
        try:
            inputs = folds_of.examples_of(run, data).train.inputs
        except InputError:
            inputs = original.inputs(run, data=data.path)  # those that are kept in the run
        return witness.of_inputs(inputs, labels.given, len(labels.names), preprocessing)
    return None


def _about_columns(run: Run) -> list[AuditWarning]:
    """Return the warnings about columns of the data, which training has kept."""
    with suppress(InputError):  # an audit that is damaged or missing is made again
        return [warning for warning in run.audit.warnings if warning.code == LEAK]
    return []


def _check(run: Run) -> None:
    """Refuse a run without records, or with the labels of another run."""
    if next(iter(run.dynamics), None) is None:
        raise InputError(f"{run.path} has no dynamics, which an audit needs", fix="train it again")
    if run.config.get("fingerprint") != run.labels.fingerprint:
        raise InputError(
            f"{run.directory.labels} does not hold the labels that {run.path} was trained on, "
            "their fingerprints differ",
            fix="restore the run's own file",
        )


def worst_suspects(table: pa.Table, count: int) -> list[dict[str, Any]]:
    """Return the suspects of the lowest quality in a table of examples, the worst first."""
    columns = ("index", "id", "given_label", "suggested_label", "quality", "p_suggested")
    suspect = np.flatnonzero(table["is_suspect"].to_numpy())
    quality = table["quality"].to_numpy()[suspect]
    rows = suspect[np.argsort(quality, kind="stable")[:count]]
    found: list[dict[str, Any]] = table.select(columns).take(rows).to_pylist()
    return found


def pairs(table: pa.Table, count: int = PAIRS) -> list[Json]:
    """Return the most frequent pairs of given and suggested label among the suspects."""
    names = ("given_label", "suggested_label", "count")
    return [{name: getattr(pair, name) for name in names} for pair in suspect_pairs(table, count)]


def describe(run: Run, audit: Audit, table: pa.Table, count: int) -> str:
    """Return the result of an audit as text, with commands to run next."""
    lines = [*_verdict(audit)]
    for caution in cautions(run, audit):
        lines += ["", caution]
    lines += _conflicts(table, count)
    found = suspect_pairs(table, PAIRS)
    if found:
        labelled = [
            (given_to_suggested(pair.given_label, pair.suggested_label), f"{pair.count:,}")
            for pair in found
        ]
        lines += ["", "Most frequent suspects (given → suggested):", *indented(labelled)]
    listed = worst_suspects(table, count) if count else []
    if listed:
        rows = [("id", "given → suggested", "quality")]
        for row in listed:
            change = given_to_suggested(row["given_label"], row["suggested_label"])
            rows.append((short_id(row["id"]), change, format_chance(row["quality"])))
        least = (
            f"The {len(listed)} least likely to be right:" if len(listed) > 1 else "The suspect:"
        )
        lines += ["", least, *indented(rows)]
    return "\n".join(
        [
            *lines,
            "",
            f"Every label is in {printable(str(run.directory.examples))}. Next:",
            *_next(run, audit),
            "",
        ]
    )


def _conflicts(table: pa.Table, count: int) -> list[str]:
    """Return lines about examples with the same content and different labels; none without any."""
    if "conflicting" not in table.column_names:
        return []
    conflicting = table["conflicting"].fill_null(False).to_numpy()
    rows = np.flatnonzero(conflicting)
    if not len(rows):
        return []
    groups = table["duplicate_group"].take(rows).to_numpy()
    shown = rows[np.argsort(groups, kind="stable")][:count]
    listed = [
        (short_id(row["id"]), short_name(row["given_label"]))
        for row in table.select(("id", "given_label")).take(shown).to_pylist()
    ]
    many = len(set(groups.tolist()))
    where = "1 group" if many == 1 else f"{many:,} groups"
    text = f"{len(rows):,} examples in {where} of duplicates have different labels; review them"
    if not count:
        return ["", f"{text} first."]
    return ["", f"{text} first:", *indented([("id", "given"), *listed])]


def cautions(run: Run, audit: Audit, *, abstaining: bool = False) -> list[str]:
    """Return a line for each reason to be careful with an audit, or not to use it at all."""
    return [
        printable(f"Caution: {warning.about(run.path)}.")
        for warning in audit.warnings
        if warning.abstains or not abstaining
    ]


def _next(run: Run, audit: Audit) -> list[str]:
    """Return commands to run next; corrected labels are only offered where some are sure."""
    rows = [(_command("report", run), "# a page about them")]
    if any(warning.code == "wide_range" for warning in audit.warnings):
        size = REVIEWED if audit.measured is None else NARROWED
        rows.append(
            (_command("review", run, sample=str(size)), "# measure the share of wrong ones")
        )
    if audit.suspects:
        rows.append((_command("review", run), "# review them with the keyboard"))
    if audit.changes:
        rows.append((export_command(run), "# the corrected labels"))
    return indented(rows)


def export_command(run: Run, data: str | None = None) -> str:
    """Return the command that writes a run's corrected labels in the form of its own labels."""
    config = run.config if run.directory.config.is_file() else {}
    if "noise" not in config:  # the labels on the disk are right if noise was added
        source = str(config.get("data", "")) if data is None else data
        tables = [one for one in (str(config.get("labels", "")), source) if is_table(one)]
        if tables:
            suffix = table_suffix(tables[0])
            suffix += ".gz" if tables[0].lower().endswith(".gz") else ""
            copy = _free_name("corrected", suffix if suffix in COPIES else ".csv")
            return _command("export", run, copy=copy, data=data)
        if source != FROM_PYTHON and _has_image_files(run, Path(source)):
            return _command("export", run, links=_free_name("sorted"), data=data)
    return _command("export", run, out=_free_name("labels", ".csv"))


def _command(name: str, run: Run, **options: str | None) -> str:
    return printable(command(name, run.path, **options))


def _has_image_files(run: Run, folder: Path) -> bool:
    """Return whether the examples are files in a folder that is not above the current one.

    Links that are made inside the data would be read as classes of it.
    """
    if not folder.name or not run.directory.labels.is_file():
        return False
    is_inside = Path.cwd().is_relative_to(folder.resolve())
    return not is_inside and bool(run.labels.ids) and (folder / run.labels.ids[0]).is_file()


def _free_name(stem: str, suffix: str = "") -> str:
    """Return a name that does not exist in the current folder."""
    names = (f"{stem}{suffix}" if k == 1 else f"{stem}-{k}{suffix}" for k in itertools.count(1))
    return next(name for name in names if not Path(name).exists())


def _verdict(audit: Audit) -> list[str]:
    n = audit.num_examples
    if audit.suspects:
        share = audit.suspects / n
        verb = "is" if audit.suspects == 1 else "are"
        some = f"{audit.suspects:,} of {n:,} labels {verb} suspect ({share:.1%})"
    else:
        some = f"None of {n:,} labels is suspect"
    if audit.changes:
        some += f", {audit.changes:,} of them sure enough to be changed"
    rate = f"about {audit.estimated_noise_rate:.1%} are estimated to be wrong"
    if audit.noise_low is not None and audit.noise_high is not None:
        rate += f" ({audit.noise_low:.1%} to {audit.noise_high:.1%})"
    if audit.abstains:
        some, rate = "No label is called suspect", "how many are wrong is not known"
    if audit.realised_noise_rate is not None:
        rate += f", {audit.realised_noise_rate:.1%} really are"
    lines = [f"{some}; {rate}."]
    if audit.measured is not None:
        really = audit.realised_noise_rate
        known = "" if really is None else f" {really:.1%} really are."
        lines = [f"{some}.", in_words(audit.measured) + known]
    elif audit.expected_precision is not None and audit.suspects > 1:
        words = share_in_words(audit.expected_precision).capitalize()
        lines.append(f"{words} suspects should really be wrong.")
    if audit.unlabelled:
        lines.append(audit_words.unlabelled(audit.unlabelled))
    if audit.judge is not None and audit.judge.kind is not None:
        lines.append(
            f"A second opinion ({short_id(audit.judge.kind)}) that did not see the labels is right "
            f"for about {audit.judge.accuracy:.0%} of the examples."
        )
    if audit.folds is not None:
        lines.append(f"Each was assessed by one of {audit.folds} models that had not seen it.")
    return lines
