"""The doctor finds what is missing, too old, dangerous or odd, and says what to do."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from proselflc import __version__
from proselflc.cli import doctor
from proselflc.cli.app import run
from proselflc.training.run_directory import read_toml

ROOT = Path(__file__).parents[2]
REQUIRES = [
    "torch>=2.6",
    "numpy>=1.26",
    'tomli>=2; python_version < "3.0"',
    'optuna>=4.5; extra == "search"',
    'lightning!=2.6.2,!=2.6.3,>=2.5; extra == "lightning"',
    'optuna>=4.5; extra == "all"',
]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes the doctor see these packages, and torch behave like this."""

    def pretend(installed: Mapping[str, str], bf16: int = 0, torch: int = 0) -> None:
        def version(name: str) -> str:
            if name not in installed:
                raise metadata.PackageNotFoundError(name)
            return installed[name]

        def tried(code: str) -> subprocess.CompletedProcess[str]:
            if code == doctor._BF16:
                return subprocess.CompletedProcess([], bf16, "1.0\n", "")
            if code == doctor._DEVICES:
                seen = {"version": "2.6", "threads": 3, "cuda": ["Tesla"], "mps": False}
                return subprocess.CompletedProcess(
                    [], torch, json.dumps(seen), "Traceback\nImportError: no libtorch.so"
                )
            return subprocess.CompletedProcess([], 1, "", "RuntimeError: no nms")

        monkeypatch.setattr(metadata, "version", version)
        monkeypatch.setattr(metadata, "requires", lambda name: REQUIRES)
        monkeypatch.setattr(doctor, "_run_python", tried)

    return pretend


def test_all_is_well(machine: Any, capsys: pytest.CaptureFixture[str]) -> None:
    machine({"torch": "2.13.0+cpu", "numpy": "2.4", "optuna": "5.0"})
    found = doctor.diagnose()
    assert not found.faults
    assert [(one.name, one.extra, one.fits) for one in found.packages if one.wanted] == [
        ("numpy", "", True),
        ("torch", "", True),
        ("lightning", "lightning", False),
        ("optuna", "search", True),
    ]
    assert found.versions["proselflc"] == __version__
    assert run(["doctor"]) == 0
    printed = capsys.readouterr().out
    assert "2 of 2 packages are installed" in printed
    assert "Tesla" in printed
    assert 'pip install "proselflc[lightning]"' in printed
    assert "search      yes" in printed


@pytest.mark.parametrize(
    ("installed", "fault"),
    [
        ({"torch": "2.13"}, 'numpy is not installed: pip install "numpy>=1.26"'),
        (
            {"torch": "2.5.1", "numpy": "2.0"},
            'torch 2.5.1 is not supported: pip install "torch>=2.6"',
        ),
    ],
)
def test_what_is_needed_and_not_there_is_a_fault(
    machine: Any, installed: dict[str, str], fault: str, capsys: pytest.CaptureFixture[str]
) -> None:
    machine(installed)
    assert run(["doctor", "--json"]) == 1
    said = capsys.readouterr()
    assert json.loads(said.out)["faults"] == [fault]
    assert json.loads(said.out)["healthy"] is False
    assert said.err == fault + "\n"


def test_a_torch_that_cannot_be_imported_is_a_fault(machine: Any) -> None:
    machine({"torch": "2.13", "numpy": "2.0"}, torch=1)
    found = doctor.diagnose()
    assert found.devices == {}
    assert len(found.faults) == 1
    assert "ImportError: no libtorch.so" in found.faults[0]
    assert "torch cannot be imported" in doctor.describe(found)


def test_oddities_are_noted_and_are_no_faults(machine: Any) -> None:
    here = {"torch": "2.13", "numpy": "2.0", "torchvision": "0.28", "lightning": "2.6.3"}
    machine(here, bf16=-4)
    found = doctor.diagnose()
    assert not found.faults
    notes = "\n".join(found.notes)
    assert "ONEDNN_MAX_CPU_ISA=AVX512_CORE" in notes
    assert "torchvision is installed but cannot be imported (RuntimeError: no nms)" in notes
    assert "lightning 2.6.3 steals credentials" in notes
    assert "lightning 2.6.3 is not supported" in notes


def test_from_its_source_extras_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    there = {"optuna": "4.5", "timm": "1.0", "starlette": "0.40", "lightning": "2.6.2"}

    def version(name: str) -> str:
        if name not in there:
            raise metadata.PackageNotFoundError(name)
        return there[name]

    def requires(name: str) -> list[str]:
        raise metadata.PackageNotFoundError(name)

    asked = []

    def tried(code: str) -> subprocess.CompletedProcess[str]:
        asked.append(code)
        return subprocess.CompletedProcess([], code == "import timm", "", "")

    monkeypatch.setattr(metadata, "version", version)
    monkeypatch.setattr(metadata, "requires", requires)
    monkeypatch.setattr(doctor, "_run_python", tried)
    found = doctor.Diagnosis({}, doctor.packages(), {}, {})
    lines = {line.split()[0]: line for line in doctor.describe(found).splitlines() if line}
    assert "search      yes  `proselflc search` (optuna 4.5)" in lines["search"]
    assert "timm        no " in lines["timm"]
    assert "timm cannot be imported" in lines["timm"]
    for extra in ("review", "hf"):
        assert f'pip install "proselflc[{extra}]"' in lines[extra]
    assert "runs from a source tree" in lines["required"]
    assert not any("?" in line for line in lines.values())
    assert "import lightning" not in asked  # that version steals credentials


def test_extras_are_those_of_the_project() -> None:
    project: Any = read_toml(ROOT / "pyproject.toml")["project"]
    brought = {
        extra: tuple(re.split("[<>=!]", one)[0] for one in packages)
        for extra, packages in project["optional-dependencies"].items()
        if extra != "all"
    }
    assert brought == {extra: packages for extra, (_, packages) in doctor.EXTRAS.items()}


def test_on_this_machine(program: Any) -> None:
    done = program("doctor", "--json")
    found = json.loads(done.stdout)
    assert found["healthy"] is True
    assert found["devices"]["threads"] >= 1
    assert found["places"]["program"] == str(ROOT / "src" / "proselflc")
