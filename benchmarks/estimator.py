"""`ProSelfLCClassifier` beside scikit-learn's `MLPClassifier` on digits with wrong labels.

1,297 rows of 64 numbers to learn from, 500 to test, symmetric noise of 0.4 or none, five seeds. All
have one hidden layer, of 100 units in scikit-learn's and 128 in ours; scikit-learn's is given
standardised columns, and stops when its loss does or, with early stopping, when the accuracy on a
tenth of the (noisy) training rows does. Seconds are of one core's time, so that a busy machine does
not count.

    python benchmarks/estimator.py
"""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import result_file
import torch
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from proselflc import ProSelfLCClassifier
from proselflc.data import noise
from proselflc.data.sources.small_images import DIGITS_TRAIN, order_of_digits

NOISES = ("none", "symmetric:0.4")
SEEDS = range(5)


def _theirs(early_stopping: bool) -> Callable[[int], Any]:
    def make(seed: int) -> Any:
        network = MLPClassifier(random_state=seed, early_stopping=early_stopping)
        return make_pipeline(StandardScaler(), network)

    return make


CLASSIFIERS: dict[str, Callable[[int], Any]] = {
    "scikit-learn's `MLPClassifier`": _theirs(early_stopping=False),
    "the same with `early_stopping=True`": _theirs(early_stopping=True),
    '`ProSelfLCClassifier("cce")`': lambda seed: ProSelfLCClassifier("cce", random_state=seed),
    "`ProSelfLCClassifier()`": lambda seed: ProSelfLCClassifier(random_state=seed),
    "`ProSelfLCClassifier(epochs=100)`": lambda seed: ProSelfLCClassifier(
        epochs=100, random_state=seed
    ),
}


def measured(make: Callable[[int], Any], kind: str, seed: int) -> dict[str, Any]:
    """One classifier."""
    X, y = load_digits(return_X_y=True)
    order = order_of_digits()
    X, y = X[order], y[order]
    clean, given = y[:DIGITS_TRAIN], y[:DIGITS_TRAIN]
    if kind != "none":
        spec = noise.parse(kind)
        made = noise.corrupt(
            clean, 10, kind=spec.kind, rate=spec.rate, generator=noise.stream(seed)
        )
        given = made.given
    begin = time.process_time()
    classifier = make(seed).fit(X[:DIGITS_TRAIN], given)
    seconds = time.process_time() - begin
    result = {
        "seed": seed,
        "fingerprint": noise.fingerprint(given, 10),
        "accuracy": float(classifier.score(X[DIGITS_TRAIN:], y[DIGITS_TRAIN:])),
        "seconds": seconds,
    }
    issues, wrong = getattr(classifier, "label_issues_", None), given != clean
    if issues is not None and wrong.any():
        result["precision"] = float(wrong[issues].mean())
        result["recall"] = float(issues[wrong].mean())
        result["labels_right"] = float((classifier.corrected_labels_ == clean).mean())
    return result


def table(found: dict[str, dict[str, list[dict[str, Any]]]]) -> str:
    """Mean ± standard deviation over the seeds."""
    rows = [
        "| | accuracy, right labels | accuracy, 40 % wrong | seconds | suspects wrong, found |",
        "|---|---|---|---|---|",
    ]
    for name, by_noise in found.items():
        noisy = by_noise[NOISES[1]]
        cells = [_spread([one["accuracy"] for one in by_noise[kind]]) for kind in NOISES]
        cells.append(f"{statistics.mean(one['seconds'] for one in noisy):.1f}")
        shares = [
            f"{statistics.mean(one[key] for one in noisy):.2f}"
            for key in ("precision", "recall")
            if key in noisy[0]
        ]
        rows.append(f"| {name} | {' | '.join(cells)} | {', '.join(shares) or '–'} |")
    return "\n".join(rows)


def _spread(values: list[float]) -> str:
    return f"{statistics.mean(values):.3f} ± {statistics.stdev(values):.3f}"


def main() -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", ConvergenceWarning)  # of scikit-learn's after 200 epochs
    measured(CLASSIFIERS["`ProSelfLCClassifier()`"], "none", 0)  # the first imports what all need
    found = {
        name: {kind: [measured(make, kind, seed) for seed in SEEDS] for kind in NOISES}
        for name, make in CLASSIFIERS.items()
    }
    text = table(found)
    print(text)
    versions = {"torch": torch.__version__.partition("+")[0], "numpy": np.__version__}
    config = {"data": "digits", "noises": NOISES}
    result_file.write("estimator", found, text, config=config, seeds=SEEDS, made_with=versions)


if __name__ == "__main__":
    main()
