"""The page of a study in a real browser: it fits, can be read and does nothing else."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from optuna.distributions import CategoricalDistribution
from playwright.sync_api import expect

from proselflc.searching import study_page
from proselflc.searching.search_space import Space
from proselflc.searching.study import StudyDirectory

pytestmark = pytest.mark.browser


def fabricated() -> ModuleType:
    """The tests of the page, which make a study that nobody has searched."""
    path = Path(__file__).parents[1] / "searching" / "test_study_page.py"
    spec = importlib.util.spec_from_file_location("fabricated_study", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    outcome = fabricated().search_outcome()
    values = CategoricalDistribution((*range(200),))
    space = Space(outcome.plan.space.recipe, {"proselflc": {"sharpness": values}})
    outcome = replace(
        outcome,
        directory=StudyDirectory(Path("f" * 200)),
        plan=replace(outcome.plan, data="d" * 200, space=space, knows_truth=False),
    )
    path: Path = tmp_path_factory.mktemp("study") / "report.html"
    path.write_text(study_page.make(outcome), encoding="utf-8")
    return path


@pytest.mark.parametrize("width", [320, 360, 768, 1280])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_it_fits_and_shows_its_figures(
    visit: Callable[..., Any], page: Path, width: int, theme: str
) -> None:
    seen = visit(page, width=width, color_scheme=theme).page
    assert seen.evaluate("document.documentElement.scrollWidth") <= width
    figures = seen.locator("figure svg[role=img]")
    assert figures.count() == 6
    for k in range(6):
        box = figures.nth(k).bounding_box()
        assert box["width"] > 200
        assert box["x"] + box["width"] <= width
    paper = seen.evaluate("getComputedStyle(document.body).backgroundColor")
    ink = seen.evaluate("getComputedStyle(document.body).color")
    bright = [sum(map(float, colour[4:-1].split(","))) for colour in (paper, ink)]
    assert (bright[0] > bright[1]) == (theme == "light")
    expect(seen.get_by_text("The true labels are unknown")).to_be_visible()


def test_trials_can_be_sorted(visit: Callable[..., Any], page: Path) -> None:
    seen = visit(page).page
    table = seen.get_by_role("region", name="Trials of ProSelfLC")
    table.get_by_role("button", name="validation").click()
    expect(table.locator("tbody tr").first).to_contain_text("chosen")
    seen.get_by_role("button", name="Dark theme").click()
    expect(seen.locator("html")).to_have_attribute("data-theme", "dark")


def test_its_links_lead_to_its_parts(visit: Callable[..., Any], page: Path) -> None:
    seen = visit(page).page
    for link in seen.locator("nav a").all():
        target = link.get_attribute("href")
        assert seen.locator(target).count() == 1
