"""What a reproduction would take: operations, hours, disk space, commands for several GPUs."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

from proselflc.cli import app as cli
from proselflc.cli import learning
from proselflc.paper import cost
from proselflc.paper.command import Reproduction, find_artefact
from proselflc.paper.cost import GPUS, Speed, step_operations, steps
from proselflc.paper.plan import SCALES
from proselflc.wording import on_command_line

PAPER = SCALES["paper"]


def test_operations_are_those_of_the_published_networks() -> None:
    """He et al. 2016 give 3.8e9 multiply-adds for ResNet-50, today's variant has 4.1e9."""
    imagenet = PAPER.config("imagenet", "cce", {}, seed=0)
    assert step_operations(imagenet) == pytest.approx(3 * 2 * 4.1e9 * 64, rel=0.02)
    cifar = PAPER.config("cifar100", "cce", {}, seed=0)
    assert step_operations(cifar) == pytest.approx(3 * 2 * 0.097e9 * 256, rel=0.03)


def test_hours_are_steps_by_speed() -> None:
    config = PAPER.config("cifar100", "cce", {}, seed=0)
    assert steps(config) == 30_000
    assert Speed("V100", 20.0).seconds(config) == 1500.0
    found = Speed("V100").seconds(config)
    assert found == pytest.approx(30_000 * step_operations(config) / (0.25 * 15.7e12))
    assert Speed("H100").seconds(config) < Speed("A100").seconds(config) < found
    by_epochs = SCALES["cpu"].config("cifar100", "cce", {}, seed=0, trusted=0.2)
    assert steps(by_epochs) == 40 * 32  # 4,000 examples in batches of 128


def test_disk_space_is_that_of_the_runs_in_training() -> None:
    configs = [PAPER.config("cifar100", "cce", {}, seed=k) for k in range(4)]
    one, two = (cost.disk_space(configs, k, keep_runs=False) for k in (1, 2))
    kept = cost.disk_space(configs, 1, keep_runs=True)
    assert one < two < kept
    assert kept - 4 * 50_000 == pytest.approx(4 * (two - one), abs=4)


def test_the_gpus_of_the_option_are_those_with_a_data_sheet() -> None:
    hints = get_type_hints(learning.reproduce)
    assert get_args(hints["gpu"]) == tuple(GPUS)


def test_a_dry_run_at_paper_scale_says_hours_disk_and_commands(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "my results"
    arguments = ["reproduce", "table4", "--scale", "paper", "--dry-run", "--out", str(out)]
    assert cli.run([*arguments, "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert "of one V100 (an estimate, not a measurement" in plan["estimate"]
    assert plan["disk_bytes"] > 10**6
    several, array = plan["commands"].values()
    assert "CUDA_VISIBLE_DEVICES=$gpu proselflc reproduce table4 --scale paper" in several
    wrapped = shlex.split(array)[shlex.split(array).index("--wrap") + 1]
    words = shlex.split(wrapped)
    assert words[:2] == ["exec", "proselflc"]
    assert words[2:] == ["reproduce", "table4", "--scale", "paper", "--out", str(out)]
    measured = [*arguments, "--seeds", "0,1", "--steps-per-second", "20", "--json"]
    assert cli.run(measured) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["hours"] == pytest.approx(len(plan["runs"]) * 1500 / 3600)
    assert "at 20 steps per second" in plan["estimate"]
    assert "--seeds 0,1" in next(iter(plan["commands"].values()))
    assert cli.run([*arguments, "--steps-per-second", "0"]) == 2
    assert "--steps-per-second must be above 0" in capsys.readouterr().err
    assert not out.exists()


def test_the_command_has_every_option_that_the_runs_depend_on(tmp_path: Path) -> None:
    one = Reproduction(find_artefact("table6"), PAPER, (0,), tmp_path, tmp_path, True, tmp_path)
    with on_command_line():
        words = one.arguments
        assert "--seeds" not in replace(one, quoted=3).arguments
    for name in ("--out", "--data-root", "--weights"):
        assert words[words.index(name) + 1] == str(tmp_path)
    assert words[words.index("--seeds") + 1] == "0"
    assert words[-1] == "--keep-runs"
