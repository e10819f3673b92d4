"""What CONTRIBUTING.md adds can be added as it says: methods, a data source, a figure."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

import proselflc
from proselflc import methods
from proselflc.cli import app as cli
from proselflc.data import opening
from proselflc.data.dataset import Features
from proselflc.data.request import Request
from proselflc.errors import InputError
from proselflc.reporting import figures
from proselflc.run.config import Config
from proselflc.searching import search_space
from proselflc.training.recipe import Recipe

TEXT = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^<!-- {kind} -->\n```python\n(.*?)^```", TEXT, re.M | re.S)


@pytest.fixture
def added(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[set[str]]:
    """Add every method's file of the document to the package, and nothing else."""
    folder = tmp_path / "methods"
    folder.mkdir()
    found = re.findall(r"^<!-- method (\w+) -->\n```python\n(.*?)^```", TEXT, re.M | re.S)
    for name, source in found:
        (folder / f"{name}.py").write_text(source, encoding="utf-8")
    monkeypatch.setattr(methods, "__path__", [*methods.__path__, str(folder)])
    yield {name for name, _ in found}
    for name, _ in found:
        sys.modules.pop(f"proselflc.methods.{name}", None)


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


def test_a_file_is_all_that_a_method_needs(added: set[str], capsys: Any) -> None:
    """It is listed, shown in full, offered as options, searched and refused where it must be."""
    assert added <= set(methods.names())
    for name in sorted(added):
        assert cli.run(["methods"]) == 0
        assert re.search(rf"^{name} .*bootstrapping$", capsys.readouterr().out, re.M)
        assert cli.run(["methods", name]) == 0
        assert "--method.epsilon  0." in capsys.readouterr().out
        assert cli.run(["train", "--method", name, "--help"]) == 0
        shown = " ".join(capsys.readouterr().out.replace("│", " ").split())
        assert "--method.epsilon FLOAT ε, how much the pred" in shown
        assert cli.run(["train", "--method", name, "--method.q", "0.5"]) == 2
        assert capsys.readouterr().err == (
            f"method {name} has no --method.q: it takes --method.epsilon\n"
        )
        with pytest.raises(InputError, match=f"method {name}: epsilon must be a number between"):
            methods.resolved(name, {"epsilon": 2.0})
        searched = search_space.read((), (name,), Config(), Config(recipe=Recipe(lr=0.1)))
        assert len(searched.methods[name]["epsilon"].corners()) == 2
        assert len([one for one in TEXT.splitlines() if f"<!-- method {name} -->" in one]) == 1


def test_the_examples_are_in_the_style_of_the_house() -> None:
    for source in blocks(r"method \w+"):
        assert max(map(len, source.splitlines())) <= 100


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
    kinds = (r"method \w+", "source", "dataset", "figure")
    assert TEXT.count("```python") == sum(len(blocks(kind)) for kind in kinds)
