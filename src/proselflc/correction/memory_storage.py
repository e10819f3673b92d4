"""How remembered rows [n, C] are kept: whole, in half precision, or by their largest classes.

A storage reads and writes rows [N, C] by their positions and knows nothing of examples.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Literal, TypeAlias

import torch
from torch import Tensor, nn

Kind: TypeAlias = Literal["dense", "half", "top"]

KINDS: tuple[Kind, ...] = ("dense", "half", "top")  # from the most exact to the smallest
TOP = 5  # classes of a row that `TopClasses` keeps
# The buffer by which a saved state of each kind is recognised.
MARK: dict[Kind, str] = {"dense": "average", "half": "average16", "top": "shares"}
WHAT: dict[Kind, str] = {
    "dense": "float32",
    "half": "float16",
    "top": f"the {TOP} largest classes, the given class and the sum of the others",
}
_TURN = 0.6180339887498949  # of the golden ratio: its multiples mod 1 fill [0, 1) evenly
_CUT = 13  # bits of a float32 that a float16 lacks


class Storage(nn.Module):
    """Rows [n, C] of numbers in [0, 1], which are 0 at first.

    Args:
        n: number of rows.
        given: [n] the given class of every row, if known.
    """

    kind: Kind
    given: Tensor | None  # [n] int16, or int32 for many classes

    def __init__(self, n: int, num_classes: int, given: Tensor | None) -> None:
        super().__init__()
        self.num_rows, self.num_classes = n, num_classes
        if given is not None:
            given = given.to(_id_type(num_classes))
        self.register_buffer("given", given, persistent=False)  # it is part of the data

    @abstractmethod
    def read(self, rows: Tensor) -> Tensor:
        """Return the rows [N, C] at positions [N]."""

    @abstractmethod
    def write(self, rows: Tensor, values: Tensor, threshold: Tensor | None) -> None:
        """Replace the rows at positions [N] by values [N, C].

        With thresholds [N], half precision is rounded so that the errors of successive updates
        cancel (see `rounded`); without, to the nearest.
        """

    @abstractmethod
    def reset(self, *, to_labels: bool) -> None:
        """Make every row 0, or the one-hot of its given class."""


class Dense(Storage):
    """Every number of every row, in float32 or float16."""

    def __init__(
        self, kind: Literal["dense", "half"], n: int, num_classes: int, given: Tensor | None
    ) -> None:
        super().__init__(n, num_classes, given)
        self.kind = kind
        dtype = torch.half if kind == "half" else torch.float32
        self.register_buffer(MARK[kind], torch.zeros(n, num_classes, dtype=dtype))

    @property
    def all_rows(self) -> Tensor:
        """Return the buffer [n, C]."""
        return self.get_buffer(MARK[self.kind])

    def read(self, rows: Tensor) -> Tensor:
        values = self.all_rows[rows]
        return values.float() if values.dtype == torch.half else values

    def write(self, rows: Tensor, values: Tensor, threshold: Tensor | None) -> None:
        # Where a position repeats, so does its row.
        self.all_rows[rows] = rounded(values, self.all_rows.dtype, threshold)

    def reset(self, *, to_labels: bool) -> None:
        self.all_rows.zero_()
        if to_labels:
            assert self.given is not None
            self.all_rows.scatter_(1, self.given[:, None].long(), 1.0)


class TopClasses(Storage):
    """The five largest classes of a row, the given class, and the sum of all others.

    The sum is spread evenly over the others. What is left of a class that falls out of the five is
    its share of the sum; the given class is kept always, and so its updates are those of `Dense`.
    """

    kind = "top"
    classes: Tensor  # [n, 5] int16, or int32 for many classes
    shares: Tensor  # [n, 5] float16
    of_given: Tensor  # [n] float16
    others: Tensor  # [n] float16, the sum

    def __init__(self, n: int, num_classes: int, given: Tensor | None) -> None:
        super().__init__(n, num_classes, given)
        k = min(TOP, num_classes)
        self.register_buffer("classes", torch.zeros(n, k, dtype=_id_type(num_classes)))
        self.register_buffer("shares", torch.zeros(n, k, dtype=torch.half))
        self.register_buffer("others", torch.zeros(n, dtype=torch.half))
        if given is not None:
            self.register_buffer("of_given", torch.zeros(n, dtype=torch.half))

    def read(self, rows: Tensor) -> Tensor:
        classes = self.classes[rows].long()
        number: Tensor | int = self.num_classes - classes.size(1)  # of the other classes
        if self.given is not None:
            y = self.given[rows].long()[:, None]
            number = number - (classes != y).all(1).long()
        each = self.others[rows].float() / torch.as_tensor(number).clamp(min=1)
        values = each[:, None].repeat(1, self.num_classes)
        if self.given is not None:
            values.scatter_(1, y, self.of_given[rows].float()[:, None])
        return values.scatter_(1, classes, self.shares[rows].float())

    def write(self, rows: Tensor, values: Tensor, threshold: Tensor | None) -> None:
        shares, classes = values.topk(self.classes.size(1))
        others = values.sum(1) - shares.sum(1)
        if self.given is not None:
            y = self.given[rows].long()[:, None]
            p_y = values.gather(1, y)[:, 0]
            others = torch.where((classes != y).all(1), others - p_y, others)
            self.of_given[rows] = rounded(p_y, self.of_given.dtype, threshold)
        self.classes[rows] = classes.to(self.classes.dtype)
        self.shares[rows] = rounded(shares, self.shares.dtype, threshold)
        self.others[rows] = rounded(others.clamp(min=0), self.others.dtype, threshold)

    def reset(self, *, to_labels: bool) -> None:
        for buffer in (self.classes, self.shares, self.others):
            buffer.zero_()
        if self.given is None:
            return
        self.of_given.fill_(float(to_labels))
        if to_labels:
            self.shares[:, 0] = 1
            k = torch.arange(self.classes.size(1), device=self.given.device)
            # The given class, and any others, each of them once.
            self.classes.copy_((self.given[:, None] + k) % self.num_classes)


def bytes_per_example(kind: Kind, num_classes: int) -> int:
    """Return the bytes of a row, those of the given class and of the count included."""
    if kind == "top":
        k, of_id = min(TOP, num_classes), _id_type(num_classes).itemsize
        return k * (2 + of_id) + of_id + 2 + 2 + 4
    return (4 if kind == "dense" else 2) * num_classes + 4


def _id_type(num_classes: int) -> torch.dtype:
    return torch.int16 if num_classes <= 2**15 else torch.int32


def thresholds(index: Tensor, updates: Tensor) -> Tensor:
    """Return [N] numbers in [0, 1) that are spread evenly over the updates of each example."""
    phase: Tensor = torch.frac((updates.double() + index.double() * _TURN) * _TURN)
    return phase


def rounded(values: Tensor, dtype: torch.dtype, threshold: Tensor | None) -> Tensor:
    """Return values [N] or [N, k] in the dtype.

    With a threshold [N], float16 is rounded up where the part that it cannot hold exceeds
    1 − threshold. An average moves by less than the spacing of float16 in a late update, so that
    rounding to the nearest would stop it for ever.
    """
    if threshold is None or dtype != torch.half:
        return values.to(dtype)
    part = (threshold * 2**_CUT).int().reshape(-1, *(1,) * (values.dim() - 1))
    bits = values.float().contiguous().view(torch.int32) + part
    kept: Tensor = bits & -(2**_CUT)
    return kept.view(torch.float32).half()
