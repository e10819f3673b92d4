"""The decisions of a review, and what training on the corrected labels gained."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proselflc.auditing import caveats
from proselflc.auditing.measured import Interval, in_words
from proselflc.auditing.noise_range import RANGE, Share
from proselflc.data.label_files import CHOICES
from proselflc.pages.html_page import Cell, Table, name_cell, share_cell
from proselflc.pages.values import NAME, number, percent, share, shorten, text
from proselflc.reporting.run_facts import RunFacts
from proselflc.reporting.tables import written_options
from proselflc.run.review import Precision, Review

MOST_CLASSES = 12  # in the table of classes
MOST_OPTIONS = 5  # listed as different
# Options about labels, and options that have no effect on what is learned.
_ABOUT_LABELS = (
    "format",
    "fingerprint",
    "labels",
    *CHOICES,
    "noise",
    "noise_seed",
)
_NO_EFFECT = ("data", "data_root", "eval_", "checkpoint_seconds", "workers", "tracker", "versions.")
_LOOK_WRONG = "labels that look wrong"
_NO_CHANGE = 0.0005  # difference of accuracy that counts as none


@dataclass(frozen=True)
class Change:
    """Two runs, the second of which was trained on the corrected labels of the first."""

    sentences: tuple[str, ...]
    measures: Table  # of both runs
    classes: Table | None  # whose test accuracy changed most, if known


def decided(review: Review) -> Iterator[str]:
    """Yield sentences about the decisions of a review."""
    precision, suspects = review.whole_precision, len(review.all_suspects)
    many = precision.decided + precision.unsure
    otherwise, kept = precision.wrong - precision.confirmed, precision.decided - precision.wrong
    found = [
        _counted(precision.confirmed, "suggested label is right", "suggested labels are right"),
        _counted(otherwise, "label should be another class", "labels should be another class"),
        _counted(kept, "given label is right", "given labels are right"),
        f"{precision.unsure:,} could not be decided" if precision.unsure else "",
    ]
    if not many:  # all decisions are about labels that an earlier audit suspected
        yield f"None of the {suspects:,} suspects has been reviewed yet."
        yield from _sampled(review)
        return
    yield (
        f"{many:,} of {suspects:,} suspects were reviewed: "
        f"{_listed([words for words in found if words])}."
    )
    if precision.decided:
        yield (
            f"Of the reviewed suggestions {_interval(precision.confirmed, precision)} were "
            "confirmed. They are not a random sample, so the rest may differ."
        )
    yield from _sampled(review)


def _sampled(review: Review) -> Iterator[str]:
    """Yield a sentence about a random sample."""
    sampled = review.sampled()
    if sampled is None:
        return
    so_far = f", of which the first {sampled.done:,} are decided"
    so_far = "" if sampled.done == sampled.size else so_far
    if sampled.measured is not None:
        yield in_words(sampled.measured)
    elif sampled.wrong is not None and sampled.confirmed is not None:
        yield (
            f"According to a random sample of {sampled.size:,} suspects{so_far}, "
            f"{_share(sampled.wrong)} of all suspects are wrong and "
            f"{_share(sampled.confirmed)} of all suggestions are right."
        )


def changes(reported: Sequence[RunFacts]) -> list[Change]:
    """Return the change for every run that was trained on the labels of another on the page."""
    found = []
    for after in reported:
        before = next((one for one in reported if is_from(after, one)), None)
        if before is None:
            continue
        heading, numeric = ("", "before", "after", "change"), (False, True, True, True)
        measures = Table("Before and after", heading, numeric, tuple(_measures(before, after)))
        classes = _classes(before, after)
        found.append(Change(tuple(_sentences(before, after, classes)), measures, classes))
    return found


def is_from(after: RunFacts, before: RunFacts) -> bool:
    """Return whether a run was trained on the labels of another."""
    path = text(after.config, "labels")
    if not path or after is before:
        return False
    own = before.run.path.resolve()
    named = Path(path)
    # The path in the config may be relative to another folder than the current one.
    return named.resolve() == own or (not named.exists() and named.name == own.name)


def _sentences(before: RunFacts, after: RunFacts, classes: Table | None) -> Iterator[str]:
    labels = _changed_labels(before, after)
    if labels is not None:
        other, people, n = labels
        whom = "none" if not people else "all" if people == other else f"{people:,}"
        yield (
            f"{after.name} was trained on the labels of {before.name} after {other:,} of {n:,} "
            f"were corrected, {whom} of them by a person."
        )
    else:
        yield f"{after.name} was trained on the corrected labels of {before.name}."
    if caveats.learns_own_corrections(after.config):
        yield f"{caveats.OWN_CORRECTIONS.capitalize()}."
    for part, words in (("test", "the test set"), ("validation", "the trusted examples")):
        pair = [_accuracy(one, part) for one in (before, after)]
        if pair[0] is None or pair[1] is None:
            continue
        gain, spread = pair[1] - pair[0], _chance(before, after, part)
        by_chance = "" if spread is None else f" (95% interval ± {100 * spread:.1f})"
        yield (
            f"Its accuracy on {words} is {percent(pair[1])}, {_points(gain)} points{by_chance} "
            f"compared with {percent(pair[0])} before."
        )
    if classes is not None and classes.rows:
        gains = sorted(classes.rows, key=lambda row: row[3].order or 0.0)
        (worst, *_), best = gains, gains[-1]
        if (best[3].order or 0.0) > _NO_CHANGE:
            lost = (worst[3].order or 0.0) < -_NO_CHANGE
            but = f"; {worst[0].text} lost most, {worst[3].text}" if lost else ""
            yield f"The class {best[0].text} gained most, {best[3].text} points{but}."
    others = [
        f"{shorten(key)} ({shorten(was, NAME)}, then {shorten(now, NAME)})"
        for key, (was, now) in written_options([before, after]).items()
        if was != now and key not in _ABOUT_LABELS and not key.startswith(_NO_EFFECT)
    ]
    if others:
        shown = [*others[:MOST_OPTIONS], *(["more"] if len(others) > MOST_OPTIONS else [])]
        yield (f"They also differ in {_listed(shown)}, so the labels may not be the only cause.")


def _measures(before: RunFacts, after: RunFacts) -> Iterator[tuple[Cell, ...]]:
    is_own_judge = caveats.learns_own_corrections(after.config)
    for title, values in (
        ("test accuracy", [_accuracy(one, "test") for one in (before, after)]),
        ("accuracy on trusted examples", [_accuracy(o, "validation") for o in (before, after)]),
        (
            "labels right",
            [share(one.summary, "label_accuracy_before") for one in (before, after)],
        ),
        (_LOOK_WRONG, [one.noise_rate for one in (before, after)]),
    ):
        known = [value for value in values if value is not None]
        if len(known) == 2:
            cells = map(share_cell, known)
            says_nothing = title == _LOOK_WRONG and is_own_judge
            gain = Cell("–") if says_nothing else _gain(known[1] - known[0])
            yield (Cell(title), *cells, gain)


def _classes(before: RunFacts, after: RunFacts) -> Table | None:
    """Return the classes whose test accuracy changed most, largest gain first."""
    both: list[Any] = [one.test.get("per_class") for one in (before, after)]
    if before.audit is None or after.audit is None or before.audit.names != after.audit.names:
        return None
    names = before.audit.names
    if not all(isinstance(one, list) and len(one) == len(names) for one in both):
        return None
    gains = {
        k: b - a
        for k, (a, b) in enumerate(zip(*both, strict=True))
        if a is not None and b is not None and abs(b - a) > _NO_CHANGE
    }
    kept = sorted(gains, key=lambda k: -abs(gains[k]))[:MOST_CLASSES]
    rows = []
    for k in sorted(kept, key=lambda k: -gains[k]):
        cells = (share_cell(one[k]) for one in both)
        rows.append((name_cell(names[k]), *cells, _gain(gains[k])))
    if not rows:
        return None
    heading = ("class", "before", "after", "change")
    return Table("Classes that changed most", heading, (False, True, True, True), tuple(rows), True)


def _changed_labels(before: RunFacts, after: RunFacts) -> tuple[int, int, int] | None:
    """Return the number of labels that differ, those that a person decided, and the total."""
    directories = (one.run.directory for one in (before, after))
    if not all(one.checked(one.labels).is_file() for one in directories):
        return None
    old, new = before.run.labels, after.run.labels
    given = {key: old.names[k] for key, k in zip(old.ids, old.given, strict=True)}
    standing = before.run.decisions.standing
    other = people = 0
    for key, k in zip(new.ids, new.given, strict=True):
        was, is_now = given.get(key), new.names[int(k)]
        if was is not None and was != is_now:
            other += 1
            people += (one := standing.get(key)) is not None and one.label == is_now
    return other, people, len(new.ids)


def _accuracy(facts: RunFacts, part: str) -> float | None:
    if part == "test":
        return facts.accuracy
    return share(facts.validation, "accuracy")


def _chance(before: RunFacts, after: RunFacts, part: str) -> float | None:
    """Return half the 95 % interval of a difference of accuracies measured independently."""
    total = 0.0
    for one in (before, after):
        n, p = number(one.test if part == "test" else one.validation, "n"), _accuracy(one, part)
        if n is None or n < 1 or p is None:
            return None
        total += p * (1 - p) / n
    return 1.96 * math.sqrt(total)


def _gain(value: float) -> Cell:
    return Cell(_points(value), order=value)


def _points(value: float) -> str:
    """Return a difference of shares in percentage points.

    >>> _points(0.0315), _points(-0.002), _points(0.0)
    ('+3.1', '−0.2', '0.0')
    """
    rounded = round(100 * value, 1)
    sign = "+" if rounded > 0 else "−" if rounded < 0 else ""
    return f"{sign}{abs(rounded):.1f}"


def _counted(many: int, one: str, several: str) -> str:
    """Return a number with its noun; empty for 0."""
    return f"{many:,} {one if many == 1 else several}" if many else ""


def _listed(parts: Sequence[str]) -> str:
    """Return parts of a sentence as a list in words.

    >>> _listed(["a", "b", "c"]), _listed(["a", "b"]), _listed(["a"])
    ('a, b, and c', 'a and b', 'a')
    """
    *first, last = parts
    if not first:
        return last
    return f"{', '.join(first)}{',' if len(first) > 1 else ''} and {last}"


def _interval(hits: int, precision: Precision) -> str:
    low, high = Share(hits, precision.decided).interval(RANGE)
    return _share((low, hits / precision.decided, high))


def _share(interval: Interval) -> str:
    low, part, high = interval
    ends = f"{math.floor(100 * low)} to {math.ceil(100 * high)}%"
    return f"{percent(part, 0)} (95% interval {ends})"
