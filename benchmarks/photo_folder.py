"""From a folder of photos to corrected labels: time, memory and labels put right.

3,000 photos of CIFAR-100's coarse classes 12 … 15 (20 classes) are enlarged and written as JPEG
files with a little grain. Their longer sides are spread evenly over 32 … 1,600 pixels, with the
shapes of usual photos, and a tenth of them is in a wrong folder. `proselflc train` and `export`
then run as a user runs them, with their defaults and an empty cache, each in a process of its own;
`export --suspects`, which also changes labels that the audit leaves to a person, is beside them.

Beside it, in a process that may use one core only, the features of 500 of the files at 128 pixels:
from the files, decoding included; from decoded pixels; and by a plain forward pass of the same
network, with its channels last in memory, in batches of 64. Each is measured three times, in turn,
and the least of them counts.

    python benchmarks/photo_folder.py            # also written to benchmarks/results/
    python benchmarks/photo_folder.py --small    # 300 photos and no result files
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import commands
import numpy as np
import numpy.typing as npt
import result_file
import torch
from PIL import Image
from settings import DATA_ROOT
from tables import flipped

from proselflc.data.encoded.encoding import Encoding
from proselflc.data.image_scaling import warped
from proselflc.data.inputs import ImageFiles
from proselflc.data.sources import cifar
from proselflc.models.efficientnet import PIXELS, EfficientNetLite0
from proselflc.models.weights import load_strictly
from proselflc.pretrained import catalogue
from proselflc.pretrained.efficientnet import CLASSES

PHOTOS, SMALL = 3000, 300
FIRST = 12  # coarse class of CIFAR-100; four of them
SIDES = (32, 1600)  # pixels of a photo's longer side
SHAPES = (1.0, 4 / 3, 3 / 4, 3 / 2, 2 / 3)  # width / height
GRAIN = 4.0  # standard deviation of what is added to pixels
WRONG = 0.1
SEED = 4
BACKBONE, SIDE = "efficientnet_lite0", 128
TIMED, ROUNDS, BATCH = 500, 3, 64
MOST_SECONDS, MOST_MILLISECONDS = 180, 12  # that the issue allows, of both commands and an image

Array = npt.NDArray[Any]


def write_photos(folder: Path, count: int) -> tuple[dict[str, str], float]:
    """Write photos into one folder per given class.

    Returns:
        The true class of each file name, and the share of photos in the right folder.
    """
    found = cifar.load(cifar.find("cifar100", DATA_ROOT), "cifar100")
    assert found.coarse is not None
    classes = np.flatnonzero((found.coarse >= FIRST) & (found.coarse < FIRST + 4))
    rng = np.random.default_rng(SEED)
    rows = np.flatnonzero(np.isin(found.train.labels, classes))
    rows = np.sort(rng.permutation(rows)[:count])
    y = np.searchsorted(classes, found.train.labels[rows])
    given = flipped(y, len(classes), "symmetric", WRONG, SEED)
    names = [found.names[int(k)] for k in classes]
    for name in names:
        (folder / name).mkdir(parents=True)
    pixels = found.train.inputs.take(rows).numbers
    assert pixels is not None
    longer = np.linspace(*SIDES, count).round().astype(int)
    shape = rng.choice(SHAPES, count)
    corner = rng.integers(0, SIDES[1], (count, 2))
    grain = rng.normal(0, GRAIN, (2 * SIDES[1], 2 * SIDES[1], 1)).astype(np.float32)

    def write(k: int) -> None:
        width = max(SIDES[0], round(longer[k] * min(1, shape[k])))
        height = max(SIDES[0], round(longer[k] / max(1, shape[k])))
        large = Image.fromarray(pixels[k]).resize((width, height), Image.Resampling.BICUBIC)
        top, left = corner[k]
        noisy = np.asarray(large) + grain[top : top + height, left : left + width]
        photo = Image.fromarray(noisy.round().clip(0, 255).astype(np.uint8))
        photo.save(folder / names[given[k]] / f"{k:05d}.jpg", quality=90)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(write, rng.permutation(count)))
    truth = {f"{k:05d}": names[y[k]] for k in range(count)}
    return truth, float((given == y).mean())


def share_right(path: Path, truth: dict[str, str]) -> float:
    """Return the share of exported labels that are true."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(truth)
    right: list[bool] = [row["label"] == truth[Path(row["id"]).stem] for row in rows]
    return sum(right) / len(right)


def corrected(photos: int) -> dict[str, Any]:
    """Return what `train` and `export` take on a new folder of photos, and how well they do."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        truth, before = write_photos(folder / "photos", photos)
        files = sorted((folder / "photos").rglob("*.jpg"))
        megabytes = sum(path.stat().st_size for path in files) / 1e6
        environment = {"XDG_CACHE_HOME": str(folder / "cache")}
        rows = []
        for words in (
            ("train", "photos", "--out", "run", "--quiet"),
            ("export", "run", "--out", "labels.csv"),
            ("export", "run", "--suspects", "--out", "all.csv"),
        ):
            name = " ".join(word for word in words if word in ("train", "export", "--suspects"))
            rows.append({"command": name, **commands.measure(words, folder, environment)})
            print(show(rows[-1]), flush=True)
        features = on_one_core(files[:: max(1, photos // TIMED)], folder)
        config = (folder / "run" / "config.toml").read_text(encoding="utf-8")
        summary = json.loads((folder / "run" / "summary.json").read_bytes())
        after, at_most = (share_right(folder / one, truth) for one in ("labels.csv", "all.csv"))
    assert f'backbone = "{BACKBONE}"' in config, "the default is another path"
    return {
        "photos": photos,
        "megabytes": megabytes,
        "commands": rows,
        "milliseconds": features,
        "labels_right_before": before,
        "labels_right_after": after,
        "labels_right_after_suspects": at_most,
        "noise_low": summary["noise_low"],
        "noise_high": summary["noise_high"],
    }


def on_one_core(files: Sequence[Path], folder: Path) -> dict[str, float]:
    """Return `milliseconds` of files, measured by a process that has one core and no cache."""
    done = subprocess.run(
        [sys.executable, __file__, "--features", *map(str, files)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env={**os.environ, "XDG_CACHE_HOME": str(folder / "cache-of-none")},
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def milliseconds(files: Sequence[Path], folder: Path) -> dict[str, float]:
    """Return milliseconds per image of the features at `SIDE` pixels, by each of three ways."""
    how, path = Encoding(BACKBONE, SIDE), catalogue.weights(BACKBONE)
    inputs = ImageFiles(tuple(files))
    pixels = torch.from_numpy(np.stack([warped(path, (SIDE, SIDE)) for path in files]))
    network = EfficientNetLite0(CLASSES).eval()
    load_strictly(network, catalogue.initial_state(BACKBONE)[1], path)
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    (encoder,) = how.encoders
    mean, std = (torch.tensor(one)[:, None, None] for one in (PIXELS.mean, PIXELS.std))

    @torch.inference_mode()
    def plain() -> None:
        for start in range(0, len(pixels), BATCH):
            x = pixels[start : start + BATCH].float().div_(255).sub_(mean).div_(std)
            network.features(x.contiguous(memory_format=torch.channels_last))

    def from_files() -> None:
        with tempfile.TemporaryDirectory(dir=folder) as empty:
            how(inputs, cache=Path(empty))

    ways: dict[str, Callable[[], object]] = {
        "from files": from_files,
        "from pixels": lambda: encoder.encode(pixels),
        "plain forward pass": plain,
    }
    found = dict.fromkeys(ways, float("inf"))
    for _ in range(ROUNDS):
        for name, way in ways.items():
            start = time.perf_counter()
            way()
            found[name] = min(found[name], 1000 * (time.perf_counter() - start) / len(files))
    return found


def show(row: dict[str, Any]) -> str:
    return (
        f"{row['command']:<18}{row['seconds']:>9.1f}{row['processor_seconds']:>19.1f}"
        f"{row['peak_gigabytes']:>9.2f}"
    )


def report(found: dict[str, Any], made_with: dict[str, Any]) -> str:
    """Return the results as text."""
    rows = found["commands"]
    seconds = sum(row["seconds"] for row in rows[:2])
    processor = sum(row["processor_seconds"] for row in rows[:2])
    lines = [
        f"python {made_with['python']}, torch {made_with['torch']}, {made_with['cores']} cores, "
        f"load average {made_with['load']} at the end (own work included)",
        "",
        f"{found['photos']:,} photos, {found['megabytes']:.0f} MB",
        "",
        f"{'command':<18}{'seconds':>9}{'processor seconds':>19}{'GB peak':>9}",
        *map(show, rows),
        "",
        f"from folder to corrected labels: {seconds:.0f} s, {processor:.0f} processor seconds; "
        f"{MOST_SECONDS} s are allowed",
        f"labels right: {found['labels_right_before']:.3f} before, "
        f"{found['labels_right_after']:.3f} after, "
        f"{found['labels_right_after_suspects']:.3f} with all suspects changed",
        "",
        f"features at {SIDE} pixels on one core, milliseconds per image; "
        f"{MOST_MILLISECONDS} are allowed",
        *(f"{name:<20}{value:>6.1f}" for name, value in found["milliseconds"].items()),
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true", help="300 photos, no result files")
    parser.add_argument("--features", nargs="+", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.features:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # later threads inherit it
        torch.set_num_threads(1)
        with tempfile.TemporaryDirectory() as name:
            print(json.dumps(milliseconds(options.features, Path(name))))
        return
    photos = SMALL if options.small else PHOTOS
    found = corrected(photos)
    made_with = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "machine": platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "load": round(os.getloadavg()[0], 2),
    }
    text = report(found, made_with)
    print(text)
    if not options.small:
        config = {"photos": photos, "sides": SIDES, "wrong": WRONG, "backbone": BACKBONE}
        result_file.write(
            "photo_folder",
            found,
            result_file.preformatted(text),
            config=config,
            seeds=[SEED],
            made_with=made_with,
        )


if __name__ == "__main__":
    main()
