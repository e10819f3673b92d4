"""The review of a run: its suspects or a sample, their order, and people's decisions."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from threading import RLock
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from proselflc.auditing import measured
from proselflc.auditing.examples import check_examples
from proselflc.auditing.measured import Interval, Measured, Reviewed
from proselflc.auditing.neighbours import Examination
from proselflc.auditing.noise_range import RANGE, Share
from proselflc.data.batches import random_stream
from proselflc.data.dataset import NO_LABEL
from proselflc.data.decisions import Sample
from proselflc.data.inputs import Bools, Floats, Ints
from proselflc.errors import InputError, invalid_option
from proselflc.files.regular import is_regular
from proselflc.run import neighbours
from proselflc.run.reader import Run

if TYPE_CHECKING:
    from typing import TypeGuard

UNDECIDED, UNSURE = -1, -2  # in place of the class that was decided
_VIEWS = 32  # that are cached

Order: TypeAlias = Literal["quality", "teaching", "drawn"]
State: TypeAlias = Literal["all", "open", "decided"]
Among: TypeAlias = Literal[
    "suspects", "unlabelled", "conflicting", "duplicates", "in_test", "outliers"
]


@dataclass(frozen=True)
class Precision:
    """The precision of suspects and suggestions, by people's decisions."""

    decided: int  # suspects with a definite decision
    wrong: int  # of those, whose given label was wrong
    confirmed: int  # of those, whose suggested label was right
    unsure: int  # suspects marked as unsure

    @property
    def interval_of_wrong(self) -> tuple[float, float]:
        """Return the 95 % interval of the share of suspects that are wrong."""
        return Share(self.wrong, self.decided).interval(RANGE)

    @property
    def interval_of_confirmed(self) -> tuple[float, float]:
        """Return the 95 % interval of the share of suggestions that are right."""
        return Share(self.confirmed, self.decided).interval(RANGE)


@dataclass(frozen=True)
class Sampled:
    """What the decisions about a sample say.

    Attributes:
        counts: decisions about the last sample.
        size: number of labels that it has.
        wrong: share of all suspects that are wrong; None as long as too few are decided.
        confirmed: share of all suggestions that are right.
        measured: what is measured about all labels; None as long as too few are decided, or if an
            older version drew the sample from the suspects alone.
    """

    counts: Precision
    size: int
    wrong: Interval | None
    confirmed: Interval | None
    measured: Measured | None

    @property
    def done(self) -> int:
        """Return the number of decisions that count."""
        return self.counts.decided + self.counts.unsure


@dataclass(frozen=True)
class View:
    """A selection of examples and their order, which `Review.view` explains."""

    among: Among = "suspects"  # or examples that stand out among their neighbours
    given: int | None = None  # class id, or None for any
    suggested: int | None = None
    low: float = 0.0  # least probability of the suggestion
    high: float = 1.0
    order: Order = "quality"
    state: State = "all"  # or those that were undecided, or decided, at `line`
    line: int = 0  # number of lines in `review.jsonl` when the view was requested


class Review:
    """The suspects of a run and the decisions about them; `refresh` reads those of others.

    n counts all training examples, with or without a label.

    Attributes:
        given: [n] the given class; `NO_LABEL` for an example without a label.
        quality: [n] quality of the given label, low is bad; NaN if it is unknown.
        sure: [n] probability of the suggestion; 0 if it is unknown.
        suggested: [n] the suggested class; in a sample, the likeliest other class of each label.
        suspects: [S] positions of the labels to review: the suspects in the order of the examples,
            or a sample, suspect or not, in the order in which it was drawn.
        label: [n] the decided class, `UNDECIDED` or `UNSURE`.
        line: [n] line of the current decision, 0 without one.
        listed: [≤ n] positions of the examples without a label, and of those that stand out among
            their neighbours, by what they are; without those of which there are none.
        notes: sentences about files that could not be read.
    """

    def __init__(self, run: Run) -> None:
        if not is_regular(run.directory.examples):
            raise InputError(
                f"the run {run.path} has no {run.directory.examples.name}, so there are no "
                "suspects to review",
                fix="train it again",
            )
        table, labels = run.examples, run.labels
        check_examples(table, labels, run.directory.examples)
        self.run, self.decisions = run, run.decisions
        self.ids, self.names = labels.all_ids, labels.names
        self._labelled: Ints = np.flatnonzero(labels.is_labelled)
        self._position = {name: i for i, name in enumerate(self.ids)}
        self._class = {name: k for k, name in enumerate(labels.names)}
        self.given: Ints = labels.with_rest(labels.given)
        self.suggested: Ints = self._classes(table["suggested_label"].to_pylist())
        self.quality: Floats = table["quality"].to_numpy().astype(np.float32)
        self.sure: Floats = np.nan_to_num(table["p_suggested"].to_numpy().astype(np.float32))
        self.suspects: Ints = np.flatnonzero(table["is_suspect"].to_numpy())
        self.all_suspects = self.suspects
        self.label: Ints = np.full(len(self.ids), UNDECIDED, np.int64)
        self.line: Ints = np.zeros(len(self.ids), np.int64)
        self._views = lru_cache(_VIEWS)(self._chosen)
        self._is_suspect = table["is_suspect"].to_numpy()
        self._under_review = self._is_suspect
        self._lines = 0  # of the decisions that have been applied
        self.notes: list[str] = []
        found = self._examination()
        self._groups: Ints = np.full(len(self.ids), -1, np.int64)
        if found is not None:
            self._groups[self._labelled] = found.duplicate_group
        rest = np.flatnonzero(self.given == NO_LABEL)
        self.listed: dict[Among, Ints] = {"unlabelled": rest} if len(rest) else {}
        self.listed |= {name: self._labelled[rows] for name, rows in _listed(found).items()}
        self._is_listed = np.zeros(len(self.ids), np.bool_)
        for rows in self.listed.values():
            self._is_listed[rows] = True
        self._lock = RLock()
        self.refresh()

    def refresh(self) -> None:
        """Apply the decisions that were made since the last call, by any reviewer."""
        with self._lock:
            self.decisions.refresh()
            before, self._lines = self._lines, self.decisions.lines
            for name in self.decisions.touched_since(before):
                self._apply(name)

    def is_suspect(self, index: int) -> bool:
        """Return whether an example is a suspect."""
        return bool(self._is_suspect[index])

    def can_be_decided(self, index: int) -> bool:
        """Return whether an example is a suspect, drawn, without a label, or stands out."""
        return bool(self._under_review[index] or self._is_listed[index])

    def copies(self, index: int) -> Ints:
        """Return the positions of the other examples with the same content, exactly or nearly."""
        groups = self._groups
        same: Bools = (groups == groups[index]) & (groups >= 0)
        same[index] = False
        return np.flatnonzero(same)

    def position(self, example: str) -> int:
        """Return the position of an example."""
        return self._position[example]

    def view(self, wanted: View) -> Ints:
        """Return the positions of the suspects or the listed examples of a view, in its order.

        "quality" puts the lowest quality first, and keeps duplicates of the same group together.
        "teaching" puts the most informative first: of every pair of given and suggested class the
        suspect with the largest entropy h(quality) = −q log q − (1 − q) log(1 − q), then of every
        pair the second, and so on; a decision tells most where the run is least certain, and little
        where similar suspects have been decided.
        "drawn" is the order of `suspects`, so that any beginning of a sample is a sample.
        """
        if wanted.state == "all":
            wanted = replace(wanted, line=0)
        with self._lock:
            return self._views(wanted)

    def _chosen(self, wanted: View) -> Ints:
        chosen = self.suspects
        if wanted.among != "suspects":
            chosen = self.listed.get(wanted.among, np.zeros(0, np.int64))
        if wanted.given is not None:
            chosen = chosen[self.given[chosen] == wanted.given]
        if wanted.suggested is not None:
            chosen = chosen[self.suggested[chosen] == wanted.suggested]
        sure = self.sure[chosen]
        chosen = chosen[(sure >= wanted.low) & (sure <= wanted.high)]
        if wanted.state != "all":
            names = [self.ids[i] for i in chosen]
            is_open = np.array(self.decisions.undecided(wanted.line, names), np.bool_)
            chosen = chosen[is_open if wanted.state == "open" else ~is_open]
        if wanted.among in ("conflicting", "duplicates") and wanted.order != "teaching":
            chosen = self._by_group(chosen)
        else:
            chosen = chosen[self._order(chosen, wanted.order)]
        found: Ints = chosen
        return found

    def pairs(self) -> list[tuple[int, int, int, int]]:
        """Return given and suggested class, suspects and undecided ones; most frequent first."""
        C = len(self.names)
        code = self.given[self.suspects] * C + self.suggested[self.suspects]
        found, where, many = np.unique(code, return_inverse=True, return_counts=True)
        is_open = (self.label[self.suspects] == UNDECIDED).astype(np.float64)
        left = np.bincount(where, is_open, len(found)).astype(np.int64)
        order = np.lexsort((found, -many))
        return [(int(found[k]) // C, int(found[k]) % C, int(many[k]), int(left[k])) for k in order]

    @property
    def is_sample(self) -> bool:
        """Whether only a sample is reviewed."""
        return self.suspects is not self.all_suspects

    @property
    def precision(self) -> Precision:
        """Return the precision of the suspects under review."""
        return self._precision(self.suspects)

    @property
    def whole_precision(self) -> Precision:
        """Return the precision of all suspects, in a sample or not."""
        return self._precision(self.all_suspects)

    @property
    def remaining(self) -> tuple[float, float]:
        """Return estimates of the labels that are still wrong, in all and among undecided suspects.

        The estimate is the sum of 1 − quality over all examples without a definite decision.
        """
        wrong = np.nan_to_num(1 - self.quality)
        is_open = self.label < 0
        suspects = self.all_suspects
        among = wrong[suspects][is_open[suspects]].sum()
        return float(wrong[is_open].sum()), float(among)

    def use_sample(self, size: int, by: str, *, seed: int) -> str:
        """Review only a sample of all labels and return a sentence about it.

        See `measured.draw`. A sample of the same size and seed that was drawn before is continued.
        """
        if size < 1:
            raise invalid_option("sample", f"must be at least 1, got {size}")
        size = min(size, len(self._drawn_from))
        drawn = next(reversed(self.decisions.samples), None)
        if self._is_current(drawn) and (len(drawn.examples), drawn.seed) == (size, seed):
            sentence = f"continuing the sample of {size:,} labels that was drawn before"
        else:
            rows, groups, strata = measured.draw(
                1 - self.quality,
                self._is_suspect,
                self._drawn_from,
                size,
                # Two samples are independent, so that their decisions can be put together.
                random_stream(seed, "review sample", size, len(self.decisions.samples)),
            )
            examples = tuple(self.ids[i] for i in rows)
            drawn = Sample(examples, len(self.all_suspects), seed, groups, strata)
            self.decisions.draw(drawn, by)
            sentence = f"a sample of {size:,} of {len(self._drawn_from):,} labels was drawn"
        self.suspects = np.array([self._position[name] for name in drawn.examples], np.int64)
        self._under_review = self._is_suspect.copy()
        self._under_review[self.suspects] = True
        for i in self.suspects[~self._is_suspect[self.suspects]].tolist():
            self.suggested[i], self.sure[i] = self._likeliest_other(i)
        self._views.cache_clear()
        return sentence

    def sampled(self) -> Sampled | None:
        """Return what the decisions about the last sample say, or None without one.

        Only labels before the first undecided one count. Later ones may have been decided
        because they were the clearest mistakes, which would bias the estimate.
        """
        drawn = next(reversed(self.decisions.samples), None)
        if not self._is_current(drawn):
            return None
        rows = np.array([self._position[name] for name in drawn.examples], np.int64)
        is_open = self.label[rows] == UNDECIDED
        many = int(is_open.argmax()) if is_open.any() else len(rows)
        counts = self._precision(rows[:many])
        if drawn.strata is None:
            wrong, confirmed = (
                (low, hits / max(counts.decided, 1), high) if counts.decided else None
                for hits, (low, high) in (
                    (counts.wrong, counts.interval_of_wrong),
                    (counts.confirmed, counts.interval_of_confirmed),
                )
            )
            return Sampled(counts, len(rows), wrong, confirmed, None)
        reviewed = Reviewed.of(self.decisions, self.run.labels)
        if reviewed is None:
            return Sampled(counts, len(rows), None, None, None)
        kept = self._labelled
        found = reviewed.measured(1 - self.quality[kept], self._is_suspect[kept])
        chosen = kept[reviewed.rows]
        followed = replace(reviewed, wrong=self.label[chosen] == self.suggested[chosen])
        confirmed = followed.precision(self._is_suspect[chosen])
        return Sampled(counts, len(rows), found.precision.suspects, confirmed, found)

    @cached_property
    def _drawn_from(self) -> Ints:
        """The positions of the labels that a sample is drawn from: those that are not trusted."""
        trusted = self.run.labels.trusted
        return self._labelled if trusted is None else self._labelled[~trusted]

    def _is_current(self, drawn: Sample | None) -> TypeGuard[Sample]:
        """Return whether a sample is one of these labels, or of the present suspects."""
        if drawn is None or not all(name in self._position for name in drawn.examples):
            return False
        if drawn.strata is not None:
            return sum(drawn.strata) == len(self._drawn_from)
        return drawn.suspects == len(self.all_suspects) and all(
            self.is_suspect(self._position[name]) for name in drawn.examples
        )

    def _likeliest_other(self, index: int) -> tuple[int, float]:
        """Return the likeliest class of an example that is not its label, and its chance."""
        chances = self.run.examples["corrected_distribution"][index].as_py()
        if chances and isinstance(chances[0], dict):
            pairs = [(self._class.get(one["label"], -1), one["p"]) for one in chances]
        else:
            pairs = list(enumerate(chances))
        others = [(k, p) for k, p in pairs if k not in (-1, self.given[index]) and p is not None]
        first = 0 if self.given[index] else len(self.names) - 1
        return max(others, key=lambda pair: pair[1], default=(first, 0.0))

    def _precision(self, rows: Ints) -> Precision:
        label = self.label[rows]
        is_sure = label >= 0
        return Precision(
            decided=int(is_sure.sum()),
            wrong=int((is_sure & (label != self.given[rows])).sum()),
            confirmed=int((is_sure & (label == self.suggested[rows])).sum()),
            unsure=int((label == UNSURE).sum()),
        )

    def _examination(self) -> Examination | None:
        try:
            return neighbours.examination(self.run)
        except InputError as error:
            self.notes.append(str(error))
            return None

    def _by_group(self, rows: Ints) -> Ints:
        """Return rows by their group of duplicates, that with the lowest quality first."""
        quality = np.nan_to_num(self.quality[rows], nan=1.0)
        _, group = np.unique(self._groups[rows], return_inverse=True)
        lowest = np.full(len(rows), np.inf)
        np.minimum.at(lowest, group, quality)
        return rows[np.lexsort((rows, quality, group, lowest[group]))]

    def _order(self, rows: Ints, order: Order) -> Ints:
        if order == "drawn":
            return np.arange(len(rows))
        quality = np.nan_to_num(self.quality[rows], nan=1.0)
        # Without a label there is no quality: the least sure prediction comes first.
        quality = np.where(self.given[rows] == NO_LABEL, self.sure[rows], quality)
        if order == "quality":
            return np.lexsort((rows, quality))
        q = quality.clip(1e-7, 1 - 1e-7).astype(np.float64)
        doubt = -q * np.log(q) - (1 - q) * np.log(1 - q)
        pair = self.given[rows] * len(self.names) + self.suggested[rows]
        by_pair = np.lexsort((rows, -doubt, pair))
        begins = np.searchsorted(pair[by_pair], pair[by_pair], side="left")
        turn = np.empty(len(rows), np.int64)
        turn[by_pair] = np.arange(len(rows)) - begins
        return np.lexsort((rows, -doubt, turn))

    def _apply(self, example: str) -> None:
        i, decision = self._position.get(example), self.decisions.of(example)
        if i is None:
            return
        label = UNDECIDED
        if decision is not None:
            known = decision.label
            label = UNSURE if known is None else self._class.get(known, UNDECIDED)
        self.label[i], self.line[i] = label, 0 if decision is None else decision.line

    def _classes(self, names: list[str]) -> Ints:
        try:
            return np.array([self._class[name] for name in names], np.int64)
        except KeyError as error:
            raise InputError(
                f"{self.run.directory.examples} suggests {error}, which is not a class of the run: "
                "the list of classes has changed since training, so train it again"
            ) from None


def _listed(found: Examination | None) -> dict[Among, Ints]:
    if found is None:
        return {}
    masks: dict[Among, Bools] = {
        "conflicting": found.conflicting,
        "duplicates": found.duplicate_group >= 0,
        "in_test": found.in_test,
        "outliers": found.is_outlier,
    }
    return {name: np.flatnonzero(mask) for name, mask in masks.items() if mask.any()}


def existing_review(run: Run) -> Review | None:
    """Return the review of a run, or None if nothing has been decided."""
    if not os.path.lexists(run.directory.review):
        return None
    found = Review(run)
    return found if (found.label != UNDECIDED).any() else None
