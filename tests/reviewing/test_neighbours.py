"""Examples of a class that are like another: by what the model's last layer sees."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import proselflc
from proselflc.data.inputs import Features
from proselflc.data.preprocessing import Standardization
from proselflc.errors import InputError
from proselflc.reviewing.neighbours import POOL, Neighbours
from proselflc.run.reader import Run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Features]:
    """Three clusters, some labels wrong."""
    generator = np.random.default_rng(0)
    y = generator.integers(3, size=300)
    x = (3 * np.eye(3)[y] + generator.normal(0, 0.4, (300, 3))).astype(np.float32)
    given = np.where(np.arange(300) % 10 == 0, (y + 1) % 3, y)
    path = tmp_path_factory.mktemp("neighbours") / "run"
    return proselflc.fit(x, given, model="mlp", epochs=15, out=path, quiet=True), Features(x)


def test_the_nearest_of_a_class(run: tuple[Run, Features]) -> None:
    found, inputs = run
    table = found.examples
    suspect = table["is_suspect"].to_numpy()
    index = int(np.flatnonzero(suspect)[0])
    label = int(found.labels.given[index])
    near = Neighbours(found, inputs).nearest(index, label, 5)
    # The formula again: the hidden layer's output, by its cosine, among the pool.
    quality = table["quality"].to_numpy()
    rows = np.flatnonzero((found.labels.given == label) & ~suspect)
    pool = rows[np.argsort(-quality[rows], kind="stable")][:POOL]
    assert isinstance(found.preprocessing, Standardization)
    assert isinstance(found.model, torch.nn.Sequential)
    hidden = found.model[:-1](found.preprocessing(inputs)).detach()
    alike = torch.cosine_similarity(hidden[pool], hidden[index][None]).numpy()
    assert near.tolist() == pool[np.argsort(-alike, kind="stable")][:5].tolist()
    assert len(near) == 5
    assert not suspect[near].any()


def test_it_is_no_neighbour_of_itself(run: tuple[Run, Features]) -> None:
    found, inputs = run
    neighbours = Neighbours(found, inputs)
    quality = found.examples["quality"].to_numpy().copy()
    quality[found.labels.given != 0] = -1
    best = int(quality.argmax())
    assert best not in neighbours.nearest(best, 0, POOL)
    assert best not in neighbours.surest(best, 0, POOL)
    assert len(neighbours.nearest(best, 0, POOL)) == POOL - 1


def test_without_a_model_the_surest_are_left(run: tuple[Run, Features], tmp_path: Path) -> None:
    found, inputs = run
    table = found.examples
    quality = table["quality"].to_numpy()
    rows = np.flatnonzero((found.labels.given == 1) & ~table["is_suspect"].to_numpy())
    expected = rows[np.argsort(-quality[rows], kind="stable")][:3]
    neighbours = Neighbours(found, inputs)
    assert neighbours.surest(-1, 1, 3).tolist() == expected.tolist()
    with pytest.raises(InputError):
        Neighbours(found, Features(inputs.values[:, :2])).nearest(0, 1, 3)
