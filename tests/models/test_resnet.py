"""ResNet-18 and ResNet-50: the published names and shapes, and what is computed with them."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.testing import assert_close

from proselflc.models.resnet import ResNet, resnet18, resnet50

Shapes = dict[str, tuple[int, ...]]


def norm(name: str, width: int) -> Shapes:
    vectors: Shapes = {
        f"{name}.{part}": (width,) for part in ("weight", "bias", "running_mean", "running_var")
    }
    return vectors | {f"{name}.num_batches_tracked": ()}


def published(depth: int, C: int) -> Shapes:
    """Names and shapes of the state dict, from the table of the article (1, conv1 … conv5_x).

    A row of a block is (kernel, output channels as a multiple of the stage's width).
    """
    counts = {18: (2, 2, 2, 2), 50: (3, 4, 6, 3)}[depth]
    rows = {18: ((3, 1), (3, 1)), 50: ((1, 1), (3, 1), (1, 4))}[depth]
    shapes: Shapes = {"conv1.weight": (64, 3, 7, 7)} | norm("bn1", 64)
    before = 64
    for stage, blocks in enumerate(counts, 1):
        width = 32 * 2**stage
        for block in range(blocks):
            name = f"layer{stage}.{block}"
            start = before
            for row, (kernel, multiple) in enumerate(rows, 1):
                shapes[f"{name}.conv{row}.weight"] = (multiple * width, before, kernel, kernel)
                before = multiple * width
                shapes |= norm(f"{name}.bn{row}", before)
            if block == 0 and start != before:
                shapes[f"{name}.downsample.0.weight"] = (before, start, 1, 1)
                shapes |= norm(f"{name}.downsample.1", before)
    return shapes | {"fc.weight": (C, before), "fc.bias": (C,)}


@pytest.mark.parametrize(
    ("make", "depth", "count"), [(resnet18, 18, 11_689_512), (resnet50, 50, 25_557_032)]
)
def test_names_shapes_and_number_of_parameters(
    make: Callable[[int, int], ResNet], depth: int, count: int
) -> None:
    with torch.device("meta"):
        model = make(3, 1000)
    assert {name: tuple(v.shape) for name, v in model.state_dict().items()} == published(
        depth, 1000
    )
    assert sum(p.numel() for p in model.parameters()) == count


def reference(state: dict[str, Tensor], x: Tensor) -> Tensor:
    """The network written out as functions of a state dict in evaluation mode."""

    def conv(name: str, norm: str, x: Tensor, stride: int) -> Tensor:
        weight = state[f"{name}.weight"]
        x = F.conv2d(x, weight, stride=stride, padding=weight.shape[-1] // 2)
        mean, var, scale, offset = (
            state[f"{norm}.{part}"][:, None, None]
            for part in ("running_mean", "running_var", "weight", "bias")
        )
        return (x - mean) / (var + 1e-5).sqrt() * scale + offset

    x = conv("conv1", "bn1", x, 2).relu()
    x = F.max_pool2d(F.pad(x, (1, 1, 1, 1)), 3, 2)  # x ≥ 0: padding with 0 changes no maximum
    names = sorted({n.rpartition(".conv")[0] for n in state if n.startswith("layer")} - {""})
    for name in names:
        stride = 2 if name.endswith(".0") and not name.startswith("layer1") else 1
        bottleneck = f"{name}.conv3.weight" in state
        strides = (1, stride, 1) if bottleneck else (stride, 1)
        y = x
        for row, s in enumerate(strides, 1):
            y = conv(f"{name}.conv{row}", f"{name}.bn{row}", y, s)
            y = y.relu() if row < len(strides) else y
        if f"{name}.downsample.0.weight" in state:
            x = conv(f"{name}.downsample.0", f"{name}.downsample.1", x, stride)
        x = (x + y).relu()
    return x.mean((2, 3)) @ state["fc.weight"].T + state["fc.bias"]


@pytest.mark.parametrize(("make", "channels"), [(resnet18, 1), (resnet50, 3)])
def test_logits_are_those_of_the_network_written_out(
    make: Callable[[int, int], ResNet], channels: int
) -> None:
    torch.manual_seed(0)
    model = make(channels, 7).double()
    x = torch.randn(2, channels, 64, 48, dtype=torch.float64)
    model.train()(x)  # running statistics away from 0 and 1
    model.eval()
    with torch.no_grad():
        assert_close(model(x), reference(model.state_dict(), x))


@pytest.mark.parametrize("size", [32, 75])
def test_other_sizes_work(size: int) -> None:
    assert resnet18(3, 14).eval()(torch.zeros(1, 3, size, size)).shape == (1, 14)
