"""Batched augmentation against a loop over images, and statistics against numpy."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from proselflc.data.image_scaling import (
    Placement,
    channel_statistics,
    crop_flip,
    normalize,
    pad_crop,
    placements,
)


def random_pixels(shape: tuple[int, ...], seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(256, shape, dtype=torch.uint8, generator=generator)


def naive(pixels: Tensor, padding: int, placement: Placement) -> Tensor:
    """One image, row and column at a time."""
    count, channels, height, width = pixels.shape
    out = torch.zeros_like(pixels, memory_format=torch.contiguous_format)
    for n in range(count):
        for row in range(height):
            for column in range(width):
                from_row = row + int(placement.top[n]) - padding
                seen = width - 1 - column if placement.flip[n] else column
                from_column = seen + int(placement.left[n]) - padding
                if 0 <= from_row < height and 0 <= from_column < width:
                    for c in range(channels):
                        out[n, c, row, column] = pixels[n, c, from_row, from_column]
    return out


@settings(max_examples=60, deadline=None)
@given(
    count=st.integers(0, 4),
    channels=st.sampled_from([1, 3]),
    height=st.integers(1, 6),
    width=st.integers(1, 6),
    padding=st.integers(0, 3),
    flip=st.booleans(),
    seed=st.integers(0, 2**31),
    permuted=st.booleans(),
)
def test_pad_crop_is_the_naive_loop(
    count: int,
    channels: int,
    height: int,
    width: int,
    padding: int,
    flip: bool,
    seed: int,
    permuted: bool,
) -> None:
    if permuted:
        pixels = random_pixels((count, height, width, channels), seed).permute(0, 3, 1, 2)
    else:
        pixels = random_pixels((count, channels, height, width), seed)
    before = pixels.clone()
    drawn = placements(
        count,
        room=(2 * padding, 2 * padding),
        flip=flip,
        generator=torch.Generator().manual_seed(seed),
    )
    result = pad_crop(pixels, padding=padding, placement=drawn)
    assert result.dtype is torch.uint8
    assert torch.equal(result, naive(pixels, padding, drawn))
    assert torch.equal(pixels, before)


def test_crop_takes_a_smaller_window_out_of_images_that_are_not_square() -> None:
    pixels = random_pixels((3, 2, 7, 9))
    placement = Placement(
        torch.tensor([0, 3, 1]), torch.tensor([4, 0, 2]), torch.tensor([False, True, False])
    )
    cut = crop_flip(pixels, (4, 5), placement)
    assert torch.equal(cut[0], pixels[0, :, 0:4, 4:9])
    assert torch.equal(cut[1], pixels[1, :, 3:7, 0:5].flip(2))
    assert torch.equal(cut[2], pixels[2, :, 1:5, 2:7])


def test_placements_are_uniform_over_all_corners_and_both_sides() -> None:
    drawn = placements(90_000, room=(8, 2), flip=True, generator=torch.Generator().manual_seed(1))
    assert_close(
        torch.bincount(drawn.top, minlength=9) / 90_000, torch.full((9,), 1 / 9), atol=0.005, rtol=0
    )
    assert_close(
        torch.bincount(drawn.left, minlength=3) / 90_000,
        torch.full((3,), 1 / 3),
        atol=0.006,
        rtol=0,
    )
    assert abs(float(drawn.flip.float().mean()) - 0.5) < 0.006
    together = torch.corrcoef(torch.stack((drawn.top, drawn.left, drawn.flip)).double())
    assert float((together - torch.eye(3)).abs().max()) < 0.02


def test_without_flip_the_corners_stay_the_same() -> None:
    one = placements(50, room=(8, 8), flip=True, generator=torch.Generator().manual_seed(3))
    other = placements(50, room=(8, 8), flip=False, generator=torch.Generator().manual_seed(3))
    assert torch.equal(one.top, other.top)
    assert torch.equal(one.left, other.left)
    assert bool(one.flip.any())
    assert not bool(other.flip.any())


def test_normalize_in_float64() -> None:
    pixels = random_pixels((4, 3, 5, 6))
    mean, std = torch.tensor([0.5, 0.25, 0.1]), torch.tensor([0.2, 0.3, 1.0])
    expected = (pixels.double() / 255 - mean.double()[:, None, None]) / std.double()[:, None, None]
    result = normalize(pixels, mean, std)
    assert result.dtype is torch.float32
    assert_close(result.double(), expected, atol=2e-6, rtol=1e-6)
    assert pixels.dtype is torch.uint8


@pytest.mark.parametrize("chunk", [1, 3, 7, 1000])
@pytest.mark.parametrize("channels", [1, 3])
def test_channel_statistics_are_those_of_numpy_for_every_chunk(chunk: int, channels: int) -> None:
    pixels = random_pixels((7, 4, 5, channels)).numpy()
    mean, std = channel_statistics(pixels, chunk=chunk)
    scaled = pixels.astype(np.float64) / 255
    np.testing.assert_allclose(mean, scaled.mean(axis=(0, 1, 2)), rtol=1e-12)
    np.testing.assert_allclose(std, scaled.std(axis=(0, 1, 2)), rtol=1e-12)


def test_channel_statistics_of_a_constant_are_exact() -> None:
    pixels = np.full((5, 3, 3, 3), 51, np.uint8)
    assert channel_statistics(pixels) == ((0.2, 0.2, 0.2), (0.0, 0.0, 0.0))
