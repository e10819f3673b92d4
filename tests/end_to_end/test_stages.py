"""A run of several stages is one run, which says so and can be resumed in any of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from proselflc.cli import app as cli
from proselflc.data.request import Request
from proselflc.errors import InputError
from proselflc.reporting.command import report
from proselflc.run.config import Config, OutputOptions
from proselflc.run.reader import load_run
from proselflc.run.train import train
from proselflc.terminal import Silent
from proselflc.training.recipe import Recipe

CONFIG = Config(
    request=Request(data="digits"),
    noise="symmetric:0.4",
    method="joint_soft",
    model="mlp",
    recipe=Recipe(epochs=8),
    eval_epochs=1,
    checkpoint_seconds=0,
)
NAMES = ["labels and weights"] * 5 + ["weights from scratch"] * 3


class CrashError(Exception):
    pass


class Crashing(Silent):
    """Raises in the middle of an evaluation."""

    def __init__(self, step: int) -> None:
        super().__init__()
        self.at = step

    def point(self, line: Mapping[str, Any]) -> None:
        if line["step"] == self.at:
            raise CrashError


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return train(CONFIG, OutputOptions(tmp_path_factory.mktemp("stages") / "run"), Silent())


@pytest.mark.parametrize(
    ("method", "parameter"),
    [("distillation", "teacher"), ("forward", "transition"), ("masking", "mask")],
)
def test_what_a_method_was_given_is_found_from_anywhere(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, parameter: str
) -> None:
    """Named as seen from one folder, a run goes on in another, and is repeated by its config."""
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    (here / "teacher").symlink_to(whole)
    np.save(here / "transition.npy", np.full((10, 10), 0.05) + 0.5 * np.eye(10))
    np.save(here / "mask.npy", np.ones((10, 10)))
    name = {"teacher": "teacher", "transition": "transition.npy", "mask": "mask.npy"}[parameter]
    parameters = {parameter: name}
    recipe = Recipe(epochs=4, batch_size=400)
    config = replace(CONFIG, method=method, parameters=parameters, recipe=recipe)
    out = tmp_path / "run"
    monkeypatch.chdir(here)
    with pytest.raises(CrashError):
        train(config, OutputOptions(out), Crashing(step=8))
    monkeypatch.chdir(there)
    assert cli.run(["train", "--out", str(out), "--resume", "--quiet"]) == 0
    again = ["--config", str(out / "config.toml"), "--out", str(tmp_path / "again"), "--quiet"]
    assert cli.run(["train", *again]) == 0
    stored = load_run(out).config["method"]
    assert stored[parameter] == str(here / name)  # type: ignore[index]
    weights = [(path / "model.safetensors").read_bytes() for path in (out, tmp_path / "again")]
    assert weights[0] == weights[1]


def history(run: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (run / "history.jsonl").read_text().splitlines()]
    for line in lines:
        del line["seconds"], line["images_per_second"]
    return lines


def test_the_run_says_which_stage_is_when(whole: Path) -> None:
    run = load_run(whole)
    assert run.stages == [
        {
            "name": NAMES[0],
            **{"first_epoch": 0, "epochs": 5, "first_step": 0, "steps": 55},
        },
        {
            "name": NAMES[-1],
            **{"first_epoch": 5, "epochs": 3, "first_step": 55, "steps": 33},
        },
    ]
    lines = history(whole)
    assert [line["stage"] for line in lines] == NAMES
    assert [line["lr"] for line in lines[:5]] == [0.05] * 5
    assert [line["progress"] for line in lines] == [(k + 1) / 8 for k in range(8)]
    assert len(list((whole / "dynamics").glob("epoch-*.npy"))) == 8


def test_the_means_are_of_the_last_stage(whole: Path) -> None:
    p = np.load(whole / "dynamics" / "recent_p.npy").astype(float)
    last = [np.load(whole / "dynamics" / f"epoch-0000{k}.npy") for k in (6, 7)]
    given = load_run(whole).labels.given
    mean = np.mean([rows["p_given"].astype(float) for rows in last], axis=0)
    np.testing.assert_allclose(p[np.arange(len(given)), given], mean, atol=2e-3)


@pytest.mark.parametrize("epoch", [2, 5, 6, 7], ids=["first", "boundary", "second", "later"])
def test_a_run_that_crashes_in_any_stage_goes_on_as_if_it_had_not(
    whole: Path, tmp_path: Path, epoch: int
) -> None:
    out = tmp_path / "run"
    with pytest.raises(CrashError):
        train(CONFIG, OutputOptions(out), Crashing(epoch * 11))
    train(CONFIG, OutputOptions(out, resume=True), Silent())
    assert (out / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    assert history(out) == history(whole)
    for name in ("stages.json", "examples.parquet", "dynamics/recent_target.npy"):
        assert (out / name).read_bytes() == (whole / name).read_bytes()


def test_the_report_marks_the_second_stage(whole: Path) -> None:
    page = Path(report(whole)).read_text(encoding="utf-8")
    assert "weights from scratch →" in page


def test_a_run_in_its_place_that_has_no_stages_has_no_such_file(tmp_path: Path) -> None:
    out = tmp_path / "run"
    short = replace(CONFIG, recipe=Recipe(epochs=2))
    train(short, OutputOptions(out), Silent())
    assert (out / "stages.json").is_file()
    train(replace(short, method="cce"), OutputOptions(out, overwrite=True), Silent())
    assert not (out / "stages.json").exists()
    assert load_run(out).stages == []
    assert {line["stage"] for line in history(out)} == {None}


def test_fewer_epochs_than_stages_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"has 2 stages .* needs an epoch for each, got 1"):
        train(
            replace(CONFIG, recipe=Recipe(epochs=1)),
            OutputOptions(tmp_path / "run"),
            Silent(),
        )
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "text",
    ["[]", "{}", '{"stages": 3}', '{"stages": [{"name": "x"}]}', "{", '{"stages": [{"name": 1}]}'],
)
def test_damaged_stages_are_a_sentence(whole: Path, tmp_path: Path, text: str) -> None:
    out = tmp_path / "run"
    out.mkdir()
    for name in ("config.toml", "summary.json"):
        (out / name).write_bytes((whole / name).read_bytes())
    (out / "stages.json").write_text(text)
    with pytest.raises(InputError, match="damaged"):
        _ = load_run(out).stages
