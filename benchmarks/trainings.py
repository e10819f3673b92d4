"""Trainings that a benchmark asks for, kept so that none is done twice.

Each has a folder of its own, named after the setting, the seed and a hash of all that it depends
on. Raise TRAINING where the same configuration trains otherwise than before.
"""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from cells import Cell
from filelock import FileLock

from proselflc.data import labels as labels_of
from proselflc.data.dataset import Dataset
from proselflc.data.inputs import Floats
from proselflc.data.labels import Labels
from proselflc.files.regular import whole_file
from proselflc.queue.run_store import hash_options
from proselflc.run.reader import Run, load_run
from proselflc.training.observations import ROW

TRAINING = 1
FOLDS = 4
WORK = Path(__file__).parent / ".work"


@dataclass(frozen=True)
class Cost:
    """What trainings took: seconds of the processor, and steps."""

    seconds: float
    steps: int

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.seconds + other.seconds, self.steps + other.steps)


@dataclass(frozen=True)
class Case:
    """One setting with one seed; what is not trained yet is when it is asked for.

    Attributes:
        setting, seed: which.
        root: where data is.
        work: where trainings are kept.
    """

    setting: Cell
    seed: int
    root: Path
    work: Path = WORK

    @property
    def depends(self) -> dict[str, object]:
        """What all its trainings depend on."""
        return {"setting": self.setting.to_json(), "seed": self.seed, "training": TRAINING}

    @cached_property
    def dataset(self) -> Dataset:
        return self.setting.labelled(self.root, self.seed)

    def run(self, method: str) -> tuple[Run, Cost]:
        """A method's run on all examples, with its default parameters."""

        def train(folder: Path) -> Cost:
            return self._timed(self.dataset, method, folder / "run")[1]

        folder, cost = self._once(method, {"records": ROW.descr}, train)
        return load_run(folder / "run"), cost

    def folds(self) -> tuple[Labels, Floats, Cost]:
        """The labels, and [n, C] what models that have not seen an example say about it."""

        def train(folder: Path) -> Cost:
            from sklearn.model_selection import StratifiedKFold

            part = self.dataset.train
            split = StratifiedKFold(FOLDS, shuffle=True, random_state=self.seed)
            p = np.full((len(part), self.dataset.num_classes), np.nan, np.float32)
            total = Cost(0, 0)
            for seen, held_out in split.split(part.labels, part.labels):
                rest = Dataset(self.dataset.name, part.take(seen), self.dataset.names)
                run, cost = self._timed(rest, "cce", None)
                p[held_out] = run.predict_inputs(part.inputs.take(held_out)).probabilities
                total += cost
            with whole_file(folder / "held_out.npy") as file:
                np.lib.format.write_array(file, p, allow_pickle=False)
            labels_of.from_dataset(self.dataset, None).save(folder / "labels.npz")
            return total

        folder, cost = self._once("folds", {"folds": FOLDS}, train)
        p: Floats = np.load(folder / "held_out.npy", allow_pickle=False)
        return Labels.load(folder / "labels.npz"), p, cost

    def _timed(self, dataset: Dataset, method: str, out: Path | None) -> tuple[Run, Cost]:
        _warm_up(self.setting, self.root)
        begin = time.process_time()
        run = self.setting.fit(
            dataset,
            method=method,
            seed=self.seed,
            out=out,
            eval_epochs=self.setting.epochs,
        )
        seconds = time.process_time() - begin
        return run, Cost(seconds, int(str(run.summary["steps"])))

    def _once(
        self, name: str, depends: Mapping[str, object], train: Callable[[Path], Cost]
    ) -> tuple[Path, Cost]:
        """The folder of a training and what it took; trained if that is not there whole.

        Two processes that want the same do it once: the second waits.
        """
        key = hash_options({**self.depends, **depends, "name": name})
        folder = self.work / f"{self.setting.name}-{self.seed}-{name}-{key}"
        folder.mkdir(parents=True, exist_ok=True)
        done = folder / "cost.json"
        with FileLock(folder / ".lock"):
            if not done.is_file():
                write_json(done, asdict(train(folder)))
        return folder, Cost(**read_json(done))


@functools.cache
def _warm_up(setting: Cell, root: Path) -> None:
    """Do once whatever only the first run in a process takes time for."""
    dataset = setting.labelled(root, seed=0)
    few = dataset.train.take(np.arange(min(len(dataset.train), 2 * setting.batch_size)))
    replace(setting, epochs=2).fit(
        Dataset(dataset.name, few, dataset.names), method="proselflc", seed=0
    )


def read_json(path: Path) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return value


def write_json(path: Path, value: object) -> None:
    """Whole or not at all."""
    with whole_file(path) as file:
        file.write(json.dumps(value, indent=1).encode() + b"\n")
