"""The command that makes the paper's tables and figures."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal

from proselflc.errors import InputError
from proselflc.options import Whole
from proselflc.terminal.printing import print_json, print_table, say


def reproduce(
    name: str | None = None,
    *,
    scale: Literal["cpu", "paper"] = "cpu",
    seeds: str | None = None,
    out: Path = Path("reproduction"),
    data_root: Path | None = None,
    jobs: Whole = 1,
    dry_run: bool = False,
    list: bool = False,
    report: bool = False,
    keep_runs: bool = False,
    weights: Path | None = None,
    mask: Path | None = None,
    quiet: bool = False,
    json: bool = False,
) -> None:
    """Make a table or figure of the paper, by its number.

    Runs are kept in --out by a hash of their options: what is there is not done again, an
    interrupted reproduction goes on, and several processes or machines may share the directory.

    Args:
        name: table1 to table7, figure1 to figure5.
        scale: cpu, small enough to finish here, or paper, its exact recipes, for a GPU.
        seeds: of the runs, such as 0,1,2; left out, as many as the committed results have.
        out: the directory that keeps records and results.
        data_root: where data is; left out, it is downloaded where that is allowed.
        jobs: processes that train side by side, with a thread each if there are several.
        dry_run: print every run that is not there yet, with its options, and train nothing.
        list: list the paper's tables and figures.
        report: train nothing, show what there is; cells not yet run are "–".
        keep_runs: keep the run directories, not only what they came to.
        weights: for table6, a file of ImageNet's weights of a ResNet-50 to start from.
        mask: for table6, a file of 0 and 1, row = true class: what Masking is told.
        quiet: show no progress.
        json: print the result as JSON.
    """
    from proselflc.paper import command

    if list:
        rows = command.listed()
        if json:
            print_json(rows)
        else:
            heading = ("name", "runs at cpu scale", "what it is")
            print_table(heading, [(n, str(r["runs"]), str(r["title"])) for n, r in rows.items()])
        return
    if name is None:
        raise InputError("say which table or figure, such as table4; --list lists them")
    one = command.asked(name, scale, seeds, out, data_root, keep_runs, weights, mask)
    if dry_run:
        plan = command.plan(one)
        if json:
            print_json(plan)
        else:
            sys.stdout.write(command.plan_in_words(plan))
        return
    if not report:
        command.run(one, jobs, None if quiet else say)
    result = command.finished(one)
    if json:
        print_json(result)
    else:
        sys.stdout.write(str(result["markdown"]))
        if not quiet:
            first, *others = result["files"]
            say(f"written: {first} and {len(others)} files beside it")
