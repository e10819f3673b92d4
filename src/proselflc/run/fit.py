"""`proselflc.fit` and `proselflc.predict`: the whole run from Python."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Literal

from torch import nn

from proselflc.data.dataset import Dataset, checked, separated
from proselflc.data.labels import LabelValues
from proselflc.data.preprocessing import Preprocessing
from proselflc.data.sources import arrays, python_dataset
from proselflc.data.tables.frames import AskedColumns
from proselflc.errors import InputError
from proselflc.files.regular import fleeting
from proselflc.models.weights import load_strictly, read_state
from proselflc.run.config import Config, OutputOptions
from proselflc.run.reader import Predictions, Run, load_run, run_in
from proselflc.run.train import train
from proselflc.terminal import Display, Interrupted, Silent, chosen
from proselflc.training.recipe import Recipe, Schedule


def fit(
    x: object,
    y: object | None = None,
    *,
    x_test: object | None = None,
    y_test: object | None = None,
    clean: object | None = None,
    names: Sequence[str] | None = None,
    ids: Sequence[str] | None = None,
    categorical: str | Sequence[str] = (),
    numeric: str | Sequence[str] = (),
    text: str | Sequence[str] = (),
    ignore_column: str | Sequence[str] = (),
    method: str = "proselflc",
    parameters: Mapping[str, Any] | None = None,
    model: str | nn.Module | None = None,
    weights: str | Path | None = None,
    noise: str | None = None,
    trusted: float | str | Path | None = None,
    normalize: str | None = None,
    augment: Literal["crop-flip", "crop", "flip", "none"] | None = None,
    backbone: str | None = None,
    image_size: int | None = None,
    epochs: int | None = None,
    steps: int | None = None,
    batch_size: int | None = None,
    optimizer: Literal["sgd", "adamw"] | None = None,
    lr: float | None = None,
    momentum: float = 0.9,
    weight_decay: float | None = None,
    schedule: Schedule = "multistep",
    warmup: int = 0,
    precision: Literal["no", "bf16", "fp16"] = "no",
    accumulate: int = 1,
    clip: float | None = None,
    ema: float | None = None,
    channels_last: bool = False,
    compile: bool = False,
    deterministic: bool = False,
    seed: int = 0,
    eval_epochs: int | None = None,
    eval_steps: int | None = None,
    eval_examples: int = 50_000,
    preprocessing: Preprocessing | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    quiet: bool = True,
    notes: bool = True,
) -> Run:
    """Train a robust model on data whose labels may be wrong.

    Arguments that are not described below are options of the command line, see
    `proselflc train --help`.

    Args:
        x: a data frame (pandas, polars or pyarrow) with columns of any kind, whose cells may be
            missing; or numbers [n, D], images (bytes, or floats in 0 … 1), n texts or n paths of
            image files; or, without y, a PyTorch or Hugging Face data set, or a
            `proselflc.Dataset`.
        y: n labels, integers or texts, in a list, an array, a column of a data frame or a tensor.
            None and NaN stand for no label: such examples are predicted and get a suggestion, but
            are neither learned nor judged. (−1 is a label like any other.)
            Labels are returned in the same type and dtype: by `corrected_labels`, by
            `find_label_issues` and as `.labels` of predictions, also when the run is read again.
            A column is returned as an array. For a data set, the labels of its items are returned;
            for a `Dataset`, its class ids, or class names if it was read from files. In files and
            on the command line labels are class names.
        x_test, y_test: clean examples for evaluation.
        clean: n true labels if they are known, for evaluation only.
        names: C class names; y then holds class ids.
        ids: n distinct names of the examples; defaults to the index of a data frame that has one.
        categorical, numeric, text: columns of a data frame whose kind should not be guessed.
        ignore_column: columns of a data frame to leave out.
        method: name of a method, see `proselflc methods`.
        parameters: parameters of the method, such as {"epsilon": 0.2}.
        model: name of a model, see `proselflc models`, or a module that maps a batch to logits
            [N, C]. It is trained in place.
        preprocessing: preprocessing of an earlier run (`run.preprocessing`), to continue training
            its model; by default it is fitted to x.
        out: directory of the run; defaults to a temporary one that lives as long as the result.
        quiet: show no progress.
        notes: report on stderr what may be unexpected, such as memorised labels.

    Returns:
        The run: `.model`, `.examples`, `.history`, `.summary`, `.predict(x)` and more.

    Example:
        >>> import numpy as np
        >>> generator = np.random.default_rng(0)
        >>> y = generator.integers(3, size=300)
        >>> x = np.eye(3)[y] + generator.normal(0, 0.3, (300, 3))
        >>> y[:60] = (y[:60] + 1) % 3  # a fifth of the labels are wrong
        >>> result = fit(x, y, epochs=10)
        >>> result.examples["is_suspect"].to_numpy()[:60].mean() > 0.8
        np.True_
    """
    given = locals()
    output = OutputOptions(None if out is None else Path(out), resume, overwrite)
    if preprocessing is not None and not isinstance(preprocessing, Preprocessing):
        raise InputError(
            "preprocessing= must be run.preprocessing of an earlier run, got "
            f"{type(preprocessing).__name__}",
            field="preprocessing",
        )
    if not isinstance(parameters or {}, Mapping):
        raise InputError(
            'parameters= must be a mapping such as {"epsilon": 0.2}, got '
            f"{type(parameters).__name__}",
            field="parameters",
        )
    config = Config(
        method=method,
        parameters=parameters or {},
        model=model if isinstance(model, str) else None,
        weights=None if weights is None else Path(weights),
        noise=noise,
        trusted=None if trusted is None else str(trusted),
        normalize=normalize,
        augment=augment,
        backbone=backbone,
        image_size=image_size,
        recipe=Recipe(**{f.name: given[f.name] for f in fields(Recipe) if f.name in given}),
        eval_epochs=eval_epochs,
        eval_steps=eval_steps,
        eval_examples=eval_examples,
    )
    asked = AskedColumns.of(
        categorical=categorical, numeric=numeric, text=text, ignore_column=ignore_column
    )
    if asked and y is None:
        raise InputError(
            "categorical=, numeric=, text= and ignore_column= name columns of a data frame, but x "
            "is a data set",
            fix="leave them out, or give a data frame and y",
        )
    if isinstance(x, Dataset):
        dataset = separated(checked(x))
        if dataset.label_values is None:  # the caller's labels are the class ids
            dataset = replace(dataset, label_values=LabelValues.class_ids(dataset.num_classes))
    elif y is None:
        dataset = python_dataset.load(x)
    else:
        dataset = arrays.load(
            x,
            y,
            x_test=x_test,
            y_test=y_test,
            clean=clean,
            names=names,
            ids=ids,
            asked=asked,
        )
    module = model if isinstance(model, nn.Module) else None
    made_by = model if isinstance(model, str) and ":" in model else None
    result = run_in(out, made_by=made_by, module=module)
    display = (Display() if notes else Silent()) if quiet else chosen(quiet=False)
    with contextlib.nullcontext() if out is not None else _temporary_run():
        train(
            config,
            replace(output, out=result.path),
            display,
            dataset=dataset,
            model=module,
            preprocessing=preprocessing,
        )
    for warning in result.audit.warnings:
        display.note(warning.about(result.path))
    if module is not None:  # the saved weights may be an average, or those of a finished run
        weights = result.directory.checked(result.directory.weights)
        load_strictly(module, read_state(weights), weights)
    return result


def predict(run: Run | str | Path, x: object) -> Predictions:
    """Predict arrays, texts or image paths, as `fit` takes them, with a run's model.

    Returns:
        `Predictions` with `.labels`, `.probabilities` [n, C] and `.confidence` [n].
    """
    return (run if isinstance(run, Run) else load_run(run)).predict(x)


@contextlib.contextmanager
def _temporary_run() -> Iterator[None]:
    """Write files without waiting for the disk; an interruption says that nothing is kept."""
    try:
        with fleeting():
            yield
    except Interrupted as stopped:
        raise Interrupted(
            stopped.where,
            "and nothing of it is kept: proselflc.fit(…, out=…) keeps a run that can be resumed",
        ) from None
