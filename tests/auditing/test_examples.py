"""`examples.parquet`, one example at a time, and what is read of it."""

from __future__ import annotations

import contextlib
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from proselflc.auditing import records as chunks
from proselflc.auditing.examples import LabelScores, read_examples, table, write_parquet
from proselflc.auditing.records import Records
from proselflc.auditing.verdict import audit_labels
from proselflc.correction.criteria import BootSoft
from proselflc.data.batches import Batch
from proselflc.data.labels import Labels
from proselflc.data.noise import fingerprint
from proselflc.errors import InputError
from proselflc.training import observations
from proselflc.training.observations import NO_CLASS, ROW, Recorder, Rows, observe
from proselflc.training.strategy import CorrectedBatch, Strategy

COLUMNS = [
    "index",
    "id",
    "given_label",
    "suggested_label",
    "is_suspect",
    "action",
    "quality",
    "witness",
    "trust",
    "entropy",
    "p_given",
    "p_suggested",
    "first_learned_epoch",
    "flips",
    "corrected_distribution",
]


def labels_of(given: list[int], C: int, clean: list[int] | None = None) -> Labels:
    y = np.array(given, dtype=np.int64)
    true = None if clean is None else np.array(clean, dtype=np.int64)
    return Labels(
        given=y,
        clean=true,
        flipped=np.zeros(len(y), np.bool_) if true is None else y != true,
        transition=np.eye(C),
        names=tuple(f"class {k}" for k in range(C)),
        ids=tuple(f"{i}.png" for i in range(len(y))),
        generator="none",
        fingerprint=fingerprint(y, C),
    )


def epoch_of(*rows: tuple[int, float, float, float] | None) -> Rows:
    """Rows of (predicted, p_given, entropy, trust); None was not seen."""
    array = np.zeros(len(rows), ROW)
    for i, row in enumerate(rows):
        predicted, p_given, entropy, trust = row or (NO_CLASS, math.nan, math.nan, math.nan)
        array[i] = (predicted, p_given, entropy, 0, 0, trust, 0)
    return array


def scored(
    suggested: list[int],
    chances: npt.NDArray[np.floating],
    given: list[int],
    change: list[bool] | None = None,
    witness: list[int] | None = None,
) -> LabelScores:
    """What the table is told: chances [n, C], NaN of what was not seen."""
    some = chances.astype(np.float32)
    return LabelScores(
        some[np.arange(len(given)), given],
        np.array(suggested, np.int64),
        np.zeros(len(given), np.bool_) if change is None else np.array(change, np.bool_),
        None if witness is None else np.array(witness, np.int64),
        lambda rows: some[rows].copy(),
    )


def unimportant(given: list[int], C: int) -> LabelScores:
    """A judgement for tests that look elsewhere."""
    return scored(given, np.full((len(given), C), 1 / C), given)


NEVER = [math.nan] * 3


def test_by_hand() -> None:
    labels = labels_of([0, 0, 1, 2], 3, clean=[0, 1, 1, 2])
    epochs = [
        epoch_of((1, 0.25, 1.0, 0.0), (1, 0.25, 1.0, 0.0), None, None),
        epoch_of((0, 0.5, 0.5, 0.25), None, (1, 0.75, 0.5, 0.5), None),
        epoch_of((0, 0.75, 0.25, 0.5), (1, 0.125, 0.25, 0.75), (0, 0.25, 0.75, 0.25), None),
        epoch_of(None, (2, 0.125, 0.125, 0.5), (1, 0.5, 0.125, 1.0), None),
    ]
    chances = np.array([[0.875, 0.125, 0], [0.125, 0.625, 0.25], [0.25, 0.5, 0.25], NEVER])
    witness = [2, 1, 1, 0]
    judgement = scored([0, 1, 1, 2], chances, [0, 0, 1, 2], [False, True, False, False], witness)
    found = table(labels, Records(epochs), judgement)
    assert found.column_names == [*COLUMNS, "clean_label"]
    assert found.to_pydict() == {
        "index": [0, 1, 2, 3],
        "id": ["0.png", "1.png", "2.png", "3.png"],
        "given_label": ["class 0", "class 0", "class 1", "class 2"],
        "suggested_label": ["class 0", "class 1", "class 1", "class 2"],
        "is_suspect": [False, True, False, False],
        "action": ["keep", "change", "keep", "keep"],
        "quality": [0.875, 0.125, 0.5, None],
        "witness": ["class 2", "class 1", "class 1", "class 0"],
        "trust": [0.5, 0.625, 0.625, None],
        "entropy": [0.25, 0.1875, 0.4375, None],
        "p_given": [0.875, 0.125, 0.5, None],
        "p_suggested": [0.875, 0.625, 0.5, None],
        "first_learned_epoch": [1, None, 1, None],
        "flips": [1, 1, 2, 0],
        "corrected_distribution": [
            [0.875, 0.125, 0.0],
            [0.125, 0.625, 0.25],
            [0.25, 0.5, 0.25],
            [0.0, 0.0, 1.0],
        ],
        "clean_label": ["class 0", "class 1", "class 1", "class 2"],
    }


def test_without_true_labels_there_is_no_such_column() -> None:
    found = table(labels_of([0], 2), Records([]), unimportant([0], 2))
    assert found.column_names == COLUMNS


def test_a_suspect_that_is_not_sure_is_to_be_reviewed_and_no_witness_is_null() -> None:
    chances = np.full((3, 2), 0.5)
    found = table(
        labels_of([0, 0, 1], 2), Records([]), scored([0, 1, 0], chances, [0, 0, 1], [False] * 3)
    )
    assert found["action"].to_pylist() == ["keep", "review", "review"]
    assert found["witness"].to_pylist() == [None] * 3
    assert found.schema.field("witness").type == pa.string()


def naive_past(
    epochs: list[list[tuple[int, float] | None]], given: list[int]
) -> list[tuple[int | None, int, float | None]]:
    """First epoch learned, flips, and mean trust over the last two of at most six epochs."""
    found = []
    for i, y in enumerate(given):
        story = [(e, seen[i]) for e, seen in enumerate(epochs)]
        seen = [(e, s[0], s[1]) for e, s in story if s is not None]
        learned = next((e for e, k, _ in seen if k == y), None)
        flips = sum(a[1] != b[1] for a, b in pairwise(seen))
        trusts = [trust for e, _, trust in seen if e >= len(epochs) - 2]
        found.append((learned, flips, sum(trusts) / len(trusts) if trusts else None))
    return found


sights = st.none() | st.tuples(st.integers(0, 2), st.sampled_from([0.0, 0.25, 0.5, 1.0]))


@settings(max_examples=100, deadline=None)
@given(
    epochs=st.lists(st.lists(sights, min_size=4, max_size=4), max_size=6),
    y=st.lists(st.integers(0, 2), min_size=4, max_size=4),
)
def test_epochs_are_summed_up_as_one_would_by_reading_them(
    epochs: list[list[tuple[int, float] | None]], y: list[int]
) -> None:
    files = [
        epoch_of(*[None if s is None else (s[0], 0.5, 0.5, s[1]) for s in epoch])
        for epoch in epochs
    ]
    columns = table(labels_of(y, 3), Records(files), unimportant(y, 3))
    found = zip(
        columns["first_learned_epoch"].to_pylist(),
        columns["flips"].to_pylist(),
        columns["trust"].to_pylist(),
        strict=True,
    )
    assert list(found) == naive_past(epochs, y)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    n=st.integers(1, 30),
    C=st.sampled_from([2, 3, 5, 7, 101, 120]),
    elements=st.sampled_from([1, 250, 1 << 20]),
)
def test_distributions_and_probabilities_whatever_is_done_at_once(
    seed: int, n: int, C: int, elements: int
) -> None:
    generator = np.random.default_rng(seed)
    y = generator.integers(C, size=n).tolist()
    chances = generator.dirichlet(np.full(C, 0.3), n).astype(np.float32)
    unseen = generator.random(n) < 0.2
    chances[unseen] = np.nan
    suggested = np.where(generator.random(n) < 0.5, generator.integers(C, size=n), y)
    change = (suggested != y) & (generator.random(n) < 0.5)
    witness = generator.integers(C, size=n)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunks, "_ELEMENTS", elements)
        scores = scored(suggested.tolist(), chances, y, change.tolist(), witness.tolist())
        found = table(labels_of(y, C), Records([]), scores)
    rows = found.to_pylist()
    assert [row["index"] for row in rows] == list(range(n))
    for i, row in enumerate(rows):
        assert row["given_label"] == f"class {y[i]}"
        assert row["suggested_label"] == f"class {suggested[i]}"
        assert row["is_suspect"] == (suggested[i] != y[i])
        assert row["action"] == (
            "keep" if suggested[i] == y[i] else "change" if change[i] else "review"
        )
        assert row["witness"] == f"class {witness[i]}"
        corrected = row["corrected_distribution"]
        if unseen[i]:
            expected = np.eye(C)[y[i]]
            assert (row["quality"], row["p_given"], row["p_suggested"]) == (None, None, None)
        else:
            expected = chances[i].astype(np.float64)
            assert row["quality"] == row["p_given"] == chances[i, y[i]]
            assert row["p_suggested"] == chances[i, suggested[i]]
        if C <= 100:
            np.testing.assert_allclose(corrected, expected, atol=1e-6)
        else:
            assert [c["p"] for c in corrected] == pytest.approx(
                sorted(expected, reverse=True)[:5], abs=1e-6
            )
            for c in corrected:
                k = int(c["label"].removeprefix("class "))
                assert c["p"] == pytest.approx(expected[k], abs=1e-6)
            assert len({c["label"] for c in corrected}) == 5


def test_what_the_recorder_writes_can_be_read(tmp_path: Path) -> None:
    """A network that knows nothing at first and is sure of the true class from then on."""
    n, C, wrong = 71, 7, 18
    clean = torch.arange(n) % C
    y = clean.clone()
    y[:wrong] = (y[:wrong] + 1) % C
    recorder = Recorder(tmp_path, n, C, epochs=4)
    for epoch in range(4):
        logits = (4.0 if epoch else 0.0) * torch.nn.functional.one_hot(clean, C)
        index = torch.arange(n - 1)  # the last is never seen
        batch = Batch(torch.zeros(n - 1), y[index], index)
        recorder.add(
            epoch,
            observe(
                CorrectedBatch(Strategy(BootSoft(0.75)), logits[index], batch, 0.5), means=True
            ),
        )
        recorder.end_epoch(epoch)
    recorder.end()
    labels = labels_of(y.tolist(), C, clean.tolist())
    found, _ = audit_labels(labels, Records(observations.Epochs(tmp_path)))
    assert found["is_suspect"].to_pylist() == [True] * wrong + [False] * (n - wrong)
    assert found["suggested_label"].equals(found["clean_label"])
    # Of equals the first class is the predicted one.
    assert found["flips"].to_pylist()[:-1] == [int(k > 0) for k in clean.tolist()[:-1]]
    learned = [0 if a == 0 else 1 if a == b else None for a, b in zip(y, clean, strict=True)]
    assert found["first_learned_epoch"].to_pylist() == [*learned[:-1], None]
    assert found["trust"].to_pylist() == [0.75] * (n - 1) + [None]
    assert found["quality"].null_count == 1
    corrected = np.array(found["corrected_distribution"].to_pylist())
    np.testing.assert_allclose(corrected.sum(1), 1, atol=1e-5)
    np.testing.assert_array_equal(corrected[:-1].argmax(1), clean[:-1].numpy())
    suggested = [int(name.removeprefix("class ")) for name in found["suggested_label"].to_pylist()]
    np.testing.assert_array_equal(
        found["p_suggested"].to_numpy()[:-1], corrected[np.arange(n), suggested][:-1]
    )


def made(C: int = 3, n: int = 4, clean: bool = True) -> pa.Table:
    y = [i % C for i in range(n)]
    chances = np.random.default_rng(0).dirichlet(np.ones(C), n)
    chances[n // 2 :: 2] = np.nan
    epochs = [epoch_of(*[(0, 0.5, 0.5, 0.5)] * n)]
    suggested = [(k + (i == 0)) % C for i, k in enumerate(y)]
    judgement = scored(suggested, chances, y, [i == 0 for i in range(n)], y)
    return table(labels_of(y, C, y if clean else None), Records(epochs), judgement)


@pytest.mark.parametrize("C", [3, 150])
@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("n", [0, 1, 7])
def test_what_is_written_is_read(tmp_path: Path, C: int, clean: bool, n: int) -> None:
    path = tmp_path / "examples.parquet"
    written = made(C, n, clean)
    write_parquet(written, path)
    assert [file.name for file in tmp_path.iterdir()] == ["examples.parquet"]
    assert read_examples(path).equals(written)


def test_a_failed_write_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "examples.parquet"
    write_parquet(made(), path)
    with pytest.raises(InputError, match="cannot write"):
        write_parquet(made(), tmp_path / "nowhere" / "examples.parquet")
    with pytest.raises(AttributeError):
        write_parquet("no table", path)
    assert read_examples(path).equals(made())
    assert [file.name for file in tmp_path.iterdir()] == ["examples.parquet"]


def test_a_file_of_an_older_version_has_neither_action_nor_witness(tmp_path: Path) -> None:
    path = tmp_path / "examples.parquet"
    older = made().drop_columns(["action", "witness"])
    pq.write_table(older, path)
    assert read_examples(path).equals(older)


def test_columns_of_others_are_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "examples.parquet"
    pq.write_table(made().append_column("mine", pa.array([1, 2, 3, 4])), path)
    assert read_examples(path).equals(made())


def changed(name: str, values: Any) -> pa.Table:
    whole = made()
    return whole.set_column(whole.column_names.index(name), name, values)


@pytest.mark.parametrize(
    ("other", "sentence"),
    [
        (made().drop_columns("quality"), 'has no column "quality"'),
        (pa.table({"a": [1]}), 'has no column "index"'),
        (changed("flips", pa.array([1.5] * 4)), '"flips" of .* holds double, expected int32'),
        (changed("id", pa.array([1, 2, 3, 4])), '"id" of .* holds int64, expected string'),
        (changed("id", pa.array(["a", None, "c", "d"])), '"id" of .* has empty cells'),
        (changed("action", pa.array(["a", None, "c", "d"])), '"action" of .* has empty cells'),
        (changed("witness", pa.array([1, 2, 3, 4])), '"witness" of .* holds int64, expected str'),
        (changed("index", pa.array([0, 1, 2, 2])), "not numbered from 0 in order"),
        (
            changed("quality", pa.array([0, 1, 2, 0], pa.float32())),
            '"quality" of .* outside 0 … 1',
        ),
        (
            changed("p_given", pa.array([0, 1, math.nan, 0], pa.float32())),
            '"p_given" of .* outside 0 … 1',
        ),
        (
            changed("corrected_distribution", pa.array([[1]] * 4)),
            r"list<.*int64> ?, expected list<.*float> or list<.*struct<label: string, p: float>>",
        ),
    ],
)
def test_a_file_that_is_something_else_is_refused(
    tmp_path: Path, other: pa.Table, sentence: str
) -> None:
    path = tmp_path / "examples.parquet"
    pq.write_table(other, path)
    with pytest.raises(InputError, match=sentence):
        read_examples(path)


@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_a_damaged_file_is_a_sentence(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("damaged") / "examples.parquet"
    write_parquet(made(), path)
    content = bytearray(path.read_bytes())
    where = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        content[where] ^= data.draw(st.integers(1, 255))
    else:
        del content[where:]
    path.write_bytes(content)
    with contextlib.suppress(InputError):
        read = read_examples(path)
        numbers: npt.NDArray[np.float32] = read["quality"].drop_null().to_numpy()
        assert ((numbers >= 0) & (numbers <= 1)).all()


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read"):
        read_examples(tmp_path / "examples.parquet")
