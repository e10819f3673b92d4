"""Every method learns in two processes what it learns in one, up to rounding, and resumes there.

Run as a script, this file is one process of a group that torchrun started: it trains every case,
saves what was learned and the state after step `AT`, and resumes the states that one process saved.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.testing import assert_close

import proselflc
from proselflc import methods
from proselflc.data.batches import Loader, Order
from proselflc.data.dataset import Part
from proselflc.data.inputs import Features, Ints
from proselflc.data.preprocessing import Standardization
from proselflc.methods import masking
from proselflc.training import processes
from proselflc.training.checkpoint import State
from proselflc.training.inference import predict_together
from proselflc.training.loop import Training, train_steps
from proselflc.training.recipe import Recipe
from proselflc.training.strategy import RunContext, Snapshot

# The last batch of every epoch has 4 examples, all of which may belong to one process.
n, C, SIZE, EPOCHS = 100, 5, 16, 6
NAMES = ("ant", "bee", "cat", "dog", "eel")  # one example has the last, so one process alone
STEPS = EPOCHS * 7
SEED = 1  # of the order, with which each of two processes has an empty share
AT = 24  # in the middle of an epoch, after labels have moved
RECIPE = Recipe(optimizer="sgd", lr=0.1, weight_decay=1e-4, schedule="multistep", ema=0.5, clip=2.0)

# With these, everything that a method does happens within few epochs.
BEGIN = ("gce_truncated", "m_dyr_h", "m_dyr_s", "md_dyr_sh", "sat")
EAGER: dict[str, dict[str, Any]] = {name: {"begin": 0.3} for name in BEGIN}
EAGER |= {"d2l": {"begin": 0.0, "window": 2}, "gce_truncated": {"begin": 0.3, "k": 0.3}}
MORE = {"s_adaptation, complex": ("s_adaptation", {"layer": "complex"})}
CASES = {name: (name, EAGER.get(name, {})) for name in methods.names()} | MORE


def part() -> Part:
    """Return four clouds of points, three tenths of whose labels are wrong, and a single point."""
    generator = np.random.default_rng(0)
    clean = np.arange(n) % 4
    x = 2 * np.eye(C)[clean] + generator.normal(size=(n, C))
    y = np.where(generator.random(n) < 0.3, (clean + generator.integers(1, 4, n)) % 4, clean)
    y[57] = C - 1
    return Part(Features(x.astype(np.float32)), y, tuple(map(str, range(n))))


def network() -> nn.Sequential:
    """Return a network without batch normalisation, always the same."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(C, 24), nn.ReLU(), nn.Linear(24, C))


class Learning:
    """A training of a case in this process or in the group that it belongs to."""

    def __init__(self, case: str, teacher: Path) -> None:
        name, given = CASES[case]
        if "teacher" in methods.find(name).takes:
            given = {**given, "teacher": teacher}
        accelerator = processes.accelerator("no")
        self.part = part()
        self.shard = accelerator.process_index, accelerator.num_processes
        self.order = Order(SIZE, SEED, least=4, shard=self.shard)
        self.preprocessing = Standardization.fit(cast("Features", self.part.inputs))
        context = RunContext(
            total_steps=STEPS,
            batches=self.order.count(n),
            given=self.part.labels,
            names=NAMES,
            preprocessing=self.preprocessing,
            coarse=np.array([0, 0, 1, 1, 1]),
            trusted=np.arange(n) % 3 == 0,
            shard=self.shard,
        )
        strategy = methods.strategy(name, methods.resolved(name, given), context)
        order = replace(self.order, by_position=strategy.remembers)
        self.loader = Loader(self.part, self.preprocessing, order)
        self.training = Training(
            network(), strategy, RECIPE, STEPS, len(self.loader), accelerator=accelerator
        )
        self.notes: list[str] = []

    def snapshot(self, model: nn.Module) -> Snapshot:
        def predict(rows: Ints | None = None) -> Iterator[tuple[Tensor, Tensor]]:
            some = self.part if rows is None else self.part.take(rows)
            order = Order(33, shuffle=False, shard=self.shard)
            batches = Loader(some, self.preprocessing, order)
            for index, z in predict_together(model, batches, C, self.training.accelerator):
                yield index if rows is None else torch.from_numpy(rows)[index], z

        return Snapshot(model, self.part.labels, C, predict, self.notes.append)

    def learn(self, keep: Path | None = None) -> dict[str, Tensor]:
        """Train to the end, and return the losses, the last q̃ and ε, and all tensors by name.

        The state after step `AT` is saved to `keep`.
        """
        losses, taught = [], torch.zeros(n, C + 1)
        for result in train_steps(self.training, self.loader, self.snapshot):
            losses.append(result.loss)
            corrected = result.corrected
            if result.epoch == EPOCHS - 1:
                found = torch.column_stack((corrected.target, corrected.trust))
                taught[result.batch.index] = found.float()
            if result.step == AT and keep is not None:
                tensors = self.training.tensors()
                if self.shard[0] == 0:
                    save(keep, tensors, self.training.facts())
        tensors = {name: t.clone() for name, t in self.training.tensors().items()}
        taught = self.training.strategy.group.total(taught)  # of other processes it is 0
        return {**tensors, "taught": taught, "losses": torch.tensor(losses, dtype=torch.float64)}

    def resume(self, path: Path) -> dict[str, Tensor]:
        """Restore a state that was kept, and train to the end."""
        facts = json.loads(path.with_suffix(".json").read_text())
        self.training.restore(State(AT, load_file(path), facts))
        return self.learn()


def save(path: Path, tensors: dict[str, Tensor], facts: dict[str, object]) -> None:
    save_file({name: t.detach().clone().contiguous() for name, t in tensors.items()}, path)
    path.with_suffix(".json").write_text(json.dumps(facts))


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What each case learned: alone, and in one group of two nodes with a process each."""
    path = tmp_path_factory.mktemp("together")
    some = part()
    x, y = cast("Features", some.inputs).numbers, some.labels
    proselflc.fit(x, y, names=NAMES, method="cce", epochs=3, notes=False, out=path / "teacher")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(masking, "PRETRAINING", 20)
        for case in CASES:
            one = Learning(case, path / "teacher")
            found = one.learn(path / f"{case}, kept by one.safetensors")
            save(path / f"{case}, one.safetensors", found, {"notes": one.notes})
        port = free_port()
        nodes = []
        for rank in "01":
            command = [
                *(sys.executable, "-m", "torch.distributed.run", "--nnodes", "2"),
                *("--node-rank", rank, "--nproc-per-node", "1", "--master-addr", "127.0.0.1"),
                *("--master-port", str(port), __file__, str(path)),
            ]
            with open(path / f"log-{rank}", "w") as log:
                nodes.append(
                    subprocess.Popen(
                        command,
                        stdout=log,
                        stderr=log,
                        env={**os.environ, "OMP_NUM_THREADS": "1"},
                    )
                )
        try:
            codes = [node.wait(timeout=600) for node in nodes]
        finally:
            for node in nodes:
                node.kill()
        assert codes == [0, 0], [(path / f"log-{rank}").read_text()[-3000:] for rank in "01"]
        for case in CASES:
            kept = path / f"{case}, kept by two.safetensors"
            save(
                path / f"{case}, two then one.safetensors",
                Learning(case, path / "teacher").resume(kept),
                {},
            )
    return path


def close(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, tensor in found.items():
        if tensor.is_floating_point():
            assert tensor.isfinite().all(), name
            assert_close(
                tensor.double(),
                expected[name].double(),
                rtol=1e-3,
                atol=2e-3 if expected[name].dtype == torch.half else 1e-4,
                msg=name,
            )
        else:
            assert torch.equal(tensor, expected[name]), name


@pytest.mark.parametrize("case", CASES)
def test_two_processes_learn_what_one_learns(folder: Path, case: str) -> None:
    one, two = (load_file(folder / f"{case}, {how}.safetensors") for how in ("one", "two"))
    assert len(one["losses"]) == STEPS
    close(two, one)
    one_notes, two_notes = (
        json.loads((folder / f"{case}, {how}.json").read_text())["notes"] for how in ("one", "two")
    )
    assert one_notes == two_notes


def test_each_process_had_empty_shares() -> None:
    for rank in (0, 1):
        order = Order(SIZE, SEED, least=4, shard=(rank, 2), by_position=True)
        shares = [len(one.rows) for epoch in range(EPOCHS) for one in order.shares(n, epoch)]
        assert min(shares) == 0
        assert 1 in shares


@pytest.mark.parametrize("how", ["one then two", "two then one"])
@pytest.mark.parametrize("case", CASES)
def test_a_run_resumes_in_another_number_of_processes(folder: Path, case: str, how: str) -> None:
    one, other = (load_file(folder / f"{case}, {k}.safetensors") for k in ("one", how))
    losses = one.pop("losses")
    assert_close(other.pop("losses"), losses[AT:], rtol=1e-3, atol=1e-4)
    close(other, one)


def main(folder: Path) -> None:
    masking.PRETRAINING = 20  # of 2,000 steps
    torch.set_num_threads(1)
    for case in CASES:
        whole = Learning(case, folder / "teacher")
        found = whole.learn(folder / f"{case}, kept by two.safetensors")
        resumed = Learning(case, folder / "teacher").resume(
            folder / f"{case}, kept by one.safetensors"
        )
        if whole.shard[0] == 0:
            save(folder / f"{case}, two.safetensors", found, {"notes": whole.notes})
            save(folder / f"{case}, one then two.safetensors", resumed, {})
    processes.end_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
