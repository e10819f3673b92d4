"""What a memory in half precision or of the largest classes keeps, beside the dense one."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from proselflc import Memory
from proselflc.correction import memory
from proselflc.correction import memory_rule as rules
from proselflc.correction.memory import chosen
from proselflc.correction.memory_storage import KINDS, Kind, bytes_per_example, rounded, thresholds
from proselflc.data import memory_budget
from proselflc.training import prediction_memory

AVERAGES = [
    *(
        rules.ExponentialAverage(),
        rules.AverageFromZero(0.7),
        rules.AverageFromLabel(),
        rules.BiasCorrectedAverage(),
    ),
    rules.RunningMean(),
]
n, C, EPOCHS = 1000, 50, 40


def training(labels: Tensor, spread: float) -> Iterator[Tensor]:
    """Yield the predictions [n, C] of epochs in which a network learns and then memorises.

    `spread` is how much the logits of all other classes differ, half of it anew in every epoch.
    """
    g = torch.Generator().manual_seed(0)
    true = torch.where(torch.rand(n, generator=g) < 0.6, labels, (labels + 1) % C)
    rows = torch.arange(n)
    base = spread * torch.randn(n, C, generator=g)
    for epoch in range(EPOCHS):
        t = epoch / EPOCHS
        z = base + spread * torch.randn(n, C, generator=g)
        near = torch.randn(n, 2, generator=g).abs()  # of the two classes that compete
        z[rows, true] += 8 * min(1, 3 * t) * (1 - 0.5 * max(0, t - 0.4)) + near[:, 0]
        z[rows, labels] += 12 * max(0, t - 0.4) + near[:, 1]
        yield z.softmax(1)


def margin(average: Tensor, y: Tensor) -> Tensor:
    """Return by how much the largest other class exceeds the given one."""
    of_given = average.gather(1, y[:, None])[:, 0]
    return average.scatter(1, y[:, None], -1.0).amax(1) - of_given


def largest_gap(average: Tensor) -> Tensor:
    top = average.topk(2).values
    return top[:, 0] - top[:, 1]


@pytest.mark.parametrize("rule", AVERAGES, ids=lambda rule: type(rule).__name__)
@pytest.mark.parametrize(("storage", "spread"), [("half", 1.0), ("top", 0.0)])
def test_it_is_the_dense_memory_within_half_precision(
    rule: rules.MemoryRule, storage: Kind, spread: float
) -> None:
    """In "top" if no more than five classes of an example ever stand out."""
    y = torch.arange(n) % C
    dense, ours = (Memory(n, C, rule=rule, given=y, storage=kind) for kind in ("dense", storage))
    for p in training(y, spread):
        for index in torch.split(torch.randperm(n), 100):
            dense.update(index, p[index])
            ours.update(index, p[index])
        expected, found = dense.average, ours.average
        assert_close(found, expected, rtol=5e-3, atol=2e-3)
        assert_close(
            found.gather(1, y[:, None]), expected.gather(1, y[:, None]), rtol=5e-3, atol=1e-5
        )
        assert_close(margin(found, y), margin(expected, y), rtol=0, atol=3e-3)
        clear = largest_gap(expected) > 3e-3
        assert clear.any()
        assert torch.equal(found.argmax(1)[clear], expected.argmax(1)[clear])
        assert torch.equal(ours.updates, dense.updates)


@pytest.mark.parametrize("rule", AVERAGES, ids=lambda rule: type(rule).__name__)
def test_the_given_class_is_exact_when_any_class_may_stand_out_for_an_epoch(
    rule: rules.MemoryRule,
) -> None:
    y = torch.arange(n) % C
    dense, ours = (Memory(n, C, rule=rule, given=y, storage=kind) for kind in ("dense", "top"))
    for p in training(y, 1.0):
        dense.update(torch.arange(n), p)
        ours.update(torch.arange(n), p)
        expected, found = dense.average, ours.average
        assert_close(
            found.gather(1, y[:, None]), expected.gather(1, y[:, None]), rtol=5e-3, atol=1e-5
        )
        assert_close(found.sum(1), expected.sum(1), rtol=0, atol=3e-3)
        clear = largest_gap(expected) > 0.2
        assert torch.equal(found.argmax(1)[clear], expected.argmax(1)[clear])
        assert (margin(found, y) - margin(expected, y)).abs().mean() < 0.015
    assert clear.float().mean() > 0.7
    assert_close(margin(found, y), margin(expected, y), rtol=0, atol=0.1)


def test_late_updates_still_count() -> None:
    """Rounded to the nearest, a mean of 400 would stop short by 0.01 to 0.02."""
    before = torch.rand(200, 1, generator=torch.Generator().manual_seed(0))
    ours = Memory(200, 1, rule=rules.RunningMean(), storage="half")
    for k in range(400):
        ours.update(torch.arange(200), before if k < 60 else 1 - before)
    error = ours.average - (60 * before + 340 * (1 - before)) / 400
    assert error.abs().max() < 4e-3
    assert error.abs().mean() < 1e-3


def test_thresholds_are_spread_and_rounding_is_to_a_neighbour() -> None:
    index, updates = torch.full((1000,), 7), torch.arange(1000)
    found = thresholds(index, updates).sort().values
    assert_close(found, torch.arange(1000).double() / 1000, rtol=0, atol=3e-3)
    value = torch.tensor([0.3, 0.7, 1.0, 0.0, 2.0**-9])
    rows = rounded(value.expand(1000, 5), torch.half, thresholds(index, updates)).double()
    assert_close(rows.mean(0), value.double(), rtol=0, atol=2e-6)
    for column, exact in zip(rows.T, value.double(), strict=True):
        assert (column - exact).abs().max() < 2**-11
        assert len(column.unique()) == (1 if exact == exact.half() else 2)


@pytest.mark.parametrize("rule", [rules.LastValue(), rules.LabelThenLast()])
def test_a_value_that_is_replaced_is_rounded_to_the_nearest(rule: rules.MemoryRule) -> None:
    ours = Memory(9, 4, rule=rule, given=torch.arange(9) % 4, storage="half")
    p = torch.randn(9, 4).softmax(1)
    ours.update(torch.arange(9), p)
    assert torch.equal(ours.average, p.half().float())


@pytest.mark.parametrize("classes", [1, 2, 4, 5, 6, 7])
@pytest.mark.parametrize("is_given", [False, True])
def test_few_classes_are_all_kept(classes: int, is_given: bool) -> None:
    """All are, if there are no more than five, or six and one of them is given."""
    y = torch.arange(8) % classes
    ours = Memory(8, classes, storage="top", given=y if is_given else None)
    p = torch.randn(8, classes, generator=torch.Generator().manual_seed(0)).softmax(1)
    ours.update(torch.arange(8), p)
    if classes <= 6:
        assert_close(ours.average, p, rtol=2e-3, atol=1e-6)
    else:
        assert_close(ours.average.topk(5).values, p.topk(5).values, rtol=2e-3, atol=1e-6)
        assert_close(ours.average.sum(1), torch.ones(8), rtol=2e-3, atol=0)


def test_storage_is_the_first_that_fits() -> None:
    sizes = {kind: 1000 * bytes_per_example(kind, 100) for kind in KINDS}
    assert sizes == {"dense": 404_000, "half": 204_000, "top": 30_000}
    found = {budget: chosen(1000, 100, budget) for budget in (404_000, 403_999, 203_999, 1)}
    assert list(found.values()) == ["dense", "half", "top", "top"]
    assert chosen(1000, 4, 1) == "half"  # five classes would take more
    assert Memory(1000, 100, budget=403_999).storage == "half"
    assert Memory(1000, 100).storage == "dense"
    assert memory.BUDGET == memory_budget.LIMIT // 3


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("classes", [3, 100, 40_000])
def test_the_figure_is_what_the_buffers_take(kind: Kind, classes: int) -> None:
    ours = Memory(7, classes, storage=kind, given=torch.zeros(7, dtype=torch.int64))
    given = ours.rows.given
    assert given is not None
    buffers = sum(buffer.nbytes for buffer in ours.buffers())
    less = 0 if kind == "top" else given.nbytes
    assert buffers - less == 7 * bytes_per_example(kind, classes)
    assert 1_281_167 * bytes_per_example("top", 1000) < 60e6


IMAGENET = """
import json, tempfile
from pathlib import Path
import torch
from proselflc.correction.memory import Memory
from proselflc.correction.memory_rule import AverageFromLabel
from proselflc.training import checkpoint
from proselflc.training.checkpoint import State

def now(field):
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(one.split()[1]) for one in lines if one.startswith(field + ":"))

n, C = 1_281_167, 1000
given, p = torch.arange(n) % C, torch.rand(256, C).softmax(1)
few = Memory(256, C, rule=AverageFromLabel(), given=given[:256], storage="top")
few.update(torch.arange(256), p)  # what the first step alone allocates
folder = Path(tempfile.mkdtemp(dir="."))
checkpoint.write(folder, State(1, few.per_example(), {}))
before = now("RssAnon")
memory = Memory(n, C, rule=AverageFromLabel(), given=given)  # writes all of its pages
memory.updates += 1
for k in range(20):
    memory.update(torch.arange(256) + 60_000 * k, p)
kept = now("RssAnon") - before
Path("/proc/self/clear_refs").write_text("5")  # forgets the peak
checkpoint.write(folder, State(2, memory.per_example(), {}))
peak = now("VmHWM") - now("VmRSS")
print(json.dumps([memory.storage, kept, peak]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="memory is measured by /proc")
def test_the_memory_of_imagenet_takes_what_the_figure_says(program: Any, tmp_path: Path) -> None:
    """Measured: 47 MB, of which the buffers are 38, and 72 more while it is saved."""
    done = program.start(code=IMAGENET, folder=tmp_path).wait()
    assert done.code == 0, done
    storage, kept, peak = json.loads(done.stdout)
    figure = 1_281_167 * bytes_per_example("top", 1000)
    assert storage == "top"
    assert 0.9 * figure < kept < 60e6
    assert peak < (prediction_memory.COPIES - 1) * figure + 10e6
