"""The paper's protocol, step by step, on digits."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
from optuna.storages import BaseStorage
from safetensors.numpy import load_file

from proselflc.cli import app as cli
from proselflc.data import noise
from proselflc.data.batches import one_thread
from proselflc.data.corruption import corrupt_labels
from proselflc.data.dataset import Dataset, Part
from proselflc.data.inputs import Images
from proselflc.data.request import Request
from proselflc.data.sources import small_images
from proselflc.errors import InputError
from proselflc.queue import run_queue, run_store
from proselflc.queue import storage as queue_storage
from proselflc.run.config import Config, OutputOptions
from proselflc.run.reader import load_run
from proselflc.run.train import train
from proselflc.searching import search_space, study
from proselflc.searching.search import Options, search
from proselflc.searching.study import SearchOutcome, StudyDirectory
from proselflc.searching.trials import SearchError
from proselflc.terminal import Display, Interrupted, Silent
from proselflc.training.recipe import Recipe
from proselflc.training.run_directory import RunDirectory, read_toml

SPACE = ("epochs=2,4", "lr=0.02,0.1", "epsilon=0.125,0.5", "sharpness=8,16")
METHODS = "cce,boot_soft,proselflc"
CONFIG = Config(
    request=Request(data="digits"),
    noise="pair:0.4",
    method=METHODS,
    model="mlp",
    recipe=Recipe(batch_size=64),
)
FEW = ("epochs=2", "sharpness=8,16")  # three trials

Searched = Callable[..., SearchOutcome]


@pytest.fixture
def searched(tmp_path: Path) -> Searched:
    """Searches with few trials."""

    def run(config: Config = CONFIG, *, name: str = "study", **options: Any) -> SearchOutcome:
        known = {"dataset": options.pop("dataset", None), "runs": options.pop("runs", None)}
        start = OutputOptions(
            tmp_path / name, options.pop("resume", False), options.pop("overwrite", False)
        )
        own = {"space": FEW, "quiet": True, **options}
        return search(config, Options(**own), start, Silent(), **known)

    return run


ONE = replace(CONFIG, method="proselflc")


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> SearchOutcome:
    """A search with three methods."""
    start = OutputOptions(tmp_path_factory.mktemp("search") / "study")
    with one_thread():
        return search(CONFIG, Options(SPACE, quiet=True), start, Silent())


@pytest.fixture(scope="module")
def whole() -> Dataset:
    """All of the training data with its noise, made here."""
    dataset = small_images.load_digits()
    made = corrupt_labels(dataset, noise.parse("pair:0.4"), seed=0)
    return dataset.with_labels(made.given, dataset.train.labels)


def runs_of(outcome: SearchOutcome) -> Path:
    return outcome.directory.runs


def test_each_choice_is_the_best_of_what_was_measured(outcome: SearchOutcome) -> None:
    summary = json.loads(outcome.directory.summary.read_text())
    assert [len(stage["trials"]) for stage in summary["stages"]] == [4, 1, 2, 2]
    for stage in summary["stages"]:
        measured = []
        for trial in stage["trials"]:
            run = runs_of(outcome) / trial["run"]
            accuracy = json.loads((run / "evaluation.json").read_text())["validation"]["accuracy"]
            assert trial["val_accuracy"] == accuracy
            last = json.loads((run / "history.jsonl").read_text().splitlines()[-1])
            assert last["val_accuracy"] == pytest.approx(accuracy, abs=1e-12)
            measured.append(accuracy)
        (chosen,) = [one for one in stage["trials"] if one["is_chosen"]]
        assert chosen["number"] == int(np.argmax(measured))
        if stage["chooses"] == "recipe":
            assert stage["method"] == "cce"
            assert summary["recipe"] == chosen["values"]
        else:
            own = summary["chosen"][stage["method"]]
            assert own["parameters"] == chosen["values"]
            assert own["val_accuracy"] == max(measured)
    accuracies = {name: one["val_accuracy"] for name, one in summary["chosen"].items()}
    assert summary["best"] == max(accuracies, key=lambda name: accuracies[name])


def test_the_recipe_is_chosen_first_and_fixed_for_all_methods(outcome: SearchOutcome) -> None:
    first, *others = outcome.stages
    expected = [{"epochs": e, "lr": lr} for e in (2, 4) for lr in (0.02, 0.1)]
    assert [one.values for one in first.records] == expected
    for stage in others:
        for record in stage.records:
            table = read_toml(runs_of(outcome) / record.run / "config.toml")
            for name, value in outcome.recipe.items():
                assert table[name] == value
            method: Any = table["method"]
            assert method["name"] == stage.method
            for name, value in record.values.items():
                assert method[name] == value
    assert [one.values for one in others[1].records] == [{"epsilon": 0.125}, {"epsilon": 0.5}]
    assert [one.values for one in others[2].records] == [{"sharpness": 8.0}, {"sharpness": 16.0}]


def test_cross_entropy_is_not_trained_again_with_what_was_chosen(outcome: SearchOutcome) -> None:
    first, own, *_ = outcome.stages
    assert first.best is not None
    assert own.records[0].run == first.best.run


def test_four_fifths_train_with_noise_and_a_fifth_chooses_with_true_labels(
    outcome: SearchOutcome, whole: Dataset
) -> None:
    given = dict(zip(whole.train.ids, whole.train.labels, strict=True))
    assert whole.clean is not None
    clean = dict(zip(whole.train.ids, whole.clean, strict=True))
    for stage in outcome.stages:
        for record in stage.records:
            labels = load_run(runs_of(outcome) / record.run).labels
            assert [given[one] for one in labels.ids] == labels.given.tolist()
            assert labels.fingerprint == outcome.plan.labels
    held_out = sorted(set(given) - set(labels.ids))
    assert len(held_out) == outcome.validation == len(given) // 5
    sizes = np.bincount([clean[one] for one in held_out]) / np.bincount(whole.clean)
    assert np.abs(sizes - 0.2).max() < 0.01  # class by class
    place = {one: k for k, one in enumerate(whole.train.ids)}
    rows = np.array([place[one] for one in held_out])
    for stage in outcome.stages:  # the accuracy is that on the true labels, computed here
        winner = stage.best
        assert winner is not None
        judged = load_run(runs_of(outcome) / winner.run).predict_inputs(
            whole.train.inputs.take(rows)
        )
        predicted = judged.probabilities.argmax(1)
        assert winner.val_accuracy == pytest.approx(
            (predicted == whole.clean[rows]).mean(), abs=1e-9
        )


def test_the_last_run_learns_from_everything_with_the_same_noisy_labels(
    outcome: SearchOutcome, whole: Dataset
) -> None:
    for choice in outcome.choices:
        assert choice.run is not None
        run = load_run(choice.run)
        assert run.labels.ids == whole.train.ids
        np.testing.assert_array_equal(run.labels.given, whole.train.labels)
        expected = noise.fingerprint(whole.train.labels, 10)
        assert run.summary["fingerprint"] == run.labels.fingerprint == expected
        assert "trusted" not in run.config
        assert run.config["epochs"] == outcome.recipe["epochs"]
        method: Any = run.config["method"]
        for name, value in choice.values.items():
            assert method[name] == value
        assert run.summary["test_accuracy_at_best_validation"] is None


def test_what_was_chosen_can_be_trained_again_to_the_same_weights(
    outcome: SearchOutcome, tmp_path: Path
) -> None:
    path = outcome.directory.chosen
    config = Config.from_table(read_toml(path), path)
    assert config == outcome.best.config
    again = RunDirectory(train(config, OutputOptions(tmp_path / "again"), Display()))
    assert outcome.best.run is not None
    before = load_file(RunDirectory(outcome.best.run).weights)
    for name, weight in load_file(again.weights).items():
        np.testing.assert_array_equal(weight, before[name])
    for choice in outcome.choices:
        own = outcome.directory.chosen_of(choice.method)
        assert Config.from_table(read_toml(own), own) == choice.config


def test_the_test_set_chooses_nothing(searched: Searched, whole: Dataset) -> None:
    assert whole.test is not None
    shuffled = np.random.default_rng(0).permutation(whole.test.labels)
    other = replace(whole, test=Part(whole.test.inputs, shuffled, whole.test.ids))
    config, space = replace(ONE, noise=None), ("epochs=2", "lr=0.02,0.1", "sharpness=8,16")
    first = searched(config, name="first", dataset=whole, space=space)
    second = searched(config, name="second", dataset=other, space=space)
    without = searched(config, name="third", dataset=replace(whole, test=None), space=space)
    for one in (second, without):
        assert one.recipe == first.recipe
        assert [stage.records for stage in one.stages] != []
        for stage, same in zip(one.stages, first.stages, strict=True):
            assert [r.val_accuracy for r in stage.records] == [r.val_accuracy for r in same.records]
        assert one.best.values == first.best.values
    assert first.best.summary is not None
    assert second.best.summary is not None
    assert first.best.summary["test_accuracy"] > 0.3 > second.best.summary["test_accuracy"]
    assert "test, trained" in study.describe(first)
    assert "test, trained" not in study.describe(without)


def test_without_true_labels_it_says_what_has_chosen(searched: Searched, whole: Dataset) -> None:
    unknown = replace(whole, clean=None)
    found = searched(replace(ONE, noise=None), dataset=unknown)
    assert not found.plan.knows_truth
    summary = json.loads(found.directory.summary.read_text())
    assert summary["chosen_by"] == "held-out noisy labels"
    assert summary["notes"] == [study.NOISY]
    assert study.NOISY in study.describe(found)
    assert study.NOISY[1:] in found.directory.report.read_text()
    known = searched(replace(ONE, noise=None), dataset=whole, name="known")
    summary = json.loads(known.directory.summary.read_text())
    assert summary["chosen_by"] == "trusted labels"
    assert summary["notes"] == []
    assert study.NOISY[1:] not in known.directory.report.read_text()
    assert "with trusted labels" in study.describe(known)


def test_a_trusted_file_chooses_and_nothing_is_cut_out(
    searched: Searched, whole: Dataset, tmp_path: Path
) -> None:
    assert isinstance(whole.train.inputs, Images)
    x, y = whole.train.inputs.pixels.astype(np.float32), whole.train.labels
    x = x.reshape(len(x), -1)
    assert whole.clean is not None
    np.savez(tmp_path / "trusted.npz", x=x[:200], y=whole.clean[:200])
    np.savez(tmp_path / "data.npz", x=x[200:], y=y[200:])
    config = replace(
        ONE,
        request=Request(data=str(tmp_path / "data.npz")),
        noise=None,
        trusted=str(tmp_path / "trusted.npz"),
    )
    found = searched(config)
    assert found.plan.knows_truth
    assert found.validation == 200
    assert found.best.run is not None
    assert len(load_run(found.best.run).labels.given) == len(y) - 200
    winner = found.stages[-1].best
    assert winner is not None
    assert found.best.run.name == winner.run  # nothing was cut out, so that run is it


def test_the_data_s_own_validation_part_chooses(searched: Searched, whole: Dataset) -> None:
    assert whole.test is not None
    dataset = replace(whole, test=None, validation=whole.test, clean=None)
    found = searched(replace(ONE, noise=None), dataset=dataset)
    assert found.plan.knows_truth
    assert found.validation == len(whole.test)
    assert found.plan.config.trusted is None


def test_what_is_done_is_not_done_again(
    searched: Searched, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = searched(ONE, runs=tmp_path / "runs")

    def never(*_: object, **__: object) -> Path:
        raise AssertionError("trained again")

    monkeypatch.setattr(run_store, "train", never)
    again = searched(ONE, resume=True, runs=tmp_path / "runs")
    assert study.to_json(again) == study.to_json(first)
    shared = searched(ONE, name="another study", runs=tmp_path / "runs")
    assert shared.best.values == first.best.values
    with pytest.raises(AssertionError, match="trained again"):
        searched(ONE, name="yet another")


def test_an_unfinished_run_is_gone_on_with_and_a_damaged_one_begins_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolved = train(
        replace(ONE, recipe=Recipe(epochs=2, batch_size=64)),
        OutputOptions(tmp_path / "r"),
        Display(),
    )
    config = Config.from_table(read_toml(resolved / "config.toml"), resolved)
    starts = []

    def watched(*arguments: Any, **options: Any) -> Path:
        starts.append(arguments[1].resume)
        return train(*arguments, **options)

    monkeypatch.setattr(run_store, "train", watched)
    done = run_store.train_once(config, tmp_path / "runs", Display())
    assert run_store.train_once(config, tmp_path / "runs", Display()) == done
    assert starts == [False]
    assert not list(done.checkpoints.glob("*"))
    done.summary.unlink()
    run_store.train_once(config, tmp_path / "runs", Display())
    assert starts == [False, True]
    done.summary.unlink()
    done.checkpoints.mkdir(exist_ok=True)
    (done.checkpoints / f"{5:010d}-{'0' * 32}.safetensors").write_bytes(b"damaged")
    run_store.train_once(config, tmp_path / "runs", Display())
    assert starts == [False, True, False]
    assert done.is_finished


def test_a_kept_run_is_known_by_what_it_depends_on(tmp_path: Path, whole: Dataset) -> None:
    def name(config: Config, dataset: Dataset | None = None) -> str:
        return run_store.stored_run(config, tmp_path, dataset).path.name

    assert name(ONE) == name(replace(ONE, workers=0, checkpoint_seconds=1.0))
    others = [
        replace(ONE, noise="pair:0.3"),
        replace(ONE, recipe=Recipe(batch_size=64, seed=1)),
        replace(ONE, parameters=dict(sharpness=9.0)),
        replace(ONE, trusted="0.2"),
    ]
    names = [name(ONE), *map(name, others), name(ONE, whole)]
    relabelled = whole.with_labels(1 + np.minimum(whole.train.labels, 8), None)
    assert len({*names, name(ONE, relabelled)}) == len(names) + 1


def test_a_kept_run_of_other_labels_is_refused(searched: Searched, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    x, y = np.random.default_rng(0).normal(size=(60, 2)), np.arange(60) % 3
    np.savez(tmp_path / "data.npz", x=x, y=y)
    config = replace(ONE, request=Request(data=str(tmp_path / "data.npz")), noise=None)
    config = replace(config, recipe=Recipe(epochs=1, lr=0.1, batch_size=16))
    searched(config, space=("sharpness=8",), runs=runs)
    np.savez(tmp_path / "data.npz", x=x, y=y[::-1])
    with pytest.raises(InputError, match="was trained on other labels"):
        searched(config, space=("sharpness=8",), runs=runs, name="other")


def test_every_process_has_a_gpu_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    for count, visible, expected in (
        (0, None, [None, None]),
        (1, None, [None, None]),
        (2, None, ["1", "0"]),
        (3, "7,2,5", ["2", "5"]),
    ):
        monkeypatch.setattr("torch.cuda.device_count", lambda count=count: count)
        if visible is not None:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        assert [run_queue._device(k) for k in (1, 2)] == expected


def test_a_trial_that_diverges_is_not_chosen(searched: Searched) -> None:
    found = searched(ONE, space=("epochs=2", "lr=1e30,0.05", "sharpness=10"))
    assert [one.state for one in found.stages[0].records] == ["diverged", "complete"]
    for one in found.stages[0].records:
        assert not list((runs_of(found) / one.run).rglob("*-*.safetensors"))
    assert found.recipe["lr"] == 0.05
    with pytest.raises(SearchError, match="no trial of Γ and optimiser is complete"):
        searched(ONE, name="bad", space=("epochs=2", "lr=1e30"))


def test_trials_are_ended_early_past_half_of_training_only(searched: Searched) -> None:
    rates = ",".join(map(str, (0.1, 0.12, 0.11, 0.09, 1e-5, 2e-5)))
    found = searched(ONE, space=(f"lr={rates}", "epochs=6", "sharpness=10"), prune=True)
    ended = [one for one in found.stages[0].records if one.state == "pruned"]
    assert [one.number for one in ended] == [4, 5]
    for one in ended:
        lines = (runs_of(found) / one.run / "history.jsonl").read_text().splitlines()
        progress = [json.loads(line)["progress"] for line in lines]
        assert 0.5 <= progress[-1] < 1
        assert not (runs_of(found) / one.run / "summary.json").exists()


def test_methods_and_parameters_that_are_fixed_stay(searched: Searched) -> None:
    config = replace(ONE, parameters=dict(midpoint=0.4, sharpness=11.0))
    found = searched(config, space=("epochs=2",))
    assert found.best.values == {}
    assert found.best.config.parameters == dict(sharpness=11.0, midpoint=0.4, trust="global*local")


def test_nothing_is_retrained_where_nobody_wants_it(searched: Searched) -> None:
    found = searched(ONE, retrain=False)
    assert found.best.run is None
    assert found.directory.chosen.is_file()
    assert len([one for one in runs_of(found).iterdir() if one.is_dir()]) == 3
    whole = searched(ONE, resume=True)
    assert whole.best.run is not None
    assert searched(ONE, resume=True, retrain=False).best == whole.best  # it is there now


@pytest.mark.parametrize(
    ("config", "options", "field", "why"),
    [
        (replace(ONE, method="proselfc"), {}, None, 'did you mean "proselflc"?'),
        (replace(ONE, method="pseudo_label"), {}, "method", "trains on the trusted examples"),
        (replace(ONE, parameters=dict(q=0.5)), {}, None, "q"),
        (replace(ONE, method="cce,boot_soft", parameters=dict(q=0.5)), {}, None, "boot_soft"),
        (replace(ONE, trusted="nowhere"), {}, None, "nowhere"),
        (replace(ONE, trusted="1.5"), {}, None, "1.5"),
        (ONE, {"space": ("sharpness=8,-1",)}, None, "sharpness"),
        (ONE, {"space": ("lr=0.1,-1",)}, None, "must be a positive number"),
        (ONE, {"trials": 0}, None, "must be at least 1"),
        (ONE, {"jobs": 0}, None, "must be at least 1"),
        (ONE, {"storage": "nonsense"}, None, "the storage nonsense cannot be reached"),
        (replace(ONE, method="joint_soft"), {"space": ("epochs=9,1",)}, None, "stages"),
        (replace(ONE, method="joint_soft"), {"space": ("steps=5..900",)}, None, "got 1: raise"),
        (replace(ONE, request=Request(data="nowhere.csv")), {}, None, "nowhere.csv"),
    ],
)
def test_bad_input_is_said_and_leaves_nothing(
    config: Config,
    options: dict[str, Any],
    field: str | None,
    why: str,
    searched: Searched,
    tmp_path: Path,
) -> None:
    with pytest.raises(InputError, match=re.escape(why)) as caught:
        searched(config, **options)
    assert field is None or caught.value.field == field
    assert not (tmp_path / "study").exists()


def test_a_study_is_gone_on_with_as_it_was_begun_or_not_at_all(
    searched: Searched, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    searched(ONE, retrain=False)
    before = (tmp_path / "study" / "study.toml").read_bytes()
    for config, options, why in (
        (ONE, {}, "holds a finished study"),
        (ONE, {"resume": True, "space": ("epochs=3",)}, "other options: space"),
        (ONE, {"resume": True, "trials": 3}, "other options: trials (20 there, 3 now)"),
        (ONE, {"resume": True, "prune": True}, "other options: prune (False there, True now)"),
        (replace(ONE, noise="pair:0.3"), {"resume": True}, "other options: noise"),
        (
            replace(ONE, method="cce"),
            {"resume": True, "space": ("epochs=2",)},
            "other options: method",
        ),
        (ONE, {"resume": True, "overwrite": True}, "give one"),
        (ONE, {"resume": True, "storage": "sqlite://"}, "storage of the study"),
    ):
        with pytest.raises(InputError, match=re.escape(why)):
            searched(config, **options)
    monkeypatch.setattr("proselflc.searching.study.__version__", "9.9.9")
    with pytest.raises(InputError, match=r"made by proselflc 0\.1\.0, and this is 9\.9\.9"):
        searched(ONE, resume=True)
    assert (tmp_path / "study" / "study.toml").read_bytes() == before


def test_a_study_whose_data_has_changed_is_refused(searched: Searched, whole: Dataset) -> None:
    config = replace(ONE, noise=None)
    searched(config, dataset=whole, retrain=False)
    given = whole.train.labels.copy()
    given[:5] = (given[:5] + 1) % 10
    with pytest.raises(InputError, match="has the data changed"):
        searched(config, dataset=whole.with_labels(given, whole.clean), resume=True)


def test_overwriting_begins_anew_and_leaves_what_is_not_ours(
    searched: Searched, tmp_path: Path
) -> None:
    first = searched(ONE, retrain=False)
    (first.directory.path / "mine.txt").write_text("mine")
    (first.directory.runs / "mine.txt").write_text("mine")
    before = {one.name for one in first.directory.runs.iterdir()}
    second = searched(ONE, space=("epochs=1", "sharpness=8"), overwrite=True, retrain=False)
    assert [len(stage.records) for stage in second.stages] == [1, 1]
    assert (second.directory.path / "mine.txt").read_text() == "mine"
    after = {one.name for one in second.directory.runs.iterdir()}
    assert before & after == {"mine.txt"}
    stranger = tmp_path / "stranger"
    stranger.mkdir()
    (stranger / "report.html").write_text("mine")
    with pytest.raises(InputError, match=r"holds report\.html and is not a study"):
        searched(ONE, name="stranger")


def test_a_password_is_neither_written_down_nor_printed(
    searched: Searched, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def opened(journal: Path, url: str | None, *_: object) -> BaseStorage:
        return queue_storage.opened(journal)

    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("proselflc.searching.search.queue_storage", _Opening(opened))
    monkeypatch.setattr(run_store, "train_once", stop)
    url = "postgresql://me:s3cret@host/db?sslpassword=s3cret"
    with pytest.raises(Interrupted, match=r"in place of \*\*\*") as caught:
        searched(ONE, storage=url)
    assert "--storage 'postgresql://me:***@host/db'" in str(caught.value)
    assert "after the ?" in str(caught.value)
    for path in (tmp_path / "study").rglob("*"):
        assert not path.is_file() or b"s3cret" not in path.read_bytes()
    assert "s3cret" not in str(caught.value)


class _Opening:
    """The module of the storages, with another way to open one."""

    def __init__(self, opened: Callable[..., BaseStorage]) -> None:
        self.opened = opened

    def __getattr__(self, name: str) -> Any:
        return getattr(queue_storage, name)


def test_a_study_stays_where_its_trials_are(searched: Searched, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'trials.db'}"
    searched(ONE, storage=url, retrain=False)
    with pytest.raises(InputError, match=r"trials\.db there, journal now.*give storage="):
        searched(ONE, resume=True)
    assert not (tmp_path / "study" / "journal.log").exists()
    searched(ONE, name="plain", retrain=False)
    assert 'storage = "journal"' in (tmp_path / "plain" / "study.toml").read_text()
    with pytest.raises(InputError, match="journal there, sqlite"):
        searched(ONE, name="plain", resume=True, storage=url)


def test_a_study_whose_journal_is_damaged_can_be_overwritten(
    searched: Searched, tmp_path: Path
) -> None:
    searched(ONE, retrain=False)
    journal = tmp_path / "study" / "journal.log"
    journal.write_bytes(b"damaged\n" + journal.read_bytes())
    with pytest.raises(InputError, match=r"journal\.log is damaged"):
        searched(ONE, resume=True)
    again = searched(ONE, retrain=False, overwrite=True)
    assert {one.state for stage in again.stages for one in stage.records} == {"complete"}
    with pytest.raises(InputError, match="cannot be reached"):
        searched(ONE, overwrite=True, storage="nonsense")
    assert searched(ONE, retrain=False, resume=True).best == again.best  # nothing was removed


def test_overwriting_with_another_space_leaves_nothing_of_the_old_in_a_database(
    searched: Searched, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path / 'trials.db'}"
    optuna.create_study(study_name="mine", storage=url)
    searched(ONE, storage=url, retrain=False)
    before = set(optuna.get_all_study_names(url))
    assert len(before) == 3
    other = ("epochs=1", "sharpness=8")
    searched(ONE, storage=url, retrain=False, overwrite=True, space=other)
    after = set(optuna.get_all_study_names(url))
    assert before & after == {"mine"}
    assert len(after) == 3


def test_what_a_mistake_leaves_is_a_study_s_lock_and_no_more(
    searched: Searched, tmp_path: Path
) -> None:
    searched(ONE, retrain=False)
    lock = tmp_path / "study" / ".lock"
    lock.touch()
    inode = lock.stat().st_ino
    with pytest.raises(InputError, match="other options: space"):
        searched(ONE, resume=True, space=("epochs=3",))
    assert lock.stat().st_ino == inode  # others may have locked it
    runs = tmp_path / "study" / "runs"
    name = next(one.name for one in runs.iterdir() if one.is_dir())
    mine = [f"x{name}.lock", f"x{name}", f".{name}"]
    for one in mine:
        (runs / one).touch()
    (runs / f".{name}.lock").touch()
    StudyDirectory(tmp_path / "study").clear()
    assert sorted(one.name for one in runs.iterdir()) == sorted(mine)


def test_in_a_database_overwriting_begins_anew_too(searched: Searched, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'trials.db'}"
    first = searched(ONE, storage=url, retrain=False)
    assert not first.directory.journal.exists()
    assert f'storage = "{url}"' in first.directory.study.read_text()
    again = searched(ONE, storage=url, retrain=False, overwrite=True)
    assert [stage.records[0].state for stage in again.stages] == ["complete", "complete"]
    joined = searched(ONE, storage=url, retrain=False, name="another machine")
    assert joined.best.values == first.best.values
    assert not list(joined.directory.runs.iterdir())  # all trials were done elsewhere


def test_without_optuna_the_extra_is_named(
    searched: Searched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(InputError, match=r'pip install "proselflc\[search\]"'):
        searched(ONE)


def test_torchrun_is_refused(searched: Searched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(InputError, match="torchrun"):
        searched(ONE)


def test_all_options_come_from_a_file_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "search.toml"
    file.write_text(
        'data = "digits"\nnoise = "pair:0.4"\nmodel = "mlp"\nbatch-size = 64\n'
        'space = ["epochs=1,2", "sharpness=9"]\nno-retrain = true\nquiet = true\ntrials = 4\n'
        '[method]\nname = "proselflc"\nmidpoint = 0.4\n'
    )
    out = tmp_path / "study"
    assert cli.run(["search", "--config", str(file), "--out", str(out), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["space"] == ["epochs=1,2", "proselflc.sharpness=9.0"]
    assert found["chosen"]["proselflc"]["run"] is None
    assert read_toml(out / "study.toml")["trials"] == 4
    # The study is such a file itself: --resume needs no other options.
    assert cli.run(["search", "--out", str(out), "--resume", "--no-retrain", "--quiet"]) == 0
    assert capsys.readouterr().out.strip() == str(out)
    for bad, why in (
        ('space = "lr=1"', "space must be a list of strings"),
        ("trials = 1.5", "trials must be a whole number"),
        ("jobs = true", "jobs must be a whole number"),
        ("spaces = []", 'unknown key "spaces"'),
    ):
        file.write_text(bad + "\n")
        assert cli.run(["search", "--config", str(file)]) == 2
        assert why in capsys.readouterr().err


def test_a_study_of_another_version_is_refused_on_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "study.toml").write_text('future = 1\n[study]\nversion = "7.0"\n')
    assert cli.run(["search", "--out", str(tmp_path), "--resume"]) == 2
    assert "was made by proselflc 7.0" in capsys.readouterr().err


def test_there_is_nothing_to_go_on_with_where_no_study_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["search", "--out", str(tmp_path / "x"), "--resume"]) == 2
    assert "there is no study in" in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


def test_a_wide_space_is_searched_by_so_many_trials(searched: Searched) -> None:
    space = ("epochs=1", "lr=0.001..1:log", "sharpness=4..20")
    found = searched(ONE, space=space, trials=3, retrain=False)
    assert [len(stage.records) for stage in found.stages] == [3, 3]
    for stage, name, low, high in ((0, "lr", 0.001, 1), (1, "sharpness", 4, 20)):
        values = [float(one.values[name]) for one in found.stages[stage].records]
        assert len(set(values)) == 3
        assert all(low <= value <= high for value in values)
    assert search_space.grid(found.plan.space.recipe) is None
