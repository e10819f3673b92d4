"""Records of every training example, made from what each step computed.

Every epoch has a file `epoch-00000.npy` with a row of 14 bytes per example; the means of p and q̃
over the last epochs have a file each. Files are written whole when an epoch ends and can be
memory-mapped. Until then the rows of the epoch and the means are part of checkpoints.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, overload

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from proselflc.data.memory_budget import DENSE_NUMBERS
from proselflc.data.sources import npz
from proselflc.errors import InputError
from proselflc.files.regular import is_regular, open_regular, whole_file
from proselflc.training.strategy import CorrectedBatch
from proselflc.wording import option

# 65535 and NaN mark an example that did not occur in the epoch.
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
Mean: TypeAlias = npt.NDArray[Any]  # [n, C] float16, or [n, 5] of TOP; NaN if never seen


class Observations(NamedTuple):
    """What a step computed about N examples, at the positions index [N] int64."""

    index: Tensor  # type: ignore[assignment]  # shadows tuple.index, which is not needed
    facts: Tensor  # [N, 7] float32, a column per field of `ROW`
    means: tuple[Tensor, ...]  # p and the signed q̃, [N, C] float32 each, if they are averaged


@torch.no_grad()
def observe(corrected: CorrectedBatch, *, means: bool) -> Observations:
    """Return what is recorded of a batch; p and q̃ only if their means are wanted."""
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
    """Return how many of the last epochs are averaged: a quarter of them, at least two."""
    return max(2, epochs // 4)


class Recorder:
    """Keeps the observations of n examples and writes them.

    Args:
        epochs: number of epochs of the run, which tells which are the last.
        first: first epoch of the last stage.
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
            raise InputError(f"expected at most {NO_CLASS - 1:,} classes, got {num_classes:,}")
        self.folder = folder
        self.recent_from = max(first, epochs - recent_epochs(epochs))
        self.rows = _unseen(num_examples)
        self.count = torch.zeros(num_examples, dtype=torch.int32)  # in how many recent epochs
        self.means: dict[str, _DenseMean | _TopMean] = {
            name: (_DenseMean if num_examples * num_classes <= LARGEST else _TopMean)(
                num_examples, num_classes
            )
            for name in (("p", "target") if means else ())
        }

    def wants_means(self, epoch: int) -> bool:
        """Return whether an epoch is one of the last, over which p and q̃ are averaged.

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
        """Write the epoch's file, begin the next epoch and return the path."""
        self.folder.mkdir(exist_ok=True)
        path = self.folder / f"epoch-{epoch:05d}.npy"
        _write(path, self.rows)
        self.begin_epoch()
        return path

    def begin_epoch(self) -> None:
        """Clear the rows; in a process that does not write, this ends an epoch."""
        self.rows = _unseen(len(self.rows))

    def end(self) -> None:
        """Write the means."""
        self.folder.mkdir(exist_ok=True)
        for name, mean in self.means.items():
            _write(mean_file(self.folder, name), mean.array(self.count > 0))

    def tensors(self) -> dict[str, Tensor]:
        """Return the state for a checkpoint, without copying: the next `add` changes it."""
        every = self._tensors()
        return every if self.count.any() else {name: every[name] for name in _ALWAYS_KEPT}

    def restore(self, tensors: dict[str, Tensor], epoch: int) -> None:
        """Restore the state of a checkpoint in this epoch, and remove files of later epochs."""
        for name, value in self._tensors().items():
            stored = tensors.get(name)
            if stored is None and name not in _ALWAYS_KEPT:
                continue  # nothing was averaged yet
            if stored is None or (stored.shape, stored.dtype) != (value.shape, value.dtype):
                raise InputError(
                    "the checkpoint has another number of examples or classes than the data"
                )
            value.copy_(stored)
        self.keep(epoch)

    def keep(self, epoch: int) -> None:
        """Keep the files of the first epochs, of which there are `epoch`, and remove later ones."""
        there = dict(_epochs(self.folder))
        missing = [number for number in range(epoch) if number not in there]
        if missing:
            raise InputError(
                f"{self.folder} has lost the record of epoch {missing[0]}, so the run cannot "
                "continue from its checkpoint",
                field="resume",
                fix=f"train it again with {option('overwrite', True)}",
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
    """The rows [n] of every epoch, each memory-mapped on access.

    `checked` returns the path of a file that is as it was written, and refuses others.
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
        """Return the files, in order."""
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
                f"{path} holds {rows.dtype}, which is not a record of an epoch by this version of "
                "proselflc",
                fix="train the run again",
            )
        return rows


def mean_file(folder: Path, name: str) -> Path:
    """Return the file of the mean of "p" or "target"."""
    return folder / f"recent_{name}.npy"


def recent(folder: Path, name: str) -> Mean:
    """Return the mean of "p" or "target" over the last epochs, memory-mapped."""
    path = mean_file(folder, name)
    array: Mean = mapped(path)
    if array.ndim != 2 or array.dtype not in (np.dtype("<f2"), TOP):
        raise InputError(
            f"{path} holds {array.dtype} {list(array.shape)}, which is not a mean of predictions"
        )
    return array


def mapped(path: Path) -> npt.NDArray[Any]:
    """Return the array of an .npy file, memory-mapped."""
    try:
        # Not np.load, which would also open an archive.
        with open_regular(path) as file:
            return npz.mapped(file)
    except InputError as error:
        raise InputError(f"cannot read {path}: {error}") from None
    except npz.DAMAGE as error:
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise InputError(f"cannot read {path}: {reason}") from None


class _DenseMean:
    """The means m of n examples, [n, C] in float16.

    `add` sets m ← m + (values − m)·share for some rows, where share [N, 1] is 1 for the first
    values; `tensors` is the state, which may be written to; `array` is what is written to a file,
    with NaN where `seen` [n] is False.
    """

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
    """The five largest classes of each mean, with the methods of `_DenseMean`.

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
    """Return the numbers and files of the epochs, in order."""
    if not folder.is_dir():
        return []
    matches = [(_FILE.fullmatch(path.name), path) for path in folder.iterdir()]
    return sorted((int(match[1]), path) for match, path in matches if match is not None)
