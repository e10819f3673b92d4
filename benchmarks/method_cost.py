"""What a step of every method costs beside one of cross entropy, in the whole loop.

A ResNet-20 learns 32×32 images of 10 classes in batches of 32, with the records of every example;
evaluations and checkpoints are left out. Steps of a method and of cross entropy take turns, so that
whatever else the machine does slows both; a stage's cost is the median of the ratios, and a
method's the mean over its stages by how many steps they have. What a stage computes before its
first step is left out: that is a pass over the data or two. proselflc_auto is made to begin to
trust its predictions after half of the epochs, and what it costs before and after that are two
stages.

    python benchmarks/method_cost.py              # also written to results/, where `methods` looks
    python benchmarks/method_cost.py --quick      # fewer steps and no files
    python benchmarks/method_cost.py joint_soft   # some methods, the others stay as they were
"""

from __future__ import annotations

import argparse
import platform
import statistics
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import result_file
import torch
from stepping import Phase, steps

from proselflc import methods
from proselflc.correction import onset
from proselflc.data.dataset import Dataset, Part
from proselflc.data.inputs import Images
from proselflc.run.config import Config
from proselflc.run.fit import fit
from proselflc.training.recipe import Recipe

EXAMPLES, CLASSES, BATCH, TRUSTED = 128, 10, 32, 0.25
EPOCHS = 8
MODEL = "resnet20"
MOST = {"proselflc_auto": 1.05}  # that a step may cost, × cross entropy's, in every stage


def images() -> Dataset:
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (EXAMPLES, 32, 32, 3), dtype=np.uint8)
    labels = np.arange(EXAMPLES) % CLASSES
    part = Part(Images(pixels), labels, tuple(map(str, range(EXAMPLES))))
    names = tuple(map(str, range(CLASSES)))
    return Dataset("noise", part, names, coarse=np.arange(CLASSES) // 2)


def config(method: str, teacher: Path, epochs: int) -> Config:
    found = methods.find(method)
    return Config(
        method=method,
        parameters={"teacher": teacher} if "teacher" in found.takes else {},
        trusted=str(TRUSTED) if found.learns_trusted else None,
        model=MODEL,
        augment="crop-flip",
        recipe=Recipe(epochs=epochs, batch_size=BATCH),
    )


def cost(method: str, teacher: Path, epochs: int) -> list[dict[str, float]]:
    """Per stage, how many times as long as one of cross entropy a step takes, and its share."""
    ratios: dict[Phase, list[float]] = {}
    # These labels cannot be predicted, and so the loss on held-out ones need not settle.
    onset.has_settled = lambda losses, *_: len(losses) >= epochs // 2
    with tempfile.TemporaryDirectory() as folder:
        theirs, plain = (
            steps(config(one, teacher, epochs), images(), Path(folder) / str(k))
            for k, one in enumerate((method, "cce"))
        )
        for (phase, begins, seconds), (_, _, beside) in zip(theirs, plain, strict=True):
            ratios.setdefault(phase, []).append(float("nan") if begins else seconds / beside)
    total = sum(map(len, ratios.values()))
    return [
        {
            "times_cross_entropy": round(statistics.median(r for r in found if r == r), 3),
            "share": round(len(found) / total, 3),
        }
        for found in ratios.values()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("methods", nargs="*")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    before = result_file.read("method_cost")
    measured = {} if before is None else before["found"]
    with tempfile.TemporaryDirectory() as folder:
        data = images()
        teacher = Path(folder) / "teacher"
        assert isinstance(data.train.inputs, Images)
        y, ids = data.train.labels, list(data.train.ids)
        fit(data.train.inputs.pixels, y, ids=ids, model=MODEL, steps=2, out=teacher)
        for method in options.methods or methods.every():
            stages = cost(method, teacher, 4 if options.quick else EPOCHS)
            mean = sum(one["times_cross_entropy"] * one["share"] for one in stages)
            measured[method] = {"times_cross_entropy": round(mean, 2), "stages": stages}
            each = ", ".join(f"{one['times_cross_entropy']:.3f}" for one in stages)
            print(f"{method:22} × {mean:.2f}" + f" ({each})" * (len(stages) > 1), flush=True)
    if options.quick:
        return
    measured = {name: measured[name] for name in methods.every() if name in measured}
    write(measured)
    for name, most in MOST.items():
        found = max(one["times_cross_entropy"] for one in measured[name]["stages"])
        if found > most:
            raise SystemExit(f"{name}: {found:.3f} × cross entropy, at most {most} is wanted")


def write(measured: dict[str, Any]) -> None:
    """Write the result, which `proselflc methods` reads."""
    rows = [
        f"| {methods.find(name).title} (`{name}`) | {one['times_cross_entropy']:.2f} |"
        for name, one in measured.items()
    ]
    result_file.write(
        "method_cost",
        measured,
        "\n".join(["| method | a step, × cross entropy's |", "|---|---|", *rows]),
        config={
            **{"model": MODEL, "batch": BATCH, "classes": CLASSES},
            "steps": EPOCHS * EXAMPLES // BATCH,
        },
        made_with={
            "machine": platform.processor() or platform.machine(),
            "torch": torch.__version__,
        },
    )


if __name__ == "__main__":
    main()
