"""Images as a model sees them: warped to one size, cropped, flipped and scaled."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple, TypeAlias

import msgspec
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from proselflc.data import image
from proselflc.data.inputs import Bytes, ImageFiles, Inputs, describe_images
from proselflc.data.preprocessing import Numbers, Preprocessing
from proselflc.errors import InputError
from proselflc.models.shape import ImageShape

if TYPE_CHECKING:
    from PIL import Image

_NEAR = 4  # how many times larger an image may be than what it is warped to, for torch to do it

_Length: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=16384)]
_Size: TypeAlias = tuple[_Length, _Length]
Window: TypeAlias = tuple[int, int, int, int]  # top, left, height, width


@dataclass(frozen=True)
class ImageScaling(Preprocessing):
    """Images as a model sees them: of one size, every channel with mean 0 and deviation 1.

    Files are warped to `warp` whatever their shape, and the middle `size` of that is used; the
    paper's ImageNet recipe is 256×256 and 224×224. Images in memory must have `size` already.

    Attributes:
        mean, std: mean and deviation of pixels / 255, one number per channel; one channel is grey.
        size: height and width of the model's input.
        warp: height and width that files are warped to, at least `size`.
    """

    mean: Numbers
    std: Numbers
    size: _Size
    warp: _Size
    kind = "images"

    @property
    def channels(self) -> int:
        """Return the number of channels."""
        return len(self.mean)

    @property
    def shape(self) -> ImageShape:
        return ImageShape(self.channels, *self.size)

    @classmethod
    def fit(
        cls,
        train: Inputs,
        *,
        size: tuple[int, int] = (224, 224),
        warp: tuple[int, int] = (256, 256),
        sample: int = 2000,
        known: tuple[tuple[float, ...], tuple[float, ...]] | None = None,
    ) -> ImageScaling:
        """Measure the training images.

        Args:
            train: n ≥ 1 images. Images in memory keep their size; for these `size`, `warp` and
                `sample` are unused.
            size: what the model is to see of image files.
            warp: what image files are warped to before.
            sample: most image files to look at, evenly spread over the list.
            known: mean and deviation of every channel, instead of measuring them.
        """
        if len(train) == 0:
            raise InputError("no training images to measure")
        if train.numbers is not None:
            height, width = train.numbers.shape[1:3]
            mean, std = known or channel_statistics(train.numbers)
            size = warp = (int(height), int(width))
        else:
            assert isinstance(train, ImageFiles)
            if warp[0] < size[0] or warp[1] < size[1]:
                raise InputError(
                    f"images are warped to {_by(warp)} and then cropped to {_by(size)}, which is "
                    "larger: warp to at least the size of the crop"
                )
            if known is not None:
                return cls(*known, size, warp)
            chosen = np.linspace(0, len(train) - 1, min(sample, len(train))).astype(np.int64)
            counts = np.zeros((3, 256), np.int64)
            for i in np.unique(chosen):
                pixels = _read(train.paths[i], warp)
                counts += [np.bincount(channel.ravel(), minlength=256) for channel in pixels]
            mean, std = statistics_of_counts(counts)
        # A channel that never changes carries nothing; dividing by 1 leaves it at 0.
        return cls(mean, tuple(s if s > 0 else 1.0 for s in std), size, warp)

    @property
    def middle(self) -> Window:
        """Return the window of a warped file that is used without augmentation."""
        (height, width), (h, w) = self.warp, self.size
        return (height - h) // 2, (width - w) // 2, h, w

    def check(self, inputs: Inputs) -> None:
        """Refuse inputs of another kind or shape than were fitted."""
        if inputs.medium != "image":
            raise InputError(f"this model was made for images, got {inputs.kind}")
        expected = describe_images(*self.size, self.channels)
        if inputs.in_memory and inputs.describe() != expected:
            raise InputError(f"this model was made for {expected}, got {inputs.describe()}")

    def __call__(self, inputs: Inputs) -> Tensor:
        """Return [N, channels, h, w] float32 for N images; files are read here and now."""
        self.check(inputs)
        if inputs.numbers is not None:
            return self.normalized(torch.from_numpy(np.array(inputs.numbers)).permute(0, 3, 1, 2))
        assert isinstance(inputs, ImageFiles)
        pixels = np.empty((len(inputs), self.channels, *self.size), np.uint8)
        for path, out in zip(inputs.paths, pixels, strict=True):
            _read(path, self.warp, channels=self.channels, window=self.middle, out=out)
        return self.normalized(torch.from_numpy(pixels))

    def normalized(
        self, pixels: Tensor, *, channels_last: bool = False, out: Tensor | None = None
    ) -> Tensor:
        """Return [N, channels, h, w] float32 from bytes of that shape.

        Where `out` is given, a contiguous tensor of that shape, it is used on the way.
        """
        # Channel by channel first, whatever is asked for: that is twice as fast.
        mean, std = torch.tensor(self.mean), torch.tensor(self.std)
        x = normalize(pixels.contiguous(), mean, std, out=out)
        return x.contiguous(memory_format=torch.channels_last) if channels_last else x

    def validate(self) -> None:
        mean, std = self.mean, self.std
        if len(mean) != len(std) or len(mean) not in (1, 3):
            raise ValueError("mean and std must hold 1 or 3 numbers each")
        if not all(0 <= m <= 1 for m in mean) or not all(1e-12 <= s <= 1e3 for s in std):
            raise ValueError("mean must lie in 0 … 1, and std be positive")
        if self.warp[0] < self.size[0] or self.warp[1] < self.size[1]:
            raise ValueError("warp must be at least size")


def warped(
    path: Path,
    size: tuple[int, int],
    *,
    channels: int = 3,
    window: Window | None = None,
    flip: bool = False,
    out: Bytes | None = None,
) -> Bytes:
    """Return [channels, h, w] an image warped to a size without its aspect, or a window of that.

    Bilinear, over all pixels that an output pixel covers. A JPEG much larger than needed is decoded
    at a half, a quarter or an eighth of its size: that saves more time than all the rest takes. A
    ValueError says why the image cannot be read; the caller knows which one it is.
    """
    try:
        with image.opened(path) as file:
            longer = max(size)  # it may lie on its side
            file.draft("RGB", (longer, longer))
            upright = image.rgb(file)
            if channels == 1:
                upright = upright.convert("L")
            part = _part(upright, size, window or (0, 0, *size))
    except Exception as error:  # decoders raise nearly anything on hostile bytes
        raise ValueError(image.reason(error)) from None
    result = np.empty(part.shape, np.uint8) if out is None else out
    result[:] = part[:, :, ::-1] if flip else part
    return result


def _part(upright: Image.Image, size: tuple[int, int], window: Window) -> Bytes:
    """Return [channels, h, w] a window of an image warped to a size.

    By Pillow; or by torch, which is quicker for colours and sizes of the same order where it has
    instructions for many at once, and may round the other way.
    """
    from PIL.Image import Resampling

    top, left, height, width = window
    if upright.mode == "RGB" and max(upright.size) <= _NEAR * max(size) and _has_vectors():
        pixels = torch.from_numpy(np.asarray(upright)).permute(2, 0, 1)  # only read
        whole = F.interpolate(pixels[None], size, mode="bilinear", antialias=True)[0].numpy()
        return whole[:, top : top + height, left : left + width]
    y, x = upright.height / size[0], upright.width / size[1]
    box = (left * x, top * y, (left + width) * x, (top + height) * y)
    part = np.asarray(upright.resize((width, height), Resampling.BILINEAR, box=box))
    return part.reshape(height, width, -1).transpose(2, 0, 1)


@cache
def _has_vectors() -> bool:
    return torch.backends.cpu.get_cpu_capability().startswith("AVX")


def _read(
    path: Path,
    size: tuple[int, int],
    *,
    channels: int = 3,
    window: Window | None = None,
    out: Bytes | None = None,
) -> Bytes:
    try:
        return warped(path, size, channels=channels, window=window, out=out)
    except ValueError as error:
        raise image.unreadable(path, str(error)) from None


def _by(size: tuple[int, int]) -> str:
    return f"{size[0]}×{size[1]}"


class Placement(NamedTuple):
    """The position at which each image of a batch is cropped, and whether it is flipped."""

    top: Tensor  # [N] int64
    left: Tensor  # [N] int64
    flip: Tensor  # [N] bool


def placements(
    num_images: int, *, room: tuple[int, int], flip: bool, generator: torch.Generator
) -> Placement:
    """Draw N placements, every one of the possible corners equally likely.

    `room` is how many rows and columns an image is larger than what is cut out of it: a corner is
    in 0 … room, both ends included. With `flip`, every second image on average is mirrored; as many
    numbers are drawn without it.
    """
    rows, columns = room
    top = torch.randint(rows + 1, (num_images,), generator=generator)
    left = torch.randint(columns + 1, (num_images,), generator=generator)
    mirrored = torch.randint(2, (num_images,), generator=generator).bool()
    return Placement(top, left, mirrored if flip else torch.zeros_like(mirrored))


def crop_flip(pixels: Tensor, size: tuple[int, int], placement: Placement) -> Tensor:
    """Cut a window of `size` out of every image [N, channels, H, W], then mirror some of them.

    The result is contiguous.
    """
    windows = pixels.unfold(2, size[0], 1).unfold(3, size[1], 1)  # a view: nothing is copied
    images = torch.arange(len(pixels))
    cut = windows[images, :, placement.top, placement.left].contiguous()
    both = torch.cat((cut, cut.flip(3)))  # choosing by index is five times as fast as `where`
    return both.index_select(0, images + len(pixels) * placement.flip)


def pad_crop(pixels: Tensor, *, padding: int, placement: Placement) -> Tensor:
    """Surround images with black and cut windows of the old size out of them, some mirrored.

    A permuted view of [N, H, W, channels] is as fast as [N, channels, H, W]; the result is
    contiguous. Placements are inside 0 … 2·padding.
    """
    height, width = pixels.shape[2:]
    return crop_flip(F.pad(pixels, [padding] * 4), (height, width), placement)


def normalize(pixels: Tensor, mean: Tensor, std: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return (pixels / 255 − mean) / std as float32, in `out` if that is given.

    Pixels are [N, channels, H, W] bytes; mean and std are those of pixels / 255, [channels].
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

    Pixels are [n, H, W, channels], n ≥ 1, and may be a memory map. It counts how often each of the
    256 values occurs, so that no float copy of the images is made.
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
    """Return mean and standard deviation of value / 255 from counts [channels, 256]."""
    means, stds = [], []
    for row in counts:
        occurs = [int(c) for c in row]  # Python integers: squares of large sums do not overflow
        total = sum(occurs)
        first = sum(v * c for v, c in enumerate(occurs))
        second = sum(v * v * c for v, c in enumerate(occurs))
        means.append(first / total / 255)
        stds.append(((total * second - first * first) / (total * total)) ** 0.5 / 255)
    return tuple(means), tuple(stds)
