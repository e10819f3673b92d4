"""The page of a review in a real browser: whole sessions, by keyboard, killed, in two tabs."""

from __future__ import annotations

import csv
import json
import re
import shutil
import time
from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser, BrowserContext, Dialog, Page, Route, expect

from proselflc.auditing.neighbours import neighbours_of
from proselflc.auditing.plain_features import PlainFeatures
from proselflc.data.tables.table_file import open_table
from proselflc.reviewing.view import next_steps
from proselflc.run.reader import load_run

pytestmark = pytest.mark.browser

PATIENCE = 30_000
HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(2)>',
    "</option><svg onload=alert(3)>",
    "javascript:alert(4)",
    "\u202etac \x07",
)


@pytest.fixture(scope="module")
def trained(program: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was really trained, with hundreds of suspects."""
    path = tmp_path_factory.mktemp("trained") / "run"
    program(
        *("train", "--data", "digits", "--noise", "pair:0.4", "--model", "mlp", "--quiet"),
        *("--epochs", 4, "--out", path),
    )
    return path


@pytest.fixture(scope="module")
def mixed(program: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the raw penguins, of which every seventh species is exchanged."""
    folder = tmp_path_factory.mktemp("mixed")
    path = folder / "penguins.csv"
    original = Path(__file__).parents[2] / "examples" / "penguins.csv"
    with original.open(newline="") as file:
        heading, *rows = csv.reader(file)
    k = heading.index("Species")
    names = sorted({row[k] for row in rows})
    for row in rows[::7]:
        row[k] = names[(names.index(row[k]) + 1) % len(names)]
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([heading, *rows])
    program("train", path, "--label", "Species", "--quiet", "--out", folder / "run")
    return folder / "run"


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    """The same, nobody has reviewed."""
    return Path(shutil.copytree(trained, tmp_path / "run"))


class Tabs:
    """Pages of a server, and what they have done that they should not."""

    def __init__(self, context: BrowserContext) -> None:
        self.context = context
        self.said: list[str] = []
        self.elsewhere: list[str] = []
        self.allowed: list[str] = []
        self._hosts: set[str] = set()

    def open(self, server: Any) -> Page:
        self._hosts.add(server.host)
        page = self.context.new_page()
        page.set_default_timeout(PATIENCE)
        page.on("pageerror", lambda error: self.said.append(str(error)))
        page.on("console", lambda said: self.said.append(f"{said.type}: {said.text}"))
        page.on("dialog", self._dismiss)
        page.on("request", lambda one: self._hear(one.url))
        page.goto(server.address)
        ready(page)
        return page

    def _dismiss(self, dialog: Dialog) -> None:
        self.said.append(dialog.message)
        dialog.dismiss()

    def _hear(self, url: str) -> None:
        if url.partition("//")[2].partition("/")[0] not in self._hosts:
            self.elsewhere.append(url)

    def check(self) -> None:
        assert self.elsewhere == []
        assert [one for one in self.said if not any(part in one for part in self.allowed)] == []


@pytest.fixture
def tabs(browser: Browser) -> Iterator[Callable[..., Tabs]]:
    """Opens windows; whatever is done there, nothing may complain or be asked for elsewhere."""
    opened: list[Tabs] = []

    def go(*, width: int = 1280, height: int = 900, **options: Any) -> Tabs:
        context = browser.new_context(
            viewport={"width": width, "height": height}, reduced_motion="reduce", **options
        )
        opened.append(Tabs(context))
        return opened[-1]

    yield go
    for one in opened:
        one.context.close()
        one.check()


def ready(page: Page) -> None:
    page.wait_for_selector("body.ready")


def lines(run: Path) -> list[dict[str, Any]]:
    """What is on disk, without the first line."""
    path = run / "review.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()[1:]] if path.exists() else []


def shown(page: Page) -> tuple[str, str, str]:
    """Id, given and suggested class of the suspect on the page."""
    given, suggested = page.locator("#question bdi").all_inner_texts()
    return page.locator("#id").inner_text(), given, suggested


def press(page: Page, key: str) -> None:
    """A key that decides: what is on disk is what the page has gone on from."""
    before = shown(page)[0]
    page.keyboard.press(key)
    page.wait_for_function(
        "before => document.getElementById('id').textContent !== before", arg=before
    )


def test_a_whole_session_by_keyboard(
    run: Path, serve: Callable[..., Any], tabs: Callable[..., Tabs], program: Any, tmp_path: Path
) -> None:
    server = serve(run, "--name", "anna")
    page = tabs().open(server)
    begin = time.monotonic()
    expected: list[tuple[str, str | None]] = []
    for key in "aaakauaak":
        name, given, suggested = shown(page)
        press(page, key)
        label = {"a": suggested, "k": given, "u": None}[key]
        expected.append((name, label))
        last = lines(run)[-1]
        assert (last["example"], last["label"], last["by"]) == (name, label, "anna")
        assert (last["given"], last["suggested"]) == (given, suggested)
    name, given, suggested = shown(page)
    other = next(str(k) for k in range(10) if str(k) not in (given, suggested))
    page.keyboard.press("c")
    expect(page.locator("#picker-text")).to_be_focused()
    page.keyboard.type(other)
    expect(page.locator("#picker-list [aria-selected=true]")).to_have_text(other)
    press(page, "Enter")
    expected.append((name, other))
    assert time.monotonic() - begin < 60  # ten decisions in a minute
    assert [(one["example"], one["label"]) for one in lines(run)] == expected

    skipped = shown(page)[0]
    press(page, "s")
    press(page, "ArrowLeft")
    assert shown(page)[0] == skipped
    page.keyboard.press("z")
    page.wait_for_function("name => document.getElementById('id').textContent === name", arg=name)
    assert lines(run)[-1]["undo"] == 11
    expect(page.locator("#standing")).to_be_hidden()
    page.wait_for_selector("#likely button:nth-of-type(1)")
    likeliest = page.locator("#likely button bdi").nth(1).inner_text()
    press(page, "2")
    expected[-1] = (name, likeliest)
    expect(page.locator("#progress")).to_contain_text("10 of")
    expect(page.locator("#progress")).to_contain_text("1 marked “cannot tell”")
    expect(page.locator("#said")).to_contain_text("Given")

    out = tmp_path / "labels.parquet"
    program("export", run, "--out", out, "--reviewed")
    import pyarrow.parquet as pq

    rows = {row["id"]: row for row in pq.read_table(out).to_pylist()}
    for name, label in expected:
        row = rows[name]
        assert row["label"] == (row["given_label"] if label is None else label)
        if label is None:
            assert row["reviewed"] == "unsure"
        else:
            assert row["reviewed"] == ("kept" if label == row["given_label"] else "corrected")
    assert sum(row["reviewed"] is not None for row in rows.values()) == 10
    done = server.kill(2)  # as Ctrl-C does
    assert done.code == 0
    assert "10 of" in done.stderr
    assert "--reviewed" in done.stderr


def test_after_a_reload_it_goes_on_where_it_was(
    run: Path, serve: Callable[..., Any], tabs: Callable[..., Tabs]
) -> None:
    page = tabs().open(serve(run))
    names = []
    for key in "aks":
        names.append(shown(page)[0])
        press(page, key)
    here, progress = shown(page), page.locator("#progress").inner_text()
    page.reload()
    ready(page)
    assert shown(page) == here
    assert page.locator("#progress").inner_text() == progress
    assert page.url.endswith("/")  # the key is not left in the address
    page.keyboard.press("z")  # what was decided before the reload can still be taken back
    page.wait_for_function(
        "name => document.getElementById('id').textContent === name", arg=names[1]
    )
    assert lines(run)[-1] == {**lines(run)[-1], "undo": 3}


def test_a_server_that_is_killed_and_started_again_loses_nothing(
    run: Path, serve: Callable[..., Any], tabs: Callable[..., Tabs]
) -> None:
    window = tabs()
    window.allowed += ["Failed to load resource: net::ERR_", "401 (Unauthorized)"]
    server = serve(run)
    page = window.open(server)
    first = shown(page)
    press(page, "a")
    second = shown(page)
    assert server.kill().code == -9
    page.keyboard.press("k")
    expect(page.locator("#lost")).to_be_visible()
    expect(page.locator("#lost")).to_contain_text("Not saved yet")
    assert shown(page) == second  # it has not gone on
    assert len(lines(run)) == 1
    again = serve(run, "--port", server.port)
    assert again.port == server.port
    assert again.address != server.address
    expect(page.locator("#lost")).to_contain_text("was restarted")
    window.open(again).close()  # as a user would, in the same browser
    page.get_by_role("button", name="Try again").press("Enter")
    expect(page.locator("#lost")).to_be_hidden()
    page.wait_for_function(
        "before => document.getElementById('id').textContent !== before", arg=second[0]
    )
    found = [(one["example"], one["label"]) for one in lines(run)]
    assert found == [(first[0], first[2]), (second[0], second[1])]


def test_two_tabs_do_not_overwrite_each_other_unseen(
    run: Path, serve: Callable[..., Any], tabs: Callable[..., Tabs]
) -> None:
    server, window = serve(run), tabs()
    one, other = window.open(server), window.open(server)
    name, given, suggested = shown(one)
    assert shown(other) == (name, given, suggested)
    press(one, "a")
    other.keyboard.press("k")
    expect(other.locator("#conflict")).to_be_visible()
    expect(other.locator("#conflict-text")).to_contain_text(f"decided “{suggested}”")
    expect(other.locator("#conflict-text")).to_contain_text(f"Your decision is “{given}”")
    assert [line["label"] for line in lines(run)] == [suggested]
    expect(other.locator("#conflict-theirs")).to_be_focused()
    expect(other.locator("#conflict-theirs")).to_have_text(f"Keep “{suggested}”")
    press(other, "Enter")
    expect(other.get_by_role("status")).to_contain_text("One decision was left unchanged. Given")
    assert [line["label"] for line in lines(run)] == [suggested]

    name, given, suggested = shown(one)
    assert shown(other)[0] == name
    press(one, "u")
    other.keyboard.press("a")
    expect(other.locator("#conflict-text")).to_contain_text("cannot tell")
    other.keyboard.press("Tab")
    press(other, "Enter")  # use mine
    mine = [line for line in lines(run) if line["example"] == name]
    assert [line["label"] for line in mine] == [None, suggested]
    one.keyboard.press("z")
    expect(one.get_by_role("status")).to_contain_text("Not undone: another reviewer")
    assert "undo" not in lines(run)[-1]
    one.reload()
    ready(one)

    name, given, suggested = shown(one)
    press(other, "a")
    press(one, "a")  # whoever says the same is no conflict
    expect(one.locator("#conflict")).to_be_hidden()
    assert len([line for line in lines(run) if line["example"] == name]) == 1
    before = one.locator("#progress").inner_text()
    press(other, "a")
    one.evaluate("dispatchEvent(new Event('focus'))")  # back in this window
    expect(one.locator("#progress")).not_to_have_text(before)
    expect(one.locator("#standing")).to_contain_text("Decided in another window: accepted")

    press(one, "a")
    press(one, "b")
    expect(one.locator("#standing")).to_have_text(re.compile("^accepted"))
    one.evaluate("dispatchEvent(new Event('focus'))")  # what is known already is not said again
    name, given, _ = shown(other)
    press(other, "k")
    one.route("**/api/state?*", more_than_can_be_told)
    with one.expect_response("**/api/state?*"):
        one.evaluate("dispatchEvent(new Event('focus'))")
    expect(one.locator("#standing")).to_have_text(re.compile("^accepted"))
    press(one, "s")
    assert shown(one)[0] != name  # it is decided, as is known from what was loaded anew
    assert [line["label"] for line in lines(run) if line["example"] == name] == [given]


def more_than_can_be_told(route: Route) -> None:
    route.fulfill(json={**route.fetch().json(), "changed": None})


def test_fifty_alike_at_once(
    run: Path, serve: Callable[..., Any], tabs: Callable[..., Tabs]
) -> None:
    page = tabs().open(serve(run))
    page.keyboard.press("g")
    expect(page.locator("#grid")).to_be_focused()
    page.wait_for_selector(".cell b")
    page.keyboard.press("f")
    expect(page.locator("#selected")).not_to_have_text("0 selected")
    many = int(page.locator("#selected").inner_text().split()[0])
    assert 2 <= many <= 50
    pair = page.locator("select[name=pair] option:checked").inner_text()
    page.keyboard.press("Space")  # the first one is not alike
    expect(page.locator("#selected")).to_have_text(f"{many - 1} selected")
    page.keyboard.press("a")
    expect(page.locator("#progress")).to_contain_text(f"{many - 1} of")
    written = lines(run)
    assert len(written) == many - 1
    assert {(one["given"], one["label"]) for one in written} == {
        tuple(pair.partition(" (")[0].split(" → "))
    }
    assert len({one["key"] for one in written}) == 1
    page.keyboard.press("z")  # all of them
    expect(page.locator("#progress")).to_contain_text("0 of")
    assert len(lines(run)) == 2 * (many - 1)
    page.keyboard.press("Shift+ArrowRight")
    expect(page.locator("#selected")).to_have_text("2 selected")
    page.keyboard.press("u")
    expect(page.locator("#progress")).to_contain_text("2 marked “cannot tell”")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")  # to look at one closely
    expect(page.locator("#one")).to_be_visible()
    expect(page.locator("#question")).to_be_focused()


def test_filters_and_orders(
    run: Path, serve: Callable[..., Any], tabs: Callable[..., Tabs]
) -> None:
    table = load_run(run).examples
    suspects = table.filter(table["is_suspect"]).to_pylist()
    page = tabs().open(serve(run))
    worst = min(suspects, key=lambda row: (row["quality"], row["index"]))
    assert shown(page) == (worst["id"], worst["given_label"], worst["suggested_label"])
    page.keyboard.press("p")
    expect(page.locator("select[name=pair]")).to_be_focused()
    page.locator("select[name=given]").select_option("3")
    count = sum(row["given_label"] == "3" for row in suspects)
    expect(page.locator("#place")).to_have_text(f"1 of {count}")
    page.locator("input[name=high]").fill("70")
    page.keyboard.press("Tab")
    less = [r for r in suspects if r["given_label"] == "3" and r["p_suggested"] <= np.float32(0.7)]
    expect(page.locator("#place")).to_have_text(f"1 of {len(less)}")
    page.locator("select[name=given]").select_option("")
    page.locator("input[name=high]").fill("100")
    page.locator("select[name=order]").select_option("teaching")
    expect(page.locator("#place")).to_have_text(f"1 of {len(suspects)}")
    doubted = max(suspects, key=lambda row: row["quality"])
    page.wait_for_function(
        "name => document.getElementById('id').textContent === name", arg=doubted["id"]
    )
    page.keyboard.press("Escape")  # out of the filters
    pairs = set()
    for _ in range(5):
        pairs.add(shown(page)[1:])
        press(page, "s")
    assert len(pairs) == 5  # one of every pair before the second of any
    page.locator("select[name=state]").select_option("decided")
    expect(page.locator("#done-title")).to_have_text("No suspect matches the filters")
    expect(page.locator("#done-text")).to_have_text(f"{len(suspects)} suspects are undecided.")
    expect(page.locator("#done-next")).to_be_hidden()  # there is nothing to train on
    page.get_by_role("button", name="Show undecided suspects").press("Enter")
    expect(page.locator("#place")).to_have_text(f"1 of {len(suspects)}")


def test_duplicates_are_a_list_of_their_own(
    reviewable: Callable[..., Path],
    serve: Callable[..., Any],
    tabs: Callable[..., Tabs],
    tmp_path: Path,
) -> None:
    run = reviewable(tmp_path, suspects=2)
    x = np.random.default_rng(0).normal(size=(12, 3)).astype(np.float32)
    x[9] = x[7]
    neighbours_of(PlainFeatures(x, "test columns"), 12).save(run / "neighbours.npz")
    page = tabs().open(serve(run))
    expect(page.locator("#copies")).to_be_hidden()
    lists = page.locator("select[name=among]")
    assert lists.locator("option").all_text_contents() == [
        *("suspects", "conflicting duplicates (2)", "all duplicates (2)")
    ]
    lists.select_option("conflicting")
    expect(page.locator("#place")).to_have_text("1 of 2")
    expect(page.locator("#copies")).to_have_text("Same content: id-9 (cat)")
    expect(page.locator("#accept")).to_be_hidden()  # the run suggests the given label
    page.get_by_role("button", name="Keep: dog").click()
    expect(page.locator("#id")).to_have_text("id-9")
    assert lines(run)[-1]["example"] == "id-7"
    none = reviewable(tmp_path, "none", suspects=0)
    shutil.copy(run / "neighbours.npz", none)
    page = tabs().open(serve(none))
    expect(page.locator("#place")).to_have_text("1 of 2")  # without suspects, the first list


def test_what_helps_to_decide_is_shown(
    run: Path, serve: Callable[..., Any], tabs: Callable[..., Tabs]
) -> None:
    page = tabs().open(serve(run))
    name, given, suggested = shown(page)
    table = load_run(run).examples
    row = table.filter(np.array(table["id"].to_pylist()) == name).to_pylist()[0]
    chances = page.locator("#chances dd b").all_inner_texts()
    for words, p in zip(chances, (row["p_given"], row["p_suggested"]), strict=True):
        assert words in (f"{p:.0%}", "<1%", ">99%")
    image = page.locator("#exhibit img")
    expect(image).to_have_js_property("complete", True)
    assert image.evaluate("image => image.naturalWidth") == 8
    expect(page.locator("#curve svg")).to_have_attribute("role", "img")
    assert "Over 4 epochs" in (page.locator("#curve svg").get_attribute("aria-label") or "")
    for side, label in (("given", given), ("suggested", suggested)):
        expect(page.locator(f"#near-{side} img")).to_have_count(4)
        expect(page.locator(f"#near-{side}-name")).to_have_text(f"Confidently {label}")
        near = page.locator(f"#near-{side} .id").all_inner_texts()
        rows = table.filter([one in near for one in table["id"].to_pylist()])
        assert set(rows["given_label"].to_pylist()) == {label}
        assert not any(rows["is_suspect"].to_pylist())
    expect(page.locator("#near-how")).to_contain_text("nearest examples")


@pytest.fixture(scope="module")
def large(reviewable: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A hundred thousand suspects of a thousand classes."""
    folder, n = tmp_path_factory.mktemp("large"), 100_000
    y = np.arange(n) % 1000
    x = np.random.default_rng(0).integers(0, 255, (n, 4, 4), np.uint8)
    names = [f"class {k}" for k in range(1000)]
    ids = [str(k) for k in range(n)]
    np.savez(folder / "data.npz", x=x, y=y, names=names, ids=ids)
    return reviewable(
        *(folder, "run"),
        n=n,
        names=names,
        ids=ids,
        suspects=n,
        data=str(folder / "data.npz"),
        epochs=2,
    )


def test_a_hundred_thousand_suspects_scroll_without_lag(
    large: Path, serve: Callable[..., Any], tabs: Callable[..., Tabs]
) -> None:
    page = tabs().open(serve(large))
    expect(page.locator("#place")).to_have_text("1 of 100,000")
    expect(page.locator("#exhibit img")).to_have_js_property("naturalWidth", 4)
    for _ in range(3):
        press(page, "a")
    page.keyboard.press("g")
    page.wait_for_selector(".cell b")
    slowest, seen = page.evaluate(
        """async () => {
          const grid = document.getElementById("grid"), tall = grid.scrollHeight, seen = new Set();
          let slowest = 0;
          for (let k = 1; k <= 40; k += 1) {
            const begin = performance.now();
            grid.scrollTop = tall * k / 40;
            await new Promise((go) => requestAnimationFrame(() => requestAnimationFrame(go)));
            slowest = Math.max(slowest, performance.now() - begin);
            document.querySelectorAll(".cell").forEach((cell) => seen.add(cell.id));
            if (document.querySelectorAll(".cell").length > 120) throw new Error("too many cells");
          }
          return [slowest, seen.size];
        }"""
    )
    assert seen > 500
    assert slowest < 1000  # two frames, on a machine that is busy
    page.wait_for_selector("#cell-99999 b")  # the last one is there, and filled
    page.locator("#grid").focus()
    page.keyboard.press("Home")
    page.wait_for_selector("#cell-0 b")
    page.keyboard.press("Shift+End")
    expect(page.locator("#selected")).to_have_text("500 selected")
    page.keyboard.press("Space")  # no more than the server takes at once
    expect(page.get_by_role("status")).to_have_text("Not selected. 500 selected in total.")
    page.keyboard.press("Escape")
    page.keyboard.press("End")
    page.wait_for_selector("#cell-99999.at b")
    page.keyboard.press("Space")
    begin = time.monotonic()
    page.keyboard.press("c")
    page.keyboard.type("777")
    expect(page.locator("#picker-list li")).to_have_text(["class 777"])
    page.keyboard.press("Enter")
    expect(page.locator("#cell-99999 .numbers")).to_have_text("changed: class 777")
    assert time.monotonic() - begin < 10
    assert lines(large)[-1]["label"] == "class 777"


def test_hostile_names_texts_and_ids_are_shown_and_not_obeyed(
    reviewable: Callable[..., Path],
    serve: Callable[..., Any],
    tabs: Callable[..., Tabs],
    tmp_path: Path,
) -> None:
    import csv

    names = sorted(HOSTILE)
    ids = [f"{HOSTILE[k % 5]}{k}" for k in range(15)]
    with (tmp_path / "d.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "text", "label"])
        for k, name in enumerate(ids):
            text = f"{HOSTILE[(k + 1) % 5]} & {HOSTILE[(k + 2) % 5]}"
            writer.writerow([name, text, names[k % 5]])
    run = reviewable(tmp_path, n=15, names=names, ids=ids, data=str(tmp_path / "d.csv"))
    page = tabs().open(serve(run, "--name", "<b>anna</b>"))
    assert shown(page)[1:] == (names[0], names[1]) or "\\x07" in "".join(shown(page))
    expect(page.locator("#exhibit .text")).to_contain_text("alert")
    seen = set()
    for _ in range(4):
        seen.add(shown(page)[1])
        press(page, "a")
    assert len(seen) >= 3
    press(page, "b")
    expect(page.locator("#standing")).to_contain_text("<b>anna</b>")
    page.keyboard.press("c")
    page.keyboard.type("alert(2)")
    expect(page.locator("#picker-list li")).to_have_count(1)
    escape(page)
    page.keyboard.press("g")
    page.wait_for_selector(".cell b")
    page.reload()
    ready(page)
    assert page.locator("img, svg[onload], script:not([src])").count() == 0
    assert [one["label"] in names for one in lines(run)] == [True] * 4


def test_numbers_and_what_is_gone(
    reviewable: Callable[..., Path],
    serve: Callable[..., Any],
    tabs: Callable[..., Tabs],
    tmp_path: Path,
) -> None:
    rows = [f"{k},{k * 0.5},{('cat', 'dog', 'fox')[k % 3]}" for k in range(12)]
    data = tmp_path / "d.csv"
    data.write_text("\n".join(["height,weight,label", *rows]) + "\n")
    run = reviewable(tmp_path, ids=[str(k) for k in range(12)], data=str(data))
    server = serve(run)
    page = tabs().open(server)
    expect(page.locator("#exhibit tbody tr")).to_have_count(2)
    heads = page.locator("#exhibit thead th").all_inner_texts()
    assert heads == ["column", "this example", "typical cat", "typical dog"]
    press(page, "a")
    page.keyboard.press("g")
    page.wait_for_selector(".cell .text bdi")
    data.rename(tmp_path / "moved.csv")
    gone = serve(run)
    page = tabs().open(gone)
    expect(page.locator("#notes")).to_contain_text("The examples themselves cannot be shown")
    expect(page.locator("#notes")).to_contain_text("is missing")
    expect(page.locator("#exhibit")).to_contain_text("cannot be shown")
    expect(page.locator("#near")).to_be_hidden()
    expect(page.locator("#curve svg")).to_be_visible()
    press(page, "k")  # labels and numbers can still be decided upon
    assert len(lines(run)) == 2
    moved = serve(run, "--data", tmp_path / "moved.csv")
    page = tabs().open(moved)
    expect(page.locator("#exhibit tbody tr")).to_have_count(2)


def test_to_the_end(
    reviewable: Callable[..., Path],
    serve: Callable[..., Any],
    tabs: Callable[..., Tabs],
    tmp_path: Path,
) -> None:
    run, window = reviewable(tmp_path, n=8), tabs()
    server = serve(run)
    page = window.open(server)
    for _ in range(3):
        press(page, "a")
    page.keyboard.press("a")
    expect(page.locator("#done-title")).to_be_focused()
    assert page.locator("#done-next").inner_text().split("\n\n") == next_steps(load_run(run))
    later = window.open(server)  # where nothing has been seen yet
    expect(later.locator("#done-title")).to_have_text("Every suspect is decided")
    expect(later.locator("#done-next")).to_contain_text("--reviewed")
    expect(page.locator("#progress")).to_contain_text("4 of 4 suspects decided")
    expect(page.locator("#progress")).to_contain_text("4 of 4 suggested labels were right")
    page.keyboard.press("z")
    expect(page.locator("#one")).to_be_visible()
    expect(page.locator("#progress")).to_contain_text("3 of 4 suspects decided")
    expect(page.locator("#progress")).to_contain_text("estimated wrong labels that remain: ")


@pytest.mark.parametrize("width", [1280, 390])
def test_rows_of_a_mixed_table(
    width: int,
    mixed: Path,
    serve: Callable[..., Any],
    tabs: Callable[..., Tabs],
    tmp_path: Path,
) -> None:
    """Every column of a row is readable beside its name, also on a phone."""
    run = Path(shutil.copytree(mixed, tmp_path / "run"))
    page = tabs(width=width).open(serve(run))
    name, _, suggested = shown(page)
    expect(page.locator("#example")).to_contain_text("Island")
    text = page.locator("#example").inner_text()
    table = open_table(mixed.parent / "penguins.csv")
    for column in ("Island", "Sex", "Flipper Length (mm)"):
        cell = table.texts(column)[int(name)]
        assert column in text
        assert cell in text or cell == "NA"
    page.wait_for_selector("#near-suggested li")
    assert "cannot be used" not in page.locator("#near").inner_text()
    for word in page.locator("#question .label").all():  # "given" and "suggested" in one line each
        assert word.bounding_box()["height"] < 24  # type: ignore[index]
    assert overflow(page) <= 0
    assert faults(page) == []
    page.screenshot(path=tmp_path / "mixed.png", full_page=True)
    press(page, "a")
    [line] = lines(run)
    assert line["example"] == name
    assert line["label"] == suggested


def test_a_random_sample(run: Path, serve: Callable[..., Any], tabs: Callable[..., Tabs]) -> None:
    server = serve(run, "--sample", "12", "--seed", "3")
    page = tabs().open(server)
    expect(page.locator("#sample-note")).to_be_visible()
    expect(page.locator("#place")).to_have_text("1 of 12")
    press(page, "a")
    drawn, decided = lines(run)
    assert len(drawn["sample"]) == 12
    assert decided["example"] == drawn["sample"][0]  # so that it is a sample however far one gets
    assert shown(page)[0] == drawn["sample"][1]
    again = serve(run, "--sample", "12", "--seed", "3")
    page = tabs().open(again)
    expect(page.locator("#progress")).to_contain_text("1 of 12 labels of the sample decided")
    assert "continuing the sample" in again.running.streams[1].read_text()
    assert len(lines(run)) == 2
    assert "of all labels are wrong" not in page.locator("#progress").inner_text()
    for _ in range(10):
        press(page, "k")  # also labels that are not suspect
    page.keyboard.press("k")
    expect(page.locator("#done-title")).to_be_focused()
    expect(page.locator("#progress")).to_contain_text("of all labels are wrong (95% interval:")
    expect(page.locator("#done-title")).to_have_text("The whole sample is decided")
    expect(page.locator("#done-next")).to_have_text(f"proselflc audit {run}")


AXE = "axe_playwright_python"


def faults(page: Page) -> list[str]:
    """What axe-core finds wrong."""
    page.evaluate((files(AXE) / "axe.min.js").read_text(encoding="utf-8"))
    result = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{one['id']}: {node['html'][:120]} {node['failureSummary'][:300]}"
        for one in result["violations"]
        for node in one["nodes"]
    ]


@pytest.mark.parametrize(
    "options",
    [{}, {"color_scheme": "dark"}, {"width": 360, "height": 780}],
    ids=["light", "dark", "phone"],
)
def test_everybody_can_use_it(
    run: Path, serve: Callable[..., Any], tabs: Callable[..., Tabs], options: dict[str, Any]
) -> None:
    page = tabs(**options).open(serve(run))
    page.wait_for_selector("#near-suggested img")
    for what in ("#question", "#exhibit", "#accept", "#unsure", "#skip", "#keys-open"):
        expect(page.locator(what)).to_be_in_viewport(ratio=1)  # nobody needs to scroll to decide
    press(page, "a")
    press(page, "b")  # one that is decided
    page.wait_for_selector("#near-suggested img")
    assert faults(page) == []
    assert overflow(page) <= 0
    if not options:
        for key, dialog in (("c", "#picker"), ("?", "#keys")):
            page.keyboard.press(key)
            expect(page.locator(dialog)).to_be_visible()
            assert faults(page) == []
            escape(page)
    page.keyboard.press("g")
    page.wait_for_selector(".cell b")
    page.keyboard.press("f")
    expect(page.locator("#many-accept")).to_be_enabled()
    assert faults(page) == []
    assert overflow(page) <= 0


def escape(page: Page) -> None:
    """Out of a window of the page."""
    page.keyboard.press("Escape")
    expect(page.locator("dialog[open]")).to_have_count(0)


def overflow(page: Page) -> int:
    """By how many pixels the page is wider than its window."""
    wide: int = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    return wide


def test_without_a_mouse_and_for_those_who_hear_it(
    run: Path, serve: Callable[..., Any], tabs: Callable[..., Tabs]
) -> None:
    page = tabs().open(serve(run))
    reached = []
    for _ in range(40):
        page.keyboard.press("Tab")
        found = page.evaluate(
            """() => {
              const at = document.activeElement, style = getComputedStyle(at);
              return [at.id || at.name || "", style.outlineStyle];
            }"""
        )
        reached.append(found[0])
        assert found[1] != "none" or found[0] in ("", "main")
        if found[0] == "undo":
            break
    for name in ("keys-open", "theme", "pair", "given", "low", "order", "mode-grid", "accept"):
        assert name in reached
    _, given, suggested = shown(page)
    page.get_by_role("button", name=f"Accept: {suggested}").press("Enter")
    expect(page.locator("#progress")).to_contain_text("1 of")
    expect(page.get_by_role("status")).to_contain_text(f"{suggested}. Given")
    expect(page.locator("#accept")).to_be_focused()  # where it was
    page.get_by_role("button", name="Undo").press("Enter")
    expect(page.get_by_role("status")).to_contain_text("Undone")
    page.get_by_role("button", name=f"Keep: {given}").press("Space")
    expect(page.locator("#progress")).to_contain_text("1 of")
    page.keyboard.press("?")
    page.get_by_label("Use letter keys as shortcuts").uncheck()
    escape(page)
    page.keyboard.press("a")
    page.wait_for_timeout(300)
    assert len(lines(run)) == 3  # letters are somebody else's now
    page.get_by_role("button", name="Grid").press("Enter")
    page.wait_for_selector(".cell b")
    option = page.get_by_role("listbox", name="Suspects", exact=True).get_by_role("option").first
    expect(option).to_have_accessible_name(re.compile(r"Given \d, suggested \d, .*% confidence"))
    assert option.get_attribute("aria-setsize") == page.locator("#place").inner_text().split()[-1]


def test_the_address_may_be_clicked_on_in_another_page(
    run: Path, serve: Callable[..., Any], browser: Browser
) -> None:
    """As in a terminal that is a page of another site."""
    server, context = serve(run), browser.new_context()
    link = f'<a href="{server.address}">open</a>'
    context.route(
        "http://terminal.example/", lambda route: route.fulfill(body=link, content_type="text/html")
    )
    page = context.new_page()
    page.goto("http://terminal.example/")
    page.get_by_text("open").click()
    ready(page)
    page.reload()
    ready(page)
    press(page, "a")
    assert len(lines(run)) == 1
    context.close()


def test_the_theme_is_remembered(
    run: Path, serve: Callable[..., Any], tabs: Callable[..., Tabs]
) -> None:
    page = tabs().open(serve(run))
    paper = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(paper)
    page.get_by_role("button", name="Dark theme").click()
    dark = page.evaluate(paper)
    assert dark != light
    page.reload()
    ready(page)
    assert page.evaluate(paper) == dark
