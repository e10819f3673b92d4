"""Every example in the documents runs, and what programs make in them is up to date."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tools"))

import fill_documents  # noqa: E402

DOCUMENTS = {str(path.relative_to(ROOT)): path for path in fill_documents.DOCUMENTS}
BLOCKS = [
    pytest.param(block, id=f"{name}:{number}")
    for name, path in DOCUMENTS.items()
    for number, block in enumerate(
        re.findall(r"^```python\n(.*?)^```", path.read_text(encoding="utf-8"), re.M | re.S)
    )
]


@pytest.mark.parametrize("code", BLOCKS)
def test_an_example_runs_as_written(code: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


COMMANDS = [
    pytest.param(block, id=f"{name}:{number}")
    for name, path in DOCUMENTS.items()
    for number, block in enumerate(
        re.findall(r"^```sh\n(.*?)^```", path.read_text(encoding="utf-8"), re.M | re.S)
    )
]


@pytest.mark.parametrize("commands", COMMANDS)
def test_commands_run_as_written(commands: str, tmp_path: Path) -> None:
    here = str(Path(sys.executable).parent)
    done = subprocess.run(
        ["sh", "-e", "-c", commands],
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{here}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_there_are_examples() -> None:
    assert len(BLOCKS) >= 6
    assert len(COMMANDS) >= 2


@pytest.mark.parametrize("name", DOCUMENTS)
def test_what_programs_make_is_up_to_date(name: str) -> None:
    text = DOCUMENTS[name].read_text(encoding="utf-8")
    assert fill_documents.filled(text) == text, f"{name} is not: run `make docs`"


@pytest.mark.parametrize("name", DOCUMENTS)
def test_links_lead_somewhere(name: str) -> None:
    text = DOCUMENTS[name].read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^)#]+)\)", text):
        if "://" not in link:
            assert (DOCUMENTS[name].parent / link).exists(), f"{name} links to {link}"


def test_nothing_names_this_machine() -> None:
    files = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.split()
    if not files:
        pytest.skip("not a git checkout, so there is no list of files to look at")
    for name in files:
        path = ROOT / name
        if path.suffix in (".py", ".md", ".toml", ".txt", ".json", ".cff") and path.exists():
            text = path.read_text(encoding="utf-8")
            for machine in ("/ro" + "ot/", "/wo" + "rk/", "/ho" + "me/"):
                assert machine not in text, f"{name} names a path of somebody's machine"
