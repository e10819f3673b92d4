"""`proselflc demo`, with fewer epochs than the real one."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from proselflc.cli import learning
from proselflc.cli.app import run as command
from proselflc.run.config import Config


@pytest.fixture
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = learning.demo_config

    def short(method: str, seed: int) -> Config:
        config = whole(method, seed)
        return replace(config, recipe=replace(config.recipe, epochs=2))

    monkeypatch.setattr(learning, "demo_config", short)


@pytest.mark.usefixtures("_short")
def test_the_demo_ends_with_a_table_and_what_to_do_next(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):  # twice: an earlier demo is replaced
        assert command(["demo", "--out", str(tmp_path), "--seeds", "2"]) == 0
    out, err = capsys.readouterr()
    for title in ("Cross entropy", "Label smoothing", "Confidence penalty", "Boot-soft"):
        assert out.count(title) == 2
    assert "40% of the training labels wrong, 2 seeds, mean ± std" in out
    assert f"proselflc audit {tmp_path}" in out
    assert f"Open in a browser: {tmp_path / 'report.html'}\n" in out
    page = (tmp_path / "report.html").read_text()
    assert all(f"{method}-0" in page for method in learning.COMPARED)
    assert err.count("seed 1  ProSelfLC") == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        ["report.html", *(f"{method}-{seed}" for method in learning.COMPARED for seed in (0, 1))]
    )


@pytest.mark.usefixtures("_short")
def test_the_numbers_are_those_of_the_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(["demo", "--out", str(tmp_path), "--seeds", "1", "--quiet", "--json"]) == 0
    out, err = capsys.readouterr()
    result = json.loads(out)
    assert err == ""
    assert len(result["runs"]) == len(learning.COMPARED)
    for run in result["runs"]:
        summary = json.loads((Path(run["run"]) / "summary.json").read_text())
        assert {**summary, "run": run["run"]} == run
    (ours,) = (run for run in result["runs"] if run["method"] == "proselflc")
    assert result["best"] == ours["run"]


def test_mean_and_deviation_of_a_known_case() -> None:
    runs = tuple(
        {"method": method, "label_accuracy_before": 0.6, **dict.fromkeys(learning.MEASURES, value)}
        for method in learning.COMPARED
        for value in (0.1, 0.3)
    )
    text = learning.describe_demo(runs, Path("report.html"), "run")
    (line,) = (line for line in text.splitlines() if line.startswith("Cross entropy"))
    assert line.split()[2:] == [*["20.0%", "±", "14.1%"]] * 3  # the deviation is 0.02 ** 0.5


def test_no_seeds_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["demo", "--seeds", "0"]) == 2
    assert capsys.readouterr().err == "--seeds must be at least 1, got 0\n"
