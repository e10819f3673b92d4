"""Imports only go down the floors, and the criteria stand on torch alone."""

import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))

from house import FLOORS, SOURCE, arrows, drawn, imported, level, modules

DRAWING = Path(__file__).parents[1] / "docs" / "images" / "house.svg"
MOST_FILES = 20  # side by side in one folder
CATALOGUE = "methods"  # where a method is a file, so that their number is no sign of disorder


def test_imports_only_go_down() -> None:
    checked = 0
    for folder, path in modules():
        assert any(folder in floor for floor in FLOORS), f"{path} is on no floor"
        wrong = {one for one in imported(path) - {folder} if level(one) >= level(folder)}
        assert not wrong, f"{path.relative_to(SOURCE)} imports up or across: {sorted(wrong)}"
        checked += 1
    assert checked > 100


def test_the_drawing_is_of_the_imports_as_they_are() -> None:
    assert DRAWING.read_text(encoding="utf-8") == drawn(arrows()), (
        "draw it again: python tools/house.py docs/images/house.svg"
    )


def test_imports_that_go_up_or_across_are_found(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text("from proselflc.cli import app\nimport proselflc.data.noise as noise\n")
    assert imported(module) == {"cli", "data"}
    module.write_text("from . import app\n")
    with pytest.raises(ValueError, match="written out in full"):
        imported(module)


def test_no_folder_holds_too_many_files_side_by_side() -> None:
    folders = {path.parent for _, path in modules()}
    counts = {str(one.relative_to(SOURCE)): len(list(one.glob("*.py"))) for one in folders}
    del counts[CATALOGUE]
    assert {name: count for name, count in counts.items() if count > MOST_FILES} == {}


def test_criteria_need_torch_alone() -> None:
    """In a Python where nothing but the standard library and torch's own needs can be imported."""
    program = """
import sys
import torch
before = set(sys.modules)
class Refuse:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top not in sys.stdlib_module_names and top not in ("torch", "proselflc"):
            raise ImportError(f"proselflc asked for {name}")
sys.meta_path.insert(0, Refuse())
from proselflc import ProSelfLC, functional
loss = ProSelfLC(10)(torch.zeros(2, 3), torch.tensor([0, 1]))
assert round(loss.item(), 4) == 1.0986, loss
for name in sorted(set(sys.modules) - before):
    top = name.partition(".")[0]
    assert top in sys.stdlib_module_names or top in ("torch", "proselflc"), name
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_importing_the_package_loads_nothing_heavy() -> None:
    program = "import sys, proselflc; print('torch' in sys.modules or 'numpy' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"


def test_public_names_are_there_and_unknown_ones_are_not() -> None:
    import proselflc

    for name in proselflc.__all__:
        assert getattr(proselflc, name) is not None
        assert name in dir(proselflc)
    assert not hasattr(proselflc, "ProSelfCL")
