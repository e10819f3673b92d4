"""What all kinds of preprocessing share: they are saved, read back and refuse other inputs."""

import json
import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from proselflc.data.image_scaling import ImageScaling
from proselflc.data.inputs import Features, Images, Inputs, Texts
from proselflc.data.preprocessing import Preprocessing, Standardization, TextHashing
from proselflc.data.serving import fit, from_json
from proselflc.errors import InputError

COLOUR = Images(np.random.default_rng(3).integers(0, 256, (6, 5, 4, 3), dtype=np.uint8))
GREY = Images(COLOUR.pixels[..., :1])
EXAMPLES: list[tuple[Inputs, Preprocessing]] = [
    (COLOUR, ImageScaling.fit(COLOUR)),
    (Texts(("red apple", "red pear")), TextHashing.fit(Texts(("red apple", "red pear")))),
    (
        Features(np.eye(3, dtype=np.float32), ("a", "b", "c")),
        Standardization.fit(Features(np.eye(3, dtype=np.float32), ("a", "b", "c"))),
    ),
    (GREY, ImageScaling.fit(GREY)),
    (Features(np.eye(2, dtype=np.float32)), fit(Features(np.eye(2, dtype=np.float32)))),
]


@pytest.mark.parametrize(("inputs", "fitted"), EXAMPLES)
def test_what_is_saved_serves_as_well(inputs: Inputs, fitted: Preprocessing) -> None:
    text = json.dumps(fitted.to_json(), allow_nan=False)
    again = from_json(json.loads(text))
    assert again == fitted
    assert torch.equal(again(inputs), fitted(inputs))
    assert type(fit(inputs)) is type(fitted)


@pytest.mark.parametrize("index", range(3))
def test_other_kinds_of_inputs_are_refused(index: int) -> None:
    fitted = EXAMPLES[index][1]
    for other, (inputs, _) in enumerate(EXAMPLES[:3]):
        if other != index:
            with pytest.raises(InputError, match="this model was made for"):
                fitted(inputs)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=6,
)


@settings(max_examples=600, deadline=None)
@given(data=st.data())
def test_hostile_saved_forms_are_refused_or_work(data: st.DataObject) -> None:
    inputs, fitted = data.draw(st.sampled_from(EXAMPLES))
    saved = fitted.to_json()
    for _ in range(data.draw(st.integers(1, 2))):
        saved[data.draw(st.sampled_from([*saved, "more"]))] = data.draw(VALUES)
    why = "made for these inputs"
    try:
        assert bool(torch.isfinite(from_json(saved)(inputs).double()).all())
    except InputError as error:
        why = str(error)
    assert "\n" not in why
    assert re.search("made for|is missing|is damaged|unknown", why)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mean": [float("nan")] * 3}, r"`float` .* at `\$.mean"),
        ({"mean": [10**400] * 3}, r"out of range at `\$.mean"),
        ({"mean": [True] * 3}, r"got `bool` at `\$.mean"),
        ({"std": [0.0, 1.0, 1.0]}, "std be positive"),
        ({"mean": [1e36] * 3}, "mean must lie in"),
        ({"std": [1.0]}, "1 or 3 numbers"),
        ({"size": [2**40, 1]}, r"`int` <= 16384 at `\$.size"),
        ({"warp": [1, 1]}, "warp must be at least size"),
        ({"kind": "image"}, 'did you mean "images"'),
        ({"kind": 3}, "an object with a kind"),
        ({"surprise": 1}, "expected the fields kind, mean, std"),
    ],
)
def test_hostile_image_scaling(changes: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        from_json({**EXAMPLES[0][1].to_json(), **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"buckets": 2**40}, r"`int` <= 16777216 at `\$.buckets"),
        ({"buckets": 24, "seen": "AAAA"}, "power of two"),
        ({"buckets": 16}, "a bit for each"),
        ({"seen": "%%%"}, "base64"),
        ({"seen": "é"}, "base64"),
        ({"seen": None}, "expected `bytes`, got `null`"),
        ({"words": [1, 10**9]}, r"`int` <= 16 at `\$.words"),
        ({"words": [0, 2]}, "begin at 1"),
        ({"longest": 0}, "longest"),
    ],
)
def test_hostile_text_hashing(changes: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        from_json({**EXAMPLES[1][1].to_json(), **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mean": []}, r"of length >= 1 at `\$.mean"),
        ({"std": [1.0]}, "as many numbers"),
        ({"std": [1.0, -1.0, 1.0]}, "none below 0"),
        ({"columns": ["a", "a", "b"]}, "every column once"),
        ({"columns": ["a", 1, "b"]}, r"expected `str`, got `int` at `\$.columns"),
    ],
)
def test_hostile_standardization(changes: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        from_json({**EXAMPLES[2][1].to_json(), **changes})


@pytest.mark.parametrize("value", [None, [], "images", 3, {}])
def test_what_is_no_object_is_refused(value: object) -> None:
    with pytest.raises(InputError, match="an object with a kind"):
        from_json(value)


def test_columns_come_out_with_mean_0_and_deviation_1() -> None:
    values = np.random.default_rng(0).normal([5, -1e4, 1e-6], [3, 1e-1, 1e-7], (400, 3))
    features = Features(values.astype(np.float32))
    x = Standardization.fit(features, chunk=37)(features).double()
    assert float(x.mean(0).abs().max()) < 1e-4
    assert float((x.std(0, correction=0) - 1).abs().max()) < 1e-4


def test_fit_is_numpys_mean_and_deviation_for_every_chunk() -> None:
    values = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
    for chunk in (1, 7, 1000):
        fitted = Standardization.fit(Features(values), chunk=chunk)
        np.testing.assert_allclose(fitted.mean, values.astype(np.float64).mean(0), rtol=1e-12)
        np.testing.assert_allclose(fitted.std, values.astype(np.float64).std(0), rtol=1e-12)


def test_a_constant_column_is_zero_now_and_later() -> None:
    train = Features(np.array([[0.1, 1], [0.1, 2], [0.1, 6]], np.float32))
    fitted = Standardization.fit(train)
    assert fitted.std[0] == 0
    later = fitted(Features(np.array([[1e30, 3], [-5, 3]], np.float32)))
    assert later.tolist() == [[0, 0], [0, 0]]


def test_far_outliers_stay_finite() -> None:
    fitted = Standardization((0.0,), (1e-30,))
    x = fitted(Features(np.array([[3e38], [-3e38], [0]], np.float32)))
    assert x[:, 0].tolist() == [1e6, -1e6, 0]


def test_only_the_training_part_counts() -> None:
    train = Features(np.array([[1.0], [3.0]], np.float32))
    assert Standardization.fit(train)(Features(np.array([[5.0]], np.float32))).item() == 3.0


def test_columns_are_matched_by_name() -> None:
    train = Features(np.array([[1, 10], [3, 30]], np.float32), ("a", "b"))
    fitted = Standardization.fit(train)
    swapped = Features(np.array([[30, 9, 3]], np.float32), ("b", "extra", "a"))
    assert fitted(swapped).tolist() == [[1, 1]]
    with pytest.raises(InputError, match=r'column "b" .* is missing; columns here: a, c'):
        fitted(Features(np.zeros((1, 2), np.float32), ("a", "c")))
    with pytest.raises(InputError, match="2 features per example, got 3"):
        fitted(Features(np.zeros((1, 3), np.float32)))
