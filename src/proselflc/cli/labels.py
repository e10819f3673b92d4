"""Commands that work with the labels of a run: `audit`, `report`, `export` and `review`."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from proselflc.errors import InputError, RunError, invalid_option, printable
from proselflc.exporting.formats import FORMATS, Format
from proselflc.options import Whole, check_out
from proselflc.terminal import chosen, print_json, say, say_notes
from proselflc.wording import option

if TYPE_CHECKING:
    from proselflc.exporting.command import Export
    from proselflc.run.outside_audit import OutsideAudit


def audit(
    run: Path | None = None,
    /,
    *,
    folds: Whole | None = None,
    worst: Whole = 10,
    model: str | None = None,
    data: str | None = None,
    part: Literal["train", "test"] | None = None,
    pred_probs: Path | None = None,
    labels: Path | None = None,
    label_column: str | None = None,
    id_column: str | None = None,
    out: Path | None = None,
    overwrite: bool = False,
    quiet: bool = False,
    json: bool = False,
) -> None:
    """List labels that are probably wrong, with suggested corrections.

    The labels are those of a finished run, or of a file together with any model's out-of-sample
    probabilities.

    Args:
        run: run directory.
        folds: number of folds for out-of-fold predictions; trains one model per fold, and judges
            every label by the model that was not trained on it. 0 uses the predictions recorded
            during training (default: the folds of an earlier audit, if any, otherwise 0).
        worst: number of suspects to list.
        model: package.module:factory, for a run whose model is your own code; for folds and the
            test part.
        data: current location of the run's data, if it has moved; for folds and the test part.
        part: part of the run's data to audit (default: train); the labels of the test part were
            not learned, and nothing in the run is changed.
        pred_probs: out-of-sample probabilities of your own model, instead of a run: .npy, .npz, or
            a table with one column per class.
        labels: labels to audit by --pred-probs: a table, .npy, .npz, or .txt with one per line.
        label_column: column of the table that holds the labels; for --labels.
        id_column: column of the tables that holds ids; for --pred-probs and --labels.
        out: file for one row per label, .csv, .tsv or .parquet; for --pred-probs and --part test.
        overwrite: replace an existing file; for --out.
        quiet: show no progress.
        json: print the result as JSON.
    """
    from proselflc.run import audit as auditing
    from proselflc.run import outside_audit
    from proselflc.run.reader import load_run
    from proselflc.training.loop import DivergenceError

    if worst < 0:
        raise invalid_option("worst", f"must be at least 0, got {worst}")
    if pred_probs is not None:
        if run is not None:
            raise invalid_option(
                "pred_probs", f"cannot be combined with the run {run}", fix="omit one of them"
            )
        if labels is None:
            raise invalid_option("labels", f"is missing: {option('pred_probs')} needs it")
        _refuse("a run", folds=folds, model=model, data=data, part=part)
    elif run is None:
        raise InputError(
            "there is nothing to audit",
            fix=f"give a run directory, or {option('pred_probs')} and {option('labels')}",
        )
    else:
        files = option("pred_probs")
        _refuse(files, labels=labels, label_column=label_column, id_column=id_column)
        if part == "test":
            _refuse("the training part", folds=folds)
        else:
            written = f"{files} and {option('part', 'test')}"
            _refuse(written, out=out, overwrite=overwrite or None)
    if out is not None:
        check_out(out, overwrite, FORMATS["cleanlab"].suffixes)
    if pred_probs is not None and labels is not None:
        outside = outside_audit.audit_files(
            pred_probs, labels, label_column=label_column, id_column=id_column
        )
        _show_outside(outside, {}, out, worst, json)
        return
    assert run is not None
    audited = load_run(run, model=model)
    say_notes(audited.notes)
    if part == "test":
        outside = outside_audit.audit_test_part(audited, data=data)
        _show_outside(outside, {"run": str(run), "part": part}, out, worst, json)
        return
    try:
        found = auditing.audit(audited, folds=folds, data=data, display=chosen(quiet))
    except DivergenceError as error:
        raise RunError(str(error)) from None
    if json:
        examples = audited.examples
        listed = {
            "pairs": auditing.pairs(examples),
            "worst": auditing.worst_suspects(examples, worst),
        }
        for caution in auditing.cautions(audited, found):
            say(caution)
        print_json({"run": str(run), **found.to_json(), **listed})
    else:
        sys.stdout.write(auditing.describe(audited, found, audited.examples, worst))


def _refuse(needed: str, **options: object) -> None:
    """Refuse options that need something else to be given."""
    for field, value in options.items():
        if value is not None:
            raise invalid_option(field, f"is only used with {needed}", fix="omit it")


def _show_outside(
    found: OutsideAudit, about: dict[str, str], out: Path | None, worst: int, json: bool
) -> None:
    """Print an audit by out-of-sample predictions, and write its table if a file is named."""
    from proselflc.exporting.formats import write_table
    from proselflc.files.regular import whole_file

    if out is not None:
        with whole_file(out) as file:
            write_table(found.table(), file, out.suffix.lower())
    if json:
        written = {} if out is None else {"out": str(out)}
        print_json({**about, **found.to_json(worst), **written})
        return
    sys.stdout.write(found.describe(worst))
    if out is not None:
        sys.stdout.write(f"\nEvery label is in {printable(str(out))}.\n")


def report(
    run: Path,
    /,
    *runs: Path,
    out: Path | None = None,
    data: str | None = None,
    figures: Path | None = None,
    overwrite: bool = False,
    json: bool = False,
) -> None:
    """Write a self-contained HTML page about one run, or a comparison of several.

    Args:
        run: run directory.
        runs: more run directories to compare; the page shows the suspects of the first run.
        out: output page (default: report.html in the run, or in the current folder for several
            runs).
        data: current location of the first run's data, if it has moved.
        figures: folder for the figures of the page as SVG and PNG files.
        overwrite: replace a file that is not a report, or a page whose examples are no longer
            available.
        json: print the result as JSON.
    """
    from proselflc.reporting import command as reporting

    written = reporting.write((run, *runs), out, data=data, folder=figures, overwrite=overwrite)
    say_notes(written.notes)
    if json:
        print_json(
            {
                "report": str(written.path),
                "runs": list(map(str, (run, *runs))),
                "figures": list(map(str, written.figures)),
                "suspects_shown": written.shown,
                "notes": list(written.notes),
                "warnings": list(written.warnings),
            }
        )
    else:
        sys.stdout.write(f"{printable(str(written.path))}\n")


def export(
    run: Path,
    /,
    *,
    what: Literal["labels", "duplicates"] = "labels",
    format: Format | None = None,
    out: Path | None = None,
    copy: Path | None = None,
    links: Path | None = None,
    link: Literal["symbolic", "hard", "copy"] = "symbolic",
    soft: bool = False,
    suspects: bool = False,
    min_confidence: float | None = None,
    reviewed: bool = False,
    force: bool = False,
    fill: bool = False,
    only_suspects: bool = False,
    data: str | None = None,
    overwrite: bool = False,
    json: bool = False,
) -> None:
    """Write the corrected labels of a finished run: a table, arrays, your own file, or folders.

    Reviewed labels are written as decided. Otherwise a label is changed if the audit would do so
    without asking a person (action "change"); the other suspects are left for a review.

    Args:
        run: run directory.
        what: duplicates lists the examples with the same content, those with different labels
            first, then examples that are also in the test part, and outliers.
        format: file format (default: the ending of --out, otherwise csv); cleanlab is a table with
            cleanlab's column names.
        out: output file, .csv, .tsv, .parquet or .npz; without --out, --copy and --links, the
            labels are printed.
        copy: path of a corrected copy of the table that the run was trained on: the same rows and
            columns, with corrected labels and a last column that holds the original ones.
        links: folder to create with one subfolder per class that holds links to its images.
        link: kind of link to create, or copy for copies of the images.
        soft: add the probability of every class, or of the five most likely ones if there are more
            than 100.
        suspects: change all suspects; states how many of these changes are expected to be wrong.
        min_confidence: change the suspects whose suggested label has at least this confidence,
            from 0 to 1.
        reviewed: use only reviewed labels; add --min-confidence to use confident suggestions as
            well.
        force: write the labels of a run whose audit corrects none.
        fill: write the suggested labels for rows without a label, with --min-confidence those that
            have this confidence; otherwise they stay empty until they are reviewed.
        only_suspects: omit the examples whose labels are probably right.
        data: current location of the run's data, if it has moved; for --copy and --links.
        overwrite: replace existing files.
        json: print a summary as JSON.
    """
    from proselflc.exporting import command as exporting
    from proselflc.run.reader import load_run

    wanted = exporting.Export(
        format,
        out,
        copy,
        links,
        link,
        soft,
        min_confidence,
        only_suspects,
        data,
        overwrite,
        reviewed,
        suspects,
        force,
        fill,
    )
    is_printed = wanted.is_printed and not json
    if is_printed and not FORMATS[wanted.kind].is_text and sys.stdout.isatty():
        raise invalid_option(
            "out", f"must name a file: {wanted.kind} cannot be printed to a terminal"
        )
    if what == "duplicates":
        _export_duplicates(run, wanted, json)
        return
    if is_printed:
        printed = exporting.print_labels(load_run(run), wanted, sys.stdout.buffer)
        say_notes(printed.notes)
        say(str(printed))
        return
    done = exporting.export(load_run(run), wanted)
    say_notes(done.notes)
    say(str(done))
    if json:
        facts = asdict(done)
        if not done.unlabelled:
            del facts["unlabelled"], facts["filled"]
        print_json({"run": str(run), **facts})
    else:
        sys.stdout.write("".join(f"{printable(path)}\n" for path in done.written.values()))


def _export_duplicates(run: Path, wanted: Export, json: bool) -> None:
    from proselflc.exporting import duplicates
    from proselflc.run.reader import load_run

    duplicates.check(wanted)
    stream = sys.stdout.buffer if wanted.is_printed and not json else None
    done = duplicates.export(load_run(run), wanted, stream)
    say_notes(done.notes)
    say(
        f"{done.groups:,} groups of duplicates; {done.conflicting:,} examples are in groups with "
        f"different labels, {done.in_test:,} are also in the test part, {done.outliers:,} are "
        "outliers"
    )
    if json:
        print_json({"run": str(run), **asdict(done)})
    else:
        sys.stdout.write("".join(f"{printable(path)}\n" for path in done.written.values()))


def review(
    run: Path,
    /,
    *,
    sample: Whole | None = None,
    seed: Whole = 0,
    data: str | None = None,
    model: str | None = None,
    host: str = "127.0.0.1",
    port: Whole = 8642,
    name: str | None = None,
    no_browser: bool = False,
    quiet: bool = False,
    json: bool = False,
) -> None:
    """Open a local page to accept or reject the suggested labels.

    Every decision is written to review.jsonl in the run before the next one is shown. Press Ctrl-C
    to stop; you can continue at any time.

    Args:
        run: run directory.
        sample: number of randomly drawn labels to review, suspect or not, to measure how many are
            wrong.
        seed: seed of that draw.
        data: current location of the run's data, if it has moved.
        model: package.module:factory, for a run whose model is your own code.
        host: name or address to serve the page at; any other than the default lets people on the
            network open the page if they have its full address.
        port: port to serve the page at; if it is in use, the next free port is taken.
        name: name of the reviewer (default: the user who is logged in).
        no_browser: print the address without opening a browser.
        quiet: print only the address.
        json: print the decisions as JSON at the end.
    """
    from proselflc.reviewing import command as reviewing
    from proselflc.run.reader import load_run

    def note(text: str) -> None:
        if not quiet:
            say(f"note: {printable(text)}")

    def show(address: str) -> None:
        stream = sys.stderr if json else sys.stdout
        stream.write(f"{printable(address)}\n")
        stream.flush()
        if not quiet:
            say("The page is open until you press Ctrl-C here.")

    options = reviewing.ServerOptions(host, port, name, not no_browser)
    done = reviewing.review(
        load_run(run, model=model),
        options,
        data=data,
        sample=sample,
        seed=seed,
        note=note,
        announce=show,
    )
    if json:
        print_json({"run": str(run), **reviewing.summary(done)})
    elif not quiet:
        say("\n" + reviewing.describe(done, data))
