"""Pickles that hold data: numbers, text, lists, dictionaries and numpy arrays.

A pickle is a program that may import and call anything. The readers here resolve the five names
that numpy arrays need, and refuse every other by its name. They do not hand out numpy's own
functions either: `dtype.__setstate__` believes flags that turn bytes into pointers. Arrays are
built from their checked parts instead.
"""

from __future__ import annotations

import io
import math
import pickle
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from proselflc.errors import InputError

_KINDS = frozenset({"b1", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8"})


class PickledDtype:
    """The `numpy.dtype` of a pickle: the type of plain numbers only."""

    __slots__ = ("kind", "order")

    def __init__(self, kind: object, align: object = False, copy: object = True) -> None:
        text = kind.decode("latin1") if isinstance(kind, bytes) else kind
        if not isinstance(text, str) or text not in _KINDS:
            # Only text is shown: other values may be nested without end.
            shown = repr(text[:20]) if isinstance(text, str) else type(text).__name__
            raise ValueError(f"arrays of type {shown}")
        self.kind = text
        self.order = "="

    def __setstate__(self, state: object) -> None:
        """Take the byte order; the rest of the state describes types that are not read."""
        if not isinstance(state, tuple) or len(state) < 5 or any(x is not None for x in state[2:5]):
            raise ValueError("an array type with fields or subarrays")
        order = state[1].decode("latin1") if isinstance(state[1], bytes) else state[1]
        if order not in ("<", ">", "|", "="):
            raise ValueError("an array type of unknown byte order")
        self.order = "=" if order == "|" else order


class PickledArray:
    """The `numpy.ndarray` of a pickle."""

    __slots__ = ("array",)

    def __init__(self) -> None:
        self.array: npt.NDArray[Any] | None = None

    def __setstate__(self, state: object) -> None:
        """Build the array from (version, shape, dtype, is_fortran, bytes) if these agree."""
        if not isinstance(state, tuple) or len(state) != 5:
            raise ValueError("an array of unknown layout")
        _, shape, dtype, fortran, raw = state
        if not isinstance(shape, tuple) or not all(type(s) is int and s >= 0 for s in shape):
            raise ValueError("an array without a shape")
        if len(shape) > 8 or not isinstance(dtype, PickledDtype) or not isinstance(raw, bytes):
            raise ValueError("an array without type or bytes")
        kind = np.dtype(dtype.order + dtype.kind)
        if math.prod(shape) * kind.itemsize != len(raw):
            raise ValueError(f"an array of shape {shape} in {len(raw)} bytes")
        self.array = np.frombuffer(raw, kind).reshape(shape, order="F" if fortran else "C")


def _reconstruct(*_: object) -> PickledArray:
    return PickledArray()


def _encode(text: object, encoding: object = "latin1") -> bytes:
    """Return the bytes that Python 3 writes as latin-1 text in protocol 2."""
    if not isinstance(text, str) or encoding not in ("latin1", "latin-1"):
        raise ValueError("bytes that are not latin-1 text")
    return text.encode("latin1")


ALLOWED: Mapping[str, Callable[..., object]] = {
    "numpy.core.multiarray._reconstruct": _reconstruct,
    "numpy._core.multiarray._reconstruct": _reconstruct,
    "numpy.ndarray": PickledArray,
    "numpy.dtype": PickledDtype,
    "_codecs.encode": _encode,
}
"""The only names a data pickle may use, and what they stand for."""


class _DataUnpickler(pickle.Unpickler):
    def __init__(self, data: bytes, source: str) -> None:
        super().__init__(io.BytesIO(data), encoding="bytes")
        self._source = source

    def find_class(self, module: str, name: str) -> Any:
        full = f"{module}.{name}"
        if full not in ALLOWED:
            raise forbidden_name(full, self._source)
        return ALLOWED[full]


def unpickle(data: bytes, source: str) -> object:
    """Return the value in a data pickle whose checksum was compared.

    No pickle can execute code here, but one made for it can exhaust memory.

    Returns:
        The value; text of Python 2 is bytes, and an array is a `PickledArray`.
    """
    try:
        return _DataUnpickler(data, source).load()
    except InputError:
        raise
    except Exception as error:  # pickle raises nearly anything for damaged bytes
        reason = str(error).partition("\n")[0][:200] or type(error).__name__
        raise InputError(
            f"{source} is not a data pickle or is damaged ({reason})",
            fix="download it again from its official page",
        ) from error


def to_array(value: object, source: str) -> npt.NDArray[Any]:
    """Return the array that a value of a pickle holds; a list of integers counts as one."""
    # A hostile pickle can make one without the attribute.
    if isinstance(value, PickledArray) and getattr(value, "array", None) is not None:
        return value.array  # type: ignore[return-value]
    if isinstance(value, list) and all(type(v) is int and abs(v) < 1 << 62 for v in value):
        return np.array(value, dtype=np.int64)
    raise InputError(
        f"{source} should be an array or a list of integers, got {type(value).__name__}",
        fix="download the file again from its official page",
    )


def forbidden_name(name: str, source: str) -> InputError:
    """Return the error for a pickle that uses a name it may not use."""
    return InputError(
        f'{source} is refused: this pickle asks for "{name[:200]}", but a data file needs only '
        "numbers, text and numpy arrays",
        fix="do not use this copy, download it from its official page",
    )
