"""The pictures in the documents, made from real pages.

The tests make them and look whether they could be those of docs/images. `make pictures` keeps them
there, for which it sets PROSELFLC_PICTURES to that folder.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Browser, Page, expect

pytestmark = pytest.mark.browser

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "docs" / "images"
RUN = "runs/demo/proselflc-0"  # as the documents call it; the pages show it
# Every picture on the page that can be seen at the moment is there.
DRAWN = """
() => {
  const seen = [...document.images].filter(one => {
    const box = one.getBoundingClientRect();
    return one.checkVisibility() && box.width && box.bottom > 0 && box.top < innerHeight;
  });
  return seen.length > 0 && seen.every(one => one.complete && one.naturalWidth > 0);
}
"""


@pytest.fixture(scope="module")
def folder(program: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a run of the demo is, with its report."""
    folder = tmp_path_factory.mktemp("pictures")
    training = ("--data", "digits", "--noise", "pair:0.4", "--model", "mlp", "--batch-size", "64")
    for words in (
        ("train", *training, "--epochs", "60", "--out", RUN, "--quiet"),
        ("report", RUN),
    ):
        done = program.start(*words, folder=folder).wait()
        assert done.code == 0, done.stderr
    return folder


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    context = browser.new_context(
        viewport={"width": 1200, "height": 1130}, reduced_motion="reduce", color_scheme="light"
    )
    yield context.new_page()
    context.close()


@pytest.fixture
def reviewing(program: Any, folder: Path) -> Iterator[str]:
    """The address of a review."""
    running = program.start("review", RUN, "--no-browser", "--port", 0, folder=folder)
    printed = running.streams[0]
    running.until(lambda: printed.is_file() and printed.read_text().endswith("\n"))
    yield printed.read_text().splitlines()[0]
    running.send(2)
    running.wait()


def keep(name: str, screenshot: bytes) -> None:
    """Compare a picture with the one that is kept, or keep it; few colours make a small file."""
    picture = Image.open(io.BytesIO(screenshot)).convert("RGB")
    assert np.asarray(picture).std() > 20, f"{name} shows nothing"
    if "PROSELFLC_PICTURES" in os.environ:
        small = picture.quantize(128, dither=Image.Dither.NONE)
        small.save(Path(os.environ["PROSELFLC_PICTURES"], name), optimize=True)
    with Image.open(KEPT / name) as kept:
        assert kept.size == picture.size, f"{name} has another size: run `make pictures`"


def test_report(folder: Path, page: Page) -> None:
    page.set_viewport_size({"width": 1100, "height": 570})
    page.goto((folder / RUN / "report.html").as_uri())
    expect(page.get_by_role("heading", name="ProSelfLC on digits")).to_be_visible()
    keep("report.png", page.screenshot())


def test_suspects(folder: Path, page: Page) -> None:
    page.set_viewport_size({"width": 1100, "height": 900})
    page.goto((folder / RUN / "report.html").as_uri())
    cards = page.locator("#cards")
    cards.scroll_into_view_if_needed()
    expect(cards.locator("li").first).to_be_visible()
    page.evaluate("() => { document.getElementById('cards').scrollIntoView(); scrollBy(0, -20) }")
    page.wait_for_function(DRAWN)
    first, last = (cards.locator("li").nth(k).bounding_box() for k in (0, 5))
    assert first is not None
    assert last is not None
    left, top = first["x"] - 8, first["y"] - 8
    keep(
        "suspects.png",
        page.screenshot(
            clip={
                "x": left,
                "y": top,
                "width": last["x"] + last["width"] + 8 - left,
                "height": last["y"] + last["height"] + 8 - top,
            }
        ),
    )


def test_review(reviewing: str, page: Page, folder: Path) -> None:
    page.goto(reviewing)
    page.wait_for_selector("body.ready")
    decide(page, "aaakaaauaka")
    expect(page.locator("#progress")).to_contain_text("11 of")
    page.wait_for_selector("#likely button")
    page.wait_for_function(DRAWN)
    keep("review-one.png", page.screenshot())

    page.locator("select[name=pair]").select_option(index=1)
    page.locator("select[name=pair]").blur()
    page.keyboard.press("g")
    page.wait_for_selector("#grid [aria-selected]")
    page.keyboard.press("f")
    expect(page.locator("#selected")).to_have_text("50 selected")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Space")
    expect(page.locator("#selected")).to_have_text("49 selected")
    page.evaluate("() => scrollTo(0, 0)")
    page.wait_for_function(DRAWN)
    keep("review-grid.png", page.screenshot())
    assert (folder / RUN / "review.jsonl").read_text().count("\n") == 12


def decide(page: Page, keys: str) -> None:
    for key in keys:
        before = page.locator("#id").inner_text()
        page.keyboard.press(key)
        page.wait_for_function(
            "before => document.getElementById('id').textContent !== before", arg=before
        )


def test_no_picture_is_forgotten() -> None:
    """A picture that is kept is made here, and one that is made is shown somewhere."""
    kept = {path.name for path in KEPT.iterdir()} - {"house.svg"}  # which tools/house.py draws
    own = Path(__file__).read_text(encoding="utf-8")
    pages = (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"))
    documents = "".join(path.read_text(encoding="utf-8") for path in pages)
    assert kept
    for name in kept:
        assert f'"{name}"' in own, f"{name} is not made by any test"
        assert f"images/{name})" in documents, f"{name} is in no document"
