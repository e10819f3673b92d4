"""`map.npz` is read as the file of a stranger."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from proselflc.auditing.mapping import points
from proselflc.errors import InputError


def test_a_map_is_read_as_it_was_written(tmp_path: Path) -> None:
    xy = np.random.default_rng(0).normal(size=(5, 2)).astype(np.float32)
    points.save(tmp_path / "map.npz", xy)
    np.testing.assert_array_equal(points.load(tmp_path / "map.npz", 5), xy)


@pytest.mark.parametrize(
    ("arrays", "fault"),
    [
        ({"other": np.zeros((3, 2), np.float32)}, "has none of the arrays xy"),
        ({"xy": np.zeros((3, 2))}, "xy should be float32, got float64"),
        ({"xy": np.zeros((2, 2), np.float32)}, r"xy should be \[3, 2\], got \[2, 2\]"),
        ({"xy": np.zeros((3, 2, 1), np.float32)}, r"xy should be \[3, 2\], got \[3, 2, 1\]"),
        ({"xy": np.full((3, 2), np.nan, np.float32)}, "a point is not finite"),
        ({"xy": np.array([{}] * 3)}, "damaged"),
    ],
)
def test_a_hostile_map_is_refused(tmp_path: Path, arrays: dict[str, Any], fault: str) -> None:
    path = tmp_path / "map.npz"
    np.savez(path, **arrays)
    with pytest.raises(InputError, match=fault):
        points.load(path, 3)


def test_what_is_no_archive_is_refused(tmp_path: Path) -> None:
    (tmp_path / "map.npz").write_bytes(b"nonsense")
    with pytest.raises(InputError, match=r"map\.npz is damaged"):
        points.load(tmp_path / "map.npz", 3)
