"""Predictions out of sample: as they are written they are read, and nothing else is believed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from proselflc.auditing import held_out
from proselflc.data import labels as labels_of
from proselflc.data.dataset import Dataset, Part
from proselflc.data.inputs import Features, Floats
from proselflc.data.labels import Labels
from proselflc.errors import InputError
from proselflc.training.run_directory import RunDirectory

P = np.random.default_rng(0).random((5, 3)).astype(np.float32)


@pytest.fixture
def labels() -> Labels:
    part = Part(Features(np.zeros((5, 1), np.float32)), np.arange(5) % 3, tuple("abcde"))
    return labels_of.from_dataset(Dataset("five", part, ("x", "y", "z")), None)


@pytest.fixture
def directory(tmp_path: Path, labels: Labels) -> RunDirectory:
    found = RunDirectory(tmp_path)
    found.folds.mkdir()
    held_out.write(found.folds_p, (5, 3), iter((P[:2], P[2:2], P[2:])))
    facts = {"folds": 2, "fingerprint": labels.fingerprint, "seed": 0}
    found.write_json(found.folds_done, facts)
    return found


def test_pieces_are_one_array(directory: RunDirectory, labels: Labels) -> None:
    there = np.load(directory.folds_p)
    assert there.dtype == np.dtype("<f2")
    np.testing.assert_array_equal(there, P.astype(np.float16))
    found = held_out.of_run(directory, labels)
    assert found is not None
    assert found.folds == 2
    assert isinstance(found.p, np.memmap)
    np.testing.assert_array_equal(found.p, there)


def test_without_all_the_folds_there_is_nothing(directory: RunDirectory, labels: Labels) -> None:
    directory.folds_done.unlink()
    assert held_out.of_run(directory, labels) is None


def test_nothing_is_left_of_a_write_that_fails(tmp_path: Path) -> None:
    def pieces() -> Iterator[Floats]:
        yield P[:2]
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        held_out.write(tmp_path / "p.npy", (5, 3), pieces())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("change", [{"folds": 1}, {"folds": "2"}, {"fingerprint": "0"}])
def test_folds_of_another_run(
    directory: RunDirectory, labels: Labels, change: dict[str, object]
) -> None:
    facts = json.loads(directory.folds_done.read_text())
    directory.write_json(directory.folds_done, {**facts, **change})
    with pytest.raises(InputError) as error:
        held_out.of_run(directory, labels)
    assert error.value.field == "folds"
    assert "remove it" in str(error.value.fix)


@pytest.mark.parametrize("content", ["absent", "text", "float32", "rows", "objects"])
def test_damaged_predictions_are_named(
    directory: RunDirectory, labels: Labels, content: str
) -> None:
    path = directory.folds_p
    path.unlink()
    if content == "text":
        path.write_text("p")
    elif content == "float32":
        np.save(path, P)
    elif content == "rows":
        np.save(path, P[1:].astype(np.float16))
    elif content == "objects":
        np.save(path, P.astype(object), allow_pickle=True)
    with pytest.raises(InputError, match=r"p\.npy"):
        held_out.of_run(directory, labels)
