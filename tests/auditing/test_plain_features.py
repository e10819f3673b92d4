"""Features without labels: what they are for every kind of input, and that they tell apart."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.spatial.distance import cdist

from proselflc.auditing import plain_features as module
from proselflc.auditing.patches import Patches, patch_side
from proselflc.auditing.plain_features import OUTLIER, PlainFeatures, plain_features
from proselflc.data.inputs import Features, Floats, ImageFiles, Images, Inputs, Ints, Preview, Texts
from proselflc.data.preprocessing import Standardization, TextHashing
from proselflc.data.serving import fit
from proselflc.data.sources.small_images import load_digits
from proselflc.errors import InputError

RNG = np.random.default_rng(0)


def found(inputs: Inputs, **arguments: int) -> Floats:
    result = plain_features(inputs, None, **arguments)
    assert isinstance(result, PlainFeatures)
    assert result.values.dtype == np.float32
    assert len(result.values) == len(inputs)
    assert np.isfinite(result.values).all()
    return result.values


def nearest_has_same_label(values: Floats, labels: Ints) -> float:
    distance = cdist(values, values)
    np.fill_diagonal(distance, np.inf)
    return float((labels[distance.argmin(1)] == labels).mean())


def test_no_signature_takes_labels() -> None:
    functions: list[Any] = [one for one in vars(module).values() if inspect.isfunction(one)]
    functions += [Patches.fit, Patches.__call__]
    names = {name for one in functions for name in inspect.signature(one).parameters}
    assert not names & {"labels", "label", "y", "given", "clean", "dataset", "part"}
    assert "inputs" in names


def test_columns_are_standardised() -> None:
    x = RNG.normal(5, 3, (500, 4)).astype(np.float32)
    x[:, 2] = 7
    values = found(Features(x))
    expected = (x - x.mean(0)) / np.where(np.arange(4) == 2, 1, x.std(0))
    np.testing.assert_allclose(values, expected, atol=1e-5)
    assert (values[:, 2] == 0).all()


def test_a_huge_number_is_clipped_and_leaves_the_others_apart() -> None:
    x = RNG.normal(0, 1, (1000, 2)).astype(np.float32)
    alone = found(Features(x[1:]))
    for huge in (1e6, 3e38):
        x[0, 0] = huge
        values = found(Features(x))
        assert values[0, 0] == OUTLIER
        np.testing.assert_allclose(values[1:, 0], alone[:, 0], atol=1e-4)


def test_a_rare_value_of_a_column_stays() -> None:
    x = np.zeros((1000, 1), np.float32)
    x[7] = 1
    values = found(Features(x))[:, 0]
    assert values[7] == OUTLIER
    np.testing.assert_allclose(np.delete(values, 7), -(999**-0.5), rtol=1e-5)


def test_columns_do_not_depend_on_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    x = RNG.standard_cauchy((300, 7)).astype(np.float32)
    whole = found(Features(x))
    monkeypatch.setattr(module, "_NUMBERS", 700)
    np.testing.assert_array_equal(found(Features(x)), whole)


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_columns_of_extreme_scales(scale: float) -> None:
    x = RNG.normal(0, 1, (100, 3))
    values = found(Features((x * scale).astype(np.float32)))
    np.testing.assert_allclose(values, found(Features(x.astype(np.float32))), atol=1e-4)


def test_numbers_that_are_not_finite_are_refused() -> None:
    x = np.zeros((4, 2), np.float32)
    x[2, 1] = np.nan
    with pytest.raises(
        InputError, match=r"1 of 4 rows have NaN or infinity, the first is row 2: f"
    ):
        plain_features(Features(x), None)


def test_no_inputs_are_refused() -> None:
    with pytest.raises(InputError, match="no inputs to compare"):
        plain_features(Features(np.zeros((0, 2), np.float32)), None)


def test_another_run_s_preprocessing_is_not_used() -> None:
    x = RNG.normal(0, 1, (20, 3)).astype(np.float32)
    other = fit(Texts(("one two", "two one")))
    result = plain_features(Features(x), other)
    assert result is not None
    assert result.kind == "standardised columns"
    np.testing.assert_array_equal(result.values, found(Features(x)))
    texts = Texts(("a b", "b a", "a c b"))
    result = plain_features(texts, Standardization((0.0,), (1.0,)))
    assert result is not None
    np.testing.assert_array_equal(result.values, found(texts))


def test_patches_of_digits_are_better_neighbours_than_pixels() -> None:
    train = load_digits().train
    assert isinstance(train.inputs, Images)
    pixels = train.inputs.pixels.reshape(len(train), -1).astype(np.float32)
    values = found(train.inputs)
    ours = nearest_has_same_label(values, train.labels)
    assert ours >= nearest_has_same_label(pixels, train.labels)
    assert ours > 0.985
    np.testing.assert_array_equal(found(train.inputs), values)
    assert not np.array_equal(found(train.inputs, seed=1), values)


def test_patches_as_the_formula_has_them() -> None:
    """max(0, mean z − z_k), averaged over quadrants, written out again."""
    images = torch.rand(5, 3, 12, 10, generator=torch.Generator().manual_seed(0))
    patches = Patches.fit(images, generator=np.random.default_rng(0), seed=0)
    assert patches.side == 5
    values = patches(images)
    i = 3
    mean, whitening, centroids = (
        one.double().numpy() for one in (patches.mean, patches.whitening, patches.centroids)
    )
    activation = np.zeros((8, 6, len(centroids)))
    for top in range(8):
        for left in range(6):
            x = images[i, :, top : top + 5, left : left + 5].double().numpy().ravel()
            x = (x - x.mean()) / (x.std() + 10 / 255)
            z = np.linalg.norm((x - mean) @ whitening - centroids, axis=1)
            activation[top, left] = np.maximum(0, z.mean() - z)
    expected = activation.reshape(2, 4, 2, 3, -1).mean((1, 3)).reshape(4, -1).T.ravel()
    np.testing.assert_allclose(values[i], expected, atol=1e-3)


def test_whitened_patches_have_the_covariance_that_is_asked_for() -> None:
    images = torch.rand(200, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    patches = Patches.fit(images, generator=np.random.default_rng(0), seed=0)
    cut = images.unfold(2, 3, 1).unfold(3, 3, 1).reshape(-1, 9)
    std, mean = torch.std_mean(cut, 1, correction=0, keepdim=True)
    cut = (cut - mean) / (std + 10 / 255) - patches.mean
    spread = torch.linalg.eigvalsh(torch.cov((cut @ patches.whitening).T, correction=0))
    expected = torch.linalg.eigvalsh(torch.cov(cut.T, correction=0))
    torch.testing.assert_close(spread, expected / (expected + 0.1), atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize(
    ("shape", "side"),
    [((8, 8), 3), ((9, 30), 5), ((16, 16), 5), ((17, 17), 6), ((32, 32), 6), ((2, 40), 2)],
)
def test_side_of_a_patch(shape: tuple[int, int], side: int) -> None:
    assert patch_side(*shape) == side


@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 40, 3), (100, 3, 1), (64, 48, 3)])
def test_images_of_every_shape(shape: tuple[int, int, int]) -> None:
    pixels = RNG.integers(0, 256, (6, *shape), np.uint8)
    pixels[3] = pixels[1]
    values = found(Images(pixels))
    np.testing.assert_array_equal(values[3], values[1])
    assert len(np.unique(values, axis=0)) == 5


def test_one_image_and_equal_images() -> None:
    assert (found(Images(np.full((1, 8, 8, 1), 9, np.uint8))) == 0).all()
    assert (found(Images(np.full((5, 8, 8, 1), 9, np.uint8))) == 0).all()


def test_flat_images_of_other_colours_differ() -> None:
    pixels = np.repeat(np.array([0, 60, 200], np.uint8), 64).reshape(3, 8, 8, 1)
    assert len(np.unique(found(Images(pixels)), axis=0)) == 3


def saved(folder: Path, pixels: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> ImageFiles:
    paths = []
    for i, one in enumerate(pixels):
        paths.append(folder / f"{i:03d}.png")
        Image.fromarray(one).save(paths[-1])
    return ImageFiles(tuple(paths))


def test_image_files_are_as_the_images_in_them(tmp_path: Path) -> None:
    pixels = RNG.integers(0, 256, (40, 12, 12, 3), np.uint8)
    result = plain_features(saved(tmp_path, pixels), None)
    assert result is not None
    assert result.kind == "image patches"
    np.testing.assert_allclose(result.values, found(Images(pixels)), atol=1e-4)


def test_large_image_files_are_decoded_small(tmp_path: Path) -> None:
    pixels = RNG.integers(0, 256, (3, 300, 200, 3), np.uint8)
    assert found(saved(tmp_path, pixels)).shape[0] == 3


def test_an_image_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    files = saved(tmp_path, RNG.integers(0, 256, (3, 8, 8, 3), np.uint8))
    files.paths[1].write_bytes(b"no image")
    with pytest.raises(InputError, match=r"cannot read the image .*001\.png.*replace or remove it"):
        plain_features(files, None)


TEXTS = (
    "the price of rice rises again",
    "rice and its price in the market",
    "the team wins the cup",
    "a cup for the winning team",
    "the price of rice rises again",
)


def test_texts_with_the_same_words_are_near() -> None:
    values = found(Texts(TEXTS))
    np.testing.assert_allclose(np.linalg.norm(values, axis=1), 1, rtol=1e-5)
    distance = cdist(values, values)
    assert distance[0, 4] == 0
    assert distance[0, 1] < distance[0, 2]
    assert distance[2, 3] < distance[2, 1]
    np.testing.assert_array_equal(found(Texts(TEXTS)), values)


def test_texts_of_many_words_keep_256_columns() -> None:
    words = [f"w{k}" for k in range(500)]
    texts = tuple(" ".join(RNG.choice(words, 30)) for _ in range(400))
    assert found(Texts(texts)).shape == (400, module.TEXT_COLUMNS)


def test_texts_reuse_the_hashing_of_a_run() -> None:
    hashing = TextHashing.fit(Texts(TEXTS))
    result = plain_features(Texts(TEXTS[:3]), hashing)
    assert result is not None
    assert result.kind == "words and letters"
    assert len(result.values) == 3


@pytest.mark.parametrize(
    "texts",
    [("xkq", "wzv", "xkq"), ("", "", "a"), ("", "", ""), ("one",), ("\ud800", "b", "\ud800")],
)
def test_texts_without_a_common_word_are_apart(texts: tuple[str, ...]) -> None:
    values = found(Texts(texts))
    distance = cdist(values, values)
    for i, first in enumerate(texts):
        for j, second in enumerate(texts):
            assert (distance[i, j] < 1e-6) == (first == second)


@dataclass(frozen=True)
class Sounds(Inputs):
    """A kind of input that is not known here."""

    count: int
    kind = "sounds"
    medium = "table"

    def __len__(self) -> int:
        return self.count

    def take(self, index: Ints) -> Sounds:
        return Sounds(len(index))

    def concat(self, others: Sequence[Sounds]) -> Sounds:
        return Sounds(self.count + sum(one.count for one in others))

    def preview(self, row: int, side: int) -> Preview:
        return Preview()


def test_an_unknown_kind_of_input_has_no_features() -> None:
    assert plain_features(Sounds(3), None) is None
