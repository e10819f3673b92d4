"""Folders of images by class: links to files that are not moved."""

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
from proselflc.wording import option

Link: TypeAlias = Literal["symbolic", "hard", "copy"]

MARK = ".made-by-proselflc"  # a file that marks a folder as replaceable

_LONGEST = 120  # bytes of a name; file systems take 255
_FORBIDDEN = re.compile(r'[<>:"/\\|?*]')
_RESERVED = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?", re.IGNORECASE)


@dataclass(frozen=True)
class FolderResult:
    """The result of writing folders."""

    links: int
    renamed: dict[str, str]  # names of the folders of classes whose names no folder can have


def write(
    folder: Path,
    files: Sequence[Path],
    ids: Sequence[str],
    labels: Ints,
    names: Sequence[str],
    *,
    link: Link = "symbolic",
    overwrite: bool = False,
) -> FolderResult:
    """Write a folder per class with a link to each of its files, or no folder at all.

    A link has the name of its example's id, with `__` for slashes, so that files of one name in
    several folders stay distinct. Names are shortened, lose characters that could lead out of the
    folder or that some systems refuse, and get a number if they differ only in case.

    A link is symbolic, a second name for the same file ("hard"), or a copy. The folder is empty or
    missing, unless it is to be overwritten and was written here.
    """
    check(folder, overwrite=overwrite)
    used = [int(k) for k in sorted(set(labels.tolist()))]
    taken: dict[str, int] = {}
    folders = {k: _distinct(safe(names[k]), taken) for k in used}
    # Named after the folder, so that the next run finds what a killed process left.
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
    return FolderResult(len(files), renamed)


def _clear(left: Path) -> None:
    """Remove what an earlier run left, and nothing else."""
    if (left / MARK).is_file():
        shutil.rmtree(left)
    elif left.is_dir():
        left.rmdir()


def check(folder: Path, *, overwrite: bool) -> None:
    """Refuse a folder that cannot be written, before anything is computed."""
    if not folder.absolute().parent.is_dir():
        raise InputError(f"there is no folder {folder.parent}", fix="create it")
    if folder.is_symlink():
        raise InputError(
            f"{folder} is a link, and nothing is written through a link: name its target, or "
            "choose another name"
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
        raise InputError(
            f"{folder} is not empty",
            field="overwrite",
            fix=f"choose another name or pass {option('overwrite', True)}",
        )
    if not (folder / MARK).is_file():
        raise InputError(
            f"{folder} holds files that proselflc did not write, so it is not overwritten: "
            "choose another name"
        )


def safe(name: str) -> str:
    """Return a name that a file can have on every system and that leads nowhere else.

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
    """Return the name of the link to an example's file, with the suffix of the file."""
    ending = path.suffix if re.fullmatch(r"\.[A-Za-z0-9]{1,8}", path.suffix) else ""
    steps = [step for step in re.split(r"[/\\]", name) if step not in ("", ".", "..")]
    stem = "__".join(steps)
    if ending and stem.endswith(ending):
        stem = stem[: -len(ending)]
    return safe(stem) + ending


def _distinct(name: str, taken: dict[str, int]) -> str:
    """Return the name, with a number if it is taken, and mark it as taken.

    Names that differ in case, or in the encoding of an accent, are the same on some systems.
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
        raise InputError(f"{path} is missing since training: restore it")
    if link == "copy":
        shutil.copyfile(path, place)
    elif link == "hard":
        os.link(path.resolve(), place)
    else:
        place.symlink_to(Path(os.path.abspath(path)))
