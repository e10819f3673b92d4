"""Runs of trees and estimators: the same directory, commands and words as a network's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pytest
from sklearn.datasets import load_breast_cancer, load_wine
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.svm import LinearSVC

import proselflc
from proselflc.auditing import held_out
from proselflc.data import memory_budget
from proselflc.data.request import Request
from proselflc.errors import InputError
from proselflc.learners import learner
from proselflc.learners.boosting import LEARNING_RATE, LEAVES, PENALTY, SHARE_OF_COLUMNS
from proselflc.learners.forest import out_of_bag
from proselflc.run.config import Config, OutputOptions
from proselflc.run.fold_splits import split_examples
from proselflc.run.reader import Run, load_run
from proselflc.run.train import train
from proselflc.terminal import Interrupted, Silent
from proselflc.training.recipe import Recipe

ROUNDS = 12
LINEAR = "sklearn:sklearn.linear_model.LogisticRegression"


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of numbers, a category and gaps, with a tenth of its labels wrong."""
    data = load_wine(as_frame=True)
    stream = np.random.default_rng(0)
    frame = data.data.iloc[:, :6].copy()
    frame["shop"] = np.where(data.target == 1, "north", "south")
    frame.loc[stream.random(len(frame)) < 0.1, "alcohol"] = np.nan
    wrong = stream.random(len(frame)) < 0.1
    names = np.array(["barolo", "grignolino", "barbera"])
    frame["grape"] = names[(data.target + wrong) % 3]
    path = tmp_path_factory.mktemp("table") / "wine.csv"
    frame.to_csv(path, index=False)
    return path


def config_of(path: Path, **options: object) -> Config:
    request = Request(data=str(path), label_column="grape")
    given = {"model": "boosting", "recipe": Recipe(epochs=ROUNDS), **options}
    return Config(request=request, **given)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def finished(table: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    out = tmp_path_factory.mktemp("runs") / "boosting"
    return load_run(train(config_of(table), OutputOptions(out), Silent()))


def test_every_round_is_recorded_as_an_epoch(finished: Run) -> None:
    assert len(list(finished.dynamics)) == len(finished.history) == ROUNDS
    fitted_share = [float(str(line["train_accuracy"])) for line in finished.history]
    assert fitted_share[-1] > fitted_share[0]
    assert finished.config["model"] == "boosting"
    assert finished.summary["steps"] == ROUNDS
    assert finished.config["lr"] == finished.history[0]["lr"] == LEARNING_RATE
    assert finished.audit.folds == 5
    assert finished.audit.suspects > 0


def test_the_held_out_predictions_are_those_of_scikit_learn(finished: Run) -> None:
    """The mean over the rounds of a model fitted without the fold, and a forest out of bag."""
    from proselflc.data.opening import open_data
    from proselflc.data.tables.encoding import for_trees

    part = open_data(Request(data=str(finished.config["data"]), label_column="grape")).train
    x, categorical = for_trees(finished.preprocessing, part.inputs)
    assert categorical.any()
    assert np.isnan(x).any()
    split = split_examples(finished.labels, 5, 0)[2]
    estimator = HistGradientBoostingClassifier(
        max_iter=ROUNDS,
        max_leaf_nodes=LEAVES,
        l2_regularization=PENALTY,
        max_features=SHARE_OF_COLUMNS,
        early_stopping=False,
        categorical_features=categorical,
        random_state=0,
    ).fit(x[split.train], part.labels[split.train])
    mean = np.mean(list(estimator.staged_predict_proba(x[split.validation])), 0)
    forest = out_of_bag(x, part.labels, 3)[split.validation]
    expected = np.sqrt(np.maximum(mean, 1e-6) * np.maximum(forest, 1e-6))
    expected /= expected.sum(1, keepdims=True)
    found = held_out.of_run(finished.directory, finished.labels)
    assert found is not None
    np.testing.assert_allclose(
        np.asarray(found.p[split.validation], float), expected, atol=2e-3
    )  # float16
    assert found.is_calibrated


def test_a_saved_model_predicts_the_raw_table(finished: Run, table: Path) -> None:
    from proselflc.run import prediction

    request = Request(data=str(table), label_column="grape")
    predicted = prediction.predict(finished, request, None)
    again = prediction.predict(load_run(finished.path), request, None)
    np.testing.assert_array_equal(predicted.confidence, again.confidence)
    assert predicted.accuracy is not None
    assert 0.8 < predicted.accuracy < 1


def test_doubtful_rows_are_learned_between_their_labels(table: Path, tmp_path: Path) -> None:
    """With cross entropy the model learns the given labels alone, so it fits more of them."""
    plain = config_of(table, method="cce")
    run = load_run(train(plain, OutputOptions(tmp_path / "cce"), Silent()))
    corrected = load_run(train(config_of(table), OutputOptions(tmp_path / "lc"), Silent()))
    np.testing.assert_array_equal(
        run.examples["quality"].to_numpy(), corrected.examples["quality"].to_numpy()
    )
    assert corrected.summary["corrected_rows"] == corrected.audit.suspects
    assert "corrected_rows" not in run.summary
    suspect = corrected.examples["is_suspect"].to_numpy()
    kept = run.model.state_dict(), corrected.model.state_dict()
    assert any(not np.array_equal(kept[0][key], kept[1][key]) for key in kept[0])
    assert suspect.sum() > 5


def test_a_stopped_run_resumes_to_the_same_result(
    table: Path, finished: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_of(table)
    many, whole = 3, learner.mean_over_rounds

    def stopping(*arguments: object) -> object:
        nonlocal many
        many -= 1
        if many == 0:
            raise KeyboardInterrupt
        return whole(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(learner, "mean_over_rounds", stopping)
    with pytest.raises(Interrupted, match=r"stopped after 3 of 6 models.*--resume|resume=True"):
        train(config, OutputOptions(tmp_path / "run"), Silent())
    monkeypatch.setattr(learner, "mean_over_rounds", whole)
    resumed = load_run(train(config, OutputOptions(tmp_path / "run", resume=True), Silent()))
    assert resumed.examples.equals(finished.examples)
    for name in ("weights", "folds_p", "audit_arrays"):
        first, second = (getattr(run.directory, name) for run in (finished, resumed))
        assert first.read_bytes() == second.read_bytes()


def test_more_folds_can_be_asked_for_later(table: Path, tmp_path: Path) -> None:
    path = train(config_of(table), OutputOptions(tmp_path / "run"), Silent())
    assert proselflc.audit(path, folds=3).folds == 3
    assert proselflc.audit(path, folds=0).folds is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "elr"}, "trains a network, and boosting is not a network"),
        ({"recipe": Recipe(batch_size=8)}, "batch.size.*is an option of networks"),
        ({"recipe": Recipe(momentum=0.5)}, "momentum.*is an option of networks"),
        ({"recipe": Recipe(schedule="cosine")}, "schedule.*is an option of networks"),
        ({"recipe": Recipe(warmup=3)}, "warmup.*is an option of networks"),
        ({"recipe": Recipe(precision="bf16")}, "precision.*is an option of networks"),
        ({"recipe": Recipe(accumulate=2)}, "accumulate.*is an option of networks"),
        ({"recipe": Recipe(compile=True)}, "compile.*is an option of networks"),
        ({"augment": "flip"}, "augment.*is an option of networks"),
        ({"model": LINEAR, "recipe": Recipe(epochs=5)}, "epochs.*is fitted once"),
        ({"model": LINEAR, "recipe": Recipe(lr=0.1)}, "lr.*is fitted once"),
        ({"model": "sklearn:LogisticRegression", "recipe": Recipe()}, "lacks a part"),
        ({"model": "sklearn:sklearn.svm.Nothing", "recipe": Recipe()}, "cannot be imported"),
        ({"model": "sklearn:sklearn.svm.LinearSVC", "recipe": Recipe()}, "has no predict_proba"),
        (
            {"model": "sklearn:sklearn.ensemble.StackingClassifier", "recipe": Recipe()},
            "without arguments",
        ),
    ],
)
def test_what_cannot_be_done_is_said(
    table: Path, tmp_path: Path, options: dict[str, object], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        train(config_of(table, **options), OutputOptions(tmp_path / "run"), Silent())
    assert not (tmp_path / "run").exists()


def test_the_memory_of_the_columns_is_counted(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(memory_budget.VARIABLE, "0.000030")  # enough for the predictions alone
    with pytest.raises(
        InputError, match="learning 178 rows of 7 columns and 3 classes by boosting"
    ):
        train(config_of(table), OutputOptions(tmp_path / "run"), Silent())


def test_images_are_not_learned_by_trees(tmp_path: Path) -> None:
    config = Config(request=Request(data="digits"), model="boosting")
    with pytest.raises(InputError, match="learns from the columns of a table"):
        train(config, OutputOptions(tmp_path / "run"), Silent())


def test_a_named_estimator_gives_a_run_that_keeps_no_model(table: Path, tmp_path: Path) -> None:
    name = LINEAR
    config = config_of(table, model=name, recipe=Recipe())
    run = load_run(train(config, OutputOptions(tmp_path / "run"), Silent()))
    assert "lr" not in run.config
    assert run.audit.folds == 5
    assert run.config["model"] == name
    assert not run.directory.weights.exists()
    with pytest.raises(InputError, match=r"its labels were judged by folds .*: leave folds"):
        proselflc.audit(run.path, folds=3)
    assert not list(run.directory.runs_of_folds())
    for again in (run, load_run(run.path, model=name)):
        with pytest.raises(InputError, match="keeps no model"):
            _ = again.model


def test_any_estimator_audits_labels() -> None:
    X, clean = load_breast_cancer(return_X_y=True)
    stream = np.random.default_rng(1)
    wrong = stream.random(len(clean)) < 0.2
    y = np.where(wrong, 1 - clean, clean)
    names = np.array(["malignant", "benign"])
    for estimator in (LogisticRegression(), RandomForestClassifier(50, random_state=0)):
        run = proselflc.audit_estimator(estimator, X, names[y], notes=False)
        assert roc_auc_score(wrong, -run.examples["quality"].to_numpy()) > 0.95
        assert not hasattr(estimator, "classes_")
        corrected = proselflc.corrected_labels(run)
        assert (corrected == names[clean]).mean() > (y == clean).mean()
    with pytest.raises(InputError, match=r"pass LogisticRegression\(\)"):
        proselflc.audit_estimator(LogisticRegression, X, y)
    with pytest.raises(InputError, match="CalibratedClassifierCV"):
        proselflc.audit_estimator(LinearSVC(), X, y)


def test_auto_chooses_what_agrees_with_more_held_out_labels(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stream = np.random.default_rng(0)
    steps = pd.DataFrame(stream.integers(0, 30, (400, 3)), columns=list("abc"))
    steps["label"] = np.where((steps["a"] % 2) ^ (steps["b"] % 2), "odd", "even")  # for no line
    steps["kind"] = np.where(steps["a"] % 2, "x", "y")
    steps["other"] = np.where(steps["b"] % 2, "x", "y")
    smooth = pd.DataFrame(stream.normal(size=(400, 8)), columns=list("abcdefgh"))
    smooth["label"] = np.where(smooth.sum(axis=1) > 0, "yes", "no")
    for frame, expected in ((steps, None), (smooth, "mlp")):
        path = tmp_path / "table.csv"
        frame.to_csv(path, index=False)
        from proselflc.terminal import Display

        config = Config(request=Request(data=str(path), label_column="label"))
        out = OutputOptions(tmp_path / "run", overwrite=True)
        run = load_run(train(config, out, Display()))
        said = capsys.readouterr().err
        assert "of the labels that it did not see" in said
        assert run.config["model"] in ("mlp", "boosting")
        if expected is not None:
            assert run.config["model"] == expected
        same = replace(config, model=str(run.config["model"]))
        again = load_run(train(same, OutputOptions(tmp_path / "again", overwrite=True), Silent()))
        assert again.examples.equals(run.examples)
