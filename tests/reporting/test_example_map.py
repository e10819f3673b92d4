"""The section with the map of the examples."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from proselflc.auditing.mapping import points
from proselflc.reporting import command as report
from proselflc.reporting import figures
from proselflc.reporting.run_facts import read_runs

Reviewable = Callable[..., Path]


@pytest.fixture(autouse=True)
def _without_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("dynamics", "transitions"):
        monkeypatch.setattr(figures, name, lambda *_: [])
    for name in ("reliability", "quality"):
        monkeypatch.setattr(figures, name, lambda *_: None)


def with_map(run: Path, n: int = 12) -> Path:
    xy = np.random.default_rng(0).normal(size=(n, 2)).astype(np.float32)
    points.save(run / "map.npz", xy)
    return run


def html(run: Path) -> str:
    return report.make(read_runs([run])).html


def test_the_map_is_on_the_page(reviewable: Reviewable, tmp_path: Path) -> None:
    hostile = ["</script><script>alert(1)</script>", "dog", "fox"]
    page = html(with_map(reviewable(tmp_path, names=hostile)))
    assert '<h2 id="map-title">Map of the examples</h2>' in page
    assert "examples that look alike are near each other" in page
    assert 'alt="12 examples as points; 6 suspects have a grey ring."' in page
    [data] = re.findall(r'<script type="application/json" id="map-data">(.*?)</script>', page)
    assert json.loads(data)["names"] == hostile
    assert "<script>alert" not in page
    assert "export const" not in page


def test_a_run_without_a_map(reviewable: Reviewable, tmp_path: Path) -> None:
    page = html(reviewable(tmp_path))
    assert "map-title" not in page
    assert "pointMap =" not in page  # nor its script


def test_a_damaged_map_is_a_note(reviewable: Reviewable, tmp_path: Path) -> None:
    page = html(with_map(reviewable(tmp_path), n=5))
    assert "map.npz is damaged: xy should be [12, 2], got [5, 2]" in page
    assert "map-title" not in page


def test_a_map_of_fifty_thousand_adds_a_megabyte_at_most(
    reviewable: Reviewable, tmp_path: Path
) -> None:
    run = reviewable(tmp_path, n=50_000, suspects=5_000, epochs=1)
    without = len(html(run))
    assert len(html(with_map(run, 50_000))) - without < 1.05 * 2**20
