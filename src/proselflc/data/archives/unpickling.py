"""Data pickles read without running them.

A pickle is a program. CIFAR's python-2 pickles use a small part of its language: numbers, strings,
lists, dictionaries and numpy arrays. This reader knows that part alone, so a pickle that asks for
anything else has nobody to ask. It does not lean on `pickle.Unpickler`: the C one sizes its memo by
a number from the file, and numpy's own `dtype.__setstate__` believes flags that turn bytes into
pointers. Arrays are therefore built here, from their parts, after checking them.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from proselflc.errors import InputError

_KINDS = frozenset({"b1", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8"})
_LONGEST_NAME = 200


class DtypeParts:
    """Stands for `numpy.dtype` while a pickle is read: plain numbers only."""

    __slots__ = ("kind", "order")

    def __init__(self, kind: object, align: object = False, copy: object = True) -> None:
        text = kind.decode("latin1") if isinstance(kind, bytes) else kind
        if not isinstance(text, str) or text not in _KINDS:
            # The text itself is shown only if it is one: anything else may nest without end.
            shown = repr(text[:20]) if isinstance(text, str) else type(text).__name__
            raise ValueError(f"arrays of type {shown}")
        self.kind = text
        self.order = "="

    def __setstate__(self, state: object) -> None:
        """Take the byte order; the rest of numpy's state describes types that are not read."""
        if not isinstance(state, tuple) or len(state) < 5 or any(x is not None for x in state[2:5]):
            raise ValueError("an array type with fields or subarrays")
        order = state[1].decode("latin1") if isinstance(state[1], bytes) else state[1]
        if order not in ("<", ">", "|", "="):
            raise ValueError("an array type of unknown byte order")
        self.order = "=" if order == "|" else order


class ArrayParts:
    """Stands for `numpy.ndarray` while a pickle is read."""

    __slots__ = ("array",)

    def __init__(self) -> None:
        self.array: npt.NDArray[Any] | None = None

    def __setstate__(self, state: object) -> None:
        """Build the array from (version, shape, dtype, is_fortran, bytes) if they agree."""
        if not isinstance(state, tuple) or len(state) != 5:
            raise ValueError("an array of unknown layout")
        _, shape, dtype, fortran, raw = state
        if not isinstance(shape, tuple) or not all(type(s) is int and s >= 0 for s in shape):
            raise ValueError("an array without a shape")
        if len(shape) > 8 or not isinstance(dtype, DtypeParts) or not isinstance(raw, bytes):
            raise ValueError("an array without type or bytes")
        kind = np.dtype(dtype.order + dtype.kind)
        if math.prod(shape) * kind.itemsize != len(raw):
            raise ValueError(f"an array of shape {shape} in {len(raw)} bytes")
        values = np.frombuffer(raw, dtype=kind)
        self.array = values.reshape(shape, order="F" if fortran else "C")


def _reconstruct(*_: object) -> ArrayParts:
    return ArrayParts()


def _encode(text: object, encoding: object = "latin1") -> bytes:
    """Python 3 spells bytes in protocol 2 as latin-1 text."""
    if not isinstance(text, str) or encoding not in ("latin1", "latin-1"):
        raise ValueError("bytes that are not latin-1 text")
    return text.encode("latin1")


STAND_INS: Mapping[str, Callable[..., object]] = {
    "numpy.core.multiarray._reconstruct": _reconstruct,
    "numpy._core.multiarray._reconstruct": _reconstruct,
    "numpy.ndarray": ArrayParts,
    "numpy.dtype": DtypeParts,
    "_codecs.encode": _encode,
}
"""The only names a data pickle may use, and what they mean here."""


def loads(data: bytes, what: str) -> object:
    """The value in a pickle made of numbers, strings, lists, dictionaries and numpy arrays.

    Args:
        data: the whole pickle, protocol 2 to 4.
        what: the file's name for messages.

    Returns:
        The value. Python-2 strings come as bytes, arrays as `ArrayParts` (see `array_of`).

    Raises:
        InputError: the pickle is damaged, or asks for anything else, which is named.
    """
    try:
        return _Machine(data, what).run()
    except InputError:
        raise
    except (LookupError, TypeError, ValueError, struct.error, RecursionError) as error:
        raise InputError(
            f"{what} is not a data pickle or is damaged ({error}): get it again from its "
            "official page"
        ) from error


def array_of(value: object, what: str) -> npt.NDArray[Any]:
    """The array that a value of a pickle holds; lists of whole numbers count as arrays."""
    if isinstance(value, ArrayParts) and value.array is not None:
        return value.array
    if isinstance(value, list) and all(type(v) is int and abs(v) < 1 << 62 for v in value):
        return np.array(value, dtype=np.int64)
    raise InputError(
        f"{what} should be an array or a list of whole numbers, but a {type(value).__name__} came: "
        "get the file again from its official page"
    )


def refuse(name: str, what: str) -> NoReturn:
    """Say that a pickle wanted a name it may not have."""
    shown = name if name.isprintable() else ascii(name)
    raise InputError(
        f'{what} is refused: this pickle asks for "{shown[:_LONGEST_NAME]}", but a data file needs '
        "only numbers, text and numpy arrays; do not use this copy, get it from its official page"
    )


class _Machine:
    """The part of the pickle language that holds data.

    `stack` is the open container's items, `outer` the ones below each mark. The memo is a
    dictionary, so its size is that of what is in it whatever index the file names.
    """

    def __init__(self, data: bytes, what: str) -> None:
        self.data = data
        self.what = what
        self.at = 0
        self.stack: list[Any] = []
        self.outer: list[list[Any]] = []
        self.memo: dict[int, Any] = {}

    def run(self) -> object:
        data = self.data
        while True:
            at = self.at
            code = data[at]
            # Three instructions are 99 % of a CIFAR file: written out, they cost a third.
            if code == 0x4B:  # BININT1
                self.stack.append(data[at + 1])
                self.at = at + 2
            elif code == 0x55:  # SHORT_BINSTRING
                self.at = at + 2
                self.stack.append(self.take(data[at + 1]))
            elif code == 0x72:  # LONG_BINPUT
                self.at = at + 1
                self.memo[int.from_bytes(self.take(4), "little")] = self.stack[-1]
            elif code == 0x2E:  # STOP
                return self.stack.pop()
            else:
                self.at = at + 1
                step = _STEPS.get(code)
                if step is None:
                    raise ValueError(f"instruction {bytes([code])!r} at byte {at}")
                step(self)

    def take(self, size: int) -> bytes:
        """The next `size` bytes, which must be there."""
        end = self.at + size
        if size < 0 or end > len(self.data):
            raise ValueError(f"{size} bytes wanted at byte {self.at} of {len(self.data)}")
        taken = self.data[self.at : end]
        self.at = end
        return taken

    def number(self, form: str) -> int:
        value: int = struct.unpack(form, self.take(struct.calcsize(form)))[0]
        return value

    def line(self) -> str:
        end = self.data.index(b"\n", self.at, self.at + 1000)
        return self.take(end + 1 - self.at)[:-1].decode("latin1")

    def items(self) -> list[Any]:
        """What came since the last mark."""
        items, self.stack = self.stack, self.outer.pop()
        return items

    def mark(self) -> None:
        self.outer.append(self.stack)
        self.stack = []

    def tuple_of(self, count: int) -> None:
        if len(self.stack) < count:
            raise ValueError("a tuple of what is not there")
        self.stack[-count:] = [tuple(self.stack[-count:])]

    def put(self, key: int) -> None:
        self.memo[key] = self.stack[-1]

    def extend(self, items: list[Any]) -> None:
        if type(self.stack[-1]) is not list:
            raise ValueError("items for what is not a list")
        self.stack[-1].extend(items)

    def update(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if type(target) is not dict or len(items) % 2:
            raise ValueError("pairs for what is not a dictionary")
        for key, value in zip(items[::2], items[1::2], strict=True):
            # Hashing deeply nested tuples overflows the C stack, and data needs no such keys.
            if type(key) not in (str, bytes, int):
                raise ValueError(f"a {type(key).__name__} as a dictionary's key")
            target[key] = value

    def name(self, module: object, name: object) -> None:
        full = f"{module}.{name}"
        if full not in STAND_INS:
            refuse(full, self.what)
        self.stack.append(STAND_INS[full])

    def name_on_stack(self) -> None:
        name, module = self.stack.pop(), self.stack.pop()
        if type(name) is not str or type(module) is not str:
            raise ValueError("a name that is not text")
        self.name(module, name)

    def instance(self) -> None:
        self.name(self.line(), self.line())
        raise ValueError("an instance")

    def call(self) -> None:
        arguments, function = self.stack.pop(), self.stack.pop()
        if not any(function is known for known in STAND_INS.values()):
            raise ValueError("a call of what is not a function")
        if type(arguments) is not tuple:
            raise ValueError("a call without arguments")
        self.stack.append(function(*arguments))

    def build(self) -> None:
        state, target = self.stack.pop(), self.stack[-1]
        if type(target) not in (ArrayParts, DtypeParts):
            raise ValueError("a state for what is not an array")
        target.__setstate__(state)

    def long(self, size: int) -> None:
        self.stack.append(int.from_bytes(self.take(size), "little", signed=True))


def _push(value: Callable[[_Machine], object]) -> Callable[[_Machine], None]:
    def step(m: _Machine) -> None:
        pushed = value(m)  # first: it may close the container that is the stack now
        m.stack.append(pushed)

    return step


_STEPS: dict[int, Callable[[_Machine], object]] = {
    ord("\x80"): lambda m: m.take(1),  # PROTO
    ord("\x95"): lambda m: m.take(8),  # FRAME
    ord("("): _Machine.mark,
    ord("N"): _push(lambda m: None),
    ord("\x88"): _push(lambda m: True),
    ord("\x89"): _push(lambda m: False),
    ord("M"): _push(lambda m: m.number("<H")),  # BININT2
    ord("J"): _push(lambda m: m.number("<i")),  # BININT
    ord("\x8a"): lambda m: m.long(m.take(1)[0]),  # LONG1
    ord("T"): _push(lambda m: m.take(m.number("<i"))),  # BINSTRING
    ord("C"): _push(lambda m: m.take(m.take(1)[0])),  # SHORT_BINBYTES
    ord("B"): _push(lambda m: m.take(m.number("<I"))),  # BINBYTES
    ord("\x8e"): _push(lambda m: m.take(m.number("<Q"))),  # BINBYTES8
    ord("\x8c"): _push(lambda m: m.take(m.take(1)[0]).decode()),  # SHORT_BINUNICODE
    ord("X"): _push(lambda m: m.take(m.number("<I")).decode()),  # BINUNICODE
    ord("]"): _push(lambda m: []),
    ord("}"): _push(lambda m: {}),
    ord(")"): _push(lambda m: ()),
    ord("t"): _push(lambda m: tuple(m.items())),
    ord("\x85"): lambda m: m.tuple_of(1),
    ord("\x86"): lambda m: m.tuple_of(2),
    ord("\x87"): lambda m: m.tuple_of(3),
    ord("a"): lambda m: m.extend([m.stack.pop()]),  # APPEND
    ord("e"): lambda m: m.extend(m.items()),  # APPENDS
    ord("s"): lambda m: m.update([m.stack.pop(), m.stack.pop()][::-1]),  # SETITEM
    ord("u"): lambda m: m.update(m.items()),  # SETITEMS
    ord("q"): lambda m: m.put(m.take(1)[0]),  # BINPUT
    ord("\x94"): lambda m: m.put(len(m.memo)),  # MEMOIZE
    ord("h"): _push(lambda m: m.memo[m.take(1)[0]]),  # BINGET
    ord("j"): _push(lambda m: m.memo[m.number("<I")]),  # LONG_BINGET
    ord("c"): lambda m: m.name(m.line(), m.line()),  # GLOBAL
    ord("\x93"): _Machine.name_on_stack,  # STACK_GLOBAL
    ord("i"): _Machine.instance,  # INST, so that what it asks for is named
    ord("R"): _Machine.call,  # REDUCE
    ord("b"): _Machine.build,  # BUILD
}
