"""Sheets of panels: names at the ends of lines, curves with intervals, files for print."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from proselflc.pages.drawing import figure, method_styles, run_style, write
from proselflc.pages.sheet import Sheet, spread
from proselflc.paper.curves import averaged, panel
from proselflc.paper.output import interval


def test_names_are_moved_apart_as_little_as_possible() -> None:
    assert spread([], 5.0, 0.0, 40.0) == []
    assert spread([30.0, 10.0, 20.0], 5.0, 0.0, 40.0) == [30.0, 10.0, 20.0]
    assert spread([20.0, 20.0], 6.0, 0.0, 40.0) == [17.0, 23.0]
    assert spread([39.0, 1.0, 40.0, 38.0], 4.0, 0.0, 40.0) == [36.0, 1.0, 40.0, 32.0]
    generator = np.random.default_rng(0)
    for _ in range(50):
        places = list(generator.uniform(0, 100, 6))
        found = spread(places, 8.0, 0.0, 100.0)
        assert np.diff(sorted(found)).min() >= 8.0 - 1e-9
        assert np.argsort(found).tolist() == np.argsort(places).tolist()
        assert min(found) >= 0.0
        assert max(found) <= 100.0 + 1e-9


def test_a_curve_is_the_mean_over_seeds_with_its_interval() -> None:
    seeds = [[{"step": s, "epoch": s / 2, "m": v * s} for s in (2, 4)] for v in (1.0, 2.0, 4.0)]
    seeds[0].append({"step": 6, "epoch": 3.0, "m": 9.0})  # which the other seeds lack
    curve = averaged("CCE", run_style(0), seeds, "m")
    assert curve is not None
    assert curve.x.tolist() == [1.0, 2.0]
    assert curve.mean.tolist() == pytest.approx([14 / 3, 28 / 3])
    known = interval([4.0, 8.0, 16.0])
    assert known is not None
    assert curve.half[1] == pytest.approx(known[1])
    assert curve.after(1.5).x.tolist() == [2.0]
    single = averaged("CCE", run_style(0), seeds[:1], "m")
    assert single is not None
    assert all(map(math.isnan, single.half))
    assert averaged("CCE", run_style(0), seeds, "other") is None
    assert averaged("CCE", run_style(0), [], "m") is None


def test_a_method_looks_the_same_in_every_figure() -> None:
    all_five = method_styles(
        ["cce", "label_smoothing", "confidence_penalty", "boot_soft", "proselflc"]
    )
    assert len({(s.colour, s.dash, s.marker) for s in all_five}) == 5
    some = method_styles(["proselflc", "elr", "cce", "gce"])
    assert [some[2], some[0]] == [all_five[0], all_five[4]]
    assert len({(s.colour, s.dash, s.marker) for s in some}) == 4
    assert method_styles(["cce"]) == [run_style(0)]
    assert method_styles(["cce", "cce", "elr"]) == [run_style(k) for k in range(3)]


def test_a_sheet_is_written_for_page_screen_and_print(tmp_path: Path) -> None:
    points = [{"step": s, "epoch": float(s), "m": 0.1 * s} for s in range(1, 6)]
    curves = [averaged(name, run_style(k), [points], "m") for k, name in enumerate(("one", "two"))]
    drawn = panel("Title", [c for c in curves if c is not None], (0.0, 1.0), percent=True)
    sheet = figure("sheet", Sheet("A sheet", (drawn, drawn), 2), "Two panels.")
    files = write([sheet], tmp_path, pdf=True)
    assert [path.suffix for path in files] == [".svg", ".png", ".pdf"]
    assert files[2].read_bytes().startswith(b"%PDF")
    text = files[0].read_text()
    assert all(text.count(f">{word}<") == 2 for word in ("one", "two", "epoch"))
    assert "(a) Title" in text
    assert "(b) Title" in text
    again = write([sheet], tmp_path / "again", pdf=True)
    assert [a.read_bytes() for a in files] == [b.read_bytes() for b in again]
