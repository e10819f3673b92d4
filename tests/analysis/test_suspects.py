"""`examples.parquet`, one example at a time, and what its suspects are worth."""

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
from sklearn.metrics import (
    average_precision_score,
    f1_score,
    precision_score,
    recall_score,
    roc_auc_score,
)

from proselflc.analysis import suspects
from proselflc.analysis.suspects import (
    Detection,
    Recent,
    detection,
    examples,
    label_accuracy,
    read_examples,
    write_parquet,
)
from proselflc.correction.criteria import BootSoft
from proselflc.data.batches import Batch
from proselflc.data.labels import Labels
from proselflc.data.noise import fingerprint
from proselflc.errors import InputError
from proselflc.training import observations
from proselflc.training.observations import NO_CLASS, ROW, TOP, Mean, Recorder, Rows, see

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
        array[i] = (predicted, p_given, entropy, 0, trust, 0)
    return array


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
    table = examples(labels, iter(epochs), Recent(p, target))
    assert table.column_names == [*COLUMNS, "clean_label"]
    assert table.to_pydict() == {
        "index": [0, 1, 2, 3],
        "id": ["0.png", "1.png", "2.png", "3.png"],
        "given_label": ["class 0", "class 0", "class 1", "class 2"],
        # Of equal p the given label's wins; what was never seen keeps its label.
        "suggested_label": ["class 0", "class 1", "class 1", "class 2"],
        "is_suspect": [False, True, False, False],
        "quality": [0.75, 0.25, 0.5, None],
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
    assert label_accuracy(table) == (0.75, 1.0)


def test_without_true_labels_there_is_no_such_column() -> None:
    table = examples(labels_of([0], 2), [], Recent(dense([[1, 0]]), dense([[1, 0]])))
    assert table.column_names == COLUMNS
    assert label_accuracy(table) == (None, None)


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
    table = examples(labels_of(y, 3), files, Recent(mean, mean))
    found = zip(
        table["first_learned_epoch"].to_pylist(),
        table["flips"].to_pylist(),
        table["trust"].to_pylist(),
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
def test_distributions_and_suggestions_whatever_is_done_at_once(
    seed: int, n: int, C: int, elements: int
) -> None:
    generator = np.random.default_rng(seed)
    y = generator.integers(C, size=n).tolist()
    p = generator.dirichlet(np.full(C, 0.3), n).astype(np.float16)
    target = (generator.dirichlet(np.full(C, 0.3), n) - 0.2 * p).astype(np.float16)
    unseen = generator.random(n) < 0.2
    p[unseen], target[unseen] = np.nan, np.nan
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(suspects, "_ELEMENTS", elements)
        table = examples(labels_of(y, C), [], Recent(p, target))
    rows = table.to_pylist()
    assert [row["index"] for row in rows] == list(range(n))
    for i, row in enumerate(rows):
        given_label = f"class {y[i]}"
        assert row["is_suspect"] == (row["suggested_label"] != given_label)
        corrected = row["corrected_distribution"]
        if unseen[i]:
            expected = np.eye(C)[y[i]]
            assert row["suggested_label"] == given_label
            assert (row["quality"], row["p_given"], row["p_suggested"]) == (None, None, None)
        else:
            expected = np.maximum(target[i].astype(np.float64), 0)
            expected /= expected.sum()
            best = int(np.argmax(p[i]))
            assert row["suggested_label"] == f"class {best}" or p[i, best] == p[i, y[i]]
            assert row["p_suggested"] == p[i].max()
            assert row["p_given"] == row["quality"] == p[i, y[i]]
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
    """The given label is among the five, is not, and may be hidden below the smallest."""
    labels = labels_of([1, 0, 0, 0], 7)
    epochs = [epoch_of(*[(2, p, 1.0, 0.5) for p in (0.125, 0.03125, 0.5, 0.25)])]
    five = [(2, 0.375), (1, 0.25), (3, 0.125), (4, 0.125), (5, 0.0625)]
    p = top([five, five, five, [(6, 1.0)]])
    target = top([five, [(6, 0.75), (5, 0.75)], [(2, 0.5), (3, -0.25)], []])
    table = examples(labels, epochs, Recent(p, target))
    assert table["suggested_label"].to_pylist() == ["class 2", "class 2", "class 2", "class 6"]
    # The second is what the last epoch saw; the third cannot be more than the fifth of the five.
    assert table["quality"].to_pylist() == [0.25, 0.03125, 0.0625, 0.0]
    np.testing.assert_allclose(
        table["corrected_distribution"].to_pylist(),
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
    table = examples(labels, [], Recent(p, target))
    found = [
        [(c["label"], c["p"]) for c in row] for row in table["corrected_distribution"].to_pylist()
    ]
    assert found[0][:2] == [("class 1", pytest.approx(2 / 3)), ("class 180", pytest.approx(1 / 3))]
    assert found[0][2:] == [("class 0", 0), ("class 2", 0), ("class 3", 0)]
    assert found[1][:2] == [("class 150", 1), ("class 0", 0)]
    assert found[2] == [(f"class {k}", float(k == 3)) for k in (3, 0, 1, 2, 4)]


@pytest.mark.parametrize("largest", [0, 10**8])
def test_what_the_recorder_writes_can_be_read(
    largest: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network that is sure of the true class from the second epoch on."""
    monkeypatch.setattr(observations, "LARGEST", largest)
    n, C = 12, 7
    clean = torch.arange(n) % C
    y = clean.clone()
    y[:3] = (y[:3] + 1) % C
    recorder = Recorder(tmp_path, n, C, epochs=4)
    for epoch in range(4):
        target_class = y if epoch == 0 else clean
        logits = 4.0 * torch.nn.functional.one_hot(target_class, C)
        index = torch.arange(n - 1)  # the last is never seen
        batch = Batch(torch.zeros(n - 1), y[index], index)
        recorder.add(epoch, see(BootSoft(0.75), logits[index], batch, 0.5, means=True))
        recorder.end_epoch(epoch)
    recorder.end()
    recent = Recent(observations.recent(tmp_path, "p"), observations.recent(tmp_path, "target"))
    assert (recent.p.dtype == TOP) == (largest == 0)
    labels = labels_of(y.tolist(), C, clean.tolist())
    table = examples(labels, observations.observed(tmp_path), recent)
    assert table["is_suspect"].to_pylist() == [True] * 3 + [False] * 9
    assert table["flips"].to_pylist() == [1] * 3 + [0] * 9
    assert table["first_learned_epoch"].to_pylist() == [0] * 11 + [None]
    assert table["trust"].to_pylist() == [0.75] * 11 + [None]
    assert label_accuracy(table) == (0.75, 1.0)
    corrected = np.array(table["corrected_distribution"].to_pylist())
    np.testing.assert_array_equal(corrected[:11].argmax(1), clean[:11].numpy())
    other = 1 / (math.exp(4) + 6)
    np.testing.assert_allclose(corrected[0, 1], 0.25 + 0.75 * other, atol=2e-3)
    np.testing.assert_allclose(table["quality"].to_pylist()[0], other, atol=2e-3)


@pytest.mark.parametrize(
    ("observed", "p", "sentence"),
    [
        ([epoch_of(None)], dense([NEVER, NEVER]), "record of epoch 0 is of 1 examples"),
        ([], top([[], []]), r"is \[2, 5\], but there are 2 labels of 3 classes"),
        ([], dense([NEVER]), r"is \[1, 3\], but there are 2 labels of 3 classes"),
        ([], dense([NEVER[:2], NEVER[:2]]), r"is \[2, 2\], but there are 2 labels of 3 classes"),
    ],
)
def test_records_of_another_run_are_refused(observed: list[Rows], p: Mean, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        examples(labels_of([0, 1], 3), observed, Recent(p, dense([NEVER, NEVER])))


@settings(max_examples=100, deadline=None)
@given(
    rows=st.lists(
        st.tuples(st.booleans(), st.sampled_from([0.0, 0.25, 0.5, 1.0]), st.booleans()),
        min_size=1,
        max_size=30,
    )
)
def test_detection_is_that_of_scikit_learn(rows: list[tuple[bool, float, bool]]) -> None:
    is_suspect, quality, flipped = (np.array(column) for column in zip(*rows, strict=True))
    found = detection(is_suspect, quality, flipped)
    if flipped.any() and not flipped.all():
        assert found.auroc == pytest.approx(roc_auc_score(flipped, 1 - quality))
        # The chance that a wrong label ranks below a right one, ties counting half.
        wrong, right = quality[flipped][:, None], quality[~flipped]
        chance = ((wrong < right) + 0.5 * (wrong == right)).mean()
        assert found.auroc == pytest.approx(chance)
        assert found.average_precision == pytest.approx(
            average_precision_score(flipped, 1 - quality)
        )
    else:
        assert (found.auroc, found.average_precision) == (None, None)
    for value, score, defined in (
        (found.precision, precision_score, is_suspect.any()),
        (found.recall, recall_score, flipped.any()),
        (found.f1, f1_score, (is_suspect | flipped).any()),
    ):
        if defined:
            assert value == pytest.approx(score(flipped, is_suspect, zero_division=0))
        else:
            assert value is None


def test_what_has_no_quality_is_not_ranked() -> None:
    found = detection(
        np.array([True, False, False, False]),
        np.array([0.1, 0.9, np.nan, np.nan], dtype=np.float32),
        np.array([True, False, True, False]),
    )
    assert found == Detection(auroc=1.0, average_precision=1.0, precision=1.0, recall=0.5, f1=2 / 3)


def made(C: int = 3, n: int = 4, clean: bool = True) -> pa.Table:
    y = [i % C for i in range(n)]
    p = np.random.default_rng(0).dirichlet(np.ones(C), n).astype(np.float16)
    p[n // 2 :: 2] = np.nan
    epochs = [epoch_of(*[(0, 0.5, 0.5, 0.5)] * n)]
    return examples(labels_of(y, C, y if clean else None), epochs, Recent(p, p))


@pytest.mark.parametrize("C", [3, 150])
@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("n", [0, 1, 7])
def test_what_is_written_is_read(tmp_path: Path, C: int, clean: bool, n: int) -> None:
    path = tmp_path / "examples.parquet"
    table = made(C, n, clean)
    write_parquet(table, path)
    assert [file.name for file in tmp_path.iterdir()] == ["examples.parquet"]
    read = read_examples(path)
    assert read.equals(table)


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
    table = made()
    return table.set_column(table.column_names.index(name), name, values)


@pytest.mark.parametrize(
    ("table", "sentence"),
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
    tmp_path: Path, table: pa.Table, sentence: str
) -> None:
    path = tmp_path / "examples.parquet"
    pq.write_table(table, path)
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
        table = read_examples(path)
        numbers: npt.NDArray[np.float32] = table["quality"].drop_null().to_numpy()
        assert ((numbers >= 0) & (numbers <= 1)).all()


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read"):
        read_examples(tmp_path / "examples.parquet")
