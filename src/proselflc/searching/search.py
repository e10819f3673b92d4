"""`proselflc search`: the paper's protocol for choosing what a method cannot know.

Corrupt once. Most of the training data trains, and examples with trusted labels choose: by default
a fifth of the training data, class by class, with its true labels back. First Γ and the optimiser's
options are chosen with cross entropy, then they are fixed for all methods, and of each method its
own parameters are chosen (ε, B). Then the method learns from all the training data, with the same
noisy labels, and its last state is what is measured on the test set, which has chosen nothing.
"""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from proselflc import methods
from proselflc.data import noise
from proselflc.data.dataset import Dataset
from proselflc.errors import InputError
from proselflc.models.named_code import flag_for
from proselflc.options import MOST_PROCESSES, check_least
from proselflc.queue import storage as queue_storage
from proselflc.queue.worker_processes import stopping_on_signals, worker_processes
from proselflc.run.config import Config, check_taken
from proselflc.run.output_options import OutputOptions, new_path
from proselflc.run.prepare import PreparedRun, prepare
from proselflc.searching import search_space
from proselflc.searching.search_part import FIRST, Part, Task, is_share, work
from proselflc.searching.study import NOISY, Outcome, Plan, write
from proselflc.searching.study_directory import StudyDirectory
from proselflc.terminal.display import Display, Silent
from proselflc.terminal.interruption import Interrupted

if TYPE_CHECKING:
    from optuna.storages import BaseStorage

TRUSTED = "0.2"  # of the training data, where the user names no trusted examples


@dataclass(frozen=True)
class Options:
    """How to search.

    Attributes:
        space: what may be chosen; see `search_space.read`.
        trials: how many in a stage of which not all can be tried.
        prune: end a trial from half of its training on where it is behind the median of others.
        storage: address of a database for the trials, or None for a journal in the study.
        jobs: processes on this machine.
        retrain: learn from all the training data at the end.
        quiet: say nothing about the trials.
    """

    space: tuple[str, ...] = ()
    trials: int = 20
    prune: bool = False
    storage: str | None = None
    jobs: int = 1
    retrain: bool = True
    quiet: bool = False

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
) -> Outcome:
    """Search as the paper does, or go on with a search; others may be at it as well.

    Args:
        config: the data, its noise, and what is fixed; its method is a name, or several with
            commas between them. Left-out trusted data is the data's own validation part, or a
            fifth of the training data.
        options: how to search.
        start: where the study is.
        display: who is told how the run at hand goes.
        dataset: instead of what the config names.
        runs: a folder of runs to share with others; left out, the study's own.

    Raises:
        InputError: something in the input, the data, the study or the storage is not as it must be.
        SearchError: no trial of a stage came to its end.
        Interrupted: somebody wanted it to stop; the message says how to go on.
    """
    queue_storage.check_installed("search")
    if os.environ.get("WORLD_SIZE", "1") != "1":
        raise InputError(
            "a search is not started by torchrun: start it once, with --jobs for more processes"
        )
    directory = StudyDirectory(_place(config, start))
    directory.check_start(start)
    with queue_storage.storage_errors(options.storage), stopping_on_signals():
        plan, validation, notes = _planned(config, options, dataset)
        storage = _begun(plan, directory, options, start, display)
        for note in notes:
            display.note(note)
        if directory.is_finished:
            display.note(f"the study {directory.path} is finished: no trial is done again")
        part = Part(
            plan,
            directory,
            storage,
            runs or directory.runs,
            display if options.jobs == 1 else Silent(notes=False),
            dataset,
            options.quiet,
        )
        try:
            task = Task(plan, directory, part.runs, dataset, options.storage, options.quiet)
            with worker_processes(work, task, options.jobs):
                recipe, stages, choices = part.take()
            choices = tuple(
                part.retrained(one) if options.retrain or part.is_retrained(one) else one
                for one in choices
            )
        except KeyboardInterrupt:
            raise Interrupted(_advice(directory, config, options)) from None
        weighed = tuple(
            replace(one, importance=part.trials(None if one.is_first else one.method).importance())
            for one in stages
        )
        outcome = Outcome(directory, plan, recipe, weighed, choices, validation)
        write(outcome)
    return outcome


def _place(config: Config, start: OutputOptions) -> Path:
    if start.out is not None:
        return start.out
    if start.resume:
        raise InputError("--resume needs --out, the directory of the study to go on with")
    return new_path(config, "search")


def _planned(
    config: Config, options: Options, dataset: Dataset | None
) -> tuple[Plan, int, list[str]]:
    """What is to be searched, how many examples choose, and what the user may not expect.

    What can be wrong with the input is found here.
    """
    names = _methods(config)
    setting, notes = _prepared(replace(config, method=FIRST, parameters={}), dataset)
    validation = setting.dataset.validation
    assert validation is not None
    knows_truth = not is_share(setting.config.trusted) or setting.labels.clean is not None
    if not knows_truth:
        notes.append(NOISY)
    resolved = replace(setting.config, parameters=config.parameters, tracker=None)
    space = search_space.read(options.space, names, config, resolved)
    search_space.check(space, resolved, setting.context)
    plan = Plan(
        data=setting.dataset.name,
        config=resolved,
        methods=names,
        space=space,
        trials=options.trials,
        prune=options.prune,
        labels=setting.labels.fingerprint,
        trusted_labels=noise.fingerprint(validation.labels, setting.dataset.num_classes),
        knows_truth=knows_truth,
    )
    return plan, len(validation), notes


def _methods(config: Config) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in config.method.split(",")))
    for name in names:
        if methods.find(name).learns_trusted:
            raise InputError(
                f"method {name} learns from trusted examples, so none are left to choose its "
                "parameters by: search another method"
            )
    for given in config.parameters:
        check_taken(given, tuple(map(methods.find, names)))
    return names


def _prepared(config: Config, dataset: Dataset | None) -> tuple[PreparedRun, list[str]]:
    """What a trial learns from and is chosen by, and what the user may not expect of it."""
    notes: list[str] = []
    if config.trusted is None:
        setting = prepare(config, dataset, report=notes.append)
        if setting.dataset.validation is not None:  # the data has its own
            return setting, notes
        notes.clear()
    wanted = replace(config, trusted=config.trusted or TRUSTED)
    return prepare(wanted, dataset, report=notes.append), notes


def _begun(
    plan: Plan, directory: StudyDirectory, options: Options, start: OutputOptions, display: Display
) -> BaseStorage:
    """The storage of a study that is new now, or is the one that was asked for."""
    url = options.storage
    about = {**plan.about, "storage": "journal" if url is None else queue_storage.redacted(url)}
    directory.make()
    try:
        with directory.locked():
            if directory.is_begun and not start.overwrite:
                directory.check_same(plan.options, about)
            if start.overwrite and url is None:
                directory.clear()  # with the journal, which may be damaged
            storage = queue_storage.opened(directory.journal, url, display.note)
            if start.overwrite and url is not None:  # it can be reached, so that nothing is lost
                for key in filter(None, (directory.key, plan.key)):
                    queue_storage.delete(storage, key)
                directory.clear()
            if not directory.is_begun:
                directory.write(plan.options, {**about, "key": plan.key})
            return storage
    except InputError:
        directory.remove_unused()  # a mistyped option leaves nothing behind
        raise


def _advice(directory: StudyDirectory, config: Config, options: Options) -> str:
    command = f"proselflc search --out {shlex.quote(str(directory.path))} --resume"
    if options.jobs > 1:
        command += f" --jobs {options.jobs}"
    missing = []
    if options.storage is not None:
        url = queue_storage.redacted(options.storage)
        command += f" --storage {shlex.quote(url)}"
        if "***" in url:
            missing.append("the password in place of ***")
        if "?" in options.storage and "?" not in url:
            missing.append("what was after the ?")
    command += flag_for(config.model)
    hint = f" (with {' and '.join(missing)}, which is not repeated here)" if missing else ""
    return f"stopped, what is done is kept; go on with{hint}: {command}"
