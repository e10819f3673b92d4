"""What a step of ours costs beside a bare loop, and beside the usual pipeline with Pillow.

Three loops train the same network on the same 32×32 images of 100 classes, in batches of 128 with
crops and flips:

- ours: what `proselflc train` does at every step, ProSelfLC with the records of every example, and
  once more with the means of p and q̃ that are kept in the last epochs; evaluations and checkpoints
  are left out;
- bare: written by hand for this one purpose, the same batches from memory, `F.cross_entropy`, SGD,
  no records;
- Pillow: the same by hand, but image by image in a DataLoader with two workers, and ProSelfLC as
  one would write it down: one-hot, softmax, log(p + 1e-6).

Every round times every loop once, a block of steps each, in an order that changes from round to
round; a cost is the median over rounds of the ratio in the same round.

    python benchmarks/throughput.py            # the tables, also written to benchmarks/results/
    python benchmarks/throughput.py --quick    # fewer rounds and no result files
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import result_file
import torch
from PIL import Image
from step_cost import plain
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

from proselflc.data.dataset import Dataset as LabelledData
from proselflc.data.dataset import Part
from proselflc.data.image_scaling import ImageScaling, pad_crop, placements
from proselflc.data.inputs import Bytes, Images, Ints
from proselflc.models import catalogue
from proselflc.models.shape import ImageShape
from proselflc.run.config import Config
from proselflc.run.learned.network import TrainingRun
from proselflc.run.prepare import prepare
from proselflc.terminal import Display
from proselflc.training import processes
from proselflc.training.loop import train_steps
from proselflc.training.recipe import Recipe
from proselflc.training.run_directory import RunDirectory

EXAMPLES, CLASSES, BATCH = 20_000, 100, 128
LR, MOMENTUM, WEIGHT_DECAY = 0.01, 0.9, 5e-4

OURS, LAST_EPOCHS, BARE, PILLOW = "ours", "ours, last epochs", "bare", "Pillow, plain loss"
STEPS = {"resnet20": 10, "convnet": 40}  # of a block; of them two come ready from Pillow's workers
ROUNDS = {"resnet20": 15, "convnet": 31}
MOST = {"resnet20": 1.05, "convnet": 1.15}  # times the bare loop, says the issue


def cifar_like() -> LabelledData:
    """Images and labels of nothing but noise, as large as a part of CIFAR-100."""
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (EXAMPLES, 32, 32, 3), dtype=np.uint8)
    y = rng.integers(0, CLASSES, EXAMPLES)
    part = Part(Images(pixels), y, tuple(map(str, range(EXAMPLES))))
    return LabelledData("noise", part, tuple(map(str, range(CLASSES))))


def ours(dataset: LabelledData, model: str, folder: Path, *, last_epochs: bool) -> Iterator[None]:
    """Steps of a run."""
    recipe = Recipe(
        epochs=10**6, batch_size=BATCH, optimizer="sgd", lr=LR, weight_decay=WEIGHT_DECAY
    )
    config = Config(method="proselflc", model=model, augment="crop-flip", recipe=recipe)
    directory = RunDirectory(folder)
    directory.make()
    setting = prepare(config, dataset, report=print)
    run = TrainingRun(setting, directory, processes.accelerator("no"), Display())
    if last_epochs:
        run.records.recorder.recent_from = 0
    for _ in train_steps(run.training, setting.train, observers=(run.records, run.meter)):
        yield


def bare(
    pixels: Bytes, labels: Ints, scaling: ImageScaling, model: nn.Module, size: int = BATCH
) -> Iterator[None]:
    """Steps of a loop that does what it must and no more, with batches of a size."""
    optimizer = _sgd(model)
    images, y = torch.from_numpy(pixels), torch.from_numpy(labels)
    generator = torch.Generator().manual_seed(0)
    model.train()
    while True:
        order = torch.randperm(len(y))
        for start in range(0, len(y), size):
            some = order[start : start + size]
            taken = images[some].permute(0, 3, 1, 2)
            where = placements(len(taken), room=(8, 8), flip=True, generator=generator)
            taken = pad_crop(taken, padding=4, placement=where)
            loss = F.cross_entropy(model(scaling.normalized(taken)), y[some])
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            optimizer.step()
            yield


class PerImage(Dataset[tuple[Tensor, int]]):
    """Every image becomes a Pillow image, is padded, cropped, flipped and scaled."""

    def __init__(self, pixels: Bytes, labels: Ints, scaling: ImageScaling) -> None:
        self.pixels, self.labels = pixels, labels
        self.mean = torch.tensor(scaling.mean)[:, None, None]
        self.std = torch.tensor(scaling.std)[:, None, None]

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        padded = Image.new("RGB", (40, 40))
        padded.paste(Image.fromarray(self.pixels[i]), (4, 4))
        left, top, flip = random.randint(0, 8), random.randint(0, 8), random.random() < 0.5
        image = padded.crop((left, top, left + 32, top + 32))
        if flip:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        x = torch.from_numpy(np.array(image)).permute(2, 0, 1).float().div_(255)
        return x.sub_(self.mean).div_(self.std), int(self.labels[i])


def pillow(pixels: Bytes, labels: Ints, scaling: ImageScaling, model: nn.Module) -> Iterator[None]:
    """Steps of the usual loop."""
    # One batch ahead per worker: what they do after a block has ended is then soon done.
    loader = DataLoader(
        PerImage(pixels, labels, scaling),
        BATCH,
        shuffle=True,
        num_workers=2,
        prefetch_factor=1,
        persistent_workers=True,
    )
    optimizer = _sgd(model)
    model.train()
    while True:
        for x, y in loader:
            loss = plain(model(x), y)
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            optimizer.step()
            yield


def race(loops: dict[str, Iterator[None]], steps: int, rounds: int) -> dict[str, list[float]]:
    """Seconds per step of every loop in every round, after one that does not count."""
    seconds: dict[str, list[float]] = {name: [] for name in loops}
    shuffle = random.Random(0).shuffle
    for number in range(rounds + 1):
        order = list(loops)
        shuffle(order)
        for name in order:
            start = time.perf_counter()
            for _ in range(steps):
                next(loops[name])
            if number:
                seconds[name].append((time.perf_counter() - start) / steps)
            if name == PILLOW:
                time.sleep(0.3)  # until its workers have nothing left to do
    return seconds


def compared(seconds: dict[str, list[float]]) -> dict[str, dict[str, float]]:
    """Median time, and median over rounds of the ratios to the bare loop and to Pillow's."""
    table = {}
    for name, times in seconds.items():
        ratios = [t / other for t, other in zip(times, seconds[BARE], strict=True)]
        faster = [other / t for t, other in zip(times, seconds[PILLOW], strict=True)]
        table[name] = {
            "milliseconds": 1e3 * statistics.median(times),
            "images_per_second": BATCH / statistics.median(times),
            "times_bare": statistics.median(ratios),
            "std_over_rounds": statistics.stdev(ratios),
            "times_faster_than_pillow": statistics.median(faster),
        }
    return table


def show(title: str, table: dict[str, dict[str, float]]) -> str:
    head = f"{'':22}{'ms/step':>10}{'images/s':>10}{'× bare':>9}{'± std':>8}"
    lines = [title, head + f"{'× faster than Pillow':>22}"]
    lines += [
        f"{name:22}{row['milliseconds']:>10.2f}{row['images_per_second']:>10.0f}"
        f"{row['times_bare']:>9.3f}{row['std_over_rounds']:>8.3f}"
        f"{row['times_faster_than_pillow']:>22.2f}"
        for name, row in table.items()
    ]
    return "\n".join(lines)


def verdicts(model: str, table: dict[str, dict[str, float]]) -> str:
    """Whether both of our loops are what the issue asks for."""
    most = max(table[name]["times_bare"] for name in (OURS, LAST_EPOCHS))
    least = min(table[name]["times_faster_than_pillow"] for name in (OURS, LAST_EPOCHS))
    return (
        f"{model}: wanted ≤ {MOST[model]} × the bare loop, {most:.3f}: "
        f"{'met' if most <= MOST[model] else 'NOT met'}\n"
        f"{model}: wanted faster than the loop with Pillow, {least:.2f} ×: "
        f"{'met' if least > 1 else 'NOT met'}\n"
    )


def _sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=LR, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY)


def _measured(dataset: LabelledData, model: str, rounds: int) -> dict[str, dict[str, float]]:
    assert isinstance(dataset.train.inputs, Images)
    pixels, labels = dataset.train.inputs.pixels, dataset.train.labels
    scaling = ImageScaling.fit(dataset.train.inputs)
    shape = ImageShape(3, 32, 32)
    one, other = (catalogue.build(model, shape, CLASSES, generator_seed=0) for _ in range(2))
    with tempfile.TemporaryDirectory() as folder:
        loops = {
            OURS: ours(dataset, model, Path(folder, "ours"), last_epochs=False),
            LAST_EPOCHS: ours(dataset, model, Path(folder, "last"), last_epochs=True),
            BARE: bare(pixels, labels, scaling, one),
            PILLOW: pillow(pixels, labels, scaling, other),
        }
        return compared(race(loops, STEPS[model], rounds))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds, no result files")
    parser.add_argument("--threads", type=int, default=2, help="of torch; the targets are for 2")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    dataset = cifar_like()
    texts, result = [], {}
    for model, rounds in ROUNDS.items():
        table = _measured(dataset, model, 3 if arguments.quick else rounds)
        result[model] = table
        title = f"{model}, batches of {BATCH}, 3×32×32, {CLASSES} classes"
        texts += [show(title, table), verdicts(model, table)]
        print("\n".join(texts[-2:]), flush=True)
    if arguments.quick:
        return
    facts = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "cores": len(os.sched_getaffinity(0)),
        "machine": platform.machine(),
        "system": platform.system(),
        "load": round(os.getloadavg()[0], 2),
    }
    header = (
        f"python {facts['python']}, torch {facts['torch']}, {facts['threads']} threads on "
        f"{facts['cores']} cores, load average {facts['load']} at the end (own work included)\n"
    )
    result_file.write(
        "throughput",
        result,
        result_file.preformatted(header + "\n" + "\n".join(texts)),
        config={"batch": BATCH, "classes": CLASSES, "rounds": ROUNDS, "steps_per_block": STEPS},
        made_with=facts,
    )


if __name__ == "__main__":
    main()
