"""The `search` command: the paper's protocol for choosing hyper-parameters.

The labels are corrupted once. Most of the training data trains, and examples with trusted labels
choose: by default a stratified fifth of the training data, with its true labels. First Γ and the
optimiser's options are chosen with cross entropy and fixed for all methods; then each method's own
parameters are chosen (ε, B). Then the method is trained on all the training data, with the same
noisy labels, and its last state is measured on the test set, which chooses nothing.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from proselflc import __version__, methods
from proselflc.data import noise
from proselflc.data.dataset import Dataset
from proselflc.errors import InputError
from proselflc.files.regular import whole_file
from proselflc.models.factory import names_code
from proselflc.options import MOST_PROCESSES, check_least
from proselflc.queue import storage as queue_storage
from proselflc.queue.run_queue import worker_processes
from proselflc.run.config import Config, OutputOptions, check_taken, new_path
from proselflc.run.learned import backbones
from proselflc.run.prepare import PreparedRun, label_data, prepare
from proselflc.searching import search_space, study_page
from proselflc.searching.study import (
    NOISY,
    SearchOutcome,
    StudyDirectory,
    StudyFacts,
    StudyPlan,
    to_json,
)
from proselflc.searching.trials import FIRST, SearchWorker, is_share, work
from proselflc.terminal import Display, Interrupted, Silent, stopping_on_signals
from proselflc.training.run_directory import RunDirectory
from proselflc.wording import command, option

if TYPE_CHECKING:
    from optuna.storages import BaseStorage

TRUSTED = "0.2"  # share of the training data, if the user names no trusted examples


@dataclass(frozen=True)
class Options:
    """How to search."""

    space: tuple[str, ...] = ()  # the candidates; see `search_space.read`
    trials: int = 20  # in a stage that has a range
    prune: bool = False  # end a trial behind the median of the others, from half of training on
    storage: str | None = None  # address of a database; None for a journal in the study
    jobs: int = 1  # processes on this machine
    retrain: bool = True  # train on all the training data at the end
    quiet: bool = False  # print no line for each trial

    def __post_init__(self) -> None:
        check_least(self, {"trials": 1, "jobs": 1}, {"jobs": MOST_PROCESSES})


def search(
    config: Config,
    options: Options,
    start: OutputOptions,
    display: Display,
    *,
    dataset: Dataset | None = None,
    runs: Path | None = None,
) -> SearchOutcome:
    """Search as the paper does, or continue a search; other processes may work on it too.

    The method of the config is one name, or several separated by commas. Without trusted data,
    the data's own validation part or a fifth of the training data chooses. A dataset replaces
    the data that the config names, and `runs` is a folder of runs to share with other studies.
    """
    queue_storage.check_installed("search")
    if os.environ.get("WORLD_SIZE", "1") != "1":
        raise InputError(
            "a search must not be started by torchrun",
            field="jobs",
            fix=f"start it once, with {option('jobs')} for more processes",
        )
    directory = StudyDirectory(_study_path(config, start))
    directory.check_start(start)
    with queue_storage.storage_errors(options.storage), stopping_on_signals():
        plan, validation, notes = _plan(config, options, dataset)
        storage = _open(plan, directory, options, start, display)
        for note in notes:
            display.note(note)
        if directory.is_finished:
            display.note(f"the study {directory.path} is finished; no trial is repeated")
        worker = SearchWorker(
            plan,
            directory,
            storage,
            runs or directory.runs,
            display if options.jobs == 1 else Silent(),
            dataset,
            options.quiet,
        )
        try:
            others = partial(
                work, options.storage, plan, directory, worker.runs, dataset, options.quiet
            )
            with worker_processes(others, options.jobs):
                recipe, stages, choices = worker.work()
            choices = tuple(
                worker.retrained(choice)
                if options.retrain or worker.is_retrained(choice)
                else choice
                for choice in choices
            )
        except KeyboardInterrupt:
            raise Interrupted(_advice(directory, config, options)) from None
        stages = tuple(
            replace(
                stage,
                importance=worker.trials(None if stage.is_first else stage.method).importance(),
            )
            for stage in stages
        )
        outcome = SearchOutcome(directory, plan, recipe, stages, choices, validation)
        _write(outcome)
    return outcome


def _study_path(config: Config, start: OutputOptions) -> Path:
    if start.out is not None:
        return start.out
    if start.resume:
        raise InputError(
            f"{option('resume', True)} needs {option('out')}, the directory of the study",
            field="out",
        )
    return new_path(config, "search")


def _plan(
    config: Config, options: Options, dataset: Dataset | None
) -> tuple[StudyPlan, int, list[str]]:
    """Check the input; return the plan, the number of examples that choose, and notes."""
    names = _methods(config)
    prepared, notes = _prepared(replace(config, method=FIRST, parameters={}), dataset)
    validation = prepared.dataset.validation
    assert validation is not None
    knows_truth = not is_share(prepared.config.trusted) or prepared.labels.clean is not None
    if not knows_truth:
        notes.append(NOISY)
    resolved = replace(prepared.config, parameters=config.parameters, tracker=None)
    space = search_space.read(options.space, names, config, resolved)
    search_space.check(space, resolved, prepared.context)
    plan = StudyPlan(
        data=prepared.dataset.name,
        config=resolved,
        methods=names,
        space=space,
        trials=options.trials,
        prune=options.prune,
        labels=prepared.labels.fingerprint,
        trusted_labels=noise.fingerprint(validation.labels, prepared.dataset.num_classes),
        knows_truth=knows_truth,
    )
    return plan, len(validation), notes


def _methods(config: Config) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in config.method.split(",")))
    for name in names:
        if methods.find(name).learns_trusted:
            raise InputError(
                f"method {name} trains on the trusted examples, so none are left to choose its "
                "parameters",
                field="method",
                fix="search another method",
            )
    for given in config.parameters:
        check_taken(given, tuple(map(methods.find, names)))
    return names


def _prepared(config: Config, dataset: Dataset | None) -> tuple[PreparedRun, list[str]]:
    """Return the prepared data of a trial, and notes for the user."""
    notes: list[str] = []
    data = label_data(config, dataset, notes.append)
    if backbones.chooses(data.config, data):
        chosen = backbones.choose(data.config, data, lambda note: None)
        config = replace(config, model=chosen.model, backbone=chosen.backbone)
    notes.clear()
    if config.trusted is None:
        prepared = prepare(config, dataset, report=notes.append)
        if prepared.dataset.validation is not None:  # the data has its own
            return prepared, notes
        notes.clear()
    config = replace(config, trusted=config.trusted or TRUSTED)
    return prepare(config, dataset, report=notes.append), notes


def _open(
    plan: StudyPlan,
    directory: StudyDirectory,
    options: Options,
    start: OutputOptions,
    display: Display,
) -> BaseStorage:
    """Begin the study or check that it is the same; return its storage."""
    url = options.storage
    address = "journal" if url is None else queue_storage.redacted(url)
    facts = StudyFacts(__version__, plan.key, **plan.fingerprints, storage=address)
    directory.make()
    try:
        with directory.locked():
            if directory.is_begun and not start.overwrite:
                directory.check_same(plan.options, facts)
            if start.overwrite and url is None:
                directory.clear()  # with the journal, which may be damaged
            storage = queue_storage.opened(directory.journal, url, display.note)
            if start.overwrite and url is not None:  # it is reachable, so nothing is lost
                for key in filter(None, (directory.key, plan.key)):
                    queue_storage.delete(storage, key)
                directory.clear()
            if not directory.is_begun:
                directory.write(plan.options, facts)
            return storage
    except InputError:
        directory.remove_unused()  # an invalid option leaves no directory behind
        raise


def _write(outcome: SearchOutcome) -> None:
    """Write the chosen options, the page, and the summary last."""
    directory = outcome.directory
    for choice in outcome.choices:
        labels = outcome.plan.labels
        if choice.summary is not None:
            labels = str(choice.summary["fingerprint"])
        if len(outcome.choices) > 1:
            choice.config.write(directory.chosen_of(choice.method), labels)
        if choice is outcome.best:
            choice.config.write(directory.chosen, labels)
    with whole_file(directory.report) as file:
        file.write(study_page.make(outcome).encode())
    RunDirectory(directory.path).write_json(directory.summary, to_json(outcome))


def _advice(directory: StudyDirectory, config: Config, options: Options) -> str:
    """Return a sentence with the command that continues a stopped search."""
    missing = []
    url = None if options.storage is None else queue_storage.redacted(options.storage)
    if options.storage is not None and url is not None:
        if "***" in url:
            missing.append("the password in place of ***")
        if "?" in options.storage and "?" not in url:
            missing.append("the part after the ?")
    hint = f" (with {' and '.join(missing)}, not repeated here)" if missing else ""
    resume = command(
        "search",
        out=directory.path,
        resume=True,
        jobs=options.jobs if options.jobs > 1 else None,
        storage=url,
        model=config.model if names_code(config.model) else None,
    )
    return f"stopped; finished trials are kept. Continue with{hint}: {resume}"
