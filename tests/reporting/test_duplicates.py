"""The section about duplicates and outliers: its lists, its sentences and its place on the page."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from proselflc.auditing.neighbours import neighbours_of
from proselflc.auditing.plain_features import PlainFeatures
from proselflc.data.inputs import Features, Floats, Images, Texts
from proselflc.reporting import command as report
from proselflc.reporting import duplicates, figures
from proselflc.reporting.run_facts import read_runs
from proselflc.run.reader import load_run

Reviewable = Callable[..., Path]


@pytest.fixture(autouse=True)
def _without_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("dynamics", "transitions"):
        monkeypatch.setattr(figures, name, lambda *_: [])
    for name in ("reliability", "quality"):
        monkeypatch.setattr(figures, name, lambda *_: None)


def values(n: int = 60) -> Floats:
    x = np.random.default_rng(0).normal(size=(n, 3)).astype(np.float32)
    x[3] = x[2]  # fox and cat
    x[9] = x[6]  # both cat
    x[20] = 7
    return x


def made(
    reviewable: Reviewable, folder: Path, x: Floats, test: Floats | None = None, **options: object
) -> Path:
    """A run of three classes in turn whose examples have these features."""
    run = reviewable(folder, n=len(x), **options)
    every = x if test is None else np.concatenate([x, test])
    neighbours_of(PlainFeatures(every, "test columns"), len(x)).save(run / "neighbours.npz")
    return run


def words(run: Path, **options: object) -> str:
    html = report.make(read_runs([run]), **options).html  # type: ignore[arg-type]
    return " ".join(html.split())


def test_the_section(reviewable: Reviewable, tmp_path: Path) -> None:
    x = values()
    run = made(reviewable, tmp_path, x, x[30:33])
    found = words(run, inputs=Features(x, ("a", "b", "c")))
    for sentence in (
        'href="#duplicates">Duplicates and outliers</a>',
        "4 of 60 examples have the same content as another one, exactly or nearly (2 groups).",
        "2 of them, in 1 group, have different labels; at least one label of each group",
        "3 training examples are also in the test set, so the test accuracy is too high.",
        "1 example is far from all others.",
        "<h3>Same content, different labels</h3>",
        "<h4><bdi>fox</bdi> or <bdi>cat</bdi>?</h4>",
        "<h3>Also in the test set</h3>",
        "<h3>Most unusual</h3>",
        "times the usual distance",
        "--what duplicates --out duplicates.csv",
    ):
        assert sentence in found, sentence
    section = found[found.index('<h2 id="duplicates"') : found.index('<h2 id="classes"')]
    assert [name in section for name in (">id-2<", ">id-3<", ">id-20<", ">id-6<")] == [
        *(True, True, True, False)
    ]
    assert section.index(">id-2<") < section.index(">id-30<") < section.index(">id-20<")
    assert "may not determine the class" not in section


def test_nothing_stands_out(reviewable: Reviewable, tmp_path: Path) -> None:
    x = np.random.default_rng(0).uniform(size=(60, 3)).astype(np.float32)
    found = words(made(reviewable, tmp_path, x, x[:1] + 100))
    assert "No two examples have the same content." in found
    assert "No training example is also in the test set." in found
    assert "No example is far from all others." in found
    assert "Same content, different labels" not in found


def test_a_run_that_was_not_compared_has_no_section(reviewable: Reviewable, tmp_path: Path) -> None:
    found = words(reviewable(tmp_path))
    assert "Duplicates and outliers" not in found


def test_a_damaged_file_is_a_note(reviewable: Reviewable, tmp_path: Path) -> None:
    run = made(reviewable, tmp_path, values())
    (run / "neighbours.npz").write_bytes(b"nonsense")
    found = words(run)
    assert "neighbours.npz is damaged" in found
    assert 'id="duplicates"' not in found


@pytest.mark.parametrize("kind", ["images", "texts", "none"])
def test_previews(reviewable: Reviewable, tmp_path: Path, kind: str) -> None:
    run = made(reviewable, tmp_path, values(), suspects=0)
    pixels = np.random.default_rng(0).integers(0, 256, (60, 8, 8, 1), dtype=np.uint8)
    inputs = {
        "images": Images(pixels),
        "texts": Texts(tuple(f"<b>text {k}</b>" for k in range(60))),
        "none": None,
    }[kind]
    found = words(run, inputs=inputs)
    assert found.count("<img ") == (3 if kind == "images" else 0)
    assert ("&lt;b&gt;text 3&lt;/b&gt;" in found) == (kind == "texts")
    assert ">id-3<" in found


def test_lists_are_cut(reviewable: Reviewable, tmp_path: Path) -> None:
    x = np.repeat(np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32), 7, axis=0)
    run = load_run(made(reviewable, tmp_path, x))
    found = words(run.path)
    assert found.count('<div class="group">') == duplicates.GROUPS
    assert "These are 12 of 20 groups, with the lowest quality first." in found
    assert "<bdi>fox</bdi>? (6 of 7 examples)" in found
    assert "may not determine the class" in found


def test_the_lowest_quality_comes_first(reviewable: Reviewable, tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(30, 3)).astype(np.float32)
    x[29], x[2] = x[28], x[1]  # only the first half are suspects
    x[[28, 29, 1, 2]] = x[[1, 2, 28, 29]]
    found = words(made(reviewable, tmp_path, x))
    section = found[found.index('<h2 id="duplicates"') :]
    assert section.index(">id-1<") < section.index(">id-28<")
