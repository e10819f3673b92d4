"""Folders of images by class: links to files that stay where they are."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import unicodedata
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from proselflc.data.inputs import Ints
from proselflc.errors import InputError

Link: TypeAlias = Literal["symbolic", "hard", "copy"]

MARK = ".made-by-proselflc"  # a file that says that a folder may be replaced

_LONGEST = 120  # bytes of a name; file systems take 255
_FORBIDDEN = re.compile(r'[<>:"/\\|?*]')
_RESERVED = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?", re.IGNORECASE)


@dataclass(frozen=True)
class Written:
    """What was made.

    Attributes:
        links: how many.
        renamed: class names that no folder can have, and what their folders are called.
    """

    links: int
    renamed: dict[str, str]


def write(
    folder: Path,
    files: Sequence[Path],
    ids: Sequence[str],
    labels: Ints,
    names: Sequence[str],
    *,
    link: Link = "symbolic",
    overwrite: bool = False,
) -> Written:
    """Make a folder per class with a link to each of its files, or no folder at all.

    A link is called like its example's id, with `__` for slashes, so that files of one name in
    several folders stay apart. Names lose what could lead out of the folder or what some system
    refuses, are shortened, and get a number where they differ only in case.

    Args:
        folder: must not hold anything, unless it is to be overwritten and was made here.
        files: n, where they are.
        ids: n, their names.
        labels: [n] class ids.
        names: C class names.
        link: a symbolic link, a second name for the same file ("hard"), or a copy.
        overwrite: replace what was made before.

    Raises:
        InputError: the folder is not empty or cannot be written, or a file is gone.
    """
    check(folder, overwrite=overwrite)
    used = [int(k) for k in sorted(set(labels.tolist()))]
    taken: dict[str, int] = {}
    folders = {k: _distinct(safe(names[k]), taken) for k in used}
    # Named after the folder, so that what a killed process has left is found the next time.
    digest = hashlib.sha256(os.fsencode(folder.name)).hexdigest()[:16]
    temporary, old = (folder.with_name(f".{digest}{which}.part") for which in ("", "-old"))
    try:
        for left in (temporary, old):
            _clear(left)
        temporary.mkdir()
        (temporary / MARK).write_bytes(b"")
        inside: dict[int, dict[str, int]] = {k: {} for k in used}
        for k in used:
            (temporary / folders[k]).mkdir()
        for path, name, label in zip(files, ids, labels.tolist(), strict=True):
            place = temporary / folders[label] / _distinct(_link_name(name, path), inside[label])
            _make(path, place, link)
        if folder.exists():
            folder.rename(old)
        temporary.rename(folder)
    except OSError as error:
        raise InputError(f"cannot write {folder}: {error.strerror or error}") from None
    finally:
        if not folder.exists():
            with suppress(OSError):
                old.rename(folder)
        for left in (temporary, old):
            shutil.rmtree(left, ignore_errors=True)
    renamed = {names[k]: folders[k] for k in used if folders[k] != names[k]}
    return Written(len(files), renamed)


def _clear(left: Path) -> None:
    """Remove what was left of an earlier time, and nothing that was not made here."""
    if (left / MARK).is_file():
        shutil.rmtree(left)
    elif left.is_dir():
        left.rmdir()


def check(folder: Path, *, overwrite: bool) -> None:
    """Refuse a place where the folder cannot go, before anything is computed."""
    if not folder.absolute().parent.is_dir():
        raise InputError(f"there is no folder {folder.parent} to make {folder.name} in: make it")
    if folder.is_symlink():
        raise InputError(
            f"{folder} is a link, and what it leads to is not written to: name that folder itself, "
            "or choose another name"
        )
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is not a folder: choose another name")
    try:
        is_empty = not folder.exists() or next(folder.iterdir(), None) is None
    except OSError as error:
        raise InputError(f"cannot list the folder {folder}: {error.strerror or error}") from None
    if is_empty:
        return
    if not overwrite:
        raise InputError(f"{folder} is not empty: choose another name or pass --overwrite")
    if not (folder / MARK).is_file():
        raise InputError(
            f"{folder} holds files that proselflc did not put there, so it is not overwritten: "
            "choose another name"
        )


def safe(name: str) -> str:
    """A name as a file may have it anywhere, which leads nowhere else.

    >>> safe("../a/b"), safe(""), safe("tabby cat")
    ('_._a_b', '_', 'tabby cat')
    """
    plain = _FORBIDDEN.sub("_", name)
    plain = "".join(c if c.isprintable() else "_" for c in plain)
    plain = re.sub(r"^\.|[. ]+$", "_", plain)
    if not plain or _RESERVED.fullmatch(plain):
        plain += "_"
    if len(plain.encode()) <= _LONGEST:
        return plain
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return plain.encode()[: _LONGEST - 13].decode(errors="ignore") + "~" + digest


def _link_name(name: str, path: Path) -> str:
    """What the link to an example's file is called, with the ending of the file."""
    ending = path.suffix if re.fullmatch(r"\.[A-Za-z0-9]{1,8}", path.suffix) else ""
    steps = [step for step in re.split(r"[/\\]", name) if step not in ("", ".", "..")]
    stem = "__".join(steps)
    if ending and stem.endswith(ending):
        stem = stem[: -len(ending)]
    return safe(stem) + ending


def _distinct(name: str, taken: dict[str, int]) -> str:
    """The name with a number behind it if one like it is taken; it is taken then.

    Names that differ in case, or in how an accent is coded, are one on some systems.

    Args:
        name: to be had.
        taken: names as they are compared, and the last number behind each.
    """
    stem, dot, ending = name.rpartition(".")
    if not dot or len(ending) > 8:
        stem, dot, ending = name, "", ""
    first, one = _compared(name), name
    while _compared(one) in taken:
        taken[first] += 1
        one = f"{stem}~{taken[first]}{dot}{ending}"
    taken[_compared(one)] = 1
    return one


def _compared(name: str) -> str:
    return unicodedata.normalize("NFKC", name).casefold()


def _make(path: Path, place: Path, link: Link) -> None:
    if not path.is_file():
        raise InputError(f"{path} is gone since training: put it back")
    if link == "copy":
        shutil.copyfile(path, place)
    elif link == "hard":
        os.link(path.resolve(), place)
    else:
        place.symlink_to(Path(os.path.abspath(path)))
