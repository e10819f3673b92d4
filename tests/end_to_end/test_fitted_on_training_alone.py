"""What is fitted to inputs is fitted to the training part alone, after every split.

Each case puts other values into test and trusted examples than into the rest could have by
chance, trains through the usual way in, and computes the statistics by hand from the rows that
the run says it has learned from.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import proselflc
from proselflc.data.inputs import Inputs, Texts
from proselflc.data.preprocessing import Preprocessing, TextHashing
from proselflc.data.request import Request
from proselflc.data.sources import arrays
from proselflc.run import audit as auditing
from proselflc.run import fold_splits
from proselflc.run import prepare as setting_of
from proselflc.run.config import Config, OutputOptions
from proselflc.run.reader import Run
from proselflc.run.train import train
from proselflc.terminal import Silent
from proselflc.training.recipe import Recipe

N, CLASSES = 60, 3
Y = np.arange(N) % CLASSES
# Every example differs from all others, so that any other choice of rows has other statistics.
LEVELS = (np.arange(N) ** 2 % 61 * 4).astype(np.uint8)
LONG: dict[str, Any] = {"steps": 2, "batch_size": 8, "eval_steps": 2, "notes": False}


def fitted(run: Run) -> dict[str, Any]:
    """The preprocessing in model.json."""
    description = json.loads((run.path / "model.json").read_text(encoding="utf-8"))
    found: dict[str, Any] = description["preprocessing"]
    return found


def rows_of(run: Run) -> Any:
    """Positions of the examples that were learned from; a fifth is trusted, and test is apart."""
    rows = np.array([int(name.rpartition("/")[2]) for name in run.labels.ids])
    assert len(rows) == N * 0.8
    return rows


def moments(values: Any) -> tuple[float, float]:
    return float(values.mean()), float(values.std())


def test_images_in_memory(tmp_path: Path) -> None:
    x = np.repeat(LEVELS, 64).reshape(N, 8, 8) + np.arange(8, dtype=np.uint8)
    test = np.full((6, 8, 8), 255, np.uint8)
    run = proselflc.fit(
        *(x, Y), x_test=test, y_test=Y[:6], model="mlp", trusted=0.2, out=tmp_path / "run", **LONG
    )
    found, rows = fitted(run), rows_of(run)
    mean, std = moments(x[rows] / 255)
    assert found["mean"] == pytest.approx([mean], rel=1e-9)
    assert found["std"] == pytest.approx([std], rel=1e-9)
    for leak in (x, np.concatenate((x[rows], test))):
        assert abs(found["mean"][0] - moments(leak / 255)[0]) > 1e-3


def test_image_files(tmp_path: Path) -> None:
    """Of one colour each, so that warping and cropping change nothing."""
    colours = np.stack((LEVELS, LEVELS[::-1], np.roll(LEVELS, 7)), 1)
    paths = []
    for k, colour in enumerate(colours):
        paths.append(tmp_path / f"{k}.png")
        Image.new("RGB", (16, 16), tuple(int(c) for c in colour)).save(paths[-1])
    white = tmp_path / "white.png"
    Image.new("RGB", (16, 16), (255, 255, 255)).save(white)
    run = proselflc.fit(
        paths,
        Y,
        ids=[str(k) for k in range(N)],
        x_test=[white] * 6,
        y_test=Y[:6],
        image_size=16,
        model="mlp",
        trusted=0.2,
        out=tmp_path / "run",
        **LONG,
    )
    found, rows = fitted(run), rows_of(run)
    assert found["mean"] == pytest.approx(colours[rows].mean(0) / 255, rel=1e-9)
    assert found["std"] == pytest.approx(colours[rows].std(0) / 255, rel=1e-9)
    assert np.abs(np.array(found["mean"]) - colours.mean(0) / 255).max() > 1e-3


def test_numbers_in_a_table(tmp_path: Path) -> None:
    values = np.stack((LEVELS * 1.0, np.sin(np.arange(N)), np.cumsum(np.arange(N)))).T
    lines = [f"{k},{','.join(map(repr, map(float, row)))},c{Y[k]}" for k, row in enumerate(values)]
    table = tmp_path / "table.csv"
    table.write_text("\n".join(["id,a,b,c,label", *lines]) + "\n")
    config = Config(
        request=Request(data=str(table), id_column="id"),
        trusted="0.2",
        recipe=Recipe(steps=2, batch_size=8),
    )
    train(config, OutputOptions(tmp_path / "run"), Silent())
    run = proselflc.load_run(tmp_path / "run")
    found, rows = fitted(run), rows_of(run)
    assert found["mean"] == pytest.approx(values[rows].mean(0), rel=1e-6)
    assert found["std"] == pytest.approx(values[rows].std(0), rel=1e-6)
    assert np.abs(np.array(found["mean"]) - values.mean(0)).max() > 1e-3


def test_a_trusted_file_is_not_looked_at(tmp_path: Path) -> None:
    lines = [f"{k},{float(LEVELS[k])},{float(k)},c{Y[k]}" for k in range(N)]
    (tmp_path / "table.csv").write_text("\n".join(["id,a,b,label", *lines]) + "\n")
    far = [f"t{k},{1e6 + k},{-1e6 - k},c{Y[k]}" for k in range(9)]
    (tmp_path / "trusted.csv").write_text("\n".join(["id,a,b,label", *far]) + "\n")
    config = Config(
        request=Request(data=str(tmp_path / "table.csv"), id_column="id"),
        trusted=str(tmp_path / "trusted.csv"),
        recipe=Recipe(steps=2, batch_size=8),
    )
    train(config, OutputOptions(tmp_path / "run"), Silent())
    found = fitted(proselflc.load_run(tmp_path / "run"))
    assert found["mean"] == pytest.approx([LEVELS.mean(), np.arange(N).mean()], rel=1e-6)


def test_texts(tmp_path: Path) -> None:
    """A word that a training text shares with a trusted or a test one alone is not known."""
    words = [f"{chr(97 + k % 26)}{chr(97 + k // 26)}qx" for k in range(N)]
    texts = [f"{words[k]} {words[(k + 1) % N]} same" for k in range(N)]
    test = [f"{word} same" for word in words[:6]]
    run = proselflc.fit(
        *(texts, Y), x_test=test, y_test=Y[:6], trusted=0.2, out=tmp_path / "run", **LONG
    )
    rows = rows_of(run)
    learned = [texts[k] for k in rows]
    assert fitted(run) == TextHashing.fit(Texts(tuple(learned))).to_json()
    hashing = run.preprocessing
    assert isinstance(hashing, TextHashing)
    for word in words:
        uses = sum(word in text.split() for text in learned)
        runs = TextHashing.fit(Texts((word, word))).num_embeddings - 1
        known = int((hashing(Texts((word,))) > 0).sum()) == runs
        assert known == (uses >= 2), word
    for leak in (texts, learned + test):
        assert fitted(run) != TextHashing.fit(Texts(tuple(leak))).to_json()


def test_the_models_of_folds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.stack((LEVELS * 1.0, np.sin(np.arange(N)))).T.astype(np.float32)
    run = proselflc.fit(
        x, Y, model="mlp", epochs=3, batch_size=16, out=tmp_path / "run", notes=False
    )
    seen: list[tuple[Any, Preprocessing]] = []
    fit: Callable[..., Preprocessing] = setting_of._fitted

    def watched(config: Config, inputs: Inputs, report: Callable[[str], None]) -> Preprocessing:
        seen.append((inputs, fit(config, inputs, report)))
        return seen[-1][1]

    monkeypatch.setattr(setting_of, "_fitted", watched)
    auditing.audit(run, folds=3, dataset=arrays.load(x, Y))
    expected = [x[split.train] for split in fold_splits.split_examples(run.labels, 3, 0)]
    assert len(seen) == len(expected) == 3
    for (_, found), values in zip(seen, expected, strict=True):
        assert found.to_json()["mean"] == pytest.approx(values.mean(0), rel=1e-6)
        assert found.to_json()["std"] == pytest.approx(values.std(0), rel=1e-6)
