"""Every program in examples/ runs and finds what it says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
sys.path.insert(0, str(EXAMPLES))

import audit_a_folder  # noqa: E402
import messy_table  # noqa: E402
import own_loop  # noqa: E402
import table_with_wrong_labels  # noqa: E402
import text_from_tsv  # noqa: E402

# huggingface_text.py has a test beside that of what it shows.
TESTED = {"own_loop", "audit_a_folder", "table_with_wrong_labels", "text_from_tsv", "ddp"}
TESTED |= {"huggingface_text", "messy_table"}


def test_no_example_is_forgotten() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} <= TESTED


def shares(printed: str) -> list[float]:
    """Every percentage that was printed."""
    return [float(one) / 100 for one in re.findall(r"([\d.]+)%", printed)]


def test_own_loop(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """What its numbers are at full length, tests/test_detached.py says."""
    monkeypatch.setattr(own_loop, "SEEDS", (0, 1))
    monkeypatch.setattr(own_loop, "EPOCHS", 3)
    own_loop.main()
    rows = capsys.readouterr().out.splitlines()[3:]
    assert [row.split("  ")[0] for row in rows] == [
        "cross entropy",
        "ProSelfLC",
        "ProSelfLC, p detached",
    ]
    assert all(0.3 < shares(row)[0] < 0.95 for row in rows)


def test_audit_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    audit_a_folder.main(tmp_path)
    printed = capsys.readouterr().out
    found = re.search(r"(\d+) of \d+ pictures.*\n(\d+) are suspects, (\d+) of them", printed)
    assert found is not None
    misplaced, suspects, rightly = map(int, found.groups())
    assert misplaced == 50
    assert rightly / suspects > 0.8
    assert rightly / misplaced > 0.7
    assert (tmp_path / "run" / "report.html").stat().st_size > 100_000  # with pictures


@pytest.mark.parametrize("example", [table_with_wrong_labels, messy_table, text_from_tsv])
def test_tables(
    example: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    example.main(tmp_path)
    lines = capsys.readouterr().out.splitlines()
    (before,) = (shares(line)[0] for line in lines if "before" in line)
    (after,) = (shares(line)[0] for line in lines if "after" in line)
    assert before < 0.9
    assert after > 0.95
    if example is messy_table:  # as its page says
        page = (EXAMPLES.parent / "docs" / "howto" / "table.md").read_text(encoding="utf-8")
        assert f"{before:.1%} are right before and {after:.1%}".replace("%", " %") in page
    if example is text_from_tsv:
        assert lines[-1].endswith("lafiya")


def test_ddp() -> None:
    command = [
        *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
        *("--nproc-per-node", "2", str(EXAMPLES / "ddp.py")),
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    for _ in range(2):  # a thread of gloo's now and then aborts a process that has done its work
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if "terminate called without an active exception" not in done.stderr:
            break
    assert done.returncode == 0, done.stderr
    assert "2 processes, clocks at [420, 420] of 420" in done.stdout
    assert shares(done.stdout)[0] > 0.7
