"""Whole batches of images cropped, flipped and normalised at once, without a loop over examples."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from proselflc.data.inputs import Bytes


class Placement(NamedTuple):
    """Where each image of a batch is cut out, and whether it is then mirrored left to right."""

    top: Tensor  # [N] int64
    left: Tensor  # [N] int64
    flip: Tensor  # [N] bool

    def share(self, first: int, last: int) -> Placement:
        """Return the placements of the images first … last − 1 of the batch."""
        return Placement(self.top[first:last], self.left[first:last], self.flip[first:last])


def placements(
    num_images: int,
    *,
    room: tuple[int, int],
    flip: bool,
    generator: torch.Generator,
) -> Placement:
    """Draw N placements, every one of the possible corners equally likely.

    Args:
        num_images: N.
        room: how many rows and columns the image is larger than what is cut out of it; a corner
            is in 0 … room, both ends included.
        flip: mirror every second image on average; otherwise none.
        generator: a CPU generator. The same number of draws is taken with and without `flip`.
    """
    rows, columns = room
    top = torch.randint(rows + 1, (num_images,), generator=generator)
    left = torch.randint(columns + 1, (num_images,), generator=generator)
    mirrored = torch.randint(2, (num_images,), generator=generator).bool()
    return Placement(top, left, mirrored if flip else torch.zeros_like(mirrored))


def crop_flip(pixels: Tensor, size: tuple[int, int], placement: Placement) -> Tensor:
    """Cut a window out of every image, then mirror some of them.

    Args:
        pixels: [N, channels, H, W] of any dtype and any memory order.
        size: height h ≤ H and width w ≤ W of the windows.
        placement: N placements inside 0 … H − h and 0 … W − w.

    Returns:
        [N, channels, h, w], contiguous, of the same dtype.
    """
    windows = pixels.unfold(2, size[0], 1).unfold(3, size[1], 1)  # a view: nothing is copied
    images = torch.arange(len(pixels))
    cut = windows[images, :, placement.top, placement.left].contiguous()
    both = torch.cat((cut, cut.flip(3)))  # choosing by index is five times as fast as `where`
    return both.index_select(0, images + len(pixels) * placement.flip)


def pad_crop(pixels: Tensor, *, padding: int, placement: Placement) -> Tensor:
    """Surround images with black and cut windows of the old size out of them, some mirrored.

    Args:
        pixels: [N, channels, H, W]; a permuted view of [N, H, W, channels] is as fast.
        padding: black rows and columns on every side.
        placement: N placements inside 0 … 2·padding.

    Returns:
        [N, channels, H, W], contiguous, of the same dtype.
    """
    height, width = pixels.shape[2:]
    return crop_flip(F.pad(pixels, [padding] * 4), (height, width), placement)


def normalize(pixels: Tensor, mean: Tensor, std: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return (pixels / 255 − mean) / std.

    Args:
        pixels: [N, channels, H, W] uint8.
        mean: [channels] float32 of pixels / 255.
        std: [channels] float32 of pixels / 255, positive.
        out: [N, channels, H, W] float32, contiguous, to write to.

    Returns:
        `out`, or a new tensor like it.
    """
    x = torch.empty(pixels.shape) if out is None else out
    shift, scale = 255 * mean[:, None, None], 1 / (255 * std[:, None, None])
    # About a million bytes at a time: the second and third pass then find them in the cache.
    some = max(1, 2**18 // max(1, pixels[:1].numel()))
    for start in range(0, len(pixels), some):
        piece = x[start : start + some]
        piece.copy_(pixels[start : start + some]).sub_(shift).mul_(scale)
    return x


def channel_statistics(
    pixels: Bytes, *, chunk: int = 1024
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and standard deviation of pixels / 255 per channel, exact whatever the chunk.

    Counts how often each of the 256 values occurs, so that no float copy of the images is made.

    Args:
        pixels: [n, H, W, channels] uint8, n ≥ 1; may be a memory map.
        chunk: images looked at together.

    Returns:
        `channels` means and as many standard deviations.
    """
    channels = pixels.shape[3]
    counts = np.zeros((channels, 256), np.int64)
    for start in range(0, len(pixels), chunk):
        some = pixels[start : start + chunk].reshape(-1, channels)
        for channel in range(channels):
            counts[channel] += np.bincount(some[:, channel], minlength=256)
    return statistics_of_counts(counts)


def statistics_of_counts(
    counts: np.ndarray[tuple[int, ...], np.dtype[np.int64]],
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and standard deviation of value / 255 from how often each value occurs.

    Args:
        counts: [channels, 256], every row with at least one count.
    """
    means, stds = [], []
    for row in counts:
        occurs = [int(c) for c in row]  # Python integers: squares of large sums do not overflow
        total = sum(occurs)
        first = sum(v * c for v, c in enumerate(occurs))
        second = sum(v * v * c for v, c in enumerate(occurs))
        means.append(first / total / 255)
        stds.append(((total * second - first * first) / (total * total)) ** 0.5 / 255)
    return tuple(means), tuple(stds)
