"""The mean prediction of every example, against a loop over examples and epochs."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proselflc.auditing import records
from proselflc.auditing.records import HeldOut, Records, slices
from proselflc.data.labels import Labels
from proselflc.errors import InputError
from proselflc.training.observations import NO_CLASS, ROW, Mean, Rows

Doubles = npt.NDArray[np.float64]
Labelled = npt.NDArray[np.int64]


def drawn(seed: int, n: int, C: int, epochs: int, seen: float) -> tuple[list[Rows], Labelled]:
    """Records as a recorder would write them, of any p; some examples are not in some epochs."""
    generator = np.random.default_rng(seed)
    y = generator.integers(C, size=n)
    files = []
    for _ in range(epochs):
        rows = np.zeros(n, ROW)
        p = generator.dirichlet(np.full(C, 0.2), n)
        others = p.copy()
        others[np.arange(n), y] = -1
        rows["p_given"] = p[np.arange(n), y]
        rows["p_other"], rows["other"] = others.max(1), others.argmax(1)
        unseen = generator.random(n) >= seen
        for name in ROW.names or ():
            rows[name][unseen] = NO_CLASS if ROW[name].kind == "u" else np.nan
        files.append(rows)
    return files, y


def one_by_one(files: list[Rows], y: Labelled, C: int) -> Doubles:
    """[n, C] the same mean with nothing but Python's numbers."""
    means = []
    for i, label in enumerate(y.tolist()):
        sums, count = [0.0] * C, 0
        for epoch in files:
            p, q, other = (epoch[i][name].item() for name in ("p_given", "p_other", "other"))
            if math.isnan(p):
                continue
            count += 1
            for k in range(C):
                if k == label:
                    sums[k] += p
                elif k == other:
                    sums[k] += q
                else:
                    sums[k] += max(1 - p - q, 0) / (C - 2)
        means.append([s / count if count else math.nan for s in sums])
    return np.array(means).reshape(len(y), C)


def of(files: list[Rows], held_out: HeldOut | None = None) -> Records:
    return Records(files, held_out)


@settings(max_examples=80, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    n=st.integers(0, 12),
    C=st.sampled_from([2, 3, 4, 11]),
    epochs=st.integers(0, 6),
    seen=st.sampled_from([0.0, 0.5, 1.0]),
    data=st.data(),
)
def test_the_mean_prediction_is_that_of_a_loop(
    seed: int, n: int, C: int, epochs: int, seen: float, data: st.DataObject
) -> None:
    files, y = drawn(seed, n, C, epochs, seen)
    first = data.draw(st.none() | st.integers(0, 7))
    begin = data.draw(st.integers(0, n))
    rows = slice(begin, data.draw(st.integers(begin, n)))
    mean = of(files).mean_prediction(rows, y, C, epochs=first)
    expected = one_by_one(files[:first], y, C)[rows]
    assert mean.dtype == np.float32
    assert mean.shape == (rows.stop - rows.start, C)
    np.testing.assert_allclose(mean, expected, rtol=1e-5, atol=1e-6)
    # Two numbers in float16 are off by no more than 2⁻¹² each, and what they leave makes it good.
    known = mean[~np.isnan(mean[:, 0])]
    np.testing.assert_allclose(known.sum(1), 1, rtol=0, atol=2**-11)
    assert (known > -1e-6).all()


def test_what_was_never_seen_has_no_mean() -> None:
    files, y = drawn(0, 5, 3, 4, 1.0)
    for epoch in files:
        epoch[2]["p_given"] = np.nan
    mean = of(files).mean_prediction(slice(0, 5), y, 3)
    assert np.isnan(mean).all(1).tolist() == [False, False, True, False, False]
    assert np.isnan(of([]).mean_prediction(slice(0, 5), y, 3)).all()


def test_by_hand() -> None:
    """Of four classes, 0.25 of one epoch and 0.125 of the other go to two classes each."""
    rows = np.zeros((2, 1), ROW)
    for epoch, (p, q, k) in zip(rows, [(0.5, 0.25, 3), (0.125, 0.75, 0)], strict=True):
        epoch["p_given"], epoch["p_other"], epoch["other"] = p, q, k
    mean = of(list(rows)).mean_prediction(slice(0, 1), np.array([1]), 4)
    assert mean.tolist() == [[0.4375, 0.3125, 0.09375, 0.15625]]
    early = of(list(rows)).mean_prediction(slice(0, 1), np.array([1]), 4, epochs=1)
    assert early.tolist() == [[0.125, 0.5, 0.125, 0.25]]


def test_predictions_out_of_sample_are_taken_for_those_in_training() -> None:
    files, y = drawn(1, 6, 3, 4, 1.0)
    p = np.random.default_rng(0).dirichlet(np.ones(3), 6).astype(np.float16)
    p[4] = np.nan
    mean = of(files, HeldOut(4, p)).mean_prediction(slice(1, 6), y, 3, epochs=2)
    assert mean.dtype == np.float32
    np.testing.assert_array_equal(mean, p[1:])
    p[5] = -np.inf, 2, np.inf
    mean = of(files, HeldOut(4, p)).mean_prediction(slice(4, 6), y, 3)
    np.testing.assert_array_equal(mean, [[np.nan] * 3, [0, 1, 1]])


@pytest.mark.parametrize("field", ["p_given", "p_other"])
@pytest.mark.parametrize("value", [np.inf, -np.inf, 1000.0, -5.0])
def test_a_record_that_is_no_probability_counts_as_the_nearest(field: str, value: float) -> None:
    files, y = drawn(2, 4, 3, 1, 1.0)
    files[0][1][field] = value
    files[0][2]["other"] = 60_000
    mean = of(files).mean_prediction(slice(0, 4), y, 3)
    assert ((mean > -1e-6) & (mean < 1 + 1e-6)).all()
    files[0][1][field] = min(max(value, 0), 1)
    files[0][2]["other"] = 2
    np.testing.assert_array_equal(mean, of(files).mean_prediction(slice(0, 4), y, 3))


@settings(max_examples=60, deadline=None)
@given(n=st.integers(0, 40), width=st.integers(1, 50), elements=st.integers(1, 60))
def test_slices_cut_rows_into_pieces_of_a_size(n: int, width: int, elements: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(records, "_ELEMENTS", elements)
        pieces = list(slices(n, width))
    assert pieces[0].start == 0
    assert pieces[-1].stop == n
    assert all(a.stop == b.start for a, b in pairwise(pieces))
    assert all((one.stop - one.start) * width <= max(elements, width) for one in pieces)
    assert len(pieces) == max(1, math.ceil(n / max(1, elements // width)))


def labels_of(n: int, C: int) -> Labels:
    y = np.arange(n) % C
    names, ids = (tuple(f"{what} {k}" for k in range(m)) for what, m in (("class", C), ("id", n)))
    return Labels(y, None, np.zeros(n, np.bool_), np.eye(C), names, ids, "none", "")


def dense(n: int, C: int) -> Mean:
    return np.zeros((n, C), np.float16)


GOOD = Records([np.zeros(4, ROW)] * 2, HeldOut(2, dense(4, 6)))


@pytest.mark.parametrize(
    "good",
    [GOOD, replace(GOOD, held_out=None)],
)
def test_records_of_the_labels_are_taken(good: Records) -> None:
    good.check(labels_of(4, 6))


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (replace(GOOD, observed=[]), "the run has no dynamics, .* train it again"),
        (
            replace(GOOD, observed=[np.zeros(4, ROW), np.zeros(3, ROW)]),
            r"the record of epoch 1 .* \[3\], but there are 4 labels: it belongs to another run",
        ),
        (
            replace(GOOD, observed=[np.zeros((), ROW)]),
            r"epoch 0 .* \[\], but there are 4",
        ),
        (replace(GOOD, observed=[np.zeros((4, 1), ROW)]), r"epoch 0 .* \[4, 1\], but there are 4"),
        (
            replace(GOOD, held_out=HeldOut(2, dense(4, 7))),
            r"predictions .* \[4, 7\], but there are 4 labels of 6 classes: they ",
        ),
    ],
)
def test_records_of_something_else_are_refused(wrong: Records, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        wrong.check(labels_of(4, 6))
