"""Random streams: one for every purpose, so that no two uses of randomness draw the same numbers.

A generator made of the seed alone gives every user of it the same numbers: the noise and the
trusted split once shared one, and the split chose just the examples whose labels were flipped. The
noise keeps that stream (`noise.stream`), because the fingerprints of its labels are published.
Every other stream is keyed by its purpose.
"""

from __future__ import annotations

import hashlib

import numpy as np


def stream_seed(*key: int | str) -> int:
    """Return a seed of 63 bits that is a function of `key` alone, on every platform."""
    digest = hashlib.blake2b("/".join(map(str, key)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def random_stream(seed: int, purpose: str, *more: int | str) -> np.random.Generator:
    """Return the random stream of a purpose: PCG64, the same everywhere.

    Args:
        seed: the user's seed.
        purpose: what is drawn, in a word or two, unique to this use.
        more: anything else that the draw depends on.

    Example:
        >>> random_stream(0, "trusted split").random() == random_stream(0, "folds").random()
        False
    """
    return np.random.Generator(np.random.PCG64(stream_seed(purpose, seed, *more)))
