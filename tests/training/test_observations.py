"""What is seen of every example against loops in numpy, and records that survive anything."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from proselflc.correction import criteria
from proselflc.correction.criterion import Criterion
from proselflc.correction.memory import Memory
from proselflc.correction.target import RememberedPrediction, Target
from proselflc.correction.trust import Fixed
from proselflc.data.batches import Batch
from proselflc.errors import InputError
from proselflc.training import observations
from proselflc.training.observations import (
    NO_CLASS,
    ROW,
    TOP,
    Epochs,
    Observations,
    Recorder,
    observe,
    recent,
)
from proselflc.training.strategy import CorrectedBatch, Strategy

Array = npt.NDArray[Any]
FIELDS = ROW.names or ()
CLASSES = [FIELDS.index(name) for name in ("predicted", "other", "semantic")]


def batch_of(logits: Tensor, seed: int = 0) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    N, C = logits.shape
    return Batch(logits, torch.randint(C, (N,), generator=generator), torch.arange(N))


def by_hand(
    z: Array, y: int, trust: Callable[[float, float], float], sign: int
) -> tuple[list[float], list[float], list[float]]:
    """The facts, p and q̃ of one example whose reference is p, number by number."""
    largest = max(z)
    powers = [math.exp(v - largest) for v in z]
    p = [v / sum(powers) for v in powers]
    entropy = sum(-v * math.log(v) for v in p if v > 0)
    eps = trust(entropy, max(p))
    target = [(1 - eps) * (j == y) + sign * eps * v for j, v in enumerate(p)]
    other = max((j for j in range(len(p)) if j != y), key=lambda j: p[j])  # the first of equals
    facts = [p.index(max(p)), p[y], entropy, p[other], other, eps, target.index(max(target))]
    return facts, p, target


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    N=st.integers(1, 9),
    C=st.integers(2, 7),
    scale=st.sampled_from([0.0, 1.0, 10.0, 200.0]),
    excluded=st.booleans(),
    progress=st.floats(0, 1),
)
def test_what_is_seen_is_what_a_loop_over_numbers_sees(
    seed: int, N: int, C: int, scale: float, excluded: bool, progress: float
) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = scale * torch.randn(N, C, generator=generator, dtype=torch.float64)
    batch = batch_of(logits, seed)
    if excluded:  # a class that is neither the given one nor the only other
        logits[torch.arange(N), (batch.y + 1) % C] = -torch.inf if C > 2 else 0.0
    g = 1 / (1 + math.exp(-10 * (progress - 0.5)))
    local = 1 / math.log(C)
    methods: list[tuple[Criterion, Callable[[float, float], float], int]] = [
        (criteria.ProSelfLC(10), lambda H, top: g * min(max(1 - H * local, 0), 1), 1),
        (criteria.ConfidencePenalty(0.3), lambda H, top: 0.3, -1),
        (criteria.CrossEntropy(), lambda H, top: 0.0, 1),
    ]
    for criterion, trust, sign in methods:
        seen = observe(CorrectedBatch(Strategy(criterion), logits, batch, progress), means=True)
        assert seen.index is batch.index
        assert seen.facts.dtype == torch.float32
        assert seen.facts.shape == (N, len(FIELDS))
        for i in range(N):
            facts, p, target = by_hand(logits[i].numpy(), int(batch.y[i]), trust, sign)
            assert seen.facts[i].tolist() == pytest.approx(facts, rel=1e-5, abs=1e-6)
            assert seen.means[0][i].tolist() == pytest.approx(p, rel=1e-5, abs=1e-6)
            assert seen.means[1][i].tolist() == pytest.approx(target, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    "criterion",
    [
        criteria.ProSelfLC(10),
        criteria.LowTemperatureProSelfLC(10),
        criteria.CrossEntropy(),
        criteria.LabelSmoothing(0.3),
        criteria.BootHard(0.6),
        criteria.GeneralizedCrossEntropy(),
        criteria.SymmetricCrossEntropy(),
        criteria.ForwardCorrection(torch.eye(6) * 0.7 + 0.05),
    ],
    ids=lambda criterion: type(criterion).__name__,
)
def test_what_is_seen_is_what_the_criterion_says_it_teaches(
    criterion: Criterion, dtype: torch.dtype
) -> None:
    logits = 4 * torch.randn(50, 6, generator=torch.Generator().manual_seed(3)).to(dtype)
    batch = batch_of(logits)
    taught = criterion.correct(logits, batch.y, progress=0.8)
    seen = observe(CorrectedBatch(Strategy(criterion), logits, batch, 0.8), means=True)
    assert_close(seen.facts[:, 5], taught.trust.float(), rtol=0, atol=0)
    assert torch.equal(seen.facts[:, 6].long(), taught.target.argmax(1))
    assert_close(seen.means[1], taught.target.float(), rtol=0, atol=0)
    assert_close(seen.means[0], logits.float().softmax(1), rtol=1e-5, atol=1e-6)


def test_the_first_of_equal_classes_is_the_predicted_one() -> None:
    logits = torch.tensor([[1.0, 2.0, 2.0, 0.0, 2.0], [0.0, 0.0, 0.0, 0.0, 0.0]])
    batch = Batch(logits, torch.tensor([4, 2]), torch.arange(2))
    seen = observe(
        CorrectedBatch(Strategy(criteria.BootSoft(1.0)), logits, batch, 0.5), means=False
    )
    assert seen.facts[:, 0].tolist() == [1, 0]
    assert seen.facts[:, 4].tolist() == [1, 0]
    assert seen.facts[:, 6].tolist() == [1, 0]
    assert seen.means == ()


@pytest.mark.parametrize("C", [2, 3, 7])
def test_the_strongest_other_class_is_never_the_given_one(C: int) -> None:
    """Also where the network is so sure that p of every other class is 0."""
    given = torch.arange(C)
    batch = Batch(torch.zeros(C), given, given)
    sure = torch.full((C, C), -torch.inf)
    sure[given, given] = 0
    for logits in (sure, 1e4 * torch.eye(C)):
        seen = observe(
            CorrectedBatch(Strategy(criteria.CrossEntropy()), logits, batch, 0.5), means=False
        )
        assert seen.facts[:, 1].tolist() == [1.0] * C
        assert seen.facts[:, 3].tolist() == [0.0] * C
        assert seen.facts[:, 4].tolist() == [1] + [0] * (C - 1)
    # Where p of the given label is itself 0, the others still have one that is larger.
    seen = observe(
        CorrectedBatch(Strategy(criteria.CrossEntropy()), sure.roll(1, 0), batch, 0.5), means=False
    )
    assert seen.facts[:, 1].tolist() == [0.0] * C
    assert seen.facts[:, 3].tolist() == [1.0] * C
    assert seen.facts[:, 4].tolist() == [(k - 1) % C for k in range(C)]


def test_seeing_keeps_no_gradient_and_changes_nothing() -> None:
    logits = torch.randn(4, 3, requires_grad=True)
    criterion = criteria.ProSelfLC(10)
    before = logits.detach().clone()
    seen = observe(CorrectedBatch(Strategy(criterion), logits, batch_of(logits), 0.9), means=True)
    assert not seen.facts.requires_grad
    assert not any(mean.requires_grad for mean in seen.means)
    assert torch.equal(logits, before)
    assert int(criterion.t) == 0


def test_a_method_that_remembers_is_seen_with_its_memory() -> None:
    memory = Memory(5, 3)
    memory.update(torch.tensor([1, 4]), torch.tensor([[0.0, 0.0, 1.0], [0.2, 0.5, 0.3]]))
    criterion = Criterion(Target(RememberedPrediction(), Fixed(0.8)), memory=memory)
    logits = torch.randn(2, 3)
    batch = Batch(logits, torch.tensor([0, 0]), torch.tensor([4, 1]))
    taught = criterion.correct(logits, batch.y, index=batch.index, progress=0.1)
    seen = observe(CorrectedBatch(Strategy(criterion), logits, batch, 0.1), means=True)
    assert_close(seen.means[1], taught.target)
    assert_close(seen.means[1], torch.tensor([[0.36, 0.4, 0.24], [0.2, 0.0, 0.8]]))
    assert Strategy(criterion).evidence(logits, batch, 0.1).remembered is not None


def synthetic(
    n: int, C: int, epochs: int, *, seed: int = 0, least: int = 1
) -> Iterator[tuple[int, Observations]]:
    """Steps of several epochs; every example is seen once in each but some are in none."""
    generator = torch.Generator().manual_seed(seed)
    for epoch in range(epochs):
        order = torch.randperm(n - least, generator=generator) + least
        for start in range(0, len(order), 4):
            index = order[start : start + 4]
            p = torch.rand(len(index), C, generator=generator).mul(3).softmax(1)
            facts = torch.rand(len(index), len(FIELDS), generator=generator)
            facts[:, CLASSES] = (facts[:, CLASSES] * C).floor()
            yield epoch, Observations(index, facts, (p, 2 * p - 0.5))


def record(
    recorder: Recorder, steps: list[tuple[int, Observations]], ends: list[int], start: int = 0
) -> None:
    for number, (epoch, seen) in enumerate(steps[start:], start):
        recorder.add(epoch, seen)
        if number in ends:
            recorder.end_epoch(epoch)


def last_steps(steps: list[tuple[int, Observations]]) -> list[int]:
    """The numbers of the steps that end an epoch."""
    return [
        number
        for number, (epoch, _) in enumerate(steps)
        if number + 1 == len(steps) or steps[number + 1][0] != epoch
    ]


def test_a_row_has_fourteen_bytes() -> None:
    assert ROW.itemsize == 14 <= 16
    assert all(ROW[name].itemsize == 2 for name in FIELDS)


def test_an_epochs_file_holds_what_was_seen_and_marks_what_was_not(tmp_path: Path) -> None:
    n, C, epochs = 11, 300, 3
    steps = list(synthetic(n, C, epochs, least=2))
    recorder = Recorder(tmp_path / "dynamics", n, C, epochs)
    record(recorder, steps, last_steps(steps))
    files = list(Epochs(tmp_path / "dynamics"))
    assert len(files) == epochs
    for epoch, rows in enumerate(files):
        assert isinstance(rows, np.memmap)
        assert rows.shape == (n,)
        for unseen in rows[:2].tolist():
            for k, value in enumerate(unseen):
                assert value == NO_CLASS if k in CLASSES else math.isnan(value)
        for number, seen in steps:
            if number == epoch:
                for i, facts in zip(seen.index.tolist(), seen.facts.numpy(), strict=True):
                    assert [rows[i][k] for k in CLASSES] == facts[CLASSES].tolist()
                    floats = [rows[i][name] for name in ("p_given", "entropy", "p_other", "trust")]
                    assert floats == facts[[1, 2, 3, 5]].astype(np.float16).tolist()
    size = (tmp_path / "dynamics" / "epoch-00000.npy").stat().st_size
    assert isinstance(files[0], np.memmap)
    assert size == files[0].offset + 14 * n  # a header, and no more than the rows


def test_an_epoch_begins_with_nothing_seen(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, 9, 3, epochs=9)
    (_, one), (_, other), *_ = synthetic(9, 3, 1)
    for epoch, seen in enumerate((one, other)):
        recorder.add(epoch, seen._replace(means=()))
        recorder.end_epoch(epoch)
    for rows, seen in zip(Epochs(tmp_path), (one, other), strict=True):
        assert np.flatnonzero(rows["predicted"] != NO_CLASS).tolist() == sorted(seen.index.tolist())


@pytest.mark.parametrize(("epochs", "first"), [(1, -1), (2, 0), (3, 1), (8, 6), (12, 9), (100, 75)])
def test_the_last_epochs_are_a_quarter_and_at_least_two(
    tmp_path: Path, epochs: int, first: int
) -> None:
    recorder = Recorder(tmp_path, 2, 2, epochs)
    wanted = [epoch for epoch in range(epochs) if recorder.wants_means(epoch)]
    assert wanted == list(range(max(first, 0), epochs))


@pytest.mark.parametrize(
    ("epochs", "begins", "first"), [(100, 60, 75), (100, 80, 80), (8, 7, 7), (8, 2, 6), (2, 1, 1)]
)
def test_the_last_epochs_are_of_the_last_stage(
    tmp_path: Path, epochs: int, begins: int, first: int
) -> None:
    recorder = Recorder(tmp_path, 2, 2, epochs, first=begins)
    wanted = [epoch for epoch in range(epochs) if recorder.wants_means(epoch)]
    assert wanted == list(range(first, epochs))


def plain_mean(
    steps: list[tuple[int, Observations]], n: int, C: int, which: int, first: int
) -> npt.NDArray[np.float64]:
    sums, counts = np.zeros((n, C)), np.zeros((n, 1))
    for epoch, seen in steps:
        if epoch >= first:
            sums[seen.index.numpy()] += seen.means[which].double().numpy()
            counts[seen.index.numpy()] += 1
    with np.errstate(invalid="ignore"):
        mean: npt.NDArray[np.float64] = sums / counts
    return mean


def test_the_means_are_those_of_the_last_epochs(tmp_path: Path) -> None:
    n, C, epochs = 13, 6, 20
    steps = list(synthetic(n, C, epochs))
    recorder = Recorder(tmp_path, n, C, epochs)
    record(recorder, steps, last_steps(steps))
    recorder.end()
    for which, name in enumerate(("p", "target")):
        mean = recent(tmp_path, name)
        assert isinstance(mean, np.memmap)
        assert mean.dtype == np.float16
        expected = plain_mean(steps, n, C, which, first=15)
        assert np.isnan(mean[0]).all()
        # Each of five additions rounds to float16, by half of 2⁻¹¹ of a number below 2.
        np.testing.assert_allclose(mean[1:], expected[1:], rtol=0, atol=5 * 2**-11)


def test_outside_the_last_epochs_nothing_is_averaged(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, 5, 3, epochs=8)
    (_, seen), *_ = synthetic(5, 3, 1)
    recorder.add(5, seen._replace(means=()))
    assert recorder.tensors().keys() == {"rows", "count"}
    recorder.add(6, seen)
    assert recorder.tensors().keys() == {"rows", "count", "p.mean", "target.mean"}


def test_five_classes_are_those_of_the_whole_mean_where_they_are_stable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    n, C, epochs = 9, 12, 6
    favourites = np.stack([np.random.default_rng(i).permutation(C)[:5] for i in range(n)])

    def stable() -> Iterator[tuple[int, Observations]]:
        for epoch, seen in synthetic(n, C, epochs, least=0):
            p = seen.means[0] / 50
            rows = torch.arange(len(p))[:, None]
            p[rows, torch.from_numpy(favourites[seen.index.numpy()])] += 0.15
            yield epoch, seen._replace(means=(p, p * 2 - 0.1))

    steps = list(stable())
    dense = Recorder(tmp_path / "dense", n, C, epochs)
    monkeypatch.setattr(observations, "LARGEST", n * C - 1)
    five = Recorder(tmp_path / "five", n, C, epochs)
    for recorder in (dense, five):
        record(recorder, steps, last_steps(steps))
        recorder.end()
    for name in ("p", "target"):
        whole, top = recent(tmp_path / "dense", name), recent(tmp_path / "five", name)
        assert top.dtype == TOP
        assert top.shape == (n, 5)
        for i in range(n):
            assert sorted(top["class"][i]) == sorted(favourites[i])
            np.testing.assert_allclose(
                top["value"][i], whole[i, top["class"][i]], rtol=0, atol=2**-10
            )
            assert (np.diff(top["value"][i]) <= 0).all()


def test_a_class_that_comes_late_among_the_five_is_too_low_and_never_too_high(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    n, C, epochs = 7, 9, 6
    steps = list(synthetic(n, C, epochs, least=0))
    monkeypatch.setattr(observations, "LARGEST", 0)
    recorder = Recorder(tmp_path, n, C, epochs)
    record(recorder, steps, last_steps(steps))
    recorder.end()
    top, expected = recent(tmp_path, "p"), plain_mean(steps, n, C, 0, first=4)
    for i in range(n):
        assert len(set(top["class"][i])) == 5
        assert (top["value"][i] <= expected[i, top["class"][i]] + 2**-10).all()


@pytest.mark.parametrize("C", [2, 4])
def test_fewer_than_five_classes_are_all_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, C: int
) -> None:
    monkeypatch.setattr(observations, "LARGEST", 0)
    steps = list(synthetic(6, C, 2))
    recorder = Recorder(tmp_path, 6, C, 2)
    record(recorder, steps, last_steps(steps))
    recorder.end()
    top, expected = recent(tmp_path, "p"), plain_mean(steps, 6, C, 0, first=0)
    assert top.shape == (6, C)
    assert np.isnan(top["value"][0]).all()
    assert (top["class"][0] == NO_CLASS).all()
    for i in range(1, 6):
        assert sorted(top["class"][i]) == list(range(C))
        np.testing.assert_allclose(
            top["value"][i], expected[i, top["class"][i]], rtol=0, atol=2**-10
        )


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@pytest.mark.parametrize("largest", [10**8, 0], ids=["dense", "five"])
@pytest.mark.parametrize("stop", [0, 2, 5, 11, 13, 17])
def test_a_restored_recorder_goes_on_as_if_nothing_had_happened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, largest: int, stop: int
) -> None:
    monkeypatch.setattr(observations, "LARGEST", largest)
    n, C, epochs = 12, 8, 6
    steps = list(synthetic(n, C, epochs))
    ends = last_steps(steps)
    whole = Recorder(tmp_path / "whole", n, C, epochs)
    record(whole, steps, ends)
    whole.end()
    first = Recorder(tmp_path / "parts", n, C, epochs)
    record(first, steps[:stop], ends)
    kept = {name: tensor.clone() for name, tensor in first.tensors().items()}
    record(first, steps[: stop + 5], ends, start=stop)  # lost when the process dies
    second = Recorder(tmp_path / "parts", n, C, epochs)
    second.restore(kept, steps[stop][0] if stop < len(steps) else epochs)
    record(second, steps, ends, start=stop)
    second.end()
    assert contents(tmp_path / "parts") == contents(tmp_path / "whole")


def test_restoring_removes_the_files_of_this_and_later_epochs_only(tmp_path: Path) -> None:
    steps = list(synthetic(5, 3, 4))
    recorder = Recorder(tmp_path, 5, 3, 4)
    record(recorder, steps, last_steps(steps))
    recorder.end()
    (tmp_path / "epoch-1.npy").write_bytes(b"somebody's")
    before = contents(tmp_path)
    fresh = Recorder(tmp_path, 5, 3, 4)
    fresh.restore(fresh.tensors(), 2)
    gone = {"epoch-00002.npy", "epoch-00003.npy"}
    assert contents(tmp_path) == {k: v for k, v in before.items() if k not in gone}


def changed(name: str, value: Tensor | None) -> dict[str, Tensor]:
    recorder = Recorder(Path("nowhere"), 5, 3, 2)
    (_, seen), *_ = synthetic(5, 3, 1)
    recorder.add(1, seen)
    tensors = recorder.tensors()
    if value is None:
        del tensors[name]
        return tensors
    return {**tensors, name: value}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("rows", None),
        ("count", None),
        ("rows", torch.zeros(6 * 14, dtype=torch.uint8)),
        ("rows", torch.zeros(5 * 14)),
        ("count", torch.zeros(4, dtype=torch.int32)),
        ("p.mean", torch.zeros(5, 4, dtype=torch.float16)),
        ("p.mean", torch.zeros(5, 1, dtype=torch.float16)),
        ("target.mean", torch.zeros(5, 3)),
    ],
)
def test_a_checkpoint_of_other_data_is_refused(
    tmp_path: Path, name: str, value: Tensor | None
) -> None:
    recorder = Recorder(tmp_path, 5, 3, 2)
    with pytest.raises(InputError, match="another number of examples or classes"):
        recorder.restore(changed(name, value), 0)


def test_more_classes_than_two_bytes_can_tell_are_refused(tmp_path: Path) -> None:
    Recorder(tmp_path, 1, 65_534, 1)
    with pytest.raises(InputError, match=r"at most 65,534 classes, got 65,535"):
        Recorder(tmp_path, 1, 65_535, 1)


def header(shape: str) -> bytes:
    text = f"{{'descr': '<f2', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode() + bytes(64)


def saved(array: Array) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=True)
    return file.getvalue()


def archive() -> bytes:
    file = io.BytesIO()
    np.savez(file, a=np.zeros(3))
    return file.getvalue()


BROKEN = {
    "empty": b"",
    "text": b"hello",
    "archive": archive(),
    "pickle": saved(np.array([{"a": 1}], dtype=object)),
    "too large": header("(10000000000,)"),
    "far too large": header("(10000000000000000000000000,)"),
    "negative": header("(-5,)"),
    "no shape": header("'five'"),
    "half": saved(np.zeros(99))[:300],
}


@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN.keys())
def test_a_file_that_is_no_array_is_refused(tmp_path: Path, content: bytes) -> None:
    for name in ("epoch-00000.npy", "recent_p.npy"):
        (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=r"cannot read .*epoch-00000\.npy: "):
        list(Epochs(tmp_path))
    with pytest.raises(InputError, match=r"cannot read .*recent_p\.npy: "):
        recent(tmp_path, "p")


def test_a_folder_in_place_of_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "recent_p.npy").mkdir()
    with pytest.raises(InputError, match=r"cannot read .*recent_p\.npy: "):
        recent(tmp_path, "p")


@pytest.mark.parametrize("array", [np.zeros(4), np.zeros(4, TOP), np.zeros(4, "<u2")], ids=str)
def test_an_array_that_is_no_record_is_refused(tmp_path: Path, array: Array) -> None:
    np.save(tmp_path / "epoch-00000.npy", array)
    with pytest.raises(InputError, match="is not a record of an epoch by this version"):
        list(Epochs(tmp_path))


@pytest.mark.parametrize(
    "array",
    [np.zeros((2, 3)), np.zeros(6, "<f2"), np.zeros((2, 3, 1), "<f2"), np.zeros((2, 2), ROW)],
    ids=lambda array: f"{array.dtype.kind}{array.ndim}",
)
def test_an_array_that_is_no_mean_is_refused(tmp_path: Path, array: Array) -> None:
    np.save(tmp_path / "recent_target.npy", array)
    with pytest.raises(InputError, match="is not a mean of predictions"):
        recent(tmp_path, "target")


def test_a_missing_epoch_is_told(tmp_path: Path) -> None:
    steps = list(synthetic(5, 3, 3))
    recorder = Recorder(tmp_path, 5, 3, 3)
    record(recorder, steps, last_steps(steps))
    (tmp_path / "epoch-00001.npy").unlink()
    with pytest.raises(InputError, match="no record of epoch 1, but of epoch 2"):
        list(Epochs(tmp_path))


def test_without_a_folder_nothing_was_observed(tmp_path: Path) -> None:
    assert list(Epochs(tmp_path / "none")) == []
    with pytest.raises(InputError, match="cannot read"):
        recent(tmp_path / "none", "p")
