"""Which suspects there are to review, in which order, and what decisions say together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from proselflc.auditing.examples import read_examples, write_parquet
from proselflc.auditing.neighbours import neighbours_of
from proselflc.auditing.noise_range import Share
from proselflc.auditing.plain_features import PlainFeatures
from proselflc.data.decisions import DecisionChange, Sample
from proselflc.errors import InputError
from proselflc.run.reader import Run
from proselflc.run.review import UNDECIDED, UNSURE, Review, View, existing_review


@pytest.fixture
def make(reviewable: Callable[..., Path], tmp_path: Path) -> Callable[..., Review]:
    """A review of fabricated suspects with these qualities."""

    def go(quality: Sequence[float] | None = None, n: int = 24, **options: object) -> Review:
        path = reviewable(tmp_path, n=n, **options)
        if quality is not None:
            table = read_examples(path / "examples.parquet")
            column = table.column_names.index("quality")
            values = np.full(n, 0.9, np.float32)
            values[: len(quality)] = quality
            sure = pa.array(1 - values)
            table = table.set_column(column, "quality", pa.array(values))
            place = table.column_names.index("p_suggested")
            write_parquet(table.set_column(place, "p_suggested", sure), path / "examples.parquet")
        return Review(Run(path))

    return go


def test_the_worst_label_comes_first(make: Callable[..., Review]) -> None:
    quality = [0.4, 0.1, 0.3, 0.2, 0.05, 0.45]
    review = make(quality, suspects=6)
    found = review.view(View())
    assert found.tolist() == np.argsort(quality).tolist()


def test_what_teaches_most_is_unsure_and_unlike_what_came_before(
    make: Callable[..., Review],
) -> None:
    quality = np.random.default_rng(0).uniform(0, 0.5, 12)
    review = make(quality.tolist(), suspects=12)  # given and suggested class k % 3 and the next
    order = review.view(View(order="teaching")).tolist()
    expected: list[int] = []
    left = {pair: sorted(range(pair, 12, 3), key=lambda k: -quality[k]) for pair in range(3)}
    while any(left.values()):
        turn = [rows.pop(0) for rows in left.values() if rows]
        expected += sorted(turn, key=lambda k: -quality[k])
    assert order == expected


def test_filters_by_class_confidence_and_state(make: Callable[..., Review]) -> None:
    review = make([0.1, 0.2, 0.3, 0.4], suspects=4)
    assert review.view(View(given=1)).tolist() == [1]
    assert review.view(View(suggested=1)).tolist() == [0, 3]
    assert review.view(View(low=0.65, high=0.85)).tolist() == [1, 2]
    review.decisions.add([DecisionChange("id-2", "cat", 0)], "anna", "1")
    review.refresh()
    now = review.decisions.lines
    assert review.view(View(state="open", line=now)).tolist() == [0, 1, 3]
    assert review.view(View(state="decided", line=now)).tolist() == [2]
    # The same question later has the same answer: places in a list do not move.
    review.decisions.add([DecisionChange("id-0", "cat", 0)], "anna", "2")
    review.refresh()
    assert review.view(View(state="open", line=now)).tolist() == [0, 1, 3]
    assert Review(review.run).view(View(state="open", line=now)).tolist() == [0, 1, 3]
    assert review.view(View(state="open", line=now + 1)).tolist() == [1, 3]


def test_pairs_and_what_is_left_of_them(make: Callable[..., Review]) -> None:
    review = make(suspects=7)
    assert review.pairs() == [(0, 1, 3, 3), (1, 2, 2, 2), (2, 0, 2, 2)]
    review.decisions.add([DecisionChange("id-1", None, 0)], "anna", "1")
    review.refresh()
    assert review.pairs() == [(0, 1, 3, 3), (1, 2, 2, 1), (2, 0, 2, 2)]


def test_what_decisions_say_together(make: Callable[..., Review]) -> None:
    quality = [0.1, 0.2, 0.3, 0.4]
    review = make(quality, n=6, suspects=4)
    every = sum(1 - q for q in quality) + 2 * 0.1
    assert review.remaining == pytest.approx((every, sum(1 - q for q in quality)))
    wanted = [("id-0", "dog"), ("id-1", "dog"), ("id-2", "dog"), ("id-3", None)]
    # The first as suggested, the second kept, the third another class, the last unsure.
    review.decisions.add([DecisionChange(name, label, 0) for name, label in wanted], "anna", "1")
    review.refresh()
    found = review.precision
    assert (found.decided, found.wrong, found.confirmed, found.unsure) == (3, 2, 1, 1)
    assert review.label.tolist() == [1, 1, 1, UNSURE, UNDECIDED, UNDECIDED]
    assert review.remaining == pytest.approx((0.6 + 0.2, 0.6))
    assert existing_review(review.run) is not None


def test_a_sample_is_drawn_once(make: Callable[..., Review]) -> None:
    review = make(np.linspace(0.01, 0.49, 100).tolist(), n=400, suspects=100)
    assert "a sample of 100 of 400 labels was drawn" in review.use_sample(100, "anna", seed=1)
    first = review.suspects.tolist()
    assert len(set(first)) == 100
    assert any(review.is_suspect(i) for i in first)
    assert any(not review.is_suspect(i) for i in first)
    again = Review(review.run)
    assert "continuing" in again.use_sample(100, "ben", seed=1)
    assert again.suspects.tolist() == first
    assert "was drawn" in again.use_sample(50, "ben", seed=1)
    # It is independent of the first, so that both count together.
    assert again.suspects.tolist() != first[:50]
    assert len(again.suspects) == 50
    other = Review(review.run)
    other.use_sample(100, "ben", seed=2)
    assert other.suspects.tolist() != first
    assert "a sample of 400 of 400" in Review(review.run).use_sample(1000, "ben", seed=0)
    with pytest.raises(InputError, match="sample= must be at least 1, got 0"):
        other.use_sample(0, "ben", seed=0)


def test_a_label_that_looks_right_is_shown_beside_the_likeliest_other_class(
    make: Callable[..., Review],
) -> None:
    review = make(n=30, suspects=6)
    chances = np.random.default_rng(0).dirichlet([1, 1, 1], 30).astype(np.float32)
    table = read_examples(review.run.directory.examples)
    place = table.column_names.index("corrected_distribution")
    column = pa.array(chances.tolist(), pa.list_(pa.float32()))
    write_parquet(
        table.set_column(place, "corrected_distribution", column), review.run.directory.examples
    )
    review = Review(Run(review.run.path))
    before = review.suggested.copy()
    assert not review.can_be_decided(20)
    review.use_sample(30, "anna", seed=0)
    assert review.can_be_decided(20)
    assert (review.suggested != review.given).all()
    np.testing.assert_array_equal(review.suggested[:6], before[:6])
    chances[np.arange(30), review.given] = -1
    np.testing.assert_array_equal(review.suggested[6:], chances.argmax(1)[6:])
    np.testing.assert_array_equal(review.sure[6:], chances.max(1)[6:])
    # Decisions about these are not decisions about suspects.
    review.decisions.add([DecisionChange("id-20", "cat", 0)], "anna", "1")
    review.refresh()
    assert review.whole_precision.decided == 0
    assert review.precision.decided == 1


def test_trusted_labels_are_not_drawn(make: Callable[..., Review]) -> None:
    review = make(n=30, suspects=6)
    labels, trusted = review.run.labels, np.arange(30) >= 20
    replace(labels, trusted=trusted).save(review.run.directory.labels)
    again = Review(Run(review.run.path))
    assert "a sample of 20 of 20 labels" in again.use_sample(25, "anna", seed=0)
    assert sorted(again.suspects.tolist()) == list(range(20))


def test_a_sample_that_is_half_decided_is_still_one(make: Callable[..., Review]) -> None:
    """Of what was decided before, and may be the clearest mistakes, nothing counts too early."""
    review = make(np.linspace(0.01, 0.49, 60).tolist(), n=60, suspects=60)
    review.decisions.add(
        [DecisionChange(f"id-{i}", "fox", 0) for i in range(20)], "anna", "1"
    )  # the worst
    review.refresh()
    assert not review.is_sample
    review.use_sample(40, "anna", seed=0)
    assert review.is_sample
    drawn = review.suspects.tolist()
    assert review.view(View(order="drawn")).tolist() == drawn
    assert review.view(View(order="drawn", state="open", line=review.decisions.lines)).tolist() == [
        i for i in drawn if i >= 20
    ]
    before = next(k for k, i in enumerate(drawn) if i >= 20)
    found = review.sampled()
    assert found is not None
    assert (found.counts.decided, found.size, found.measured) == (before, 40, None)
    some = [i for i in drawn if i >= 20][:7]
    review.decisions.add([DecisionChange(f"id-{i}", None, 0) for i in some], "anna", "2")
    review.refresh()
    found = review.sampled()
    assert found is not None
    assert (found.counts.unsure, found.counts.decided) == (7, _gap(drawn, some) - 7)


def _gap(drawn: list[int], some: list[int]) -> int:
    """How many there are before the first that is neither among the worst nor among some."""
    return next(k for k, i in enumerate(drawn) if i >= 20 and i not in some)


def test_a_sample_measures_all_suspects(make: Callable[..., Review]) -> None:
    """Even if those of the lowest quality were decided before."""
    n = 300
    review = make(np.linspace(0.01, 0.49, n).tolist(), n=n, suspects=n)
    is_wrong = np.random.default_rng(0).uniform(size=n) > np.linspace(0.0, 0.8, n)
    names = [review.names[k] for k in np.where(is_wrong, review.suggested, review.given)]

    def decide(rows: Sequence[int], key: str) -> None:
        lines = review.line[list(rows)].tolist()
        wanted = [DecisionChange(f"id-{i}", names[i], b) for i, b in zip(rows, lines, strict=True)]
        assert review.decisions.add(wanted, "anna", key) == [None] * len(wanted)
        review.refresh()

    decide(range(100), "first")
    biased = review.precision.wrong / review.precision.decided
    review.use_sample(120, "anna", seed=0)
    decide([i for i in review.suspects.tolist() if review.label[i] == UNDECIDED], "second")
    sampled = review.sampled()
    assert sampled is not None
    assert sampled.size == sampled.counts.decided == sampled.done == 120
    assert sampled.wrong is not None
    assert sampled.confirmed == sampled.wrong  # what is wrong here is what is suggested
    assert sampled.measured is not None
    assert sampled.measured.noise_rate == pytest.approx(sampled.wrong)  # all are suspects
    low, share, high = sampled.wrong
    assert low < share < high
    assert low <= is_wrong.mean() <= high
    assert not low <= biased <= high


def test_a_sample_of_an_older_version(make: Callable[..., Review]) -> None:
    """It is of the suspects, and counts as long as these are suspects."""
    review = make(suspects=12)
    review.decisions.draw(Sample(tuple(f"id-{i}" for i in (3, 1, 7, 2)), 12, 0), "anna")
    wanted = [DecisionChange("id-3", "dog", 0), DecisionChange("id-1", "dog", 0)]
    review.decisions.add(wanted, "anna", "1")  # given cat, given dog
    review.refresh()
    found = review.sampled()
    assert found is not None
    assert (found.done, found.size, found.measured) == (2, 4, None)
    low, high = Share(1, 2).interval(1.96)
    assert found.wrong == pytest.approx((low, 0.5, high))
    assert found.confirmed == found.wrong
    table = read_examples(review.run.directory.examples)
    is_suspect = np.arange(24) < 11
    place = table.column_names.index("is_suspect")
    write_parquet(
        table.set_column(place, "is_suspect", pa.array(is_suspect)), review.run.directory.examples
    )
    assert Review(Run(review.run.path)).sampled() is None


def test_a_sample_of_all_labels_stays_one_after_another_audit(make: Callable[..., Review]) -> None:
    review = make(suspects=12)
    review.use_sample(20, "anna", seed=0)
    drawn = review.suspects.tolist()
    review.decisions.add([DecisionChange(f"id-{i}", "cat", 0) for i in drawn], "anna", "1")
    table = read_examples(review.run.directory.examples)
    place = table.column_names.index("is_suspect")
    write_parquet(
        table.set_column(place, "is_suspect", pa.array(np.arange(24) < 5)),
        review.run.directory.examples,
    )
    again = Review(Run(review.run.path))
    found = again.sampled()
    assert found is not None
    assert found.measured is not None
    assert found.measured.reviewed == 20
    assert "continuing" in again.use_sample(20, "anna", seed=0)
    assert again.suspects.tolist() == drawn


def test_a_list_of_classes_that_has_changed(
    make: Callable[..., Review], reviewable: Callable[..., Path], tmp_path: Path
) -> None:
    review = make()
    review.decisions.add([DecisionChange("id-0", "fox", 0)], "anna", "1")
    (tmp_path / "other").mkdir()
    other = reviewable(tmp_path / "other", n=24, names=("cat", "dog", "wolf"))
    (other / "review.jsonl").write_bytes((review.run.path / "review.jsonl").read_bytes())
    with pytest.raises(InputError, match=r"\"fox\", which is not a class of the run"):
        Review(Run(other))
    (other / "labels.npz").write_bytes((review.run.path / "labels.npz").read_bytes())
    (other / "review.jsonl").unlink()
    with pytest.raises(InputError, match="the list of classes has changed since training"):
        Review(Run(other))


def test_a_run_without_examples(make: Callable[..., Review]) -> None:
    review = make()
    review.run.directory.examples.unlink()
    with pytest.raises(InputError, match="so there are no suspects to review"):
        Review(Run(review.run.path))


def test_a_run_that_nobody_has_reviewed(make: Callable[..., Review]) -> None:
    review = make()
    assert existing_review(review.run) is None
    review.decisions.add([DecisionChange("id-0", "fox", 0)], "anna", "1")
    review.decisions.add([DecisionChange("id-0", None, 2, undo=True)], "anna", "2")
    assert existing_review(review.run) is None


def compared(review: Review) -> Review:
    """The review of 24 examples: 4, 12 and 20 are alike, so are 3 and 15, and 9 is far from all."""
    x = np.random.default_rng(0).normal(size=(24, 3)).astype(np.float32)
    x[12] = x[20] = x[4]
    x[15] = x[3]
    x[9] = 9
    every = PlainFeatures(np.concatenate([x, x[:1]]), "test columns")
    neighbours_of(every, 24).save(review.run.directory.neighbours)
    return Review(Run(review.run.path))


def test_examples_that_stand_out_are_listed(make: Callable[..., Review]) -> None:
    review = compared(make([0.5, 0.5, 0.5, 0.1, 0.3], suspects=4))
    found = {name: rows.tolist() for name, rows in review.listed.items()}
    assert found == {
        "conflicting": [4, 12, 20],
        "duplicates": [3, 4, 12, 15, 20],
        "in_test": [0],
        "outliers": [9],
    }
    assert review.view(View(among="outliers")).tolist() == [9]
    assert review.view(View(among="conflicting", given=0)).tolist() == [12]
    by_group = review.view(View(among="duplicates")).tolist()
    assert by_group == [3, 15, 4, 12, 20]
    assert review.view(View()).tolist() == [3, 0, 1, 2]
    assert review.copies(12).tolist() == [4, 20]
    assert review.copies(9).tolist() == []


def test_examples_that_stand_out_can_be_decided(make: Callable[..., Review]) -> None:
    review = compared(make(suspects=4))
    assert [review.can_be_decided(k) for k in (0, 9, 12, 10)] == [True, True, True, False]
    review.decisions.add([DecisionChange("id-12", "fox", 0)], "anna", "1")
    review.refresh()
    now = review.decisions.lines
    assert review.view(View(among="conflicting", state="decided", line=now)).tolist() == [12]
    assert review.precision.decided == 0  # which is of suspects alone


def test_a_run_that_was_not_compared_has_no_lists(make: Callable[..., Review]) -> None:
    review = make(suspects=4)
    assert review.listed == {}
    assert review.notes == []
    assert review.view(View(among="conflicting")).tolist() == []
    assert review.copies(0).tolist() == []


def test_damaged_neighbours_are_a_note(make: Callable[..., Review]) -> None:
    review = make(suspects=4)
    review.run.directory.neighbours.write_bytes(b"nonsense")
    again = Review(Run(review.run.path))
    assert again.listed == {}
    assert "neighbours.npz is damaged" in again.notes[0]
