"""Photos and texts are learned by the features of a pretrained model, or from scratch."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from proselflc.data.dataset import Dataset, Part
from proselflc.data.encoded.preprocessing import PretrainedFeatures
from proselflc.data.inputs import ImageFiles, Images, Inputs, Texts
from proselflc.data.labels import from_dataset
from proselflc.data.request import Request
from proselflc.errors import InputError
from proselflc.pretrained import catalogue
from proselflc.pretrained.encoder import Encoder
from proselflc.run.config import Config, OutputOptions
from proselflc.run.fit import fit
from proselflc.run.learned import backbones
from proselflc.run.prepare import LabelledData
from proselflc.run.reader import load_run
from proselflc.run.train import train
from proselflc.terminal import Silent
from proselflc.training.recipe import Recipe

COLOURS = ("red", "green", "blue")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))


def pictures(folder: Path, side: int = 32, count: int = 60) -> Path:
    """Write pictures of three colours with some noise; every tenth is in the wrong folder."""
    generator = np.random.default_rng(0)
    for k in range(count):
        pixels = generator.integers(0, 90, (side, side, 3))
        pixels[:, :, k % 3] += 120
        name = COLOURS[(k + (k % 10 == 0)) % 3]
        path = folder / name / f"{k:03d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.astype(np.uint8)).save(path)
    return folder


def labelled(
    inputs: Inputs, y: np.ndarray, names: tuple[str, ...], **options: object
) -> LabelledData:
    part = Part(inputs, y.astype(np.int64), tuple(map(str, range(len(y)))))
    dataset = Dataset("data", part, names)
    return LabelledData(Config(**options), dataset, from_dataset(dataset, None))  # type: ignore[arg-type]


def of_folder(folder: Path, **options: object) -> LabelledData:
    paths = tuple(sorted(folder.glob("*/*.png")))
    y = np.array([COLOURS.index(path.parent.name) for path in paths])
    return labelled(ImageFiles(paths), y, COLOURS, **options)


def chosen(data: LabelledData) -> tuple[Config, str]:
    notes: list[str] = []
    assert backbones.chooses(data.config, data)
    config = backbones.choose(data.config, data, notes.append)
    assert len(notes) == 1
    return config, notes[0]


def test_photos_are_learned_by_features_on_a_cpu(tmp_path: Path) -> None:
    config, note = chosen(of_folder(pictures(tmp_path)))
    assert (config.backbone, config.model) == ("efficientnet_lite0", None)
    assert "a linear model learns the features of efficientnet_lite0" in note


def test_photos_are_fine_tuned_on_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    config, note = chosen(of_folder(pictures(tmp_path)))
    assert (config.backbone, config.model) == ("none", "efficientnet_lite0")
    assert "fine-tuned" in note


def test_tiny_images_are_learned_from_scratch(tmp_path: Path) -> None:
    config, note = chosen(of_folder(pictures(tmp_path, side=12)))
    assert (config.backbone, config.model) == ("none", None)
    assert "about 12 pixels long, too small" in note


@pytest.mark.parametrize("medium", ["image", "text"])
def test_without_the_extra_a_note_says_what_it_would_bring(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, medium: str
) -> None:
    monkeypatch.setattr(catalogue, "installed", lambda medium: None)
    data = of_folder(pictures(tmp_path))
    if medium == "text":
        data = labelled(Texts(("a", "b") * 9), np.arange(18) % 2, ("a", "b"))
    config, note = chosen(data)
    assert config.backbone == "none"
    assert f'pip install "proselflc[{medium}s]"' in note


@pytest.mark.parametrize(
    "options",
    [
        {"model": "convnet"},
        {"backbone": "none"},
        {"backbone": "efficientnet_lite0"},
    ],
)
def test_what_the_user_says_is_not_chosen_again(tmp_path: Path, options: dict[str, object]) -> None:
    data = of_folder(pictures(tmp_path), **options)
    assert not backbones.chooses(data.config, data)


@pytest.mark.parametrize(
    "options", [{"augment": "flip"}, {"normalize": "none"}, {"weights": Path("w.pt")}]
)
def test_options_of_a_network_lead_to_one(tmp_path: Path, options: dict[str, object]) -> None:
    folder = pictures(tmp_path / "pictures")
    config, note = chosen(of_folder(folder, **options))
    assert config.backbone == "none"
    (name,) = options
    assert note.startswith(f"{name}=")
    asked = Config(Request(data=str(folder)), backbone="efficientnet_lite0", **options)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=f"^{name}=.* is for a network that learns from scratch"):
        train(asked, OutputOptions(tmp_path / "run"), Silent())
    assert not (tmp_path / "run").exists()


def test_a_damaged_package_is_no_reason_to_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(name: str) -> Encoder:
        raise InputError("the weights are damaged", fix="install them again")

    monkeypatch.setattr(catalogue, "encoder", broken)
    config, note = chosen(of_folder(pictures(tmp_path)))
    assert config.backbone == "none"
    assert "the weights are damaged" in note
    assert "until then a network learns these images from scratch" in note


def test_arrays_are_learned_from_scratch_unless_auto_is_asked_for() -> None:
    images = Images(np.zeros((9, 32, 32, 3), np.uint8))
    data = labelled(images, np.arange(9) % 3, COLOURS)
    assert not backbones.chooses(data.config, data)
    asked = replace(data, config=Config(model="auto"))
    assert backbones.chooses(asked.config, asked)


def words(monkeypatch: pytest.MonkeyPatch, encode: Callable[[list[str]], torch.Tensor]) -> None:
    monkeypatch.setattr(catalogue, "installed", lambda medium: "own")
    encoder = Encoder("own", "text", 2, "own", encode)
    monkeypatch.setattr(catalogue, "encoder", lambda name: encoder)


TEXTS = tuple(f"{'sun' if k % 2 else 'rain'} {k % 7} {k}" for k in range(80))


def test_words_are_learned_where_the_model_knows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    words(monkeypatch, lambda texts: torch.ones(len(texts), 2))
    config, note = chosen(labelled(Texts(TEXTS), np.arange(80) % 2, ("a", "b")))
    assert config.backbone == "none"
    assert "a network learns words and letters" in note


def test_a_model_that_knows_more_than_words_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    y = np.arange(80) // 8 % 2  # which no word tells

    def encode(texts: list[str]) -> torch.Tensor:
        number = torch.tensor([int(one.split()[-1]) for one in texts])
        return torch.stack([number // 8 % 2, 1 - number // 8 % 2], 1).float()

    words(monkeypatch, encode)
    config, note = chosen(labelled(Texts(TEXTS), y, ("a", "b")))
    assert config.backbone in ("own", "own+hashed")
    assert "own with 100.0%" in note.replace("features of own agree with", "own with")


def test_a_folder_is_learned_audited_and_predicted_by_features(tmp_path: Path) -> None:
    folder = pictures(tmp_path / "pictures")
    config = Config(request=Request(data=str(folder)), recipe=Recipe(epochs=6))
    train(config, OutputOptions(tmp_path / "run"), Silent())
    run = load_run(tmp_path / "run")
    assert (run.config["backbone"], run.config["model"]) == ("efficientnet_lite0", "linear")
    assert isinstance(run.preprocessing, PretrainedFeatures)
    assert run.records.witness is not None
    assert run.records.witness.kind == "pretrained features"
    assert run.neighbours is not None
    rows = run.examples.to_pylist()
    wrong = [Path(row["id"]).stem for row in sorted(rows, key=lambda row: row["quality"])[:6]]
    assert sorted(wrong) == [f"{k:03d}" for k in range(0, 60, 10)]
    found = run.predict(sorted(folder.glob("green/*.png")))
    truth = np.array([int(path.stem) % 3 == 1 for path in sorted(folder.glob("green/*.png"))])
    labels = np.array(run.names)[found.classes]
    assert ((labels == "green") == truth).mean() > 0.9
    # The run goes on as it began, whatever is chosen now, and is finished.
    resumed = OutputOptions(tmp_path / "run", resume=True)
    train(config, resumed, Silent())


def test_a_model_of_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is for texts, but these are image files"):
        train(
            Config(request=Request(data=str(pictures(tmp_path / "p"))), backbone="hashed"),
            OutputOptions(tmp_path / "run"),
            Silent(),
        )
    with pytest.raises(InputError, match="is for photos and texts, but these are features"):
        fit(np.zeros((9, 2)), np.arange(9) % 3, backbone="hashed", notes=False)


def test_texts_in_python_are_learned_by_hashed_words(tmp_path: Path) -> None:
    run = fit(list(TEXTS), np.arange(80) % 2, backbone="hashed", epochs=8, notes=False)
    found = run.predict(["the sun 3 shines", "rain 4"])
    assert found.classes.tolist() == [1, 0]
