"""What `proselflc reproduce` does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from proselflc.errors import InputError
from proselflc.paper.artefacts import ARTEFACTS, artefact
from proselflc.paper.records import resolved_table
from proselflc.paper.running import Reproduction, complete, estimate, planned
from proselflc.paper.scale import SCALES, scale
from proselflc.queue import storage as queue_storage
from proselflc.queue.run_store import key
from proselflc.queue.worker_processes import stopping_on_signals, worker_processes
from proselflc.terminal.interruption import Interrupted


def listed() -> dict[str, dict[str, Any]]:
    """Every table and figure, and how many runs it has at the size of a CPU."""
    rows = {}
    for name, one in ARTEFACTS.items():
        runs: int | str = "–, paper scale only"
        if all(data in SCALES["cpu"].recipes for data in one.data):
            nowhere = Path("nowhere")
            runs = len(planned(Reproduction(one, SCALES["cpu"], one.seeds, nowhere)))
        rows[name] = {"title": one.title, "runs": runs, "seeds": [*one.seeds]}
    return rows


def asked(
    name: str,
    size: str,
    seeds: str | None,
    out: Path,
    data_root: Path | None,
    keep_runs: bool,
    weights: Path | None = None,
    mask: Path | None = None,
) -> Reproduction:
    """What the command line asks for.

    Raises:
        InputError: there is no such table, figure, scale, seed or file.
    """
    one = artefact(name)
    for option, path in (("--weights", weights), ("--mask", mask)):
        if path is not None and not path.is_file():
            raise InputError(f"{option}: there is no file {path}")
    return Reproduction(
        one,
        scale(size),
        _seeds(seeds) or one.seeds,
        out,
        data_root,
        keep_runs,
        None if weights is None else weights.resolve(),
        None if mask is None else mask.resolve(),
    )


def _seeds(text: str | None) -> tuple[int, ...]:
    if text is None:
        return ()
    words = [word.strip() for word in text.split(",")]
    seeds = tuple(int(word) for word in words if word.isdecimal())
    if len(set(seeds)) < len(words):
        raise InputError(f"--seeds must be different whole numbers such as 0,1,2, got {text!r}")
    return seeds


def plan(one: Reproduction) -> dict[str, Any]:
    """Every run that is not there yet, with all its options, and what they would take."""
    wanted = planned(one)
    return {
        "name": one.artefact.name,
        "scale": one.scale.name,
        "estimate": estimate(one, wanted),
        "runs": [
            {
                "key": None if run.presumes else key(run.config),
                "title": run.title,
                "presumes": run.presumes or None,
                "config": resolved_table(run.config),
            }
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
            lines.append(f"{run['key'] or 'later':16}  {run['title']}: {said}")
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
    if not one.look()[1].wanted:
        return
    if "clothing1m" in one.artefact.data and one.weights is None:
        raise InputError(
            f"{one.artefact.name} starts from ImageNet's weights: give them with --weights FILE, a "
            "safetensors file or a state dict of a ResNet-50"
        )
    queue_storage.check_installed("reproduce")
    try:
        with stopping_on_signals(), worker_processes(_work, one, jobs):
            complete(one, say or _nobody)
    except KeyboardInterrupt:
        raise Interrupted(
            f"stopped; what is done is in {one.out}, and the same command goes on from there"
        ) from None


def _work(one: Reproduction) -> None:
    """What one more process does."""
    complete(one, _nobody)


def _nobody(text: str) -> None:
    pass


def finished(one: Reproduction) -> dict[str, Any]:
    """The table or figure as far as there are runs, written into the directory and told."""
    output, study = one.look()
    folder = one.out / one.scale.name
    files = output.write(folder, one.artefact.name)
    return {
        "name": one.artefact.name,
        "scale": one.scale.name,
        "seeds": [*one.seeds],
        "runs": len(study.asked),
        "missing": len(study.wanted),
        "tables": {
            key or one.artefact.name: {"columns": table.columns, "rows": table.rows}
            for key, table in output.tables.items()
        },
        "files": [str(path) for path in files],
        "markdown": output.markdown(),
    }
