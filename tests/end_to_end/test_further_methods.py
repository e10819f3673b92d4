"""Methods with a memory, a mixture or a way back: whole runs, which go on after a stop."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

import proselflc
from proselflc.data.request import Request
from proselflc.errors import InputError
from proselflc.run.config import Config, OutputOptions
from proselflc.run.reader import Run, load_run
from proselflc.run.train import train
from proselflc.terminal import Silent
from proselflc.training.recipe import Recipe

EPOCHS = 8
# Parameters with which everything that a method does happens within few epochs.
EAGER = {
    "gce_truncated": {"begin": 0.5, "k": 0.3},
    "d2l": {"begin": 0.0, "window": 2},
    "m_dyr_s": {"begin": 0.3},
    "m_dyr_h": {"begin": 0.3},
    "md_dyr_sh": {"begin": 0.3},
    "elr": {"momentum": 0.8},
    "sat": {"begin": 0.25, "momentum": 0.6},
}
NAMES = tuple(EAGER)


class CrashError(Exception):
    pass


class Crashing(Silent):
    """Raises in the middle of an evaluation."""

    def __init__(self, epoch: int) -> None:
        super().__init__()
        self.at = epoch

    def point(self, line: Mapping[str, Any]) -> None:
        if line["epoch"] == self.at:
            raise CrashError


def config(name: str) -> Config:
    return Config(
        request=Request(data="digits"),
        noise="symmetric:0.4",
        method=name,
        parameters=EAGER[name],
        model="mlp",
        recipe=Recipe(epochs=EPOCHS, lr=0.1),
        eval_epochs=1,
        checkpoint_seconds=0,
    )


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A run of every method that was not disturbed, made when it is asked for."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("methods")

    class Made(dict[str, Path]):
        def __missing__(self, name: str) -> Path:
            self[name] = train(config(name), OutputOptions(folder / name), Silent())
            return self[name]

    return Made()


def history(run: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (run / "history.jsonl").read_text().splitlines()]
    for line in lines:
        del line["seconds"], line["images_per_second"]
    return lines


@pytest.mark.parametrize("name", NAMES)
def test_a_run_is_recorded_audited_and_summed_up(runs: dict[str, Path], name: str) -> None:
    run: Run = load_run(runs[name])
    summary = run.summary
    assert summary["method"] == name
    assert cast("float", summary["test_accuracy"]) > 0.5
    assert len(list(run.dynamics)) == EPOCHS
    for rows in run.dynamics:
        assert (rows["predicted"] < 10).all()
        assert np.isfinite(rows["p_given"]).all()
        assert (rows["semantic"] < 10).all()
        assert ((rows["trust"] >= 0) & (rows["trust"] <= 1)).all()
    targets = run.recent("target").astype(float)
    np.testing.assert_allclose(targets.sum(1), 1, atol=5e-3)
    assert run.examples.num_rows == 1297
    detection = cast("dict[str, float]", summary["detection"])
    assert detection["auroc"] > 0.8
    assert (runs[name] / "audit.json").is_file()
    assert {"estimated_noise_rate", "label_accuracy_after"} <= summary.keys()


def test_the_summary_says_what_a_method_has_done(runs: dict[str, Path]) -> None:
    facts = {name: load_run(runs[name]).summary for name in NAMES}
    left_out = cast("int", facts["gce_truncated"]["labels_left_out"])
    assert 0 < left_out < 1297
    turned = facts["d2l"]["turned_at_epoch"]
    notes = facts["d2l"].get("notes")
    assert turned is not None
    assert str(notes).count(f"after epoch {cast('int', turned) + 1} the dimension") == 1
    for name in ("m_dyr_s", "m_dyr_h", "md_dyr_sh"):
        assert facts[name]["epochs_without_two_kinds_of_losses"] == 0


@pytest.mark.parametrize("name", ["d2l", "m_dyr_s", "md_dyr_sh", "sat", "elr"])
def test_targets_leave_the_labels(runs: dict[str, Path], name: str) -> None:
    """What such a method would teach in the end is not the given label everywhere."""
    run = load_run(runs[name])
    last = list(run.dynamics)[-1]
    moved = (last["semantic"] != run.labels.given).mean()
    assert 0.02 < moved < 0.9


@pytest.mark.parametrize(
    ("name", "epoch"),
    [
        ("gce_truncated", 5),
        ("d2l", 2),
        ("d2l", 7),
        ("m_dyr_s", 4),
        ("m_dyr_h", 4),
        ("md_dyr_sh", 5),
        ("elr", 4),
        ("sat", 5),
    ],
)
def test_a_run_that_crashes_goes_on_as_if_it_had_not(
    runs: dict[str, Path], tmp_path: Path, name: str, epoch: int
) -> None:
    out = tmp_path / "run"
    with pytest.raises(CrashError):
        train(config(name), OutputOptions(out), Crashing(epoch))
    train(config(name), OutputOptions(out, resume=True), Silent())
    whole = runs[name]
    for file in ("model.safetensors", "examples.parquet", "dynamics/recent_target.npy"):
        assert (out / file).read_bytes() == (whole / file).read_bytes()
    assert history(out) == history(whole)
    ours, theirs = (load_run(path).summary for path in (out, whole))
    assert {**ours, "seconds": 0} == {**theirs, "seconds": 0}


@pytest.mark.parametrize("name", NAMES)
def test_it_trains_from_python_in_parts_with_an_average(name: str) -> None:
    digits = load_digits()
    x, y = digits.data.astype(np.float32)[:300], digits.target[:300]
    run = proselflc.fit(
        x,
        y,
        method=name,
        parameters=EAGER[name],
        noise="symmetric:0.2",
        model="mlp",
        epochs=4,
        batch_size=50,
        accumulate=2,
        ema=0.9,
    )
    assert run.examples.num_rows == 300
    assert run.predict(x[:5]).probabilities.shape == (5, 10)


@pytest.mark.parametrize(
    ("name", "parameters", "reason"),
    [
        ("gce_truncated", {"q": 2.0}, "q must be a number above 0 and at most 1, got 2.0"),
        ("gce_truncated", {"k": -1.0}, "k must be a number between 0 and 1, got -1.0"),
        ("gce_truncated", {"alpha": 1.0}, 'has no parameters["alpha"]: it takes parameters["q"], '),
        ("d2l", {"window": 1}, "window must be a whole number ≥ 2, got 1"),
        ("m_dyr_s", {"alpha": 0.0}, "alpha must be a number above 0 and finite, got 0.0"),
        ("m_dyr_h", {"weight": -2.0}, "weight must be a number ≥ 0 and finite, got -2.0"),
        ("md_dyr_sh", {"begin": 7.0}, "begin must be a number between 0 and 1, got 7.0"),
        ("elr", {"momentum": 1.0}, "momentum must be a number at least 0 and below 1, got 1.0"),
        ("elr", {"weight": float("nan")}, "weight must be a number ≥ 0 and finite, got nan"),
        ("sat", {"begin": -0.1}, "begin must be a number between 0 and 1, got -0.1"),
    ],
)
def test_bad_parameters_are_one_sentence(
    tmp_path: Path, name: str, parameters: dict[str, Any], reason: str
) -> None:
    bad = replace(config(name), parameters=parameters)
    with pytest.raises(InputError) as caught:
        train(bad, OutputOptions(tmp_path / "run"), Silent())
    assert reason in str(caught.value)
    assert f"method {name}" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["m_dyr_s", "m_dyr_h", "md_dyr_sh"])
def test_texts_cannot_be_mixed(name: str) -> None:
    texts = ["good fine nice", "bad awful poor"] * 20
    with pytest.raises(InputError, match="texts cannot be mixed"):
        proselflc.fit(texts, ["plus", "minus"] * 20, method=name, epochs=2)


def test_too_few_examples_for_a_dimension() -> None:
    x = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
    with pytest.raises(InputError, match="only 20 examples"):
        proselflc.fit(x, np.arange(20) % 2, method="d2l", epochs=2)
