"""Every generator by its definition, each checked against counts made without the generator."""

from __future__ import annotations

import hashlib
import struct
from collections import Counter
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proselflc.data import noise, noise_generators
from proselflc.data.class_matrix import counted, rows_to_1
from proselflc.data.dataset import Dataset
from proselflc.data.inputs import Ints
from proselflc.data.noise import Noise, NoiseSpec, corrupt, parse, stream
from proselflc.errors import InputError

RATES = ["0", "0.2", "0.29", "0.3", "0.4", "0.45", "0.57", "0.58", "0.7", "0.9", "1"]
KINDS = [*noise_generators.GENERATORS, *noise_generators.GENERATORS_WITHOUT_RATE]
EXCLUSIVE = [kind for kind in noise_generators.GENERATORS if kind.startswith("sym_exclusive")]


def classes_of(kind: str) -> int:
    """A number of classes that the kind takes."""
    if "cifar100_" in kind:
        return 100
    return 10


def make(kind: str, y: Ints, C: int, rate: str, seed: int) -> Noise:
    """Noise of this kind with all that any kind needs, made without the global stream."""
    rng = np.random.default_rng(7)
    T = rng.dirichlet(np.ones(C) * 0.3, size=C)
    return corrupt(
        y,
        C,
        kind=kind,
        rate=None if kind in noise_generators.GENERATORS_WITHOUT_RATE else rate,
        generator=stream(seed),
        coarse=np.arange(C) % (C // 5),
        features=rng.normal(size=(len(y), 3)),
        transition=T,
        human=rng.integers(C, size=len(y)),
    )


def arrows(result: Noise, clean: Ints) -> Counter[tuple[int, int]]:
    """How often each true class was given each other one."""
    return Counter((int(a), int(b)) for a, b in zip(clean, result.given, strict=True) if a != b)


rates = st.one_of(
    st.sampled_from(RATES),
    st.decimals(0, 1, places=2).map(str),
    st.decimals(0, 1, places=6).map(str),
)
seeds = st.integers(0, 2**32)


@st.composite
def labelled(draw: st.DrawFn, kind: str) -> tuple[Ints, int]:
    """Labels and C; unbalanced and with absent classes where the kind allows that."""
    C = classes_of(kind)
    if kind == "sym_exclusive_exact_per_class":
        y = np.arange(C * draw(st.integers(1, 12)), dtype=np.int64) % C
    else:
        n = draw(st.integers(1, 150))
        y = np.random.default_rng(draw(seeds)).integers(C, size=n)
    return y, C


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=40, deadline=None)
@given(data=st.data(), rate=rates, seed=seeds)
def test_what_every_generator_says_is_true(
    kind: str, data: st.DataObject, rate: str, seed: int
) -> None:
    y, C = data.draw(labelled(kind))
    before = y.copy()
    state = repr(np.random.get_state())

    result = make(kind, y, C, rate, seed)

    np.testing.assert_array_equal(y, before)
    assert repr(np.random.get_state()) == state
    assert result.given.dtype == np.int64
    assert result.given.shape == y.shape
    assert result.given.min() >= 0
    assert result.given.max() < C
    assert result.flipped.tolist() == [a != b for a, b in zip(y, result.given, strict=True)]
    assert result.rate == sum(result.flipped) / len(y)
    sizes = Counter(int(c) for c in y)
    moved = Counter((int(a), int(b)) for a, b in zip(y, result.given, strict=True))
    expected = [
        [moved[a, b] / sizes[a] if sizes[a] else float(a == b) for b in range(C)] for a in range(C)
    ]
    realised = rows_to_1(counted(y, result.given, C))
    np.testing.assert_allclose(realised, expected, rtol=1e-15)
    assert realised.dtype == np.float64
    packed = struct.pack(f"<{len(y) + 1}q", *result.given, C)
    assert result.fingerprint == hashlib.sha256(packed).hexdigest()
    assert result.kind == kind
    again = make(kind, y, C, rate, seed)
    assert again.fingerprint == result.fingerprint
    if rate == "0" and kind not in noise_generators.GENERATORS_WITHOUT_RATE:
        assert not result.flipped.any()


@pytest.mark.parametrize("kind", KINDS)
def test_other_seeds_give_other_labels(kind: str) -> None:
    C = classes_of(kind)
    y = np.arange(1000) % C
    prints = {make(kind, y, C, "0.4", seed).fingerprint for seed in range(5)}
    assert len(prints) == (1 if kind == "human" else 5)


@pytest.mark.parametrize("kind", KINDS)
def test_the_global_stream_does_not_matter(kind: str) -> None:
    C = classes_of(kind)
    y = np.arange(500) % C
    prints = set()
    for seed in (1, 2):
        np.random.seed(seed)
        prints.add(make(kind, y, C, "0.4", 0).fingerprint)
    assert len(prints) == 1


@settings(max_examples=200, deadline=None)
@given(rate=rates, n=st.integers(1, 3000), C=st.integers(2, 120), seed=seeds)
def test_sym_exclusive_exact_flips_exactly_the_floor(rate: str, n: int, C: int, seed: int) -> None:
    y = np.random.default_rng(seed).integers(C, size=n)
    result = corrupt(y, C, kind="symmetric", rate=rate, generator=stream(seed))
    assert result.kind == "sym_exclusive_exact"
    # By text and integers alone: shift the decimal point, divide without remainder.
    whole, _, decimals = rate.partition(".")
    assert int(result.flipped.sum()) == int(whole + decimals) * n // 10 ** len(decimals)


@pytest.mark.parametrize(
    ("rate", "flips"),
    [(0.29, 14500), (0.45, 22500), (0.57, 28500), (0.58, 29000), (0.7, 35000), (0.9, 45000)],
)
def test_floats_count_as_the_decimals_they_are_written_as(rate: float, flips: int) -> None:
    y = np.arange(50000) % 100
    result = corrupt(y, 100, kind="symmetric", rate=rate, generator=stream(3))
    assert int(result.flipped.sum()) == flips
    same = corrupt(y, 100, kind="symmetric", rate=np.float64(rate), generator=stream(3))
    assert same.fingerprint == result.fingerprint


@pytest.mark.parametrize("kind", EXCLUSIVE)
def test_exclusive_noise_reaches_all_other_classes_alike(kind: str) -> None:
    y = np.arange(60000) % 5
    result = corrupt(y, 5, kind=kind, rate="0.5", generator=stream(1))
    moved = arrows(result, y)
    assert set(moved) == {(a, b) for a in range(5) for b in range(5) if a != b}
    # Each of the 20 arrows has 1,500 expected; 5 standard deviations of a binomial.
    assert all(abs(k - 1500) < 5 * 1500**0.5 for k in moved.values())


@settings(max_examples=100, deadline=None)
@given(rate=rates, per_class=st.integers(1, 60), C=st.integers(2, 20), seed=seeds)
def test_exact_per_class_counts(rate: str, per_class: int, C: int, seed: int) -> None:
    y = np.repeat(np.arange(C), per_class)
    result = corrupt(y, C, kind="sym_exclusive_exact_per_class", rate=rate, generator=stream(seed))
    wanted = Fraction(rate) * per_class
    assert [int(result.flipped[y == c].sum()) for c in range(C)] == [int(wanted)] * C


def test_inclusive_noise_draws_the_true_class_too() -> None:
    y = np.arange(40000) % 4
    result = corrupt(y, 4, kind="sym_inclusive", rate="0.8", generator=stream(0))
    # r(C − 1)/C = 0.6 of 40,000, with the binomial's spread over the 32,000 chosen.
    assert abs(int(result.flipped.sum()) - 24000) < 5 * (32000 * 0.75 * 0.25) ** 0.5


@pytest.mark.parametrize(
    ("kind", "C", "share"),
    [
        ("sym_exclusive_bernoulli", 10, Fraction(1)),
        ("pairflip", 10, Fraction(1)),
        ("asym_cifar100_cyclic", 100, Fraction(1)),
        ("asym_cifar100_pair_legacy", 100, Fraction(2, 5)),
    ],
)
@pytest.mark.parametrize("rate", ["0.29", "0.7"])
def test_rates_of_noise_by_probability(kind: str, C: int, share: Fraction, rate: str) -> None:
    n = 40000
    y = np.arange(n) % C
    result = corrupt(y, C, kind=kind, rate=rate, generator=stream(11))
    eligible = float(share) * n
    spread = (eligible * float(rate) * (1 - float(rate))) ** 0.5
    assert abs(int(result.flipped.sum()) - eligible * float(rate)) < 5 * spread


@settings(max_examples=60, deadline=None)
@given(rate=rates, seed=seeds, groups=st.integers(1, 6), size=st.integers(2, 6))
def test_pair_noise_by_coarse_classes(rate: str, seed: int, groups: int, size: int) -> None:
    C = groups * size
    coarse = np.random.default_rng(seed).permutation(np.repeat(np.arange(groups), size))
    y = np.random.default_rng(seed + 1).integers(C, size=300)
    result = corrupt(
        y, C, kind="pair", rate=rate, generator=stream(seed), coarse=coarse.astype(np.int64)
    )
    assert result.kind == "asym_cifar100_pair"
    sizes = Counter(int(c) for c in y)
    moved = arrows(result, y)
    for (a, b), k in moved.items():
        assert coarse[a] == coarse[b]
        assert k == int(Fraction(rate) * sizes[a])
    sources = [a for a, _ in moved]
    assert len(sources) == len(set(sources))  # one target each
    for group in range(groups):
        assert sum(int(coarse[a] == group) for a in sources) <= 2


@pytest.mark.parametrize("rate", ["0.2", "0.3", "0.4"])
def test_pair_noise_on_cifar100s_sizes(rate: str) -> None:
    coarse = np.random.default_rng(0).permutation(np.arange(100) % 20)
    y = np.random.default_rng(1).permutation(np.arange(50000) % 100)
    result = corrupt(y, 100, kind="pair", rate=rate, generator=stream(0), coarse=coarse)
    moved = arrows(result, y)
    assert len(moved) == 40
    assert set(moved.values()) == {int(Fraction(rate) * 500)}
    assert {(b, a) for a, b in moved} == set(moved)
    assert Fraction(int(result.flipped.sum()), 50000) == Fraction("0.4") * Fraction(rate)


@pytest.mark.parametrize("rate", ["0.2", "0.3", "0.4"])
def test_pair_noise_on_the_real_cifar100(cifar100: Dataset, rate: str) -> None:
    dataset = cifar100
    assert dataset.coarse is not None
    result = corrupt(
        dataset.train.labels,
        100,
        kind="pair",
        rate=rate,
        generator=stream(0),
        coarse=dataset.coarse,
    )
    assert result.kind == "asym_cifar100_pair"
    moved = arrows(result, dataset.train.labels)
    assert len({a for a, _ in moved}) == 40
    coarse = dataset.coarse.tolist()
    assert all(coarse[a] == coarse[b] for a, b in moved)
    assert Counter(coarse[a] for a, _ in moved) == {k: 2 for k in range(20)}
    assert result.rate == float(Fraction("0.4") * Fraction(rate))


@pytest.mark.parametrize("kind", ["asym_cifar100_pair_legacy", "asym_cifar100_cyclic"])
def test_legacy_noise_stays_in_blocks_of_five_labels(kind: str) -> None:
    y = np.arange(20000) % 100
    result = corrupt(y, 100, kind=kind, rate="0.5", generator=stream(5))
    moved = arrows(result, y)
    assert all(a // 5 == b // 5 for a, b in moved)
    if kind == "asym_cifar100_cyclic":
        cycle = {(a, a + 1 if a % 5 < 4 else a - 4) for a in range(100)}
        assert set(moved) == cycle
    else:
        assert len(moved) == 40
        assert {(b, a) for a, b in moved} == set(moved)
        assert Counter(a // 5 for a, _ in moved) == {k: 2 for k in range(20)}


@settings(max_examples=60, deadline=None)
@given(rate=rates, n=st.integers(1, 400), seed=seeds, kind=st.sampled_from(["cifar10", "mnist"]))
def test_asymmetric_maps(rate: str, n: int, seed: int, kind: str) -> None:
    airplane, automobile, bird, cat, deer, dog, _frog, horse, _ship, truck = range(10)
    wanted = {
        "cifar10": {
            truck: automobile,
            bird: airplane,
            deer: horse,
            cat: dog,
            dog: cat,
        },
        "mnist": {7: 1, 2: 7, 3: 8, 5: 6, 6: 5},
    }[kind]
    y = np.random.default_rng(seed).integers(10, size=n)
    result = corrupt(y, 10, kind=f"asym_{kind}", rate=rate, generator=stream(seed))
    sizes = Counter(int(c) for c in y)
    expected = {(a, b): int(Fraction(rate) * sizes[a]) for a, b in wanted.items()}
    assert arrows(result, y) == Counter({arrow: k for arrow, k in expected.items() if k})


def test_pairflip_goes_to_the_next_class_and_is_pair_without_coarse_classes() -> None:
    y = np.arange(700) % 7
    result = corrupt(y, 7, kind="pair", rate="0.45", generator=stream(2))
    assert result.kind == "pairflip"
    assert set(arrows(result, y)) == {(a, (a + 1) % 7) for a in range(7)}
    everything = corrupt(y, 7, kind="pairflip", rate="1", generator=stream(2))
    np.testing.assert_array_equal(everything.given, (y + 1) % 7)


@settings(max_examples=50, deadline=None)
@given(seed=seeds, C=st.integers(2, 12))
def test_transition_draws_from_the_rows_and_never_where_they_are_zero(seed: int, C: int) -> None:
    rng = np.random.default_rng(seed)
    T = rng.dirichlet(np.ones(C), size=C) * (rng.random((C, C)) < 0.5)
    T[np.arange(C), rng.integers(C, size=C)] += 0.1
    T /= T.sum(axis=1, keepdims=True)
    y = rng.integers(C, size=5000)
    result = corrupt(y, C, kind="transition", transition=T, generator=stream(seed))
    realised = rows_to_1(counted(y, result.given, C))
    for c in np.unique(y):
        n = int((y == c).sum())
        assert not realised[c][T[c] == 0].any()
        spread = np.sqrt(T[c] * (1 - T[c]) / n)
        assert (abs(realised[c] - T[c]) <= 6 * spread + 2 / n).all()


def test_identity_and_permutation_matrices_are_exact() -> None:
    y = np.arange(300) % 3
    same = corrupt(y, 3, kind="transition", transition=np.eye(3), generator=stream(0))
    assert same.rate == 0
    P = np.eye(3)[[1, 2, 0]]
    turned = corrupt(y, 3, kind="transition", transition=P, generator=stream(0))
    np.testing.assert_array_equal(turned.given, (y + 1) % 3)
    np.testing.assert_array_equal(rows_to_1(counted(y, turned.given, 3)), P)


def test_instance_dependent_noise_depends_on_the_instance() -> None:
    n, C = 20000, 4
    rng = np.random.default_rng(0)
    y = np.arange(n) % C
    x = rng.normal(size=(n, 2)) * 5
    result = corrupt(y, C, kind="instance_dependent", rate="0.4", features=x, generator=stream(0))
    assert abs(result.rate - 0.4) < 0.02
    # Opposite inputs have opposite scores, so they are mistaken for different classes.
    flips = result.flipped & (y == 0)
    right, left = flips & (x[:, 0] > 3), flips & (x[:, 0] < -3)
    shares = [np.bincount(result.given[side], minlength=C) / side.sum() for side in (right, left)]
    assert abs(shares[0] - shares[1]).sum() > 0.5
    # What was drawn for one example does not depend on features of others.
    x2 = x.copy()
    x2[1:] = 0
    other = corrupt(y, C, kind="instance_dependent", rate="0.4", features=x2, generator=stream(0))
    assert other.given[0] == result.given[0]


@pytest.mark.parametrize("rate", ["0.1", "0.5", "1"])
def test_instance_dependent_rate_is_the_truncated_normals_mean(rate: str) -> None:
    stats = pytest.importorskip("scipy.stats")
    y = np.zeros(30000, dtype=np.int64)
    x = np.ones((30000, 1))
    result = corrupt(y, 3, kind="instance_dependent", rate=rate, features=x, generator=stream(4))
    r = float(rate)
    mean = stats.truncnorm.mean(-r / 0.1, (1 - r) / 0.1, loc=r, scale=0.1)
    assert abs(result.rate - mean) < 5 * 0.5 / 30000**0.5


def test_pixels_as_bytes_and_as_their_share_of_255_are_the_same_features() -> None:
    pixels = np.random.default_rng(0).integers(256, size=(200, 4, 4, 3)).astype(np.uint8)
    y = np.arange(200) % 5
    a = corrupt(y, 5, kind="instance_dependent", rate="0.5", features=pixels, generator=stream(0))
    b = corrupt(
        y,
        5,
        kind="instance_dependent",
        rate="0.5",
        features=pixels.reshape(200, 48) / 255,
        generator=stream(0),
    )
    assert a.fingerprint == b.fingerprint


def test_human_labels_are_given_as_they_are() -> None:
    y = np.array([0, 1, 2, 2])
    people = np.array([0, 2, 2, 1])
    result = corrupt(y, 3, kind="human", human=people, generator=stream(0))
    assert result.given.tolist() == [0, 2, 2, 1]
    assert result.rate == 0.5
    assert result.given is not people


@settings(max_examples=60, deadline=None)
@given(rate=rates, seed=seeds)
def test_confusable_pairs_given(rate: str, seed: int) -> None:
    names = ["bird", "car", "cat", "dog", "truck"]
    pairs = noise.parse_pairs("cat:dog, truck:car", names)
    assert pairs == ((2, 3), (4, 1))
    y = np.random.default_rng(seed).integers(5, size=200)
    result = corrupt(y, 5, kind="confusable_pairs", rate=rate, pairs=pairs, generator=stream(seed))
    sizes = Counter(int(c) for c in y)
    expected = {(a, b): int(Fraction(rate) * sizes[a]) for a, b in [(2, 3), (3, 2), (4, 1), (1, 4)]}
    assert arrows(result, y) == Counter({arrow: k for arrow, k in expected.items() if k})


def test_confusable_pairs_estimated_from_features() -> None:
    centres = np.array([[0, 0], [9, 9], [0.5, 0], [9, 9.4], [50, -50]])
    y = np.arange(500) % 5
    x = centres[y] + np.random.default_rng(0).normal(size=(500, 2)) * 0.1
    assert set(noise_generators.nearest_pairs(y, 5, x)) == {(0, 2), (1, 3)}
    result = corrupt(y, 5, kind="confusable_pairs", rate="0.3", features=x, generator=stream(0))
    assert set(arrows(result, y)) == {(0, 2), (2, 0), (1, 3), (3, 1)}
    # A column's unit does not matter: kilometres or millimetres.
    assert noise_generators.nearest_pairs(y, 5, x * [1e6, 1]) == noise_generators.nearest_pairs(
        y, 5, x
    )


def test_nearest_pairs_leaves_absent_classes_out() -> None:
    y = np.array([0, 0, 3, 3, 4, 4])
    x = np.array([[0.0], [0], [1], [1], [9], [9]])
    assert noise_generators.nearest_pairs(y, 6, x) == ((0, 3),)


KNOWN = {
    "sym_exclusive_bernoulli": "afdbd1a2556b2f1e",
    "sym_exclusive_exact": "a5576de63697fcbb",
    "sym_exclusive_exact_per_class": "c4a34c01c7163cdc",
    "sym_inclusive": "98d54ff6a6984897",
    "asym_cifar100_pair": "cf8e3ad92d3c2732",
    "asym_cifar100_pair_legacy": "9cd136b527ae53a0",
    "asym_cifar100_cyclic": "23d9eb5473d9c0ce",
    "asym_cifar10": "f57ab7c28e96c34c",
    "asym_mnist": "18796212cc749e57",
    "pairflip": "d393e386ab2984a3",
    "instance_dependent": "ced26ae0f95bb176",
    "confusable_pairs": "d94dfe6c42c72d38",
    "transition": "5070f84ed28d824c",
    "human": "27bdbad9a410212d",
}


@pytest.mark.parametrize("kind", KINDS)
def test_known_answers(kind: str) -> None:
    """The same labels on every platform and numpy version, for ever."""
    C = classes_of(kind)
    y = np.arange(2000) * 7 % C
    result = corrupt(
        y,
        C,
        kind=kind,
        rate=None if kind in noise_generators.GENERATORS_WITHOUT_RATE else "0.29",
        generator=stream(2021),
        coarse=np.arange(C) % (C // 5),
        features=(np.arange(6000) * 37 % 101).reshape(2000, 3) / 50,
        transition=(np.eye(C) + 1 / C) / 2,
        human=y[::-1],
    )
    assert result.fingerprint[:16] == KNOWN[kind]


def test_the_stream_is_the_top_bits_of_pcg64() -> None:
    raw = np.random.PCG64(5).random_raw(4)
    np.testing.assert_array_equal(stream(5).random(4), (raw >> np.uint64(11)) * 2.0**-53)


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("symmetric:0.4", NoiseSpec("symmetric", Decimal("0.4"))),
        ("pair:0.29", NoiseSpec("pair", Decimal("0.29"))),
        ("sym_inclusive:1", NoiseSpec("sym_inclusive", Decimal(1))),
        ("pairflip:4.5e-1", NoiseSpec("pairflip", Decimal("0.45"))),
        ("human", NoiseSpec("human", None)),
        ("transition", NoiseSpec("transition", None)),
    ],
)
def test_parse(text: str, spec: NoiseSpec) -> None:
    assert parse(text) == spec


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("symetric:0.4", 'unknown kind of noise "symetric"; did you mean "symmetric"?'),
        ("", 'unknown kind of noise ""'),
        ("symmetric", 'noise "symmetric" needs a rate between 0 and 1: write "symmetric:0.4"'),
        ("symmetric:", 'noise "symmetric" needs a rate between 0 and 1'),
        ("symmetric:1.1", "noise rate '1.1' is not a number between 0 and 1"),
        ("symmetric:-0.1", "noise rate '-0.1' is not a number between 0 and 1"),
        ("symmetric:nan", "noise rate 'nan' is not a number between 0 and 1"),
        ("symmetric:snan", "noise rate 'snan' is not a number between 0 and 1"),
        ("symmetric:inf", "noise rate 'inf' is not a number between 0 and 1"),
        ("symmetric:forty", "noise rate 'forty' is not a number between 0 and 1"),
        ("symmetric:0.4:2", "noise rate '0.4:2' is not a number between 0 and 1"),
        ("symmetric:1e-999999", "noise rate '1e-999999' has more than 40 decimals"),
        ("human:0.4", 'noise "human" takes no rate'),
    ],
)
def test_parse_refuses(text: str, sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        parse(text)
    assert str(caught.value).startswith(sentence)


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.text(), st.text().map("symmetric:{}".format), st.floats().map(str)))
def test_parse_reads_or_refuses(text: str) -> None:
    try:
        spec = parse(text)
    except InputError:
        return
    assert spec.rate is None or 0 <= spec.rate <= 1


Y = np.arange(20) % 10


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"kind": "symmetric"}, 'noise "sym_exclusive_exact" needs a rate'),
        ({"kind": "symmetric", "rate": float("nan")}, "noise rate 'nan' is not a number"),
        ({"kind": "symmetric", "rate": 1.5}, "noise rate '1.5' is not a number"),
        ({"kind": "pairfip", "rate": 0.2}, 'unknown kind of noise "pairfip"; did you mean "pair'),
        ({"kind": "asym_cifar100_pair", "rate": 0.2}, "noise asym_cifar100_pair needs to know"),
        (
            {"kind": "pair", "rate": 0.2, "coarse": np.arange(10)},
            "noise asym_cifar100_pair draws two classes of every coarse class, but coarse class 0",
        ),
        (
            {"kind": "pair", "rate": 0.2, "coarse": np.arange(5)},
            "there are 5 coarse classes for 10",
        ),
        (
            {"kind": "asym_cifar100_cyclic", "rate": 0.2},
            "noise asym_cifar100_cyclic is defined for",
        ),
        (
            {"kind": "asym_cifar100_pair_legacy", "rate": 0.2},
            "noise asym_cifar100_pair_legacy is defined for 100 classes, but there are 10",
        ),
        ({"kind": "transition"}, "noise transition needs a matrix"),
        (
            {"kind": "transition", "rate": 0.2, "transition": np.eye(10)},
            'noise "transition" takes no',
        ),
        ({"kind": "transition", "transition": np.eye(9)}, "the transition matrix has shape (9, 9)"),
        (
            {"kind": "transition", "transition": np.ones(10)},
            "the transition matrix has shape (10,)",
        ),
        ({"kind": "transition", "transition": np.ones((10, 10))}, "row 0 of the transition matrix"),
        (
            {"kind": "transition", "transition": np.eye(10) * np.nan},
            "row 0 of the transition matrix is not a distribution",
        ),
        (
            {"kind": "transition", "transition": 2 * np.eye(10) - np.eye(10)[::-1]},
            "row 0 of the transition matrix is not a distribution (smallest entry -1, sum 1)",
        ),
        (
            {"kind": "transition", "transition": np.full((10, 10), "x")},
            "the transition matrix does not hold numbers",
        ),
        ({"kind": "instance_dependent", "rate": 0.2}, "noise instance_dependent needs numbers"),
        (
            {"kind": "instance_dependent", "rate": 0.2, "features": np.ones((3, 2))},
            "there are features of 3 examples for 20 labels",
        ),
        ({"kind": "human"}, "noise human needs labels given by people"),
        ({"kind": "human", "human": Y[:5]}, "there are 5 human labels for 20 examples"),
        ({"kind": "human", "human": Y + 1}, "human labels hold 10, but there are 10 classes"),
        ({"kind": "human", "human": Y / 2}, "human labels must be a list of class ids"),
        ({"kind": "confusable_pairs", "rate": 0.2}, "noise confusable_pairs cannot tell"),
        (
            {"kind": "confusable_pairs", "rate": 0.2, "pairs": ((0, 1), (1, 2))},
            "class 1 is in the pairs twice",
        ),
        (
            {"kind": "confusable_pairs", "rate": 0.2, "pairs": ((0, 10),)},
            "class 10 of a pair is not in 0 … 9",
        ),
    ],
)
def test_corrupt_refuses(options: dict[str, object], sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        corrupt(Y, 10, generator=stream(0), **options)  # type: ignore[arg-type]
    assert str(caught.value).startswith(sentence)


@pytest.mark.parametrize("kind", ["asym_cifar10", "asym_mnist"])
def test_ten_class_maps_refuse_other_numbers_of_classes(kind: str) -> None:
    with pytest.raises(
        InputError, match=f"noise {kind} is defined for 10 classes, but there are 9"
    ):
        corrupt(np.arange(9), 9, kind=kind, rate="0.2", generator=stream(0))


@pytest.mark.parametrize(
    ("labels", "C", "sentence"),
    [
        (np.array([0, 1, 3]), 3, "labels hold 3, but there are 3 classes"),
        (np.array([0, -1]), 3, "labels hold -1, but there are 3 classes"),
        (np.array([0.5, 1]), 3, "labels must be a list of class ids, got an array of float64"),
        (np.zeros((2, 2), dtype=np.int64), 3, "labels must be a list of class ids"),
        (np.zeros(0, dtype=np.int64), 3, "labels must be a list of class ids"),
        (np.zeros(4, dtype=np.int64), 1, "label noise needs at least two classes, got 1"),
    ],
)
def test_wrong_labels_are_refused(labels: Ints, C: int, sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        corrupt(labels, C, kind="symmetric", rate="0.2", generator=stream(0))
    assert str(caught.value).startswith(sentence)


def test_exact_per_class_refuses_a_class_that_is_too_small() -> None:
    y = np.array([0] * 9 + [1])
    with pytest.raises(InputError, match="flips 4 labels of every class, but class 1 has 1: use"):
        corrupt(y, 2, kind="sym_exclusive_exact_per_class", rate="0.8", generator=stream(0))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("cat:dgo", 'unknown class "dgo"; did you mean "dog"?'),
        ("cat", 'cannot read the pair "cat"'),
        ("", 'cannot read the pair ""'),
        ("cat:dog,", 'cannot read the pair ""'),
        ("cat:cat", 'class "cat" is in the pairs twice'),
        ("cat:dog,dog:bird", 'class "dog" is in the pairs twice'),
    ],
)
def test_parse_pairs_refuses(text: str, sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        noise.parse_pairs(text, ["bird", "cat", "dog"])
    assert str(caught.value).startswith(sentence)


def test_negative_seed_is_refused() -> None:
    with pytest.raises(InputError, match="the seed is -1"):
        stream(-1)
