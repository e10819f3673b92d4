"""Label noise by name and rate, reproducible to the label.

Published numbers differ because generators do, so each definition has its own name: see
`noise_generators`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

import numpy as np

from proselflc.data.inputs import Bools, Ints
from proselflc.data.noise_generators import (
    GENERATORS,
    GENERATORS_WITHOUT_RATE,
    Matrix,
    Numbers,
    Pairs,
    Truth,
    check_pairs,
    checked_labels,
)
from proselflc.errors import InputError, unknown

SHORT_NAMES = {
    "symmetric": "sym_exclusive_exact",
    "pair": "asym_cifar100_pair where coarse classes are known, else pairflip",
}
# No rate has more decimals; `1e-999999999` would become an integer of that length.
_MOST_DECIMALS = 40


@dataclass(frozen=True)
class NoiseSpec:
    """A kind of noise and its rate, None for a kind without one; written `KIND:RATE`."""

    kind: str
    rate: Decimal | None


@dataclass(frozen=True)
class Noise:
    """Labels after corruption."""

    given: Ints  # [n]
    flipped: Bools  # [n] whether `given` differs from the true label
    rate: float  # realised share of flipped labels
    kind: str  # full name of the generator
    spec: str  # full name and requested rate, as KIND:RATE
    fingerprint: str


def corrupt(
    labels: Ints,
    num_classes: int,
    *,
    kind: str,
    rate: float | str | Decimal | None = None,
    generator: np.random.Generator,
    coarse: Ints | None = None,
    features: Numbers | None = None,
    transition: Matrix | None = None,
    human: Ints | None = None,
    pairs: Pairs | None = None,
) -> Noise:
    """Corrupt true labels [n] by the generator of that name; they are not changed.

    The kind is a name of `GENERATORS` or `GENERATORS_WITHOUT_RATE`, or `symmetric` or `pair`. The
    rate is in [0, 1], read as the decimal it is written as; None for `transition` and `human`. All
    randomness comes from the generator, which `stream(seed)` creates. See `Truth` for the rest,
    which some kinds need.

    >>> noise = corrupt(np.arange(10), 10, kind="symmetric", rate="0.3", generator=stream(0))
    >>> noise.kind, int(noise.flipped.sum()), noise.rate
    ('sym_exclusive_exact', 3, 0.3)
    """
    if num_classes < 2:
        raise InputError(f"label noise needs at least two classes, got {num_classes}")
    clean = checked_labels(labels, num_classes, "labels")
    if coarse is not None and np.shape(coarse) != (num_classes,):
        raise InputError(
            f"there are {np.size(coarse)} coarse classes for {num_classes} classes: "
            "every class needs one"
        )
    if features is not None and len(features) != len(clean):
        raise InputError(
            f"there are features of {len(features)} examples for {len(clean)} labels: "
            "they must correspond row for row"
        )
    truth = Truth(clean, num_classes, coarse, features, transition, human, pairs)
    name = full_name(kind, coarse_known=coarse is not None)
    spec = name
    if name in GENERATORS:
        r = exact(_needed(rate, name), "noise rate")
        given = GENERATORS[name](truth, r, generator)
        spec = f"{name}:{r}"
    else:
        if rate is not None:
            raise InputError(_no_rate(name, str(rate)))
        given = GENERATORS_WITHOUT_RATE[name](truth, None, generator)
    flipped = given != clean
    return Noise(
        given=given,
        flipped=flipped,
        rate=int(flipped.sum()) / len(clean),
        kind=name,
        spec=spec,
        fingerprint=fingerprint(given, num_classes),
    )


def stream(seed: int) -> np.random.Generator:
    """Return the random stream of the noise: PCG64 of the seed itself, the same everywhere.

    For the noise alone; any other use takes `batches.random_stream`.
    """
    if seed < 0:
        raise InputError(f"the seed is {seed}: it must be an integer of at least 0", field="seed")
    return np.random.Generator(np.random.PCG64(seed))


def parse(text: str) -> NoiseSpec:
    """Read `KIND:RATE`, or `KIND` alone where it has no rate.

    >>> parse("symmetric:0.4")
    NoiseSpec(kind='symmetric', rate=Decimal('0.4'))
    """
    kind, colon, rate = text.partition(":")
    name = full_name(kind, coarse_known=True)
    if name in GENERATORS:
        return NoiseSpec(kind, exact(_needed(rate or None, kind), "noise rate"))
    if colon:
        raise InputError(_no_rate(kind, rate))
    return NoiseSpec(kind, None)


def takes_rate(kind: str) -> bool:
    """Return whether a kind needs a rate; False for `KIND:RATE` and unknown names.

    >>> takes_rate("pair"), takes_rate("pair:0.4"), takes_rate("human")
    (True, False, False)
    """
    return kind in SHORT_NAMES or kind in GENERATORS


def full_name(kind: str, *, coarse_known: bool) -> str:
    """Return the full name of a generator for a full or short one."""
    if kind == "symmetric":
        return "sym_exclusive_exact"
    if kind == "pair":
        return "asym_cifar100_pair" if coarse_known else "pairflip"
    if kind in GENERATORS or kind in GENERATORS_WITHOUT_RATE:
        return kind
    known = [*SHORT_NAMES, *GENERATORS, *GENERATORS_WITHOUT_RATE]
    raise InputError(unknown("kind of noise", kind, known))


def exact(number: float | str | Decimal, what: str) -> Decimal:
    """Return a number in [0, 1] as the decimal it is written as, so that 0.29 means 29/100.

    >>> from proselflc.data.noise_generators import count
    >>> count(exact(0.29, "noise rate"), 50000), int(0.29 * 50000)
    (14500, 14499)
    """
    try:
        r = Decimal(str(number).strip())
    except InvalidOperation:
        r = Decimal("nan")
    if not r.is_finite() or not 0 <= r <= 1:
        raise InputError(f"{what} {str(number)[:40]!r} is not a number between 0 and 1")
    if r == 0:
        return Decimal(0)
    if int(r.as_tuple().exponent) < -_MOST_DECIMALS:
        raise InputError(f"{what} {str(number)[:40]!r} has more than {_MOST_DECIMALS} decimals")
    return r


def fingerprint(given: Ints, num_classes: int) -> str:
    """Return the SHA-256 of the labels and C as little-endian int64, the same on every platform."""
    content = np.asarray(given, dtype="<i8").tobytes() + num_classes.to_bytes(8, "little")
    return hashlib.sha256(content).hexdigest()


def parse_pairs(text: str, names: Sequence[str]) -> Pairs:
    """Read `cat:dog,truck:car` into pairs of class ids.

    >>> parse_pairs("cat:dog", ["bird", "cat", "dog"])
    ((1, 2),)
    """
    ids = {name: i for i, name in enumerate(names)}
    pairs = []
    for pair in text.split(","):
        a, _, b = (name.strip() for name in pair.partition(":"))
        if not a or not b:
            raise InputError(
                f'cannot read the pair "{pair}": write two class names with a colon between them '
                'and commas between pairs, "cat:dog,truck:car"'
            )
        for name in (a, b):
            if name not in ids:
                raise InputError(unknown("class", name, names))
        pairs.append((ids[a], ids[b]))
    check_pairs(pairs, len(names), names)
    return tuple(pairs)


def _needed(rate: float | str | Decimal | None, kind: str) -> float | str | Decimal:
    if rate is None:
        raise InputError(f'noise "{kind}" needs a rate between 0 and 1: write "{kind}:0.4"')
    return rate


def _no_rate(kind: str, rate: str) -> str:
    return f'noise "{kind}" takes no rate, got {rate!r}: leave it out'
