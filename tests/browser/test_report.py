"""The report in a real browser: what people see of it, do with it, and what it never does."""

from __future__ import annotations

import io
import os
import re
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from filelock import FileLock
from PIL import Image
from playwright.sync_api import Page, expect

from proselflc.data.inputs import Features, Images, Texts
from proselflc.reporting import command as report
from proselflc.reporting import figures
from proselflc.reporting.run_facts import read_runs
from proselflc.run.reader import load_run

pytestmark = pytest.mark.browser

PHONE = {"width": 360, "height": 800}
HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(2)>',
    "</script><svg onload=alert(3)>",
    "javascript:alert(4)",
    "{{ 7 * 7 }}",
    "' onfocus='alert(5)' autofocus='",
)
FEW = 24  # examples that are shown at first, of a phone half as many

# Everything that is drawn, with what is needed to find it in a screenshot.
TEXTS = """
() => {
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const parent = node.parentElement;
    if (!node.data.trim() || parent.closest("script, style, title, desc, .hidden, .skip")) continue;
    if (!parent.checkVisibility()) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    const style = getComputedStyle(parent);
    const figure = parent.closest("svg");
    let opacity = 1;
    for (let at = parent; at; at = at.parentElement) opacity *= getComputedStyle(at).opacity;
    for (const box of range.getClientRects()) {
      if (box.width < 3 || box.height < 3) continue;
      const cut = parent.closest(".scroll, pre");
      const edge = cut ? cut.getBoundingClientRect() : null;
      if (edge && (box.right > edge.right || box.bottom > edge.bottom)) continue;
      found.push({
        text: node.data.trim(), colour: figure ? style.fill : style.color, opacity,
        pixels: parseFloat(style.fontSize) * (figure ? Math.abs(figure.getScreenCTM().a) : 1),
        figure: figure ? figure.getAttribute("aria-labelledby") : "",
        left: box.left + scrollX, top: box.top + scrollY, right: box.right + scrollX,
        bottom: box.bottom + scrollY,
      });
    }
  }
  return found;
}
"""


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Makes a folder that the processes of this test session share."""

    def find(name: str, fill: Callable[[Path], object]) -> Path:
        root = tmp_path_factory.getbasetemp()
        if "PYTEST_XDIST_WORKER" in os.environ:
            root = root.parent
        folder = root / f"browser-{name}"
        with FileLock(root / f"{folder.name}.lock"):
            if not folder.exists():
                folder.mkdir()
                fill(folder)
        return folder

    return find


@pytest.fixture(scope="session")
def runs(request: pytest.FixtureRequest, once: Callable[..., Path]) -> tuple[Path, ...]:
    """Three runs that were really trained, of which the first one has hundreds of suspects."""
    methods = {"proselflc": 8, "cce": 8, "proselflc_auto": 60}  # and epochs

    def train(folder: Path) -> None:
        program = request.getfixturevalue("program")
        for method, epochs in methods.items():
            program(
                *("train", "--data", "digits", "--noise", "pair:0.4", "--model", "mlp", "--quiet"),
                *("--method", method, "--epochs", epochs, "--eval-epochs", 1),
                *("--out", folder / method),
            )
        program("report", folder / "proselflc", "--out", folder / "one.html")
        program("report", *(folder / method for method in methods), "--out", folder / "three.html")

    folder = once("runs", train)
    return tuple(folder / method for method in methods)


@pytest.fixture(scope="session")
def one(runs: tuple[Path, ...]) -> Path:
    """The page of one run."""
    return runs[0].parent / "one.html"


@pytest.fixture(scope="session")
def three(runs: tuple[Path, ...]) -> Path:
    """The page of three runs."""
    return runs[0].parent / "three.html"


@pytest.fixture(scope="session")
def write(fabricate_in: Callable[..., Path], once: Callable[..., Path]) -> Callable[..., Path]:
    """Writes the page of a run that nobody has trained."""

    def page(title: str, *, inputs: Any = None, drawn: bool = True, **options: Any) -> Path:
        def fill(folder: Path) -> None:
            with pytest.MonkeyPatch.context() as patch:
                if not drawn:  # figures take their time
                    for figure, nothing in (
                        ("dynamics", []),
                        ("transitions", []),
                        ("quality", None),
                        ("reliability", None),
                    ):
                        patch.setattr(figures, figure, lambda *_, nothing=nothing: nothing)
                made = report.make(read_runs([fabricate_in(folder, **options)]), inputs=inputs)
            (folder / "page.html").write_text(made.html, encoding="utf-8")

        return once(title, fill) / "page.html"

    return page


@pytest.fixture(scope="session")
def bare(write: Callable[..., Path]) -> Path:
    """The page of a run without true labels, test set and data."""
    return write("bare", truth=False, test=False, config={"data": "/gone/pets.csv"})


@pytest.fixture(scope="session")
def long(write: Callable[..., Path]) -> Path:
    """A page of long names and texts that offer no place to break them."""
    names = [f"{k:02d}{letter * 300}" for k, letter in enumerate("Wgjmäß中مi<")]
    texts = Texts(tuple("W" * 400 if k % 2 else "so many words " * 40 for k in range(40)))
    return write(
        "long",
        name="r" * 200,
        inputs=texts,
        n=40,
        suspects=40,
        names=names,
        ids=[f"{k}/" + "i" * 300 for k in range(40)],
        config={"label_column": "c" * 300, "k" * 100: "v" * 300},
        summary={"data": "d" * 300},
    )


def visible(page: Page, selector: str) -> int:
    """How many of them one can see."""
    found: int = page.locator(selector).evaluate_all(
        "(all) => all.filter((one) => one.checkVisibility() && one.getClientRects().length).length"
    )
    return found


def numbers(page: Page, name: str) -> list[float]:
    """What the examples that are shown have of that name, in their order."""
    found: list[str] = page.locator(".card:not(.away)").evaluate_all(
        "(cards, name) => cards.map((card) => card.dataset[name])", name
    )
    return [float(value) for value in found]


def shown(page: Page, selector: str) -> list[str]:
    """The words of the examples that are shown, in their order."""
    return page.locator(f".card:not(.away) {selector}").all_inner_texts()


def names_of(page: Page, name: str) -> list[str]:
    """The options of one of the choices, without the one that is any."""
    return page.locator(f"select[name={name}] option").all_inner_texts()[1:]


def channels(colour: str) -> tuple[float, ...]:
    red, green, blue = (int(part) for part in re.findall(r"\d+", colour)[:3])
    return red, green, blue


def luminance(colour: tuple[float, ...]) -> float:
    """Of WCAG 2: 0.2126 R + 0.7152 G + 0.0722 B of the linear channels."""
    parts = (part / 255 for part in colour)
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: tuple[float, ...], other: tuple[float, ...]) -> float:
    """Of WCAG 2: (L₁ + 0.05) / (L₂ + 0.05) of the lighter and the darker colour."""
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def contrasts(page: Page) -> dict[str, float]:
    """The contrast of every text with what is around it, as it was painted."""
    picture = Image.open(io.BytesIO(page.screenshot(full_page=True))).convert("RGB")
    found = {}
    for one in page.evaluate(TEXTS):
        box = tuple(round(one[side]) for side in ("left", "top", "right", "bottom"))
        colours = picture.crop(box).getcolors(1 << 16)
        assert colours is not None
        around: Any = max(colours)[1]
        own = channels(one["colour"])
        seen = tuple(
            one["opacity"] * mine + (1 - one["opacity"]) * its
            for mine, its in zip(own, around, strict=True)
        )
        found[f"{one['text']} in {one['figure']}"] = contrast(seen, around)
    return found


def focused(page: Page) -> dict[str, Any]:
    """What has the focus: its words, and whether one can see that."""
    found: dict[str, Any] = page.evaluate(
        """() => {
          const at = document.activeElement, style = getComputedStyle(at);
          const box = at.getBoundingClientRect();
          const name = at.labels?.length ? at.labels[0].firstChild.data
            : at.getAttribute("aria-label") ?? at.textContent;
          return {
            tag: at.tagName, name: name.trim(), outline: style.outlineStyle,
            width: parseFloat(style.outlineWidth),
            isOnScreen: box.bottom > 0 && box.top < innerHeight && box.width > 0,
          };
        }"""
    )
    return found


def tab_until(page: Page, name: str, most: int = 80) -> list[str]:
    """Press Tab until something of that name has the focus; what had it on the way."""
    passed = []
    for _ in range(most):
        page.keyboard.press("Tab")
        at = focused(page)
        assert at["outline"] != "none", at
        assert at["width"] >= 2, at
        assert at["isOnScreen"], at
        passed.append(at["name"])
        if at["name"] == name:
            return passed
    raise AssertionError(f"Tab does not reach {name}: {passed}")


def test_one_run_is_shown_whole(visit: Callable[..., Any], one: Path) -> None:
    page = visit(one).page
    assert page.title() == "ProSelfLC on digits"
    assert page.locator("html").get_attribute("lang") == "en"
    assert page.get_by_role("heading", level=1).all_inner_texts() == ["ProSelfLC on digits"]
    headings = page.get_by_role("heading", level=2).all_inner_texts()
    links = page.get_by_role("navigation").get_by_role("link")
    assert len(headings) == links.count() == 8
    for link in links.all():
        target = page.locator(link.get_attribute("href"))
        link.click()
        expect(target).to_be_in_viewport()
    summary = load_run(one.parent / "proselflc").summary
    assert f"{summary['test_accuracy']:.1%}" in page.locator(".lead").first.inner_text()
    assert page.locator(".chart svg").count() == 11
    said = page.locator("svg").evaluate_all(
        """(all) => all.map((one) => one.getAttribute("aria-label")
          ?? one.getAttribute("aria-labelledby").split(" ").map(
            (id) => document.getElementById(id).textContent).join(": "))"""
    )
    assert len(said) == 11 + page.locator("#cards .card").count()
    assert all(len(words) > 20 for words in said)
    assert all(re.search(r"\d", words) for words in said)


def test_three_runs_are_compared(visit: Callable[..., Any], three: Path) -> None:
    page = visit(three).page
    assert page.title() == "3 runs on digits"
    table = page.get_by_role("region", name="Runs compared")
    assert table.get_by_role("rowheader").all_inner_texts() == [
        "proselflc",
        "cce",
        "proselflc_auto",
    ]
    bold = table.locator("strong").all_inner_texts()
    assert len(bold) >= 4
    for name in ("correct_fitting", "generalisation", "reliability"):
        legend = " ".join(page.locator(f"svg[aria-labelledby^={name}] text").all_text_contents())
        for run in ("proselflc", "cce", "proselflc_auto"):
            assert f"{run} · " in legend
    said = page.get_by_text("trust its own predictions").all_inner_texts()
    assert [words.partition(": ")[0] for words in said] == ["proselflc_auto"]
    assert page.locator("svg[aria-labelledby^=held_out_loss]").count() == 1
    agreeing = [re.search(r"([123]) of 3 runs agree", words) for words in shown(page, ".facts")]
    assert all(agreeing)


def test_every_picture_is_one(visit: Callable[..., Any], one: Path) -> None:
    page = visit(one).page
    sizes = page.locator(".card img").evaluate_all(
        "(all) => all.map((one) => [one.naturalWidth, one.naturalHeight, one.width, one.alt])"
    )
    assert len(sizes) == page.locator(".card").count() > FEW
    assert {(width, height, shown) for width, height, shown, _ in sizes} == {(8, 8, 96)}
    assert all(alt.startswith("Example digits/") for *_, alt in sizes)
    assert page.locator("img:not(.card img)").count() == 1  # the map, for where no script runs


def test_structure_is_sound(visit: Callable[..., Any], three: Path) -> None:
    page = visit(three).page
    ids = page.locator("[id]").evaluate_all("(all) => all.map((one) => one.id)")
    assert len(set(ids)) == len(ids)
    referred = page.locator("[aria-labelledby]").evaluate_all(
        "(all) => all.flatMap((one) => one.getAttribute('aria-labelledby').split(' '))"
    )
    assert set(referred) <= set(ids)
    levels = page.locator("h1, h2, h3, h4, h5, h6").evaluate_all(
        "(all) => all.map((one) => Number(one.tagName[1]))"
    )
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    unlabelled = page.locator("input, select, textarea, output").evaluate_all(
        "(all) => all.filter((one) => !one.labels?.length && one.id !== 'count').length"
    )
    assert unlabelled == 0
    assert page.locator("img:not([alt])").count() == 0
    assert page.locator("svg:not([role=img])").count() == 0
    for role, name in (
        ("searchbox", "Search"),
        ("combobox", "Given"),
        ("combobox", "Suggested"),
        ("combobox", "Order"),
        ("button", "Dark theme"),
        ("button", "Show all"),
        ("navigation", "Parts of this page"),
        ("link", "Skip to the content"),
    ):
        expect(page.get_by_role(role, name=name)).to_have_count(1)
    for role in ("banner", "main", "contentinfo"):
        expect(page.get_by_role(role)).to_have_count(1)


def test_the_policy_forbids_what_is_not_the_pages_own(visit: Callable[..., Any], one: Path) -> None:
    seen = visit(one)
    policy = seen.page.locator("meta[http-equiv=Content-Security-Policy]").get_attribute("content")
    assert policy.startswith("default-src 'none'; ")
    asked = len(seen.requests)
    seen.page.evaluate(
        """() => {
          const script = document.createElement("script");
          script.textContent = "alert('foreign')";
          const image = document.createElement("img");
          image.src = "http://127.0.0.1:9/picture.png";
          document.body.append(script, image);
          document.body.setAttribute("style", "color: red");
          return fetch("http://127.0.0.1:9/").catch(() => 0);
        }"""
    )
    assert len(seen.messages) >= 4
    assert all("Content Security Policy" in said or "violates" in said for said in seen.messages)
    red = "rgb(255, 0, 0)"
    assert seen.page.locator("body").evaluate("(body) => getComputedStyle(body).color") != red
    assert set(seen.refused) == {"csp"}
    assert len(seen.refused) == len(seen.requests[asked:])  # none of them left the browser
    del seen.requests[asked:]
    seen.messages.clear()


def test_the_gallery_is_ordered(visit: Callable[..., Any], one: Path) -> None:
    page = visit(one).page
    page.get_by_role("button", name="Show all").click()
    total = page.locator(".card").count()
    order = page.get_by_role("combobox", name="Order")
    for words, name, sign in (
        ("highest confidence first", "sure", -1),
        ("lowest quality first", "quality", 1),
        ("by given class", "given", 1),
        ("by suggested class", "suggested", 1),
    ):
        order.select_option(words)
        values = numbers(page, name)
        assert len(values) == total
        assert [sign * value for value in values] == sorted(sign * value for value in values)
        assert len(set(values)) > 1
        if name in ("given", "suggested"):  # of each the worst first
            worst = list(zip(values, numbers(page, "quality"), strict=True))
            assert worst == sorted(worst)
    order.select_option("by id")
    ids = shown(page, ".id")
    assert len(ids) == total
    assert ids == sorted(ids)


def test_what_is_shown_is_the_runs_own(visit: Callable[..., Any], one: Path) -> None:
    def said(p: float) -> str:
        return "<1%" if p < 0.005 else ">99%" if p > 0.995 else f"{p:.0%}"

    table = load_run(one.parent / "proselflc").examples.to_pandas().set_index("id")
    page = visit(one).page
    for words, labels, id_ in zip(
        shown(page, ".numbers:nth-of-type(2)"),
        shown(page, ".labels"),
        shown(page, ".id"),
        strict=True,
    ):
        row = table.loc[id_]
        assert row["is_suspect"]
        assert labels.replace("\n", " ").split("→")[0].split()[-1] == row["given_label"]
        assert labels.split()[-1] == row["suggested_label"]
        chances = f"quality {said(row['quality'])} · confidence {said(row['p_suggested'])}"
        assert words == f"{chances} · {row['action']}"


def test_examples_are_filtered_and_searched(visit: Callable[..., Any], one: Path) -> None:
    page = visit(one).page
    table = load_run(one.parent / "proselflc").examples.to_pandas()
    suspects = table[table["is_suspect"]]
    total = page.locator(".card").count()
    assert total == min(300, len(suspects))
    count = page.locator("#count")
    assert count.inner_text() == f"Showing {FEW}"
    assert visible(page, ".card") == FEW
    assert names_of(page, "given") == sorted(set(suspects["given_label"]))
    page.get_by_role("combobox", name="Given").select_option("3")
    of_given = page.locator(".card[data-given='3']").count()
    few = min(of_given, FEW)
    assert count.inner_text() == f"Showing {few} of {of_given} that match,"
    assert {words.split("→")[0].split()[-1] for words in shown(page, ".labels")} == {"3"}
    page.get_by_role("combobox", name="Suggested").select_option("2")
    both = shown(page, ".labels")
    assert both
    assert {words.split()[-1] for words in both} == {"2"}
    page.get_by_role("combobox", name="Given").select_option("any class")
    page.get_by_role("combobox", name="Suggested").select_option("any class")
    id_ = shown(page, ".id")[5]
    page.get_by_role("searchbox").fill(f"  {id_.upper()} ")
    assert shown(page, ".id") == [id_]
    assert count.inner_text() == "Showing 1 of 1 that match,"
    expect(page.get_by_role("button", name="Show all")).to_be_hidden()
    nothing = page.get_by_text("No example matches.")
    expect(nothing).to_be_hidden()
    page.get_by_role("searchbox").fill("no such thing")
    assert visible(page, ".card") == 0
    assert count.inner_text() == "Showing 0 of 0 that match,"
    expect(nothing).to_be_visible()
    page.get_by_role("button", name="Clear").click()
    expect(count).to_have_text(f"Showing {FEW}")
    expect(page.get_by_role("searchbox")).to_be_focused()
    assert page.get_by_role("searchbox").input_value() == ""
    assert visible(page, ".card") == FEW
    expect(nothing).to_be_hidden()


def test_tables_are_sorted(visit: Callable[..., Any], one: Path) -> None:
    page = visit(one).page
    table = page.get_by_role("region", name="Numbers by class")
    heading = table.get_by_role("columnheader", name="suspects")
    column = table.get_by_role("columnheader").all_inner_texts().index(heading.inner_text())

    def values() -> list[int]:
        cells = table.locator(f"tbody tr > :nth-child({column + 1})").all_inner_texts()
        return [int(words.replace(",", "")) for words in cells]

    suspects = load_run(one.parent / "proselflc").examples.to_pandas().query("is_suspect")
    counted = Counter(suspects["given_label"])
    assert values() == [counted[str(k)] for k in range(10)]
    assert heading.get_attribute("aria-sort") is None
    heading.get_by_role("button").click()
    assert values() == sorted(counted.values(), reverse=True)
    assert heading.get_attribute("aria-sort") == "descending"
    heading.get_by_role("button").click()
    assert values() == sorted(counted.values())
    assert heading.get_attribute("aria-sort") == "ascending"
    name = table.get_by_role("columnheader", name="class")
    name.get_by_role("button").click()
    assert heading.get_attribute("aria-sort") is None
    assert name.get_attribute("aria-sort") == "ascending"
    name.get_by_role("button").click()
    assert table.get_by_role("rowheader").all_inner_texts() == [str(k) for k in range(9, -1, -1)]


def test_names_are_ordered_as_people_count(
    visit: Callable[..., Any], write: Callable[..., Path]
) -> None:
    names = [f"class {k}" for k in (10, 9, 1, 2)]
    page = visit(write("counted", names=names, n=16, drawn=False)).page
    table = page.get_by_role("region", name="Numbers by class")
    table.get_by_role("button", name="class").click()
    assert table.get_by_role("rowheader").all_inner_texts() == [f"class {k}" for k in (1, 2, 9, 10)]


def test_the_keyboard_reaches_and_works_everything(visit: Callable[..., Any], three: Path) -> None:
    page = visit(three).page
    assert tab_until(page, "Skip to the content") == ["Skip to the content"]
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.reload()
    tab_until(page, "Dark theme")
    page.keyboard.press("Space")
    assert focused(page)["name"] == "Light theme"
    assert page.locator("html").get_attribute("data-theme") == "dark"
    passed = tab_until(page, "test accuracy")
    assert passed[:3] == ["Runs compared", "run", "method"]
    table = page.get_by_role("region", name="Runs compared")
    heading = table.get_by_role("columnheader", name="test accuracy", exact=True)
    page.keyboard.press("Enter")
    assert heading.get_attribute("aria-sort") == "descending"
    page.keyboard.press("Space")
    assert heading.get_attribute("aria-sort") == "ascending"
    assert focused(page)["name"] == "test accuracy"  # it is still there after sorting
    passed = tab_until(page, "Given")
    links = page.get_by_role("navigation").get_by_role("link").all_inner_texts()
    assert [name for name in passed if name in links] == links
    page.keyboard.press("3")
    assert page.get_by_role("combobox", name="Given").input_value() == "3"
    assert set(numbers(page, "given")) == {3}
    page.keyboard.press("Home")
    assert tab_until(page, "Search") == ["Suggested", "Order", "Search"]
    page.keyboard.type("digits/00")
    assert all("digits/00" in words for words in shown(page, ".id"))
    page.keyboard.press("Enter")  # sends nothing anywhere
    page.keyboard.press("Escape")
    assert page.get_by_role("searchbox").input_value() == ""
    assert tab_until(page, f"Show all {page.locator('.card').count()}")
    page.keyboard.press("Enter")
    assert visible(page, ".card") == page.locator(".card").count()
    # Where the button was, one goes on with what it has shown.
    at = page.evaluate(
        "[...document.querySelectorAll('.card')].indexOf(document.activeElement.closest('.card'))"
    )
    assert at == FEW


@pytest.mark.parametrize("which", ["one", "three"])
def test_text_can_be_read_in_both_themes(
    visit: Callable[..., Any], request: pytest.FixtureRequest, which: str
) -> None:
    page = visit(request.getfixturevalue(which)).page
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        paper = channels(page.evaluate("getComputedStyle(document.body).backgroundColor"))
        assert (luminance(paper) < 0.02) if scheme == "dark" else (luminance(paper) > 0.9)
        page.get_by_role("searchbox").fill("digits/001")  # a few examples stand for all
        found = contrasts(page)
        assert len(found) > 250
        assert {words: value for words, value in found.items() if value < 4.5} == {}


def test_the_theme_can_be_chosen(visit: Callable[..., Any], one: Path) -> None:
    def colours(page: Page) -> tuple[str, str, str]:
        found = page.evaluate(
            """() => [
              getComputedStyle(document.body).backgroundColor,
              getComputedStyle(document.body).color,
              getComputedStyle(document.querySelector(".chart text")).fill,
            ]"""
        )
        paper, ink, drawn = found
        return paper, ink, drawn

    light = visit(one, color_scheme="light").page
    dark = visit(one, color_scheme="dark").page
    bright, gloomy = colours(light), colours(dark)
    assert all(day != night for day, night in zip(bright, gloomy, strict=True))
    light.get_by_role("button", name="Dark theme").click()
    assert colours(light) == gloomy
    light.get_by_role("button", name="Light theme").click()
    assert colours(light) == bright
    dark.get_by_role("button", name="Light theme").click()
    assert colours(dark) == bright
    system = visit(one, color_scheme="light").page
    system.emulate_media(color_scheme="dark")
    expect(system.get_by_role("button", name="Light theme")).to_be_visible()
    assert colours(system) == gloomy


@pytest.mark.parametrize("which", ["one", "three", "bare", "long"])
def test_everything_fits_the_width(
    visit: Callable[..., Any], request: pytest.FixtureRequest, which: str
) -> None:
    page = visit(request.getfixturevalue(which)).page
    for width in (360, 768, 1280, 1920):
        page.set_viewport_size({"width": width, "height": 800})
        wide, room = page.evaluate(
            "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"
        )
        assert wide <= room
        beyond = page.evaluate(
            """() => [...document.querySelectorAll("body *")].filter((one) => {
              if (one.closest(".scroll table, pre, .skip, .hidden")) return false;
              const box = one.getBoundingClientRect();
              return box.width && (box.left < -0.5 || box.right > innerWidth + 0.5);
            }).map((one) => one.outerHTML.slice(0, 100))"""
        )
        assert beyond == []
        cut = page.evaluate(
            """() => [...document.querySelectorAll("body :not(.scroll, pre, input)")].filter(
              (one) => one.checkVisibility() && !one.closest("svg, .hidden")
                && getComputedStyle(one).overflowX !== "visible"
                && one.scrollWidth > one.clientWidth,
            ).map((one) => one.outerHTML.slice(0, 100))"""
        )
        assert cut == []


@pytest.mark.parametrize("which", ["one", "three", "bare", "long"])
def test_figures_can_be_read_on_a_phone(
    visit: Callable[..., Any], request: pytest.FixtureRequest, which: str
) -> None:
    page = visit(request.getfixturevalue(which), **PHONE).page
    drawn = [one for one in page.evaluate(TEXTS) if one["figure"]]
    assert len(drawn) > 20
    assert {one["text"] for one in drawn if one["pixels"] < 9} == set()
    frames = page.locator(".chart svg").evaluate_all(
        """(all) => Object.fromEntries(all.map((one) => {
          const box = one.getBoundingClientRect();
          return [one.getAttribute("aria-labelledby"), [box.left, box.top, box.right, box.bottom]
            .map((side, k) => side + (k % 2 ? scrollY : scrollX))];
        }))"""
    )
    for one in drawn:
        left, top, right, bottom = frames[one["figure"]]
        assert left - 1 <= one["left"] <= one["right"] <= right + 1, one
        assert top - 1 <= one["top"] <= one["bottom"] <= bottom + 1, one
    overlapping = [
        (one["text"], other["text"])
        for k, one in enumerate(drawn)
        for other in drawn[:k]
        if one["figure"] == other["figure"]
        and min(one["right"], other["right"]) - max(one["left"], other["left"]) > 1
        and min(one["bottom"], other["bottom"]) - max(one["top"], other["top"]) > 4
    ]
    assert overlapping == []


@pytest.mark.parametrize("which", ["one", "three"])
def test_on_paper_everything_is_there_and_nothing_to_press(
    visit: Callable[..., Any], request: pytest.FixtureRequest, which: str
) -> None:
    path = request.getfixturevalue(which)
    page = visit(path, color_scheme="dark", width=718).page  # A4 between its margins
    assert visible(page, ".card") == FEW
    page.emulate_media(media="print")
    for selector in ("#controls", "#theme", "#more", "nav", ".skip"):
        expect(page.locator(selector)).to_be_hidden()
    assert visible(page, ".card") == page.locator(".card").count() > FEW
    ink = page.evaluate("getComputedStyle(document.body).color")
    assert luminance(channels(ink)) < 0.05
    beyond = page.evaluate(
        """() => [...document.querySelectorAll("table, .chart, pre, .card")].filter(
          (one) => one.getBoundingClientRect().right > innerWidth + 1
            || one.scrollWidth > one.clientWidth + 1
        ).map((one) => one.outerHTML.slice(0, 300))"""
    )
    assert beyond == []


def test_without_script_everything_is_there(visit: Callable[..., Any], three: Path) -> None:
    page = visit(three, java_script_enabled=False).page
    cards = page.locator("#cards .card")
    assert visible(page, "#cards .card") == cards.count() > FEW
    for selector in ("#controls", "#theme", "#more", "#nothing", "thead button"):
        assert visible(page, selector) == 0
    assert f"Showing {cards.count()} of {cards.count()}" in page.locator(".count").inner_text()
    assert visible(page, "h2") == 8
    assert visible(page, ".chart svg") == page.locator(".chart svg").count() == 13


def test_names_of_strangers_are_text(visit: Callable[..., Any], write: Callable[..., Path]) -> None:
    def page(title: str, names: tuple[str, ...], run: str, *, drawn: bool = False) -> Page:
        n = 24
        path = write(
            title,
            drawn=drawn,
            name=run,
            n=n,
            suspects=n,
            names=names,
            ids=[f"{names[k % 6]}/{k}" for k in range(n)],
            inputs=Texts(tuple(f"{names[k % 6]} text {k}" for k in range(n))),
            config={"data": names[1], "label_column": names[2], "option": names[0]},
            summary={"method": names[0], "data": names[1], "noise": names[2]},
        )
        found: Page = visit(path).page
        return found

    def elements(page: Page) -> dict[str, int]:
        return Counter(page.locator("*").evaluate_all("(all) => all.map((one) => one.localName)"))

    run = "\"><img src=x onerror='alert(6)'>"
    tame = page("tame", tuple("abcdef"), "tame")
    assert elements(page("undrawn", HOSTILE, run)) == elements(tame)
    hostile = page("hostile", HOSTILE, run, drawn=True)
    assert hostile.locator("script").count() == 1
    assert hostile.locator("img, iframe, object, embed, base").count() == 0
    assert hostile.locator("svg script, svg a, svg foreignObject").count() == 0
    loud = hostile.locator("*").evaluate_all(
        "(all) => all.flatMap((one) => one.getAttributeNames()).filter((name) => /^on/.test(name))"
    )
    assert loud == []
    assert names_of(hostile, "given") == sorted(HOSTILE)
    assert set(shown(hostile, ".labels b")) == set(HOSTILE)
    assert all(any(name in words for name in HOSTILE) for words in shown(hostile, ".id"))
    assert all(any(name in words for name in HOSTILE) for words in shown(hostile, ".text"))
    classes = hostile.get_by_role("region", name="Numbers by class").get_by_role("rowheader")
    assert classes.all_inner_texts() == list(HOSTILE)
    drawn = hostile.locator("svg[aria-labelledby^=transition] text").all_text_contents()
    assert any(words.startswith("<scri") for words in drawn)
    assert HOSTILE[1] in hostile.title()
    hostile.get_by_role("searchbox").fill(HOSTILE[0])
    assert {words.split("→")[0].strip() for words in shown(hostile, ".labels")}
    hostile.get_by_role("combobox", name="Given").select_option(HOSTILE[0])
    assert visible(hostile, ".card") == 4
    assert "49" not in hostile.locator("body").inner_text().split()


def test_what_is_not_known_leaves_no_gap(visit: Callable[..., Any], bare: Path) -> None:
    page = visit(bare).page
    words = page.locator("body").inner_text()
    for absent in (
        "true value",
        "realised",
        "Correct fitting",
        "Wrong fitting",
        "AUROC",
    ):
        assert absent not in words
    headings = page.get_by_role("heading", level=2).all_inner_texts()
    links = page.get_by_role("navigation").get_by_role("link").all_inner_texts()
    assert len(headings) == len(links) == 5  # no calibration without a test set
    empty = page.locator("h2, h3, figcaption").evaluate_all(
        """(all) => all.filter((one) => {
          const next = one.nextElementSibling;
          return !next || next.tagName <= one.tagName && /^H[1-6]$/.test(next.tagName)
            || next.getBoundingClientRect().height < 10;
        }).map((one) => one.textContent)"""
    )
    assert empty == []
    bare_grids = page.locator(".charts, .beside, .tiles, .cards").evaluate_all(
        "(all) => all.filter((one) => !one.children.length).length"
    )
    assert bare_grids == 0
    drawn = page.locator(".chart figcaption").all_inner_texts()
    assert drawn[:2] == ["Agreement", "Entropy"]
    assert page.locator("img").count() == 0
    expect(page.get_by_text("The examples themselves are not shown.")).to_be_visible()
    assert visible(page, ".card") == 6


def test_pictures_texts_and_features_are_seen(
    visit: Callable[..., Any], write: Callable[..., Path]
) -> None:
    rng = np.random.default_rng(0)
    pictures = visit(
        write(
            "pictures", drawn=False, inputs=Images(rng.integers(0, 256, (12, 40, 80, 3), np.uint8))
        )
    ).page
    sizes = pictures.locator("img").evaluate_all(
        "(all) => all.map((one) => [one.naturalWidth > 0, one.width, one.height])"
    )
    assert sizes == [[True, 96, 48]] * 6
    texts = visit(
        write("texts", drawn=False, inputs=Texts(tuple(f"word-{k} and more" for k in range(12))))
    ).page
    assert shown(texts, ".text") == [f"word-{k} and more" for k in range(6)]
    texts.get_by_role("searchbox").fill("WORD-4 and")
    assert shown(texts, ".id") == ["id-4"]
    values = np.eye(12, 3, dtype=np.float32)
    features = visit(
        write("features", drawn=False, inputs=Features(values, ("weight", "height", "age")))
    ).page
    assert "weight 1 (0.25 ± 0.433)" in shown(features, ".deviations")[0]
