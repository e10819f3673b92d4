"""A folder of images, one folder per class: `cat/1.jpg`, or `train/cat/1.jpg`, `test/cat/2.jpg`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from proselflc.data.dataset import Dataset, ImageFiles, Part, Skipped, checked, in_order
from proselflc.data.examples import Examples, Wanted, chosen, class_ids
from proselflc.data.images.image import SUFFIXES, OnBadImage, sift
from proselflc.errors import InputError, unknown

# What a folder beside train/ may be called, and what it holds.
_SPLITS = {"train": "train", "test": "test", "val": "validation", "validation": "validation"}


def load(path: Path, *, on_bad_image: OnBadImage = "error") -> Dataset:
    """Read a folder with one folder per class, optionally below train/, test/ and val/.

    Images lie at any depth below their class folder. Hidden files and files that are no images by
    their ending are ignored. Classes are sorted as people do ("class 9" before "class 10") and are
    those of train; ids are paths relative to `path`, with forward slashes. Links to folders, and to
    files outside `path`, are not followed but listed in `skipped`. Only headers are read here; a
    file damaged further on shows when a batch decodes it.
    """
    _must_be_folder(path)
    top = scan(path)
    splits = _splits(path, top)
    if "train" not in splits:
        raise InputError(
            f'{path} holds "{next(iter(splits.values()))}" but no "train" folder: add one with a '
            "folder per class"
        )
    beside = Found(links=list(top.links), ignored=top.ignored)  # what is no example
    examples: dict[str, list[tuple[str, str]]] = {}  # split → (class, relative path) of each image
    for split, below in splits.items():
        level = scan(path, below) if below else top
        if level.images:
            raise InputError(
                f"the image {path / level.images[0]} lies in no class folder: move it into the "
                "folder of its class, or out of the way"
            )
        examples[split] = []
        if below:
            beside.links += level.links
            beside.ignored += level.ignored
        for folder in level.folders:
            found = walk(path, folder)
            beside.links += found.links
            beside.ignored += found.ignored
            if split == "train" and not found.images:
                raise InputError(_nothing(path / folder, found))
            name = text(folder.rsplit("/", 1)[-1])
            examples[split] += [(name, image) for image in found.images]
    if not examples["train"]:
        raise InputError(_nothing(path, beside))

    names = in_order(name for name, _ in examples["train"])
    place = {name: k for k, name in enumerate(names)}
    parts: dict[str, Part] = {}
    skipped = beside.left_out()
    for split, found_here in examples.items():
        for name, image in found_here:
            if name not in place:
                raise InputError(f"{path / image}: {unknown('class', name, names)}")
        # Folders come in the order of the disk; training should not depend on it.
        found_here.sort(key=lambda example: (place[example[0]], example[1]))
        ids = tuple(text(image) for _, image in found_here)
        files = ImageFiles(tuple(path / image for _, image in found_here))
        labels = np.array([place[name] for name, _ in found_here], dtype=np.int64)
        keep, bad = sift(
            files.paths, ids, [name for name, _ in found_here], on_bad_image=on_bad_image
        )
        skipped += bad
        parts[split] = Part(files, labels, ids).take(keep)
    return checked(
        Dataset(
            str(path),
            parts["train"],
            names,
            test=parts.get("test"),
            validation=parts.get("validation"),
            skipped=tuple(skipped),
        )
    )


def examples(
    path: Path, names: Sequence[str], *, split: Wanted = None, on_bad_image: OnBadImage = "error"
) -> dict[str, Examples]:
    """The splits of a folder as `load` takes it, for a model with these classes.

    A split, or the whole folder, may also hold images and no folders, or folders of which none is
    named like a class, such as albums by year: these have no labels. No class must have images,
    and none but the splits asked for are looked at.
    """
    _must_be_folder(path)
    top = scan(path)
    splits = _splits(path, top)
    parts: dict[str, Examples] = {}
    for one in chosen(splits, split, str(path)):
        level = scan(path, splits[one]) if splits[one] else top
        beside = Found(links=list(level.links), ignored=level.ignored)
        folder_of = dict.fromkeys(level.images, "")
        for folder in level.folders:
            found = walk(path, folder)
            beside.links += found.links
            beside.ignored += found.ignored
            folder_of |= dict.fromkeys(found.images, text(folder.rsplit("/", 1)[-1]))
        if not folder_of:
            raise InputError(_nothing(path / splits[one], beside))
        if level.images and len(level.images) < len(folder_of):
            raise InputError(
                f"{path / splits[one]} holds images, such as {text(min(level.images))}, beside "
                f'folders, such as "{text(min(level.folders))}": sort all images into folders of '
                "their classes, or none"
            )
        images = sorted(folder_of)
        ids = tuple(text(image) for image in images)
        files = ImageFiles(tuple(path / image for image in images))
        labels = None
        if not level.images and set(folder_of.values()) & set(names):
            labels = class_ids([folder_of[image] for image in images], names, str(path))
        keep, bad = sift(files.paths, ids, None, on_bad_image=on_bad_image)
        parts[one] = Examples(
            str(path),
            files.take(keep),
            tuple(ids[i] for i in keep),
            None if labels is None else labels[keep],
            (*beside.left_out(), *bad),
        )
    return parts


@dataclass
class Found:
    """What lies in a folder: paths relative to the root, with forward slashes."""

    images: list[str] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)  # not followed
    ignored: int = 0

    def left_out(self, below: str = "") -> list[Skipped]:
        """The links, for the user to know; `below` goes before their ids."""
        reason = "it is a link to another place, which is not followed"
        return [Skipped(text(below + link), reason) for link in self.links]


def scan(root: Path, below: str = "") -> Found:
    """One folder, `below` the root, without what lies deeper."""
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
    """All images at any depth `below` the root; `folders` is empty."""
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
    """A file name as text that can be written anywhere: bytes that are no UTF-8 become \\xNN."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _must_be_folder(path: Path) -> None:
    if not path.is_dir():
        what = "is a file" if path.exists() else "does not exist"
        raise InputError(f"{path} {what}: expected a folder with one folder of images per class")


def _leads_away(root: Path, link: Path, is_image: bool) -> bool:
    """Whether the link leads to a folder, round in a circle, or to an image outside the root."""
    try:
        target = link.resolve()
    except (OSError, RuntimeError):  # a circle
        return True
    return target.is_dir() or (is_image and not target.is_relative_to(root.resolve()))


def _splits(path: Path, top: Found) -> dict[str, str]:
    """Which folder holds which split: {"train": ""} where the class folders lie at the top.

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


def _nothing(folder: Path, found: Found) -> str:
    """Say that no image was found below the folder, and what was there instead."""
    there = [f"{found.ignored} files that are no images by their ending"] if found.ignored else []
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
