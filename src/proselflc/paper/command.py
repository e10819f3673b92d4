"""The `reproduce` command: every table and figure of the paper, by its number.

The runs that it needs are trained in any number of processes, each run once.
"""

from __future__ import annotations

import itertools
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from proselflc.errors import InputError, invalid_option, unknown
from proselflc.paper import figures, tables
from proselflc.paper.cost import Speed, disk_space
from proselflc.paper.output import MISSING, Output
from proselflc.paper.plan import SCALES, PendingRun, RunPlan, Scale
from proselflc.paper.records import RecordStore, resolved_table
from proselflc.queue import storage as queue_storage
from proselflc.queue.run_queue import Claim, Entry, Name, worker_processes
from proselflc.queue.run_store import key, stored_run, train_once
from proselflc.run.config import Config
from proselflc.terminal import Interrupted, Silent, stopping_on_signals
from proselflc.training.loop import DivergenceError
from proselflc.training.run_directory import read_toml
from proselflc.wording import option

WORKERS = 8  # that train at once in an estimate of disk space
QUOTED_SEEDS = 3  # of the methods whose results the paper quotes
MEASURED = ("n", "accuracy", "top5", "nll", "brier", "calibration")  # recorded of the test part
WAITING = 5.0  # seconds between two checks for runs that other processes have finished
_SILENT = Silent()


@dataclass(frozen=True)
class Artefact:
    """A table or figure of the paper, which needs runs on some of the paper's datasets.

    `make` requests these runs and returns as much of the output as they allow.
    """

    name: str
    title: str
    make: Callable[[RunPlan], Output]
    data: tuple[str, ...] = ("cifar100",)


@dataclass(frozen=True)
class Reproduction:
    """A table or figure to reproduce; `out` is the directory that keeps records and results.

    With `keep_runs`, run directories stay after they are recorded. For `weights`, `mask` and
    `quoted`, see `RunPlan`.
    """

    artefact: Artefact
    scale: Scale
    seeds: tuple[int, ...]
    out: Path
    data_root: Path | None = None
    keep_runs: bool = False
    weights: Path | None = None
    mask: Path | None = None
    quoted: int | None = None

    @property
    def store(self) -> RecordStore:
        return RecordStore(self.out)

    def evaluate(self) -> tuple[Output, RunPlan]:
        """Return the table or figure from the runs that are done, and the runs it requested."""
        plan = self._plan()
        output = self.artefact.make(plan)
        if plan.pending:
            note = f'Some runs are not done yet; their cells show "{MISSING}".'
            output = replace(output, words=(*output.words, note))
        return output, plan

    def pending(self) -> list[PendingRun]:
        """Return every run that is not done, including those whose parameters are undecided.

        An undecided parameter takes the first value of its grid.
        """
        plan = self._plan(assume_first=True)
        self.artefact.make(plan)
        return [replace(run, config=self.located(run.config)) for run in plan.pending.values()]

    def seconds(self, runs: Sequence[PendingRun], speed: Speed) -> float:
        """Return how long the runs would take, one after another."""
        datasets = {recipe: data for data, recipe in self.scale.recipes.items()}
        if speed.steps_per_second is None and self.scale.seconds:
            return sum(self.scale.seconds[datasets[run.config.request.data]] for run in runs)
        return sum(speed.seconds(run.config) for run in runs)

    def estimate(self, runs: Sequence[PendingRun], speed: Speed) -> str:
        """Return a sentence that says how long the runs would take."""
        if not runs:
            return "0 runs to do"
        seconds = self.seconds(runs, speed)
        hours = seconds / 3600
        duration = f"{hours:,.1f} hours" if hours >= 1 else f"{seconds / 60:.0f} minutes"
        is_measured = speed.steps_per_second is None and self.scale.seconds
        source = "of one core" if is_measured else speed.source
        return f"{len(runs)} runs to do, about {duration} {source}"

    @property
    def arguments(self) -> list[str]:
        """Return the arguments of the command that continues this reproduction."""
        values: dict[str, object] = {"scale": self.scale.name, "out": self.out}
        if self.quoted is None:
            values["seeds"] = ",".join(map(str, self.seeds))
        for name in ("data_root", "weights", "mask"):
            values[name] = getattr(self, name)
        found = [self.artefact.name]
        for name, value in values.items():
            found += [] if value is None else [option(name), str(value)]
        return [*found, *([option("keep_runs")] if self.keep_runs else [])]

    def located(self, config: Config) -> Config:
        """Return the options with this reproduction's data folder."""
        return replace(config, request=replace(config.request, data_root=self.data_root))

    def _plan(self, *, assume_first: bool = False) -> RunPlan:
        files = (self.weights, self.mask)
        return RunPlan(self.store, self.scale, self.seeds, assume_first, *files, self.quoted)


ARTEFACTS: dict[str, Artefact] = {
    artefact.name: artefact
    for artefact in (
        Artefact("table1", "summary of the methods", tables.table1, ()),
        Artefact("table2", "case analysis of the trust", tables.table2, ()),
        Artefact("table3", "the standard setting, clean labels", tables.table3),
        Artefact("table4", "asymmetric and symmetric noise, all methods", tables.table4),
        Artefact("table5", "hyper-parameters ε and B", tables.table5),
        Artefact("table6", "Clothing1M", tables.table6, ("clothing1m",)),
        Artefact("table7", "calibration: ECE by temperature and confidence", tables.table7),
        Artefact("figure1", "illustration of the targets", figures.figure1, ()),
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
            runs = len(committed(name, "cpu", empty).pending())
        seeds = [*cpu.default_seeds(name)]
        rows[name] = {"title": artefact.title, "runs": runs, "seeds": seeds}
    return rows


def committed(name: str, scale: str, out: Path) -> Reproduction:
    """Return the reproduction with the seeds of the committed results."""
    seeds = SCALES[scale].default_seeds(name)
    return Reproduction(find_artefact(name), SCALES[scale], seeds, out, quoted=QUOTED_SEEDS)


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
    own_seeds = _seeds(seeds)
    _must_not_be_old(out)
    for field, path in (("weights", weights), ("mask", mask)):
        if path is not None and not path.is_file():
            raise InputError(f"{option(field)}: there is no file {path}", field=field)
    return Reproduction(
        artefact,
        SCALES[scale],
        own_seeds or SCALES[scale].default_seeds(artefact.name),
        out,
        data_root,
        keep_runs,
        None if weights is None else weights.resolve(),
        None if mask is None else mask.resolve(),
        None if own_seeds else QUOTED_SEEDS,
    )


def _must_not_be_old(out: Path) -> None:
    """Refuse the results of an earlier version, whose scale cpu is called cpu-wide today."""
    folder, begin = out / "cpu", f"Scale cpu: {SCALES['cpu-wide'].title}"
    for path in sorted(folder.glob("*.md")):
        if begin in path.read_text(encoding="utf-8", errors="replace"):
            raise InputError(
                f"{folder} has results of an earlier version, whose scale cpu is now called "
                "cpu-wide; the records beside it stay valid",
                field="out",
                fix=f"rename the folder to {out / 'cpu-wide'}",
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


def plan(reproduction: Reproduction, speed: Speed | None = None) -> dict[str, Any]:
    """Return every run that is not done, with all its options, and what the runs would take."""
    speed = Speed() if speed is None else speed
    runs = reproduction.pending()
    configs = [run.config for run in runs]
    seconds = reproduction.seconds(runs, speed)
    return {
        "name": reproduction.artefact.name,
        "scale": reproduction.scale.name,
        "estimate": reproduction.estimate(runs, speed),
        "hours": seconds / 3600,
        "disk_bytes": disk_space(configs, WORKERS, keep_runs=reproduction.keep_runs),
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
    """Return a plan as text: the options that all runs share, then a line per run.

    It may have commands by the machine that they are for.
    """
    lines = [f"{plan['name']} at {plan['scale']} scale: {plan['estimate']}"]
    if plan["runs"]:
        lines.append(f"disk space: about {plan['disk_bytes'] / 1e9:.1f} GB for {WORKERS} workers")
        lines += [f"{title}: {line}" for title, line in plan.get("commands", {}).items()]
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
    """Train the runs that are not done, in the given number of processes."""
    if jobs < 1:
        raise invalid_option("jobs", f"must be 1 or more, got {jobs}")
    _, first = reproduction.evaluate()
    if not first.pending:
        return
    if report is not None and len(first.pending) == len(first.requested):
        unused = sum(1 for _ in reproduction.store.names())
        if unused:
            report(
                f"{reproduction.out} has records of other options or of another version; they "
                f"are kept, and none of them ({unused}) is used here"
            )
    if "clothing1m" in reproduction.artefact.data and reproduction.weights is None:
        raise InputError(
            f"{reproduction.artefact.name} starts from ImageNet weights",
            field="weights",
            fix=f"pass {option('weights', 'FILE')}, a safetensors file or a state dict of a "
            "ResNet-50",
        )
    queue_storage.check_installed("reproduce")
    try:
        with stopping_on_signals(), worker_processes(partial(complete, reproduction), jobs):
            complete(reproduction, report)
    except KeyboardInterrupt:
        raise Interrupted(
            f"stopped; finished runs are in {reproduction.out}, and the same command continues "
            "from there"
        ) from None


def complete(reproduction: Reproduction, report: Callable[[str], None] | None = None) -> None:
    """Train the pending runs that no other worker has claimed, until none is left.

    `report` is called with a line about each run.
    """
    report = report or _SILENT.note
    with queue_storage.storage_errors(None):
        queue = reproduction.store.queue()
        is_waiting = False
        while pending := reproduction.evaluate()[1].pending:
            entries = queue.entries()
            runs = {_open_entry(entries, key): run for key, run in pending.items()}
            claim = queue.claim(runs)
            if claim is not None:
                with claim:
                    _complete_run(reproduction, runs[str(claim.name)], claim, report)
                is_waiting = False
                continue
            if not is_waiting:
                is_waiting = True
                count = "a run" if len(pending) == 1 else f"{len(pending)} runs"
                report(f"waiting for {count} of other processes")
            time.sleep(WAITING)


def _open_entry(entries: Mapping[Name, Entry], key: str) -> str:
    """Return the queue's entry for a run: a new one if it is over and its record was removed."""
    names = itertools.chain([key], (f"{key}-{k}" for k in itertools.count(2)))
    return next(name for name in names if not entries.get(name, Entry()).is_over)


def _complete_run(
    reproduction: Reproduction, run: PendingRun, claim: Claim, report: Callable[[str], None]
) -> None:
    """Train and record a claimed run, unless it was recorded meanwhile."""
    store = reproduction.store
    record = store.record(run.config)
    if record is None:
        report(f"{run.title} ({len(reproduction.pending())} to go)")
        config = reproduction.located(run.config)
        if run.teacher is not None:
            teacher = train_once(reproduction.located(run.teacher), store.runs, _SILENT).path
            config = replace(config, parameters={**config.parameters, "teacher": teacher})
        store.add(run.config, train_and_measure(config, store.runs))
        record = store.record(run.config)
        assert record is not None
        if not reproduction.keep_runs:
            shutil.rmtree(stored_run(config, store.runs).path, ignore_errors=True)
    accuracy = record.summary["test_accuracy"]
    if accuracy is None:
        claim.diverge(str(record.facts.get("diverged", "it has no accuracy")), key(run.config))
    else:
        claim.complete(accuracy, key(run.config))


def train_and_measure(config: Config, folder: Path) -> dict[str, Any]:
    """Train a run, or resume a stopped one, and return what its record holds."""
    from proselflc.run.reader import load_run

    try:
        path = train_once(config, folder, _SILENT).path
    except DivergenceError as error:
        return {
            "diverged": str(error),
            "fingerprint": read_toml(stored_run(config, folder).config)["fingerprint"],
            "summary": {"test_accuracy": None},
            "validation_accuracy": None,
            "test": {"calibration": []},
            "history": [],
        }
    run = load_run(path)
    validation = run.evaluation.get("validation")
    accuracy = validation.get("accuracy") if isinstance(validation, dict) else None
    test = run.evaluation.get("test")
    assert isinstance(test, dict)
    summary = {name: value for name, value in run.summary.items() if name != "seconds"}
    return {
        "fingerprint": run.summary["fingerprint"],
        "summary": summary,
        "seconds": run.summary["seconds"],
        "validation_accuracy": accuracy,
        "test": {name: test[name] for name in MEASURED if name in test},
        "history": [_rounded(line) for line in run.history],
    }


def _rounded(line: Mapping[str, Any]) -> dict[str, Any]:
    """Return the numbers with six decimals, which keeps files small."""
    return {k: round(v, 6) if isinstance(v, float) else v for k, v in line.items()}


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
