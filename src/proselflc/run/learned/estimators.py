"""`proselflc.audit_estimator`: an audit of labels by any classifier of scikit-learn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from proselflc.data.dataset import Dataset, checked
from proselflc.data.sources import arrays
from proselflc.learners.estimator import PREFIX
from proselflc.learners.estimator import checked as checked_estimator
from proselflc.run.config import Config, OutputOptions
from proselflc.run.reader import Run, run_in
from proselflc.run.train import train
from proselflc.terminal import Display, Silent
from proselflc.training.recipe import Recipe


def audit_estimator(
    estimator: object,
    X: object,
    y: object | None = None,
    *,
    clean: object | None = None,
    names: Sequence[str] | None = None,
    ids: Sequence[str] | None = None,
    seed: int = 0,
    out: str | Path | None = None,
    overwrite: bool = False,
    notes: bool = True,
) -> Run:
    """Audit labels by a classifier of scikit-learn that is fitted by five folds.

    Each label is judged by a copy of the classifier that did not see it. The result is a run as
    `fit` returns it, for `find_label_issues`, `corrected_labels`, a report and a review; it keeps
    no model, because an estimator can only be saved by pickling it.

    Args:
        estimator: a classifier with `predict_proba`, which is not changed. It gets the columns as
            dense, standardised numbers.
        X: [n, D] numbers or a data frame; or, without y, a `proselflc.Dataset`.
        y: n labels, as for `fit`.
        clean: n true labels if they are known, for evaluation only.
        names: C class names; y then holds class ids.
        ids: n distinct names of the examples.
        seed: of the folds.
        out: directory of the run; defaults to a temporary one that lives as long as the result.
        overwrite: whether to replace a run in `out`.
        notes: report on stderr what may be unexpected.

    Raises:
        InputError: the classifier lacks a method or cannot be fitted, or the data cannot be used.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> from sklearn.linear_model import LogisticRegression
        >>> X, y = load_iris(return_X_y=True)
        >>> y[::10] = (y[::10] + 1) % 3  # a tenth of the labels is wrong
        >>> run = audit_estimator(LogisticRegression(), X, y)
        >>> run.examples["is_suspect"].to_numpy()[::10].mean() > 0.8
        np.True_
    """
    learner = checked_estimator(estimator)
    kind = type(estimator)
    if isinstance(X, Dataset):
        dataset = checked(X)
    else:
        dataset = arrays.load(X, y, clean=clean, names=names, ids=ids)
    config = Config(
        model=f"{PREFIX}{kind.__module__}.{kind.__qualname__}", recipe=Recipe(seed=seed)
    )
    result = run_in(out)
    output = OutputOptions(None if out is None else Path(out), overwrite=overwrite)
    display = Display() if notes else Silent()
    train(config, replace(output, out=result.path), display, dataset=dataset, learner=learner)
    for warning in result.audit.warnings:
        display.note(warning.about(result.path))
    return result
