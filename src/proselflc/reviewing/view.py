"""The content of the review page: numbers and plain texts, which the page never executes.

The size of every answer is bounded, however large the run is.
"""

from __future__ import annotations

import io
import math
from functools import cached_property, lru_cache
from importlib.resources import files

import numpy as np

from proselflc.data.dataset import NO_LABEL
from proselflc.data.inputs import Bools, Features, Floats, Inputs, Ints
from proselflc.data.tables.mixed import MixedColumns
from proselflc.errors import InputError
from proselflc.models.factory import names_code
from proselflc.pages.svg import means
from proselflc.pages.thumbnails import SMALL, bare, resized
from proselflc.pages.values import TITLE, code_warning, shorten, shorten_middle
from proselflc.reviewing.example_map import ExampleMap
from proselflc.reviewing.mixed_rows import MixedRows
from proselflc.reviewing.neighbours import Neighbours
from proselflc.run import audit_words, original
from proselflc.run.corrections import audit_of, has_actions
from proselflc.run.reader import Run
from proselflc.run.review import Precision, Review
from proselflc.training.run_directory import Json
from proselflc.wording import command

LONGEST_TEXT = 20_000  # characters of an example
SNIPPET = 160  # characters of an example in the grid
MOST_COLUMNS = 200  # of a table
FEW_COLUMNS = 3  # in the grid
MOST_PAIRS = 500
MOST_CHANGED = 2000  # decisions that are listed one by one
POINTS = 80  # of a learning curve
NEIGHBOURS = 4  # of each class
COPIES = 8  # examples with the same content that are listed
RECENT = 200  # requests that can be undone
WARNING = 600  # characters of a sentence about the audit
SIDES = {"full": 2048, "large": 900, "small": 160}  # pixels

_SCRIPTS = (
    *("start", "photo", "picker", "deciding", "moving", "one", "grid", "progress", "atlas"),
    *("filters", "example", "session", "server", "theme", "memory", "elements"),
)
_OF_ALL_PAGES = ("look.css", "map.css", "map.js")
# The files of the page; no other file is ever read for it.
SOURCES = {
    "/": ("review.html", "text/html; charset=utf-8"),
    "/look.css": ("look.css", "text/css; charset=utf-8"),
    "/map.css": ("map.css", "text/css; charset=utf-8"),
    "/map.js": ("map.js", "text/javascript; charset=utf-8"),
    "/review.css": ("review.css", "text/css; charset=utf-8"),
    **{
        f"/review/{name}.js": (f"review/{name}.js", "text/javascript; charset=utf-8")
        for name in _SCRIPTS
    },
    "/review.svg": ("review.svg", "image/svg+xml"),
}


def source(address: str) -> tuple[bytes, str]:
    """Return the content and the media type of a file of the page."""
    name, kind = SOURCES[address]
    package = "proselflc.pages" if name in _OF_ALL_PAGES else "proselflc.reviewing"
    return (files(package) / "templates" / name).read_bytes(), kind


class ReviewView:
    """The content of the page of a review, for one reviewer."""

    def __init__(self, review: Review, by: str, *, data: str | None = None) -> None:
        self.review, self.by, self._data = review, by, data
        self.inputs: Inputs | None = None
        self.missing_reason = ""
        try:
            self.inputs = original.all_inputs(review.run, data=data)
        except InputError as error:
            self.missing_reason = str(error)
        self._neighbours: Neighbours | None = None
        if self.inputs is not None:
            self._neighbours = Neighbours(review.run, self.inputs)
        self.map = ExampleMap.of(review)
        self._typical = lru_cache(maxsize=256)(self._typical_of)
        table = review.run.examples
        self._chances = table["corrected_distribution"]
        self._actions = table["action"] if has_actions(table) else None
        self._audit = audit_of(review.run)

    def start(self) -> Json:
        """Return what does not change while the page is open, and the state."""
        review = self.review
        return {
            "title": shorten(str(review.run.summary.get("data") or "the data"), 80),
            "run": shorten_middle(str(review.run.path), 100),
            "kind": self.kind,
            "gone": self.missing_reason,
            "hasMap": self.map is not None,
            "names": [shorten(name, TITLE) for name in review.names],
            "isSample": review.is_sample,
            "listed": {name: len(rows) for name, rows in review.listed.items()},
            "about": self._about(),
            "warnings": [shorten(message, WARNING) for message in self._messages()],
            "next": self._next_steps(),
            "recent": self._recent(),
            **self.state(0),
        }

    def _next_steps(self) -> list[str]:
        """Return the commands to run when everything is decided."""
        if self.review.is_sample:
            return [command("audit", self.review.run.path)]
        return next_steps(self.review.run, self._data)

    def _about(self) -> list[str]:
        """Return sentences about the audit: the wrong labels, what to do, and the judge."""
        audit = self._audit
        if audit is None:
            return []
        words = (" ".join(audit_words.sentences(audit)), audit_words.judge(audit))
        return [shorten(text, WARNING) for text in words if text]

    def _messages(self) -> list[str]:
        """Return a sentence for each reason to be careful."""
        found = () if self._audit is None else self._audit.warnings
        messages = [one.about(self.review.run.path) for one in found if one.message]
        return [f"{message[:1].upper()}{message[1:]}." for message in messages]

    def state(self, since: int) -> Json:
        """Return the progress of the review, and the decisions after line `since` of its file.

        `changed` is null if there are too many to list.
        """
        review = self.review
        left, among = review.remaining
        precision = review.precision
        sampled = review.sampled() if review.is_sample else None
        measured = None if sampled is None else sampled.measured
        pairs = [pair for pair in review.pairs() if pair[3]][:MOST_PAIRS]
        touched = review.decisions.touched_since(since) if since else set()
        changed = None
        if len(touched) <= MOST_CHANGED:
            changed = [self.standing(review.position(name)) for name in sorted(touched)]
        return {
            "line": review.decisions.lines,
            "notes": [*review.notes, *review.decisions.notes],
            "suspects": len(review.suspects),
            "left": len(review.suspects) - precision.decided - precision.unsure,
            "remaining": left,
            "remainingRange": self._remaining_range(),
            "remainingSuspects": among,
            "unsure": precision.unsure,
            "precision": _precision(precision),
            "rate": None if measured is None else measured.noise_rate,
            "pairs": pairs,
            "changed": changed,
        }

    def _remaining_range(self) -> list[int] | None:
        """Return the least and the largest number of wrong labels that may be left, or None."""
        audit, review = self._audit, self.review
        if audit is None or audit.noise_low is None or audit.noise_high is None:
            return None
        known = (review.label >= 0) & (review.given >= 0)
        found = int((known & (review.label != review.given)).sum())
        ends = (audit.noise_low, audit.noise_high)
        return [max(0, round(share * audit.num_examples) - found) for share in ends]

    @property
    def kind(self) -> str | None:
        """Return the kind of the examples; None if they cannot be shown."""
        return None if self.inputs is None else self.inputs.medium

    def standing(self, index: int) -> Json:
        """Return the decision about an example: a class id, −1 for none, or −2 for unsure."""
        review = self.review
        decision = review.decisions.of(review.ids[index])
        signature = {}
        if decision is not None:
            signature = {"by": shorten(decision.by, 40), "at": shorten(decision.at, 40)}
        return {
            "index": index,
            "label": int(review.label[index]),
            "line": int(review.line[index]),
            **signature,
        }

    def items(self, rows: Ints, *, beside: int | None = None) -> list[Json]:
        """Return list entries for the examples at the positions [k].

        Entries of a table show the columns of the example that they are `beside`.
        """
        review = self.review
        return [
            {
                "id": shorten_middle(review.ids[i], 80),
                "given": int(review.given[i]),
                "suggested": int(review.suggested[i]),
                "quality": _finite(review.quality[i]),
                "sure": _finite(review.sure[i]),
                "action": self._actions[i].as_py() if self._actions is not None else None,
                "isOpen": review.can_be_decided(int(i)),
                **self.standing(int(i)),
                **self._snippet(int(i), int(i) if beside is None else beside),
            }
            for i in rows
        ]

    def detail(self, index: int) -> Json:
        """Return everything that is known about an example."""
        review = self.review
        row = review.run.examples.slice(index, 1).to_pylist()[0]
        curve, why = self._curve(index)
        found: Json = {
            "index": index,
            "id": shorten_middle(review.ids[index], 400),
            "flips": row["flips"],
            "firstLearned": row["first_learned_epoch"],
            "chances": self._likeliest(index),
            "curve": curve,
            "curveGone": why,
            "copies": [
                {"id": shorten_middle(review.ids[i], 80), "given": int(review.given[i])}
                for i in review.copies(index)[:COPIES]
            ],
        }
        if (text := self._text(index)) is not None:
            lines = text[:LONGEST_TEXT].splitlines()
            found["text"] = "\n".join(shorten(line, LONGEST_TEXT) for line in lines)
            found["cut"] = max(0, len(text) - LONGEST_TEXT)
        if self._features is not None:
            found["columns"], found["moreColumns"] = self._columns(self._features, index)
        elif self._mixed is not None:
            suggested = int(review.suggested[index])
            found["columns"], found["moreColumns"] = self._mixed.columns(
                index, self._class_of(index), suggested, MOST_COLUMNS
            )
        return found

    def neighbours(self, index: int) -> Json:
        """Return confidently labelled examples of both classes that are similar to this one.

        `how` is "nearest", or "surest" if the model cannot be used; then `why` has the reason.
        """
        review, neighbours = self.review, self._neighbours
        both = {"given": int(review.given[index]), "suggested": int(review.suggested[index])}
        if neighbours is None:
            return {"how": "none", "why": self.missing_reason, "given": [], "suggested": []}
        how, why, chosen = "nearest", "", {}
        try:
            chosen = {name: neighbours.nearest(index, k, NEIGHBOURS) for name, k in both.items()}
        except InputError as error:
            how, why = "surest", str(error)
            chosen = {name: neighbours.surest(index, k, NEIGHBOURS) for name, k in both.items()}
        items = {name: self.items(rows, beside=index) for name, rows in chosen.items()}
        return {"how": how, "why": why, **items}

    def picture(self, index: int, size: str) -> tuple[bytes, str] | None:
        """Return a picture of an example and its media type; None if there is none."""
        return None if self.inputs is None else encode(self.inputs, index, SIDES[size])

    @property
    def _features(self) -> Features | None:
        return self.inputs if isinstance(self.inputs, Features) else None

    @cached_property
    def _mixed(self) -> MixedRows | None:
        if not isinstance(self.inputs, MixedColumns):
            return None
        return MixedRows(self.inputs, self._members)

    def _text(self, index: int) -> str | None:
        if self.inputs is None or self.inputs.medium != "text":
            return None
        return self.inputs.preview(index, 0).text

    def _snippet(self, index: int, beside: int) -> Json:
        if (text := self._text(index)) is not None:
            return {"text": shorten(text, SNIPPET)}
        if (table := self._features) is not None:
            order = self._unusual(table, beside)[:FEW_COLUMNS]
            return {
                "columns": [
                    {"name": _column(table, int(j)), "value": float(table.values[index][j])}
                    for j in order
                ]
            }
        if self._mixed is not None:
            label = self._class_of(beside)
            return {"columns": self._mixed.few(index, beside, label, FEW_COLUMNS)}
        return {}

    def _likeliest(self, index: int) -> list[tuple[int, float]]:
        """Return the five most probable classes and their probabilities."""
        chances = self._chances[index].as_py()
        if chances and isinstance(chances[0], dict):
            ids = {name: k for k, name in enumerate(self.review.names)}
            pairs = [(ids.get(chance["label"], -1), chance["p"]) for chance in chances]
        else:
            pairs = list(enumerate(chances))
        known = [(k, p) for k, p in pairs if k >= 0 and p is not None and math.isfinite(p)]
        return sorted(known, key=lambda pair: -pair[1])[:5]

    def _curve(self, index: int) -> tuple[Json | None, str]:
        """Return the learning curve of an example, or the reason why it is unknown.

        The curve has p of the given label and the largest other p, by epoch. Without records of
        the epochs there is neither a curve nor a reason.
        """
        if self.review.given[index] == NO_LABEL:  # it was never learned
            return None, ""
        index = int((self.review.given[:index] != NO_LABEL).sum())
        try:
            epochs = [np.asarray(epoch[index]) for epoch in self.review.run.dynamics]
        except InputError as error:
            return None, str(error)
        except IndexError:
            return None, "the records of the epochs belong to other examples"
        if not epochs:
            return None, ""
        lines = {"given": [epoch["p_given"] for epoch in epochs]}
        lines["other"] = [epoch["p_other"] for epoch in epochs]
        curve = {
            name: [_finite(p, 4) for p in means(np.array(line, np.float64), POINTS)]
            for name, line in lines.items()
        }
        return {"epochs": len(epochs), **curve}, ""

    def _columns(self, features: Features, index: int) -> tuple[list[Json], int]:
        """Return the columns of an example, the most unusual first, and how many are left out."""
        review = self.review
        x = features.values[index]
        (mean, std), (other_mean, other_std) = (
            self._typical(k) for k in (self._class_of(index), int(review.suggested[index]))
        )
        found: list[Json] = [
            {
                "name": _column(features, int(j)),
                "value": float(x[j]),
                "given": [float(mean[j]), float(std[j])],
                "suggested": [float(other_mean[j]), float(other_std[j])],
            }
            for j in self._unusual(features, index)[:MOST_COLUMNS]
        ]
        return found, len(x) - len(found)

    def _unusual(self, features: Features, index: int) -> Ints:
        """Return the columns [D], those in which an example differs most from its class first."""
        mean, std = self._typical(self._class_of(index))
        distance = np.abs(features.values[index] - mean) / np.where(std > 0, std, np.inf)
        return np.argsort(-distance, kind="stable")

    def _class_of(self, index: int) -> int:
        """Return the given class of an example, or the suggested one if it has no label."""
        given = int(self.review.given[index])
        return int(self.review.suggested[index]) if given == NO_LABEL else given

    def _typical_of(self, label: int) -> tuple[Floats, Floats]:
        """Return mean and standard deviation [D] over the examples of a class except suspects."""
        features = self._features
        assert features is not None
        members = self._members(label)
        if not members.any():
            D = features.values.shape[1]
            return np.zeros(D, np.float32), np.zeros(D, np.float32)
        values = features.values[members]
        return values.mean(0), values.std(0)

    def _members(self, label: int) -> Bools:
        """Return [n] which examples have a label and are not suspects, or all that have it."""
        review = self.review
        having: Bools = review.given == label
        members = having.copy()
        members[review.all_suspects] = False
        return members if members.any() else having

    def _recent(self) -> list[list[Json]]:
        """Return the reviewer's last standing decisions, grouped by request, the oldest first."""
        review = self.review
        own = [d for d in review.decisions.standing.values() if d.by == self.by]
        groups: dict[str, list[Json]] = {}
        for decision in sorted(own, key=lambda decision: decision.line):
            entry: Json = {"index": review.position(decision.example), "line": decision.line}
            groups.setdefault(decision.key, []).append(entry)
        return list(groups.values())[-RECENT:]


def next_steps(run: Run, data: str | None = None) -> list[str]:
    """Return the commands that retrain on the reviewed labels and compare the two runs."""
    reviewed = f"{run.path}-reviewed"
    retrain = command(
        "train",
        config=run.directory.config,
        model=run.made_by if names_code(run.made_by) else None,
        data=data,
        labels=run.path,
        reviewed=True,
        noise="none" if run.config.get("noise") else None,
        out=reviewed,
    )
    warning = "" if run.made_by else code_warning(run.config.get("model"))
    return [f"{warning}{retrain}", command("report", run.path, reviewed)]


def _column(features: Features, j: int) -> str:
    return f"dimension {j}" if features.columns is None else shorten(features.columns[j])


def _precision(precision: Precision) -> Json:
    return {
        "decided": precision.decided,
        "wrong": precision.wrong,
        "confirmed": precision.confirmed,
        "intervalOfWrong": precision.interval_of_wrong,
        "intervalOfConfirmed": precision.interval_of_confirmed,
    }


def _finite(value: float, digits: int = 6) -> float | None:
    return round(float(value), digits) if math.isfinite(value) else None


def encode(inputs: Inputs, index: int, side: int) -> tuple[bytes, str] | None:
    """Return a picture of an example, encoded again from its pixels, and its media type.

    Its longer side has at most `side` pixels; small images keep their size. Return None if the
    example is not an image, or its file is missing or damaged.
    """
    picture = inputs.preview(index, side).picture
    if picture is None:
        return None
    picture = bare(resized(picture, side) if max(picture.size) > side else picture)
    is_small = max(picture.size) <= SMALL
    file = io.BytesIO()
    if is_small:
        picture.save(file, "PNG")
    else:
        picture.save(file, "JPEG", quality=90)
    return file.getvalue(), "image/png" if is_small else "image/jpeg"
