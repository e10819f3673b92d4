"""Commands about the labels of a run."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Literal

from proselflc.errors import InputError, RunError, printable
from proselflc.options import Whole
from proselflc.terminal.printing import print_json, say, say_notes


def audit(
    run: Path,
    /,
    *,
    folds: Whole | None = None,
    worst: Whole = 10,
    model: str | None = None,
    data: str | None = None,
    quiet: bool = False,
    json: bool = False,
) -> None:
    """Say which labels of a finished run are probably wrong, and what they should be.

    Args:
        run: the run's directory.
        folds: train so many models anew, each without a part of the examples, and judge every
            label by the one that has not seen it; 0 for what was seen in training; left out,
            folds if there have been any.
        worst: how many suspects to list.
        model: package.module:factory, for folds of a run whose model is your own.
        data: where the run's data is now, if it has moved; for folds.
        quiet: show no progress.
        json: print the result as JSON.
    """
    from proselflc.run import audit as auditing
    from proselflc.run.reader import load_run
    from proselflc.terminal.display import chosen
    from proselflc.training.fit import DivergenceError

    if worst < 0:
        raise InputError(f"--worst must be at least 0, got {worst}")
    audited = load_run(run, model=model)
    say_notes(() if quiet else audited.notes)
    try:
        found = auditing.audit(audited, folds=folds, data=data, display=chosen(quiet))
    except DivergenceError as error:
        raise RunError(str(error)) from None
    if json:
        examples = audited.examples
        listed = {"pairs": auditing.pairs(examples), "worst": auditing.worst(examples, worst)}
        print_json({"run": str(run), **found.to_json(), **listed})
    else:
        sys.stdout.write(auditing.in_words(audited, found, audited.examples, worst))


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
    """Write one self-contained HTML page about a run, or about several compared.

    Args:
        run: the run's directory.
        runs: more of them; the suspects shown are those of the first.
        out: the page; left out, report.html in the run, or of several runs right here.
        data: where the first run's data is now, if it has moved.
        figures: a folder for the page's figures as SVG and PNG files.
        overwrite: replace a file that is no report, or a page whose examples are gone by now.
        json: print the result as JSON.
    """
    from proselflc.reporting import command as reporting

    written = reporting.write((run, *runs), out, data=data, folder=figures, overwrite=overwrite)
    say_notes(written.notes)
    if json:
        print_json(
            {
                "report": str(written.path),
                "runs": [str(one) for one in (run, *runs)],
                "figures": [str(one) for one in written.figures],
                "suspects_shown": written.shown,
                "notes": list(written.notes),
            }
        )
    else:
        sys.stdout.write(f"{printable(str(written.path))}\n")


def export(
    run: Path,
    /,
    *,
    format: Literal["csv", "parquet", "npz", "cleanlab"] | None = None,
    out: Path | None = None,
    copy: Path | None = None,
    links: Path | None = None,
    link: Literal["symbolic", "hard", "copy"] = "symbolic",
    soft: bool = False,
    min_confidence: float | None = None,
    reviewed: bool = False,
    only_suspects: bool = False,
    data: str | None = None,
    overwrite: bool = False,
    json: bool = False,
) -> None:
    """Write the corrected labels of a finished run: a table, arrays, your own file, or folders.

    Args:
        run: the run's directory.
        format: of the labels; left out, what --out ends in, else csv. cleanlab is a table with
            cleanlab's column names.
        out: a .csv, .tsv, .parquet or .npz file; without it, --copy and --links, the labels are
            printed.
        copy: a corrected copy of the table that the run was made from: the same rows and columns,
            other labels, and a last column with what they were.
        links: a folder with one folder per class, in it links to the images that belong there.
        link: whether those are symbolic links, hard links or copies.
        soft: add the probability of every class, or of the five likeliest of more than 100.
        min_confidence: keep a given label where the run is less sure of a better one than this,
            from 0 to 1.
        reviewed: follow what a person has decided in review and, unless --min-confidence says how
            sure they must be, no suggestions.
        only_suspects: leave out the examples whose labels are probably right.
        data: where the run's data is now, if it has moved; for --copy and --links.
        overwrite: replace what is there.
        json: print a summary as JSON.
    """
    from proselflc.exporting import command as exporting
    from proselflc.run.reader import load_run

    what = exporting.Export(
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
    )
    if what.is_printed and not json:
        if what.kind in ("parquet", "npz") and sys.stdout.isatty():
            raise InputError(f"{what.kind} is no text: say with --out which file it goes to")
        found = load_run(run)
        say_notes(found.notes)
        for piece in exporting.printed(found, what):
            sys.stdout.buffer.write(piece)
        return
    done = exporting.export(load_run(run), what)
    say_notes(done.notes)
    say(
        f"{done.corrections:,} of {done.examples:,} labels corrected, {done.suspects:,} are suspect"
        + (f", {done.reviewed:,} were decided by a person" if done.reviewed else "")
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
    """Open a page on this machine to accept or reject the suggested labels by hand.

    Every decision is written to review.jsonl in the run before the page goes on. End it with
    Ctrl-C and come back at any time.

    Args:
        run: the run's directory.
        sample: go through so many suspects alone, drawn by chance, to measure how many are right.
        seed: of that draw.
        data: where the run's data is now, if it has moved.
        model: package.module:factory, for a run whose model is your own.
        host: name or address to serve the page at; anything but this machine alone lets others in
            who have the address.
        port: to serve it at; if it is taken, the next one that is free.
        name: of who reviews; left out, who is logged in.
        no_browser: open none, print the address.
        quiet: say nothing but the address.
        json: print what was decided as JSON at the end.
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

    place = reviewing.Place(host, port, name, not no_browser)
    done = reviewing.review(
        load_run(run, model=model), place, data=data, sample=sample, seed=seed, say=note, show=show
    )
    if json:
        print_json({"run": str(run), **reviewing.outcome(done)})
    elif not quiet:
        say("\n" + reviewing.in_words(done, data))
