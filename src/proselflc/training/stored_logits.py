"""Logits of many examples and classes in a temporary file, read some rows at a time."""

from __future__ import annotations

import tempfile
import weakref
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor


class StoredLogits:
    """[n, C] float32 of which no more is in memory than is asked for.

    The file has no name and is gone when the object is, or the process.

    Args:
        folder: whose disk the file is on.
        num_examples: n.
        num_classes: C.
    """

    ndim = 2

    def __init__(self, folder: Path, num_examples: int, num_classes: int) -> None:
        self.shape = torch.Size((num_examples, num_classes))
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115  # it lives as long as this
        weakref.finalize(self, self._file.close)

    def __len__(self) -> int:
        return self.shape[0]

    def size(self, dim: int) -> int:
        """Return n or C, as a tensor does."""
        return self.shape[dim]

    def put(self, index: Tensor, rows: Tensor) -> None:
        """Keep the logits [N, C] of the examples at index [N]."""
        width = 4 * self.shape[1]
        for k, content in zip(index.tolist(), rows.float().cpu().numpy(), strict=True):
            self._file.seek(k * width)
            self._file.write(np.ascontiguousarray(content, "<f4").data)

    def __getitem__(self, rows: slice) -> Tensor:
        """Return the logits of neighbouring examples."""
        begin, end, step = rows.indices(len(self))
        assert step == 1
        found = np.zeros((end - begin, self.shape[1]), np.float32)
        self._file.seek(4 * begin * self.shape[1])
        self._file.readinto(found.data)
        return torch.from_numpy(found)


Logits: TypeAlias = Tensor | StoredLogits
