"""With weights that were trained elsewhere, pixels are scaled as those weights expect."""

from __future__ import annotations

import json
import sys
import types
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import nn

import proselflc
from proselflc.cli import app as cli
from proselflc.data.dataset import Dataset, Part
from proselflc.data.image_scaling import ImageScaling
from proselflc.data.inputs import Features, Images
from proselflc.errors import InputError
from proselflc.models import catalogue, pixels
from proselflc.models.pixels import IMAGENET, Pixels, expected, parse
from proselflc.models.shape import ImageShape
from proselflc.queue.run_store import key
from proselflc.run.config import Config, differences, read_options
from proselflc.run.prepare import choose_normalization
from proselflc.run.resumption import resumed_config
from proselflc.training.run_directory import RunDirectory

SIDE = 16
# Torchvision's documentation of its pretrained models: mean and std of RGB in 0 … 1.
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def photos(folder: Path, bright: int = 40) -> tuple[Path, npt.NDArray[np.uint8]]:
    """Two classes of small coloured pictures, and their pixels in the order of their paths."""
    generator = np.random.default_rng(0)
    arrays = []
    for name, red in (("blue", 0), ("red", 90)):
        (folder / name).mkdir(parents=True)
        for k in range(6):
            array = generator.integers(bright, bright + 60, (SIDE, SIDE, 3), np.uint8)
            array[:, :, 0] += np.uint8(red)
            Image.fromarray(array).save(folder / name / f"{k}.png")
            arrays.append(array)
    return folder, np.stack(arrays)


def tiny_weights(path: Path, num_classes: int = 2) -> Path:
    """A safetensors file of the small convolutional network."""
    shape = ImageShape(3, SIDE, SIDE)
    save_file(catalogue.build("convnet", shape, num_classes, generator_seed=3).state_dict(), path)
    return path


def train(data: Path, out: Path, *more: str) -> dict[str, Any]:
    """What model.json of a run by the command line says of its preprocessing."""
    arguments = ["train", "--data", str(data), "--out", str(out), "--image-size", str(SIDE)]
    fast = ["--steps", "2", "--batch-size", "4", "--workers", "0", "--augment", "none", "--quiet"]
    assert cli.run([*arguments, *fast, *more]) == 0
    found: dict[str, Any] = json.loads((out / "model.json").read_text())["preprocessing"]
    return found


def test_resnets_named_as_torchvisions_have_imagenets_pixels(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, array = photos(tmp_path / "data")
    weights = tmp_path / "resnet18-f37072fd.safetensors"
    model = catalogue.build("resnet18", ImageShape(3, SIDE, SIDE), 1000, generator_seed=0)
    save_file(model.state_dict(), weights)
    found = train(data, tmp_path / "run", "--model", "resnet18", "--weights", str(weights))
    assert (tuple(found["mean"]), tuple(found["std"])) == (MEAN, STD)
    assert "expect (imagenet); --normalize data" in capsys.readouterr().err
    assert 'normalize = "imagenet"' in (tmp_path / "run" / "config.toml").read_text()
    # And what predicts does the same, by hand.
    run = proselflc.load_run(tmp_path / "run")
    x = (torch.from_numpy(array).float() / 255 - torch.tensor(MEAN)) / torch.tensor(STD)
    with torch.no_grad():
        p = torch.softmax(run.model(x.permute(0, 3, 1, 2)), 1).numpy()
    np.testing.assert_allclose(run.predict(array).probabilities, p, atol=1e-5)


def test_without_weights_the_data_is_measured_as_before(tmp_path: Path) -> None:
    data, array = photos(tmp_path / "data")
    found = train(data, tmp_path / "run", "--model", "convnet")
    # Files are warped first, which changes the deviation a little and the mean hardly.
    np.testing.assert_allclose(found["mean"], array.mean((0, 1, 2)) / 255, atol=2e-3)
    assert "normalize" not in (tmp_path / "run" / "config.toml").read_text()


def test_weights_of_a_run_bring_the_pixels_of_that_run(tmp_path: Path) -> None:
    dark, _ = photos(tmp_path / "dark", 20)
    light, _ = photos(tmp_path / "light", 100)
    first = train(dark, tmp_path / "first", "--model", "convnet")
    weights = str(tmp_path / "first" / "model.safetensors")
    arguments = ("--model", "convnet", "--weights", weights)
    again = train(light, tmp_path / "again", *arguments)
    assert (again["mean"], again["std"]) == (first["mean"], first["std"])
    own = train(light, tmp_path / "own", *arguments, "--normalize", "data")
    assert min(np.subtract(own["mean"], first["mean"])) > 0.25
    # What the run has written repeats it, though the file beside the weights may change.
    config = str(tmp_path / "again" / "config.toml")
    repeated = train(light, tmp_path / "repeated", "--config", config)
    assert repeated == again


@pytest.mark.parametrize(
    ("said", "mean", "std"),
    [
        ("imagenet", MEAN, STD),
        ("none", (0, 0, 0), (1, 1, 1)),
        ("0.5,0.5,0.5/0.25,0.25,0.5", (0.5, 0.5, 0.5), (0.25, 0.25, 0.5)),
    ],
)
def test_the_option_says_it(
    tmp_path: Path, said: str, mean: tuple[float, ...], std: tuple[float, ...]
) -> None:
    data, _ = photos(tmp_path / "data")
    weights = tiny_weights(tmp_path / "tiny.safetensors", 5)
    arguments = ("--model", "convnet", "--weights", str(weights), "--normalize", said)
    found = train(data, tmp_path / "run", *arguments)
    assert (tuple(found["mean"]), tuple(found["std"])) == (mean, std)


def test_weights_of_which_nothing_is_known_leave_the_data_and_say_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, _ = photos(tmp_path / "data")
    weights = tiny_weights(tmp_path / "tiny.safetensors")
    plain = train(data, tmp_path / "plain", "--model", "convnet")
    capsys.readouterr()
    found = train(data, tmp_path / "run", "--model", "convnet", "--weights", str(weights))
    assert found == plain
    assert "how pixels were scaled for the weights" in capsys.readouterr().err
    assert 'normalize = "data"' in (tmp_path / "run" / "config.toml").read_text()


class Timm(types.ModuleType):
    """As much of timm as is used; its weights of "tiny" were trained otherwise than most."""

    def is_model(self, name: str) -> bool:
        return name == "tiny"

    def get_pretrained_cfg(self, name: str) -> Any:
        return types.SimpleNamespace(mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))

    def create_model(self, name: str, **options: Any) -> nn.Module:
        channels, classes = options["in_chans"], options["num_classes"]
        return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))


def test_timm_says_what_its_weights_expect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", Timm("timm"))
    data, _ = photos(tmp_path / "data")
    weights = tmp_path / "tiny.safetensors"
    save_file({"2.weight": torch.zeros(9, 3), "2.bias": torch.zeros(9)}, weights)
    found = train(data, tmp_path / "run", "--model", "timm:tiny", "--weights", str(weights))
    assert found["mean"] == found["std"] == [0.5, 0.5, 0.5]
    found = train(data, tmp_path / "fresh", "--model", "timm:tiny")
    assert found["mean"] != [0.5, 0.5, 0.5]  # weights that are not trained expect nothing


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("preprocessor_config.json", {"image_mean": [0.1, 0.2, 0.3], "image_std": [0.5, 0.6, 0.7]}),
        ("config.json", {"pretrained_cfg": {"mean": [0.1, 0.2, 0.3], "std": [0.5, 0.6, 0.7]}}),
        (
            "model.json",
            {"preprocessing": {"kind": "images", "mean": [0.1, 0.2, 0.3], "std": [0.5, 0.6, 0.7]}},
        ),
    ],
)
def test_what_lies_beside_the_weights_counts_first(
    tmp_path: Path, name: str, content: object
) -> None:
    (tmp_path / name).write_text(json.dumps(content))
    found = Pixels((0.1, 0.2, 0.3), (0.5, 0.6, 0.7))
    assert expected("resnet50", tmp_path / "model.safetensors") == found
    # A file of another name in the same folder is not what the description is about.
    assert expected("resnet50", tmp_path / "resnet50-11ad3fa6.pth") == IMAGENET
    assert expected("convnet", tmp_path / "other.safetensors") is None
    assert expected("torchvision:vgg11", tmp_path / "other.pth") == IMAGENET
    (tmp_path / name).write_text(json.dumps(content).replace("0.7", '"x"'))
    with pytest.raises(InputError, match="does not say how pixels are scaled"):
        expected("resnet50", tmp_path / "model.safetensors")
    (tmp_path / name).write_text("{")
    with pytest.raises(InputError, match=r"cannot read .*, which says how pixels are scaled"):
        expected("resnet50", tmp_path / "model.safetensors")


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("imagnet", "expected data, imagenet, none, or means and deviations"),
        ("0.5/0.5,0.5", "1 means and 2 deviations"),
        ("0.5,0.5,0.5/0.5,0,0.5", "positive deviations"),
        ("124,116,104/58,57,57", "means from 0 to 1"),
        ("nan,0,0/1,1,1", "means from 0 to 1"),
        ("", "expected data"),
    ],
)
def test_what_cannot_be_meant_is_refused(said: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        Config(normalize=said)


def test_what_a_run_writes_is_read_back() -> None:
    for one in (IMAGENET, pixels.AS_THEY_ARE, Pixels((0.1,), (1 / 3,))):
        assert parse(str(one)) == one
    assert (IMAGENET.mean, IMAGENET.std) == (MEAN, STD)
    assert parse("data") is None


def test_it_must_suit_the_inputs() -> None:
    grey = Images(np.zeros((2, 8, 8, 1), np.uint8))
    with pytest.raises(InputError, match="has 3 channels and the images have 1"):
        choose_normalization(Config(normalize="imagenet"), grey, print)
    assert choose_normalization(Config(normalize="0.5/0.5"), grey, print) == "0.5/0.5"
    rows = Features(np.zeros((2, 3), np.float32))
    with pytest.raises(InputError, match="is for images, but these are features"):
        choose_normalization(Config(normalize="imagenet"), rows, print)
    assert (
        choose_normalization(Config(normalize="data"), rows, print) is None
    )  # as a run with weights goes on
    assert choose_normalization(Config(weights=Path("w.pt")), rows, print) is None


def test_in_python_too(tmp_path: Path) -> None:
    _, array = photos(tmp_path / "data")
    y = ["blue"] * 6 + ["red"] * 6
    run = proselflc.fit(array, y, steps=1, batch_size=4, normalize="imagenet")
    assert run.preprocessing == ImageScaling(MEAN, STD, (SIDE, SIDE), (SIDE, SIDE))
    with pytest.raises(InputError, match='"x"') as caught:
        proselflc.fit(array, y, normalize="x")
    assert caught.value.field == "normalize"


def test_an_old_run_with_weights_goes_on_with_its_datas_pixels(tmp_path: Path) -> None:
    """It says nothing of the option, and has scaled pixels by its data."""
    directory = RunDirectory(tmp_path)
    old = Config(weights=tmp_path / "w.safetensors", model="resnet18")
    old.write(directory.config, "0" * 64)
    assert "normalize" not in directory.config.read_text()
    assert resumed_config(old, directory) == replace(old, normalize="data")
    assert differences(old.table(), replace(old, normalize="data").table()) == []
    other = differences(old.table(), replace(old, normalize="imagenet").table())
    assert other == ["normalize (data there, imagenet now)"]
    table = {**old.table(), "fingerprint": "0" * 64}
    assert read_options(table, directory.config)["normalize"] == "data"
    assert "normalize" not in read_options(old.table(), directory.config)  # a recipe of a user's
    replace(old, normalize="none").write(directory.config, "0" * 64)
    assert resumed_config(old, directory).normalize == "none"


def test_a_run_that_stopped_goes_on_as_it_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, _ = photos(tmp_path / "data")
    first = train(photos(tmp_path / "dark", 10)[0], tmp_path / "first", "--model", "convnet")
    weights = str(tmp_path / "first" / "model.safetensors")
    out, arguments = tmp_path / "run", ("--model", "convnet", "--weights", weights)
    with monkeypatch.context() as early:
        early.setattr("proselflc.run.learned.network.TrainingRun.finish", _stop)
        with pytest.raises(AssertionError, match="130"):
            train(data, out, *arguments)
    found = train(data, out, *arguments, "--resume")
    assert (found["mean"], found["std"]) == (first["mean"], first["std"])


def _stop(run: object) -> None:
    raise KeyboardInterrupt


def test_a_kept_run_with_weights_is_not_one_of_before(tmp_path: Path) -> None:
    plain, weighted = Config(), Config(weights=tmp_path / "w")
    assert key(plain) == key(Config())
    assert key(weighted) != key(replace(weighted, normalize="data"))
    assert key(weighted) == key(Config(weights=tmp_path / "w"))


def test_weights_of_a_model_of_numbers_have_no_pixels(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    y = np.arange(40) % 2
    x = generator.normal(0, 1, (40, 3)) + 2 * y[:, None]
    first = proselflc.fit(x, y, model="mlp", steps=2, out=tmp_path / "first")
    weights = first.directory.weights
    second = proselflc.fit(x, y, model="mlp", weights=weights, steps=2, out=tmp_path / "second")
    assert "normalize" not in second.config
    arguments: dict[str, Any] = {
        "model": "mlp",
        "weights": weights,
        "steps": 2,
        "out": tmp_path / "second",
    }
    proselflc.fit(x, y, resume=True, **arguments)  # finished, and no refusal
    proselflc.audit(second, folds=2, dataset=_rows(x, y))


def _rows(x: npt.NDArray[np.float64], y: npt.NDArray[np.int64]) -> Dataset:
    ids = tuple(f"train/{k:06d}" for k in range(len(y)))
    return Dataset("rows", Part(Features(x.astype(np.float32)), y, ids), ("0", "1"))
