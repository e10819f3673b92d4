"""What people have decided about a run, and what a run that was trained on that has gained."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proselflc.auditing import own_corrections
from proselflc.pages.names import NAME, on_page, percent
from proselflc.pages.table import Cell, Table, name
from proselflc.pages.values import number, share, text
from proselflc.reporting.reading import Reading
from proselflc.reporting.tables import written_options
from proselflc.run.review import Precision, Review, wilson

MOST_CLASSES = 12  # whose accuracy changed most
MOST_OPTIONS = 5  # that were others
# Options that say where labels and data come from, or that change nothing of what is learned.
_ABOUT_LABELS = (
    "format",
    "fingerprint",
    "labels",
    "reviewed",
    "min_confidence",
    "noise",
    "noise_seed",
)
_NO_MATTER = ("data", "data_root", "eval_", "checkpoint_seconds", "workers", "tracker", "versions.")
_LOOK_WRONG = "labels that look wrong"
_NO_CHANGE = 0.0005  # of an accuracy, below which nothing is to be seen


@dataclass(frozen=True)
class Change:
    """Two runs, the second of which has learned from the corrected labels of the first.

    Attributes:
        sentences: what was changed, and what came of it.
        measures: both, side by side.
        classes: those whose test accuracy changed most; None where that is not known.
    """

    sentences: tuple[str, ...]
    measures: Table
    classes: Table | None


def decided(review: Review) -> Iterator[str]:
    """What people have decided about the suspects of a run, in sentences.

    Args:
        review: about which something is decided.
    """
    precision, suspects = review.whole_precision, len(review.all_suspects)
    many = precision.decided + precision.unsure
    otherwise, kept = precision.wrong - precision.confirmed, precision.decided - precision.wrong
    found = [
        _counted(precision.confirmed, "suggested label is right", "suggested labels are right"),
        _counted(otherwise, "label should be another", "labels should be others"),
        _counted(kept, "given label is right", "given labels are right"),
        f"of {precision.unsure:,} nobody can tell" if precision.unsure else "",
    ]
    if not many:  # all decisions are about labels that an earlier audit suspected
        yield f"A person has decided about none of the {suspects:,} suspects yet."
        return
    yield (
        f"A person has decided about {many:,} of {suspects:,} suspects: "
        f"{_listed([words for words in found if words])}."
    )
    if precision.decided:
        yield (
            f"So {_interval(precision.confirmed, precision)} of the suggestions that were looked "
            "at were confirmed, and what was looked at need not be typical of the rest."
        )
    sampled = review.sampled()
    if sampled is None or not sampled[0].decided:
        return
    measured, size = sampled
    done = measured.decided + measured.unsure
    so_far = "" if done == size else f", the first {done:,} of which are decided"
    yield (
        f"By a random sample of {size:,} suspects{so_far}, "
        f"{_interval(measured.wrong, measured)} of all suspects are really wrong and "
        f"{_interval(measured.confirmed, measured)} of all suggestions right."
    )


def changes(readings: Sequence[Reading]) -> list[Change]:
    """Every run that was trained on the labels of another one on the page, beside that."""
    found = []
    for after in readings:
        before = next((one for one in readings if is_from(after, one)), None)
        if before is not None:
            found.append(_change(before, after))
    return found


def is_from(after: Reading, before: Reading) -> bool:
    """Whether a run was trained on the labels of another."""
    path = text(after.config, "labels")
    if not path or after is before:
        return False
    own = before.run.path.resolve()
    named = Path(path)
    # The config may say it from another folder than the one that we are in.
    return named.resolve() == own or (not named.exists() and named.name == own.name)


def _change(before: Reading, after: Reading) -> Change:
    rows = list(_measures(before, after))
    heading = ("", "before", "after", "change")
    table = Table("Before and after", heading, (False, True, True, True), tuple(rows))
    classes = _classes(before, after)
    return Change(tuple(_sentences(before, after, classes)), table, classes)


def _sentences(before: Reading, after: Reading, classes: Table | None) -> Iterator[str]:
    labels = _changed_labels(before, after)
    if labels is not None:
        other, people, n = labels
        whom = "none" if not people else "all" if people == other else f"{people:,}"
        yield (
            f"{after.name} has learned from the labels of {before.name}, {other:,} of {n:,} of "
            f"which were corrected first, {whom} by a person."
        )
    else:
        yield f"{after.name} has learned from the corrected labels of {before.name}."
    if own_corrections.are_unreviewed(after.config):
        yield f"{own_corrections.NO_MEASURE.capitalize()}."
    for part, words in (("test", "the test set"), ("validation", "the trusted examples")):
        pair = [_accuracy(one, part) for one in (before, after)]
        if pair[0] is None or pair[1] is None:
            continue
        gain, spread = pair[1] - pair[0], _chance(before, after, part)
        by_chance = "" if spread is None else f" (± {100 * spread:.1f} by chance)"
        yield (
            f"It gets {percent(pair[1])} of {words} right, {_points(gain)} points"
            f"{by_chance} against {percent(pair[0])} before."
        )
    if classes is not None and classes.rows:
        gains = sorted(classes.rows, key=lambda row: row[3].order or 0.0)
        (worst, *_), best = gains, gains[-1]
        if (best[3].order or 0.0) > _NO_CHANGE:
            lost = (worst[3].order or 0.0) < -_NO_CHANGE
            but = f"; {worst[0].text} has lost most, {worst[3].text}" if lost else ""
            yield f"The class {best[0].text} has gained most, {best[3].text} points{but}."
    others = [
        f"{on_page(key)} ({on_page(was, NAME)}, then {on_page(now, NAME)})"
        for key, (was, now) in written_options([before, after]).items()
        if was != now and key not in _ABOUT_LABELS and not key.startswith(_NO_MATTER)
    ]
    if others:
        shown = [*others[:MOST_OPTIONS], *(["more"] if len(others) > MOST_OPTIONS else [])]
        yield (
            f"They also differ in {_listed(shown)}, so the change need not be due to the labels."
        )


def _measures(before: Reading, after: Reading) -> Iterator[tuple[Cell, ...]]:
    is_own_judge = own_corrections.are_unreviewed(after.config)
    for title, values in (
        ("test accuracy", [_accuracy(one, "test") for one in (before, after)]),
        ("accuracy on trusted examples", [_accuracy(o, "validation") for o in (before, after)]),
        (
            "labels right",
            [share(one.summary, "label_accuracy_before") for one in (before, after)],
        ),
        (_LOOK_WRONG, [_estimated(one) for one in (before, after)]),
    ):
        known = [value for value in values if value is not None]
        if len(known) == 2:
            cells = (Cell(percent(value), order=value) for value in known)
            says_nothing = title == _LOOK_WRONG and is_own_judge
            gain = Cell("–") if says_nothing else _gain(known[1] - known[0])
            yield (Cell(title), *cells, gain)


def _classes(before: Reading, after: Reading) -> Table | None:
    """The classes whose test accuracy changed most, what gained first."""
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
        cells = (Cell(percent(one[k]), order=one[k]) for one in both)
        rows.append((name(names[k]), *cells, _gain(gains[k])))
    if not rows:
        return None
    heading = ("class", "before", "after", "change")
    return Table("Classes that changed most", heading, (False, True, True, True), tuple(rows), True)


def _changed_labels(before: Reading, after: Reading) -> tuple[int, int, int] | None:
    """How many labels differ between two runs, how many of them by a person, and of how many."""
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


def _accuracy(reading: Reading, part: str) -> float | None:
    if part == "test":
        return reading.accuracy
    return share(reading.validation, "accuracy")


def _chance(before: Reading, after: Reading, part: str) -> float | None:
    """Half a 95 % interval of the difference of two accuracies, as if measured independently."""
    total = 0.0
    for one in (before, after):
        n, p = number(one.test if part == "test" else one.validation, "n"), _accuracy(one, part)
        if n is None or n < 1 or p is None:
            return None
        total += p * (1 - p) / n
    return 1.96 * math.sqrt(total)


def _estimated(reading: Reading) -> float | None:
    return None if reading.audit is None else reading.audit.estimated_noise_rate


def _gain(value: float) -> Cell:
    return Cell(_points(value), order=value)


def _points(value: float) -> str:
    """A difference of shares in points of a hundred.

    >>> _points(0.0315), _points(-0.002), _points(0.0)
    ('+3.1', '−0.2', '0.0')
    """
    rounded = round(100 * value, 1)
    sign = "+" if rounded > 0 else "−" if rounded < 0 else ""
    return f"{sign}{abs(rounded):.1f}"


def _counted(many: int, one: str, several: str) -> str:
    """So many of something, in words; nothing for none."""
    return f"{many:,} {one if many == 1 else several}" if many else ""


def _listed(parts: Sequence[str]) -> str:
    """Parts of a sentence, one after the other.

    >>> _listed(["a", "b", "c"]), _listed(["a", "b"]), _listed(["a"])
    ('a, b, and c', 'a and b', 'a')
    """
    *first, last = parts
    if not first:
        return last
    return f"{', '.join(first)}{',' if len(first) > 1 else ''} and {last}"


def _interval(hits: int, precision: Precision) -> str:
    low, high = wilson(hits, precision.decided)
    part = percent(hits / precision.decided, 0)
    return f"{part} (95% interval {math.floor(100 * low)} to {math.ceil(100 * high)}%)"
