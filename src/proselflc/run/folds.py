"""Out-of-fold predictions: K models, each trained without the fold that it then predicts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np

from proselflc.auditing import held_out
from proselflc.auditing.held_out import Stored
from proselflc.auditing.records import slices
from proselflc.data import noise
from proselflc.data.batches import Order
from proselflc.data.dataset import Dataset, Part
from proselflc.data.inputs import Ints
from proselflc.data.preprocessing import Preprocessing
from proselflc.data.request import FROM_PYTHON, Request
from proselflc.data.splits import Split
from proselflc.errors import InputError
from proselflc.learners.catalogue import is_estimator, is_learner
from proselflc.run import original
from proselflc.run.config import Config, OutputOptions, differences
from proselflc.run.fold_splits import split_examples
from proselflc.run.reader import Run, load_run
from proselflc.run.train import train
from proselflc.terminal import Display, Interrupted
from proselflc.training import checkpoint, processes
from proselflc.training.loop import DivergenceError
from proselflc.training.run_directory import RunDirectory, read_toml
from proselflc.wording import command, option

_WIDTH = 256  # least width of an example in the choice of how many are predicted at once


@dataclass(frozen=True)
class Data:
    """The present source of a run's examples."""

    dataset: Dataset | None = None  # None to open it again
    path: str | None = None  # the present location of data that has moved


def predict(run: Run, folds: int, data: Data, display: Display) -> None:
    """Predict every example of a run with a model that has not seen it.

    The examples are split into K folds, stratified by their given labels. For each fold a model is
    trained on the others as the run's own was: the same method, model, recipe and number of epochs,
    and the same labels without further noise. Trusted examples stay trusted, and all folds share
    the same teacher. Work that is done already is not repeated, even within a fold; predictions of
    another number of folds are replaced at the end.
    """
    config = Config.from_table(run.config, run.directory.config)
    splits = split_examples(run.labels, folds, config.recipe.seed)
    run.directory.check_folds(folds)
    if _is_done(run, folds, config.recipe.seed):
        display.note(f"the predictions of {folds} folds exist already, so none is trained again")
        return
    if is_estimator(config.model):
        raise InputError(
            f"{run.path} keeps no model of {config.model}, so other folds cannot be predicted: its "
            "labels were judged by folds when it was made",
            field="folds",
            fix=f"leave {option('folds')} out",
        )
    config = replace(config, model=run.model_name)
    scaling, teacher = None, config.parameters.get("teacher")
    if teacher is not None:
        scaling = run.preprocessing  # the teacher was trained with it
        display.note(
            f"all folds share the teacher {teacher}: if it was trained on the same labels, what it "
            "learned from them leaks into the models that have not seen them"
        )
    with _naming_the_command(run, folds, data):
        whole = examples_of(run, data)
        for k, split in enumerate(splits, 1):
            directory = run.directory.fold(k, folds)
            dataset = whole.learning_from(split.train)  # all class names stay
            dataset = replace(dataset, name=f"{whole.name}, fold {k} of {folds}")
            own = fold_config(config, len(whole.train), len(dataset.train))
            _train(own, directory, dataset, scaling, display)
            _predict(own, directory, whole.train, split.validation, run.made_by)
            directory.clear_checkpoints()
        _join(run, splits, config.recipe.seed)


def fold_config(config: Config, n: int, m: int) -> Config:
    """Return the config of a run on n examples for a fold with m of them.

    Steps of training and of the warm-up are scaled with the batches of an epoch, so that the number
    of epochs stays the same. There is one evaluation, at the end.
    """
    recipe = config.recipe
    alone = replace(
        config,
        request=Request(data=FROM_PYTHON),
        noise=None,
        noise_seed=None,
        trusted=None,
        eval_epochs=None,
        tracker=None,
    )
    if is_learner(config.model):
        return alone
    batch_size = min(recipe.batch_size or m, m)
    before = Order(recipe.batch_size or n, least=2).count(n)
    batches = Order(batch_size, least=2).count(m)
    steps = recipe.steps
    recipe = replace(
        recipe,
        batch_size=batch_size,
        accumulate=min(recipe.accumulate, batch_size),
        steps=None if steps is None else max(1, round(steps * batches / before)),
        warmup=round(recipe.warmup * batches / before),
    )
    return replace(alone, recipe=recipe, eval_steps=recipe.total_steps(batches))


def _is_done(run: Run, folds: int, seed: int) -> bool:
    """Return whether these folds have been predicted already."""
    try:
        found = held_out.of_run(run.directory, run.labels)
    except InputError:
        return False
    if found is None or found.folds != folds:
        return False
    if found.is_calibrated and not is_learner(str(run.config.get("model"))):
        return False  # trees have judged the table of a network, and these are other folds
    return run.directory.read_json(run.directory.folds_done).get("seed") == seed


def examples_of(run: Run, data: Data) -> Dataset:
    """Return the run's examples with the labels and names it was trained on."""
    if data.dataset is not None:
        found = data.dataset
        own = run.config.get("labels") is None
        found = original.with_trusted(run, found)
        rows = original.positions(run, found, f"the data {found.name}", own_labels=own)
    elif run.config.get("data") == FROM_PYTHON:
        raise InputError(
            f"the data of {run.path} was given in Python, so its folds can only be trained there",
            field="folds",
            fix="call proselflc.audit(run, folds=…, dataset=…)",
        )
    else:
        found, rows = original.dataset(run, data=data.path)
        features = original.request(run).features
        if features is not None:
            from proselflc.data.sources import npz

            found = npz.with_features(found, features)
    labels = run.labels
    return Dataset(
        found.name,
        Part(original.taken(found, rows), labels.given, labels.ids),
        labels.names,
        clean=labels.clean,
        coarse=found.coarse if found.names == labels.names else None,
        trusted=labels.trusted,
        sample_weight=None if found.sample_weight is None else found.sample_weight[rows],
    )


def _train(
    config: Config,
    directory: RunDirectory,
    dataset: Dataset,
    scaling: Preprocessing | None,
    display: Display,
) -> None:
    """Train the model of a fold or resume it; a run with other options is replaced."""

    def learn(output: OutputOptions) -> None:
        train(config, output, display, dataset=dataset, preprocessing=scaling, is_audited=False)

    fingerprint = noise.fingerprint(dataset.train.labels, dataset.num_classes)
    if directory.is_begun:
        stored = read_toml(directory.config)
        other = differences(stored, config.table()) or stored.get("fingerprint") != fingerprint
        if not other and directory.is_finished:
            return
        if not other and checkpoint.can_go_on(directory.checkpoints):
            try:
                learn(OutputOptions(directory.path, resume=True))
            except InputError as error:
                raise InputError(
                    f"{error}; or remove {directory.path} to train this fold again"
                ) from None
            return
        display.note(f"{directory.path} cannot be resumed and is trained from the start")
        with directory.locked():
            directory.clear()
    learn(OutputOptions(directory.path))


def _predict(
    config: Config, directory: RunDirectory, whole: Part, positions: Ints, made_by: str | None
) -> None:
    """Write the predictions of a fold's model for the examples that it has not seen."""
    model = load_run(directory.path, model=made_by)
    shape = len(positions), len(model.names)
    try:
        held_out.read(directory.checked(directory.held_out), shape)
        return
    except InputError:
        pass  # not predicted yet
    model.model.to(processes.accelerator(config.recipe.precision).device)

    def pieces() -> Iterator[Stored]:
        for rows in slices(len(positions), max(len(model.names), _WIDTH)):
            some = positions[rows]
            p = model.predict_inputs(whole.inputs.take(some), workers=config.workers).probabilities
            yield held_out.kept(p, whole.labels[some])

    with directory.replacing(directory.held_out):
        held_out.write(directory.held_out, shape, pieces())


def _join(run: Run, splits: tuple[Split, ...], seed: int) -> None:
    """Write the predictions of all folds, row for row with the labels."""
    directory, labels, folds = run.directory, run.labels, len(splits)
    n, C = len(labels.given), len(labels.names)

    def pieces() -> Iterator[Stored]:
        kind, (_, width) = held_out.form(n, C)
        unknown = np.array(np.nan if kind.names is None else (0, np.nan), kind)
        for rows in slices(n, width):
            piece = np.full((rows.stop - rows.start, width), unknown, kind)
            for k, split in enumerate(splits, 1):
                first, last = np.searchsorted(split.validation, (rows.start, rows.stop))
                # Mapped again each time, so that what was read does not stay in memory.
                fold = directory.fold(k, folds)
                path = fold.checked(fold.held_out)
                p = held_out.read(path, (len(split.validation), C))
                piece[split.validation[first:last] - rows.start] = p[first:last]
            yield piece

    with directory.replacing(directory.folds_done, directory.folds_p):
        directory.folds_done.unlink(missing_ok=True)  # it describes the old predictions
        held_out.write(directory.folds_p, (n, C), pieces())
        facts = {"folds": folds, "seed": seed, "fingerprint": labels.fingerprint}
        directory.write_json(directory.folds_done, facts)
    own = {directory.fold(k, folds) for k in range(1, folds + 1)}
    for fold in directory.runs_of_folds():
        if fold not in own:
            fold.remove()


@contextmanager
def _naming_the_command(run: Run, folds: int, data: Data) -> Iterator[None]:
    """Add the command that continues to an interruption."""
    try:
        yield
    except KeyboardInterrupt:
        again = command("audit", run.path, folds=folds, model=run.made_by, data=data.path)
        if data.dataset is not None:
            again = f"audit({str(run.path)!r}, folds={folds}, dataset=…)"
        raise Interrupted(
            f"stopped before all {folds} folds were predicted; finished work is kept, continue "
            f"with: {again}"
        ) from None
    except DivergenceError as error:
        raise DivergenceError(f"in one of {folds} folds: {error}") from None
