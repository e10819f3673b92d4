"""Named public data sets, downloaded from their official pages."""

from __future__ import annotations

import hashlib
import http.client
import ssl
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from proselflc.errors import InputError, unknown
from proselflc.files.regular import file_lock, whole_file
from proselflc.wording import option

_BLOCK = 1 << 20
_TIMEOUT = 30.0  # seconds that a server may stay silent
_ATTEMPTS = 3  # at each address, while connections break
_LARGEST = 1 << 30  # bytes of a file whose size is not known beforehand
_NETWORK = (
    urllib.error.URLError,
    http.client.HTTPException,
    TimeoutError,
    ConnectionError,
    ssl.SSLError,
)


@dataclass(frozen=True)
class RemoteFile:
    """A file on the web and its place on disk."""

    urls: tuple[str, ...]  # addresses that publish it; the first one that answers is used
    path: str  # below the data root, with slashes
    md5: str | None = None  # None if the content is checked in another way
    size: int | None = None  # bytes, if known


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
    """Return which files of a named data set to put where, as the end of a sentence."""
    folder = Path("DIR") if root is None else root
    wanted = _find_files(name) if files is None else files
    puts = [f"{file.urls[0]} at {folder / file.path}" for file in wanted]
    start = "" if root is not None else f"choose a folder with {option('data_root', 'DIR')} and "
    return f"{start}put {' and '.join(puts)}"


def fetch_missing(name: str, root: Path | None, *, allowed: bool, missing: str) -> tuple[Path, ...]:
    """Return the files of a data set that was not found; if none may be fetched, say what to do.

    `missing` is the beginning of that sentence, such as "cifar10 was not found".
    """
    if allowed and root is not None:
        return fetch(name, root)
    where = "" if root is None else f" in {root}"
    raise InputError(missing + where, field="data_root", fix=instructions(name, root))


def fetch(name: str, root: Path, *, files: Sequence[RemoteFile] | None = None) -> tuple[Path, ...]:
    """Return the paths of a named public data set below `root`, downloading missing files.

    A file appears whole and with the published checksum, or not at all. Other files than the
    official ones of the name may be given.
    """
    wanted = _find_files(name) if files is None else files
    try:
        return tuple(_fetch_file(file, root) for file in wanted)
    except _TransferError as error:
        missing = [file for file in wanted if not (root / file.path).exists()]
        raise InputError(
            f"{name} is missing and could not be downloaded ({error})",
            field="data_root",
            fix=f"run the command again, or {instructions(name, root, missing)} yourself",
        ) from error
    except OSError as error:
        raise InputError(
            f"{name} could not be written below {root}: {error}", field="data_root"
        ) from error


def _find_files(name: str) -> Sequence[RemoteFile]:
    if name not in FILES:
        raise InputError(unknown("data set to download", name, FILES))
    return FILES[name]


class _TransferError(Exception):
    """An address did not provide its file; the message says why."""


class _ConnectionLostError(_TransferError):
    """A connection broke, so that another attempt may succeed."""


def _fetch_file(file: RemoteFile, root: Path) -> Path:
    """Return the path of a file, downloaded from the first of its addresses that provides it."""
    target = root / file.path
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with file_lock(target.with_name(target.name + ".lock")):  # runs that start together
        if target.exists():
            return target
        failures = []
        for url in file.urls:
            for _ in range(_ATTEMPTS):
                try:
                    _download(url, file, target)
                except _TransferError as error:
                    failure = error
                else:
                    return target
                if not isinstance(failure, _ConnectionLostError):
                    break
            failures.append(str(failure))
    raise _TransferError("; ".join(failures))


def _download(url: str, file: RemoteFile, target: Path) -> None:
    if not url.startswith(("http://", "https://")):
        raise _TransferError(f"{url} is not a web address")
    request = urllib.request.Request(url, headers={"User-Agent": "proselflc"})
    digest = hashlib.md5(usedforsecurity=False)
    received = 0
    with whole_file(target) as out:
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT) as response:
                length = response.headers.get("Content-Length") or ""
                total = file.size or (int(length) if length.isdigit() else None)
                most = _LARGEST if total is None else total
                if file.size is None and most > _LARGEST:
                    raise _TransferError(f"{url} announces {most:,} bytes, which is too much")
                while block := response.read(_BLOCK):
                    received += len(block)
                    if received > most:
                        raise _TransferError(f"{url} sent more than the {most:,} bytes expected")
                    out.write(block)
                    digest.update(block)
        except urllib.error.HTTPError as error:
            error.close()
            raise _TransferError(f"{url} answered {error.code} {error.reason}") from error
        except _NETWORK as error:
            reason = str(getattr(error, "reason", error)) or type(error).__name__
            raise _ConnectionLostError(f"{url} gave {received:,} bytes: {reason}") from error
        if total is not None and received != total:
            raise _ConnectionLostError(f"{url} gave {received:,} of {total:,} bytes")
        if file.md5 is not None and digest.hexdigest() != file.md5:
            raise _TransferError(
                f"{url} has md5 {digest.hexdigest()}, but {file.md5} was published"
            )
