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

from proselflc.analysis import records as chunks
from proselflc.analysis.examples import Judgement, read_examples, table, write_parquet
from proselflc.analysis.records import Records
from proselflc.analysis.suspects import examine
from proselflc.correction.criteria import BootSoft
from proselflc.data.batches import Batch
from proselflc.data.labels import Labels
from proselflc.data.noise import fingerprint
from proselflc.errors import InputError
from proselflc.training import observations
from proselflc.training.observations import NO_CLASS, ROW, TOP, Mean, Recorder, Rows, see
from proselflc.training.strategy import Strategy

COLUMNS = [
    "index",
    "id",
    "given_label",
    "suggested_label",
    "is_suspect",
    "quality",
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


def judged(suggested: list[int], quality: list[float] | None = None) -> Judgement:
    """What the table is told; a quality of ½ where it does not matter."""
    chances = [0.5] * len(suggested) if quality is None else quality
    return Judgement(np.array(chances, np.float32), np.array(suggested, np.int64))


def dense(rows: list[list[float]]) -> Mean:
    return np.array(rows, dtype=np.float16)


def top(rows: list[list[tuple[int, float]]]) -> Mean:
    array = np.zeros((len(rows), 5), TOP)
    for i, row in enumerate(rows):
        array[i] = [*row, *[(NO_CLASS, 0.0)] * (5 - len(row))]
    return array


NEVER = [math.nan] * 3


def test_by_hand() -> None:
    labels = labels_of([0, 0, 1, 2], 3, clean=[0, 1, 1, 2])
    epochs = [
        epoch_of((1, 0.25, 1.0, 0.0), (1, 0.25, 1.0, 0.0), None, None),
        epoch_of((0, 0.5, 0.5, 0.25), None, (1, 0.75, 0.5, 0.5), None),
        epoch_of((0, 0.75, 0.25, 0.5), (1, 0.125, 0.25, 0.75), (0, 0.25, 0.75, 0.25), None),
        epoch_of(None, (2, 0.125, 0.125, 0.5), (1, 0.5, 0.125, 1.0), None),
    ]
    p = dense([[0.75, 0.125, 0.125], [0.25, 0.625, 0.125], [0.5, 0.5, 0.0], NEVER])
    target = dense([[1.0, 0.0, 0.0], [0.5, 0.75, -0.25], [-0.25, -0.25, -0.5], NEVER])
    judgement = judged([0, 1, 1, 2], [0.875, 0.125, 0.5, math.nan])
    found = table(labels, Records(epochs, p, target), judgement)
    assert found.column_names == [*COLUMNS, "clean_label"]
    assert found.to_pydict() == {
        "index": [0, 1, 2, 3],
        "id": ["0.png", "1.png", "2.png", "3.png"],
        "given_label": ["class 0", "class 0", "class 1", "class 2"],
        "suggested_label": ["class 0", "class 1", "class 1", "class 2"],
        "is_suspect": [False, True, False, False],
        "quality": [0.875, 0.125, 0.5, None],
        "trust": [0.5, 0.5, 1.0, None],
        "entropy": [0.25, 0.125, 0.125, None],
        "p_given": [0.75, 0.25, 0.5, None],
        "p_suggested": [0.75, 0.625, 0.5, None],
        "first_learned_epoch": [1, None, 1, None],
        "flips": [1, 1, 2, 0],
        "corrected_distribution": [
            [1.0, 0.0, 0.0],
            [pytest.approx(0.4), pytest.approx(0.6), 0.0],
            [0.0, 1.0, 0.0],
            [0.0, 0.0, 1.0],
        ],
        "clean_label": ["class 0", "class 1", "class 1", "class 2"],
    }


def test_without_true_labels_there_is_no_such_column() -> None:
    sure = dense([[1, 0]])
    assert table(labels_of([0], 2), Records([], sure, sure), judged([0])).column_names == COLUMNS


def naive_past(
    epochs: list[list[tuple[int, float] | None]], given: list[int]
) -> list[tuple[int | None, int, float | None]]:
    """First epoch learned, flips and last trust, from (predicted, trust) of every epoch."""
    found = []
    for i, y in enumerate(given):
        story = [(e, seen[i]) for e, seen in enumerate(epochs)]
        seen = [(e, s[0], s[1]) for e, s in story if s is not None]
        learned = next((e for e, k, _ in seen if k == y), None)
        flips = sum(a[1] != b[1] for a, b in pairwise(seen))
        found.append((learned, flips, seen[-1][2] if seen else None))
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
    mean = dense([NEVER] * 4)
    columns = table(labels_of(y, 3), Records(files, mean, mean), judged(y))
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
    p = generator.dirichlet(np.full(C, 0.3), n).astype(np.float16)
    target = (generator.dirichlet(np.full(C, 0.3), n) - 0.2 * p).astype(np.float16)
    unseen = generator.random(n) < 0.2
    p[unseen], target[unseen] = np.nan, np.nan
    suggested = np.where(generator.random(n) < 0.5, generator.integers(C, size=n), y)
    quality = np.where(unseen, np.nan, generator.random(n)).astype(np.float32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunks, "_ELEMENTS", elements)
        found = table(labels_of(y, C), Records([], p, target), Judgement(quality, suggested))
    rows = found.to_pylist()
    assert [row["index"] for row in rows] == list(range(n))
    for i, row in enumerate(rows):
        assert row["given_label"] == f"class {y[i]}"
        assert row["suggested_label"] == f"class {suggested[i]}"
        assert row["is_suspect"] == (suggested[i] != y[i])
        corrected = row["corrected_distribution"]
        if unseen[i]:
            expected = np.eye(C)[y[i]]
            assert (row["quality"], row["p_given"], row["p_suggested"]) == (None, None, None)
        else:
            expected = np.maximum(target[i].astype(np.float64), 0)
            expected /= expected.sum()
            assert row["quality"] == quality[i]
            assert row["p_suggested"] == p[i, suggested[i]]
            assert row["p_given"] == p[i, y[i]]
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


def test_five_remembered_classes() -> None:
    """A label is among the five, is not, and may be hidden below the smallest."""
    labels = labels_of([1, 0, 0, 0], 7)
    epochs = [epoch_of(*[(2, p, 1.0, 0.5) for p in (0.125, 0.03125, 0.5, 0.25)])]
    five = [(2, 0.375), (1, 0.25), (3, 0.125), (4, 0.125), (5, 0.0625)]
    p = top([five, five, five, [(6, 1.0)]])
    target = top([five, [(6, 0.75), (5, 0.75)], [(2, 0.5), (3, -0.25)], []])
    found = table(labels, Records(epochs, p, target), judged([2, 6, 0, 6]))
    # The second is what the last epoch saw; the third cannot be more than the fifth of the five.
    assert found["p_given"].to_pylist() == [0.25, 0.03125, 0.0625, 0.0]
    # Of the second's suggested label nothing was seen; the third's is the given one.
    assert found["p_suggested"].to_pylist() == [0.375, 0.0625, 0.0625, 1.0]
    np.testing.assert_allclose(
        found["corrected_distribution"].to_pylist(),
        [
            [0.0, 0.25, 0.375, 0.125, 0.125, 0.0625, 0.0],  # the rest is elsewhere
            [0.0, 0.0, 0.0, 0.0, 0.0, 0.5, 0.5],
            [0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0],
            [1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0],
        ],
    )


def test_five_remembered_classes_of_many() -> None:
    labels = labels_of([1, 150, 3], 200)
    p = top([[(1, 1.0)], [(150, 1.0)], [(3, 1.0)]])
    target = top([[(1, 0.5), (180, 0.25)], [], [(0, math.nan)] * 5])
    columns = table(labels, Records([], p, target), judged([1, 150, 3]))
    found = [
        [(c["label"], c["p"]) for c in row] for row in columns["corrected_distribution"].to_pylist()
    ]
    assert found[0][:2] == [("class 1", pytest.approx(2 / 3)), ("class 180", pytest.approx(1 / 3))]
    assert found[0][2:] == [("class 0", 0), ("class 2", 0), ("class 3", 0)]
    assert found[1][:2] == [("class 150", 1), ("class 0", 0)]
    assert found[2] == [(f"class {k}", float(k == 3)) for k in (3, 0, 1, 2, 4)]


@pytest.mark.parametrize("largest", [0, 10**8])
def test_what_the_recorder_writes_can_be_read(
    largest: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network that knows nothing at first and is sure of the true class from then on."""
    monkeypatch.setattr(observations, "LARGEST", largest)
    n, C, wrong = 71, 7, 18
    clean = torch.arange(n) % C
    y = clean.clone()
    y[:wrong] = (y[:wrong] + 1) % C
    recorder = Recorder(tmp_path, n, C, epochs=4)
    for epoch in range(4):
        logits = (4.0 if epoch else 0.0) * torch.nn.functional.one_hot(clean, C)
        index = torch.arange(n - 1)  # the last is never seen
        batch = Batch(torch.zeros(n - 1), y[index], index)
        recorder.add(epoch, see(Strategy(BootSoft(0.75)), logits[index], batch, 0.5, means=True))
        recorder.end_epoch(epoch)
    recorder.end()
    p, target = (observations.recent(tmp_path, name) for name in ("p", "target"))
    assert (p.dtype == TOP) == (largest == 0)
    labels = labels_of(y.tolist(), C, clean.tolist())
    found, _ = examine(labels, Records(list(observations.observed(tmp_path)), p, target))
    assert found["is_suspect"].to_pylist() == [True] * wrong + [False] * (n - wrong)
    assert found["suggested_label"].equals(found["clean_label"])
    # Of equals the first class is the predicted one.
    assert found["flips"].to_pylist()[:-1] == [int(k > 0) for k in clean.tolist()[:-1]]
    learned = [0 if a == 0 else 1 if a == b else None for a, b in zip(y, clean, strict=True)]
    assert found["first_learned_epoch"].to_pylist() == [*learned[:-1], None]
    assert found["trust"].to_pylist() == [0.75] * (n - 1) + [None]
    assert found["quality"].null_count == 1
    corrected = np.array(found["corrected_distribution"].to_pylist())
    np.testing.assert_array_equal(corrected[:-1].argmax(1), clean[:-1].numpy())
    other = 1 / (math.exp(4) + 6)
    np.testing.assert_allclose(corrected[0, 1], 0.25 + 0.75 * other, atol=2e-3)
    np.testing.assert_allclose(found["p_given"].to_pylist()[0], other, atol=2e-3)


def made(C: int = 3, n: int = 4, clean: bool = True) -> pa.Table:
    y = [i % C for i in range(n)]
    p = np.random.default_rng(0).dirichlet(np.ones(C), n).astype(np.float16)
    p[n // 2 :: 2] = np.nan
    epochs = [epoch_of(*[(0, 0.5, 0.5, 0.5)] * n)]
    suggested = [(k + (i == 0)) % C for i, k in enumerate(y)]
    judgement = judged(suggested, [0.25, 0.5, math.nan, 1.0, 0.0, 0.75, 1.0][:n])
    return table(labels_of(y, C, y if clean else None), Records(epochs, p, p), judgement)


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
        (made().drop_columns("quality"), 'has no column "quality": it is not an examples.parquet'),
        (pa.table({"a": [1]}), 'has no column "index"'),
        (changed("flips", pa.array([1.5] * 4)), '"flips" of .* holds double, but int32 is'),
        (changed("id", pa.array([1, 2, 3, 4])), '"id" of .* holds int64, but string is'),
        (changed("id", pa.array(["a", None, "c", "d"])), '"id" of .* has empty cells'),
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
            r"list<.*int64> ?, but list<.*float> or list<.*struct<label: string, p: float>> is",
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
