"""On a phone, names of files, classes and options are whole, and small numbers are named alike."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from playwright.sync_api import Browser, Page, expect

from proselflc.auditing.audit import Audit
from proselflc.auditing.mapping import points
from proselflc.reporting import command as report
from proselflc.reporting.run_facts import read_runs
from proselflc.run import audit as auditing
from proselflc.run.reader import load_run

pytestmark = pytest.mark.browser

N, SUSPECTS = 24, 8
NAMES = ("Rotkehlchen im Winter", "Blaumeise am Futterhaus", "Haussperling")
WIDTHS = (360, 390)
# What is hidden behind the edge of its own box. Texts for screen readers and a summary that opens
# are left out, and tables of many numbers, which scroll.
CUT = """() => [...document.querySelectorAll("body *")].filter((one) =>
  one.checkVisibility() && one.clientWidth
  && !one.closest("svg, .hidden, #said, summary, .scroll:has(th:nth-child(5))")
  && getComputedStyle(one).overflowX !== "visible" && one.scrollWidth > one.clientWidth + 1,
).map((one) => [one.className, one.textContent.trim().slice(0, 60)])"""


@pytest.fixture(scope="module")
def photos(reviewable: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of photos with long names, whose first label is certainly wrong."""
    folder = tmp_path_factory.mktemp("phone")
    ids = []
    for k in range(N):
        ids.append(f"{NAMES[k % 3]}/Aufnahme vom Balkon im Februar, Nummer {k:02d}.jpeg")
        path = folder / "photos" / ids[-1]
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(k).integers(0, 256, (40, 60, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(path)
    data = str(folder / "photos")
    run = reviewable(folder, n=N, suspects=SUSPECTS, names=NAMES, ids=ids, data=data)
    points.save(run / "map.npz", np.stack([np.arange(N), np.arange(N) % 4], 1).astype(np.float32))
    table = pq.read_table(run / "examples.parquet")
    quality = table["quality"].to_numpy().copy()
    quality[0] = 0.0004
    place = table.column_names.index("quality")
    field = table.schema.field("quality")
    changed = table.set_column(place, field, pa.array(quality).cast(field.type))
    pq.write_table(changed, run / "examples.parquet")
    return run


@pytest.fixture
def opened(browser: Browser) -> Iterator[Callable[[str, int], Page]]:
    pages: list[Page] = []

    def go(address: str, width: int) -> Page:
        size: Any = {"width": width, "height": 780}
        context = browser.new_context(viewport=size, reduced_motion="reduce")
        pages.append(context.new_page())
        pages[-1].goto(address)
        return pages[-1]

    yield go
    for page in pages:
        page.context.close()


@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_in_the_report_of_a_run_is_cut(
    photos: Path, opened: Callable[[str, int], Page], width: int
) -> None:
    page_path = photos.parent / "page.html"
    page_path.write_text(report.make(read_runs([photos])).html, encoding="utf-8")
    page = opened(page_path.as_uri(), width)
    assert page.evaluate(CUT) == []
    card = page.locator(".card").first
    expect(card).to_contain_text("Aufnahme vom Balkon im Februar, Nummer 00.jpeg")
    expect(card).to_contain_text("quality <1%")


@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_in_the_review_is_cut(
    photos: Path, serve: Callable[..., Any], opened: Callable[[str, int], Page], width: int
) -> None:
    page = opened(serve(photos).address, width)
    page.wait_for_selector("#near-suggested img")
    assert page.evaluate(CUT) == []
    expect(page.locator("#chances")).to_contain_text("<1%")
    page.keyboard.press("g")
    expect(page.locator("#cell-0 .labels")).to_have_text(f"{NAMES[0]} → {NAMES[1]}")
    assert page.evaluate(CUT) == []
    labels = page.locator("#cell-0 .labels")
    assert labels.evaluate("(one) => one.scrollHeight <= one.clientHeight + 1")
    page.keyboard.press("m")
    expect(page.locator("#map .map-tip")).to_contain_text("quality <1%")
    assert page.evaluate(CUT) == []


def test_the_command_line_names_files_and_chances_as_the_pages_do(photos: Path) -> None:
    run = load_run(photos)
    words = auditing.describe(run, Audit.load(run.directory), run.examples, 1)
    line = next(one for one in words.splitlines() if "Nummer 00.jpeg" in one)
    assert line.endswith("  <1%")
