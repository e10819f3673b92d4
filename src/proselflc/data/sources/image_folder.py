"""Folders of images, one per class: `cat/1.jpg`, or `train/cat/1.jpg` and `test/cat/2.jpg`.

They are read as data, and written as links to files that are not moved.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import unicodedata
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np

from proselflc.data.dataset import (
    NO_LABEL,
    Contents,
    ModelNeeds,
    Part,
    Skipped,
    choose_splits,
    class_ids,
    in_order,
)
from proselflc.data.image import SUFFIXES, OnBadImage, sift
from proselflc.data.inputs import ImageFiles, Ints
from proselflc.errors import InputError, unknown
from proselflc.wording import option

Link: TypeAlias = Literal["symbolic", "hard", "copy"]

# What a folder beside train/ may be called, and what it holds.
_SPLITS = {"train": "train", "test": "test", "val": "validation", "validation": "validation"}

MARK = ".made-by-proselflc"  # a file that marks a folder as replaceable

_LONGEST = 120  # bytes of a name; file systems take 255
_FORBIDDEN = re.compile(r'[<>:"/\\|?*]')
_RESERVED = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?", re.IGNORECASE)


def read(
    path: Path,
    *,
    on_bad_image: OnBadImage = "error",
    needs: ModelNeeds | None = None,
    unlabelled: str | None = None,
) -> Contents:
    """Return the contents of a folder with one folder per class, or below train/, test/ and val/.

    Images may be at any depth below their class folder. Hidden files and files without an image
    extension are ignored. Classes are those of train in natural order ("class 9" before
    "class 10"); ids are paths relative to `path`, with forward slashes. Links to folders, and to
    files outside `path`, are not followed but listed in `skipped`. Only headers are read here; a
    file damaged further on shows when a batch decodes it. The images of a folder called
    `unlabelled` beside the class folders of train have no label.

    For a model, only the splits asked for are read. A split, or the whole folder, may then also
    hold images and no folders, or folders none of which is named like a class, such as albums by
    year: these have no labels.
    """
    if not path.is_dir():
        what = "is a file" if path.exists() else "does not exist"
        raise InputError(f"{path} {what}: expected a folder with one folder of images per class")
    top = scan(path)
    splits = _splits(path, top)
    if needs is None and "train" not in splits:
        raise InputError(
            f'{path} holds "{next(iter(splits.values()))}" but no "train" folder',
            fix="add one with a folder per class",
        )
    skipped = top.left_out() if needs is None and "" not in splits.values() else []
    found: dict[str, dict[str, str]] = {}  # split → the class folder of each image, "" for none
    for split in splits if needs is None else choose_splits(splits, needs.split, str(path)):
        level = scan(path, splits[split]) if splits[split] else top
        found[split], beside = _folders(path, splits[split], level, None if needs else split)
        skipped += [replace(one, split=split) for one in beside.left_out()]
    if needs is None and unlabelled is not None and unlabelled not in found["train"].values():
        raise InputError(
            f'{path} has no folder "{unlabelled}" beside its class folders',
            field="unlabelled",
            fix="name the folder of the images without a label",
        )
    names = needs.names if needs else in_order({*found["train"].values()} - {unlabelled or ""})
    parts: dict[str, Part[Ints | None]] = {}
    for split, folder_of in found.items():
        labelled = _labelled if needs is None else _perhaps_labelled
        if needs is None and split != "train" and unlabelled in folder_of.values():
            raise InputError(
                f'the {split} split of {path} has a folder "{unlabelled}", but its images need '
                "labels",
                field="unlabelled",
                fix="move them to train",
            )
        images, labels = labelled(path, folder_of, names, unlabelled)
        ids = tuple(text(image) for image in images)
        files = ImageFiles(tuple(path / image for image in images))
        classes = None if needs else [folder_of[image] for image in images]
        keep, bad = sift(files.paths, ids, classes, on_bad_image=on_bad_image)
        skipped += [replace(one, split=split) for one in bad]
        parts[split] = Part(files, labels, ids).take(keep)
    return Contents(str(path), parts, names, skipped=tuple(skipped))


def _folders(
    path: Path, below: str, level: Found, learned: str | None
) -> tuple[dict[str, str], Found]:
    """Return the class folder of every image of a split, and what else is there.

    `below` is the folder of the split, and `level` what that holds. `learned` is the split if it is
    learned from, whose images are all in class folders; None if they need not be.
    """
    if learned and level.images:
        raise InputError(
            f"the image {path / level.images[0]} is not in a class folder",
            fix="move it into the folder of its class, or out of the way",
        )
    folder_of = dict.fromkeys(level.images, "")
    beside = Found(links=list(level.links), ignored=level.ignored)
    for folder in level.folders:
        found = walk(path, folder)
        beside.links += found.links
        beside.ignored += found.ignored
        if learned == "train" and not found.images:
            raise InputError(_no_images(path / folder, found))
        folder_of |= dict.fromkeys(found.images, text(folder.rsplit("/", 1)[-1]))
    if not folder_of and learned in (None, "train"):
        raise InputError(_no_images(path / below, beside))
    if level.images and len(level.images) < len(folder_of):
        raise InputError(
            f"{path / below} holds images, such as {text(min(level.images))}, beside folders, such "
            f'as "{text(min(level.folders))}"',
            fix="sort all images into folders of their classes, or none",
        )
    return folder_of, beside


def _labelled(
    path: Path, folder_of: Mapping[str, str], names: Sequence[str], unlabelled: str | None
) -> tuple[list[str], Ints]:
    """Return the images by class and name, as the order of the disk is arbitrary, and labels."""
    place = {name: k for k, name in enumerate(names)}
    if unlabelled is not None:
        place[unlabelled] = NO_LABEL
    for image, name in folder_of.items():
        if name not in place:
            raise InputError(f"{path / image}: {unknown('class', name, names)}")
    images = sorted(folder_of, key=lambda image: (place[folder_of[image]], image))
    return images, np.array([place[folder_of[image]] for image in images], dtype=np.int64)


def _perhaps_labelled(
    path: Path, folder_of: Mapping[str, str], names: Sequence[str], unlabelled: str | None
) -> tuple[list[str], Ints | None]:
    """Return the images by name, and labels if some folder is named like a class."""
    images = sorted(folder_of)
    if "" in folder_of.values() or not set(folder_of.values()) & set(names):
        return images, None
    labels = np.full(len(images), NO_LABEL)
    known = [i for i, image in enumerate(images) if folder_of[image] != unlabelled]
    labels[known] = class_ids([folder_of[images[i]] for i in known], names, str(path))
    return images, labels


@dataclass
class Found:
    """The content of a folder: paths relative to the root, with forward slashes."""

    images: list[str] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)  # not followed
    ignored: int = 0

    def left_out(self, below: str = "") -> list[Skipped]:
        """Return the links, for the user to know; `below` goes before their ids."""
        reason = "it is a link to another place, which is not followed"
        return [Skipped(text(below + link), reason) for link in self.links]


def scan(root: Path, below: str = "") -> Found:
    """Return one folder, `below` the root, without what lies deeper."""
    found = Found()
    try:
        with os.scandir(root / below) as entries:
            for entry in entries:
                if entry.name.startswith(".") or entry.name == "__MACOSX":
                    continue
                relative = f"{below}/{entry.name}" if below else entry.name
                is_image = os.path.splitext(entry.name)[1].lower() in SUFFIXES
                if entry.is_symlink() and _leads_away(root, Path(entry.path), is_image):
                    found.links.append(relative)
                elif entry.is_dir(follow_symlinks=False):
                    found.folders.append(relative)
                elif is_image:
                    found.images.append(relative)
                else:
                    found.ignored += 1
    except OSError as error:
        raise InputError(
            f"cannot list the folder {root / below}: {error.strerror or error}"
        ) from None
    return found


def walk(root: Path, below: str = "") -> Found:
    """Return all images at any depth `below` the root; `folders` is empty."""
    total = Found()
    waiting = [below]
    while waiting:
        found = scan(root, waiting.pop())
        waiting += found.folders
        total.images += found.images
        total.links += found.links
        total.ignored += found.ignored
    return total


def text(name: str) -> str:
    """Return a file name that can be written anywhere: bytes outside UTF-8 become \\xNN."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _leads_away(root: Path, link: Path, is_image: bool) -> bool:
    """Return whether a link leads to a folder, to itself or to an image outside the root."""
    try:
        target = link.resolve()
    except (OSError, RuntimeError):  # a circle
        return True
    return target.is_dir() or (is_image and not target.is_relative_to(root.resolve()))


def _splits(path: Path, top: Found) -> dict[str, str]:
    """Return the folder of each split: {"train": ""} if the class folders are at the top.

    A class may be called "train": beside other classes it is one if it holds images itself.
    """
    named = [folder for folder in top.folders if folder.lower() in _SPLITS]
    others = [folder for folder in top.folders if folder.lower() not in _SPLITS]
    if others or not named:
        for folder in named:
            inside = scan(path, folder)
            if inside.folders and not inside.images:
                raise InputError(
                    f'{path} holds "{folder}" with folders inside, as a split has, beside '
                    f'"{min(others)}": keep either class folders there or '
                    "train, test and validation only"
                )
        return {"train": ""}
    splits: dict[str, str] = {}
    for folder in sorted(named):
        split = _SPLITS[folder.lower()]
        if split in splits:
            raise InputError(
                f'{path} holds both "{splits[split]}" and "{folder}" for the {split} split: '
                "keep one of them"
            )
        splits[split] = folder
    return {split: splits[split] for split in ("train", "validation", "test") if split in splits}


def _no_images(folder: Path, found: Found) -> str:
    """Say that no image was found below the folder, and what was there instead."""
    files = f"{found.ignored} file{'s' * (found.ignored != 1)} without an image extension"
    there = [files] if found.ignored else []
    if found.links:
        more = f" and {len(found.links) - 1:,} more" if len(found.links) > 1 else ""
        verb = "are" if more else "is"
        there.append(f'the link "{text(min(found.links))}"{more}, which {verb} not followed')
    but = f" (only {' and '.join(there)})" if there else ""
    instead = (
        "; name the folder that has the files themselves, or make hard links or copies of them"
    )
    return (
        f"there are no images in {folder}{but}: expected one folder per class with "
        f"{', '.join(sorted(SUFFIXES))} files{instead if found.links else ''}"
    )


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
    check_writable(folder, overwrite=overwrite)
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


def check_writable(folder: Path, *, overwrite: bool) -> None:
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
