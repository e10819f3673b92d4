"""Every use of randomness has a stream of its own, and those that results rest on stay."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from proselflc.data import noise
from proselflc.data.batches import generator_for, random_stream, stream_seed
from proselflc.data.splits import folds

SOURCE = Path(__file__).parents[2] / "src" / "proselflc"
PURPOSES = {"trusted split": (), "folds": (5,), "review sample": ()}
# Where a generator may be made of a bare seed, and for what.
SEEDED = {
    "data/noise.py": "the noise, whose published labels must stay",
    "data/batches.py": "all that torch draws and numpy but for the noise, by a key",
    "training/loop.py": "what a step draws, by a key",
    "models/catalogue.py": "initial weights",
    "integrations/sklearn.py": "initial weights",
}


@pytest.mark.parametrize("seed", [0, 1, 2**62])
def test_streams_of_one_seed_share_nothing(seed: int) -> None:
    streams = {name: random_stream(seed, name, *more) for name, more in PURPOSES.items()}
    streams["noise"] = noise.stream(seed)
    drawn = {name: set(stream.random(2000).tolist()) for name, stream in streams.items()}
    for one, other in combinations(drawn, 2):
        assert drawn[one].isdisjoint(drawn[other]), (one, other)


def test_a_stream_is_a_function_of_its_seed_purpose_and_key() -> None:
    again = (random_stream(3, "folds", 5).random(4).tolist() for _ in range(2))
    assert next(again) == next(again)
    others = [random_stream(4, "folds", 5), random_stream(3, "folds", 6), random_stream(3, "fold")]
    first = {random_stream(3, "folds", 5).random(), *(one.random() for one in others)}
    assert len(first) == 4


@pytest.mark.parametrize(
    ("key", "seed"),
    [
        (("order", 0, 0), 7453028512061360496),
        (("augmentation", 0, 0, 0), 746612333559446491),
        (("shards", 3, 1), 3305645882711390856),
        (("step", 0, 5, 0), 1879876525317573432),
        (("d2l", 1, 2), 445260381906548686),
        (("masking", "weights", 0), 7008498298896182032),
    ],
)
def test_known_seeds(key: tuple[int | str, ...], seed: int) -> None:
    """Order, augmentation, dropout and what methods draw are what they have always been."""
    assert generator_for(*key).initial_seed() == stream_seed(*key) == seed


def test_known_noise_and_folds() -> None:
    assert noise.stream(0).random(3).tolist() == [
        0.6369616873214543,
        0.2697867137638703,
        0.04097352393619469,
    ]
    parts = folds(np.arange(12) % 2, 3, generator=random_stream(7, "folds", 3))
    assert [part.validation.tolist() for part in parts] == [
        [0, 1, 9, 10],
        [2, 4, 5, 7],
        [3, 6, 8, 11],
    ]


def test_no_generator_is_made_of_a_bare_seed_elsewhere() -> None:
    """Two purposes that make generators of one seed draw the same numbers."""
    made = re.compile(r"default_rng\(|PCG64\(|SeedSequence|RandomState\(|manual_seed\(|Random\(\d")
    found = {
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        for line in path.read_text(encoding="utf-8").splitlines()
        if made.search(line) and ">>>" not in line
    }
    assert found == set(SEEDED)
