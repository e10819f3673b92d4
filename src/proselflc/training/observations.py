"""What is seen of every example while a model learns it, at no extra forward pass.

Per epoch a file `epoch-00000.npy` with a row of 14 bytes per training example, and over the last
epochs the mean of p and of q̃. Files can be memory-mapped. They are written whole when an epoch
ends; what is seen of an epoch before that, and the means, is part of a checkpoint.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias, overload

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from proselflc.data.memory_budget import DENSE_NUMBERS
from proselflc.data.sources import npz
from proselflc.errors import InputError
from proselflc.files.regular import is_regular, open_regular
from proselflc.files.whole import whole_file
from proselflc.training.strategy import CorrectedBatch

# 65535 and NaN mark an example that was not seen in the epoch.
ROW = np.dtype(
    [
        ("predicted", "<u2"),  # argmax p
        ("p_given", "<f2"),  # p of the given label
        ("entropy", "<f2"),  # H(p)
        ("p_other", "<f2"),  # largest p of another class than the given one
        ("other", "<u2"),  # that class
        ("trust", "<f2"),  # ε
        ("semantic", "<u2"),  # argmax q̃
    ]
)
TOP = np.dtype([("class", "<u2"), ("value", "<f2")])
TOP_CLASSES = 5
NO_CLASS = 65535
LARGEST = DENSE_NUMBERS  # n·C beyond which only the top five classes of a mean are kept
_ALWAYS_KEPT = ("rows", "count")
_FILE = re.compile(r"epoch-([0-9]{5})\.npy")

Rows: TypeAlias = npt.NDArray[np.void]  # [n] of ROW
Mean: TypeAlias = npt.NDArray[Any]  # [n, C] float16, or [n, 5] of TOP; NaN where never seen


class Observations(NamedTuple):
    """What a step computed about N examples.

    Attributes:
        index: [N] int64 positions of the examples.
        facts: [N, 7] float32, a column per field of `ROW`.
        means: p and the signed q̃, [N, C] float32 each, if they are averaged; else nothing.
    """

    index: Tensor  # type: ignore[assignment]  # shadows tuple.index, which is not needed
    facts: Tensor
    means: tuple[Tensor, ...]


@torch.no_grad()
def observe(corrected: CorrectedBatch, *, means: bool) -> Observations:
    """Return what is recorded of a batch.

    Args:
        corrected: what the strategy makes of the batch.
        means: whether p and q̃ are wanted.
    """
    p, target, batch = corrected.evidence.p, corrected.target, corrected.batch
    given = batch.y.to(p.device).unsqueeze(1)
    other = p.scatter(1, given, -1.0).max(1)
    facts = torch.stack(
        (
            p.max(1).indices.float(),  # the first of equals, like argmax, in half its time
            p.gather(1, given).squeeze(1).float(),
            corrected.entropy.float(),
            other.values.float(),
            other.indices.float(),
            corrected.trust.float(),
            target.max(1).indices.float(),
        ),
        1,
    )
    return Observations(batch.index, facts, (p.float(), target.float()) if means else ())


def recent_epochs(epochs: int) -> int:
    """How many are the last ones, over which is averaged: a quarter of them, and at least two."""
    return max(2, epochs // 4)


class Recorder:
    """Keeps what is seen of n examples.

    Args:
        folder: where the files go.
        num_examples: n.
        num_classes: C, at most 65,534.
        epochs: how many there will be, for knowing which are the last.
        first: of these, the first epoch of the last stage.
        means: whether p and q̃ are averaged over the last epochs.
    """

    def __init__(
        self,
        folder: Path,
        num_examples: int,
        num_classes: int,
        epochs: int,
        *,
        first: int = 0,
        means: bool = True,
    ) -> None:
        if num_classes >= NO_CLASS:
            raise InputError(f"there are {num_classes} classes: at most {NO_CLASS - 1} can be kept")
        self.folder = folder
        self.recent_from = max(first, epochs - recent_epochs(epochs))
        self.rows = _unseen(num_examples)
        self.count = torch.zeros(num_examples, dtype=torch.int32)  # in how many recent epochs
        self.means: dict[str, _Mean] = {
            name: (_DenseMean if num_examples * num_classes <= LARGEST else _TopMean)(
                num_examples, num_classes
            )
            for name in (("p", "target") if means else ())
        }

    def wants_means(self, epoch: int) -> bool:
        """Whether an epoch is one of the last, over which p and q̃ are averaged.

        These are the last `recent_epochs`, but none before the last stage.
        """
        return bool(self.means) and epoch >= self.recent_from

    def add(self, epoch: int, observations: Observations) -> None:
        """Keep the observations of a step of this epoch."""
        index, facts = observations.index.numpy(), observations.facts.numpy()
        for k, field in enumerate(ROW.names or ()):
            self.rows[field][index] = facts[:, k]
        if self.wants_means(epoch):
            self.count[observations.index] += 1
            share = self.count[observations.index].reciprocal().unsqueeze(1)
            for mean, values in zip(self.means.values(), observations.means, strict=True):
                mean.add(observations.index, values, share)

    def end_epoch(self, epoch: int) -> Path:
        """Write the epoch's file, whose path is returned, and begin the next one."""
        self.folder.mkdir(exist_ok=True)
        path = self.folder / f"epoch-{epoch:05d}.npy"
        _write(path, self.rows)
        self.begin_epoch()
        return path

    def begin_epoch(self) -> None:
        """Forget what was seen; a process that does not write does no more."""
        self.rows = _unseen(len(self.rows))

    def end(self) -> None:
        """Write the means."""
        self.folder.mkdir(exist_ok=True)
        for name, mean in self.means.items():
            _write(mean_file(self.folder, name), mean.array(self.count > 0))

    def tensors(self) -> dict[str, Tensor]:
        """What a checkpoint keeps; not copies: the next `add` changes them."""
        every = self._tensors()
        return every if self.count.any() else {name: every[name] for name in _ALWAYS_KEPT}

    def restore(self, tensors: dict[str, Tensor], epoch: int) -> None:
        """Go on from what a checkpoint in this epoch kept; files of later epochs are removed.

        Raises:
            InputError: the checkpoint is of other examples or classes, or an earlier epoch's file
                is gone.
        """
        for name, value in self._tensors().items():
            stored = tensors.get(name)
            if stored is None and name not in _ALWAYS_KEPT:
                continue  # nothing was averaged yet
            if stored is None or (stored.shape, stored.dtype) != (value.shape, value.dtype):
                raise InputError("the checkpoint is of other examples or classes than the data has")
            value.copy_(stored)
        self.keep(epoch)

    def keep(self, epoch: int) -> None:
        """Keep the files of so many epochs; those of later ones are removed.

        Raises:
            InputError: one of them is gone.
        """
        there = dict(_epochs(self.folder))
        missing = [number for number in range(epoch) if number not in there]
        if missing:
            raise InputError(
                f"{self.folder} has lost the record of epoch {missing[0]}, so the run cannot go on "
                "from its checkpoint: begin it anew with --overwrite"
            )
        for number, path in there.items():
            if number >= epoch and is_regular(path):
                path.unlink()

    def _tensors(self) -> dict[str, Tensor]:
        tensors = {"rows": torch.from_numpy(self.rows.view(np.uint8)), "count": self.count}
        for name, mean in self.means.items():
            tensors |= {f"{name}.{key}": value for key, value in mean.tensors().items()}
        return tensors


class Epochs(Sequence[Rows]):
    """[n] rows of every epoch, each memory-mapped when it is asked for and let go thereafter.

    Args:
        folder: of the dynamics.
        checked: gives back the path of a file that is as it was written, and refuses others.

    Raises:
        InputError: an epoch is missing.
    """

    def __init__(self, folder: Path, checked: Callable[[Path], Path] | None = None) -> None:
        self._checked = checked
        self._paths = []
        for epoch, (number, path) in enumerate(_epochs(folder)):
            if number != epoch:
                raise InputError(f"{folder} has no record of epoch {epoch}, but of epoch {number}")
            self._paths.append(path)

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files, in order."""
        return tuple(self._paths)

    def __len__(self) -> int:
        return len(self._paths)

    @overload
    def __getitem__(self, index: int) -> Rows: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Rows]: ...

    def __getitem__(self, index: int | slice) -> Rows | Sequence[Rows]:
        if isinstance(index, slice):
            some = copy.copy(self)
            some._paths = self._paths[index]
            return some
        path = self._paths[index]
        rows = mapped(path if self._checked is None else self._checked(path))
        if rows.dtype != ROW:
            raise InputError(
                f"{path} holds {rows.dtype}: it is no record of an epoch, or one of "
                "another version of proselflc; train the run again"
            )
        return rows


def observed(folder: Path) -> Iterator[Rows]:
    """[n] rows of every epoch, in order, each memory-mapped.

    Raises:
        InputError: one is missing, or is no such file.
    """
    return iter(Epochs(folder))


def mean_file(folder: Path, name: str) -> Path:
    """Where the mean of "p" or "target" is."""
    return folder / f"recent_{name}.npy"


def recent(folder: Path, name: str) -> Mean:
    """The mean of "p" or "target" over the last epochs, memory-mapped.

    Raises:
        InputError: there is none, or it is no such file.
    """
    path = mean_file(folder, name)
    array: Mean = mapped(path)
    if array.ndim != 2 or array.dtype not in (np.dtype("<f2"), TOP):
        raise InputError(f"{path} holds {array.dtype} {list(array.shape)}: it is no mean of ours")
    return array


def mapped(path: Path) -> npt.NDArray[Any]:
    """An array of an .npy file, memory-mapped.

    Raises:
        InputError: there is none, or it is no such file.
    """
    try:
        # Not np.load, which would also open an archive.
        with open_regular(path) as file:
            return npz.mapped(file)
    except InputError as error:
        raise InputError(f"cannot read {path}: {error}") from None
    except npz.DAMAGE as error:
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise InputError(f"cannot read {path}: {reason}") from None


class _Mean(Protocol):
    def add(self, index: Tensor, values: Tensor, share: Tensor) -> None:
        """m ← m + (values − m)·share for some rows; share [N, 1] is 1 for the first values."""

    def tensors(self) -> dict[str, Tensor]:
        """The state, which may be written to."""

    def array(self, seen: Tensor) -> Mean:
        """As it is written, with NaN where `seen` [n] is False."""


class _DenseMean:
    """[n, C] in float16."""

    def __init__(self, num_examples: int, num_classes: int) -> None:
        self.mean = torch.zeros(num_examples, num_classes, dtype=torch.float16)

    def add(self, index: Tensor, values: Tensor, share: Tensor) -> None:
        mean = self.mean[index].float()
        self.mean[index] = mean.lerp_(values, share).half()

    def tensors(self) -> dict[str, Tensor]:
        return {"mean": self.mean}

    def array(self, seen: Tensor) -> Mean:
        array = self.mean.numpy().copy()
        array[~seen.numpy()] = np.nan
        return array


class _TopMean:
    """The five largest classes of each mean.

    A class that newly comes among the five starts from 0, so what it had before is lost: a mean of
    a class that is not always among the five largest is too low.
    """

    def __init__(self, num_examples: int, num_classes: int) -> None:
        self.top = min(TOP_CLASSES, num_classes)
        self.classes = torch.full((num_examples, self.top), -1, dtype=torch.int32)
        self.values = torch.zeros(num_examples, self.top, dtype=torch.float16)

    def add(self, index: Tensor, values: Tensor, share: Tensor) -> None:
        new = values.topk(self.top, 1)
        new_values, new_classes = new.values * share, new.indices
        old_values = self.values[index].float() * (1 - share)
        old_classes = self.classes[index].long()
        same = old_classes.unsqueeze(2) == new_classes.unsqueeze(1)  # [N, old, new]
        old_values += (same * new_values.unsqueeze(1)).sum(2)
        new_values = new_values.masked_fill(same.any(1), -torch.inf)
        merged = torch.cat((old_values, new_values), 1)
        kept = merged.topk(self.top, 1)
        classes = torch.cat((old_classes, new_classes), 1).gather(1, kept.indices)
        self.values[index] = kept.values.half()
        self.classes[index] = classes.int()

    def tensors(self) -> dict[str, Tensor]:
        return {"classes": self.classes, "values": self.values}

    def array(self, seen: Tensor) -> Mean:
        array = np.empty(self.classes.shape, TOP)
        array["class"] = np.where(self.classes.numpy() < 0, NO_CLASS, self.classes.numpy())
        array["value"] = np.where(seen.numpy()[:, None], self.values.numpy(), np.nan)
        return array


def _unseen(num_examples: int) -> Rows:
    row = np.zeros((), ROW)
    for field in ROW.names or ():
        row[field] = NO_CLASS if ROW[field].kind == "u" else np.nan
    return np.full(num_examples, row)


def _write(path: Path, array: npt.NDArray[Any]) -> None:
    with whole_file(path) as file:
        np.lib.format.write_array(file, array, allow_pickle=False)


def _epochs(folder: Path) -> list[tuple[int, Path]]:
    """The epochs' files and their numbers, in order."""
    if not folder.is_dir():
        return []
    matches = [(_FILE.fullmatch(path.name), path) for path in folder.iterdir()]
    return sorted((int(match[1]), path) for match, path in matches if match is not None)
