"""The methods that CONTRIBUTING.md adds can be added as it says."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

import proselflc
from proselflc.correction import catalogue
from proselflc.training import methods

TEXT = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^<!-- {kind} -->\n```python\n(.*?)^```", TEXT, re.M | re.S)


@pytest.fixture
def added(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Do what the document says, and undo it afterwards."""
    names: set[str] = set()
    for kind, module, table in (
        ("catalogue", catalogue, catalogue.METHODS),
        ("trainable", methods, methods.TRAINABLE),
    ):
        lines: dict[str, Any] = {}
        for block in blocks(kind):
            lines |= eval("{" + block + "}", dict(vars(module)))
        for name, line in lines.items():
            assert name not in table
            monkeypatch.setitem(table, name, line)
        names |= set(lines)
    (source,) = blocks("strategy")
    module = ModuleType("proselflc.training.strategies.patient")
    exec(compile(source, "patient.py", "exec"), vars(module))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return names


def data() -> tuple[Any, Any, Any]:
    """Two clouds, a tenth of whose labels are wrong."""
    generator = np.random.default_rng(0)
    truth = np.arange(100) % 2
    given = np.where(np.arange(100) % 10 == 9, 1 - truth, truth)
    x = generator.normal(size=(100, 2)) + 6 * truth[:, None]
    return x.astype(np.float32), given, truth


def test_the_methods_of_the_document_can_be_trained(added: set[str], tmp_path: Path) -> None:
    assert added == {"hesitant", "patient"}
    x, given, truth = data()
    for name in sorted(added):
        torch.manual_seed(0)
        run = proselflc.fit(
            x, given, method=name, epochs=6, batch_size=20, seed=0, out=tmp_path / name
        )
        assert (run.predict(x).classes == truth).mean() > 0.9
        assert run.summary["method"] == name
        stages = ["believing", "doubting"] if name == "patient" else []
        assert [stage["name"] for stage in run.stages] == stages


def test_parameters_of_the_methods_of_the_document(added: set[str]) -> None:
    for name in added:
        with pytest.raises(proselflc.errors.InputError, match=r"it takes --method\.epsilon"):
            methods.resolved(name, methods.Parameters(q=0.5))


def test_the_example_is_in_the_style_of_the_house() -> None:
    (source,) = blocks("strategy")
    assert max(map(len, source.splitlines())) <= 100
    assert "make(p: Mapping[str, Any], situation: Situation) -> Strategy" in source
