"""The `reproduce` command: every table and figure of the paper, by its number."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from proselflc.errors import InputError, invalid_option, unknown
from proselflc.paper import computed, figures, tables
from proselflc.paper.plan import SCALES, find_scale
from proselflc.paper.records import resolved_table
from proselflc.paper.reproduction import Artefact, Reproduction, complete
from proselflc.queue import storage as queue_storage
from proselflc.queue.run_store import key
from proselflc.queue.worker_processes import stopping_on_signals, worker_processes
from proselflc.terminal import Interrupted
from proselflc.wording import option

ARTEFACTS: dict[str, Artefact] = {
    artefact.name: artefact
    for artefact in (
        Artefact("table1", "summary of the methods", computed.table1, ()),
        Artefact("table2", "case analysis of the trust", computed.table2, ()),
        Artefact("table3", "the standard setting, clean labels", tables.table3),
        Artefact("table4", "asymmetric and symmetric noise, all methods", tables.table4),
        Artefact("table5", "hyper-parameters ε and B", tables.table5, seeds=(0,)),
        Artefact("table6", "Clothing1M", tables.table6, ("clothing1m",)),
        Artefact("table7", "calibration: ECE by temperature and confidence", tables.table7),
        Artefact("figure1", "illustration of the targets", computed.figure1, ()),
        Artefact("figure2", "ablation of the trust", figures.figure2),
        Artefact("figure3", "learning dynamics, six panels", figures.figure3),
        Artefact("figure4", "learning dynamics by noise rate", figures.figure4),
        Artefact("figure5", "entropy and ε during training", figures.figure5),
    )
}


def find_artefact(name: str) -> Artefact:
    """Return a table or figure by its name; "Table 4", "table 4" and "table4" are the same."""
    plain = "".join(name.lower().split())
    if plain not in ARTEFACTS:
        raise InputError(unknown("table or figure", name, ARTEFACTS), field="name")
    return ARTEFACTS[plain]


def list_artefacts() -> dict[str, dict[str, Any]]:
    """Return every table and figure, with its number of runs at CPU scale."""
    cpu = SCALES["cpu"]
    rows = {}
    for name, artefact in ARTEFACTS.items():
        runs: int | str = "–, paper scale only"
        if all(data in cpu.recipes for data in artefact.data):
            empty = Path("nowhere")
            runs = len(Reproduction(artefact, cpu, artefact.seeds, empty).pending())
        rows[name] = {"title": artefact.title, "runs": runs, "seeds": [*artefact.seeds]}
    return rows


def request(
    name: str,
    scale: str,
    seeds: str | None,
    out: Path,
    data_root: Path | None,
    keep_runs: bool,
    weights: Path | None = None,
    mask: Path | None = None,
) -> Reproduction:
    """Return the reproduction that the options describe."""
    artefact = find_artefact(name)
    for field, path in (("weights", weights), ("mask", mask)):
        if path is not None and not path.is_file():
            raise InputError(f"{option(field)}: there is no file {path}", field=field)
    return Reproduction(
        artefact,
        find_scale(scale),
        _seeds(seeds) or artefact.seeds,
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
        raise invalid_option(
            "seeds", f"must be different whole numbers such as 0,1,2, got {text!r}"
        )
    return seeds


def plan(reproduction: Reproduction) -> dict[str, Any]:
    """Return every run that is not done, with all its options, and an estimate of their time."""
    runs = reproduction.pending()
    return {
        "name": reproduction.artefact.name,
        "scale": reproduction.scale.name,
        "estimate": reproduction.estimate(runs),
        "runs": [
            {
                "key": None if run.undecided else key(run.config),
                "title": run.title,
                "presumes": run.undecided or None,
                "config": resolved_table(run.config),
            }
            for run in runs
        ],
    }


def describe(plan: dict[str, Any]) -> str:
    """Return a plan as text: the options that all runs share, then a line per run."""
    lines = [f"{plan['name']} at {plan['scale']} scale: {plan['estimate']}"]
    if plan["runs"]:
        configs = [run["config"] for run in plan["runs"]]
        shared = {k: v for k, v in configs[0].items() if all(c.get(k) == v for c in configs)}
        lines += ["", f"every run: {_format_options(shared)}", ""]
        for run in plan["runs"]:
            own = {k: v for k, v in run["config"].items() if k not in shared}
            lines.append(f"{run['key'] or 'later':16}  {run['title']}: {_format_options(own)}")
    return "\n".join(lines) + "\n"


def _format_options(options: dict[str, Any]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in options.items())


def run(reproduction: Reproduction, jobs: int, report: Callable[[str], None] | None) -> None:
    """Train the runs that are not done, in the given number of processes.

    Raises:
        InputError: data is missing, or something cannot be written.
        Interrupted: training was stopped; the state of the current run is saved.
    """
    if jobs < 1:
        raise invalid_option("jobs", f"must be 1 or more, got {jobs}")
    if not reproduction.evaluate()[1].pending:
        return
    if "clothing1m" in reproduction.artefact.data and reproduction.weights is None:
        raise InputError(
            f"{reproduction.artefact.name} starts from ImageNet weights",
            field="weights",
            fix=f"pass {option('weights', 'FILE')}, a safetensors file or a state dict of a "
            "ResNet-50",
        )
    queue_storage.check_installed("reproduce")
    try:
        with stopping_on_signals(), worker_processes(_work, reproduction, jobs):
            complete(reproduction, report or _ignore)
    except KeyboardInterrupt:
        raise Interrupted(
            f"stopped; finished runs are in {reproduction.out}, and the same command continues "
            "from there"
        ) from None


def _work(reproduction: Reproduction) -> None:
    """Train runs in a worker process."""
    complete(reproduction, _ignore)


def _ignore(line: str) -> None:
    pass


def write_results(reproduction: Reproduction) -> dict[str, Any]:
    """Write the table or figure from the runs that are done, and return it for JSON."""
    output, run_plan = reproduction.evaluate()
    name = reproduction.artefact.name
    files = output.write(reproduction.out / reproduction.scale.name, name)
    return {
        "name": name,
        "scale": reproduction.scale.name,
        "seeds": [*reproduction.seeds],
        "runs": len(run_plan.requested),
        "missing": len(run_plan.pending),
        "tables": {
            key or name: {"columns": table.columns, "rows": table.rows}
            for key, table in output.tables.items()
        },
        "files": [str(path) for path in files],
        "markdown": output.markdown(),
    }
