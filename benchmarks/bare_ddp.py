"""Steps in two processes beside those of bare DDP: the workers of `scaling.py --processes`.

Every round times every loop once, a block of steps each, in an order that changes from round to
round and is the same in all processes. A speed is the median over rounds of the ratio to bare DDP
in the same round. The bare loop trains the same network on the same images, by hand: batches from
memory with crops and flips, `F.cross_entropy`, SGD, DistributedDataParallel; no records. Ours are
the steps of a run with the records of every example; evaluations and checkpoints are left out.

A method that remembers something about each example has shares of different size, and the larger
one sets the pace: of N examples in two processes it has N/2 + √(N/2π) on average, and so much
longer may a step take.
"""

from __future__ import annotations

import json
import math
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import result_file
import torch
from throughput import BATCH, LR, MOMENTUM, WEIGHT_DECAY, bare, cifar_like
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from proselflc.data.dataset import Dataset
from proselflc.data.image_scaling import ImageScaling
from proselflc.data.inputs import Images
from proselflc.models import catalogue
from proselflc.models.shape import ImageShape
from proselflc.run.config import Config
from proselflc.run.learned.network import TrainingRun
from proselflc.run.prepare import prepare
from proselflc.terminal import Silent
from proselflc.training import processes
from proselflc.training.recipe import Recipe
from proselflc.training.run_directory import RunDirectory

PROCESSES = 2
METHODS = {"cce": False, "proselflc": False, "elr": True, "proselflc_auto": True}  # if it remembers
BARE = "bare DDP"
NETWORKS = {"resnet20": (8, 15), "convnet": (40, 31)}  # steps of a block, rounds
QUICK = {"resnet20": (2, 3), "convnet": (5, 3)}
LEAST = 0.97  # of the speed of bare DDP, with resnet20 and even shares
LARGER = 1 + math.sqrt(2 / (math.pi * BATCH))  # than half of a batch, of a method that remembers


def ours(dataset: Dataset, method: str, model: str, folder: Path) -> Iterator[object]:
    """Return the steps of a run that goes on for ever."""
    recipe = Recipe(
        epochs=10**6,
        batch_size=BATCH,
        optimizer="sgd",
        lr=LR,
        momentum=MOMENTUM,
        weight_decay=WEIGHT_DECAY,
        schedule="constant",
    )
    accelerator = processes.accelerator("no")
    shard = accelerator.process_index, accelerator.num_processes
    config = Config(
        method=method, model=model, augment="crop-flip", recipe=recipe, eval_steps=10**9
    )
    prepared = prepare(config, dataset, shard=shard, report=print)
    directory = RunDirectory(folder / method)
    directory.make()
    run = TrainingRun(prepared, directory, accelerator, Silent())
    return run.steps((run.records, run.meter))


def by_hand(dataset: Dataset, model: str) -> Iterator[object]:
    """Return the steps of the bare loop on this process's half of every batch."""
    images = dataset.train.inputs
    assert isinstance(images, Images)
    scaling = ImageScaling.fit(images)
    shape = ImageShape(3, 32, 32)
    network: nn.Module = catalogue.build(model, shape, dataset.num_classes, generator_seed=0)
    rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
    return bare(
        images.numbers[rank::world],
        dataset.train.labels[rank::world],
        scaling,
        DistributedDataParallel(network),
        BATCH // world,
    )


def speeds(model: str, steps: int, rounds: int, folder: Path) -> dict[str, Any]:
    """Return for every method the median ratio to bare DDP, and all ratios."""
    dataset = cifar_like()
    methods: dict[str, Callable[[], Iterator[object]]] = {
        name: lambda name=name: ours(dataset, name, model, folder)  # type: ignore[misc]
        for name in METHODS
    }
    loops = {name: make() for name, make in methods.items()} | {BARE: by_hand(dataset, model)}
    seconds: dict[str, list[float]] = {name: [] for name in loops}
    order = random.Random(0)
    for number in range(-1, rounds):  # the first only warms up
        for name in order.sample(sorted(loops), len(loops)):
            torch.distributed.barrier()
            start = time.perf_counter()
            for _ in range(steps):
                next(loops[name])
            torch.distributed.barrier()
            if number >= 0:
                seconds[name].append((time.perf_counter() - start) / steps)
    ratios = {
        name: [base / own for base, own in zip(seconds[BARE], seconds[name], strict=True)]
        for name in METHODS
    }
    return {
        "network": model,
        "bare_milliseconds": 1e3 * statistics.median(seconds[BARE]),
        "speed": {name: statistics.median(found) for name, found in ratios.items()},
        "ratios": ratios,
    }


def measure(*, quick: bool) -> list[dict[str, Any]]:
    """Return the speeds with every network, measured by two processes of one thread each."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
            *("--nproc-per-node", str(PROCESSES), __file__, folder, *["quick"][: int(quick)]),
        ]
        subprocess.run(command, check=True)
        found: list[dict[str, Any]] = json.loads((Path(folder) / "found.json").read_bytes())
    return found


def shown(found: list[dict[str, Any]]) -> str:
    """Return the table."""
    head = f"{'network':<10}{'ms per bare step':>18}" + "".join(f"{m:>16}" for m in METHODS)
    rows = [
        f"{one['network']:<10}{one['bare_milliseconds']:>18.1f}"
        + "".join(f"{one['speed'][m]:>16.3f}" for m in METHODS)
        for one in found
    ]
    about = f"speed in {PROCESSES} processes of one thread each, as a share of bare DDP's"
    return "\n".join((about, head, *rows))


def report(made_with: Mapping[str, object], head: str, *, quick: bool) -> None:
    """Print the speeds, and keep them if the measurement is not quick.

    Raises:
        SystemExit: a method is slower than `LEAST`.
    """
    found = measure(quick=quick)
    text = shown(found)
    print(text)
    if quick:
        return
    result_file.write(
        "scaling_processes",
        found,
        result_file.preformatted(f"{head}\n{text}"),
        config={"methods": list(METHODS), "processes": PROCESSES, "batch": BATCH},
        made_with=made_with,
    )
    for method, speed in found[0]["speed"].items():
        least = LEAST / LARGER if METHODS[method] else LEAST
        if speed < least:
            raise SystemExit(f"{method}: {speed:.3f} of bare DDP's speed, less than {least:.3f}")


def main() -> None:
    folder, *quick = sys.argv[1:]
    torch.set_num_threads(1)
    processes.accelerator("no")
    found = []
    for model, (steps, rounds) in (QUICK if quick else NETWORKS).items():
        place = Path(folder) / f"{model}-{torch.distributed.get_rank()}"
        place.mkdir()
        found.append(speeds(model, steps, rounds, place))
    if torch.distributed.get_rank() == 0:
        (Path(folder) / "found.json").write_text(json.dumps(found))
    torch.distributed.barrier()
    processes.end_group()


if __name__ == "__main__":
    main()
