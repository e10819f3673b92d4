"""Tar archives: what is wanted comes out whole; what is hostile or damaged is a plain error."""

import gzip
import hashlib
import io
import lzma
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proselflc.data.sources.untrusted import read_members
from proselflc.errors import InputError

A, B = os.urandom(70_000), b"names"
WANTED = {"set/a": 100_000, "set/b": 100}
PACK: dict[str, Callable[[bytes], bytes]] = {
    ".tar": bytes,
    ".tar.gz": gzip.compress,
    ".tar.xz": lzma.compress,
}


def tar_of(*entries: tuple[tarfile.TarInfo, bytes | None], form: int = tarfile.PAX_FORMAT) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form) as tar:
        for info, data in entries:
            tar.addfile(info, None if data is None else io.BytesIO(data))
    return buffer.getvalue()


def entry(
    name: str, data: bytes = b"", *, kind: bytes = tarfile.REGTYPE
) -> tuple[tarfile.TarInfo, bytes | None]:
    info = tarfile.TarInfo(name)
    info.type = kind
    info.size = len(data)
    return info, data or None


GOOD = tar_of(
    entry("set", kind=tarfile.DIRTYPE),
    entry("set/readme", b"hello"),
    entry("set/b", B),
    entry("set/a", A),
)


@pytest.fixture
def written(tmp_path: Path) -> Callable[..., Path]:
    def write(data: bytes, suffix: str = ".tar") -> Path:
        path = tmp_path / f"archive{suffix}"
        path.write_bytes(data)
        return path

    return write


@pytest.mark.parametrize("suffix", PACK)
@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_wanted_members_come_in_order_with_their_md5(
    suffix: str, form: int, written: Callable[..., Path]
) -> None:
    tar = tar_of(entry("./set/b", B), entry("set/other", b"x" * 9999), entry("set/a", A), form=form)
    path = written(PACK[suffix](tar), suffix)
    found = list(read_members(path, WANTED))
    assert [(m.name, m.data) for m in found] == [("set/b", B), ("set/a", A)]
    assert [m.md5 for m in found] == [hashlib.md5(d).hexdigest() for d in (B, A)]
    assert [p.name for p in path.parent.iterdir()] == [path.name], "something was extracted"


def test_compression_is_told_by_content_not_by_name(written: Callable[..., Path]) -> None:
    path = written(lzma.compress(GOOD), ".tar.gz")
    assert {m.name for m in read_members(path, WANTED)} == set(WANTED)


@pytest.mark.parametrize("name", ["../evil", "/etc/evil", "set/../../evil", "..\\evil", "set/.."])
def test_path_out_of_the_archive_is_refused_by_name(
    name: str, written: Callable[..., Path]
) -> None:
    path = written(tar_of(entry("set/b", B), entry(name, b"bad"), entry("set/a", A)))
    with pytest.raises(InputError, match="leads out of the archive") as caught:
        list(read_members(path, WANTED))
    assert name in str(caught.value)
    assert sorted(p.name for p in path.parent.iterdir()) == [path.name]


@pytest.mark.parametrize(
    ("kind", "word"),
    [
        (tarfile.SYMTYPE, "link"),
        (tarfile.LNKTYPE, "link"),
        (tarfile.CHRTYPE, "device"),
        (tarfile.BLKTYPE, "device"),
        (tarfile.FIFOTYPE, "device"),
    ],
)
def test_links_and_devices_are_refused(
    kind: bytes, word: str, written: Callable[..., Path]
) -> None:
    info, _ = entry("set/a", kind=kind)
    info.linkname = "/etc/passwd"
    path = written(tar_of((info, None), entry("set/b", B)))
    with pytest.raises(InputError, match=f'"set/a" is a {word}'):
        list(read_members(path, WANTED))


def test_declared_size_is_checked_before_reading(written: Callable[..., Path]) -> None:
    info = tarfile.TarInfo("set/a")
    info.size = 2 << 30
    path = written(info.tobuf() + A)
    with pytest.raises(InputError, match=r"declares 2,147,483,648 bytes, but at most 100,000"):
        list(read_members(path, WANTED))


def test_wanted_member_shorter_than_declared_is_damage(written: Callable[..., Path]) -> None:
    info = tarfile.TarInfo("set/a")
    info.size = 90_000
    with pytest.raises(InputError, match="damaged"):
        list(read_members(written(info.tobuf() + A), WANTED))


def test_second_member_of_a_name_is_refused(written: Callable[..., Path]) -> None:
    path = written(tar_of(entry("set/b", B), entry("set/b", b"other"), entry("set/a", A)))
    with pytest.raises(InputError, match='holds "set/b" twice'):
        list(read_members(path, WANTED))


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress])
def test_bomb_is_left_before_it_unfolds(
    pack: Callable[[bytes], bytes], written: Callable[..., Path]
) -> None:
    zeros = bytes(80 << 20)
    path = written(pack(tar_of(entry("set/readme", zeros), entry("set/b", B))))
    assert path.stat().st_size < 200_000
    with pytest.raises(InputError, match="unpacks to far more"):
        list(read_members(path, WANTED))


def test_huge_extended_header_is_bounded(written: Callable[..., Path]) -> None:
    info = tarfile.TarInfo("set/pax")
    info.type = tarfile.XHDTYPE
    info.size = 4 << 30
    path = written(gzip.compress(info.tobuf(tarfile.USTAR_FORMAT) + bytes(80 << 20)))
    with pytest.raises(InputError, match="unpacks to far more"):
        list(read_members(path, WANTED))


@pytest.mark.parametrize(
    "data", [b"", b"hello", bytes(2048), GOOD[:300], b"\x1f\x8bjunk", b"\xfd7zXZ\x00"]
)
def test_what_is_no_archive_is_a_plain_error(data: bytes, written: Callable[..., Path]) -> None:
    with pytest.raises(InputError, match="official page"):
        list(read_members(written(data), WANTED))


def test_missing_member_and_missing_file_are_named(written: Callable[..., Path]) -> None:
    path = written(tar_of(entry("set/b", B), entry("set/c", A)))
    with pytest.raises(InputError, match="lacks set/a"):
        list(read_members(path, WANTED))
    with pytest.raises(InputError, match="No such file"):
        list(read_members(path.with_name("absent.tar"), WANTED))


PACKED = {suffix: pack(GOOD) for suffix, pack in PACK.items()}


@given(
    suffix=st.sampled_from(sorted(PACK)),
    edits=st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 255)), max_size=6),
    keep=st.floats(0, 1),
    near_headers=st.booleans(),
)
@settings(
    max_examples=250, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_fuzzed_archives_give_the_members_or_a_plain_error(
    suffix: str,
    edits: list[tuple[int, int]],
    keep: float,
    near_headers: bool,
    written: Callable[..., Path],
) -> None:
    damaged = bytearray(PACKED[suffix])
    for position, value in edits:
        damaged[position % (2560 if near_headers else len(damaged))] = value
    if not near_headers:
        del damaged[int(keep * len(damaged)) :]
    path = written(bytes(damaged), suffix)
    found = outcome(path)
    if isinstance(found, InputError):
        assert path.name in str(found)
    else:
        assert found.keys() == WANTED.keys()


def outcome(path: Path) -> dict[str, bytes] | InputError:
    try:
        return {m.name: m.data for m in read_members(path, WANTED)}
    except InputError as error:
        return error
