"""Imports only go down the floors, and the criteria stand on torch alone."""

import ast
import subprocess
import sys
from pathlib import Path

SRC = Path(__file__).parents[1] / "src" / "proselflc"

BELOW = {
    "errors": set(),
    "options": {"errors"},
    "regular_files": {"errors"},
    "correction": {"errors"},
    "models": {"errors", "regular_files"},
    "data": {"errors", "options", "regular_files"},
    "training": {"data", "models", "correction", "errors", "options", "regular_files"},
    "methods": {"training", "data", "models", "correction", "errors"},
    "analysis": {"training", "data", "models", "correction", "errors", "regular_files"},
    "presenting": {
        "methods",
        "analysis",
        "training",
        "data",
        "models",
        "correction",
        "errors",
        "regular_files",
    },
    "app": {
        "presenting",
        "methods",
        "analysis",
        "training",
        "data",
        "models",
        "correction",
        "errors",
        "options",
        "regular_files",
    },
    "integrations": {
        "app",
        "methods",
        "analysis",
        "training",
        "data",
        "models",
        "correction",
        "errors",
    },
    "functional": {"correction", "errors"},
}


def floors_imported(file: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: imports are written out in full"
            module = node.module or ""
            names = [module] + [f"{module}.{alias.name}" for alias in node.names]
        for name in names:
            parts = name.split(".")
            if parts[0] == "proselflc" and len(parts) > 1 and parts[1] in BELOW:
                found.add(parts[1])
    return found


def test_imports_only_go_down() -> None:
    checked = 0
    for file in SRC.rglob("*.py"):
        floor = file.relative_to(SRC).parts[0].removesuffix(".py")
        if floor in ("__init__", "__main__"):
            continue
        assert floor in BELOW, f"{file} is on no floor"
        wrong = floors_imported(file) - BELOW[floor] - {floor}
        assert not wrong, f"{file.relative_to(SRC)} imports up or across: {sorted(wrong)}"
        checked += 1
    assert checked > 10


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
