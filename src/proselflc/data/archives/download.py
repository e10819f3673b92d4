"""Named public data sets, fetched from their official pages.

A download goes to `NAME.part` beside its place and gets its name when it is whole and has the
published checksum. A broken-off one is continued where it ended, in the same run or a later one.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import re
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from proselflc.errors import InputError, unknown

_BLOCK = 1 << 20
_LARGEST = 1 << 30  # for the files whose size is not known beforehand
_SILENT = 3  # attempts in a row without a byte more
_ATTEMPTS = 100


@dataclass(frozen=True)
class RemoteFile:
    """A file on the web and its place on disk.

    Attributes:
        urls: where it is published; the first one that answers is used.
        path: its place below the data root, with slashes.
        md5: the published checksum, or None where the content is checked in another way.
        size: bytes, where known.
    """

    urls: tuple[str, ...]
    path: str
    md5: str | None = None
    size: int | None = None


def _idx(
    folder: str, pages: Sequence[str], files: Sequence[tuple[str, str, int]]
) -> tuple[RemoteFile, ...]:
    return tuple(
        RemoteFile(tuple(page + name for page in pages), f"{folder}/{name}", md5, size)
        for name, md5, size in files
    )


_CIFAR_PAGE = "https://www.cs.toronto.edu/~kriz/"
_CIFAR_N_PAGE = "https://raw.githubusercontent.com/UCSC-REAL/cifar-10-100n/main/data/"

FILES: dict[str, tuple[RemoteFile, ...]] = {
    "mnist": _idx(
        "mnist",
        ("http://yann.lecun.com/exdb/mnist/", "https://ossci-datasets.s3.amazonaws.com/mnist/"),
        (
            ("train-images-idx3-ubyte.gz", "f68b3c2dcbeaaa9fbdd348bbdeb94873", 9912422),
            ("train-labels-idx1-ubyte.gz", "d53e105ee54ea40749a09fcbcd1e9432", 28881),
            ("t10k-images-idx3-ubyte.gz", "9fb629c4189551a2d022fa330f9573f3", 1648877),
            ("t10k-labels-idx1-ubyte.gz", "ec29112dd5afa0611ce80d1b7f02629c", 4542),
        ),
    ),
    "fashion-mnist": _idx(
        "fashion-mnist",
        (
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
            "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
        ),
        (
            ("train-images-idx3-ubyte.gz", "8d4fb7e6c68d591d4c3dfef9ec88bf0d", 26421880),
            ("train-labels-idx1-ubyte.gz", "25c81989df183df01b3e8a0aad5dffbe", 29515),
            ("t10k-images-idx3-ubyte.gz", "bef4ecab320f06d8554ea6380940ec79", 4422102),
            ("t10k-labels-idx1-ubyte.gz", "bb300cfdad3c16e7a12a480ee83cd310", 5148),
        ),
    ),
    "cifar10": (
        RemoteFile(
            (_CIFAR_PAGE + "cifar-10-python.tar.gz",),
            "cifar-10-python.tar.gz",
            "c58f30108f718f92721af3b95e74349a",
            170498071,
        ),
    ),
    "cifar100": (
        RemoteFile(
            (_CIFAR_PAGE + "cifar-100-python.tar.gz",),
            "cifar-100-python.tar.gz",
            "eb9058c3a382ffc7106e4002c42a8d85",
            169001437,
        ),
    ),
    # No checksum is published: the clean labels inside are compared with CIFAR's own.
    "cifar10n": (RemoteFile((_CIFAR_N_PAGE + "CIFAR-10_human.pt",), "cifar-n/CIFAR-10_human.pt"),),
    "cifar100n": (
        RemoteFile(
            (_CIFAR_N_PAGE + "CIFAR-100_human.pt",),
            "cifar-n/CIFAR-100_human.pt",
            "a67b45c1d7992051865b5c755bd68bb1",
            1000959,
        ),
    ),
}


def instructions(name: str, root: Path | None, files: Sequence[RemoteFile] | None = None) -> str:
    """Which files of a named set to put where, as the end of a sentence."""
    place = Path("DIR") if root is None else root
    wanted = _files(name) if files is None else files
    puts = [f"{file.urls[0]} at {place / file.path}" for file in wanted]
    start = "" if root is not None else "say with --data-root DIR where data live, and "
    return f"{start}put {' and '.join(puts)}"


def fetch(
    name: str,
    root: Path,
    *,
    files: Sequence[RemoteFile] | None = None,
    timeout: float = 30.0,
    progress: Callable[[str, int, int | None], None] | None = None,
) -> tuple[Path, ...]:
    """Have the files of a named public set below `root`; what is there already is kept.

    Args:
        name: a key of `FILES`.
        root: the data root, made if need be.
        files: others than the official ones.
        timeout: seconds that a server may stay silent.
        progress: called with (file name, bytes so far, bytes in all or None).

    Returns:
        Where the files are.

    Raises:
        InputError: a file could not be had; says which one to put where by hand.
    """
    wanted = _files(name) if files is None else files
    try:
        return tuple(_have(file, root, timeout, progress) for file in wanted)
    except _TransferError as error:
        missing = [file for file in wanted if not (root / file.path).exists()]
        raise InputError(
            f"{name} is not there and could not be downloaded ({error}): run again to go on, or "
            f"{instructions(name, root, missing)} by hand"
        ) from error
    except OSError as error:
        raise InputError(f"{name} could not be written below {root}: {error}") from error


def _files(name: str) -> Sequence[RemoteFile]:
    if name not in FILES:
        raise InputError(unknown("data set to download", name, FILES))
    return FILES[name]


Progress = Callable[[str, int, "int | None"], None]


_NETWORK = (
    urllib.error.URLError,
    http.client.HTTPException,
    TimeoutError,
    ConnectionError,
    ssl.SSLError,
)


class _TransferError(Exception):
    """Why a URL did not give its file."""


def _have(file: RemoteFile, root: Path, timeout: float, progress: Progress | None) -> Path:
    """The place of a file, downloaded if need be from the first of its pages that has it."""
    from filelock import FileLock  # comes with torch

    target = root / file.path
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(target.name + ".part")
    # Two runs that start together would write into one another's part.
    with FileLock(str(target) + ".lock"):
        if target.exists():
            return target
        reasons = []
        for url in file.urls:
            reason = _whole(url, file, part, timeout, progress)
            if reason is None:
                os.replace(part, target)
                return target
            reasons.append(reason)
    raise _TransferError("; ".join(reasons))


def _whole(
    url: str, file: RemoteFile, part: Path, timeout: float, progress: Progress | None
) -> str | None:
    """Make `part` the published file; says why if that cannot be."""
    try:
        _download(url, file, part, timeout, progress)
        _verify(part, file, url)
    except _TransferError as error:
        return str(error)
    return None


def _download(
    url: str, file: RemoteFile, part: Path, timeout: float, progress: Progress | None
) -> None:
    """Bring `part` to its full length, going on after a broken connection."""
    started = False
    silent = 0
    reason = ""
    for _ in range(_ATTEMPTS):
        before = _length(part)
        try:
            if _receive(url, file, part, timeout, progress):
                return
            reason = "the connection broke off"
        except urllib.error.HTTPError as error:
            error.close()
            if error.code == 416 and before:  # the part is longer than what is published
                part.unlink()
                continue
            raise _TransferError(f"{url} answered {error.code} {error.reason}") from error
        except _NETWORK as error:
            reason = str(getattr(error, "reason", error)) or type(error).__name__
        grown = _length(part) > before
        started = started or grown
        silent = 0 if grown else silent + 1
        # A server that never answered is not there; one that did may come back.
        if silent == _SILENT or not started:
            break
    raise _TransferError(f"{url} gave {_length(part):,} bytes: {reason}")


def _receive(
    url: str, file: RemoteFile, part: Path, timeout: float, progress: Progress | None
) -> bool:
    """Append to `part` what one request gives; True when the file is whole."""
    have = _length(part)
    if file.size is not None and have == file.size:
        return True
    if not url.startswith(("http://", "https://")):
        raise _TransferError(f"{url} is not a web address")
    request = urllib.request.Request(url, headers={"User-Agent": "proselflc"})
    if have:
        request.add_header("Range", f"bytes={have}-")
    with urllib.request.urlopen(request, timeout=timeout) as response:
        length = response.headers.get("Content-Length")
        resumed = _starts_at(response.headers.get("Content-Range")) if response.status == 206 else 0
        if resumed not in (0, have):
            raise _TransferError(f"{url} continued at byte {resumed} instead of {have}")
        total = file.size
        if total is None and length is not None and length.isdigit():
            total = resumed + int(length)
        if total is not None and total > _LARGEST:
            raise _TransferError(f"{url} wants to send {total:,} bytes")
        with part.open("ab" if resumed else "wb") as out:
            have = resumed
            while block := response.read(_BLOCK):
                have += len(block)
                if have > (_LARGEST if total is None else total):
                    out.close()
                    part.unlink()
                    raise _TransferError(
                        f"{url} sent more than the {total or _LARGEST:,} bytes expected"
                    )
                out.write(block)
                if progress is not None:
                    progress(part.name.removesuffix(".part"), have, total)
            out.flush()
            os.fsync(out.fileno())
    return total is None or have == total


def _starts_at(content_range: str | None) -> int:
    match = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", content_range or "")
    return int(match[1]) if match else -1


def _verify(part: Path, file: RemoteFile, url: str) -> None:
    """Keep a part that is what was published; drop one that is not, to start afresh."""
    if file.md5 is None:
        return
    digest = hashlib.md5(usedforsecurity=False)
    with part.open("rb") as stream:
        while block := stream.read(_BLOCK):
            digest.update(block)
    if digest.hexdigest() != file.md5:
        part.unlink()
        raise _TransferError(f"{url} has md5 {digest.hexdigest()} where {file.md5} was published")


def _length(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
