"""What `proselflc reproduce` does."""

from __future__ import annotations

import multiprocessing
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from proselflc.app.interruption import Interrupted
from proselflc.app.reproduction.artefacts import ARTEFACTS, artefact
from proselflc.app.reproduction.plan import Study
from proselflc.app.reproduction.records import key
from proselflc.app.reproduction.running import Reproduction, complete, estimate, planned
from proselflc.app.reproduction.scale import SCALES, scale
from proselflc.errors import InputError


def listed() -> dict[str, dict[str, Any]]:
    """Every table and figure, and how many runs it has at the size of a CPU."""
    rows = {}
    for name, one in ARTEFACTS.items():
        runs: int | str = "–, paper scale only"
        if all(data in SCALES["cpu"].recipes for data in one.data):
            nowhere = Path("nowhere")
            runs = len(planned(Reproduction(name, SCALES["cpu"], one.seeds, nowhere)))
        rows[name] = {"title": one.title, "runs": runs, "seeds": [*one.seeds]}
    return rows


def asked(
    name: str,
    size: str,
    seeds: str | None,
    out: Path,
    data_root: Path | None,
    keep_runs: bool,
) -> Reproduction:
    """What the command line asks for.

    Raises:
        InputError: there is no such table, figure, scale or seed.
    """
    one = artefact(name)
    plain = "".join(name.lower().split())
    return Reproduction(plain, scale(size), _seeds(seeds) or one.seeds, out, data_root, keep_runs)


def _seeds(text: str | None) -> tuple[int, ...]:
    if text is None:
        return ()
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() for word in words) or len(set(words)) < len(words):
        raise InputError(f"--seeds must be different whole numbers such as 0,1,2, got {text!r}")
    return tuple(int(word) for word in words)


def plan(one: Reproduction) -> dict[str, Any]:
    """Every run that is not there yet, with all its options, and what they would take."""
    wanted = planned(one)
    return {
        "name": one.name,
        "scale": one.scale.name,
        "estimate": estimate(one, wanted),
        "runs": [
            {"key": key(run.config), "title": run.title, "config": run.config.table()}
            for run in wanted
        ],
    }


def plan_in_words(plan: dict[str, Any]) -> str:
    """The same for people: the options that all share, then a line per run."""
    lines = [f"{plan['name']} at {plan['scale']} scale: {plan['estimate']}"]
    if plan["runs"]:
        shared = _shared([run["config"] for run in plan["runs"]])
        lines += ["", "every run: " + ", ".join(f"{k} = {v}" for k, v in shared.items()), ""]
        for run in plan["runs"]:
            own = {k: v for k, v in run["config"].items() if k not in shared}
            said = ", ".join(f"{k} = {v}" for k, v in own.items())
            lines.append(f"{run['key']}  {run['title']}: {said}")
    return "\n".join(lines) + "\n"


def _shared(configs: list[dict[str, Any]]) -> dict[str, Any]:
    """The options that all have alike."""
    first = configs[0]
    return {k: v for k, v in first.items() if all(c.get(k) == v for c in configs)}


def run(one: Reproduction, jobs: int, say: Callable[[str], None] | None) -> None:
    """Do what is not there yet, in so many processes.

    Raises:
        InputError: data is missing, or something cannot be written.
        Interrupted: somebody wanted it to stop; the state of the run at hand is saved.
    """
    if jobs < 1:
        raise InputError(f"--jobs must be 1 or more, got {jobs}")
    study = Study(one.store, one.scale, one.seeds)
    artefact(one.name).make(study)
    if not study.wanted:
        return
    with _helping(one, jobs - 1):
        if jobs > 1:
            import torch

            torch.set_num_threads(1)
        try:
            complete(one, say or _nobody)
        except KeyboardInterrupt:
            raise Interrupted(
                f"stopped; what is done is in {one.out}, and the same command goes on from there"
            ) from None


@contextmanager
def _helping(one: Reproduction, number: int) -> Iterator[None]:
    """So many more processes take runs from the same store meanwhile."""
    context = multiprocessing.get_context("spawn")
    started = [context.Process(target=_help, args=(one,)) for _ in range(number)]
    for process in started:
        process.start()
    try:
        yield
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.join()


def _help(one: Reproduction) -> None:
    """What one more process does, until the one that has started it is gone."""
    import torch

    from proselflc.app.search_workers import end_with_parent

    threading.Thread(target=end_with_parent, daemon=True).start()
    torch.set_num_threads(1)
    try:
        complete(one, _nobody)
    except (KeyboardInterrupt, InputError):
        sys.exit(1)  # the process that has started this one meets it as well, and says so


def _nobody(text: str) -> None:
    pass


def finished(one: Reproduction) -> dict[str, Any]:
    """The table or figure as far as there are runs, written into the directory and told."""
    output, study = one.look()
    folder = one.out / one.scale.name
    files = output.write(folder, one.name)
    return {
        "name": one.name,
        "scale": one.scale.name,
        "seeds": [*one.seeds],
        "runs": len(study.asked),
        "missing": len(study.wanted),
        "tables": {
            key or one.name: {"columns": table.columns, "rows": table.rows}
            for key, table in output.tables.items()
        },
        "files": [str(path) for path in files],
        "markdown": output.markdown(),
    }
