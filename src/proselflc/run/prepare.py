"""A config becomes a prepared run: data, labels, model, strategy and loaders."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import nn

from proselflc import methods
from proselflc.data import labels as labels_of
from proselflc.data import memory_budget, noise, splits
from proselflc.data.batches import Batches, Order, random_stream
from proselflc.data.corruption import corrupt_labels, unexpected_effects
from proselflc.data.dataset import Dataset, Part, about_skipped, checked
from proselflc.data.encoded.inputs import Encoded
from proselflc.data.image_scaling import ImageScaling
from proselflc.data.inputs import Inputs, Ints
from proselflc.data.labels import Labels
from proselflc.data.opening import for_other_table, open_data
from proselflc.data.preprocessing import Preprocessing
from proselflc.data.request import FROM_PYTHON, Request, is_table
from proselflc.data.serving import fit, loader
from proselflc.data.tables import column_notes, summary
from proselflc.data.tables.mixed import MixedColumns
from proselflc.errors import InputError
from proselflc.models import catalogue, pixels
from proselflc.models.shape import ImageShape, Shape
from proselflc.pretrained import catalogue as pretrained
from proselflc.run import unlabelled
from proselflc.run.config import Config
from proselflc.run.corrections import check_label_run, label_run_notes
from proselflc.run.learned.encoded import LARGE, encoded, image_size
from proselflc.training.recipe import EPOCHS
from proselflc.training.strategy import RunContext, Strategy
from proselflc.wording import option

EVALUATIONS = 20  # of a run, about, if the user does not choose
SHORT_EVALUATIONS = 5  # of a run of less than two epochs
EVALUATION_BATCH = 512
LOGITS = 12  # arrays of the size of the logits that a step allocates, about
SCARCE = 5  # examples per class below which a note says that they are few


@dataclass(frozen=True)
class PreparedRun:
    """Everything that training needs and that never changes."""

    config: Config  # with every default filled in
    dataset: Dataset  # its training part has the labels to learn from
    labels: Labels  # of the training part
    preprocessing: Preprocessing
    model: nn.Module
    strategy: Strategy
    context: RunContext  # that the strategy was made for
    train: Batches
    total_steps: int  # Γ
    eval_steps: int  # between evaluation points
    shard: tuple[int, int]  # index of this process and number of processes
    begun_in: int = 1  # number of processes
    leaking: tuple[str, ...] = ()  # columns that predict every label perfectly

    @property
    def epochs(self) -> int:
        """Return the number of epochs, counting one that is not completed."""
        return math.ceil(self.total_steps / len(self.train))

    def is_point(self, step: int) -> bool:
        """Return whether there is an evaluation after a step."""
        return step % self.eval_steps == 0 or step == self.total_steps

    @cached_property
    def sample(self) -> Ints:
        """Return the positions of the training examples that this process evaluates."""
        n, (rank, world) = len(self.dataset.train), self.shard
        every = np.linspace(0, n - 1, min(n, self.config.eval_examples)).astype(np.int64)
        m = len(every)
        own = np.arange(m * rank // world, m * (rank + 1) // world)
        if self.strategy.remembers:
            own = np.flatnonzero(every % world == rank)
        return np.take(every, own)

    def for_evaluation(self, part: Part, *, is_share: bool = False) -> Batches:
        """Return the batches of a part in order, with test-time transforms.

        They are shared by all processes, unless the part is this process's share already.
        """
        shard = (0, 1) if is_share else self.shard
        order = Order(EVALUATION_BATCH, shuffle=False, shard=shard)
        workers, last = self.config.workers, self.config.recipe.channels_last
        return loader(part, self.preprocessing, order, workers=workers, channels_last=last)


@dataclass(frozen=True)
class LabelledData:
    """The data of a run with the labels that are learned."""

    config: Config
    dataset: Dataset
    labels: Labels  # of the training part
    leaking: tuple[str, ...] = ()  # columns that predict every label perfectly


def label_data(
    config: Config, dataset: Dataset | None, report: Callable[[str], None]
) -> LabelledData:
    """Open the data of a config, unless it is given, and corrupt its labels.

    `report` receives sentences about what the user may not expect.
    """
    methods.resolved(config.method, config.parameters)
    if dataset is None:
        check_label_run(config.request)
        dataset = open_data(config.request)
        _note_scarce_classes(config, dataset, report)
        for note in (
            *dataset.notes,
            *column_notes.notes(config.request, dataset),
            *summary.notes(dataset),
        ):
            report(note)
        leaking = summary.leaking(dataset)
        if leaking:
            report(summary.about_leaks(leaking))
    else:
        leaking = summary.leaking(dataset)
        config = replace(config, request=Request(data=FROM_PYTHON))
    for note in (
        *label_run_notes(config.request, dataset),
        *unlabelled.notes(config.request, dataset),
    ):
        report(note)
    if dataset.skipped:
        report(f"{about_skipped(dataset.skipped)}; the run's model.json lists them")
    return LabelledData(config, *_labelled(config, dataset, report), leaking)


def prepare(
    config: Config,
    dataset: Dataset | None = None,
    *,
    data: LabelledData | None = None,
    model: nn.Module | None = None,
    preprocessing: Preprocessing | None = None,
    shard: tuple[int, int] = (0, 1),
    begun_in: int | None = None,
    report: Callable[[str], None],
) -> PreparedRun:
    """Open the data, corrupt its labels, and make the model and the strategy of a config.

    Data, model and preprocessing that are given replace what the config names; `data` is what
    `label_data` returned, if it was called before. `report` receives sentences about what the user
    may not expect.
    """
    parameters = methods.resolved(config.method, config.parameters)
    data = data or label_data(config, dataset, report)
    config, labels = data.config, data.labels
    dataset = encoded(config, data.dataset)
    config = replace(config, image_size=image_size(config, dataset.train.inputs))
    n, C = len(dataset.train), dataset.num_classes
    notes: list[str] = []  # about the weights, reported once they have been read and fit
    if preprocessing is not None:
        preprocessing.check(dataset.train.inputs)
    else:
        normalize = choose_normalization(config, dataset.train.inputs, notes.append)
        config = replace(config, normalize=normalize)
    scaling = preprocessing or _fitted(config, dataset.train.inputs, report)
    shape = scaling.shape
    recipe = config.recipe
    batch_size = min(128, n) if recipe.batch_size is None else recipe.batch_size
    if batch_size > n:
        raise InputError(
            f"a batch of {batch_size} is larger than the {n} training examples of {dataset.name}",
            field="batch_size",
            fix=f"lower {option('batch_size')}",
        )
    if n < 2 * shard[1]:
        raise InputError(
            f"{shard[1]} process{'es need' if shard[1] > 1 else ' needs'} at least {2 * shard[1]} "
            f"training examples, and {dataset.name} has {n}",
            fix="add examples" if n < 2 else f"start at most {n // 2}",
        )
    if batch_size < 2 * shard[1]:
        raise InputError(
            f"a batch of {batch_size} is too small: {shard[1]} "
            f"process{'es need' if shard[1] > 1 else ' needs'} at least {2 * shard[1]} examples at "
            f"a time, so raise {option('batch_size')}",
            field="batch_size",
        )
    _check_room_for_batches(config, batch_size, C)
    name = config.model or _default_model(dataset.train.inputs, shape)
    if model is not None:
        name = f"{type(model).__module__}.{type(model).__qualname__}"
        catalogue.tried(name, model, shape, C)
    else:
        weights, state = config.weights, None
        backbone = catalogue.MODELS[name].pretrained if name in catalogue.MODELS else None
        if weights is None and backbone is not None:
            weights, state = pretrained.initial_state(backbone)
        model = catalogue.build(
            name,
            shape,
            C,
            generator_seed=recipe.seed,
            weights=weights,
            state=state,
            report=None if state else report,  # a new classifier is what fine-tuning needs
        )
    for note in notes:
        report(note)
    known = catalogue.MODELS.get(name, catalogue.MODELS[catalogue.default_name(shape)])
    recipe = replace(
        recipe,
        batch_size=batch_size,
        epochs=None if recipe.steps is not None else (recipe.epochs or EPOCHS),
        optimizer=recipe.optimizer or known.optimizer,
        lr=known.lr if recipe.lr is None else recipe.lr,
        weight_decay=known.weight_decay if recipe.weight_decay is None else recipe.weight_decay,
    )
    augment = config.augment
    if augment is None:
        photos = isinstance(shape, ImageShape) and shape.channels == 3
        augment = "crop-flip" if photos else "none"
    # Batch normalisation needs two examples, in every process.
    begun_in = begun_in or shard[1]
    rest = n % batch_size
    if 2 * begun_in <= rest < 2 * shard[1]:
        raise InputError(
            f"the last batch of each epoch has {rest} examples, which {shard[1]} processes cannot "
            "share",
            fix=f"resume the run in {begun_in}, as it was begun",
        )
    order = Order(batch_size, recipe.seed, least=2 * begun_in, shard=shard)
    batches = order.count(n)
    total = recipe.total_steps(batches)
    resolved = replace(
        config,
        parameters=parameters.given(),
        model=name,
        augment=augment,
        recipe=recipe,
        noise=None if config.noise is None else labels.generator,
        noise_seed=noise_seed(config) if config.noise is not None else None,
    )
    context = RunContext(
        total_steps=total,
        batches=batches,
        given=labels.given,
        names=dataset.names,
        preprocessing=scaling,
        model=name,
        coarse=dataset.coarse,
        trusted=labels.trusted,
        sample_weight=dataset.sample_weight,
        seed=recipe.seed,
        precision=recipe.precision,
        shard=shard,
    )
    strategy = methods.strategy(config.method, parameters, context)
    for note in strategy.notes():
        report(note)
    train = loader(
        dataset.train,
        scaling,
        replace(order, by_position=strategy.remembers),
        augment=augment,
        workers=config.workers,
        channels_last=recipe.channels_last,
    )
    return PreparedRun(
        config=resolved,
        dataset=dataset,
        labels=labels,
        preprocessing=scaling,
        model=model,
        strategy=strategy,
        context=context,
        train=train,
        total_steps=total,
        eval_steps=_eval_steps(config, batches, total),
        shard=shard,
        begun_in=begun_in,
        leaking=data.leaking,
    )


def _check_room_for_batches(config: Config, batch_size: int, num_classes: int) -> None:
    """Refuse a batch whose logits alone would not fit into memory, before it is allocated."""
    if torch.cuda.is_available() or torch.backends.mps.is_available():
        return  # batches are not in the system's memory
    at_once = max(-(-batch_size // config.recipe.accumulate), EVALUATION_BATCH)
    memory_budget.require(
        4 * LOGITS * at_once * num_classes,
        f"a batch of {at_once:,} examples with logits of {num_classes:,} classes",
        f"lower {option('batch_size')}, or raise {option('accumulate')}",
    )


def _labelled(
    config: Config, dataset: Dataset, report: Callable[[str], None]
) -> tuple[Dataset, Labels]:
    """Return the data set with its noise, and the labels of its training part.

    Trusted examples are the validation part, or part of the training part for a method that learns
    from them.
    """
    generator = "none"
    if config.noise is not None:
        spec = noise.parse(config.noise)
        path = config.request.labels
        if path is not None and path.is_dir() and dataset.clean is not None:
            raise InputError(
                f"{option('noise', config.noise)} starts from the true labels, so those of "
                f"the run {path} would have no effect",
                field="noise",
                fix=f"pass {option('noise', 'none')}",
            )
        result = corrupt_labels(dataset, spec, seed=noise_seed(config))
        generator = result.spec
        for note in unexpected_effects(dataset, result):
            report(note)
        truth = dataset.train.labels if dataset.clean is None else dataset.clean
        dataset = checked(dataset.with_labels(result.given, truth))
    if config.trusted is not None:
        dataset = _with_validation(config, dataset)
    if config.trusted is not None and methods.find(config.method).learns_trusted:
        dataset = splits.with_trusted_learned(dataset)
    labels = replace(labels_of.from_dataset(dataset, None), generator=generator)
    return dataset, labels


def _note_scarce_classes(config: Config, dataset: Dataset, report: Callable[[str], None]) -> None:
    """Report labels that look like names or measurements of single examples."""
    n, C = len(dataset.train), dataset.num_classes
    if C > 20 and n < SCARCE * C:
        remedy = ""
        if is_table(config.request.data):
            remedy = (
                f"; if these are not the labels, choose their column with {option('label_column')}"
            )
        report(
            f"{dataset.name} has {C:,} classes for {n:,} examples, {n / C:.1f} of each, which is "
            f"too few to learn them well or to audit their labels{remedy}"
        )


def _with_validation(config: Config, dataset: Dataset) -> Dataset:
    assert config.trusted is not None
    path = Path(config.trusted)
    if path.exists():
        request = for_other_table(config.request, config.trusted)
        own = dataset.train.inputs
        kinds = own.kinds if isinstance(own, MixedColumns) else None
        trusted = open_data(request.with_own_labels, kinds)
        return splits.with_trusted(dataset, trusted)
    try:
        float(config.trusted)
    except ValueError:
        raise InputError(
            f"{option('trusted', config.trusted)} is neither a file or folder nor a share such as "
            "0.2",
            field="trusted",
        ) from None
    split = splits.trusted_split(
        dataset.train.labels,
        dataset.clean,
        fraction=config.trusted,
        generator=random_stream(config.recipe.seed, "trusted split"),
    )
    return splits.with_split(dataset, split)


def noise_seed(config: Config) -> int:
    return config.recipe.seed if config.noise_seed is None else config.noise_seed


def _fitted(config: Config, inputs: Inputs, report: Callable[[str], None]) -> Preprocessing:
    fixed = None if config.normalize is None else pixels.parse(config.normalize)
    known = None if fixed is None else (fixed.mean, fixed.std)
    if inputs.medium != "image" or isinstance(inputs, Encoded):
        return fit(inputs)
    size = config.image_size
    assert size is not None
    warp = round(size * 8 / 7)
    return ImageScaling.fit(inputs, size=(size, size), warp=(warp, warp), known=known)


def _default_model(inputs: Inputs, shape: Shape) -> str:
    return "linear" if isinstance(inputs, Encoded) else catalogue.default_name(shape)


def _eval_steps(config: Config, batches: int, total: int) -> int:
    if config.eval_steps is not None:
        return config.eval_steps
    if config.eval_epochs is not None:
        return config.eval_epochs * batches
    if total < batches * 2:
        return max(1, total // SHORT_EVALUATIONS)
    return batches * max(1, round(total / batches / EVALUATIONS))


def choose_normalization(
    config: Config, inputs: Inputs, report: Callable[[str], None]
) -> str | None:
    """Return the `normalize` option to train with; None for the data's own mean and deviation."""
    if inputs.medium == "image" and not isinstance(inputs, Encoded):
        height = width = config.image_size or LARGE  # of files, resized
        channels = 3
        if inputs.numbers is not None:
            height, width, channels = map(int, inputs.numbers.shape[1:])
    elif config.normalize not in (None, pixels.DATA):
        raise InputError(
            f"{option('normalize', config.normalize)} is for images, but these are {inputs.kind}",
            field="normalize",
            fix="leave it out",
        )
    else:
        return None
    if config.normalize is not None:
        chosen = pixels.parse(config.normalize)
        if chosen is not None and len(chosen.mean) != channels:
            raise InputError(
                f"{option('normalize', config.normalize)} has {len(chosen.mean)} channels and the "
                f"images have {channels}",
                field="normalize",
                fix=f"give {channels} means and {channels} deviations, or data",
            )
        return pixels.DATA if chosen is None else str(chosen)
    ours = catalogue.MODELS.get(config.model or "")
    if config.weights is None and ours is not None and ours.pixels is not None:
        return str(pixels.Pixels(ours.pixels.mean[:channels], ours.pixels.std[:channels]))
    if config.weights is None or not config.weights.is_file():
        return None  # reading the weights reports that the file is missing
    name = config.model or catalogue.default_name(ImageShape(channels, height, width))
    found = pixels.expected(name, config.weights)
    if found is None or len(found.mean) != channels:
        report(
            f"how pixels were scaled for the weights in {config.weights} is not known, so they are "
            f"scaled by the mean and deviation of the data: change that with {option('normalize')}"
        )
        return pixels.DATA
    report(
        f"pixels are scaled as the weights in {config.weights} expect ({found.in_short()}); "
        f"{option('normalize', 'data')} scales them by the data's own mean and deviation"
    )
    return str(found)
