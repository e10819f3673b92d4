"""The map of the examples and pictures in full size, in a real browser."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Browser, Page, expect

from proselflc.auditing.mapping import points
from proselflc.data.inputs import Images
from proselflc.reporting import command as report
from proselflc.reporting.run_facts import read_runs

pytestmark = pytest.mark.browser

COLUMNS, ROWS = 10, 6
N, SUSPECTS = COLUMNS * ROWS, 20
NAMES = ("cat", "dog", "<b>fox</b>")
STEPS = np.stack([np.arange(N) % COLUMNS, np.arange(N) // COLUMNS], axis=1)


def with_map(run: Path) -> Path:
    """Put the examples on a grid, the first one at the lower left."""
    points.save(run / "map.npz", STEPS.astype(np.float32))
    return run


@pytest.fixture(scope="module")
def page_path(reviewable: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report with a map, whose suspects are shown as pictures of 8 × 8 pixels."""
    folder = tmp_path_factory.mktemp("map")
    run = with_map(reviewable(folder, n=N, suspects=SUSPECTS, names=NAMES))
    pixels = np.random.default_rng(0).integers(0, 256, (N, 8, 8, 3), dtype=np.uint8)
    made = report.make(read_runs([run]), inputs=Images(pixels))
    (folder / "page.html").write_text(made.html, encoding="utf-8")
    return folder / "page.html"


@pytest.fixture(scope="module")
def reviewed(reviewable: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with a map, whose examples are photos, the first one large and the others small."""
    folder = tmp_path_factory.mktemp("reviewed")
    ids = []
    for k in range(N):
        ids.append(f"{'cdf'[k % 3]}/{k:02d}.png")
        (folder / "photos" / "cdf"[k % 3]).mkdir(parents=True, exist_ok=True)
        small = np.random.default_rng(k).integers(0, 256, (60, 60, 3), dtype=np.uint8)
        picture = Image.fromarray(small)
        if k == 0:
            picture = picture.resize((3000, 2000))
        picture.save(folder / "photos" / ids[-1])
    data = str(folder / "photos")
    return with_map(reviewable(folder, n=N, suspects=SUSPECTS, names="cdf", ids=ids, data=data))


def canvas(page: Page) -> dict[str, float]:
    page.locator("#map").evaluate("(one) => one.scrollIntoView({behavior: 'instant'})")
    box = page.locator("#map canvas").bounding_box()
    assert box is not None
    return {"x": box["x"], "y": box["y"], "width": box["width"], "height": box["height"]}


def place(page: Page, point: int) -> tuple[float, float]:
    """Where a point of the whole map is in the window."""
    box = canvas(page)
    margin = 2 * min(28, box["width"] / 16)
    step = min((box["width"] - margin) / (COLUMNS - 1), (box["height"] - margin) / (ROWS - 1))
    x, y = STEPS[point]
    left = (box["width"] - step * (COLUMNS - 1)) / 2
    low = (box["height"] + step * (ROWS - 1)) / 2
    return box["x"] + left + x * step, box["y"] + low - y * step


def tip(page: Page) -> Any:
    return page.locator("#map .map-tip")


def hover(page: Page, x: float, y: float) -> None:
    page.mouse.move(x + 3, y + 3)
    page.mouse.move(x, y)


def test_what_is_under_the_mouse_is_named(visit: Callable[..., Any], page_path: Path) -> None:
    page = visit(page_path).page
    hover(page, *place(page, 33))
    expect(tip(page)).to_contain_text("id-33")
    expect(tip(page)).to_contain_text("cat")
    expect(tip(page).locator("img")).to_have_count(0)
    hover(page, *place(page, 2))
    expect(tip(page)).to_contain_text("<b>fox</b> → cat")
    expect(tip(page)).to_contain_text("quality 10%")
    image = tip(page).locator("img")
    assert image.evaluate("(one) => getComputedStyle(one).imageRendering") == "pixelated"
    page.mouse.move(5, 5)
    expect(tip(page)).to_be_hidden()


def test_a_click_goes_to_the_example(visit: Callable[..., Any], page_path: Path) -> None:
    page = visit(page_path).page
    page.locator("select[name=given]").select_option(label="cat")
    page.mouse.click(*place(page, 19))  # dog, so its card is not among those that are shown
    card = page.locator(".card:focus")
    expect(card.locator(".id")).to_have_text("id-19")
    expect(card).to_be_in_viewport()
    page.mouse.click(*place(page, 45))  # not a suspect: it has no card
    expect(tip(page)).to_contain_text("id-45")
    expect(tip(page).get_by_role("button")).to_have_count(0)


def test_wheel_and_mouse_zoom_and_move(visit: Callable[..., Any], page_path: Path) -> None:
    page = visit(page_path).page
    here, beside = place(page, 34), place(page, 35)
    hover(page, *here)
    before = page.evaluate("scrollY")
    page.mouse.wheel(0, 120)  # the page scrolls as long as the map does not have the focus
    page.wait_for_function("before => scrollY !== before", arg=before)
    page.locator("#map canvas").focus()
    here, beside = place(page, 34), place(page, 35)
    hover(page, *here)
    page.mouse.wheel(0, -300)
    hover(page, *beside)
    expect(tip(page)).to_be_hidden()  # the points have moved apart
    hover(page, *here)
    expect(tip(page)).to_contain_text("id-34")  # except for the one under the mouse
    page.mouse.move(here[0] + 15, here[1] + 15)
    page.mouse.down()
    page.mouse.move(here[0] + 95, here[1] + 55, steps=4)
    page.mouse.up()
    hover(page, here[0] + 80, here[1] + 40)
    expect(tip(page)).to_contain_text("id-34")
    page.get_by_role("button", name="Whole map").click()
    hover(page, *beside)
    expect(tip(page)).to_contain_text("id-35")


def test_two_fingers_zoom(visit: Callable[..., Any], page_path: Path) -> None:
    page = visit(page_path, has_touch=True).page
    x, y = place(page, 34)
    page.locator("#map canvas").evaluate(
        """(canvas, [x, y]) => {
          canvas.setPointerCapture = () => {};
          const send = (name, id, dx) => canvas.dispatchEvent(new PointerEvent(name, {
            pointerId: id, pointerType: "touch", clientX: x + dx, clientY: y, bubbles: true }));
          send("pointerdown", 1, -20); send("pointerdown", 2, 20);
          send("pointermove", 1, -60); send("pointermove", 2, 60);
          send("pointerup", 1, -60); send("pointerup", 2, 60);
        }""",
        [x, y],
    )
    hover(page, *place(page, 35))
    expect(tip(page)).to_be_hidden()
    hover(page, x, y)
    expect(tip(page)).to_contain_text("id-34")


def test_the_keyboard_steps_zooms_moves_and_opens(
    visit: Callable[..., Any], page_path: Path
) -> None:
    page = visit(page_path).page
    surface = page.get_by_role("application", name="Map of the examples")
    surface.focus()
    assert surface.evaluate("(one) => getComputedStyle(one).outlineStyle") == "solid"
    status, count = page.locator("#map [role=status]"), page.locator(".map-count")
    page.keyboard.press("n")
    expect(status).to_have_text("Given cat, suggested dog, quality 10%, id-0.")
    expect(count).to_have_text("1 of 20")
    page.keyboard.press("]")
    expect(count).to_have_text("2 of 20")
    page.keyboard.press("p")
    page.keyboard.press("[")
    expect(status).to_have_text("This is the first suspect.")
    looks = [page.locator("#map canvas").screenshot()]
    for key in ("+", "ArrowLeft", "ArrowUp", "-", "0", "Escape"):
        page.keyboard.press(key)
        page.wait_for_timeout(100)
        looks.append(page.locator("#map canvas").screenshot())
        assert looks[-1] != looks[-2], key
    expect(tip(page)).to_be_hidden()
    page.keyboard.press("n")
    page.keyboard.press("Enter")
    expect(page.locator(".card:focus .id")).to_have_text("id-0")
    page.get_by_role("button", name="Next suspect").press("Enter")
    expect(count).to_have_text("2 of 20")


def test_points_are_chosen_by_class(visit: Callable[..., Any], page_path: Path) -> None:
    page = visit(page_path).page
    page.locator("#map select").select_option(label="dog")
    count = page.locator(".map-count")
    expect(count).to_have_text("14 suspects")  # given or suggested
    hover(page, *place(page, 33))  # a cat
    expect(tip(page)).to_be_hidden()
    hover(page, *place(page, 34))
    expect(tip(page)).to_contain_text("dog")
    page.get_by_label("Suspects only").check()
    hover(page, *place(page, 37))
    expect(tip(page)).to_be_hidden()
    hover(page, *place(page, 4))
    expect(tip(page)).to_contain_text("dog → <b>fox</b>")


@pytest.mark.parametrize(
    "options",
    [{}, {"color_scheme": "dark"}, {"width": 360, "height": 800}],
    ids=["light", "dark", "phone"],
)
def test_everybody_can_use_it(
    visit: Callable[..., Any], page_path: Path, options: dict[str, Any]
) -> None:
    page = visit(page_path, **options).page
    canvas(page)
    page.get_by_role("button", name="Next suspect").click()
    expect(tip(page)).to_be_visible()
    box, edge = tip(page).bounding_box(), canvas(page)
    assert box["x"] >= edge["x"]
    assert box["x"] + box["width"] <= edge["x"] + edge["width"]
    assert faults(page) == []
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0


def faults(page: Page) -> list[str]:
    """What axe-core finds wrong."""
    script = files("axe_playwright_python") / "axe.min.js"
    page.evaluate(script.read_text(encoding="utf-8"))
    result = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [f"{one['id']}: {one['nodes'][0]['html'][:200]}" for one in result["violations"]]


def test_another_theme_is_another_picture(visit: Callable[..., Any], page_path: Path) -> None:
    page = visit(page_path).page
    canvas(page)
    light = page.locator("#map canvas").screenshot()
    page.get_by_role("button", name="Dark theme").click()
    page.wait_for_timeout(200)
    assert page.locator("#map canvas").screenshot() != light


def test_without_script_and_on_paper_there_is_a_picture(
    visit: Callable[..., Any], page_path: Path
) -> None:
    page = visit(page_path, java_script_enabled=False).page
    still = page.get_by_role("img", name="60 examples as points")
    expect(still).to_be_visible()
    expect(page.locator("#map")).to_be_hidden()
    page = visit(page_path).page
    expect(page.locator(".map-still")).to_be_hidden()
    page.emulate_media(media="print")
    expect(page.locator(".map-still")).to_be_visible()
    expect(page.locator("#map")).to_be_hidden()


def test_fifty_thousand_points_are_drawn_without_lag(
    visit: Callable[..., Any], reviewable: Callable[..., Path], tmp_path: Path
) -> None:
    n = 50_000
    run = reviewable(tmp_path, n=n, suspects=5_000, epochs=1)
    xy = np.random.default_rng(0).normal(size=(n, 2)).astype(np.float32)
    points.save(run / "map.npz", xy)
    page = visit(report.report(run, quiet=True)).page
    canvas(page)
    page.locator("#map canvas").focus()
    frames = page.evaluate(
        """async () => {
          const canvas = document.querySelector("#map canvas"), found = [];
          const frame = () => new Promise(requestAnimationFrame);
          await frame();
          for (let k = 0; k < 60; k += 1) {
            const begin = performance.now(), key = ["ArrowLeft", "+", "ArrowRight", "-"][k % 4];
            canvas.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
            await frame();
            found.push(performance.now() - begin);
          }
          return found.sort((a, b) => a - b);
        }"""
    )
    assert frames[len(frames) // 4] < 50, frames  # other work of the machine makes some slower
    page.keyboard.press("n")
    expect(page.locator(".map-count")).to_have_text("1 of 5,000")


class Reviewing:
    """The page of a review, which must not complain."""

    def __init__(self, page: Page, address: str, run: Path) -> None:
        self.page, self.run, self.messages = page, run, list[str]()
        page.on("console", lambda one: self.messages.append(one.text))
        page.on("pageerror", lambda error: self.messages.append(str(error)))
        page.goto(address)
        page.wait_for_selector("body.ready")

    def decisions(self) -> list[dict[str, Any]]:
        path = self.run / "review.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()[1:]]


@pytest.fixture
def review(
    browser: Browser, reviewed: Path, serve: Callable[..., Any]
) -> Iterator[Callable[..., Reviewing]]:
    (reviewed / "review.jsonl").unlink(missing_ok=True)
    opened: list[Reviewing] = []

    def go(width: int = 1280, height: int = 900, **options: Any) -> Reviewing:
        size: Any = {"width": width, "height": height}
        context = browser.new_context(viewport=size, reduced_motion="reduce", **options)
        opened.append(Reviewing(context.new_page(), serve(reviewed).address, reviewed))
        return opened[-1]

    yield go
    for one in opened:
        one.page.context.close()
        assert one.messages == []


def test_an_example_is_decided_from_the_map(review: Callable[..., Reviewing]) -> None:
    seen = review()
    page = seen.page
    page.keyboard.press("m")
    expect(page.get_by_role("button", name="Map")).to_have_attribute("aria-pressed", "true")
    expect(page.locator("#map canvas")).to_be_focused()
    expect(tip(page)).to_contain_text("c/00.png")  # the current example
    page.mouse.click(*place(page, 7))
    expect(page.locator("#question")).to_be_focused()
    expect(page.locator("#id")).to_have_text("d/07.png")
    page.keyboard.press("a")
    expect(page.locator("#map canvas")).to_be_focused()  # back on the map
    expect(tip(page)).to_contain_text("decided: f")
    assert [(one["example"], one["label"]) for one in seen.decisions()] == [("d/07.png", "f")]
    page.keyboard.press("n")
    expect(tip(page)).to_contain_text("f/08.png")
    page.keyboard.press("Enter")
    expect(page.locator("#id")).to_have_text("f/08.png")
    page.keyboard.press("Escape")
    expect(tip(page)).to_contain_text("f/08.png")
    page.keyboard.press("z")  # takes back the decision, and shows the example
    expect(page.locator("#id")).to_have_text("d/07.png")
    page.keyboard.press("m")
    expect(tip(page)).to_contain_text("d/07.png")
    expect(tip(page)).not_to_contain_text("decided")
    page.reload()
    page.wait_for_selector("body.ready")
    expect(page.locator("#chart")).to_be_visible()
    page.locator("#map canvas").focus()
    page.keyboard.press("m")
    expect(page.locator("#one")).to_be_visible()
    page.keyboard.press("m")
    page.keyboard.press("g")
    expect(page.locator("#grid")).to_be_focused()


def test_a_label_that_is_no_suspect_can_be_looked_at(review: Callable[..., Reviewing]) -> None:
    page = review().page
    page.keyboard.press("m")
    page.mouse.click(*place(page, 50))
    expect(page.locator("#id")).to_have_text("f/50.png")
    expect(page.locator("#closed")).to_be_visible()
    expect(page.locator("#keep")).to_be_disabled()
    page.keyboard.press("k")
    page.keyboard.press("1")
    page.keyboard.press("s")
    expect(page.locator("#closed")).to_be_hidden()
    expect(page.locator("#keep")).to_be_enabled()


@pytest.mark.parametrize(
    "options",
    [{}, {"color_scheme": "dark"}, {"width": 768}, {"width": 360, "height": 780}],
    ids=["light", "dark", "tablet", "phone"],
)
def test_everybody_can_use_map_and_picture_of_the_review(
    review: Callable[..., Reviewing], options: dict[str, Any]
) -> None:
    page = review(**options).page
    page.keyboard.press("f")
    expect(page.locator("#photo img[style]")).to_be_visible()
    assert faults(page) == []
    page.keyboard.press("Escape")
    page.keyboard.press("m")
    expect(tip(page)).to_be_visible()
    assert faults(page) == []
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0


def test_a_photo_in_full_size(review: Callable[..., Reviewing]) -> None:
    page = review().page
    expect(page.locator("#id")).to_have_text("c/00.png")
    page.get_by_role("button", name="Example c/00.png").click()
    image = page.locator("#photo img")
    expect(image).to_have_js_property("naturalWidth", 2048)
    expect(page.locator("#photo-stage")).to_be_focused()
    width = "(one) => one.getBoundingClientRect().width"
    page.wait_for_function("() => document.querySelector('#photo img').style.width")
    whole = image.evaluate(width)
    assert whole <= 1280
    page.keyboard.press("+")
    assert image.evaluate(width) == pytest.approx(1.5 * whole, rel=0.01)
    page.mouse.move(640, 450)
    page.mouse.wheel(0, -120)
    assert image.evaluate(width) == pytest.approx(1.5 * 2**0.5 * whole, rel=0.02)
    left = "(one) => one.getBoundingClientRect().left"
    before = image.evaluate(left)
    page.keyboard.press("ArrowRight")
    assert image.evaluate(left) == pytest.approx(before - 80, abs=1)
    page.mouse.down()
    page.mouse.move(740, 450, steps=4)
    page.mouse.up()
    assert image.evaluate(left) > before
    page.keyboard.press("0")
    assert image.evaluate(width) == pytest.approx(whole)
    assert image.evaluate("(one) => getComputedStyle(one).imageRendering") == "auto"
    page.keyboard.press("Escape")
    expect(page.locator("#photo")).to_be_hidden()
    expect(page.locator("#id")).to_have_text("c/00.png")


def test_small_pictures_are_crisp_everywhere(review: Callable[..., Reviewing]) -> None:
    page = review().page
    page.keyboard.press("s")
    expect(page.locator("#id")).to_have_text("d/01.png")
    crisp = "(one) => getComputedStyle(one).imageRendering"
    expect(page.locator("#exhibit img.pixels")).to_be_visible()
    assert page.locator("#exhibit img").evaluate(crisp) == "pixelated"
    page.keyboard.press("f")
    expect(page.locator("#photo img.pixels[style]")).to_be_visible()
    page.keyboard.press("f")
    expect(page.locator("#photo")).to_be_hidden()
    page.keyboard.press("g")
    expect(page.locator("#cell-1 img.pixels")).to_be_visible()
