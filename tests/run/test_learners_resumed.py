"""A run of trees that a signal stops can be resumed, and never mixes two sets of rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pytest

from proselflc.data.request import Request
from proselflc.errors import InputError
from proselflc.learners import learner
from proselflc.learners.boosting import Boosting
from proselflc.run.config import Config, OutputOptions
from proselflc.run.learned import fitted
from proselflc.run.reader import load_run
from proselflc.run.train import train
from proselflc.terminal import Interrupted, Silent
from proselflc.training.recipe import Recipe
from proselflc.training.run_directory import RunDirectory


def written(folder: Path, shift: float = 0.0) -> Config:
    """Write a table, whose first column is shifted in its first row, and return a config for it."""
    stream = np.random.default_rng(0)
    frame = pd.DataFrame(stream.normal(size=(60, 3)), columns=list("abc"))
    frame["label"] = np.where(frame["a"] > 0, "yes", "no")
    frame.loc[0, "a"] += shift
    frame.to_csv(folder / "table.csv", index=False)
    request = Request(data=str(folder / "table.csv"), label_column="label")
    return Config(request=request, model="boosting", recipe=Recipe(epochs=4))


def stop(*arguments: object, **options: object) -> object:
    raise KeyboardInterrupt


def stopped_in_a_fold(config: Config, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(learner, "mean_over_rounds", stop)
        with pytest.raises(Interrupted, match="the state is saved; resume with: "):
            train(config, OutputOptions(out), Silent())


@pytest.mark.parametrize("step", ["write_model", "write_results"])
def test_a_stop_while_the_results_are_written_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    config = written(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(fitted, step, stop)
        message = r"stopped after 6 of 6 models, the state is saved; resume with: .*--resume"
        with pytest.raises(Interrupted, match=message):
            train(config, OutputOptions(tmp_path / "run"), Silent())
    with monkeypatch.context() as patch:
        patch.setattr(learner, "mean_over_rounds", stop)  # no fold is fitted again
        train(config, OutputOptions(tmp_path / "run", resume=True), Silent())
    resumed = load_run(tmp_path / "run")
    whole = load_run(train(config, OutputOptions(tmp_path / "whole"), Silent()))
    assert resumed.examples.equals(whole.examples)
    assert resumed.directory.weights.read_bytes() == whole.directory.weights.read_bytes()


def test_a_stop_before_the_first_model_says_that_nothing_is_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = written(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(Boosting, "fit", stop)
        with pytest.raises(Interrupted, match="0 of 6 models, nothing is saved yet; begin again"):
            train(config, OutputOptions(tmp_path / "run"), Silent())
    assert load_run(train(config, OutputOptions(tmp_path / "run", resume=True), Silent()))


def test_folds_of_other_rows_are_not_mixed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped_in_a_fold(written(tmp_path), tmp_path / "run", monkeypatch)
    other = written(tmp_path, shift=0.5)
    with pytest.raises(InputError, match=r"the rows are not those that .* was begun with"):
        train(other, OutputOptions(tmp_path / "run", resume=True), Silent())
    train(written(tmp_path), OutputOptions(tmp_path / "run", resume=True), Silent())


def test_a_damaged_checkpoint_is_refused_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, directory = written(tmp_path), RunDirectory(tmp_path / "run")
    stopped_in_a_fold(config, directory.path, monkeypatch)
    before = directory.history.read_bytes()
    (path,) = directory.checkpoints.iterdir()
    content = path.read_bytes()
    path.write_bytes(content[:-1])
    with pytest.raises(InputError, match=r"all checkpoints of .* are damaged: train it again"):
        train(config, OutputOptions(directory.path, resume=True), Silent())
    assert directory.history.read_bytes() == before
    path.write_bytes(content)
    path.rename(path.with_name("0000000099" + path.name[10:]))
    with pytest.raises(InputError, match="belongs to another run"):
        train(config, OutputOptions(directory.path, resume=True), Silent())
    assert directory.history.read_bytes() == before
