"""What CONTRIBUTING.md adds can be added as it says: methods, a data source, a figure."""

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
from proselflc.data import opening
from proselflc.data.dataset import Features
from proselflc.data.request import Request
from proselflc.presenting import figures
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
    module = ModuleType("proselflc.methods.patient")
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


def test_the_data_source_of_the_document_can_be_trained(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (source,) = blocks("source")
    moons = ModuleType("proselflc.data.sources.moons")
    exec(compile(source, "moons.py", "exec"), vars(moons))
    (line,) = blocks("dataset")
    known = {**vars(opening), "_open_moons": lambda request: moons.load()}
    for name, named in eval("{" + line + "}", known).items():
        monkeypatch.setitem(opening.DATASETS, name, named)
    data = opening.open_data(Request(data="moons"))
    assert data.test is not None
    assert isinstance(data.test.inputs, Features)
    assert (len(data.train), len(data.test)) == (200, 100)
    run = proselflc.fit(data, epochs=8, batch_size=20, seed=0, out=tmp_path / "run")
    assert (run.predict(data.test.inputs.values).classes == data.test.labels).mean() > 0.75


def test_the_figure_of_the_document_can_be_drawn(fabricate: Any) -> None:
    (source,) = blocks("figure")
    known = dict(vars(figures))
    exec(compile("from __future__ import annotations\n" + source, "figures.py", "exec"), known)
    run = proselflc.load_run(fabricate(n=12))
    drawn = known["flips"](run.examples)
    assert drawn.alt == "12 of 12 examples never changed their class."
    assert drawn.svg.startswith("<svg")


def test_no_block_of_the_document_is_forgotten() -> None:
    kinds = ("catalogue", "trainable", "strategy", "source", "dataset", "figure")
    assert TEXT.count("```python") == sum(len(blocks(kind)) for kind in kinds)
