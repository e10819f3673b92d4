"""What a config stands for, with nothing left open."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from proselflc.data.dataset import Dataset
from proselflc.data.opening import open_data
from proselflc.data.request import Request
from proselflc.errors import InputError
from proselflc.run.config import Config
from proselflc.run.fit import fit
from proselflc.run.prepare import PreparedRun, prepare
from proselflc.training.recipe import Recipe


@pytest.fixture(scope="module")
def digits() -> Dataset:
    return open_data(Request(data="digits"))


def prepared(dataset: Dataset, *, shard: tuple[int, int] = (0, 1), **options: Any) -> PreparedRun:
    notes: list[str] = []
    return prepare(Config(**options), dataset, shard=shard, report=notes.append)


def test_defaults_are_filled_in(digits: Dataset) -> None:
    setting = prepared(digits, noise="pair:0.4", recipe=Recipe(seed=3))
    config, recipe = setting.config, setting.config.recipe
    assert (config.model, config.augment, config.noise) == ("convnet", "none", "pairflip:0.4")
    assert config.noise_seed == 3
    assert config.parameters == dict(sharpness=10.0, midpoint=0.5, trust="global*local")
    assert (recipe.epochs, recipe.batch_size) == (30, 128)
    assert None not in (recipe.lr, recipe.optimizer, recipe.weight_decay)
    assert setting.total_steps == 30 * 11
    assert setting.epochs == 30
    again = prepare(config, digits, report=pytest.fail)
    assert again.config == config


def test_the_noise_is_on_the_training_labels_alone(digits: Dataset) -> None:
    setting = prepared(digits, noise="pair:0.4", model="mlp")
    assert setting.labels.clean is not None
    assert (setting.labels.clean == digits.train.labels).all()
    assert setting.labels.flipped.mean() == pytest.approx(0.4, abs=0.05)
    assert (setting.dataset.train.labels == setting.labels.given).all()
    assert digits.test is not None
    assert setting.dataset.test is not None
    assert (setting.dataset.test.labels == digits.test.labels).all()
    same = prepared(digits, noise="pair:0.4", model="mlp", recipe=Recipe(seed=9), noise_seed=0)
    assert same.labels.fingerprint == setting.labels.fingerprint


def test_without_noise_nothing_is_known_or_changed(digits: Dataset) -> None:
    setting = prepared(replace(digits, clean=None), model="mlp")
    assert setting.labels.clean is None
    assert setting.labels.generator == "none"
    assert (setting.labels.given == digits.train.labels).all()


@pytest.mark.parametrize(
    ("options", "points"),
    [
        ({"recipe": Recipe(epochs=3)}, [11, 22, 33]),
        ({"recipe": Recipe(epochs=4), "eval_epochs": 2}, [22, 44]),
        ({"recipe": Recipe(epochs=1), "eval_epochs": 2}, [11]),
        ({"recipe": Recipe(steps=7), "eval_steps": 3}, [3, 6, 7]),
        ({"recipe": Recipe(epochs=60)}, list(range(33, 661, 33))),
        ({"recipe": Recipe(steps=5)}, [1, 2, 3, 4, 5]),
    ],
)
def test_evaluation_points(digits: Dataset, options: dict[str, Any], points: list[int]) -> None:
    setting = prepared(digits, model="mlp", **options)
    steps = range(1, setting.total_steps + 1)
    assert [step for step in steps if setting.is_point(step)] == points


def test_a_share_of_trusted_examples_has_its_true_labels(digits: Dataset) -> None:
    setting = prepared(digits, model="mlp", noise="pair:0.4", trusted="0.2")
    validation = setting.dataset.validation
    assert validation is not None
    assert len(validation) + len(setting.dataset.train) == 1297
    assert not set(validation.ids) & set(setting.dataset.train.ids)
    truth = dict(zip(digits.train.ids, digits.train.labels.tolist(), strict=True))
    assert [truth[one] for one in validation.ids] == validation.labels.tolist()
    assert setting.labels.flipped.mean() == pytest.approx(0.4, abs=0.05)


def test_trusted_examples_from_a_file(tmp_path: Path) -> None:
    x, y = np.random.default_rng(0).normal(size=(60, 3)), np.arange(60) % 3
    np.savez(tmp_path / "noisy.npz", x=x[:40], y=y[:40])
    np.savez(tmp_path / "trusted.npz", x=x[40:], y=y[40:])
    config = Config(
        request=Request(data=str(tmp_path / "noisy.npz")), trusted=str(tmp_path / "trusted.npz")
    )
    setting = prepare(config, report=pytest.fail)
    assert setting.dataset.validation is not None
    assert setting.dataset.validation.labels.tolist() == y[40:].tolist()


def test_processes_share_every_batch(digits: Dataset) -> None:
    """The same examples per step, whoever reads them."""
    alone = prepared(digits, model="mlp")
    shares = [prepared(digits, model="mlp", shard=(k, 2)) for k in range(2)]
    assert len(alone.train) == len(shares[0].train) == len(shares[1].train)
    parts = zip(*(one.train.batches(1) for one in (alone, *shares)), strict=True)
    for whole, first, second in parts:
        assert torch.equal(whole.index, torch.cat((first.index, second.index)))
        torch.testing.assert_close(whole.x, torch.cat((first.x, second.x)))


def test_the_same_seed_is_the_same_model(digits: Dataset) -> None:
    one, same, other = (
        prepared(digits, model="mlp", recipe=Recipe(seed=seed)).model.state_dict()
        for seed in (1, 1, 2)
    )
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert any(not torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"method": "proselfc"}, 'unknown method "proselfc"; did you mean "proselflc"?'),
        ({"model": "mpl"}, 'unknown model "mpl"; did you mean "mlp"?'),
        ({"model": "embedding_bag"}, 'model "embedding_bag" takes texts, but these are images'),
        ({"recipe": Recipe(batch_size=1298)}, "larger than the 1297 training examples of digits"),
        ({"recipe": Recipe(batch_size=1)}, "a batch of 1 is too small: 1 process needs at least 2"),
        ({"noise": "nonsense"}, 'unknown kind of noise "nonsense"'),
        ({"noise": "pair:2"}, "noise rate '2' is not a number between 0 and 1"),
        ({"noise": "pair"}, 'write "pair:0.4"'),
        ({"trusted": "nonsense"}, "neither a file or folder nor a share such as 0.2"),
        ({"trusted": "1.5"}, "is not a number between 0 and 1"),
        ({"trusted": "nan"}, "is not a number between 0 and 1"),
        ({"weights": Path("nowhere.safetensors")}, "nowhere.safetensors"),
    ],
)
def test_what_does_not_fit(digits: Dataset, options: dict[str, Any], reason: str) -> None:
    with pytest.raises(InputError) as caught:
        prepared(digits, **options)
    assert reason in str(caught.value)


def test_every_process_needs_two_examples(digits: Dataset) -> None:
    with pytest.raises(InputError, match="3 processes need at least 6 examples at a time"):
        prepared(digits, model="mlp", shard=(0, 3), recipe=Recipe(batch_size=5))


def test_evaluation_looks_at_a_sample_of_large_data(digits: Dataset) -> None:
    everybody = prepared(digits).sample
    np.testing.assert_array_equal(everybody, np.arange(1297))
    some = prepared(digits, eval_examples=100).sample
    assert len(np.unique(some)) == 100
    assert (some[0], some[-1]) == (0, 1296)
    assert set(np.diff(some)) == {13, 14}


def test_labels_from_a_run_that_saw_some_of_the_examples(tmp_path: Path) -> None:
    x = np.arange(40, dtype=np.float32).reshape(20, 2)
    y = np.arange(20) % 2
    ids = [f"row {k}" for k in range(20)]
    fit(x[:15], y[:15], ids=ids[:15], steps=1, out=tmp_path / "run")
    np.savez(tmp_path / "all.npz", x=x, y=y, ids=np.array(ids))
    notes: list[str] = []
    request = Request(data=str(tmp_path / "all.npz"), labels=tmp_path / "run", force=True)
    prepare(Config(request=request), report=notes.append)
    assert notes == [
        f"no label is changed, because {tmp_path / 'run'} suggests none that is sure enough",
        f"15 of 20 labels are from {tmp_path / 'run'}, the others are unchanged",
    ]


def test_noise_does_not_undo_the_corrections_of_a_run(tmp_path: Path) -> None:
    """As it would with the configuration of a run whose labels were made wrong."""
    from proselflc.data.labels import Labels

    x, y = np.arange(40, dtype=np.float32).reshape(20, 2), np.arange(20) % 2
    ids = [f"row {k}" for k in range(20)]
    np.savez(tmp_path / "all.npz", x=x, y=y, clean=y, ids=np.array(ids))
    fit(x, (y + (np.arange(20) < 3)) % 2, ids=ids, steps=1, out=tmp_path / "run")
    request = Request(data=str(tmp_path / "all.npz"), labels=tmp_path / "run", force=True)
    with pytest.raises(InputError, match=r"pair:0.4' starts from the true .* noise='none'"):
        prepare(Config(request=request, noise="pair:0.4"), report=print)
    setting = prepare(Config(request=request, noise="none"), report=print)
    assert setting.config.noise is None
    own = Labels.load(tmp_path / "run" / "labels.npz")
    np.testing.assert_array_equal(setting.labels.given, own.given)


def test_labels_that_hardly_two_examples_share_are_doubted(tmp_path: Path) -> None:
    rows = [f"{k / 2},{k % 30},{k % 2}" for k in range(90)]
    (tmp_path / "people.csv").write_text("\n".join(["height,age,smokes", *rows]))
    x = np.zeros((90, 2), np.float32)
    np.savez(tmp_path / "people.npz", x=x, y=np.arange(90) % 30)
    notes: list[str] = []
    for data, column in (("people.csv", "age"), ("people.npz", None)):
        request = Request(data=str(tmp_path / data), label_column=column)
        prepare(Config(request=request), report=notes.append)
    assert len(notes) == 2
    assert all("30 classes for 90 examples, 3.0 of each" in note for note in notes)
    assert ["label_column=" in note for note in notes] == [True, False]
    request = Request(data=str(tmp_path / "people.csv"), label_column="smokes")
    prepare(Config(request=request), report=pytest.fail)


def test_small_images_keep_their_size(tmp_path: Path) -> None:
    from PIL import Image

    for i in range(8):
        folder = tmp_path / str(i % 2)
        folder.mkdir(exist_ok=True)
        Image.new("RGB", (20 + i, 30), (30 * i, 9, 9)).save(folder / f"{i}.png")
    request = Request(data=str(tmp_path))
    made = prepare(Config(request=request), report=pytest.fail)
    assert (made.config.image_size, made.config.model) == (30, "convnet")
    made = prepare(Config(request=request, image_size=32), report=pytest.fail)
    assert made.config.image_size == 32
    made = prepare(Config(request=request, model="resnet18"), report=pytest.fail)
    assert made.config.image_size == 224  # it needs them large


@pytest.mark.parametrize("method", ["cce", "elr"])
def test_more_processes_than_the_examples_suffice_for_are_refused(
    digits: Dataset, method: str
) -> None:
    few = replace(digits, train=digits.train.take(np.arange(9)), test=None)
    setting = prepared(few, shard=(3, 4), method=method, model="mlp")
    assert setting.strategy.remembers == (method == "elr")
    (batch,) = setting.train.batches()
    if method == "elr":
        assert sorted(batch.index.tolist()) == [3, 7]
    else:
        assert len(batch.index) == 3
    with pytest.raises(InputError) as caught:
        prepared(few, shard=(3, 5), method=method, model="mlp")
    assert str(caught.value) == (
        "5 processes need at least 10 training examples, and digits has 9: start at most 4"
    )


def test_every_training_example_of_the_sample_is_evaluated_by_one_process(digits: Dataset) -> None:
    for method in ("cce", "elr"):
        parts = [
            prepared(digits, shard=(k, 3), method=method, model="mlp", eval_examples=100).sample
            for k in range(3)
        ]
        alone = prepared(digits, method=method, model="mlp", eval_examples=100).sample
        assert sorted(np.concatenate(parts)) == alone.tolist()
        if method == "elr":
            assert all((part % 3 == k).all() for k, part in enumerate(parts))
