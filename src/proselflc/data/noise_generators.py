"""The generators of label noise, each by its full name.

A generator is a function of the true labels and a random stream and nothing else; `noise.corrupt`
calls it by its name.

Streams. All draws but one come from `numpy.random.Generator.random`, which is the top 53 bits of
the bit generator's output times 2⁻⁵³: no rejection, no library mathematics, so PCG64 with one seed
gives the same labels on every platform and numpy version. Subsets are the first places of a stable
argsort of such numbers. Only `instance_dependent` also takes normal variates and matrix products,
whose last bit may differ between machines; a label differs with it about once in 10¹² draws.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from proselflc.data import memory_budget
from proselflc.data.class_matrix import checked_transition
from proselflc.data.inputs import Ints
from proselflc.errors import InputError
from proselflc.wording import option

Matrix: TypeAlias = npt.NDArray[np.float64]
Numbers: TypeAlias = npt.NDArray[Any]
Pairs: TypeAlias = tuple[tuple[int, int], ...]

_ROWS_AT_ONCE = 4096
_NUMBERS_AT_ONCE = 1 << 23  # of [rows, C]: fewer rows beyond 2,048 classes


@dataclass(frozen=True)
class Truth:
    """The true labels, and what some generators need."""

    labels: Ints  # [n]
    num_classes: int
    coarse: Ints | None = None  # [C] coarse class of every class, if known
    features: Numbers | None = None  # [n, …]; bytes count as pixels and are divided by 255
    transition: Matrix | None = None  # [C, C], row = true class, for `transition`
    human: Ints | None = None  # [n] labels given by people, for `human`
    pairs: Pairs | None = None  # of classes to confuse, for `confusable_pairs`

    def members(self, class_id: int) -> Ints:
        """Return the positions of the examples whose true class this is."""
        return np.flatnonzero(self.labels == class_id)


def sym_exclusive_bernoulli(truth: Truth, r: Decimal, generator: np.random.Generator) -> Ints:
    """Each label becomes, with probability r, one of the other C − 1 classes. (paper, 5.2)"""
    flips = np.flatnonzero(generator.random(len(truth.labels)) < float(r))
    return _to_other_classes(truth, flips, generator)


def sym_exclusive_exact(truth: Truth, r: Decimal, generator: np.random.Generator) -> Ints:
    """Exactly ⌊rn⌋ labels over the whole set become another class. (the paper's published code)"""
    n = len(truth.labels)
    return _to_other_classes(truth, _chosen(np.arange(n), count(r, n), generator), generator)


def sym_exclusive_exact_per_class(truth: Truth, r: Decimal, generator: np.random.Generator) -> Ints:
    """Exactly ⌊rn/C⌋ labels of every class become another class. (SL)"""
    C = truth.num_classes
    per_class = int(Fraction(r) * len(truth.labels) / C)
    flips = []
    for c in range(C):
        members = truth.members(c)
        if len(members) < per_class:
            raise InputError(
                f"noise sym_exclusive_exact_per_class:{r} flips {per_class} labels of every class, "
                f"but class {c} has {len(members)}: use sym_exclusive_exact for unbalanced classes"
            )
        flips.append(_chosen(members, per_class, generator))
    return _to_other_classes(truth, np.concatenate(flips), generator)


def sym_inclusive(truth: Truth, r: Decimal, generator: np.random.Generator) -> Ints:
    """⌊rn⌋ labels are redrawn from all C classes, so about rn(C − 1)/C of them are wrong.

    (DivideMix, Joint, ELR, Arazo)
    """
    n = len(truth.labels)
    given = truth.labels.copy()
    chosen = _chosen(np.arange(n), count(r, n), generator)
    given[chosen] = _below(truth.num_classes, len(chosen), generator)
    return given


def asym_cifar100_pair(truth: Truth, r: Decimal, generator: np.random.Generator) -> Ints:
    """In each true coarse class two fine classes A, B: ⌊r·n_A⌋ of A → B and ⌊r·n_B⌋ of B → A.

    Coarse classes are taken in the order of their ids; each draws its A and B, all of them before
    any example is drawn. On CIFAR-100 the overall rate is 0.4 r. (paper, 5.2)
    """
    if truth.coarse is None:
        raise InputError(
            "noise asym_cifar100_pair needs to know each class's coarse class, as CIFAR-100 has "
            "them: use pairflip or confusable_pairs on other data"
        )
    pairs = []
    for coarse_class in np.unique(truth.coarse):
        fine = np.flatnonzero(truth.coarse == coarse_class)
        if len(fine) < 2:
            raise InputError(
                f"noise asym_cifar100_pair draws two classes of every coarse class, but coarse "
                f"class {coarse_class} has one only: use pairflip or confusable_pairs"
            )
        a, b = (int(c) for c in _chosen(fine, 2, generator))
        pairs.append((a, b))
    return _exact_arrows(truth, r, _both_ways(pairs), generator)


def asym_cifar100_pair_legacy(truth: Truth, r: Decimal, generator: np.random.Generator) -> Ints:
    """As `asym_cifar100_pair`, but on label blocks 5k … 5k+4 and with probability r. (SL's code)

    CIFAR-100's labels are alphabetical, so no block is a coarse class and only 10 of the 200 pairs
    inside blocks share one: kept to compare with published numbers, not for its meaning.
    """
    target = np.arange(_needs_classes(truth, 100, "asym_cifar100_pair_legacy"))
    for first in range(0, 100, 5):
        a, b = _chosen(np.arange(first, first + 5), 2, generator)
        target[a], target[b] = b, a
    return _bernoulli_map(truth, r, target, generator)


def asym_cifar100_cyclic(truth: Truth, r: Decimal, generator: np.random.Generator) -> Ints:
    """With probability r, class i becomes the next of its label block 5k … 5k+4, cyclically.

    The blocks are those of the published code (Patrini, ELR), which are not CIFAR-100's coarse
    classes: see `asym_cifar100_pair_legacy`.
    """
    i = np.arange(_needs_classes(truth, 100, "asym_cifar100_cyclic"))
    return _bernoulli_map(truth, r, i // 5 * 5 + (i + 1) % 5, generator)


def asym_cifar10(truth: Truth, r: Decimal, generator: np.random.Generator) -> Ints:
    """⌊r·n_c⌋ of each: truck → automobile, bird → airplane, deer → horse, cat ↔ dog.

    Drawn from the true labels, so that a cat made a dog is not made a cat again.
    """
    _needs_classes(truth, 10, "asym_cifar10")
    return _exact_arrows(truth, r, CIFAR10_ARROWS, generator)


def asym_mnist(truth: Truth, r: Decimal, generator: np.random.Generator) -> Ints:
    """⌊r·n_c⌋ of each: 7 → 1, 2 → 7, 3 → 8, 5 ↔ 6."""
    _needs_classes(truth, 10, "asym_mnist")
    return _exact_arrows(truth, r, MNIST_ARROWS, generator)


def pairflip(truth: Truth, r: Decimal, generator: np.random.Generator) -> Ints:
    """With probability r, class i becomes i + 1 mod C."""
    C = truth.num_classes
    return _bernoulli_map(truth, r, (np.arange(C) + 1) % C, generator)


def transition(truth: Truth, r: None, generator: np.random.Generator) -> Ints:
    """Each label is drawn from its true class's row of T.

    It is the class at which the row's running sum first exceeds u times the whole sum: scaled so,
    rounding never reaches a class of probability 0.
    """
    if truth.transition is None:
        raise InputError(
            "noise transition needs a matrix",
            field="transition",
            fix=f"give its file, .npy, .npz or .csv, with {option('transition')}",
        )
    T = checked_transition(truth.transition, truth.num_classes)
    u = generator.random(len(truth.labels))
    given = truth.labels.copy()
    for c in range(truth.num_classes):
        members = truth.members(c)
        cumulative = T[c].cumsum()
        given[members] = np.searchsorted(cumulative, u[members] * cumulative[-1], side="right")
    return given


def instance_dependent(truth: Truth, r: Decimal, generator: np.random.Generator) -> Ints:
    """Examples are mistaken for what they look like, some more easily than others.

    r_i ~ N(r, 0.1²) truncated to [0, 1]; W_y ∈ R^{S×C} Gaussian, one per class; s = x_i W_y with
    s_y = −∞; the label is drawn from r_i softmax(s) + (1 − r_i) on y. The truncation moves the
    mean of r_i away from r near 0 and 1; r = 0 itself means no noise.
    """
    if truth.features is None:
        raise InputError(
            "noise instance_dependent needs numbers about every example",
            field="features",
            fix="use images of one size or numeric columns, or attach embeddings with "
            f"{option('features')}",
        )
    labels, C = truth.labels, truth.num_classes
    given = labels.copy()
    if r == 0:
        return given
    r_i = _truncated_normal(float(r), 0.1, len(labels), generator)
    u = generator.random(len(labels))
    at_once = min(_ROWS_AT_ONCE, max(1, _NUMBERS_AT_ONCE // C))
    for y in range(C):
        W = generator.standard_normal((_width(truth.features), C))
        members = truth.members(y)
        for start in range(0, len(members), at_once):
            rows = members[start : start + at_once]
            s = _flat(truth.features[rows]) @ W
            s[:, y] = -np.inf
            p = np.exp(s - s.max(axis=1, keepdims=True))
            p *= (r_i[rows] / p.sum(axis=1))[:, None]
            p[:, y] = 1 - r_i[rows]
            cumulative = p.cumsum(axis=1)
            given[rows] = (cumulative <= u[rows, None] * cumulative[:, -1:]).sum(axis=1)
    return given


def human(truth: Truth, r: None, generator: np.random.Generator) -> Ints:
    """Labels given by people, from a file (CIFAR-10N, CIFAR-100N, or your own)."""
    if truth.human is None:
        raise InputError(
            "noise human needs labels given by people",
            field="human",
            fix=f"give their file with {option('human')}",
        )
    if len(truth.human) != len(truth.labels):
        raise InputError(
            f"there are {len(truth.human)} human labels for {len(truth.labels)} examples: "
            "they must correspond row for row"
        )
    return checked_labels(truth.human, truth.num_classes, "human labels")


def confusable_pairs(truth: Truth, r: Decimal, generator: np.random.Generator) -> Ints:
    """For each pair A, B of confusable classes: ⌊r·n_A⌋ of A → B and ⌊r·n_B⌋ of B → A.

    The pairs are given, or else those of `nearest_pairs`.
    """
    pairs = truth.pairs
    if pairs is None:
        if truth.features is None:
            raise InputError(
                "noise confusable_pairs cannot tell which classes look alike without numbers "
                "about the examples",
                field="pairs",
                fix=f"give the pairs, {option('pairs', 'cat:dog,truck:car')}, or "
                f"{option('features')}",
            )
        pairs = nearest_pairs(truth.labels, truth.num_classes, truth.features)
    check_pairs(pairs, truth.num_classes)
    return _exact_arrows(truth, r, _both_ways(pairs), generator)


# Names of the classes that the ids in a generator stand for.
CLASSES_MEANT = {
    "asym_cifar10": (
        *("airplane", "automobile", "bird", "cat", "deer"),
        *("dog", "frog", "horse", "ship", "truck"),
    ),
    "asym_mnist": tuple("0123456789"),
}
CIFAR10_ARROWS = ((9, 1), (2, 0), (4, 7), (3, 5), (5, 3))
MNIST_ARROWS = ((7, 1), (2, 7), (3, 8), (5, 6), (6, 5))

Generate: TypeAlias = Callable[[Truth, Decimal, np.random.Generator], Ints]
GENERATORS: dict[str, Generate] = {
    "sym_exclusive_bernoulli": sym_exclusive_bernoulli,
    "sym_exclusive_exact": sym_exclusive_exact,
    "sym_exclusive_exact_per_class": sym_exclusive_exact_per_class,
    "sym_inclusive": sym_inclusive,
    "asym_cifar100_pair": asym_cifar100_pair,
    "asym_cifar100_pair_legacy": asym_cifar100_pair_legacy,
    "asym_cifar100_cyclic": asym_cifar100_cyclic,
    "asym_cifar10": asym_cifar10,
    "asym_mnist": asym_mnist,
    "pairflip": pairflip,
    "instance_dependent": instance_dependent,
    "confusable_pairs": confusable_pairs,
}
GENERATORS_WITHOUT_RATE: dict[str, Callable[[Truth, None, np.random.Generator], Ints]] = {
    "transition": transition,
    "human": human,
}


def nearest_pairs(labels: Ints, num_classes: int, features: Numbers) -> Pairs:
    """Return pairs of similar classes by the distance of their means, the nearest pair first.

    Columns are divided by their standard deviation. Every class with examples is in one pair,
    except for the last one if their number is odd.
    """
    present = np.flatnonzero(np.bincount(labels, minlength=num_classes)).tolist()
    memory_budget.require(
        32 * len(present) * (len(present) - 1) // 2,
        f"finding the classes that look alike among all pairs of {len(present):,}",
        f"give the pairs, {option('pairs', 'cat:dog,truck:car')}, or use another kind of noise",
    )
    sums = np.zeros((len(present), _width(features)))
    squares = np.zeros(_width(features))
    sizes = np.zeros(len(present))
    for k, c in enumerate(present):
        members = np.flatnonzero(labels == c)
        sizes[k] = len(members)
        for start in range(0, len(members), _ROWS_AT_ONCE):
            x = _flat(features[members[start : start + _ROWS_AT_ONCE]])
            sums[k] += x.sum(axis=0)
            squares += (x * x).sum(axis=0)
    n = len(labels)
    spread = np.sqrt(np.maximum(squares / n - (sums.sum(axis=0) / n) ** 2, 0))
    means = sums / sizes[:, None] / np.where(spread > 0, spread, 1)
    a, b = np.triu_indices(len(present), k=1)
    distance = np.concatenate(
        [((m - means[i + 1 :]) ** 2).sum(axis=1) for i, m in enumerate(means)]
    )
    free = set(range(len(present)))
    pairs = []
    for nearest in np.argsort(distance, kind="stable"):
        i, j = int(a[nearest]), int(b[nearest])
        if i in free and j in free:
            free -= {i, j}
            pairs.append((present[i], present[j]))
    return tuple(pairs)


def count(r: Decimal, n: int) -> int:
    """Return ⌊r·n⌋ exactly."""
    return int(Fraction(r) * n)


def checked_labels(labels: Ints, num_classes: int, what: str) -> Ints:
    array = np.asarray(labels)
    if array.ndim != 1 or array.dtype.kind not in "iu" or len(array) == 0:
        raise InputError(
            f"{what} must be a list of class ids, got an array of {array.dtype} with shape "
            f"{array.shape}"
        )
    low, high = int(array.min()), int(array.max())
    if low < 0 or high >= num_classes:
        raise InputError(
            f"{what} hold {low if low < 0 else high}, but there are {num_classes} classes: "
            f"they must be 0 … {num_classes - 1}"
        )
    return array.astype(np.int64)


def check_pairs(
    pairs: Iterable[tuple[int, int]], num_classes: int, names: Sequence[str] | None = None
) -> None:
    seen: set[int] = set()
    for c in (c for pair in pairs for c in pair):
        if not 0 <= c < num_classes:
            raise InputError(f"class {c} of a pair is not in 0 … {num_classes - 1}")
        if c in seen:
            name = f'"{names[c]}"' if names else c
            raise InputError(f"class {name} is in the pairs twice: a class can have one partner")
        seen.add(c)


def _to_other_classes(truth: Truth, flips: Ints, generator: np.random.Generator) -> Ints:
    given = truth.labels.copy()
    step = 1 + _below(truth.num_classes - 1, len(flips), generator)
    given[flips] = (given[flips] + step) % truth.num_classes
    return given


def _exact_arrows(
    truth: Truth, r: Decimal, arrows: Iterable[tuple[int, int]], generator: np.random.Generator
) -> Ints:
    given = truth.labels.copy()
    for source, target in arrows:
        members = truth.members(source)
        given[_chosen(members, count(r, len(members)), generator)] = target
    return given


def _bernoulli_map(truth: Truth, r: Decimal, target: Ints, generator: np.random.Generator) -> Ints:
    flips = generator.random(len(truth.labels)) < float(r)
    return np.where(flips, target[truth.labels], truth.labels)


def _chosen(candidates: Ints, k: int, generator: np.random.Generator) -> Ints:
    """Draw k of the candidates without replacement."""
    order = np.argsort(generator.random(len(candidates)), kind="stable")
    return candidates[order[:k]]


def _below(k: int, n: int, generator: np.random.Generator) -> Ints:
    """Draw [n] uniform in 0 … k−1; ⌊uk⌋ cannot round up to k for u ≤ 1 − 2⁻⁵³."""
    return (generator.random(n) * k).astype(np.int64)


def _truncated_normal(mean: float, sd: float, n: int, generator: np.random.Generator) -> Matrix:
    """Draw [n] normal variates, each again until it is in [0, 1]."""
    values = mean + sd * generator.standard_normal(n)
    while len(outside := np.flatnonzero((values < 0) | (values > 1))):
        values[outside] = mean + sd * generator.standard_normal(len(outside))
    return values


def _width(features: Numbers) -> int:
    return int(np.prod(features.shape[1:]))


def _flat(rows: Numbers) -> Matrix:
    x = rows.reshape(len(rows), -1).astype(np.float64)
    return x / 255 if rows.dtype == np.uint8 else x


def _both_ways(pairs: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    return [arrow for a, b in pairs for arrow in ((a, b), (b, a))]


def _needs_classes(truth: Truth, wanted: int, kind: str) -> int:
    if truth.num_classes != wanted:
        raise InputError(
            f"noise {kind} is defined for {wanted} classes, but there are {truth.num_classes}: "
            "use pairflip or confusable_pairs"
        )
    return wanted
