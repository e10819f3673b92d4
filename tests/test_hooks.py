"""The hook that `make hooks` installs lets good changes through and no others."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
GOOD = "def double(x: int) -> int:\n    return 2 * x\n"


def git(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    who = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "core.hooksPath=.git/hooks")
    return subprocess.run(
        ["git", *who, *words], cwd=folder, capture_output=True, text=True, check=False
    )


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A small repository with the hook."""
    if shutil.which("git") is None:
        pytest.skip("there is no git here")
    (tmp_path / "tools").mkdir()
    (tmp_path / "src").mkdir()
    shutil.copy(ROOT / "tools" / "install_hook.py", tmp_path / "tools")
    (tmp_path / "pyproject.toml").write_text('[tool.mypy]\nstrict = true\nfiles = ["src"]\n')
    assert git(tmp_path, "init", "--quiet").returncode == 0
    git(tmp_path, "add", "pyproject.toml")
    install(tmp_path)
    return tmp_path


def install(folder: Path, code: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "tools/install_hook.py"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr


def commit(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    (folder / "src" / "double.py").write_text(text)
    git(folder, "add", "src")
    return git(folder, "commit", "--quiet", "-m", "try")


def test_only_what_is_clean_can_be_committed(clone: Path) -> None:
    unused, untidy = "import os\n\n\n" + GOOD, GOOD.replace("2 * x", "2*x")
    wrong = GOOD.replace("2 * x", "str(x)")
    for text, reason in ((unused, "F401"), (untidy, ""), (wrong, "return-value")):
        done = commit(clone, text)
        assert done.returncode != 0
        assert reason in done.stdout + done.stderr
    done = commit(clone, GOOD)
    assert done.returncode == 0, done.stderr
    # What is not staged does not count.
    (clone / "src" / "double.py").write_text("import os\n")
    (clone / "notes.md").write_text("a note\n")
    git(clone, "add", "notes.md")
    assert git(clone, "commit", "--quiet", "-m", "note").returncode == 0


def test_a_hook_of_somebody_else_is_left_alone(clone: Path) -> None:
    hook = clone / ".git" / "hooks" / "pre-commit"
    install(clone)  # ours may be replaced by ours
    hook.write_text("#!/bin/sh\n")
    assert "not ours" in install(clone, code=1)
    assert hook.read_text() == "#!/bin/sh\n"
