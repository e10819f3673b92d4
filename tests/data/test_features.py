"""Embeddings in place of inputs, row for row."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from proselflc.data.dataset import Dataset, Part, contents_of
from proselflc.data.inputs import Features, Images
from proselflc.data.sources import npz as source
from proselflc.errors import InputError


def part(prefix: str, count: int) -> Part:
    pixels = np.zeros((count, 2, 2, 1), dtype=np.uint8)
    ids = tuple(f"{prefix}{i}" for i in range(count))
    return Part(Images(pixels), np.arange(count, dtype=np.int64) % 2, ids)


TRAIN, TEST, VALIDATION = part("a", 6), part("b", 3), part("c", 2)
ALONE = Dataset("photos", TRAIN, ("cat", "dog"), clean=TRAIN.labels[::-1].copy())
TESTED = Dataset("photos", TRAIN, ("cat", "dog"), test=TEST)
FULL = Dataset("photos", TRAIN, ("cat", "dog"), test=TEST, validation=VALIDATION)
ROWS = np.random.default_rng(0).normal(size=(11, 4))


def values(part: Part | None) -> Any:
    assert part is not None
    assert isinstance(part.inputs, Features)
    assert part.inputs.values.dtype == np.float32
    return part.inputs.values


def npy(path: Path, rows: Any) -> Path:
    np.save(path / "emb.npy", rows)
    return path / "emb.npy"


def npz(path: Path, **arrays: Any) -> Path:
    np.savez(path / "emb.npz", **arrays)
    return path / "emb.npz"


def test_rows_replace_inputs_and_nothing_else(tmp_path: Path) -> None:
    new = source.with_features(ALONE, npy(tmp_path, ROWS[:6]))
    np.testing.assert_array_equal(values(new.train), ROWS[:6].astype(np.float32))
    assert new.train.ids == TRAIN.ids
    assert new.train.labels is TRAIN.labels
    assert (new.name, new.names, new.test) == ("photos", ("cat", "dog"), None)
    assert new.clean is ALONE.clean


def test_npy_holds_the_splits_one_after_the_other(tmp_path: Path) -> None:
    new = source.with_features(FULL, npy(tmp_path, ROWS))
    np.testing.assert_array_equal(values(new.train), ROWS[:6].astype(np.float32))
    np.testing.assert_array_equal(values(new.test), ROWS[6:9].astype(np.float32))
    np.testing.assert_array_equal(values(new.validation), ROWS[9:].astype(np.float32))
    assert new.validation is not None
    assert new.validation.ids == VALIDATION.ids


def test_npz_holds_the_splits_by_name(tmp_path: Path) -> None:
    new = source.with_features(TESTED, npz(tmp_path, x=ROWS[:6], x_test=ROWS[6:9], y=np.zeros(6)))
    np.testing.assert_array_equal(values(new.train), ROWS[:6].astype(np.float32))
    np.testing.assert_array_equal(values(new.test), ROWS[6:9].astype(np.float32))
    assert new.test is not None
    np.testing.assert_array_equal(new.test.labels, TEST.labels)


@pytest.mark.parametrize(
    ("dataset", "rows", "message"),
    [
        (ALONE, ROWS[:5], "has 5 rows of features for 6 examples (6 train) of photos"),
        (ALONE, ROWS[:7], "has 7 rows of features for 6 examples"),
        (TESTED, ROWS[:6], "has 6 rows of features for 9 examples (6 train + 3 test) of photos"),
        (ALONE, ROWS[:6, 0], "of shape [6], but features must be numbers of shape [n, D]"),
        (ALONE, ROWS[:6, :0], "of shape [6, 0]"),
        (ALONE, np.where(ROWS[:6] > 2, 0, np.inf), "NaN or infinite features"),
        (ALONE, ROWS[:6].astype(str), "holds <U32"),
        (ALONE, np.array([None] * 6), "holds Python objects"),
    ],
)
def test_wrong_rows_are_said(tmp_path: Path, dataset: Dataset, rows: Any, message: str) -> None:
    np.save(tmp_path / "emb.npy", rows, allow_pickle=True)
    with pytest.raises(InputError) as caught:
        source.with_features(dataset, tmp_path / "emb.npy")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("dataset", "arrays", "message"),
    [
        (TESTED, {"x": ROWS[:6]}, "photos has a test split, but"),
        (ALONE, {"x": ROWS[:6], "x_test": ROWS[:3]}, "emb.npz has a test split, but photos has"),
        (ALONE, {"features": ROWS[:6]}, 'it holds "features"'),
        (ALONE, {"x": ROWS[:4]}, "has 4 rows of features for 6 train examples of photos"),
        (TESTED, {"x": ROWS[:6], "x_test": ROWS[:4]}, "has 4 rows of features for 3 test examples"),
        (TESTED, {"x": ROWS[:6], "x_test": ROWS[:3, :2]}, "splits of different widths, [2, 4]"),
    ],
)
def test_wrong_splits_are_said(
    tmp_path: Path, dataset: Dataset, arrays: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError) as caught:
        source.with_features(dataset, npz(tmp_path, **arrays))
    assert message in str(caught.value)


@pytest.mark.parametrize("name", ["emb.npy", "emb.npz", "emb.csv"])
def test_missing_or_foreign_file_is_a_plain_error(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="No such file"):
        source.with_features(ALONE, tmp_path / name)
    (tmp_path / name).write_text("0.1,0.2\n")
    with pytest.raises(InputError, match="damaged"):
        source.with_features(ALONE, tmp_path / name)


def test_examples_get_the_rows_of_their_split(tmp_path: Path) -> None:
    parts = contents_of(FULL, ("dog", "cat")).parts
    new = source.attach(parts, npy(tmp_path, ROWS), "photos")
    for split, rows in {"train": ROWS[:6], "test": ROWS[6:9], "validation": ROWS[9:]}.items():
        inputs = new[split].inputs
        assert isinstance(inputs, Features)
        np.testing.assert_array_equal(inputs.values, rows.astype(np.float32))
        assert new[split].ids == parts[split].ids
        assert new[split].labels is parts[split].labels
    with pytest.raises(InputError, match="has 5 rows of features for 11 examples"):
        source.attach(parts, npy(tmp_path, ROWS[:5]), "photos")
