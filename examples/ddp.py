"""ProSelfLC in a distributed training loop of one's own: the clock counts steps, not processes.

Every process has its own criterion and its own half of each batch. All make the same number of
steps, so all clocks agree, and `total_steps` is what it is with one process: optimiser steps.

    torchrun --nproc-per-node 2 examples/ddp.py
"""

from typing import Any

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from proselflc import ProSelfLC

EPOCHS, BATCH, NOISE = 20, 64, 0.4


def main() -> None:
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    rank, processes = dist.get_rank(), dist.get_world_size()
    device = torch.device(
        f"cuda:{rank % torch.cuda.device_count()}" if torch.cuda.is_available() else "cpu"
    )

    digits = load_digits()
    x, y = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)
    wrong = torch.rand(1297, generator=torch.Generator().manual_seed(0)) < NOISE
    given = torch.where(wrong, (y[:1297] + 1) % 10, y[:1297])  # the same in every process
    data = TensorDataset(x[:1297], given)
    sampler: DistributedSampler[Any] = DistributedSampler(data, seed=0)
    loader = DataLoader(data, BATCH // processes, sampler=sampler)

    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)).to(device)
    model = DistributedDataParallel(network)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    criterion = ProSelfLC(total_steps=len(loader) * EPOCHS).to(device)
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        for inputs, labels in loader:
            loss = criterion(model(inputs.to(device)), labels.to(device))
            optimizer.zero_grad()
            loss.backward()  # averages the gradients of all processes
            optimizer.step()

    clocks = [torch.zeros_like(criterion.t) for _ in range(processes)]
    dist.all_gather(clocks, criterion.t)
    if rank == 0:
        with torch.no_grad():
            right = (network(x[1297:].to(device)).argmax(1).cpu() == y[1297:]).float().mean()
        print(
            f"{processes} processes, clocks at {[int(t) for t in clocks]} of {len(loader) * EPOCHS}"
        )
        print(f"test accuracy {right:.1%}, {NOISE:.0%} of the training labels were wrong")
    dist.barrier()  # no process leaves while another still works
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
