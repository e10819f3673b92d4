"""Two steps of the paper's own runs: its networks and image sizes on fabricated data."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from proselflc.models import catalogue
from proselflc.models.shape import ImageShape
from proselflc.paper.command import train_and_measure
from proselflc.paper.plan import SCALES
from proselflc.run.config import Config

PAPER = SCALES["paper"]
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # that torchvision documents


def photo(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(len(str(path))).integers(0, 256, (30, 40, 3), np.uint8)
    Image.fromarray(noise).save(path)


def two_steps(config: Config, batch_size: int) -> Config:
    recipe = replace(config.recipe, steps=2, batch_size=batch_size)
    return replace(config, recipe=recipe, workers=0, eval_steps=2)


def measured(config: Config, folder: Path) -> Path:
    """Train and measure a run; return its directory."""
    facts = train_and_measure(config, folder)
    assert facts["summary"]["test_accuracy"] is not None
    assert facts["history"][-1]["step"] == 2
    (run,) = (path for path in folder.iterdir() if path.is_dir())
    return run


def test_resnet_44_on_cifar_images(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    pixels = generator.integers(0, 256, (40, 32, 32, 3), np.uint8)
    y = np.arange(40) % 4
    path = tmp_path / "images.npz"
    np.savez(path, x=pixels[:32], y=y[:32], x_test=pixels[32:], y_test=y[32:])
    config = PAPER.config("cifar100", "proselflc", {}, seed=0, noise="symmetric:0.4")
    config = replace(config, request=replace(config.request, data=str(path)))
    run = measured(two_steps(config, 16), tmp_path / "runs")
    assert 'model = "resnet44"' in (run / "config.toml").read_text()


def test_resnet_50_on_an_imagenet_tree(tmp_path: Path) -> None:
    for k, synset in enumerate(("n01440764", "n01443537")):
        for part in ("train", "val"):
            photo(tmp_path / "data" / part / synset / f"{synset}_{k}.JPEG")
    config = PAPER.config("imagenet", "proselflc", {}, seed=0)
    config = replace(config, request=replace(config.request, data_root=tmp_path / "data"))
    run = measured(two_steps(config, 2), tmp_path / "runs")
    scaling = json.loads((run / "model.json").read_text())["preprocessing"]
    assert scaling["size"] == [224, 224]


def clothing1m(folder: Path) -> None:
    """Write a tree in the published layout: two images of each part."""
    keys = [f"images/0/0{k}/{k}.jpg" for k in range(6)]
    for key in keys:
        photo(folder / key)
    for name, part in {
        "noisy_train": keys[:2],
        "clean_train": [],
        "clean_val": keys[2:4],
        "clean_test": keys[4:],
    }.items():
        (folder / f"{name}_key_list.txt").write_text("".join(f"{key}\n" for key in part))
    for name, labelled in (("noisy", keys[:2]), ("clean", keys[2:])):
        lines = (f"{key} {k % 14}\n" for k, key in enumerate(labelled))
        (folder / f"{name}_label_kv.txt").write_text("".join(lines))


def test_resnet_50_on_a_clothing1m_tree_from_imagenet_weights(tmp_path: Path) -> None:
    clothing1m(tmp_path / "data")
    weights = tmp_path / "resnet50.pth"
    network = catalogue.build("resnet50", ImageShape(3, 224, 224), 1000, generator_seed=1)
    torch.save(network.state_dict(), weights)
    config = PAPER.config("clothing1m", "proselflc", {}, seed=0, weights=weights)
    config = replace(config, request=replace(config.request, data_root=tmp_path / "data"))
    run = measured(two_steps(config, 2), tmp_path / "runs")
    scaling = json.loads((run / "model.json").read_text())["preprocessing"]
    assert scaling["size"] == [224, 224]
    assert scaling["mean"] == pytest.approx(MEAN)
    assert scaling["std"] == pytest.approx(STD)
