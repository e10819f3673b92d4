"""A person goes through the suspects of a run: which there are, in which order, what is decided."""

from __future__ import annotations

import math
import os
from collections import OrderedDict
from dataclasses import dataclass, replace
from threading import RLock
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from proselflc.auditing.examples import check_examples
from proselflc.data.dataset import Floats, Ints
from proselflc.data.labels.decisions import Sample
from proselflc.data.random_streams import random_stream
from proselflc.errors import InputError
from proselflc.files.regular import is_regular
from proselflc.run.reader import Run

if TYPE_CHECKING:
    from typing import TypeGuard

NOBODY, UNSURE = -1, -2  # in place of the class that was decided
_VIEWS = 32  # that are kept
_Z = 1.959963984540054  # within which 95 % of a normal distribution lies

Order: TypeAlias = Literal["quality", "teaching", "drawn"]
State: TypeAlias = Literal["all", "open", "decided"]


@dataclass(frozen=True)
class Precision:
    """How right suggestions were, by what people have decided about them.

    Attributes:
        decided: suspects about which somebody was sure.
        wrong: of those, how many given labels were wrong.
        confirmed: of those, how many suggested labels were right.
        unsure: suspects about which somebody could not tell.
    """

    decided: int
    wrong: int
    confirmed: int
    unsure: int

    @property
    def interval_of_wrong(self) -> tuple[float, float]:
        """95 % interval of the share of suspects that are wrong."""
        return wilson(self.wrong, self.decided)

    @property
    def interval_of_confirmed(self) -> tuple[float, float]:
        """95 % interval of the share of suggestions that are right."""
        return wilson(self.confirmed, self.decided)


@dataclass(frozen=True)
class View:
    """Which suspects to go through, and how.

    Attributes:
        given, suggested: class ids, or None for any.
        low, high: how sure the suggestion must be.
        order: the lowest quality first, first what would teach most, or as a sample was drawn: see
            `Review.view`.
        state: all, or those about which nothing, or something, had been decided at `line`.
        line: how many lines `review.jsonl` had when it was asked for.
    """

    given: int | None = None
    suggested: int | None = None
    low: float = 0.0
    high: float = 1.0
    order: Order = "quality"
    state: State = "all"
    line: int = 0


class Review:
    """The suspects of a run and what is decided about them.

    Attributes:
        run: finished.
        decisions: of the run; `refresh` reads what others have written.
        given, suggested: [n] class ids.
        quality: [n] of the given label, low is bad; NaN where nothing is known.
        sure: [n] how sure the suggestion is; 0 where nothing is known.
        suspects: [S] positions of those to go through, in the order of the examples; of a sample in
            the order in which it was drawn.
        label: [n] the class that a person has said, `NOBODY` or `UNSURE`.
        line: [n] of the decision that stands, 0 where none does.
    """

    def __init__(self, run: Run) -> None:
        """
        Args:
            run: finished.

        Raises:
            InputError: nothing is known of its labels, or its decisions are damaged or of others.
        """
        if not is_regular(run.directory.examples):
            raise InputError(
                f"the run {run.path} has no {run.directory.examples.name}, so there are no "
                "suspects to review: train it again"
            )
        table, labels = run.examples, run.labels
        check_examples(table, labels, run.directory.examples)
        self.run, self.decisions = run, run.decisions
        self.ids, self.names = labels.ids, labels.names
        self._place = {name: i for i, name in enumerate(labels.ids)}
        self._class = {name: k for k, name in enumerate(labels.names)}
        self.given = labels.given
        self.suggested: Ints = self._classes(table["suggested_label"].to_pylist())
        self.quality: Floats = table["quality"].to_numpy().astype(np.float32)
        self.sure: Floats = np.nan_to_num(table["p_suggested"].to_numpy().astype(np.float32))
        self.suspects: Ints = np.flatnonzero(table["is_suspect"].to_numpy()).astype(np.int64)
        self.all_suspects = self.suspects
        self.label: Ints = np.full(len(self.ids), NOBODY, np.int64)
        self.line: Ints = np.zeros(len(self.ids), np.int64)
        self._views: OrderedDict[View, Ints] = OrderedDict()
        self._is_suspect = np.zeros(len(self.ids), np.bool_)
        self._is_suspect[self.suspects] = True
        self._seen = 0
        self._held = RLock()
        self.refresh()

    def refresh(self) -> None:
        """Take over what has been decided since, by whomever."""
        with self._held:
            self.decisions.refresh()
            seen, self._seen = self._seen, self.decisions.lines
            for name in self.decisions.touched_since(seen):
                self._take_over(name)

    def is_suspect(self, index: int) -> bool:
        """Whether the label of an example is doubted."""
        return bool(self._is_suspect[index])

    def position(self, example: str) -> int:
        """Where an example is."""
        return self._place[example]

    def view(self, wanted: View) -> Ints:
        """[≤ S] positions of the suspects that are wanted, in their order.

        By quality, the lowest comes first. What would teach most: of every pair of given and
        suggested class first the suspect that the run is least sure of, h(quality) = −q log q −
        (1 − q) log(1 − q) being largest, then of every pair the second, and so on. A decision tells
        most where the run cannot tell, and least where its like has been decided already. As drawn:
        in the order of `suspects`, so that a sample is one however far somebody gets.
        """
        if wanted.state == "all":
            wanted = replace(wanted, line=0)
        with self._held:
            if wanted in self._views:
                self._views.move_to_end(wanted)
                return self._views[wanted]
            found = self._views[wanted] = self._chosen(wanted)
            while len(self._views) > _VIEWS:
                self._views.popitem(last=False)
            return found

    def _chosen(self, wanted: View) -> Ints:
        chosen = self.suspects
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
        found: Ints = chosen[self._order(chosen, wanted.order)]
        return found

    def pairs(self) -> list[tuple[int, int, int, int]]:
        """Given class, suggested class, how many suspects, how many undecided; the most first."""
        C = len(self.names)
        code = self.given[self.suspects] * C + self.suggested[self.suspects]
        found, where, many = np.unique(code, return_inverse=True, return_counts=True)
        is_open = (self.label[self.suspects] == NOBODY).astype(np.float64)
        left = np.bincount(where, is_open, len(found)).astype(np.int64)
        order = np.lexsort((found, -many))
        return [(int(found[k]) // C, int(found[k]) % C, int(many[k]), int(left[k])) for k in order]

    @property
    def is_sample(self) -> bool:
        """Whether a sample alone is gone through."""
        return self.suspects is not self.all_suspects

    @property
    def precision(self) -> Precision:
        """Of the suspects that are gone through."""
        return self._precision(self.suspects)

    @property
    def whole_precision(self) -> Precision:
        """Of all suspects, in a sample or not."""
        return self._precision(self.all_suspects)

    @property
    def remaining(self) -> tuple[float, float]:
        """How many labels are still wrong, and how many of them among undecided suspects.

        The sum of 1 − quality over all examples about which nobody was sure; an estimate.
        """
        wrong = np.nan_to_num(1 - self.quality)
        is_open = self.label < 0
        suspects = self.all_suspects
        among = wrong[suspects][is_open[suspects]].sum()
        return float(wrong[is_open].sum()), float(among)

    def use_sample(self, size: int, by: str, *, seed: int) -> str:
        """Go through a sample alone; what has become of it, in words.

        Every suspect has the same chance to be in it, whatever its quality. A sample of that size
        and seed that was drawn before, from the same suspects, is gone on with.

        Args:
            size: how many suspects.
            by: who draws it.
            seed: of the draw.
        """
        if size < 1:
            raise InputError(f"--sample must be at least 1, got {size}")
        size = min(size, len(self.all_suspects))
        drawn = self.decisions.sample
        if self._is_ours(drawn) and (len(drawn.examples), drawn.seed) == (size, seed):
            said = f"going on with the sample of {size:,} suspects that was drawn before"
        else:
            generator = random_stream(seed, "review sample")
            chosen = generator.permutation(self.all_suspects)[:size]
            examples = tuple(self.ids[i] for i in chosen)
            drawn = Sample(examples, len(self.all_suspects), seed)
            self.decisions.draw(drawn, by)
            said = f"a sample of {size:,} of {len(self.all_suspects):,} suspects was drawn"
        self.suspects = np.array([self._place[name] for name in drawn.examples], np.int64)
        self._views.clear()
        return said

    def sampled(self) -> tuple[Precision, int] | None:
        """Of the sample that was drawn last, and how large that is; None if there is none.

        It counts up to the first suspect about which nobody has decided. If those behind it did as
        well, what was decided before would, and that may be the clearest mistakes.
        """
        drawn = self.decisions.sample
        if not self._is_ours(drawn):
            return None
        rows = np.array([self._place[name] for name in drawn.examples], np.int64)
        is_open = self.label[rows] == NOBODY
        many = int(is_open.argmax()) if is_open.any() else len(rows)
        return self._precision(rows[:many]), len(rows)

    def _is_ours(self, drawn: Sample | None) -> TypeGuard[Sample]:
        """Whether it was drawn from the suspects that there are now."""
        if drawn is None or drawn.suspects != len(self.all_suspects):
            return False
        return all(
            (i := self._place.get(name)) is not None and self.is_suspect(i)
            for name in drawn.examples
        )

    def _precision(self, rows: Ints) -> Precision:
        label = self.label[rows]
        is_sure = label >= 0
        return Precision(
            decided=int(is_sure.sum()),
            wrong=int((is_sure & (label != self.given[rows])).sum()),
            confirmed=int((is_sure & (label == self.suggested[rows])).sum()),
            unsure=int((label == UNSURE).sum()),
        )

    def _order(self, rows: Ints, order: Order) -> Ints:
        if order == "drawn":
            return np.arange(len(rows))
        quality = np.nan_to_num(self.quality[rows], nan=1.0)
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

    def _take_over(self, example: str) -> None:
        i, one = self._place.get(example), self.decisions.of(example)
        if i is None:
            return
        known = NOBODY
        if one is not None:
            known = UNSURE if one.label is None else self._class.get(one.label, NOBODY)
        self.label[i], self.line[i] = known, 0 if one is None else one.line

    def _classes(self, names: list[str]) -> Ints:
        try:
            return np.array([self._class[name] for name in names], np.int64)
        except KeyError as error:
            raise InputError(
                f"{self.run.directory.examples} suggests {error}, which is none of the run's "
                "classes: the list of classes has changed since training, so train it again"
            ) from None


def reviewed(run: Run) -> Review | None:
    """The review of a run about which something has been decided, else None.

    Raises:
        InputError: what was decided cannot be read.
    """
    if not os.path.lexists(run.directory.review):
        return None
    found = Review(run)
    return found if (found.label != NOBODY).any() else None


def wilson(hits: int, trials: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share; from 0 to 1 without trials.

    (p + z²/2n ± z √(p (1 − p)/n + z²/4n²)) / (1 + z²/n), where p = hits/n and z = 1.96. Written
    out, for the import of scipy.stats would take longer than all else before a page is shown.
    """
    if trials == 0:
        return 0.0, 1.0
    z, n, p = _Z, trials, hits / trials
    middle = p + z * z / (2 * n)
    half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    return max(0.0, (middle - half) / scale), min(1.0, (middle + half) / scale)
