"""Folds: every example is predicted by a model that has not seen it, and nothing is done twice."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from safetensors.numpy import load_file
from sklearn.datasets import load_digits

import proselflc
from proselflc.auditing import held_out, noise_estimate, records
from proselflc.auditing.suspects import LabelOdds
from proselflc.data import labels as labels_of
from proselflc.data import memory_budget
from proselflc.data.dataset import Dataset, Part
from proselflc.data.inputs import Features
from proselflc.data.labels import Labels
from proselflc.data.request import FROM_PYTHON, Request
from proselflc.data.sources import arrays
from proselflc.errors import InputError
from proselflc.run import fold_splits, folds
from proselflc.run.audit import audit
from proselflc.run.config import Config, OutputOptions
from proselflc.run.reader import Run, load_run
from proselflc.run.train import train
from proselflc.terminal import Silent
from proselflc.training.recipe import Recipe
from proselflc.training.run_directory import RunDirectory

QUIET = Silent()


def trained(out: Path, data: Path | str, recipe: Recipe | None = None, **options: Any) -> Path:
    """A short run on some data."""
    recipe = recipe or Recipe(epochs=2)
    request = options.pop("request", Request(data=str(data)))
    config = Config(request=request, recipe=recipe, workers=0, **{"model": "mlp", **options})
    return train(config, OutputOptions(out), QUIET)


def table(path: Path, n: int = 24, seed: int = 0) -> Path:
    """An .npz with three numbers per example, in two classes."""
    y = np.arange(n) % 2
    x = np.random.default_rng(seed).normal(size=(n, 3)) + y[:, None]
    np.savez(path, x=x, y=y)
    return path


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on noisy digits with three folds."""
    recipe = Recipe(epochs=3, batch_size=64, seed=7)
    out = trained(tmp_path_factory.mktemp("folds") / "run", "digits", recipe, noise="pair:0.4")
    audit(out, folds=3)
    return out


@pytest.fixture
def run(original: Path, tmp_path: Path) -> Path:
    """A copy to spoil."""
    return Path(shutil.copytree(original, tmp_path / "run"))


def files(folder: Path) -> dict[Path, tuple[int, bytes]]:
    return {
        path: (path.stat().st_mtime_ns, path.read_bytes())
        for path in folder.rglob("*")
        if path.is_file()
    }


def numpy_mlp(run: Path, pixels: Any) -> Any:
    """[n, C] what the saved network says, with no code of the package."""
    scaling = json.loads((run / "model.json").read_text())["preprocessing"]
    weights = sorted(load_file(run / "model.safetensors").items(), key=lambda one: one[1].size)
    x = (pixels.reshape(len(pixels), -1) / 255 - scaling["mean"][0]) / scaling["std"][0]
    (_, b2), (_, b1), (_, w2), (_, w1) = weights  # 10, 128, 10 · 128 and 128 · 64 numbers
    z = np.maximum(x @ w1.T + b1, 0) @ w2.T + b2
    p = np.exp(z - z.max(1, keepdims=True))
    return p / p.sum(1, keepdims=True)


def test_the_predictions_are_out_of_sample_and_those_of_the_saved_models(original: Path) -> None:
    pixels = (load_digits().images.astype(np.int64) * 255 + 8) // 16
    labels = load_run(original).labels
    label_of = dict(zip(labels.ids, labels.given, strict=True))
    place = {name: k for k, name in enumerate(labels.ids)}
    p = np.load(original / "folds" / "p.npy")
    assert p.dtype == np.float16
    assert p.shape == (1297, 10)
    predicted = np.zeros(len(p), int)
    for k in (1, 2, 3):
        fold = original / "folds" / f"3-{k}"
        seen = Labels.load(fold / "labels.npz")
        assert all(label_of[i] == y for i, y in zip(seen.ids, seen.given, strict=True))
        assert seen.names == labels.names
        rows = [place[name] for name in labels.ids if name not in set(seen.ids)]
        assert abs(len(rows) - 1297 / 3) < 1
        numbers = [int(labels.ids[row].removeprefix("digits/")) for row in rows]
        expected = numpy_mlp(fold, pixels[numbers])
        np.testing.assert_allclose(p[rows].astype(float), expected, rtol=0, atol=1e-3)
        predicted[rows] += 1
        for name in ("noise", "test", "trusted"):
            assert name not in load_run(fold).config
        assert load_run(fold).summary["steps"] == 3 * -(-len(seen.ids) // 64)
        assert not (fold / "checkpoints").exists()
    assert (predicted == 1).all()


def test_of_labels_without_reason_nothing_is_known_out_of_sample(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(120, 60)), rng.integers(2, size=120)
    dataset = arrays.load(x, y)
    run = proselflc.fit(dataset, epochs=30, batch_size=20, method="cce", out=tmp_path / "run")
    audit(run, folds=2, dataset=dataset)
    p = held_out.of_run(run.directory, run.labels)
    assert p is not None
    assert run.history[-1]["train_accuracy"] == 1.0
    assert 0.3 < (p.p.argmax(1) == run.labels.given).mean() < 0.7
    assert load_run(tmp_path / "run/folds/2-1").history[-1]["train_accuracy"] == 1.0


def test_an_example_weighs_in_folds_what_it_weighed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng, weight = np.random.default_rng(4), np.arange(1, 61, dtype=np.float32)
    dataset = arrays.load(rng.normal(size=(60, 3)), rng.integers(2, size=60))
    weighed = replace(dataset, sample_weight=weight)
    run = proselflc.fit(weighed, epochs=1, batch_size=20, out=tmp_path / "run")
    found: dict[str, float] = {}

    def spy(*arguments: Any, dataset: Dataset, **others: Any) -> Path:
        assert dataset.sample_weight is not None
        found.update(zip(dataset.train.ids, dataset.sample_weight, strict=True))
        return train(*arguments, dataset=dataset, **others)

    monkeypatch.setattr(folds, "train", spy)
    audit(run, folds=2, dataset=weighed)
    assert found == dict(zip(weighed.train.ids, weight, strict=True))
    found.clear()
    with pytest.raises(AssertionError):  # and without weights there are none
        audit(proselflc.fit(dataset, epochs=1, out=tmp_path / "other"), folds=2, dataset=dataset)


def test_what_is_done_is_not_done_again(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folds, "train", lambda *_, **__: pytest.fail("trained again"))
    before = files(run / "folds")
    assert audit(run, folds=3).folds == 3
    assert files(run / "folds") == before
    for k in (1, 2, 3):  # nobody needs them any more
        shutil.rmtree(run / "folds" / f"3-{k}")
    assert audit(run, folds=3).folds == 3


def test_what_is_lost_is_made_again(run: Path, original: Path) -> None:
    """One fold's predictions, a second one's whole run, and a third one's is another's."""
    place = run / "folds"
    whole = (place / "p.npy").read_bytes()
    (place / "p.npy").unlink()
    (place / "3-1" / "held_out.npy").write_bytes(b"no array")
    shutil.rmtree(place / "3-2")
    shutil.rmtree(place / "3-3")
    shutil.copytree(original / "folds" / "3-1", place / "3-3")
    kept = (place / "3-1" / "model.safetensors").stat().st_mtime_ns
    assert audit(run, folds=3).folds == 3
    assert (place / "p.npy").read_bytes() == whole
    assert (place / "3-1" / "model.safetensors").stat().st_mtime_ns == kept
    assert not list(run.rglob("*.part"))


def test_another_number_of_folds_replaces_the_first(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(config: Config, start: OutputOptions, *_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(folds, "train", stop)
        with pytest.raises(KeyboardInterrupt, match=r"with: proselflc audit .* --folds 2"):
            audit(run, folds=2)
    assert audit(run).folds == 3  # until there is something better
    assert audit(run, folds=2).folds == 2
    left = {path.name for path in (run / "folds").iterdir()}
    assert left == {"2-1", "2-2", "folds.json", "p.npy"}
    facts = json.loads((run / "folds" / "folds.json").read_text())
    assert facts == {
        "folds": 2,
        "seed": 7,
        "fingerprint": load_run(run).labels.fingerprint,
    }
    assert audit(run, folds=0).folds is None
    assert audit(run).folds == 2


def test_training_anew_forgets_the_folds(run: Path) -> None:
    config = Config(request=Request(data="digits"), model="mlp", recipe=Recipe(epochs=1))
    train(config, OutputOptions(run, overwrite=True), QUIET)
    assert not (run / "folds").exists()


def test_a_class_of_one_example(tmp_path: Path) -> None:
    y = np.array([0, 1] * 10 + [2])
    x = np.random.default_rng(0).normal(size=(21, 3)) + y[:, None]
    dataset = arrays.load(x, y, names=["a", "b", "rare"])
    proselflc.fit(dataset, epochs=2, out=tmp_path / "run", model="mlp")
    found = audit(tmp_path / "run", folds=3, dataset=dataset)
    p = np.load(tmp_path / "run/folds/p.npy")
    assert p.shape == (21, 3)
    np.testing.assert_allclose(p.sum(1, dtype=float), 1, atol=2e-3)
    assert found.names == ("a", "b", "rare")
    parts = [Labels.load(tmp_path / f"run/folds/3-{k}/labels.npz") for k in (1, 2, 3)]
    assert sorted(int((part.given == 2).sum()) for part in parts) == [0, 1, 1]
    assert all(part.names == ("a", "b", "rare") for part in parts)


@given(
    counts=st.lists(st.integers(0, 9), min_size=2, max_size=6).filter(lambda c: sum(c) >= 6),
    number=st.integers(2, 4),
    seed=st.integers(0, 2**63 - 1),
)
@settings(max_examples=60, deadline=None)
def test_folds_are_even_and_follow_from_the_seed(counts: list[int], number: int, seed: int) -> None:
    y = np.repeat(np.arange(len(counts)), counts)
    names = tuple(str(k) for k in range(len(counts)))
    ids = tuple(map(str, range(len(y))))
    part = Part(Features(np.zeros((len(y), 1), np.float32)), y, ids)
    labels = labels_of.from_dataset(Dataset("y", part, names), None)
    splits = fold_splits.split_examples(labels, number, seed)
    np.random.seed(0)
    again = fold_splits.split_examples(labels, number, seed)
    for split, same in zip(splits, again, strict=True):
        assert np.array_equal(split.validation, same.validation)
        assert np.array_equal(np.union1d(split.train, split.validation), np.arange(len(y)))
    assert np.array_equal(
        np.sort(np.concatenate([s.validation for s in splits])), np.arange(len(y))
    )
    per_class = np.array([np.bincount(y[s.validation], minlength=len(counts)) for s in splits])
    assert (per_class.max(0) - per_class.min(0) <= 1).all()
    assert np.ptp(per_class.sum(1)) <= 1


def test_another_seed_is_another_cut() -> None:
    part = Part(
        Features(np.zeros((50, 1), np.float32)), np.arange(50) % 2, tuple(map(str, range(50)))
    )
    labels = labels_of.from_dataset(Dataset("y", part, ("a", "b")), None)
    one, other = (fold_splits.split_examples(labels, 2, seed)[0].validation for seed in (0, 1))
    assert not np.array_equal(one, other)


@pytest.mark.parametrize(
    ("recipe", "n", "m", "expected"),
    [
        (Recipe(epochs=9, batch_size=10, warmup=40), 100, 75, Recipe(9, None, 10, warmup=32)),
        (Recipe(steps=55, batch_size=10), 100, 50, Recipe(None, 28, 10)),
        (Recipe(steps=1, batch_size=10), 100, 50, Recipe(None, 1, 10)),
        (
            Recipe(epochs=9, batch_size=60, accumulate=60),
            60,
            30,
            Recipe(9, None, 30, accumulate=30),
        ),
        (Recipe(steps=8, batch_size=60), 60, 30, Recipe(None, 8, 30)),
    ],
)
def test_a_fold_has_as_many_epochs(recipe: Recipe, n: int, m: int, expected: Recipe) -> None:
    """100 examples in tens are 10 batches, 75 are 8: of 40 steps of warm-up 32 are left."""
    config = Config(recipe=recipe, noise="pair:0.4", noise_seed=3, trusted="0.2", tracker="x")
    found = folds.fold_config(config, n, m)
    assert found.recipe == expected
    assert (found.noise, found.noise_seed, found.trusted, found.tracker) == (None,) * 4
    assert found.request.data == FROM_PYTHON
    assert found.eval_steps == expected.total_steps(-(-m // (expected.batch_size or m)))


def test_steps_and_a_trusted_part(tmp_path: Path) -> None:
    """The validation part is of no fold; a run of 8 steps of 4 batches has two epochs."""
    recipe = Recipe(steps=8, batch_size=8)
    out = trained(tmp_path / "run", table(tmp_path / "data.npz", 40), recipe, trusted="0.2")
    audit(out, folds=2)
    assert np.load(out / "folds/p.npy").shape == (32, 2)
    assert load_run(out / "folds/2-1").summary["steps"] == 4
    assert load_run(out / "folds/2-1").config["batch_size"] == 8


def test_features_are_learned_from_where_the_run_did(tmp_path: Path) -> None:
    data = table(tmp_path / "data.npz")
    np.save(tmp_path / "embedded.npy", np.random.default_rng(1).normal(size=(24, 5)))
    request = Request(data=str(data), features=tmp_path / "embedded.npy")
    out = trained(tmp_path / "run", data, request=request)
    audit(out, folds=2)
    weights = load_file(out / "folds/2-1/model.safetensors")
    assert any(weight.shape[-1] == 5 for weight in weights.values())


def test_image_files_stay_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    for k in range(12):
        place = tmp_path / "images" / ("cat", "dog")[k % 2]
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(256, size=(9, 9, 3), dtype=np.uint8)).save(place / f"{k}.png")
    out = trained(tmp_path / "run", tmp_path / "images", image_size=8, model="convnet")
    kinds = set()

    def watched(*arguments: Any, dataset: Dataset, is_audited: bool, **options: Any) -> Path:
        kinds.add(type(dataset.train.inputs).__name__)
        assert not is_audited  # nobody reads what a fold says about its labels
        return train(*arguments, dataset=dataset, is_audited=is_audited, **options)

    monkeypatch.setattr(folds, "train", watched)
    assert audit(out, folds=2).folds == 2
    assert kinds == {"ImageFiles"}
    assert np.isfinite(np.load(out / "folds/p.npy")).all()


def test_data_that_has_moved(tmp_path: Path) -> None:
    data = table(tmp_path / "data.npz")
    out = trained(tmp_path / "run", data)
    data.rename(tmp_path / "elsewhere.npz")
    before = files(out)
    with pytest.raises(InputError, match=r"is missing.*present location with data="):
        audit(out, folds=2)
    assert files(out) == before
    assert audit(out).folds is None  # which needs no data
    assert audit(out, folds=2, data=str(tmp_path / "elsewhere.npz")).folds == 2


def test_data_that_has_changed(tmp_path: Path) -> None:
    data = table(tmp_path / "data.npz")
    out = trained(tmp_path / "run", data)
    with np.load(data) as arrays_there:
        np.savez(data, x=arrays_there["x"], y=1 - arrays_there["y"])
    with pytest.raises(InputError, match="has changed since training"):
        audit(out, folds=2)


def test_a_run_from_python_needs_its_data(tmp_path: Path) -> None:
    x, y = np.random.default_rng(0).normal(size=(24, 3)), np.arange(24) % 2
    dataset = arrays.load(x, y)
    run = proselflc.fit(dataset, noise="symmetric:0.2", epochs=2, out=tmp_path / "run")
    with pytest.raises(InputError, match=r"given in Python.*audit\(run, folds=…, dataset=…\)"):
        audit(run, folds=2)
    with pytest.raises(InputError, match="has changed since training"):
        audit(run, folds=2, dataset=arrays.load(x, 1 - y))
    with pytest.raises(InputError, match="4 of 24 examples are missing"):
        audit(run, folds=2, dataset=arrays.load(x[:20], y[:20]))
    assert run.audit.folds is None
    assert audit(run, folds=2, dataset=dataset).folds == 2
    assert run.audit.folds == 2  # what the run has read is read anew
    given = Labels.load(tmp_path / "run/folds/2-1/labels.npz")
    label_of = dict(zip(run.labels.ids, run.labels.given, strict=True))
    assert all(label_of[i] == k for i, k in zip(given.ids, given.given, strict=True))


def test_a_model_of_the_users_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_network.py").write_text(
        "from torch import nn\n"
        "def make(num_classes):\n"
        "    return nn.Sequential(nn.Linear(3, num_classes))\n"
    )
    monkeypatch.chdir(tmp_path)
    out = trained(tmp_path / "run", table(tmp_path / "data.npz"), model="my_network:make")
    with pytest.raises(InputError, match=r"not in the catalogue \(my_network:make\): name it"):
        audit(out, folds=2)
    assert audit(out, folds=2, model="my_network:make").folds == 2
    assert sorted(load_file(out / "folds/2-2/model.safetensors")) == ["0.bias", "0.weight"]


def test_a_trained_network_is_not_made_anew(tmp_path: Path) -> None:
    from torch import nn

    dataset = arrays.load(np.random.default_rng(0).normal(size=(24, 3)), np.arange(24) % 2)
    run = proselflc.fit(dataset, epochs=2, model=nn.Linear(3, 2), out=tmp_path / "run")
    with pytest.raises(InputError, match="is not in the catalogue"):
        audit(run, folds=2, dataset=dataset)


@pytest.mark.parametrize(("number", "words"), [(1298, "cannot make 1298"), (1, "or at least 2")])
def test_folds_that_cannot_be_made(original: Path, number: int, words: str) -> None:
    with pytest.raises(InputError, match=words):
        audit(original, folds=number)


def test_too_few_examples(tmp_path: Path) -> None:
    dataset = arrays.load(np.eye(3), [0, 1, 1])
    proselflc.fit(dataset, epochs=1, out=tmp_path / "run", model="mlp")
    with pytest.raises(InputError, match="leave fewer than two to train on"):
        audit(tmp_path / "run", folds=2, dataset=dataset)


def test_a_config_that_makes_no_sense_is_one_sentence(run: Path, resealed: Any) -> None:
    config = run / "config.toml"
    config.write_text(config.read_text().replace("momentum = 0.9", "momentum = 9"))
    resealed(run)
    with pytest.raises(InputError, match=r"config\.toml is damaged: momentum= must be"):
        audit(run, folds=2)


def test_a_loss_that_is_no_number_any_more(tmp_path: Path, resealed: Any) -> None:
    from proselflc.training.loop import DivergenceError

    out = trained(tmp_path / "run", table(tmp_path / "data.npz"))
    config = out / "config.toml"
    config.write_text(config.read_text().replace("lr = 0.05", "lr = 1e30"))
    resealed(out)
    with pytest.raises(DivergenceError, match="in one of 2 folds"):
        audit(out, folds=2)
    assert not RunDirectory(out).folds_done.exists()


@pytest.mark.parametrize("name", ["folds", "folds/2-1"])
def test_folds_that_are_elsewhere_are_refused(run: Path, tmp_path: Path, name: str) -> None:
    outside = tmp_path / "outside"
    shutil.move(run / "folds", outside)
    if name == "folds":
        (run / name).symlink_to(outside)
        with pytest.raises(InputError, match=r"folds is a link.*audit without folds"):
            audit(run)
    else:
        (outside / "3-1").rename(outside / "2-1")
        (run / "folds").mkdir()
        (run / name).symlink_to(outside / "2-1")
    before = files(outside)
    with pytest.raises(InputError, match=f"{name} is a link, but a run keeps its folds"):
        audit(run, folds=2)
    assert audit(run, folds=0).folds is None
    RunDirectory(run).clear()
    assert files(outside) == before


def test_links_among_folds_are_left_alone(run: Path, tmp_path: Path) -> None:
    """A run that somebody hands us must not lead us out of it, or round in a circle."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "labels.npz").write_text("mine")
    (run / "folds" / "9-1").symlink_to(outside)
    (run / "folds" / "9-2").symlink_to(run)
    assert audit(run, folds=2).folds == 2
    assert (outside / "labels.npz").read_text() == "mine"
    assert Run(run).labels.ids


def trusted_in(run: Path) -> dict[str, bool]:
    """Whose labels are trusted, as a run has them."""
    labels = load_run(run).labels
    assert labels.trusted is not None
    return dict(zip(labels.ids, labels.trusted.tolist(), strict=True))


def test_every_fold_has_its_share_of_the_trusted_examples(tmp_path: Path) -> None:
    recipe = Recipe(epochs=12, batch_size=32)
    options: dict[str, Any] = {"noise": "pair:0.4", "method": "pseudo_label", "trusted": "0.1"}
    out = trained(tmp_path / "run", "digits", recipe, **options)
    whole = trusted_in(out)
    given = load_run(out).labels
    assert sum(whole.values()) == 129
    audit(out, folds=3)
    left_out = set(whole)
    for k in (1, 2, 3):
        own = trusted_in(out / "folds" / f"3-{k}")
        assert own == {name: whole[name] for name in own}
        assert 129 - sum(own.values()) == pytest.approx(43, abs=10)
        left_out -= set(whole) - set(own)
    assert not left_out
    # Nobody has told it the untrusted labels, four in ten of which are wrong.
    p = np.load(out / "folds" / "p.npy")
    assert given.clean is not None
    assert (p.argmax(1) == given.clean).mean() > (given.given == given.clean).mean() + 0.1


@pytest.mark.parametrize("from_python", [False, True])
def test_trusted_examples_from_a_file(tmp_path: Path, from_python: bool) -> None:
    """Both files count from 0, so that the trusted ones have other ids in the run."""
    data, beside = table(tmp_path / "data.npz", 40), table(tmp_path / "right.npz", 12, seed=1)
    options: dict[str, Any] = {"method": "pseudo_label", "trusted": str(beside)}
    out, dataset = tmp_path / "run", None
    if from_python:
        with np.load(data) as there:
            dataset = arrays.load(there["x"], there["y"])
        proselflc.fit(dataset, None, epochs=2, model="mlp", out=out, **options)
    else:
        trained(out, data, **options)
    expected = sorted(name for name, yes in trusted_in(out).items() if yes)
    assert len(expected) == 12
    assert all(name.startswith("trusted/") for name in expected)
    assert audit(out, folds=2, dataset=dataset).folds == 2
    assert np.load(out / "folds/p.npy").shape == (52, 2)
    seen = [name for k in (1, 2) for name, yes in trusted_in(out / f"folds/2-{k}").items() if yes]
    assert sorted(seen) == expected
    beside.rename(tmp_path / "moved.npz")
    with pytest.raises(InputError, match=r"the trusted examples of .* are missing"):
        audit(out, folds=3, dataset=dataset)


def test_true_labels_of_trusted_examples_are_no_change_of_the_data(tmp_path: Path) -> None:
    """Where the data knows the truth beside the labels, trusted examples have learned that."""
    y = np.arange(40) % 2
    x = np.random.default_rng(0).normal(size=(40, 3)) + y[:, None]
    np.savez(tmp_path / "data.npz", x=x, y=np.where(np.arange(40) < 20, y, 1 - y), clean=y)
    out = trained(tmp_path / "run", tmp_path / "data.npz", method="pseudo_label", trusted="0.5")
    labels = load_run(out).labels
    assert labels.trusted is not None
    assert not labels.flipped[labels.trusted].any()
    assert labels.flipped.any()
    assert audit(out, folds=2).folds == 2


def test_a_fold_without_trusted_examples_is_refused_before_anything_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, resealed: Any
) -> None:
    data, beside = table(tmp_path / "data.npz", 40), table(tmp_path / "right.npz", 3)
    with np.load(beside) as there:
        np.savez(tmp_path / "one.npz", x=there["x"][:2], y=there["y"][:2])
    out = trained(tmp_path / "run", data, method="pseudo_label", trusted=str(tmp_path / "one.npz"))
    labels = load_run(out).labels
    one = fold_splits.split_examples(labels, 2, 0)
    assert labels.trusted is not None
    assert [int(labels.trusted[split.train].sum()) for split in one] == [1, 1]
    monkeypatch.setattr(folds, "train", lambda *_, **__: pytest.fail("it was trained"))
    only = labels.trusted & (np.cumsum(labels.trusted) == 1)
    for trusted, words in ((only, "trusted"), (~only, "other")):
        replace(labels, trusted=trusted).save(out / "labels.npz")
        resealed(out)
        with pytest.raises(InputError, match=f"2 folds would leave a model without {words} ones"):
            audit(out, folds=2)


def test_the_teacher_of_a_run_teaches_its_folds(tmp_path: Path) -> None:
    recipe = Recipe(epochs=6, batch_size=64)
    teacher = trained(tmp_path / "teacher", "digits", recipe)  # it knows right labels
    out = trained(
        tmp_path / "run",
        "digits",
        recipe,
        noise="pair:0.4",
        method="distillation",
        parameters=dict(teacher=teacher, epsilon=1.0),
    )
    audit(out, folds=2)
    labels = load_run(out).labels
    p = np.load(out / "folds" / "p.npy")
    assert labels.clean is not None
    assert (p.argmax(1) == labels.clean).mean() > 0.8
    for k in (1, 2):
        fold = load_run(out / "folds" / f"2-{k}")
        assert fold.config["method"]["teacher"] == str(teacher)  # type: ignore[index]
        assert fold.preprocessing == load_run(out).preprocessing
    shutil.rmtree(teacher)
    with pytest.raises(InputError, match="must be a finished run") as caught:
        audit(out, folds=3)
    assert caught.value.field == "method.teacher"
    assert not list(out.glob("folds/3-*"))


def test_coarse_classes_are_known_in_folds(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    y = np.arange(48) % 4
    dataset = replace(
        arrays.load(np.eye(4)[y] * 3 + rng.normal(size=(48, 4)), y), coarse=np.array([0, 0, 1, 1])
    )
    run = proselflc.fit(
        dataset, method="masking", epochs=4, batch_size=12, model="mlp", out=tmp_path / "run"
    )
    assert audit(run, folds=2, dataset=dataset).folds == 2


def test_of_many_classes_the_largest_are_kept_and_judged_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, resealed: Any
) -> None:
    n, C = 240, 30
    y = np.arange(n) % C
    centres = 3 * np.random.default_rng(0).normal(size=(C, 4))
    x = centres[y] + 0.1 * np.random.default_rng(1).normal(size=(n, 4))
    np.savez(tmp_path / "data.npz", x=x, y=y)
    recipe = Recipe(epochs=6, batch_size=20)
    out = trained(tmp_path / "run", tmp_path / "data.npz", recipe, noise="pair:0.2")
    copied = Path(shutil.copytree(out, tmp_path / "copy"))
    audit(out, folds=2)
    whole, given = load_run(out), load_run(out).labels.given
    one = replace(whole.records, witness=None)
    dense = LabelOdds(one, given, noise_estimate.joint(one, given, C))
    monkeypatch.setattr(memory_budget, "DENSE_CLASSES", 10)
    (copied / "witness.npz").unlink()  # there is none of that many classes
    resealed(copied)
    audit(copied, folds=2)
    few = load_run(copied)
    assert few.records.witness is None
    assert held_out.read(whole.directory.folds_p, (n, C)).shape == (n, C)
    kept = held_out.read(few.directory.folds_p, (n, C))
    assert kept.shape == (n, 1 + records.KEPT_CLASSES)
    p = held_out.read(whole.directory.folds_p, (n, C))
    np.testing.assert_array_equal(kept["value"][:, 0], p[np.arange(n), few.labels.given])
    sparse = LabelOdds(few.records, given, noise_estimate.joint(few.records, given, C))
    assert (sparse.other == dense.other).mean() > 0.97
    suspects = [odds.wrong(0.2) > 0.5 for odds in (dense, sparse)]
    assert suspects[0].sum() > 20
    assert (suspects[0] == suspects[1]).mean() > 0.97
    audit(copied)  # from the predictions that are there
