"""Data pickles: Python's own reader is the oracle for harmless ones; hostile ones do nothing."""

import os
import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proselflc.data.sources.untrusted import (
    PickledArray,
    to_array,
    unpickle,
)
from proselflc.errors import InputError

PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 70), 1 << 70)
    | st.text()
    | st.binary(min_size=1),
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.dictionaries(st.text() | st.binary(min_size=1) | st.integers(), inner, max_size=5)
        | st.tuples(inner, inner)
        | st.tuples(inner)
        | st.tuples(inner, inner, inner, inner)
    ),
    max_leaves=20,
)


def python2_pickle(labels: list[int], pixels: np.ndarray[Any, np.dtype[np.uint8]]) -> bytes:
    """The bytes that python 2 wrote for CIFAR's dictionaries, instruction by instruction."""

    def text(value: bytes) -> bytes:
        return b"U" + bytes([len(value)]) + value

    raw = pixels.tobytes()
    shape = b"".join(b"M" + struct.pack("<H", s) for s in pixels.shape)
    dtype = b"cnumpy\ndtype\nq\x03" + text(b"u1") + b"K\x00K\x01\x87R"
    dtype += b"(K\x03" + text(b"|") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    array = b"cnumpy.core.multiarray\n_reconstruct\nq\x01cnumpy\nndarray\nq\x02"
    array += b"K\x00\x85" + text(b"b") + b"\x87Rq\x04"
    array += (
        b"(K\x01" + shape + b"\x86" + dtype + b"\x89T" + struct.pack("<i", len(raw)) + raw + b"tb"
    )
    numbers = b"".join(b"K" + bytes([label]) for label in labels)
    body = text(b"labels") + b"](" + numbers + b"e" + text(b"data") + array
    return b"\x80\x02}q\x00(" + body + b"u."


PIXELS = np.arange(12, dtype=np.uint8).reshape(3, 4)
SMALL = python2_pickle([7, 0, 255], PIXELS)


@given(value=PLAIN, protocol=st.integers(2, 4))
@settings(max_examples=150, deadline=None)
def test_plain_values_are_read_as_python_reads_them(value: object, protocol: int) -> None:
    assert unpickle(pickle.dumps(value, protocol), "file") == value


def test_python_2_strings_are_bytes_and_arrays_are_arrays() -> None:
    content = unpickle(SMALL, "file")
    oracle = pickle.loads(SMALL, encoding="bytes")
    assert isinstance(content, dict)
    assert content[b"labels"] == oracle[b"labels"] == [7, 0, 255]
    np.testing.assert_array_equal(to_array(content[b"data"], "data"), oracle[b"data"])
    assert to_array(content[b"data"], "data").dtype == np.uint8
    assert to_array(content[b"labels"], "labels").tolist() == [7, 0, 255]


@pytest.mark.parametrize("protocol", [2, 3, 4])
@pytest.mark.parametrize("kind", ["u1", "<i8", ">i4", "<f4", ">f8", "?", "<u2"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_of_numbers_survive(protocol: int, kind: str, order: Any) -> None:
    array = np.array(np.arange(24).reshape(2, 3, 4) % 7, dtype=kind, order=order)
    read = to_array(unpickle(pickle.dumps(array, protocol), "file"), "array")
    assert read.dtype == array.dtype
    np.testing.assert_array_equal(read, array)


class Calls:
    """Pickles as a call."""

    def __init__(self, function: Any, *arguments: object) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> Any:
        return self.call


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize(
    ("function", "name"),
    [(os.system, "system"), (os.mkdir, "mkdir"), (eval, "eval"), (exec, "exec")],
)
def test_hostile_call_is_refused_by_name_and_not_made(
    function: Any, name: str, protocol: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    argument = {"system": "mkdir made", "mkdir": "made"}.get(name, "__import__('os').mkdir('made')")
    call = Calls(function, argument)
    # The text protocols are not read at all, so there the name must come first to be met.
    hostile = pickle.dumps(call if protocol < 2 else {"data": [1, call]}, protocol)
    with pytest.raises(InputError, match=rf'asks for "\w+\.{name}"') as caught:
        unpickle(hostile, "data_batch_1")
    assert "data_batch_1" in str(caught.value)
    assert list(tmp_path.iterdir()) == []
    pickle.loads(hostile)
    assert [p.name for p in tmp_path.iterdir()] == ["made"], "the sample is not hostile"


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (b"cos\nsystem\n(U\x04truetR.", "os.system"),
        (b"(ios\nsystem\n.", "os.system"),
        (b"\x80\x04\x8c\x02os\x8c\x06system\x93.", "os.system"),
        (b"c__builtin__\neval\n.", "__builtin__.eval"),
        (b"cnumpy.testing._private.utils\nrunstring\n.", "numpy.testing._private.utils.runstring"),
        (b"cnumpy\nload\n.", "numpy.load"),
        (b"cnumpy\nfromfile\n.", "numpy.fromfile"),
        (b"cnumpy.core.multiarray\nscalar\n.", "numpy.core.multiarray.scalar"),
        (b"cnumpy\nndarray.tofile\n.", "numpy.ndarray.tofile"),
        (b"cnumpy.f2py.crackfortran\nmyeval\n.", "numpy.f2py.crackfortran.myeval"),
        (b"ccodecs\nopen\n.", "codecs.open"),
        (b"c\x1b[31m\nx\n.", "x1b[31m.x"),
    ],
)
def test_every_spelling_of_a_name_is_refused_by_name(data: bytes, name: str) -> None:
    with pytest.raises(InputError) as caught:
        unpickle(data, "meta")
    assert name in str(caught.value)
    assert "\x1b" not in str(caught.value)


ARRAY = b"cnumpy.core.multiarray\n_reconstruct\n)R"
DTYPE = b"cnumpy\ndtype\nU\x02u1\x85R"


@pytest.mark.parametrize(
    "data",
    [
        pickle.dumps(np.array([None, {}]), 2),
        pickle.dumps(np.zeros(2, dtype=[("a", "i4")]), 2),
        pickle.dumps(np.array(["2020"], dtype="datetime64[Y]"), 2),
        ARRAY + b"(K\x01J\x00\x00\x00\x40\x85" + DTYPE + b"\x89U\x01xtb.",
        ARRAY + b"(K\x01J\xff\xff\xff\xff\x85" + DTYPE + b"\x89U\x01xtb.",
        DTYPE + b"(K\x03U\x01|U\x01xNNtb.",
        DTYPE + b"(K\x03U\x01!NNNtb.",
        b"]}b.",
        b"cnumpy\nndarray\n}U\x05arrayK\x01sb.",
        b"U\x05arrayK\x01\x85R.",
        b"cnumpy\nndarray\nK\x01\x85R.",
        b"c_codecs\nencode\nX\x01\x00\x00\x00aX\x03\x00\x00\x00rot\x86R.",
        b"T\xff\xff\xff\x7fabc",
        b"T\xff\xff\xff\xffabc",
        b"\x8e\xff\xff\xff\xff\xff\xff\xff\xffabc",
        b"X\x02\x00\x00\x00\xff\xfe.",
        b"Pid\n.",
        b"\x82\x01.",
        b"",
        b".",
        b"t.",
        b"K\x01K\x02\x87.",
        b"h\x05.",
        b"K\x01K\x02a.",
        b"(K\x01u.",
        b"}(K\x01u.",
    ],
)
def test_damage_and_tricks_are_plain_errors(data: bytes) -> None:
    with pytest.raises(InputError, match="official page"):
        unpickle(data, "meta")


def test_stand_ins_cannot_be_changed_by_a_pickle() -> None:
    before = dict(vars(PickledArray))
    with pytest.raises(InputError):
        unpickle(b"cnumpy\nndarray\nN}U\x0c__setstate__K\x01s\x86b.", "meta")
    assert dict(vars(PickledArray)) == before


@pytest.mark.parametrize("value", [3, {}, [1, "2"], [1 << 63], PickledArray(), [True]])
def test_only_arrays_and_lists_of_whole_numbers_are_arrays(value: object) -> None:
    with pytest.raises(InputError, match='"labels" should be an array'):
        to_array(value, '"labels"')


def test_an_array_that_was_never_filled_is_refused() -> None:
    with pytest.raises(InputError, match="should be an array"):
        to_array(unpickle(b"\x80\x02cnumpy\nndarray\n)\x81.", "x"), "x")


def test_a_type_nested_without_end_is_refused() -> None:
    nested = b"\x80\x02cnumpy\ndtype\n)" + b"\x85" * 200_000 + b"\x85R."
    with pytest.raises(InputError):
        unpickle(nested, "a file")
