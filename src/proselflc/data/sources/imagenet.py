"""ImageNet 2012 (ILSVRC2012) in its usual folders: `train/n01440764/….JPEG` and `val/`."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np

from proselflc.data.dataset import Contents, Dataset, Part, Skipped
from proselflc.data.image import OnBadImage
from proselflc.data.inputs import ImageFiles, Ints
from proselflc.data.sources.image_folder import Found, scan, text, walk
from proselflc.errors import InputError, unknown
from proselflc.files.regular import lines, open_regular
from proselflc.wording import option

_SYNSET = re.compile(r"n[0-9]{8}")
# Places of the images below the given folder, as the challenge and as Kaggle publish them.
_BASES = ("", "ILSVRC/Data/CLS-LOC", "Data/CLS-LOC")
_DEVKIT = ("", "ILSVRC2012_devkit_t12/data", "ILSVRC2012_devkit_t12", "data")


def load(path: Path, *, on_bad_image: OnBadImage = "error") -> Dataset:
    """Read ImageNet: `train` for training and the 50,000 images of `val` as test set.

    Classes are in the order of their synset names.

    `val` has synset folders too, or is flat beside `LOC_val_solution.csv`, `val.txt`, or
    `ILSVRC2012_validation_ground_truth.txt` with `meta.mat`. Class names are read from
    `LOC_synset_mapping.txt` or `words.txt` if one exists. Fewer than 1,000 classes are accepted.
    Images are listed, not opened: reading more than a million headers takes too long. A flat
    validation image without a label is an error or is skipped, as `on_bad_image` says.
    """
    base = next((path / b for b in _BASES if (path / b / "train").is_dir()), None)
    if base is None:
        raise InputError(
            f"{path} has no train folder: ImageNet is expected as {path}/train/n01440764/….JPEG "
            "and so on, unpacked from ILSVRC2012_img_train.tar and the archives inside it"
        )
    train, synsets = _synset_folders(base, "train")
    skipped = train.left_out("train/")
    if not synsets:
        raise InputError(
            f"{base / 'train'} holds no synset folders such as n01440764: unpack "
            "ILSVRC2012_img_train.tar and the archives inside it, each into a folder of its name"
        )
    class_ids = {name: k for k, name in enumerate(synsets)}
    examples: list[tuple[str, int]] = []
    for name in synsets:
        found = walk(base / "train", name)
        skipped += found.left_out("train/")
        if not found.images:
            raise InputError(f"there are no images in {base / 'train' / name}: unpack {name}.tar")
        examples += [(f"train/{image}", class_ids[name]) for image in sorted(found.images)]

    parts: dict[str, Part[Ints | None]] = {"train": _part(base, examples)}
    val = next((name for name in ("val", "validation") if (base / name).is_dir()), None)
    if val is not None:
        test_examples, unlabelled, links = _validation(path, base, val, class_ids)
        if unlabelled and on_bad_image == "error":
            raise InputError(
                f"{base / unlabelled[0].id} cannot be used: {unlabelled[0].reason}",
                field="on_bad_image",
                fix=f"complete the list, or skip such images with {option('on_bad_image', 'skip')}",
            )
        skipped += unlabelled + links
        parts["test"] = _part(base, test_examples)
    names = _readable(path, base, synsets)
    return Contents("imagenet", parts, names, skipped=tuple(skipped)).dataset()


def _part(base: Path, examples: list[tuple[str, int]]) -> Part[Ints | None]:
    return Part(
        ImageFiles(tuple(base / name for name, _ in examples)),
        np.array([label for _, label in examples], dtype=np.int64),
        tuple(text(name) for name, _ in examples),
    )


def _synset_folders(base: Path, split: str) -> tuple[Found, list[str]]:
    """Return the content of a split, and its synset folders in order."""
    found = scan(base / split)
    for folder in found.folders:
        if not _SYNSET.fullmatch(folder):
            raise InputError(
                f'{base / split} holds the folder "{text(folder)}", which is not a synset like '
                "n01440764: move it elsewhere, or read the data as a plain image folder"
            )
    return found, sorted(found.folders)


def _validation(
    path: Path, base: Path, val: str, class_ids: dict[str, int]
) -> tuple[list[tuple[str, int]], list[Skipped], list[Skipped]]:
    """Return the validation images with their class ids, those without one, and links."""
    synsets = list(class_ids)
    found, folders = _synset_folders(base, val)
    examples: list[tuple[str, int]] = []
    links = found.left_out(f"{val}/")
    if folders and found.images:
        raise InputError(
            f"{base / val} holds synset folders and loose images such as {found.images[0]}: sort "
            "all images into folders, or none"
        )
    for folder in folders:
        if folder not in class_ids:
            raise InputError(f"{base / val / folder}: {_unknown(folder, synsets)}")
        inside = walk(base / val, folder)
        links += inside.left_out(f"{val}/")
        examples += [(f"{val}/{image}", class_ids[folder]) for image in sorted(inside.images)]
    if folders:
        return examples, [], links
    unlabelled: list[Skipped] = []
    truth = _truth(path, base, val, sorted(found.images), synsets)
    for image in sorted(found.images):
        synset = truth.get(_stem(image))
        if synset is None:
            unlabelled.append(Skipped(f"{val}/{text(image)}", "no list gives its class"))
        elif synset not in class_ids:
            raise InputError(f"{base / val / image}: {_unknown(synset, synsets)}")
        else:
            examples.append((f"{val}/{image}", class_ids[synset]))
    return examples, unlabelled, links


def _unknown(synset: str, synsets: list[str]) -> str:
    return unknown("synset", synset, synsets if len(synsets) <= 20 else [*synsets[:20], "…"])


def _stem(name: str) -> str:
    return name.rpartition("/")[2].partition(".")[0]


def _truth(
    path: Path, base: Path, val: str, images: list[str], synsets: list[str]
) -> dict[str, str]:
    """Return the synset of every image of a flat validation folder, by file name without suffix."""
    if solution := _beside(path, base, "LOC_val_solution.csv"):
        pairs = [line.split(",", 1) for line in lines(solution)[1:] if line]
        return {
            name: boxes.split(" ", 1)[0]
            for name, boxes in (_two(pair, solution, "image,synset …") for pair in pairs)
        }
    if listing := _beside(path, base, "val.txt") or _beside(path, base, f"{val}/val.txt"):
        pairs = [line.rsplit(None, 1) for line in lines(listing) if line]
        return {
            _stem(name): label if _SYNSET.fullmatch(label) else _nth(synsets, label, 0, listing)
            for name, label in (_two(pair, listing, "image label") for pair in pairs)
        }
    truth = _beside(path, base, "ILSVRC2012_validation_ground_truth.txt")
    if truth is None:
        raise InputError(
            f"the images in {base / val} are not in synset folders and no file gives their "
            "classes: put LOC_val_solution.csv, val.txt, or "
            f"ILSVRC2012_validation_ground_truth.txt with meta.mat into {path}"
        )
    meta = _beside(path, base, "meta.mat")
    if meta is None:
        raise InputError(
            f"{truth} numbers the classes as meta.mat of the same development kit does: put "
            f"meta.mat beside it"
        )
    numbered = _numbered_synsets(meta)
    numbers = lines(truth)
    if len(numbers) != len(images):
        raise InputError(
            f"{truth} has {len(numbers)} lines, but {base / val} holds {len(images)} images: one "
            "line per image is expected, in the order of the images' names"
        )
    return {
        _stem(image): _nth(numbered, number, 1, truth)
        for image, number in zip(images, numbers, strict=True)
    }


def _beside(path: Path, base: Path, name: str) -> Path | None:
    places = [folder / below / name for folder in (path, base) for below in _DEVKIT]
    return next((place for place in places if place.is_file()), None)


def _two(pair: list[str], where: Path, form: str) -> tuple[str, str]:
    if len(pair) != 2:
        raise InputError(f'{where} has the line "{pair[0][:80]}": expected "{form}"')
    return pair[0].strip(), pair[1].strip()


def _nth(names: list[str], number: str, first: int, where: Path) -> str:
    """Return the name with this number, counting from `first`."""
    if not re.fullmatch(r"[0-9]{1,9}", number) or not 0 <= int(number) - first < len(names):
        raise InputError(
            f'{where} has the class number "{number[:40]}": expected {first} to '
            f"{len(names) - 1 + first}"
        )
    return names[int(number) - first]


_READ_SYNSETS = """
import io, json, sys
import numpy as np
from scipy.io import loadmat
content = io.BytesIO(sys.stdin.buffer.read())
rows = np.atleast_1d(loadmat(content, variable_names=["synsets"], squeeze_me=True)["synsets"])
print(json.dumps([[int(row["ILSVRC2012_ID"]), str(row["WNID"])] for row in rows]))
"""


def _numbered_synsets(meta: Path) -> list[str]:
    """Return the synsets of the development kit's meta.mat, by their numbers from 1.

    SciPy runs in a separate process, because some damaged files crash it.
    """
    with open_regular(meta) as file:
        done = subprocess.run(
            [sys.executable, "-c", _READ_SYNSETS],
            stdin=file,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    if done.returncode != 0:
        words = (done.stderr.strip().splitlines() or ["SciPy crashed"])[-1]
        raise InputError(
            f"cannot read {meta} ({words[:200]}): expected the meta.mat of ILSVRC2012_devkit_t12"
        )
    numbered = {int(number): name for number, name in json.loads(done.stdout)}
    # Numbers above 1,000 are inner nodes, which label no image.
    order = sorted(numbered)
    if order != list(range(1, len(order) + 1)):
        raise InputError(f"{meta} does not number its synsets from 1 without gaps: copy it again")
    return [numbered[number] for number in order]


def _readable(path: Path, base: Path, synsets: list[str]) -> tuple[str, ...]:
    """Return the first synonym of every synset, if a file has them; it may not be unique."""
    source = _beside(path, base, "LOC_synset_mapping.txt") or _beside(path, base, "words.txt")
    if source is None:
        return tuple(synsets)
    pairs = (line.split(None, 1) for line in lines(source) if line)
    words = {pair[0]: pair[1].split(",")[0].strip() for pair in pairs if len(pair) == 2}
    names = [words.get(synset) or synset for synset in synsets]
    return tuple(
        f"{name} ({synset})" if names.count(name) > 1 else name
        for name, synset in zip(names, synsets, strict=True)
    )
