"""Out-of-sample predictions: K models, each trained without the fold that it then predicts."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np

from proselflc.auditing import held_out
from proselflc.auditing.held_out import Halves
from proselflc.auditing.records import slices
from proselflc.data import noise
from proselflc.data import splits as splits_of
from proselflc.data.batches import Order
from proselflc.data.dataset import Bools, Dataset, Ints, Part
from proselflc.data.labels.labels import Labels
from proselflc.data.preprocessing import Preprocessing
from proselflc.data.random_streams import random_stream
from proselflc.data.request import FROM_PYTHON, Request
from proselflc.data.splits import Split
from proselflc.errors import InputError
from proselflc.run import original
from proselflc.run.config import Config, differences
from proselflc.run.output_options import OutputOptions
from proselflc.run.reader import Run, load_run
from proselflc.run.train import train
from proselflc.terminal.display import Display
from proselflc.terminal.interruption import Interrupted
from proselflc.training import checkpoint, processes
from proselflc.training.loop import DivergenceError
from proselflc.training.run_directory import RunDirectory, read_toml

_WIDTH = 256  # of inputs, at least, when it is decided how many examples are predicted at once


@dataclass(frozen=True)
class Data:
    """Where a run's examples come from, now.

    Attributes:
        dataset: the data that the run was made from, or None to open it anew.
        place: where it is, if it has moved since.
    """

    dataset: Dataset | None = None
    place: str | None = None


def predict(run: Run, folds: int, data: Data, display: Display) -> None:
    """Have every example of a run predicted by a model that has not seen it.

    The examples are cut into K folds, class by class of the given labels. For each fold a model is
    trained on the others as the run's own was: the same method, model and recipe, the same labels
    with no noise put on them again, and as many epochs. Trusted examples stay trusted, and a
    teacher is the same in all folds. What is done already is not done again,
    not even within a fold; the predictions of another number of folds are replaced in the end.

    Args:
        run: finished, and locked by the caller.
        folds: K.
        data: where the examples are.
        display: who is told how it goes.

    Raises:
        InputError: there are not enough examples, the data is gone or has changed, or the model is
            code that the user has not named.
        DivergenceError: the loss of a fold is no number any more.
        Interrupted: somebody wanted it to stop; the message says how to go on.
    """
    config = Config.from_table(run.config, run.directory.config)
    splits = cut(run.labels, folds, config.recipe.seed)
    run.directory.check_folds(folds)
    if _is_done(run, folds, config.recipe.seed):
        display.note(f"the predictions of {folds} folds are there already: none is trained again")
        return
    config = replace(config, model=run.model_name)
    scaling, teacher = None, config.parameters.get("teacher")
    if teacher is not None:
        scaling = run.preprocessing  # the teacher knows inputs that are prepared like this
        display.note(
            f"every fold has the teacher {teacher}: where it has learned from the same labels, "
            "what it knows of them reaches the models that have not seen them"
        )
    with _saying_how_to_go_on(run, folds, data):
        whole = _examples(run, data)
        for k, split in enumerate(splits, 1):
            directory = run.directory.fold(k, folds)
            dataset = _without_fold(whole, split, f"fold {k} of {folds}")
            own = of_fold(config, len(whole.train), len(dataset.train))
            _train(own, directory, dataset, scaling, display)
            _predict(own, directory, whole.train, split.validation, run.made_by)
            directory.clear_checkpoints()
        _put_together(run, splits, config.recipe.seed)


def cut(labels: Labels, folds: int, seed: int) -> tuple[Split, ...]:
    """The folds of a run's examples, a function of its labels and its seed alone.

    Raises:
        InputError: so many folds cannot be made.
    """
    n = len(labels.given)
    if folds < 2:
        raise InputError(f"--folds must be at least 2, got {folds}")
    stream = random_stream(seed, "folds", folds)
    # Trusted examples are few: every fold has its share of them, class by class.
    kinds = labels.given if labels.trusted is None else 2 * labels.given + labels.trusted
    splits = splits_of.folds(kinds, folds, generator=stream)
    if min(len(split.train) for split in splits) < 2:
        raise InputError(
            f"{folds} folds of {n} examples leave fewer than two to learn from: there are too few "
            "examples for an audit by folds"
        )
    if labels.trusted is not None:
        _check_trusted(labels.trusted, splits)
    return splits


def _check_trusted(trusted: Bools, splits: tuple[Split, ...]) -> None:
    """Refuse folds without which there is nothing trusted to learn from, or nothing else."""
    for kind, mask in (("a trusted one", trusted), ("one that is not trusted", ~trusted)):
        if not all(mask[split.train].any() for split in splits):
            raise InputError(
                f"the method learns from trusted and other examples, and {len(splits)} folds would "
                f"leave a model without {kind}: train the run with another --trusted, for it has "
                f"{int(mask.sum())} such of {len(mask)}"
            )


def of_fold(config: Config, n: int, m: int) -> Config:
    """The config of a run on n examples as it is for m of them.

    Steps, of training and of the warm-up, become fewer as an epoch has fewer batches, so that the
    number of epochs stays. It is evaluated once, at the end.
    """
    recipe = config.recipe
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
    return replace(
        config,
        request=Request(data=FROM_PYTHON),
        noise=None,
        noise_seed=None,
        trusted=None,
        recipe=recipe,
        eval_epochs=None,
        eval_steps=recipe.total_steps(batches),
        tracker=None,
    )


def _is_done(run: Run, folds: int, seed: int) -> bool:
    """Whether these very folds have been predicted."""
    try:
        found = held_out.of_run(run.directory, run.labels)
    except InputError:
        return False
    if found is None or found.folds != folds:
        return False
    return run.directory.read_json(run.directory.folds_done).get("seed") == seed


def _examples(run: Run, data: Data) -> Dataset:
    """The run's examples as it has learned from them: its inputs, labels and names."""
    if data.dataset is not None:
        found = data.dataset
        own = run.config.get("labels") is None
        found = original.with_trusted(run, found)
        rows = original.rows(run, found, f"the data {found.name}", own_labels=own)
    elif run.config.get("data") == FROM_PYTHON:
        raise InputError(
            f"the data of {run.path} was given in Python, so folds of it can only be made there: "
            "proselflc.audit(run, folds=…, dataset=…)"
        )
    else:
        found, rows = original.dataset(run, data=data.place)
        features = original.request(run).features
        if features is not None:
            from proselflc.data.sources import features as embeddings

            found = embeddings.attach(found, features)
    inputs = found.train.inputs
    if not np.array_equal(rows, np.arange(len(inputs))):
        inputs = inputs.take(rows)
    labels = run.labels
    return Dataset(
        found.name,
        Part(inputs, labels.given, labels.ids),
        labels.names,
        clean=labels.clean,
        coarse=found.coarse if found.names == labels.names else None,
        trusted=labels.trusted,
        sample_weight=None if found.sample_weight is None else found.sample_weight[rows],
    )


def _without_fold(whole: Dataset, split: Split, name: str) -> Dataset:
    """What is left to learn from when a fold is held out; all the class names stay."""
    return replace(whole.learning_from(split.train), name=f"{whole.name}, {name}")


def _train(
    config: Config,
    directory: RunDirectory,
    dataset: Dataset,
    scaling: Preprocessing | None,
    display: Display,
) -> None:
    """Train the model of a fold, or go on with it; what is there of another fold is replaced."""
    fingerprint = noise.fingerprint(dataset.train.labels, dataset.num_classes)
    if directory.is_begun:
        stored = read_toml(directory.config)
        other = differences(stored, config.table()) or stored.get("fingerprint") != fingerprint
        if not other and directory.is_finished:
            return
        if not other and checkpoint.can_go_on(directory.checkpoints):
            try:
                start = OutputOptions(directory.path, resume=True)
                train(config, start, display, dataset=dataset, preprocessing=scaling)
            except InputError as error:
                raise InputError(
                    f"{error}; where that cannot be mended, remove {directory.path}, whose fold "
                    "then begins anew"
                ) from None
            return
        display.note(f"{directory.path} cannot go on and begins anew")
        with directory.locked():
            directory.clear()
    train(config, OutputOptions(directory.path), display, dataset=dataset, preprocessing=scaling)


def _predict(
    config: Config, directory: RunDirectory, whole: Part, positions: Ints, made_by: str | None
) -> None:
    """Keep what the model of a fold says about the examples that it has not seen."""
    model = load_run(directory.path, model=made_by)
    shape = len(positions), len(model.names)
    try:
        held_out.read(directory.checked(directory.held_out), shape)
        return
    except InputError:
        pass  # not predicted yet
    model.model.to(processes.accelerator(config.recipe.precision).device)

    def pieces() -> Iterator[Halves]:
        for rows in slices(len(positions), max(len(model.names), _WIDTH)):
            some = positions[rows]
            p = model.judge(whole.inputs.take(some), workers=config.workers).probabilities
            yield held_out.kept(p, whole.labels[some])

    with directory.replacing(directory.held_out):
        held_out.write(directory.held_out, shape, pieces())


def _put_together(run: Run, splits: tuple[Split, ...], seed: int) -> None:
    """Write what all the folds have predicted, row for row with the labels."""
    directory, labels, folds = run.directory, run.labels, len(splits)
    n, C = len(labels.given), len(labels.names)

    def pieces() -> Iterator[Halves]:
        kind, (_, width) = held_out.form(n, C)
        unknown = np.array(np.nan if kind.names is None else (0, np.nan), kind)
        for rows in slices(n, width):
            piece = np.full((rows.stop - rows.start, width), unknown, kind)
            for k, split in enumerate(splits, 1):
                first, last = np.searchsorted(split.validation, (rows.start, rows.stop))
                # Mapped anew each time, so that what was read does not stay in memory.
                fold = directory.fold(k, folds)
                path = fold.checked(fold.held_out)
                p = held_out.read(path, (len(split.validation), C))
                piece[split.validation[first:last] - rows.start] = p[first:last]
            yield piece

    with directory.replacing(directory.folds_done, directory.folds_p):
        directory.folds_done.unlink(missing_ok=True)  # it is not of the predictions that come now
        held_out.write(directory.folds_p, (n, C), pieces())
        facts = {"folds": folds, "seed": seed, "fingerprint": labels.fingerprint}
        directory.write_json(directory.folds_done, facts)
    own = {directory.fold(k, folds) for k in range(1, folds + 1)}
    for fold in directory.runs_of_folds():
        if fold not in own:
            fold.remove()


@contextmanager
def _saying_how_to_go_on(run: Run, folds: int, data: Data) -> Iterator[None]:
    """Have an end before the end say how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        command = f"proselflc audit {shlex.quote(str(run.path))} --folds {folds}"
        if run.made_by is not None:
            command += f" --model {shlex.quote(run.made_by)}"
        if data.place is not None:
            command += f" --data {shlex.quote(data.place)}"
        if data.dataset is not None:
            command = f"audit({str(run.path)!r}, folds={folds}, dataset=…)"
        raise Interrupted(
            f"stopped before all {folds} folds were predicted, what is done is kept; go on with: "
            f"{command}"
        ) from None
    except DivergenceError as error:
        raise DivergenceError(f"in one of {folds} folds: {error}") from None
