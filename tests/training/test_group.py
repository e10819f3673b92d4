"""What processes know of a batch together, with threads in their place."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar, cast

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from proselflc.correction.memory import Memory
from proselflc.training import group as group_module
from proselflc.training.group import Group

C = 3
Result = TypeVar("Result")


class Together:
    """The accelerators of several processes, of which each is a thread."""

    def __init__(self, number: int) -> None:
        self.tensors: list[Tensor] = [torch.empty(0)] * number
        self.barrier = threading.Barrier(number, timeout=20)

    def accelerator(self, rank: int) -> Any:
        class One:
            process_index, num_processes = rank, len(self.tensors)
            device = torch.device("cpu")

            @staticmethod
            def gather(tensor: Tensor) -> Tensor:
                self.tensors[rank] = tensor.detach()
                self.barrier.wait()
                result = torch.cat(self.tensors)
                self.barrier.wait()
                return result

            @classmethod
            def reduce(cls, tensor: Tensor, how: str) -> Tensor:
                assert how == "sum"
                return cls.gather(tensor[None]).sum(0)

        return One()


def in_processes(number: int, work: Callable[[Group, int], Result]) -> list[Result]:
    """Return what each of the processes returns."""
    together = Together(number)
    with ThreadPoolExecutor(number) as pool:
        groups = [Group(cast("Any", together.accelerator(rank))) for rank in range(number)]
        return list(pool.map(work, groups, range(number)))


@pytest.mark.parametrize("sizes", [(4, 4), (1, 6, 1), (3, 0, 5), (0, 2)])
def test_the_mean_of_a_batch_has_the_gradient_of_one_process(sizes: tuple[int, ...]) -> None:
    z = 3 * torch.randn(sum(sizes), C, generator=torch.Generator().manual_seed(0)).double()
    weights = torch.tensor([0.2, 1.0, -3.0], dtype=torch.float64)

    def loss(group: Group, logits: Tensor) -> Tensor:
        return (weights * group.log_mean(logits.log_softmax(1))).sum()

    whole = z.clone().requires_grad_()
    expected = loss(Group(), whole)
    (slope,) = torch.autograd.grad(expected, whole)

    def work(group: Group, rank: int) -> tuple[Tensor, Tensor]:
        own = z.split(sizes)[rank].clone().requires_grad_()  # type: ignore[no-untyped-call]
        found = loss(group, own)
        (gradient,) = torch.autograd.grad(found * (len(own) / len(z)), own)
        return found.detach(), gradient

    found = in_processes(len(sizes), work)
    for value, _ in found:
        assert_close(value, expected.detach())
    assert_close(torch.cat([gradient for _, gradient in found]), slope)


def test_a_process_knows_its_place_in_the_batch() -> None:
    sizes = (3, 0, 2)
    found = in_processes(3, lambda group, rank: group.place(sizes[rank]))
    assert found == [(slice(0, 3), 5), (slice(3, 3), 5), (slice(3, 5), 5)]
    assert Group().place(4) == (slice(0, 4), 4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int16, torch.bool])
@pytest.mark.parametrize("shape", [(), (2,), (2, 3)])
def test_what_is_per_example_is_whole_in_the_first_process(
    dtype: torch.dtype, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_module, "BLOCK", 24)  # several blocks, some of one row
    n, world = 11, 3
    whole = torch.randint(2, (n, *shape), generator=torch.Generator().manual_seed(0)).to(dtype)
    own = [Memory.own(whole, (rank, world)) for rank in range(world)]
    found = in_processes(world, lambda group, rank: group.whole(own[rank], n))
    assert torch.equal(found[0], whole)
    assert torch.equal(Group().whole(whole, n), whole)


def test_what_is_whole_is_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """The device of the first process has room for its own part; "meta" stands for a GPU."""

    class Two:
        process_index, num_processes = 0, 2

    monkeypatch.setattr(
        Group, "parts", lambda _, own: (torch.zeros(own.shape), torch.ones(own.shape))
    )
    own = torch.empty(5, 3, device="meta")
    found = Group(cast("Any", Two())).whole(own, 10)
    assert found.device.type == "cpu"
    assert found[:, 0].tolist() == 5 * [0, 1]


@pytest.mark.parametrize("number", [0, 1])
def test_a_share_that_cannot_be_normalised_takes_part_all_the_same(number: int) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Dropout(0.5), nn.Linear(5, C))
    model(torch.randn(8, 4))
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    x = torch.randn(number, 4)
    group = Group(cast("Any", Together(2).accelerator(1)))
    logits = group.logits(model, x)
    assert logits.shape == (number, C)
    assert model.training
    assert all(torch.equal(before[name], buffer) for name, buffer in model.named_buffers())
    assert_close(logits, model.eval()(x))
    logits.square().mean().backward()  # type: ignore[no-untyped-call]  # the mean of none is NaN
    gradients = [parameter.grad for parameter in model.parameters()]
    assert all(gradient is not None and gradient.isfinite().all() for gradient in gradients)
    if number == 0:
        assert all(gradient is not None and gradient.abs().sum() == 0 for gradient in gradients)


def test_gradients_are_averaged() -> None:
    def work(group: Group, rank: int) -> Tensor:
        parameter, unused = nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(1))
        parameter.grad = torch.tensor([1.0, 4.0 * rank])
        group.average_gradients([parameter, unused])
        assert unused.grad is None
        return parameter.grad

    for found in in_processes(2, work):
        assert found.tolist() == [1.0, 2.0]
