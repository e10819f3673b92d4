"""Ways to damage files that are not text: arrays, tensors, Parquet, archives, pictures."""

from __future__ import annotations

import ast
import io
import struct
import tarfile
import warnings
import zipfile
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from fuzzing.mutations import (
    BYTES,
    JSON,
    JSONL,
    TEXT,
    TOML,
    Change,
    Random,
    flip_bits,
    json_value,
)

# numpy's files


def npy_parts(content: bytes) -> tuple[dict[str, Any], bytes] | None:
    """Return header and data of an `.npy` file, or None if it is not one."""
    if content[:6] != b"\x93NUMPY" or len(content) < 10:
        return None
    (length,) = struct.unpack("<H", content[8:10])
    header = ast.literal_eval(content[10 : 10 + length].decode("latin-1"))
    return header, content[10 + length :]


def npy_joined(header: str, data: bytes, version: int = 1, length: int | None = None) -> bytes:
    """Return an `.npy` file with this header."""
    encoded = header.encode("latin-1", "replace") + b"\n"
    encoded = encoded[:60000]
    said = len(encoded) if length is None else length
    return b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H", said & 0xFFFF) + encoded + data


def npy_header(content: bytes, draw: Random) -> bytes:
    """Return an `.npy` file with a different header."""
    parts = npy_parts(content)
    if parts is None:
        return flip_bits(content, draw)
    header, data = parts
    shape = tuple(header["shape"])
    how = draw.randrange(8)
    if how <= 2:
        header["shape"] = draw.choice(
            (
                *((), (0,), (1,), (-1,), (2**40,), (2**62,), (2**31, 2**31, 2**31), (*shape, 1)),
                *((1, *shape), shape[::-1], tuple(2 * k for k in shape), (None,), "x", 3, (0.5,)),
                *((True,), [3], shape[:-1], (10**30,), (1,) * 65),
            )
        )
    elif how <= 5:
        header["descr"] = draw.choice(
            (
                *("|O", "<f8", "<f4", ">f4", "<i8", "<U1000", "<U5", "|S3", "|V4", "<M8[s]", "|b1"),
                *("<c16", "", "x", None, 7, [("a", "<f4")], [("a", "|O")], [("a", "<f4", (3,))]),
                *([("p_given", "<f2")] * 2, ["<f4"], {"names": ["a"]}, "<f" + "9" * 50, "<f2"),
            )
        )
    elif how == 6:
        header["fortran_order"] = draw.choice((True, None, 1, "yes"))
    else:
        key = draw.choice(("shape", "descr", "fortran_order", "extra"))
        if key in header:
            del header[key]
        else:
            header[key] = 1
    return npy_joined(repr(header), data)


def npy_text(content: bytes, draw: Random) -> bytes:
    """Return an `.npy` file whose header is not a valid Python literal."""
    parts = npy_parts(content)
    if parts is None:
        return flip_bits(content, draw)
    header, data = parts
    text = repr(header)
    odd = draw.choice(
        (
            *("{", "(" * 3000, "[" * 5000 + "]" * 5000, "'''", "{'descr': ", "1", "()", "[]", ""),
            *(
                "__import__('os').system('true')",
                "{" + "1:1," * 5000 + "}",
                "\\",
                "'\\N{x}'",
                "-" * 9000,
            ),
            *(text.replace(":", ""), text[:-1], text.replace("'", '"""'), text + "\nimport os"),
            *("{'shape': " + "(" * 500 + ")" * 500 + "}", "\t\n  \x00", "0777", "if 1:\n x\n  y"),
        )
    )
    version = draw.choice((1, 1, 1, 2, 3, 9))
    return npy_joined(odd, data, version, draw.choice((None, None, 0, 65535)))


def npy_data(content: bytes, draw: Random) -> bytes:
    """Return an `.npy` file with other numbers: not finite, extreme or zero."""
    try:
        array = np.load(io.BytesIO(content), allow_pickle=False).copy()
    except (ValueError, OSError, EOFError):
        return flip_bits(content, draw)
    if array.size == 0:
        return flip_bits(content, draw)
    flat = array.reshape(-1)
    some = slice(None) if draw.random() < 0.3 else draw.randrange(flat.size)
    fields = array.dtype.names
    target = flat[draw.choice(fields)] if fields else flat
    if target.dtype.kind == "f":
        target[some] = draw.choice((np.nan, np.inf, -np.inf, -1, 2, 0, np.finfo(target.dtype).max))
    elif target.dtype.kind in "iu":
        limits = np.iinfo(target.dtype)
        target[some] = draw.choice((limits.min, limits.max, 0, 1))
    elif target.dtype.kind == "b":
        target[some] = draw.random() < 0.5
    else:
        target[some] = draw.choice(("", "x", "\x1b[2J", "../../outside"))
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


NPY: tuple[Change, ...] = (*(npy_header,) * 8, *(npy_text,) * 4, *(npy_data,) * 6, *BYTES)


def zip_member(content: bytes, draw: Random) -> bytes:
    """Return a zip file of arrays with a member damaged, removed, doubled, renamed or added."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = [(name, archive.read(name)) for name in archive.namelist()]
    except (zipfile.BadZipFile, OSError):
        return flip_bits(content, draw)
    k, how = draw.randrange(len(members)), draw.randrange(12)
    name, data = members[k]
    packing = draw.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
    if how == 0:
        del members[k]
    elif how == 1:
        members.append((name, data))
    elif how == 2:
        odd = ("../../outside/x.npy", "/x.npy", "x", "", "a\0b.npy", name.upper(), "y" * 60000)
        members[k] = (draw.choice(odd), data)
    elif how == 3:
        members.append(
            (draw.choice(("surprise.npy", "x.txt", "a/b.npy")), draw.choice((data, b"")))
        )
    elif how == 4:  # it becomes 40 MB when it is unpacked
        members[k] = (name, data + bytes(40 << 20))
        packing = zipfile.ZIP_DEFLATED
    elif how == 5:
        other = draw.randrange(len(members))
        members[k] = (name, members[other][1])
    else:
        members[k] = (name, draw.choice(NPY)(data, draw))
    return _zipped(members, packing)


def _zipped(members: Sequence[tuple[str, bytes]], packing: int) -> bytes:
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a name is there twice is what is wanted
        with zipfile.ZipFile(buffer, "w", packing) as archive:
            for name, data in members:
                archive.writestr(zipfile.ZipInfo(name), data, packing)
    return buffer.getvalue()


def zip_directory(content: bytes, draw: Random) -> bytes:
    """Return a zip file with a wrong directory: flags, sizes, methods, offsets."""
    at = content.rfind(b"PK\x01\x02") if draw.random() < 0.7 else content.find(b"PK\x03\x04")
    if at < 0:
        return flip_bits(content, draw)
    at += draw.randrange(4, 46)
    number = draw.choice((b"\x01", b"\xff\xff", b"\xff\xff\xff\xff", b"\0\0", b"\x63\0", b"\x0c"))
    return content[:at] + number + content[at + len(number) :]


NPZ: tuple[Change, ...] = (*(zip_member,) * 14, *(zip_directory,) * 5, *BYTES)


# Tensors


def safetensors_header(content: bytes, draw: Random) -> bytes:
    """Return a safetensors file with a different header."""
    (length,) = struct.unpack("<Q", content[:8])
    header = json_value(content[8 : 8 + length], draw)
    said = draw.choice((len(header),) * 6 + (0, len(header) + 1, 2**63, 100_000_001))
    return struct.pack("<Q", said) + header + content[8 + length :]


def safetensors_data(content: bytes, draw: Random) -> bytes:
    """Return a safetensors file with other numbers."""
    (length,) = struct.unpack("<Q", content[:8])
    start = 8 + length + 4 * draw.randrange(max(1, (len(content) - 8 - length) // 4))
    number = struct.pack("<f", draw.choice((float("nan"), float("inf"), 1e38, -1.0, 0.0)))
    return content[:start] + number + content[start + 4 :]


SAFETENSORS: tuple[Change, ...] = (
    *(safetensors_header,) * 8,
    *(safetensors_data,) * 6,
    *BYTES,
)


# Parquet


def parquet_table(content: bytes, draw: Random) -> bytes:
    """Return a valid Parquet table with unexpected content."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(pa.BufferReader(content))
    except (pa.ArrowException, OSError):
        return flip_bits(content, draw)
    n, how = table.num_rows, draw.randrange(12)
    name = draw.choice(table.column_names) if table.column_names else None
    if name is None or n == 0:
        return flip_bits(content, draw)
    k = table.column_names.index(name)
    if how == 0:
        table = table.drop_columns([name])
    elif how == 1:
        table = table.slice(0, draw.choice((0, 1, n // 2, n - 1)))
    elif how == 2:
        table = pa.concat_tables([table, table])
    elif how == 3:
        table = table.set_column(k, name, pa.nulls(n, table.schema.field(k).type))
    elif how == 4:
        odd = draw.choice(("", "x", "\x1b[2J", "../../outside", "=1+1"))
        table = table.set_column(k, name, pa.array([odd] * n))
    elif how == 5:
        odd_number = draw.choice((float("nan"), float("inf"), -1.0, 1e300))
        table = table.set_column(k, name, pa.array([odd_number] * n))
    elif how == 6:
        table = table.set_column(k, name, pa.array(range(n), pa.int64()))
    elif how == 7:
        table = table.set_column(k, name, pa.array([[1]] * n))
    elif how == 8:
        table = table.take(pa.array(draw.sample(range(n), n)))
    elif how == 9:
        names = list(table.column_names)
        names[k] = draw.choice(("", "surprise", names[0]))
        table = table.rename_columns(names)
    elif how == 10:
        table = table.set_column(k, name, pa.array([True] * n))
    else:
        table = table.set_column(k, name, pa.array([{"a": 1}] * n))
    buffer = io.BytesIO()
    pq.write_table(table, buffer)
    return buffer.getvalue()


PARQUET: tuple[Change, ...] = (*(parquet_table,) * 10, *BYTES)


# Pickles, archives, pictures


def pickle_code(content: bytes, draw: Random) -> bytes:
    """Return a pickle that calls something, or whose opcodes give wrong lengths."""
    calls = (
        b"cos\nsystem\n(S'touch outside/executed'\ntR.",
        b'cbuiltins\neval\n(S\'open("outside/executed","w")\'\ntR.',
        b"\x80\x02c__builtin__\ngetattr\n.",
        b"\x80\x04\x95" + b"\xff" * 8 + b".",
        b"\x80\x02U\xffabc.",
        b"\x80\x02T\xff\xff\xff\x7fabc.",
        b"\x80\x02" + b"]" * 20000 + b".",
        b"\x80\x02(((((((" + b"t" * 8 + b".",
        b"\x80\x02}q\x01h\x02.",
        b"\x80\x02\x8a\xff" + b"\xff" * 255 + b".",
        b"\x80\x02F1e999\n.",
        b"\x80\x02I" + b"9" * 6000 + b"\n.",
        b"\x80\x02\x96" + b"\xff" * 8 + b".",
    )
    return draw.choice(calls)


PICKLE: tuple[Change, ...] = (*(pickle_code,) * 3, *BYTES)


def tar_members(content: bytes, draw: Random) -> bytes:
    """Return an archive with a link, a device, or a name that leaves the folder."""
    buffer = io.BytesIO()
    try:
        with tarfile.open(fileobj=io.BytesIO(content)) as old:
            members = [(info, old.extractfile(info)) for info in old.getmembers()]
            contents = [(info, b"" if file is None else file.read()) for info, file in members]
    except (tarfile.TarError, OSError, EOFError, ValueError):
        return flip_bits(content, draw)
    k, how = draw.randrange(len(contents)), draw.randrange(8)
    info, data = contents[k]
    if how == 0:
        info.name = draw.choice(("../../outside/x", "/etc/x", "", "x" * 300, "a/../../b", "é\n"))
    elif how == 1:
        info.type = draw.choice((tarfile.SYMTYPE, tarfile.LNKTYPE))
        info.linkname, data = "../outside/canary", b""
    elif how == 2:
        info.type, data = draw.choice((tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.DIRTYPE)), b""
    elif how == 3:
        contents.append((info, data))
    elif how == 4:
        del contents[k]
    elif how == 5:
        data = draw.choice(BYTES)(data, draw)
    elif how == 6:
        data = bytes(1 << 20)
    else:
        draw.shuffle(contents)
    if how not in (3, 4, 7):
        contents[k] = (info, data)
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as new:
        for one, held in contents:
            one.size = len(held)
            new.addfile(one, io.BytesIO(held))
    return buffer.getvalue()


TAR: tuple[Change, ...] = (*(tar_members,) * 8, *BYTES)


def png_size(content: bytes, draw: Random) -> bytes:
    """Return a picture whose header claims another size."""
    if content[12:16] != b"IHDR":
        return flip_bits(content, draw)
    sides = [draw.choice((0, 1, 7, 20_000, 100_000, 2**31 - 1)) for _ in range(2)]
    header = b"IHDR" + struct.pack(">II", *sides) + content[24:29]
    return content[:12] + header + struct.pack(">I", zlib.crc32(header)) + content[33:]


PICTURE: tuple[Change, ...] = (*(png_size,) * 4, *BYTES)


def idx_header(content: bytes, draw: Random) -> bytes:
    """Return an idx file with a different header."""
    at = draw.choice((2, 3, 4, 5, 7, 8, 11))
    number = draw.choice((b"\0", b"\x01", b"\xff", b"\x7f\xff\xff\xff", b"\xff" * 8, b"\x0d"))
    return content[:at] + number + content[at + len(number) :]


IDX: tuple[Change, ...] = (*(idx_header,) * 6, *BYTES)

FORMATS: dict[str, tuple[Change, ...]] = {
    "bytes": BYTES,
    "json": JSON,
    "jsonl": JSONL,
    "toml": TOML,
    "text": TEXT,
    "npy": NPY,
    "npz": NPZ,
    "safetensors": SAFETENSORS,
    "parquet": PARQUET,
    "pickle": PICKLE,
    "tar": TAR,
    "picture": PICTURE,
    "idx": IDX,
}
