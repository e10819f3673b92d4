"""How fast batches are served, next to Pillow doing the same work image by image.

    python benchmarks/loader_speed.py [--rounds 7] [--data-root ../shared/data]

What is compared runs in turns within every round, so that a busy machine slows both. Image files
are compared twice: with Pillow decoding and resizing alone, without a usable result, and with
Pillow doing all that our loader does, up to float batches in the main process. Processor time per
image, of all processes together, stands beside the rates; it depends less on what else is running.

CIFAR-100 is read from the .tar.xz that is found here, with the decoder alone beside it, and from
the same files as a .tar.gz. Writes results/loader_speed.json and .md beside this file,
or elsewhere by --out.
"""

from __future__ import annotations

import argparse
import lzma
import os
import platform
import resource
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any

import numpy as np
import PIL
import result_file
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

from proselflc.data.batches import Batches, Loader, Order, PadCropFlip
from proselflc.data.dataset import Part
from proselflc.data.image_scaling import ImageScaling
from proselflc.data.inputs import Bytes, ImageFiles, Images
from proselflc.data.serving import FileLoader, RandomCrop

CIFAR_SIZE, BATCH, CORES = 50_000, 256, 2
WARP, CROP = 256, 224


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=7)
    arguments.add_argument("--files", type=int, default=500)
    arguments.add_argument(
        "--data-root", type=Path, default=Path(__file__).parents[2] / "shared" / "data"
    )
    arguments.add_argument("--out", type=Path, default=result_file.RESULTS)
    arguments.add_argument("--memory", action="store_true", help=argparse.SUPPRESS)
    given = arguments.parse_args()
    if given.memory:
        print(memory_growth())
        return
    torch.set_num_threads(CORES)
    rows = [*in_memory(given.rounds), *folder(given.rounds, given.files)]
    rows += cifar(given.rounds, given.data_root)
    rows.append(memory())
    report(rows, given.rounds, given.out)


def cifar_like() -> Part:
    pixels = np.random.default_rng(0).integers(0, 256, (CIFAR_SIZE, 32, 32, 3), dtype=np.uint8)
    return Part(Images(pixels), np.zeros(CIFAR_SIZE, np.int64), tuple(map(str, range(CIFAR_SIZE))))


class PerImage(Dataset[torch.Tensor]):
    """The usual way: every image becomes a Pillow image, is padded, cropped, flipped, scaled."""

    def __init__(self, pixels: Bytes, scaling: ImageScaling) -> None:
        self.pixels, self.scaling = pixels, scaling

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, i: int) -> torch.Tensor:
        padded = Image.new("RGB", (40, 40))
        padded.paste(Image.fromarray(self.pixels[i]), (4, 4))
        left, top, flip = (int(v) for v in torch.randint(0, 9, (3,)))
        image = padded.crop((left, top, left + 32, top + 32))
        if flip % 2:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        return normalized(image, self.scaling)


def normalized(image: Image.Image, scaling: ImageScaling) -> torch.Tensor:
    """[3, h, w] float32 of one image, as usual pipelines make it."""
    x = torch.from_numpy(np.array(image)).permute(2, 0, 1).float().div_(255)
    mean_, std = torch.tensor(scaling.mean), torch.tensor(scaling.std)
    return x.sub_(mean_[:, None, None]).div_(std[:, None, None])


def in_memory(rounds: int) -> list[dict[str, Any]]:
    part = cifar_like()
    assert isinstance(part.inputs, Images)
    scaling = ImageScaling.fit(part.inputs)
    loader = Loader(part, scaling, Order(BATCH), PadCropFlip())
    slow = PerImage(part.inputs.pixels[:10_000], scaling)

    def per_image() -> int:
        return sum(len(x) for x in DataLoader(slow, BATCH, shuffle=True, num_workers=CORES))

    ours, theirs = interleaved(rounds, lambda: served(loader), per_image)
    return [
        row("in memory, crop + flip", ours.rates, "images/s", at_least=15_000),
        row("per image with Pillow, 2 workers", theirs.rates, "images/s"),
        ratio("in memory ÷ Pillow", ours, theirs, at_least=5),
    ]


class Bare(Dataset[int]):
    """Only what cannot be left out: open, convert, resize."""

    def __init__(self, paths: tuple[Path, ...]) -> None:
        self.paths = paths

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, i: int) -> int:
        with Image.open(self.paths[i]) as image:
            image.convert("RGB").resize((WARP, WARP), Image.Resampling.BILINEAR)
        return 1


class Whole(Dataset[torch.Tensor]):
    """All that the loader does, image by image: also crop, flip, make float and hand over."""

    def __init__(self, paths: tuple[Path, ...], scaling: ImageScaling) -> None:
        self.paths, self.scaling = paths, scaling

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, i: int) -> torch.Tensor:
        with Image.open(self.paths[i]) as image:
            warped = image.convert("RGB").resize((WARP, WARP), Image.Resampling.BILINEAR)
        left, top, flip = (int(v) for v in torch.randint(0, WARP - CROP + 1, (3,)))
        cut = warped.crop((left, top, left + CROP, top + CROP))
        if flip % 2:
            cut = cut.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        return normalized(cut, self.scaling)


def photo(rng: np.random.Generator, height: int, width: int) -> Image.Image:
    """Noise with a spectrum like that of photos, so that its JPEG is as large as one of those."""
    pixels = np.zeros((height, width, 3))
    for size in (4, 8, 16, 32, 64, 128, 256):
        grey = rng.normal(size=(size, size, 1))
        octave = (grey + 0.3 * rng.normal(size=(size, size, 3))).astype(np.float32)
        for channel in range(3):
            small = Image.fromarray(octave[:, :, channel])
            large = small.resize((width, height), Image.Resampling.BICUBIC)
            pixels[:, :, channel] += 40 * size**-0.3 * np.asarray(large)
    return Image.fromarray(np.clip(pixels + 128, 0, 255).astype(np.uint8))


def folder(rounds: int, count: int) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as directory:
        paths = tuple(Path(directory) / f"{i}.jpg" for i in range(count))
        rng = np.random.default_rng(0)
        for path in paths:
            photo(rng, *rng.integers(230, 290, 2)).save(path, quality=90)
        kilobytes = mean(path.stat().st_size for path in paths) / 1000
        paths, count = paths * 6, count * 6  # so that starting the workers does not count for much
        part = Part(ImageFiles(paths), np.zeros(count, np.int64), tuple(map(str, range(count))))
        scaling = ImageScaling((0.5,) * 3, (0.25,) * 3, (CROP, CROP), (WARP, WARP))
        loader = FileLoader(part, scaling, Order(64), RandomCrop(), workers=CORES)

        def bare() -> int:
            return sum(int(n.sum()) for n in DataLoader(Bare(paths), 64, num_workers=CORES))

        whole_work = Whole(paths, scaling)

        def whole() -> int:
            return sum(len(x) for x in DataLoader(whole_work, 64, num_workers=CORES))

        ours, decoding, all_of_it = interleaved(rounds, lambda: served(loader), bare, whole)
    return [
        row("a JPEG file of the folder", [kilobytes], "kB"),
        row("folder: warp 256, crop 224, flip, float, 2 workers", ours.rates, "images/s"),
        row("bare Pillow: open, convert, resize, 2 workers", decoding.rates, "images/s"),
        row("Pillow doing all that, 2 workers", all_of_it.rates, "images/s"),
        ratio("folder ÷ bare Pillow", ours, decoding, at_least=0.9),
        ratio("folder ÷ Pillow doing all that", ours, all_of_it),
        row("processor time, folder", ours.processor, "µs per image"),
        row("processor time, bare Pillow", decoding.processor, "µs per image"),
        row("processor time, Pillow doing all that", all_of_it.processor, "µs per image"),
    ]


def cifar(rounds: int, data_root: Path) -> list[dict[str, Any]]:
    archive = data_root / "cifar-100-python.tar.xz"
    if not archive.exists():
        print(f"no {archive.name} here: reading it is not measured", file=sys.stderr)
        return []
    with tempfile.TemporaryDirectory() as directory:
        repacked = Path(directory) / "cifar-100-python.tar.gz"
        with tarfile.open(archive) as source, tarfile.open(repacked, "w:gz") as target:
            for member in source:
                target.addfile(member, source.extractfile(member) if member.isfile() else None)
        gz, cached, xz, alone = [], [], [], []
        for _ in range(min(rounds, 3)):
            cold, warm = reading(repacked)
            gz.append(cold)
            cached.append(warm)
            xz.append(reading(archive)[0])
            alone.append(unpacking(archive))
    return [
        row("CIFAR-100 from a .tar.gz, the form it is published in", gz, "s", at_most=6),
        row("CIFAR-100 from a .tar.xz", xz, "s", at_most=6),
        row("Python's liblzma alone on that .tar.xz", alone, "s"),
        row("CIFAR-100 from the cache", cached, "s", at_most=0.5),
    ]


def unpacking(archive: Path) -> float:
    """Seconds that Python's decoder alone takes for an .xz file, which cannot be shared out."""
    start = time.perf_counter()
    with lzma.open(archive) as stream:
        while stream.read(4 << 20):
            pass
    return time.perf_counter() - start


def reading(archive: Path) -> tuple[float, float]:
    """Seconds that the archive takes, and what was kept of it the second time."""
    from proselflc.data.sources import cifar as source

    times = []
    with tempfile.TemporaryDirectory() as cache:
        for _ in range(2):
            start = time.perf_counter()
            dataset = source.load(archive, "cifar100", cache=Path(cache))
            times.append(time.perf_counter() - start)
            assert len(dataset.train) == CIFAR_SIZE
            del dataset
    return times[0], times[1]


def memory() -> dict[str, Any]:
    """In a process of its own, so that nothing else has raised the peak before."""
    command = [sys.executable, __file__, "--memory"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return row(
        "growth of peak memory in an epoch ÷ size of the data",
        [float(done.stdout)],
        "×",
        at_most=0.5,
    )


def memory_growth() -> float:
    """How much the peak grows while the data is measured and served; a float copy would be 4."""
    part = cifar_like()
    assert isinstance(part.inputs, Images)
    few = part.take(np.arange(1024))
    served(Loader(few, ImageScaling.fit(few.inputs), Order(BATCH), PadCropFlip()))
    before = peak_bytes()
    served(Loader(part, ImageScaling.fit(part.inputs), Order(BATCH), PadCropFlip()))
    return (peak_bytes() - before) / part.inputs.pixels.nbytes


def peak_bytes() -> int:
    """Of this process alone; getrusage would count what its parent had before it was started."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return 1024 * int(line.split()[1])
    raise SystemExit("peak memory can only be measured on Linux")


def served(loader: Batches) -> int:
    return sum(len(batch.y) for batch in loader.batches())


@dataclass
class Measured:
    """One way to do it, round by round."""

    rates: list[float] = field(default_factory=list)  # images per second
    processor: list[float] = field(default_factory=list)  # µs per image, in all processes


def interleaved(rounds: int, *ways: Callable[[], int]) -> list[Measured]:
    """Several ways, measured in turns after a round that does not count."""
    measured = [Measured() for _ in ways]
    for number in range(rounds + 1):
        for way, into in zip(ways, measured, strict=True):
            used, start = processor_seconds(), time.perf_counter()
            images = way()
            if number:
                into.rates.append(images / (time.perf_counter() - start))
                into.processor.append(1e6 * (processor_seconds() - used) / images)
    return measured


def processor_seconds() -> float:
    """Of this process and of all workers that have ended."""
    whose = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(u.ru_utime + u.ru_stime for u in map(resource.getrusage, whose))


def row(
    what: str,
    values: list[float],
    unit: str,
    *,
    at_least: float | None = None,
    at_most: float | None = None,
) -> dict[str, Any]:
    average = mean(values)
    wanted = f"≥ {at_least:,}" if at_least else f"≤ {at_most:,}" if at_most else ""
    met = (at_least is None or average >= at_least) and (at_most is None or average <= at_most)
    return {
        "what": what,
        "mean": average,
        "std": stdev(values) if len(values) > 1 else 0.0,
        "median": median(values),
        "unit": unit,
        "wanted": wanted,
        "met": met if wanted else None,
        "values": values,
    }


def ratio(
    what: str, ours: Measured, theirs: Measured, *, at_least: float | None = None
) -> dict[str, Any]:
    values = [a / b for a, b in zip(ours.rates, theirs.rates, strict=True)]
    return row(what, values, "×", at_least=at_least)


def report(rows: list[dict[str, Any]], rounds: int, out: Path) -> None:
    machine = {
        "cores": len(os.sched_getaffinity(0)),
        "architecture": platform.machine(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "pillow": PIL.__version__,
        "torch threads": CORES,
        "load before the end": round(os.getloadavg()[1], 2),
    }
    lines = [
        "| what | mean ± std | wanted | met |",
        "|---|---|---|---|",
        *(
            f"| {r['what']} | {r['mean']:,.{digits(r)}f} ± {r['std']:,.{digits(r)}f} {r['unit']} "
            f"| {r['wanted']} | {'' if r['met'] is None else 'yes' if r['met'] else '**no**'} |"
            for r in rows
        ),
    ]
    facts = ", ".join(f"{key} {value}" for key, value in machine.items())
    print("\n".join(lines))
    text = f"# Loader speed\n\n`benchmarks/loader_speed.py`, {rounds} rounds; {facts}.\n\n"
    result_file.write(
        "loader_speed",
        rows,
        text + "\n".join(lines),
        config={"rounds": rounds, "date": str(date.today())},
        made_with=machine,
        folder=out,
    )


def digits(measured: dict[str, Any]) -> int:
    return 0 if measured["mean"] >= 100 else 2


if __name__ == "__main__":
    main()
