"""What the page of a review is told: plain numbers and texts, which it shows and never executes.

However large the run, every answer is bounded.
"""

from __future__ import annotations

import math
import shlex
from functools import lru_cache
from importlib.resources import files

import numpy as np
import numpy.typing as npt

from proselflc.data.dataset import Features, Floats, ImageFiles, Images, Inputs, Ints, Texts
from proselflc.data.labels.decisions import Decision
from proselflc.errors import InputError
from proselflc.models.named_code import flag_for
from proselflc.pages.names import TITLE, in_the_middle, on_page, warning_of_code
from proselflc.reviewing import pictures
from proselflc.reviewing.neighbours import Neighbours
from proselflc.reviewing.pictures import Picture
from proselflc.run import original
from proselflc.run.reader import Run
from proselflc.run.review import Precision, Review
from proselflc.training.run_directory import Json

LONGEST_TEXT = 20_000  # characters of an example that are shown
SNIPPET = 160  # characters of one in a grid
MOST_COLUMNS = 200  # of a table
FEW_COLUMNS = 3  # in a grid
MOST_PAIRS = 500
MOST_CHANGED = 2000  # decisions that are told one by one
POINTS = 80  # of a learning curve
NEIGHBOURS = 4  # of each class
RECENT = 200  # requests that can be taken back
SIDES = {"large": 900, "small": 160}  # pixels

_SCRIPTS = (
    *("start", "picker", "deciding", "moving", "one", "grid", "progress", "filters", "example"),
    *("session", "server", "theme", "memory", "elements"),
)
# What the page is made of; nothing else is ever read for it.
SOURCES = {
    "/": ("review.html", "text/html; charset=utf-8"),
    "/look.css": ("look.css", "text/css; charset=utf-8"),
    "/review.css": ("review.css", "text/css; charset=utf-8"),
    **{
        f"/review/{name}.js": (f"review/{name}.js", "text/javascript; charset=utf-8")
        for name in _SCRIPTS
    },
    "/review.svg": ("review.svg", "image/svg+xml"),
}


def source(address: str) -> tuple[bytes, str]:
    """A part of the page and what it is."""
    name, kind = SOURCES[address]
    package = "proselflc.pages" if name == "look.css" else "proselflc.reviewing"
    return (files(package) / "templates" / name).read_bytes(), kind


class Sheet:
    """A review as its page needs it.

    Args:
        review: of a run.
        by: who reviews.
        data: where the run's data is now, if it has moved.
    """

    def __init__(self, review: Review, by: str, *, data: str | None = None) -> None:
        self.review, self.by, self._data = review, by, data
        self.inputs: Inputs | None = None
        self.why_gone = ""
        try:
            self.inputs = original.inputs(review.run, data=data)
        except InputError as error:
            self.why_gone = str(error)
        self._neighbours: Neighbours | None = None
        if self.inputs is not None:
            self._neighbours = Neighbours(review.run, self.inputs)
        self._typical = lru_cache(maxsize=256)(self._typical_of)
        self._chances = review.run.examples["corrected_distribution"]

    def start(self) -> Json:
        """What does not change while the page is open."""
        review = self.review
        return {
            "title": on_page(str(review.run.summary.get("data") or "the data"), 80),
            "run": in_the_middle(str(review.run.path), 100),
            "kind": self.kind,
            "gone": self.why_gone,
            "names": [on_page(name, TITLE) for name in review.names],
            "isSample": review.is_sample,
            "next": next_steps(review.run, self._data),
            "recent": self._recent(),
            **self.state(0),
        }

    def state(self, since: int) -> Json:
        """How far the review is, and what has been decided after so many lines.

        `changed` is null where that is more than can be told one by one.
        """
        review = self.review
        left, among = review.remaining
        precision = measured = review.precision
        if review.is_sample and (sampled := review.sampled()) is not None:
            measured = sampled[0]
        pairs = [pair for pair in review.pairs() if pair[3]][:MOST_PAIRS]
        touched = review.decisions.touched_since(since) if since else set()
        changed = None
        if len(touched) <= MOST_CHANGED:
            changed = [self.standing(review.position(name)) for name in sorted(touched)]
        return {
            "line": review.decisions.lines,
            "notes": list(review.decisions.notes),
            "suspects": len(review.suspects),
            "left": len(review.suspects) - precision.decided - precision.unsure,
            "remaining": left,
            "remainingSuspects": among,
            "unsure": precision.unsure,
            "precision": _told(measured),
            "pairs": pairs,
            "changed": changed,
        }

    @property
    def kind(self) -> str | None:
        """What the examples are; None where they cannot be shown."""
        if isinstance(self.inputs, Images | ImageFiles):
            return "image"
        if isinstance(self.inputs, Texts):
            return "text"
        return None if self.inputs is None else "table"

    def standing(self, index: int) -> Json:
        """What is decided about an example: a class id, or −1 for nothing and −2 for unsure."""
        review = self.review
        one = review.decisions.of(review.ids[index])
        return {
            "index": index,
            "label": int(review.label[index]),
            "line": int(review.line[index]),
            **_signed(one),
        }

    def items(self, rows: Ints, *, beside: int | None = None) -> list[Json]:
        """What a list says of these examples.

        Args:
            rows: [k] positions.
            beside: an example to compare with: of a table the same columns are told.
        """
        review = self.review
        return [
            {
                "id": in_the_middle(review.ids[i], 80),
                "given": int(review.given[i]),
                "suggested": int(review.suggested[i]),
                "quality": _finite(review.quality[i]),
                "sure": _finite(review.sure[i]),
                **self.standing(int(i)),
                **self._glimpse(int(i), int(i) if beside is None else beside),
            }
            for i in rows
        ]

    def detail(self, index: int) -> Json:
        """All there is to say of an example."""
        review = self.review
        row = review.run.examples.slice(index, 1).to_pylist()[0]
        curve, why = self._curve(index)
        found: Json = {
            "index": index,
            "id": in_the_middle(review.ids[index], 400),
            "flips": row["flips"],
            "firstLearned": row["first_learned_epoch"],
            "chances": self._likeliest(index),
            "curve": curve,
            "curveGone": why,
        }
        if isinstance(self.inputs, Texts):
            text = self.inputs.texts[index]
            found["text"] = _plain_text(text[:LONGEST_TEXT])
            found["cut"] = max(0, len(text) - LONGEST_TEXT)
        if isinstance(self.inputs, Features):
            found["columns"], found["moreColumns"] = self._columns(self.inputs, index)
        return found

    def neighbours(self, index: int) -> Json:
        """Confidently labelled examples of the two classes, near this one.

        `how` says how they were chosen: "nearest", or "surest" where the model cannot be asked,
        and then `why`.
        """
        review, found = self.review, self._neighbours
        both = {"given": int(review.given[index]), "suggested": int(review.suggested[index])}
        if found is None:
            return {"how": "none", "why": self.why_gone, "given": [], "suggested": []}
        how, why, chosen = "nearest", "", {}
        try:
            chosen = {name: found.of(index, k, NEIGHBOURS) for name, k in both.items()}
        except InputError as error:
            how, why = "surest", str(error)
            chosen = {name: found.surest(index, k, NEIGHBOURS) for name, k in both.items()}
        shown = {name: self.items(rows, beside=index) for name, rows in chosen.items()}
        return {"how": how, "why": why, **shown}

    def picture(self, index: int, size: str) -> Picture | None:
        """A picture of an example, or None where there is none."""
        if self.inputs is None:
            return None
        return pictures.picture(self.inputs, index, SIDES[size])

    def _glimpse(self, index: int, beside: int) -> Json:
        if isinstance(self.inputs, Texts):
            return {"text": on_page(self.inputs.texts[index], SNIPPET)}
        if isinstance(self.inputs, Features):
            order = self._unusual(self.inputs, beside)[:FEW_COLUMNS]
            values = self.inputs.values[index]
            return {
                "columns": [
                    {"name": _column(self.inputs, int(j)), "value": float(values[j])} for j in order
                ]
            }
        return {}

    def _likeliest(self, index: int) -> list[tuple[int, float]]:
        """The five likeliest classes by the run's estimate."""
        chances = self._chances[index].as_py()
        if chances and isinstance(chances[0], dict):
            place = {name: k for k, name in enumerate(self.review.names)}
            pairs = [(place.get(one["label"], -1), one["p"]) for one in chances]
        else:
            pairs = list(enumerate(chances))
        known = [(k, p) for k, p in pairs if k >= 0 and p is not None and math.isfinite(p)]
        return sorted(known, key=lambda pair: -pair[1])[:5]

    def _curve(self, index: int) -> tuple[Json | None, str]:
        """Return p of the given label and the largest other p by epoch, or why they are not known.

        A run without a record has neither.
        """
        try:
            epochs = [np.asarray(epoch[index]) for epoch in self.review.run.dynamics]
        except InputError as error:
            return None, str(error)
        except IndexError:
            return None, "the record of the epochs is of other examples"
        if not epochs:
            return None, ""
        parts = np.array_split(np.array(epochs), min(len(epochs), POINTS))
        given, other = (
            [_mean(part[name].astype(np.float64)) for part in parts]
            for name in ("p_given", "p_other")
        )
        return {"epochs": len(epochs), "given": given, "other": other}, ""

    def _columns(self, features: Features, index: int) -> tuple[list[Json], int]:
        """The columns of an example, the least usual first, and how many more there are."""
        review = self.review
        x = features.values[index]
        (mean, spread), (other, its) = (
            self._typical(int(label[index])) for label in (review.given, review.suggested)
        )
        found: list[Json] = [
            {
                "name": _column(features, int(j)),
                "value": float(x[j]),
                "given": [float(mean[j]), float(spread[j])],
                "suggested": [float(other[j]), float(its[j])],
            }
            for j in self._unusual(features, index)[:MOST_COLUMNS]
        ]
        return found, len(x) - len(found)

    def _unusual(self, features: Features, index: int) -> Ints:
        """[D] the columns by how unlike its given class an example is, the most unlike first."""
        mean, spread = self._typical(int(self.review.given[index]))
        distance = np.abs(features.values[index] - mean) / np.where(spread > 0, spread, np.inf)
        return np.argsort(-distance, kind="stable")

    def _typical_of(self, label: int) -> tuple[Floats, Floats]:
        """[D] mean and standard deviation over the examples of a class that are no suspects."""
        assert isinstance(self.inputs, Features)
        review = self.review
        members = review.given == label
        members[review.all_suspects] = False
        if not members.any():
            members = review.given == label
        if not members.any():
            D = self.inputs.values.shape[1]
            return np.zeros(D, np.float32), np.zeros(D, np.float32)
        values = self.inputs.values[members]
        return values.mean(0), values.std(0)

    def _recent(self) -> list[list[Json]]:
        """The reviewer's last decisions that stand, by request, the oldest first."""
        own = [one for one in self.review.decisions.standing.values() if one.by == self.by]
        groups: dict[str, list[Json]] = {}
        for one in sorted(own, key=lambda one: one.line):
            place: Json = {"index": self.review.position(one.example), "line": one.line}
            groups.setdefault(one.key, []).append(place)
        return list(groups.values())[-RECENT:]


def next_steps(run: Run, data: str | None = None) -> list[str]:
    """The commands that train on what was decided, as the run was trained, and compare the two.

    Args:
        run: that was reviewed.
        data: where its data is now, if it has moved.
    """
    path, new = (shlex.quote(str(one)) for one in (run.path, f"{run.path}-reviewed"))
    config = shlex.quote(str(run.directory.config)) + flag_for(run.made_by)
    moved = "" if data is None else f" --data {shlex.quote(data)}"
    noise = " --noise none" if run.config.get("noise") else ""
    warning = "" if run.made_by else warning_of_code(run.config.get("model"))
    labels = f"--labels {path} --reviewed{noise}"
    return [
        f"{warning}proselflc train --config {config}{moved} {labels} --out {new}",
        f"proselflc report {path} {new}",
    ]


def _column(features: Features, j: int) -> str:
    return f"dimension {j}" if features.columns is None else on_page(features.columns[j])


def _told(precision: Precision) -> Json:
    return {
        "decided": precision.decided,
        "wrong": precision.wrong,
        "confirmed": precision.confirmed,
        "intervalOfWrong": precision.interval_of_wrong,
        "intervalOfConfirmed": precision.interval_of_confirmed,
    }


def _signed(one: Decision | None) -> Json:
    return {} if one is None else {"by": on_page(one.by, 40), "at": on_page(one.at, 40)}


def _finite(value: float) -> float | None:
    return round(float(value), 6) if math.isfinite(value) else None


def _mean(values: npt.NDArray[np.float64]) -> float | None:
    known = values[np.isfinite(values)].clip(0, 1)
    return round(float(known.mean()), 4) if len(known) else None


def _plain_text(text: str) -> str:
    """The text with its lines, its codes visible."""
    return "\n".join(on_page(line, LONGEST_TEXT) for line in text.splitlines())
