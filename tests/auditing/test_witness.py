"""Predictions without an example's own label, against as many models that never had it."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist
from sklearn.linear_model import Ridge

from proselflc.auditing import witness as module
from proselflc.auditing.plain_features import PlainFeatures
from proselflc.auditing.records import Records, Witness
from proselflc.auditing.verdict import assess
from proselflc.auditing.witness import of_features, of_inputs, of_run, witness, write
from proselflc.data import memory_budget
from proselflc.data.batches import random_stream
from proselflc.data.inputs import Features, Floats, Ints
from proselflc.errors import InputError
from proselflc.training.observations import ROW
from proselflc.training.run_directory import RunDirectory

Doubles = npt.NDArray[np.float64]


def drawn(seed: int, n: int, D: int, C: int, unlabelled: float = 0.0) -> tuple[Floats, Ints]:
    """Clouds around centres, with labels of which a quarter are wrong and some are unknown."""
    generator = np.random.default_rng(seed)
    clean = np.arange(n) % C
    values = 2 * generator.normal(size=(C, D))[clean] + generator.normal(size=(n, D))
    y = np.where(generator.random(n) < 0.25, generator.integers(C, size=n), clean)
    y[generator.random(n) < unlabelled] = -1
    return values.astype(np.float32), y


def gram(kernel: Any, values: Floats) -> Doubles:
    """The kernel itself, by its definition."""
    x = values.astype(np.float64)
    if isinstance(kernel, module._Linear):
        return np.asarray(x @ x.T)
    if isinstance(kernel, module._Gaussian):
        squares: Doubles = cdist(x, x, "sqeuclidean")
        return np.asarray(np.exp(-squares / (2 * kernel.sigma**2)) + 1e-8 * np.eye(len(x)))
    angles = x @ kernel.frequencies.astype(np.float64)
    return np.asarray(np.cos(angles[:, None] - angles[None]).mean(2))


def refits(K: Doubles, y: Ints, C: int, penalty: float) -> Doubles:
    """[n, C] what as many models predict for the example that each was not given.

    Kernel ridge regression with an intercept that is not shrunk: (K/u + λ) a + b = Y, Σ a = 0.
    """
    known = np.flatnonzero(y >= 0)
    u, ridge = K[known, known].mean(), penalty * len(known)
    found = np.empty((len(y), C))
    for i in range(len(y)):
        rows = known[known != i]
        system = np.ones((len(rows) + 1, len(rows) + 1))
        system[:-1, :-1] = K[np.ix_(rows, rows)] / u + ridge * np.eye(len(rows))
        system[-1, -1] = 0
        solved = np.linalg.solve(system, np.vstack((np.eye(C)[y[rows]], np.zeros(C))))
        found[i] = K[i, rows] / u @ solved[:-1] + solved[-1]
    return found


def kernels_of(values: Floats) -> list[Any]:
    """A linear kernel, an exact Gaussian, and waves."""
    directions = np.random.default_rng(0).normal(size=(values.shape[1], 20))
    return [
        module._Linear(),
        module._Gaussian(2.0),
        module._Waves((directions / 2).astype(np.float32)),
    ]


@pytest.mark.parametrize("unlabelled", [0.0, 0.3])
@pytest.mark.parametrize("which", range(3))
@pytest.mark.parametrize("penalty", [1e-4, 1e-2, 1e-1])
def test_one_fit_predicts_as_n_models_would(which: int, penalty: float, unlabelled: float) -> None:
    values, y = drawn(0, 40, 3, 4, unlabelled)
    kernel = kernels_of(values)[which]
    fit = module._Fit.of(kernel, values, y, 4)
    found = fit.left_out(fit.projected(values), y, penalty)
    np.testing.assert_allclose(found, refits(gram(kernel, values), y, 4, penalty), atol=2e-3)


def test_the_refits_are_those_of_scikit_learn() -> None:
    values, y = drawn(1, 30, 4, 3)
    x, Y, n = values.astype(np.float64), np.eye(3)[y], len(y)
    u = np.square(x).sum(1).mean()
    expected = []
    for i in range(n):
        rows = np.arange(n) != i
        model = Ridge(alpha=0.01 * n).fit(x[rows] / math.sqrt(u), Y[rows])
        expected.append(model.predict(x[[i]] / math.sqrt(u))[0])
    np.testing.assert_allclose(refits(x @ x.T, y, 3, 0.01), expected, atol=1e-9)


@pytest.mark.parametrize("unlabelled", [0.0, 0.25])
@pytest.mark.parametrize("seed", range(3))
def test_all_of_it_is_as_if_everything_had_been_tried(seed: int, unlabelled: float) -> None:
    """The kernel and penalty with the least squared error, then the likeliest temperature."""
    n, C = 45, 3
    values, y = drawn(seed, n, 3, C, unlabelled)
    known = np.flatnonzero(y >= 0)
    tried = [
        (refits(gram(kernel, values), y, C, penalty))
        for kernel in module._kernels(values, random_stream(0, "witness"))
        for penalty in module.PENALTIES
    ]
    assert len(tried) == 15
    errors = [np.square(scores[known] - np.eye(C)[y[known]]).mean() for scores in tried]
    scores = tried[int(np.argmin(errors))]

    def softmax(t: float) -> Doubles:
        p = np.exp((scores - scores.max(1, keepdims=True)) / t)
        return np.asarray(p / p.sum(1, keepdims=True))

    logs = [
        np.log(np.maximum(softmax(t)[known, y[known]], 1e-300)).clip(-27).mean()
        for t in module.TEMPERATURES
    ]
    expected = softmax(module.TEMPERATURES[int(np.argmax(logs))])
    np.testing.assert_allclose(witness(values, y, C), expected, atol=2e-3)


def test_an_examples_own_label_does_not_matter_to_its_scores() -> None:
    values, y = drawn(2, 50, 3, 3)
    for kernel in kernels_of(values):
        before = module._Fit.of(kernel, values, y, 3)
        for i in (0, 17):
            other = y.copy()
            other[i] = (y[i] + 1) % 3
            after = module._Fit.of(kernel, values, other, 3)
            one, two = (
                fit.left_out(fit.projected(values), labels, 1e-2)
                for fit, labels in ((before, y), (after, other))
            )
            np.testing.assert_allclose(one[i], two[i], atol=2e-3)
            assert np.abs(one - two).max() > 5e-3  # but to those of others


def test_what_has_no_label_is_predicted_and_not_learned_from() -> None:
    """As if it were not there; the kernel's scale alone looks at all inputs."""
    values, y = drawn(3, 80, 3, 3)
    kernel = module._Gaussian(2.0)
    hidden = np.arange(80) % 4 == 0
    some = np.where(hidden, -1, y)
    fit = module._Fit.of(kernel, values, some, 3)
    found = fit.left_out(fit.projected(values), some, 1e-2)
    without = module._Fit.of(kernel, values[~hidden], y[~hidden], 3)
    expected = without.left_out(without.projected(values[~hidden]), y[~hidden], 1e-2)
    np.testing.assert_allclose(found[~hidden], expected, atol=1e-6)
    p = witness(values, some, 3)
    assert (p[hidden].argmax(1) == np.arange(80)[hidden] % 3).mean() > 0.7
    np.testing.assert_allclose(p.sum(1), 1, atol=1e-5)


@pytest.mark.parametrize("block", [1, 7, 100])
def test_blocks_do_not_matter(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    values, y = drawn(4, 90, 3, 3, 0.1)
    monkeypatch.setattr(module, "_EXACT", 10)  # so that waves stand for the kernel
    expected = witness(values, y, 3)
    monkeypatch.setattr(module, "_BLOCK", block)
    np.testing.assert_allclose(witness(values, y, 3), expected, atol=1e-4)


def test_a_kernel_that_was_chosen_on_some_judges_all(monkeypatch: pytest.MonkeyPatch) -> None:
    values, y = drawn(5, 400, 3, 3)
    monkeypatch.setattr(module, "_EXACT", 50)
    monkeypatch.setattr(module, "_CHOSEN_ON", 100)
    p = witness(values, y, 3)
    assert p.shape == (400, 3)
    assert (p.argmax(1) == np.arange(400) % 3).mean() > 0.85
    np.testing.assert_array_equal(p, witness(values, y, 3))  # the same every time
    assert not np.array_equal(p, witness(values, y, 3, seed=1))


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize(
    "values",
    [
        np.zeros((30, 2), np.float32),  # constant features
        np.full((30, 1), 7, np.float32),
        np.repeat(np.array([[1, 2]], np.float32), 30, 0),  # a single distinct row
        np.repeat(np.eye(2, dtype=np.float32), 15, 0),  # and two
    ],
)
def test_inputs_that_say_little(
    monkeypatch: pytest.MonkeyPatch, values: Floats, exact: bool
) -> None:
    if not exact:
        monkeypatch.setattr(module, "_EXACT", 5)
    y = np.arange(30) % 3 // 2  # two of three examples are of class 0
    p = witness(values, y, 2)
    assert np.isfinite(p).all()
    np.testing.assert_allclose(p.sum(1), 1, atol=1e-5)
    assert (p.argmax(1) == 0).all()


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**31), n=st.integers(2, 20), C=st.integers(2, 6))
def test_chances_of_anything_are_chances(seed: int, n: int, C: int) -> None:
    generator = np.random.default_rng(seed)
    values = generator.normal(size=(n, int(generator.integers(1, 5)))).astype(np.float32)
    values[generator.random(n) < 0.3] = values[0]
    y = generator.integers(-1, C, size=n)
    p = witness(values, y, C)
    assert p.shape == (n, C)
    assert np.isfinite(p).all()
    np.testing.assert_allclose(p.sum(1), 1, atol=1e-5)


def test_where_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    values, y = drawn(0, 20, 2, 2)
    features = PlainFeatures(values, "standardised columns")
    assert of_features(features, y, 2) is not None
    assert of_features(PlainFeatures(values[:1], "a"), y[:1], 2) is None
    monkeypatch.setattr(module, "LARGEST", 19)
    assert of_features(features, y, 2) is None
    assert of_inputs(Features(values), y, 2) is None
    monkeypatch.undo()
    monkeypatch.setattr(memory_budget, "DENSE_CLASSES", 1)
    assert of_inputs(Features(values), y, 2) is None


def test_it_is_kept_in_half_precision(tmp_path: Path) -> None:
    values, y = drawn(0, 60, 3, 3)
    found = of_inputs(Features(values), y, 3)
    assert found is not None
    assert (str(found.p.dtype), found.kind) == ("float16", "standardised columns")
    directory = RunDirectory(tmp_path)
    assert of_run(directory, (60, 3)) is None
    write(directory, found)
    assert [path.name for path in tmp_path.iterdir()] == ["witness.npz"]
    again = of_run(directory, (60, 3))
    assert again is not None
    assert again.kind == found.kind
    assert again.p.dtype == np.float16
    np.testing.assert_array_equal(again.p, found.p)


def shares(n: int = 4, C: int = 3) -> npt.NDArray[np.float16]:
    return np.full((n, C), 1 / C, np.float16)


def words(text: bytes = b"words") -> npt.NDArray[np.uint8]:
    return np.frombuffer(text, np.uint8)


def outside(value: float) -> npt.NDArray[np.float16]:
    p = shares()
    p[1, 2] = value
    return p


@pytest.mark.parametrize(
    "arrays",
    [
        {},
        {"p": shares()},
        {"kind": words()},
        {"p": shares(5), "kind": words()},
        {"p": shares(4, 4), "kind": words()},
        {"p": shares().reshape(-1), "kind": words()},
        {"p": shares().astype(np.float32), "kind": words()},
        {"p": outside(np.nan), "kind": words()},
        {"p": outside(np.inf), "kind": words()},
        {"p": outside(-0.1), "kind": words()},
        {"p": outside(1.01), "kind": words()},
        {"p": shares(), "kind": words(b"x" * 81)},
        {"p": shares(), "kind": np.array("words")},
        {"p": shares(), "kind": np.array([{}], dtype=object)},
        {"p": np.array([[{}]], dtype=object), "kind": words()},
    ],
)
def test_a_file_that_holds_something_else_is_refused(
    tmp_path: Path, arrays: dict[str, Any]
) -> None:
    directory = RunDirectory(tmp_path)
    np.savez(directory.witness, **arrays)
    with pytest.raises(InputError) as caught:
        of_run(directory, (4, 3))
    assert str(directory.witness) in str(caught.value)
    assert "\n" not in str(caught.value)


def cut(content: bytes) -> bytes:
    return content[: len(content) // 2]


@pytest.mark.parametrize("spoil", [cut, lambda c: b"", lambda c: b"PK", lambda c: c[::-1]])
def test_a_file_that_is_damaged_is_refused(tmp_path: Path, spoil: Callable[[bytes], bytes]) -> None:
    directory = RunDirectory(tmp_path)
    write(directory, Witness(shares(), "words"))
    directory.witness.write_bytes(spoil(directory.witness.read_bytes()))
    with pytest.raises(InputError) as caught:
        of_run(directory, (4, 3))
    assert "\n" not in str(caught.value)


def test_letters_that_are_none_do_no_harm(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path)
    np.savez(directory.witness, p=shares(), kind=words(b"\xff\xfewords"))
    found = of_run(directory, (4, 3))
    assert found is not None
    assert found.kind == "��words"


def test_a_witness_that_names_the_largest_class_judges_nothing() -> None:
    """It agrees with 90 % of the labels, by chance: none of the others may be called wrong."""
    generator = np.random.default_rng(0)
    n = 600
    given = (generator.random(n) < 0.1).astype(np.int64)
    epoch = np.zeros(n, ROW)
    epoch["p_given"], epoch["p_other"], epoch["other"] = 0.9 - 0.8 * given, 0.1 + 0.8 * given, 0
    epoch["other"][given == 0] = 1
    blind = Witness(np.tile(np.array([0.9, 0.1], np.float16), (n, 1)), "standardised columns")
    found = assess(Records([epoch] * 5, None, blind), given, ("usual", "rare"))
    assert found.judge.is_too_weak
    assert (found.scores.suggested == given).all()
    assert not found.scores.change.any()
    assert found.expected_precision is None
    codes = {warning.code: warning.message for warning in found.warnings}
    assert "agree with them no more often than by chance" in codes["too_weak"]
