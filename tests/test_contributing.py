"""The recipes of CONTRIBUTING.md work and touch as few files as it says."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "proselflc"
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
RECIPES = dict(
    re.findall(r"^<!-- recipe: (.*?) -->\n(.*?)(?=^#|^<!-- recipe|\Z)", TEXT, re.M | re.S)
)
BLOCK = re.compile(
    r"^(?:New file `(?P<new>\S+)`|"
    r"In `(?P<path>\S+)`, (?P<how>before|after|instead of) `(?P<line>[^\n]*)`)"
    r":\n\n```\w+\n(?P<code>.*?)^```",
    re.M | re.S,
)


def apply(recipe: str, tree: Path) -> None:
    """Apply a recipe to a copy of the package: add files, and add or replace lines."""
    blocks = list(BLOCK.finditer(recipe))
    assert blocks
    for block in blocks:
        if block["new"]:
            path = tree / block["new"]
            assert not path.exists()
            path.write_text(block["code"], encoding="utf-8")
            continue
        path = tree / block["path"]
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        (place,) = [k for k, line in enumerate(lines) if line.strip().startswith(block["line"])]
        place += block["how"] == "after"
        lines[place : place + (block["how"] == "instead of")] = [block["code"]]
        path.write_text("".join(lines), encoding="utf-8")


def copy_of_package(folder: Path) -> Path:
    tree = folder / "src" / "proselflc"
    shutil.copytree(SOURCE, tree, ignore=shutil.ignore_patterns("__pycache__"))
    return tree


def contents(tree: Path) -> dict[Path, bytes]:
    return {
        path.relative_to(tree): path.read_bytes()
        for path in tree.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def files_touched(recipe: str, tree: Path) -> int:
    """Apply a recipe to a copy of the package, count the files that differ, and undo it."""
    before = contents(tree)
    apply(recipe, tree)
    changed = {path for path, content in contents(tree).items() if before.get(path) != content}
    for path in changed:
        if path in before:
            (tree / path).write_bytes(before[path])
        else:
            (tree / path).unlink()
    return len(changed)


def test_the_table_of_touched_files_is_measured(tmp_path: Path) -> None:
    tree = copy_of_package(tmp_path)
    counts = {name: files_touched(recipe, tree) for name, recipe in RECIPES.items()}
    rows = "".join(f"| {name} | {count} |\n" for name, count in counts.items())
    table = f"| change | source files touched |\n|---|---|\n{rows}"
    assert f"<!-- touched -->\n{table}<!-- /touched -->" in TEXT, table


def test_the_recipes_are_in_the_house_style(tmp_path: Path) -> None:
    tree = copy_of_package(tmp_path)
    for recipe in RECIPES.values():
        apply(recipe, tree)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    ruff = [sys.executable, "-m", "ruff", "check", str(tree)]
    done = subprocess.run(ruff, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


# What a user can do once all recipes are applied.
USE = """
import sys
from pathlib import Path
import numpy as np
from proselflc.training.run_directory import read_toml
import proselflc
from proselflc import methods
from proselflc.cli import app as cli
from proselflc.data.inputs import Features
from proselflc.data.opening import open_data
from proselflc.data.request import Request
from proselflc.errors import InputError
from proselflc.run.config import Config
from proselflc.searching import search_space
from proselflc.training.recipe import Recipe

assert str(Path(proselflc.__file__)).startswith(sys.argv[1]), proselflc.__file__


def command(*words):
    assert cli.run(list(words)) == 0, words


# Methods train, are listed, become options and a search space, and refuse bad values.
generator = np.random.default_rng(0)
truth = np.arange(100) % 2
given = np.where(np.arange(100) % 10 == 9, 1 - truth, truth)
x = (generator.normal(size=(100, 2)) + 6 * truth[:, None]).astype(np.float32)
for name, stages in (("hesitant", []), ("patient", ["believing", "doubting"])):
    assert name in methods.names()
    out = Path("runs") / name
    run = proselflc.fit(x, given, method=name, epochs=6, batch_size=20, seed=0, out=out)
    assert (run.predict(x).classes == truth).mean() > 0.9
    assert run.summary["method"] == name
    assert [stage["name"] for stage in run.stages] == stages
    command("methods", name)
    command("train", "--method", name, "--help")
    assert cli.run(["train", "--method", name, "--method.q", "0.5"]) == 2
    try:
        methods.resolved(name, {"epsilon": 2.0})
    except InputError as error:
        assert "epsilon" in str(error)
    else:
        raise AssertionError("a bad epsilon was accepted")
    searched = search_space.read((), (name,), Config(), Config(recipe=Recipe(lr=0.1)))
    assert len(search_space.corners(searched.methods[name]["epsilon"])) == 2

# The noise, the model and the data source are options.
command("noise", "--help")
command("datasets")
command("models")
wanted = ["--noise", "to_first_class:0.3", "--model", "logistic", "--epochs=8", "--batch-size=20"]
command("train", "--data", "moons", *wanted, "--nesterov", "--out", "runs/moons", "--quiet")
run = proselflc.load_run("runs/moons")
assert run.labels.generator.startswith("to_first_class")
assert 0.05 < run.labels.flipped.mean() < 0.3
moons = open_data(Request(data="moons"))
assert isinstance(moons.test.inputs, Features)
assert (len(moons.train), len(moons.test)) == (200, 100)
assert (run.predict(moons.test.inputs.values).classes == moons.test.labels).mean() > 0.75

# The metric is in the history and the report, with the figure; the audit has the score.
# The option is in the help and the run.
assert 0.5 < run.history[-1]["true_accuracy"] <= 1
command("report", "runs/moons")
page = Path("runs/moons/report.html").read_text()
assert "True accuracy" in page
assert "of 200 examples never changed their class" in page
assert (run.examples["forgotten"].to_numpy() <= run.examples["flips"].to_numpy()).all()
assert read_toml(Path("runs/moons/config.toml"))["nesterov"] is True

# The export format is offered and written.
command("export", "runs/moons", "--format", "jsonl", "--out", "labels.jsonl")
assert len(Path("labels.jsonl").read_text().splitlines()) == 200

# The kind of input is trained on, audited, shown, kept in model.json and predicted.
command("train", "--data", "tones", "--noise", "pair:0.2", "--epochs", "8", "--out", "runs/tones")
command("audit", "runs/tones")
command("report", "runs/tones")
command("predict", "runs/tones", "--data", "tones", "--split", "test", "--out", "tones.csv")
run = proselflc.load_run("runs/tones")
assert run.summary["test_accuracy"] > 0.9
"""


def test_what_the_recipes_add_can_be_used(tmp_path: Path) -> None:
    tree = copy_of_package(tmp_path)
    for recipe in RECIPES.values():
        apply(recipe, tree)
    environment = {**os.environ, "PYTHONPATH": str(tree.parent), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", USE, str(tree)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    printed = " ".join(done.stdout.replace("│", " ").split())
    for name in ("hesitant", "patient"):
        assert f"method {name} has no --method.q" in done.stderr
    assert printed.count("--method.epsilon FLOAT ε, how much the pred") == 2
    for name in ("to_first_class", "logistic", "moons"):
        assert name in printed


def test_no_block_of_the_document_is_forgotten() -> None:
    blocks = sum(len(BLOCK.findall(recipe)) for recipe in RECIPES.values())
    assert TEXT.count("\n```") == 2 * blocks
