"""The shell completes commands and options."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from proselflc.cli.app import app, run


@pytest.fixture(scope="module")
def script(program: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("completion") / "proselflc"
    path.write_text(program("completion").stdout, encoding="utf-8")
    return path


def completed(script: Path, *words: str) -> set[str]:
    """What bash offers for the last word."""
    if shutil.which("bash") is None:
        pytest.skip("there is no bash here")
    line = " ".join(f"'{word}'" for word in words)
    done = subprocess.run(
        [
            *("bash", "--norc", "-c"),
            f"source '{script}'; COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; "
            "complete -p proselflc >/dev/null || exit; _proselflc; "
            "printf '%s\\n' \"${COMPREPLY[@]}\"",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return {word.strip() for word in done.stdout.split()}


def test_commands(script: Path) -> None:
    wanted = {name for name in app if not name.startswith("-")}
    assert wanted <= completed(script, "proselflc", "")
    assert completed(script, "proselflc", "re") == {"report", "reproduce", "review"}


def test_options(script: Path) -> None:
    assert "--label-column" in completed(script, "proselflc", "train", "--la")
    assert completed(script, "proselflc", "export", "run", "--min") == {"--min-confidence"}
    assert "--pred-probs" in completed(script, "proselflc", "audit", "--pred")
    assert not completed(script, "proselflc", "report", "--label-col")


def test_values(script: Path) -> None:
    assert completed(script, "proselflc", "train", "--optimizer", "") == {"sgd", "adamw"}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_is_told_of_every_command(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["completion", shell]) == 0
    printed = capsys.readouterr().out
    for name in ("doctor", "train", "reproduce"):
        assert name in printed


def test_an_unknown_shell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", "tcsh"]) == 2
    assert "tcsh" in capsys.readouterr().err
