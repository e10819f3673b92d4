"""Batches of a data set that fits in memory, in an order that only seed and epoch decide.

There is a random stream for every purpose, so that no two uses of randomness draw the same numbers.
A generator made of the seed alone gives every user of it the same numbers: the noise and the
trusted split once shared one, and the split chose just the examples whose labels were flipped. The
noise keeps that stream (`noise.stream`), because the fingerprints of its labels are published.
Every other stream is keyed by its purpose.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from proselflc.data.dataset import Part
from proselflc.data.image_scaling import ImageScaling, Placement, pad_crop, placements
from proselflc.data.inputs import Floats, Ints
from proselflc.data.preprocessing import Bags, Preprocessing, TextHashing
from proselflc.data.tables.encoding import TableEncoding
from proselflc.errors import InputError

DENSE_NUMBERS = 2**26  # of the encoded columns of a table that are kept, 256 MB


class Batch(NamedTuple):
    """The inputs, labels and positions of N examples.

    Attributes:
        x: [N, …] float32, or [N, L] int64 for texts.
        y: [N] int64 given class ids.
        index: [N] int64 positions in the part that is being read.
    """

    x: Tensor
    y: Tensor
    index: Tensor  # type: ignore[assignment]  # shadows tuple.index, which is not needed


class Batches(Protocol):
    """The interface of every loader, in memory or streaming."""

    def batches(self, epoch: int = 0, start: int = 0) -> Iterator[Batch]:
        """Yield the batches of an epoch from number `start` on, bit for bit as in a full pass."""

    def __len__(self) -> int:
        """Return the number of batches in an epoch."""


def stream_seed(*key: int | str) -> int:
    """Return a seed of 63 bits that is a function of `key` alone, on every platform."""
    digest = hashlib.blake2b("/".join(map(str, key)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def random_stream(seed: int, purpose: str, *more: int | str) -> np.random.Generator:
    """Return the random stream of a purpose, unique to this use: PCG64, the same everywhere.

    `more` is anything else that the draw depends on.

    Example:
        >>> random_stream(0, "trusted split").random() == random_stream(0, "folds").random()
        False
    """
    return np.random.Generator(np.random.PCG64(stream_seed(purpose, seed, *more)))


def generator_for(*key: int | str) -> torch.Generator:
    """Return a CPU generator that is a function of `key` alone, on every platform."""
    return torch.Generator().manual_seed(stream_seed(*key))


@contextmanager
def one_thread() -> Iterator[None]:
    """Keep torch from dividing what is done here among threads.

    A batch takes a few milliseconds. Waiting for a second thread can take longer than that when
    there are as many workers as cores, and several times longer on a busy machine.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@dataclass(frozen=True)
class Share:
    """One process's part of one batch."""

    number: int  # of the batch within its epoch, from 0
    rows: Ints  # [N] where the part lies in the whole batch of all processes, ascending
    size: int  # examples in the whole batch
    positions: Ints  # [N] which examples


@dataclass(frozen=True)
class Order:
    """The order in which examples are read, which depends on the seed and the epoch alone.

    Attributes:
        batch_size: examples per batch over all processes together.
        seed: seed of the permutation and of the augmentation.
        shuffle: whether to draw a new permutation every epoch; otherwise the order is 0 … n − 1.
        drop_last: whether to leave out a last batch that is not full.
        shard: (r, R): this is process r of R, which takes the r-th contiguous share of every
            batch. The shares of all processes together are the batch of one process; each process
            sees the same number of batches, and a share of a short last batch may be empty.
        least: smallest size of a last batch that is not left out.
        by_position: whether process r takes the examples of every batch whose position is r modulo
            R instead, so that an example is always learned by the same process. These shares differ
            in size, and any of them may be empty.
    """

    batch_size: int = 256
    seed: int = 0
    shuffle: bool = True
    drop_last: bool = False
    shard: tuple[int, int] = (0, 1)
    least: int = 1
    by_position: bool = False

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise InputError(f"batch size must be at least 1, got {self.batch_size}")
        if self.least < 1:
            raise InputError(f"the least size of a batch must be at least 1, got {self.least}")
        rank, world = self.shard
        if not 0 <= rank < world:
            raise InputError(
                f"shard must be (rank, processes) with 0 ≤ rank < processes, got {self.shard}"
            )

    def count(self, num_examples: int) -> int:
        """Return the number of batches in an epoch of n examples, at least 1."""
        full, rest = divmod(num_examples, self.batch_size)
        batches = full + (rest >= self.least and not self.drop_last)
        if batches == 0:
            raise InputError(
                f"there are {num_examples} examples, not enough for one batch of "
                f"{self.batch_size}: take a smaller batch size or keep the last batch"
            )
        return batches

    def permutation(self, num_examples: int, epoch: int) -> Ints:
        """Return [n] positions in the order of this epoch."""
        if not self.shuffle:
            return np.arange(num_examples, dtype=np.int64)
        generator = generator_for("order", self.seed, epoch)
        order: Ints = torch.randperm(num_examples, generator=generator).numpy()
        return order

    def shares(self, num_examples: int, epoch: int, start: int = 0) -> Iterator[Share]:
        """Yield this process's part of every batch of n examples from number `start` on."""
        order = self.permutation(num_examples, epoch)
        rank, world = self.shard
        for number in range(start, self.count(num_examples)):
            whole = order[number * self.batch_size : (number + 1) * self.batch_size]
            size = len(whole)
            if self.by_position:
                rows = np.flatnonzero(whole % world == rank)
            else:
                rows = np.arange(size * rank // world, size * (rank + 1) // world)
            yield Share(number, rows, size, whole[rows])

    @property
    def largest_share(self) -> int:
        """Return the largest number of examples that this process can get of a batch."""
        return self.batch_size if self.by_position else -(-self.batch_size // self.shard[1])

    def placement(
        self, share: Share, epoch: int, *, room: tuple[int, int], flip: bool
    ) -> Placement:
        """Draw where the images of a share are cut out, whatever the other shares are."""
        generator = generator_for("augmentation", self.seed, epoch, share.number)
        drawn = placements(share.size, room=room, flip=flip, generator=generator)
        return Placement(*(some[torch.from_numpy(share.rows)] for some in drawn))


@dataclass(frozen=True)
class PadCropFlip:
    """The paper's augmentation of small images: pad, cut the old size out, mirror every second."""

    padding: int = 4
    flip: bool = True


@dataclass(frozen=True)
class Loader:
    """Serves a part that is in memory, or in a memory map.

    Images stay bytes: only the current batch is converted to floats. Texts are turned into bags of
    bucket numbers once.

    Attributes:
        part: examples to read; `serving.FileLoader` reads those that are image files.
        preprocessing: fitted on the training part, of the kind that fits the inputs.
        order: size and order of the batches.
        augmentation: for training on images; its draws are a function of (seed, epoch, number of
            the batch), whatever `shard` and `start` are.
        channels_last: whether images get this memory format, in which CPUs convolve faster.
    """

    part: Part
    preprocessing: Preprocessing
    order: Order = Order()
    augmentation: PadCropFlip | None = None
    channels_last: bool = False

    def __post_init__(self) -> None:
        self.preprocessing.check(self.part.inputs)
        if not self.part.inputs.in_memory:
            raise InputError(
                "a Loader serves what is in memory, and these images are files: serve them with "
                "proselflc.data.serving.FileLoader, which takes the same arguments"
            )
        if self.augmentation is not None and self.part.inputs.medium != "image":
            raise InputError("crops and flips are for images; these inputs are not images")
        len(self)

    def __len__(self) -> int:
        return self.order.count(len(self.part))

    def batches(self, epoch: int = 0, start: int = 0) -> Iterator[Batch]:
        """Yield the batches of an epoch from number `start` on, bit for bit as in a full pass."""
        for share in self.order.shares(len(self.part), epoch, start):
            with one_thread():
                x = self._x(share, epoch)
            y = torch.from_numpy(np.take(self.part.labels, share.positions))
            yield Batch(x, y, torch.from_numpy(share.positions))

    def _x(self, share: Share, epoch: int) -> Tensor:
        if isinstance(self.preprocessing, ImageScaling):
            return self._images(self.preprocessing, share, epoch)
        if isinstance(self.preprocessing, TextHashing):
            return self._bags.padded(share.positions)
        if isinstance(self.preprocessing, TableEncoding) and self._is_small:
            return torch.from_numpy(np.take(self._dense, share.positions, axis=0))
        return self.preprocessing(self.part.inputs.take(share.positions))

    def _images(self, preprocessing: ImageScaling, share: Share, epoch: int) -> Tensor:
        assert self.part.inputs.numbers is not None
        # numpy gathers: torch cannot look at a read-only memory map without a warning.
        taken = torch.from_numpy(np.take(self.part.inputs.numbers, share.positions, axis=0))
        pixels = taken.permute(0, 3, 1, 2)
        if self.augmentation is not None:
            padding = self.augmentation.padding
            placement = self.order.placement(
                share, epoch, room=(2 * padding, 2 * padding), flip=self.augmentation.flip
            )
            pixels = pad_crop(pixels, padding=padding, placement=placement)
        return preprocessing.normalized(pixels, channels_last=self.channels_last)

    @property
    def _is_small(self) -> bool:
        """Return whether the columns of all rows are encoded at once."""
        assert isinstance(self.preprocessing, TableEncoding)
        return len(self.part) * self.preprocessing.width <= DENSE_NUMBERS

    @cached_property
    def _dense(self) -> Floats:
        assert isinstance(self.preprocessing, TableEncoding)
        return self.preprocessing.dense(self.part.inputs)

    @cached_property
    def _bags(self) -> Bags:
        assert isinstance(self.preprocessing, TextHashing)
        return self.preprocessing.bags(self.part.inputs)
