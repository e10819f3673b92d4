"""The map of the examples as pages have it: what is packed, its size, and the still picture."""

from __future__ import annotations

import base64
import io
import json
from typing import Any

import numpy as np
import pytest
from PIL import Image

from proselflc.pages import point_map
from proselflc.pages.point_map import COLOURS, MOST, Points


def made(n: int = 40, C: int = 3, suspects: int = 5, **options: Any) -> Points:
    rng = np.random.default_rng(0)
    given = np.arange(n) % C
    is_suspect = np.zeros(n, np.bool_)
    is_suspect[rng.choice(n, suspects, replace=False)] = True
    values: dict[str, Any] = {
        "xy": rng.normal(size=(n, 2)).astype(np.float32),
        "given": given,
        "suggested": (given + 1) % C,
        "quality": np.where(is_suspect, 0.4 * rng.random(n), 0.5 + rng.random(n) / 2),
        "is_suspect": is_suspect,
        "index": np.arange(n),
        "ids": [f"train/photos/{k:06d}.jpg" for k in range(n)],
        "names": [f"class {k}" for k in range(C)],
    }
    return Points(**{**values, **options})


def numbers(packed: dict[str, Any], name: str, kind: str) -> Any:
    return np.frombuffer(base64.b64decode(packed[name]), kind)


def test_points_are_packed_with_the_worst_suspect_first() -> None:
    points = made()
    packed = points.packed()
    order = numbers(packed, "index", "<u4")
    assert sorted(order) == list(range(40))
    assert points.is_suspect[order[:5]].all()
    assert (np.diff(points.quality[order[:5]]) >= 0).all()
    assert (np.diff(points.quality[order[5:]]) >= 0).all()
    np.testing.assert_array_equal(numbers(packed, "given", "<u2"), points.given[order] + 1)
    np.testing.assert_array_equal(numbers(packed, "suggested", "<u2"), points.suggested[order[:5]])
    percent = np.round(100 * points.quality[order])
    np.testing.assert_array_equal(numbers(packed, "quality", "u1"), percent)
    assert packed["ids"] == [points.ids[i] for i in order]
    xy = numbers(packed, "xy", "<u2").reshape(-1, 2).astype(float)
    assert xy.max() == 65_535
    assert (xy.min(axis=0) == 0).all()
    scale = np.ptp(points.xy, axis=0).max() / 65_535  # the same for both axes
    np.testing.assert_allclose(xy * scale, points.xy[order] - points.xy.min(axis=0), atol=scale)


@pytest.mark.parametrize("value", [0.0, 3e38, -3e38])
def test_one_place_for_all_is_a_map_too(value: float) -> None:
    points = made(xy=np.full((40, 2), value, np.float32))
    assert not numbers(points.packed(), "xy", "<u2").any()
    assert points.picture().startswith("data:image/png;base64,")


def test_what_is_not_known_is_marked() -> None:
    quality, given = np.full(40, np.nan), np.full(40, -1)
    packed = made(quality=quality, given=given).packed()
    assert set(numbers(packed, "quality", "u1")) == {255}
    assert set(numbers(packed, "given", "<u2")) == {0}
    assert packed["coloured"] == []


def test_the_classes_with_most_suspects_have_colours() -> None:
    n, C = 400, 2 * COLOURS
    is_suspect = np.arange(n) % C >= COLOURS
    points = made(n, C, is_suspect=is_suspect)
    assert points.coloured() == list(range(COLOURS, C))


@pytest.mark.parametrize(("n", "suspects"), [(50_000, 20_000), (120_000, 5_000)])
def test_many_examples_stay_below_a_megabyte(n: int, suspects: int) -> None:
    points = made(n, 100, suspects)
    packed: dict[str, Any] = points.packed()
    assert len(json.dumps(packed)) + len(points.picture()) < 1 << 20
    order = numbers(packed, "index", "<u4")
    assert len(set(order.tolist())) == MOST
    assert packed["total"] == n
    assert points.is_suspect[order[:suspects]].all()
    assert packed["ids"][0] == points.ids[order[0]]


def test_more_suspects_than_points_leave_the_best_ones_out() -> None:
    points = made(MOST + 5, 3, MOST + 2)
    order = numbers(points.packed(), "index", "<u4")
    assert len(order) == MOST
    assert points.is_suspect[order].all()


def test_names_of_thousands_of_classes_are_cut() -> None:
    packed: dict[str, Any] = made(40, 70_000, names=["n" * 50] * 70_000).packed()
    assert sum(map(len, packed["names"])) <= point_map._CHARACTERS
    assert len(numbers(packed, "given", "<u4")) == 40


def test_the_still_picture_has_the_points_and_is_transparent() -> None:
    address = made().picture()
    content = base64.b64decode(address.removeprefix("data:image/png;base64,"))
    picture = np.asarray(Image.open(io.BytesIO(content)).convert("RGBA"))
    assert picture.shape == (600, 960, 4)
    drawn = picture[picture[..., 3] > 0]
    assert 0 < len(drawn) < 960 * 600 / 20
    assert len(np.unique(drawn, axis=0)) == 4  # three classes, and the rings
