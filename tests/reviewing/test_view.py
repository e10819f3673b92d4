"""What the page of a review is told about examples, and that it is never too much."""

from __future__ import annotations

import io
import json
import re
import shlex
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from proselflc.auditing.examples import read_examples, write_parquet
from proselflc.data.decisions import DecisionChange
from proselflc.data.inputs import Features, ImageFiles, Images, Texts
from proselflc.reviewing.view import (
    LONGEST_TEXT,
    MOST_COLUMNS,
    SOURCES,
    ReviewView,
    encode,
    next_steps,
    source,
)
from proselflc.run.reader import Run
from proselflc.run.review import Review


@pytest.fixture
def sheet(reviewable: Callable[..., Path], tmp_path: Path) -> Callable[..., ReviewView]:
    """A sheet on a table with these columns."""

    def go(heading: str, rows: list[str], **options: object) -> ReviewView:
        names = ("cat", "dog", "fox")
        data = tmp_path / "d.csv"
        lines = [f"{row},{names[k % 3]}" for k, row in enumerate(rows)]
        data.write_text("\n".join([f"{heading},label", *lines]) + "\n")
        ids = [str(k) for k in range(len(rows))]
        run = reviewable(tmp_path, n=len(rows), ids=ids, data=str(data), **options)
        found = ReviewView(Review(Run(run)), "anna")
        assert found.missing_reason == ""
        return found

    return go


def test_columns_beside_what_is_usual(sheet: Callable[..., ReviewView]) -> None:
    generator = np.random.default_rng(0)
    x = generator.normal(0, 1, (30, 3)).round(3)
    x[0] = [0.0, 50.0, 3.0]  # the second column is the odd one
    shown = sheet("a,b,c", [",".join(map(str, row)) for row in x])
    found = shown.detail(0)["columns"]
    assert isinstance(found, list)
    given = np.array([k for k in range(30) if k % 3 == 0 and k >= 15])  # the first half is suspect
    distance = np.abs(x[0] - x[given].mean(0)) / x[given].std(0)
    order = np.argsort(-distance)
    assert [row["name"] for row in found] == [("a", "b", "c")[j] for j in order]
    assert found[0]["value"] == 50.0
    np.testing.assert_allclose(
        found[0]["given"], [x[given, 1].mean(), x[given, 1].std()], rtol=1e-5
    )
    near = shown.neighbours(0)
    assert near["how"] == "surest"  # a run that nobody trained has no model
    assert "model.json" in str(near["why"])
    for one in near["given"]:  # type: ignore[attr-defined]
        assert [row["name"] for row in one["columns"]] == [row["name"] for row in found]


def test_many_columns_and_long_texts_are_cut(sheet: Callable[..., ReviewView]) -> None:
    heading = ",".join(f"c{k}" for k in range(300))
    shown = sheet(heading, [",".join(str((k * j) % 7) for j in range(300)) for k in range(12)])
    found = shown.detail(1)
    assert len(found["columns"]) == MOST_COLUMNS  # type: ignore[arg-type]
    assert found["moreColumns"] == 300 - MOST_COLUMNS


def test_texts_keep_their_lines_and_show_their_codes(sheet: Callable[..., ReviewView]) -> None:
    rows = [
        f'"line one {k}\nline\ttwo \x1b[31m{"x" * (30_000 if k == 0 else 1)}"' for k in range(12)
    ]
    shown = sheet("text", rows)
    assert shown.kind == "text"
    text = str(shown.detail(1)["text"])
    assert text.splitlines() == ["line one 1", "line two \\x1b[31mx"]
    long = shown.detail(0)
    assert len(str(long["text"])) <= LONGEST_TEXT + 10
    assert long["cut"] == len(rows[0]) - 2 - LONGEST_TEXT
    [item] = shown.items(np.array([0]))
    assert len(str(item["text"])) <= 160


def test_the_likeliest_of_many_classes(reviewable: Callable[..., Path], tmp_path: Path) -> None:
    names = tuple(f"class {k}" for k in range(150))
    path = reviewable(tmp_path, n=300, names=names)
    table = read_examples(path / "examples.parquet")
    five = [{"label": f"class {(k * 31) % 150}", "p": 0.5 ** (k + 1)} for k in range(5)]
    kind = pa.list_(pa.struct([("label", pa.string()), ("p", pa.float32())]))
    place = table.column_names.index("corrected_distribution")
    column = pa.array([five] * 300, kind)
    write_parquet(
        table.set_column(place, "corrected_distribution", column), path / "examples.parquet"
    )
    shown = ReviewView(Review(Run(path)), "anna")
    assert shown.detail(0)["chances"] == [((k * 31) % 150, 0.5 ** (k + 1)) for k in range(5)]


def test_what_was_decided_can_be_taken_back_by_who_decided(
    sheet: Callable[..., ReviewView],
) -> None:
    shown = sheet("a,b", [f"{k},{k % 5}" for k in range(12)])
    log = shown.review.decisions
    log.add([DecisionChange("0", "dog", 0), DecisionChange("1", "fox", 0)], "anna", "first")
    log.add([DecisionChange("2", "fox", 0)], "ben", "second")
    log.add([DecisionChange("3", None, 0)], "anna", "third")
    shown.review.refresh()
    start = shown.start()
    assert start["recent"] == [
        [{"index": 0, "line": 2}, {"index": 1, "line": 3}],
        [{"index": 3, "line": 5}],
    ]
    assert start["left"] == 2
    assert json.loads(json.dumps(start, allow_nan=False)) is not None
    assert shown.standing(3) == {**shown.standing(3), "label": -2, "line": 5, "by": "anna"}


def test_data_that_is_gone(reviewable: Callable[..., Path], tmp_path: Path) -> None:
    shown = ReviewView(Review(Run(reviewable(tmp_path))), "anna")
    assert shown.kind is None
    assert "is missing" in shown.missing_reason
    assert shown.neighbours(0)["given"] == []
    assert shown.picture(0, "large") is None
    assert shown.detail(0)["curve"] is not None


def test_the_page_is_plain_files_that_ask_nobody() -> None:
    for address in SOURCES:
        content, _ = source(address)
        text = content.decode().replace("http://www.w3.org/2000/svg", "")
        assert "innerHTML" not in text
        assert "eval(" not in text
        assert re.search(r"//\S", text) is None  # an address; what we say of our code has a space


def test_scripts_import_only_what_is_below_them() -> None:
    """Every one of them is in the list, and none is served that is not there."""
    names = [address for address in SOURCES if re.fullmatch(r"/review/\w+\.js", address)]
    assert b"import" not in source("/map.js")[0]  # the report has it without a server
    folder = files("proselflc.reviewing") / "templates" / "review"
    assert sorted(names) == sorted(f"/review/{one.name}" for one in folder.iterdir())
    seen = {names[0]}
    for k, name in enumerate(names):
        below = re.findall(r'^import .*?"\./(\w+\.js)";$', source(name)[0].decode(), re.MULTILINE)
        assert {f"/review/{one}" for one in below} <= set(names[k + 1 :])
        seen |= {f"/review/{one}" for one in below}
    assert seen == set(names)


def test_more_changes_than_can_be_told(
    sheet: Callable[..., ReviewView], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = sheet("a,b", [f"{k},{k % 5}" for k in range(12)])
    shown.review.decisions.add([DecisionChange(str(k), "dog", 0) for k in range(3)], "ben", "1")
    shown.review.refresh()
    assert [one["index"] for one in shown.state(1)["changed"]] == [0, 1, 2]  # type: ignore[attr-defined]
    monkeypatch.setattr("proselflc.reviewing.view.MOST_CHANGED", 2)
    assert shown.state(1)["changed"] is None
    assert len(shown.state(2)["changed"]) == 2  # type: ignore[arg-type]
    assert shown.state(0)["changed"] == []


def test_what_to_do_next_can_be_typed(reviewable: Callable[..., Path], tmp_path: Path) -> None:
    run = Run(reviewable(tmp_path, "my run", config={"noise": "pair:0.4"}))
    train, report = (shlex.split(line) for line in next_steps(run, "moved here.csv"))
    assert train == [
        *("proselflc", "train", "--config", str(run.path / "config.toml")),
        *("--data", "moved here.csv", "--labels", str(run.path), "--reviewed", "--noise", "none"),
        *("--out", f"{run.path}-reviewed"),
    ]
    assert report == ["proselflc", "report", str(run.path), f"{run.path}-reviewed"]
    plain = Run(reviewable(tmp_path, "plain"))
    assert "--noise" not in next_steps(plain)[0]
    assert "--data" not in next_steps(plain)[0]


def opened(content: bytes) -> Image.Image:
    return Image.open(io.BytesIO(content))


@pytest.mark.parametrize("channels", [1, 3])
def test_small_images_are_kept_pixel_by_pixel(channels: int) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (2, 8, 6, channels), np.uint8)
    found = encode(Images(pixels), 1, 900)
    assert found is not None
    assert found[1] == "image/png"
    back = np.asarray(opened(found[0])).reshape(8, 6, channels)
    np.testing.assert_array_equal(back, pixels[1])


def test_large_images_are_made_smaller(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    Image.new("RGB", (2000, 1000), "red").save(path)
    found = encode(ImageFiles((path,)), 0, 900)
    assert found is not None
    assert (found[1], opened(found[0]).format) == ("image/jpeg", "JPEG")
    assert opened(found[0]).size == (900, 450)


def test_what_is_hidden_in_a_file_does_not_come_out(tmp_path: Path) -> None:
    path = tmp_path / "a.jpg"
    exif = Image.Exif()
    exif[0x010E] = "where somebody lives"
    Image.new("RGB", (100, 60), "blue").save(path, exif=exif, comment=b"<script>")
    path.write_bytes(path.read_bytes() + b"<script>alert(1)</script>")
    found = encode(ImageFiles((path,)), 0, 900)
    assert found is not None
    assert b"script" not in found[0]
    assert b"somebody" not in found[0]


@pytest.mark.parametrize(
    "content", [b"", b"GIF89a", b"<svg xmlns='x' onload='alert(1)'/>", b"\xff" * 99]
)
def test_what_is_no_image_is_none(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(content)
    assert encode(ImageFiles((path,)), 0, 900) is None
    assert encode(ImageFiles((tmp_path / "gone.png",)), 0, 900) is None


def test_texts_and_numbers_have_none() -> None:
    assert encode(Texts(("a",)), 0, 900) is None
    assert encode(Features(np.zeros((1, 2), np.float32)), 0, 900) is None


def test_cells_of_several_kinds_are_shown_as_they_are_written(
    sheet: Callable[..., ReviewView],
) -> None:
    rows = [f"{20 + k},{'north' if k % 5 else 'south'},2021-03-{k + 1:02d},yes" for k in range(28)]
    rows += ["7000,west,NA,no", ",north,2021-04-01,yes"]
    shown = sheet("age,region,since,member", rows)
    found = {row["name"]: row for row in shown.detail(28)["columns"]}  # type: ignore[attr-defined]
    assert set(found) == {"age", "region", "since", "member"}
    assert found["age"]["value"] == "7000"
    assert isinstance(found["age"]["given"], list)
    assert (found["region"]["value"], found["since"]["value"]) == ("west", "missing")
    assert found["region"]["given"].startswith("north (")
    assert found["since"]["given"].startswith("2021-03-")
    assert found["member"]["given"].startswith("true (")
    assert shown.detail(28)["moreColumns"] == 0
    first = shown.detail(28)["columns"][0]  # type: ignore[index]
    assert first["name"] == "age"  # the most unusual
    (item,) = shown.items(np.array([29]), beside=28)
    assert {"name": "age", "value": "missing"} in item["columns"]  # type: ignore[operator]
