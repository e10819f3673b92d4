"""Numbers that are extreme and finite are refused in a sentence, or end as a divergence."""

from __future__ import annotations

from pathlib import Path

import pytest

from proselflc.cli.app import run


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("extreme") / "table.csv"
    rows = [f"{k % 3 + k / 50},{k % 5},{'abc'[k % 3]}" for k in range(24)]
    path.write_text("\n".join(["u,v,label", *rows]) + "\n")
    return path


HUGE = str(10**400)  # more than a float can hold
DIVERGED = "the loss of step 2 is"


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        ("--lr 1e308", 2, "--lr must be at most 1e+30, got 1e+308"),
        ("--weight-decay 1e308", 2, "--weight-decay must be at most 1e+30, got 1e+308"),
        ("--clip 1e308", 2, "--clip must be at most 1e+30, got 1e+308"),
        ("--lr 1e30 --optimizer sgd", 1, DIVERGED),
        ("--lr 1e30 --optimizer adamw", 1, DIVERGED),
        ("--weight-decay 1e30 --optimizer sgd", 1, DIVERGED),
        ("--lr 1e20 --weight-decay 1e25 --optimizer adamw", 2, "must be at most 1e+30, got 1e+20"),
        (f"--warmup {HUGE}", 2, "--warmup must be below 2^63"),
        (f"--epochs {HUGE}", 2, "--epochs must be below 2^63"),
        (f"--steps {HUGE}", 2, "--steps must be below 2^63"),
        ("--epochs 1000000000000000000", 2, "the run needs about"),
        (f"--batch-size {10**30}", 2, "--batch-size must be below 2^63"),
        (f"--seed {2**63}", 2, "--seed must be below 2^63"),
        ("--image-size 100000", 2, "--image-size must be at most 16,384, got 100000"),
        ("--workers 100000", 2, "--workers must be at most 1,024, got 100000"),
        ("--momentum 1e308", 2, "--momentum must be at least 0 and below 1"),
        ("--method.sharpness 1e308", 0, ""),
        ("--method m_dyr_s --method.alpha 5e-324", 0, ""),
        ("--method m_dyr_s --method.alpha 1e308", 0, ""),
        (
            "--method tf_kd_self --method.temperature 1e308",
            2,
            "temperature must be a number above 0 and finite, got 1e+308",
        ),
    ],
)
def test_an_extreme_number_leaves_no_traceback(
    table: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    options: str,
    code: int,
    words: str,
) -> None:
    length = () if "--epochs" in options or "--steps" in options else ("--epochs", "2")
    batch = () if "--batch-size" in options else ("--batch-size", "8")
    common = (
        "train",
        "--data",
        str(table),
        "--model",
        "mlp",
        "--quiet",
        "--out",
        str(tmp_path / "o"),
    )
    assert run([*common, *length, *batch, *options.split()]) == code
    lines = capsys.readouterr().err.splitlines()
    said = [line for line in lines if not line.startswith(("note: ", "Caution: "))]
    assert len(said) == (code != 0)
    assert words in "".join(said)


def test_a_search_does_not_start_processes_without_end(
    table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "o")
    assert run(["search", "--data", str(table), "--jobs", "100000", "--out", out]) == 2
    assert capsys.readouterr().err == "--jobs must be at most 1,024, got 100000\n"
    assert run(["predict", out, "--data", str(table), "--workers", "-1"]) == 2
    assert capsys.readouterr().err == "--workers must be from 0 to 1,024, got -1\n"
