"""Which preprocessing suits some inputs, which loader serves them, and the loader of image files.

Image files do not fit in memory and are decoded in worker processes. The main process alone decides
the order, and a worker is handed whole batches; where each image is cut out follows from (seed,
epoch, number of the batch). So nothing depends on how many workers there are. Images travel as
bytes and become float when the batch is handed out.
"""

from __future__ import annotations

import math
import shutil
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as MapStyle

from proselflc.data.batches import Batch, Batches, Loader, Order, PadCropFlip, Share, one_thread
from proselflc.data.dataset import Part
from proselflc.data.encoded.inputs import Encoded
from proselflc.data.encoded.preprocessing import PretrainedFeatures
from proselflc.data.image import QUIET, unreadable
from proselflc.data.image_scaling import ImageScaling, Window, warped
from proselflc.data.inputs import Bytes, Features, ImageFiles, Images, Inputs, Ints, Texts
from proselflc.data.preprocessing import Preprocessing, Standardization, TextHashing
from proselflc.data.tables.encoding import TableEncoding
from proselflc.data.tables.mixed import MixedColumns
from proselflc.errors import InputError, unknown
from proselflc.files.typed import convert, damaged

_KINDS: dict[str, type[Preprocessing]] = {
    kind.kind: kind
    for kind in (ImageScaling, TextHashing, Standardization, TableEncoding, PretrainedFeatures)
}
_FITS: dict[type[Inputs], Callable[[Any], Preprocessing]] = {
    Images: ImageScaling.fit,
    ImageFiles: ImageScaling.fit,
    Texts: TextHashing.fit,
    Features: Standardization.fit,
    MixedColumns: TableEncoding.fit,
    Encoded: PretrainedFeatures.fit,
}
_SOURCE = "the saved preprocessing"
BATCHES_OF_64 = Order(64)  # the paper's for ImageNet and Clothing1M
_AHEAD = 2  # batches that are asked of each worker before they are needed


def fit(train: Inputs) -> Preprocessing:
    """Return the preprocessing that suits these training inputs, fitted on them."""
    return _FITS[type(train)](train)


def from_json(value: object) -> Preprocessing:
    """Return the preprocessing that `Preprocessing.to_json` wrote; every value is checked."""
    kind = value.get("kind") if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(kind, str):
        raise InputError(f"{_SOURCE} is damaged: expected an object with a kind")
    if kind not in _KINDS:
        raise InputError(unknown("preprocessing", kind, _KINDS))
    names = [field.name for field in fields(_KINDS[kind])]  # type: ignore[arg-type]
    optional = {"median"}  # which older runs do not have
    if not {"kind", *names} - optional <= set(value) <= {"kind", *names}:
        raise InputError(f"{_SOURCE} is damaged: expected the fields kind, {', '.join(names)}")
    found = convert({name: value[name] for name in names if name in value}, _KINDS[kind], _SOURCE)
    try:
        found.validate()
    except ValueError as error:
        raise damaged(_SOURCE, error) from None
    return found


def loader(
    part: Part,
    preprocessing: Preprocessing,
    order: Order,
    *,
    augment: str = "none",
    workers: int = 2,
    channels_last: bool = False,
) -> Batches:
    """Return the loader that serves a part, from memory or from files."""
    if isinstance(preprocessing, PretrainedFeatures):
        part = replace(part, inputs=preprocessing.encoded(part.inputs, threads=workers))
        augment = "none"  # features are computed once
    crop, flip = "crop" in augment, "flip" in augment
    if not part.inputs.in_memory:
        assert isinstance(preprocessing, ImageScaling)
        random = RandomCrop(flip) if crop else None
        return FileLoader(
            part, preprocessing, order, random, workers=workers, channels_last=channels_last
        )
    # 4 pixels of 32, as is usual for CIFAR, and in proportion for other sizes.
    room = 1
    if isinstance(preprocessing, ImageScaling):
        room = max(1, round(min(preprocessing.size) / 8))
    padding = PadCropFlip(room if crop else 0, flip) if crop or flip else None
    return Loader(part, preprocessing, order, padding, channels_last=channels_last)


@dataclass(frozen=True)
class RandomCrop:
    """The paper's augmentation of photos: cut a random window out, mirror every second."""

    flip: bool = True


class _Work(NamedTuple):
    """A request to a worker: decode this process's share of one batch."""

    slot: int  # where to write it, if there are slots
    share: Share
    sources: tuple[Path, ...]  # [N], of the share


class _Done(NamedTuple):
    """The result of a request."""

    slot: int
    pixels: Bytes | None  # [N, channels, h, w]; None if they are in the slot
    positions: Ints  # [N]
    bad: tuple[int, str] | None  # position of an image that cannot be read, and the reason


@dataclass(frozen=True)
class _Decoding(MapStyle[_Done]):
    """Decodes batches in a worker process; each request names the batch.

    Slots, [S, N, channels, h, w] uint8, are shared memory, from which a batch need not be copied to
    get to the main process; without them it is sent through a pipe.
    """

    preprocessing: ImageScaling
    augmentation: RandomCrop | None
    order: Order
    epoch: int
    slots: Tensor | None

    def __getitem__(self, work: _Work) -> _Done:
        slot, share, sources = work
        scaling = self.preprocessing
        if self.slots is None:
            pixels = np.empty((len(sources), scaling.channels, *scaling.size), np.uint8)
        else:
            pixels = self.slots[slot, : len(sources)].numpy()
        size, channels = scaling.warp, scaling.channels
        done, bad = 0, None
        try:
            with QUIET:
                places = zip(sources, self._windows(share), pixels, strict=True)
                for source, (window, flip), out in places:
                    warped(source, size, channels=channels, window=window, flip=flip, out=out)
                    done += 1
        except ValueError as error:  # exceptions travel badly between processes
            bad = (int(share.positions[done]), str(error))
        return _Done(slot, pixels if self.slots is None else None, share.positions, bad)

    def _windows(self, share: Share) -> list[tuple[Window, bool]]:
        """Return the window of every image of the share, and whether to mirror it."""
        if self.augmentation is None:
            return [(self.preprocessing.middle, False)] * len(share.positions)
        (height, width), (h, w) = self.preprocessing.warp, self.preprocessing.size
        drawn = self.order.placement(
            share, self.epoch, room=(height - h, width - w), flip=self.augmentation.flip
        )
        places = zip(drawn.top.tolist(), drawn.left.tolist(), drawn.flip.tolist(), strict=True)
        return [((top, left, h, w), flip) for top, left, flip in places]


def _slots(loader: FileLoader, count: int) -> Tensor | None:
    """Return shared memory for `count` batches, or None if it is of no use or there is no room.

    Containers often have little of it, and a process that finds it full dies.
    """
    scaling = loader.preprocessing
    shape = (count, loader.order.largest_share, scaling.channels, *scaling.size)
    try:
        room = shutil.disk_usage("/dev/shm").free
    except OSError:  # not Linux: as much as there is memory
        room = math.prod(shape) + 1
    if loader.workers == 0 or math.prod(shape) >= room:
        return None
    slots = torch.empty(shape, dtype=torch.uint8)
    slots.share_memory_()  # type: ignore[no-untyped-call]
    return slots


class _Memory:
    """Reuses the memory of batches that are no longer referenced.

    A batch of photos as float is tens of megabytes. Fresh from the system each time, their first
    use costs more than the arithmetic.
    """

    def __init__(self) -> None:
        self._lent: list[tuple[npt.NDArray[np.float32], weakref.ref[object]]] = []

    def like(self, shape: tuple[int, ...]) -> Tensor:
        """Return a tensor of this shape that shares memory with no other tensor in use."""
        size = math.prod(shape)
        free = [block for block, user in self._lent if user() is None and block.size >= size]
        block = free[0] if free else np.empty(size, np.float32)
        view = block[:size]  # lives exactly as long as some tensor uses its memory
        others = [(other, user) for other, user in self._lent if other is not block]
        self._lent = [*others[-2:], (block, weakref.ref(view))]
        return torch.from_numpy(view).view(shape)


def _as_it_is(done: Any) -> Any:
    return done


@dataclass(frozen=True)
class FileLoader:
    """Serves image files, decoded for their batch; one that cannot be read is an error."""

    part: Part  # its inputs are image files
    preprocessing: ImageScaling  # the size to warp to, the crop, mean and deviation
    order: Order = BATCHES_OF_64
    augmentation: RandomCrop | None = None  # without it the middle is cut out, nothing mirrored
    workers: int = 2  # processes that decode; 0 decodes in this one
    channels_last: bool = False  # the memory order of x

    def __post_init__(self) -> None:
        self.preprocessing.check(self.part.inputs)
        if self.part.inputs.in_memory:
            raise InputError("these images are in memory: read them with a Loader")
        len(self)

    def __len__(self) -> int:
        return self.order.count(len(self.part))

    def batches(self, epoch: int = 0, start: int = 0) -> Iterator[Batch]:
        """Yield the batches of an epoch from number `start` on, without decoding earlier ones."""
        from PIL import Image

        assert isinstance(self.part.inputs, ImageFiles)
        paths, scaling = self.part.inputs.paths, self.preprocessing
        slots = _slots(self, 1 + _AHEAD * self.workers)  # one is read while others are filled
        free = [] if slots is None else list(range(len(slots)))
        dones = DataLoader(
            _Decoding(scaling, self.augmentation, self.order, epoch, slots),
            batch_size=None,
            sampler=(
                _Work(
                    free.pop() if slots is not None else 0,
                    share,
                    tuple(paths[i] for i in share.positions),
                )
                for share in self.order.shares(len(self.part), epoch, start)
            ),
            num_workers=self.workers,
            prefetch_factor=_AHEAD if self.workers else None,
            collate_fn=_as_it_is,
            generator=torch.Generator(),  # or it would draw from the global one
        )
        Image.init()  # finds the decoders once, here, rather than in every worker
        memory = _Memory()
        for slot, sent, positions, bad in dones:
            if bad is not None:
                raise unreadable(f'"{self.part.ids[bad[0]]}"', bad[1])
            pixels = torch.from_numpy(sent) if slots is None else slots[slot, : len(positions)]
            with one_thread():
                x = scaling.normalized(
                    pixels, channels_last=self.channels_last, out=memory.like(pixels.shape)
                )
            free.append(slot)
            y = torch.from_numpy(np.take(self.part.labels, positions))
            yield Batch(x, y, torch.from_numpy(positions))
