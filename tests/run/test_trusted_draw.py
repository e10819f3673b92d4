"""Which examples are trusted does not depend on which labels the noise has flipped."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from proselflc.data import noise
from proselflc.data.dataset import Dataset, Part
from proselflc.data.inputs import Features, Ints
from proselflc.errors import InputError
from proselflc.run import prepare as setting_of
from proselflc.run.config import Config, OutputOptions
from proselflc.run.prepare import prepare
from proselflc.run.train import train
from proselflc.terminal import Silent
from proselflc.training.recipe import Recipe
from proselflc.training.run_directory import RunDirectory

CLASSES, EACH = 6, 500
KINDS = ("pair:0.4", "symmetric:0.4", "pairflip:0.4", "sym_exclusive_exact_per_class:0.4")


def sorted_by_class(each: int = EACH) -> Dataset:
    """Examples that come class after class, two classes in every coarse one."""
    y = np.repeat(np.arange(CLASSES), each)
    x = np.random.default_rng(5).normal(size=(len(y), 3)).astype(np.float32)
    ids = tuple(f"{k}" for k in range(len(y)))
    part = Part(Features(x, ("a", "b", "c")), y, ids)
    coarse: Ints = np.arange(CLASSES) // 2
    return Dataset("sorted", part, tuple("abcdef"), coarse=coarse)


def options(**more: Any) -> Config:
    recipe = Recipe(epochs=4, batch_size=100, seed=more.pop("seed", 0))
    return Config(**{"noise": "pair:0.4", "trusted": "0.2", "recipe": recipe, **more})


def silent(note: str) -> None:
    pass


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(4))
def test_every_class_keeps_its_noise(kind: str, seed: int) -> None:
    """A fifth that is drawn at random leaves the rate within 5 standard deviations of 0.0086."""
    whole = prepare(options(noise=kind, trusted=None, seed=seed), sorted_by_class(), report=silent)
    rest = prepare(options(noise=kind, seed=seed), sorted_by_class(), report=silent)
    assert len(rest.labels.given) == CLASSES * EACH * 0.8
    before, after = whole.labels, rest.labels
    assert before.clean is not None
    assert after.clean is not None
    for c in range(CLASSES):
        rate = before.flipped[before.clean == c].mean()
        assert 0.3 < rate < 0.5
        assert after.flipped[after.clean == c].mean() == pytest.approx(rate, abs=0.043)


def test_the_draw_is_a_function_of_the_seed() -> None:
    one, again, other = (
        prepare(options(seed=seed), sorted_by_class(), report=silent).labels.ids
        for seed in (1, 1, 2)
    )
    assert one == again
    assert one != other


class StoppedError(Exception):
    pass


class Stopping(Silent):
    """Ends training at the second evaluation."""

    def point(self, line: Any) -> None:
        if line["epoch"] == 2:
            raise StoppedError


@pytest.mark.parametrize(
    ("noisy", "method", "reason"),
    [
        ("symmetric:0.3", "cce", "the labels are not those"),
        (None, "cce", "the training examples are not those"),
        (None, "pseudo_label", "the training examples are not those"),
    ],
)
def test_a_run_whose_trusted_examples_were_drawn_the_old_way_is_not_resumed(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    noisy: str | None,
    method: str,
    reason: str,
) -> None:
    """Also where all labels are in the order of their classes, so that they stay the same."""
    config = options(
        noise=noisy, method=method, parameters={}, eval_epochs=1, checkpoint_seconds=0.0
    )
    data, out = sorted_by_class(60), tmp_path / "run"
    with monkeypatch.context() as old:
        old.setattr(setting_of, "random_stream", lambda seed, purpose: noise.stream(seed))
        with pytest.raises(StoppedError):
            train(config, OutputOptions(out), Stopping(), dataset=data)
    assert any(RunDirectory(out).checkpoints.iterdir())
    with pytest.raises(InputError) as caught:
        train(config, OutputOptions(out, resume=True), Silent(), dataset=data)
    assert reason in str(caught.value)
    assert "drew the examples of trusted='0.2' differently" in str(caught.value)


def test_a_run_with_trusted_examples_goes_on(tmp_path: Path) -> None:
    config = options(eval_epochs=1, checkpoint_seconds=0.0)
    config = replace(config, method="cce")
    data, out = sorted_by_class(60), tmp_path / "run"
    with pytest.raises(StoppedError):
        train(config, OutputOptions(out), Stopping(), dataset=data)
    train(config, OutputOptions(out, resume=True), Silent(), dataset=data)
    assert RunDirectory(out).is_finished
