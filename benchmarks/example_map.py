"""How well the map of the examples keeps together what looks alike, and what it costs.

    python benchmarks/example_map.py

The labels of scikit-learn's digits are predicted by the ten nearest points, in five folds: on the
map, in two principal components, and in the features from which both are computed. The time is the
processor's for 50,000 examples in 64 dimensions, without the search for their neighbours.
"""

from __future__ import annotations

import time

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import cross_val_score
from sklearn.neighbors import KNeighborsClassifier

from proselflc.auditing.mapping.layout import arranged, principal_plane
from proselflc.auditing.neighbours import neighbours_of
from proselflc.auditing.plain_features import PlainFeatures, plain_features
from proselflc.data.inputs import Images

MANY = 50_000


def main() -> None:
    """Print the accuracy of each and the seconds."""
    digits = load_digits()
    images = Images((digits.images * 15.9).astype(np.uint8)[..., None])
    features = plain_features(images)
    assert features is not None
    x = features.values
    for name, points in (
        ("features", x),
        ("two principal components", principal_plane(x)),
        ("map", arranged(x, neighbours_of(features, len(x)))),
    ):
        right = cross_val_score(KNeighborsClassifier(10), points, digits.target, cv=5).mean()
        print(f"{name:<26} {right:.3f}")
    rng = np.random.default_rng(0)
    centres = 2 * rng.normal(size=(30, 64))
    x = (centres[rng.integers(0, 30, MANY)] + rng.normal(size=(MANY, 64))).astype(np.float32)
    neighbours = neighbours_of(PlainFeatures(x, "numbers"), MANY)
    begin = time.process_time()
    arranged(x, neighbours)
    print(f"{MANY:,} examples: {time.process_time() - begin:.1f} s of the processor")


if __name__ == "__main__":
    main()
