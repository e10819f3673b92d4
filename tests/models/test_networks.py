"""ResNet-18 and ResNet-50: the published names and shapes, and what is computed with them."""

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.testing import assert_close

from proselflc.models.networks import (
    CifarResNet,
    ResNet,
    convnet,
    embedding_bag,
    mlp,
    resnet18,
    resnet50,
)

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


def closed_form(n: int, channels: int, C: int) -> int:
    """Every 3×3 convolution has 9·in·out weights, its batch norm 2·out, the head 64 C + C.

    Of the 2n convolutions of a stage all go from w to w channels, but the first of the later two.
    """
    first = 9 * channels * 16 + 2 * 16
    square = sum(2 * n * (9 * w * w + 2 * w) for w in (16, 32, 64))
    growing = 9 * (32 * 32 - 16 * 32) + 9 * (64 * 64 - 32 * 64)
    return first + square - growing + 65 * C


@pytest.mark.parametrize(
    ("depth", "n", "known"),
    [(20, 3, 269_722), (32, 5, 464_154), (44, 7, 658_586), (56, 9, 853_018)],
)
def test_number_of_parameters_and_of_layers(depth: int, n: int, known: int) -> None:
    model = CifarResNet(depth, 3, 10)
    count = sum(p.numel() for p in model.parameters())
    assert count == closed_form(n, 3, 10) == known
    layers = [m for m in model.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    assert len(layers) == depth


def test_number_of_parameters_with_other_channels_and_classes() -> None:
    count = sum(p.numel() for p in CifarResNet(20, 1, 100).parameters())
    assert count == closed_form(3, 1, 100)


@pytest.mark.parametrize("size", [(8, 8), (9, 13), (28, 28), (32, 32), (64, 48)])
def test_maps_of_the_last_stage_are_a_quarter(size: tuple[int, int]) -> None:
    model = CifarResNet(8, 3, 5).eval()
    seen: list[torch.Size] = []
    model.blocks.register_forward_hook(lambda module, x, y: seen.append(y.shape))
    assert model(torch.zeros(2, 3, *size)).shape == (2, 5)
    quarter = [math.ceil(s / 4) for s in size]
    assert seen == [torch.Size([2, 64, *quarter])]


def test_shortcuts_pass_every_fourth_pixel_and_add_channels_of_zeros() -> None:
    """With the blocks' own part at zero, the head sees the first convolution, thinned out."""
    model = CifarResNet(20, 3, 4).eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            if name.endswith("bn2.weight"):
                p.zero_()
    x = torch.randn(3, 3, 12, 12, generator=torch.Generator().manual_seed(0))
    first = F.relu(model.bn(model.conv(x)))[:, :, ::4, ::4].mean((2, 3))  # [3, 16]
    expected = first @ model.fc.weight[:, :16].T + model.fc.bias
    assert_close(model(x), expected)


def test_convolutions_start_as_he_et_al_draw_them() -> None:
    torch.manual_seed(0)
    model = CifarResNet(44, 3, 10)
    for module in model.modules():
        if isinstance(module, nn.Conv2d) and module.in_channels > 3:
            expected = (2 / (9 * module.out_channels)) ** 0.5
            assert module.weight.std().item() == pytest.approx(expected, rel=0.06)
            assert module.bias is None
        elif isinstance(module, nn.BatchNorm2d):
            assert module.weight.eq(1).all()
            assert module.bias.eq(0).all()


@pytest.mark.parametrize("depth", [7, 21, 2])
def test_depth_is_6n_plus_2(depth: int) -> None:
    with pytest.raises(AssertionError):
        CifarResNet(depth, 3, 10)


def parameters(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(
    ("height", "width", "places"),
    [
        (8, 8, 1),
        (9, 16, 2 * 2),
        (28, 28, 4 * 4),
        (32, 32, 4 * 4),
        (33, 8, 3 * 1),
        (40, 48, 3 * 3),
        (64, 64, 4 * 4),
        (224, 224, 4 * 4),
    ],
)
def test_convnet_by_size(channels: int, height: int, width: int, places: int) -> None:
    """`places` is how many the linear layer sees: an eighth, rounded up, pooled to at most 4."""
    model = convnet(channels, height, width, 10)
    convolutions = 9 * (channels * 32 + 32 * 64 + 64 * 128) + 2 * (32 + 64 + 128)
    assert parameters(model) == convolutions + 128 * places * 256 + 2 * 256 + 256 * 10 + 10
    assert model(torch.zeros(2, channels, height, width)).shape == (2, 10)


def test_convnet_is_three_convolutions_and_two_linear_layers() -> None:
    torch.manual_seed(0)
    model = convnet(3, 40, 24, 5).eval()
    x = torch.randn(2, 3, 40, 24)
    state = model.state_dict()
    y = x
    for i in (1, 2, 3):
        y = F.conv2d(y, state[f"conv{i}.weight"], stride=2, padding=1).relu()
        y = y / (1 + 1e-5) ** 0.5  # the running statistics of batch norm are still 0 and 1
    assert y.shape == (2, 128, 5, 3)
    rows = torch.stack([y[:, :, :2].mean(2), y[:, :, 2:4].mean(2), y[:, :, 4]], 2)
    hidden = F.linear(rows.flatten(1), state["hidden.weight"]).relu() / (1 + 1e-5) ** 0.5
    expected = F.linear(hidden, state["fc.weight"], state["fc.bias"])
    with torch.no_grad():
        assert_close(model(x), expected)


def test_dropout_is_off_unless_asked_for() -> None:
    x = torch.randn(4, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    without, some = convnet(1, 8, 8, 3), convnet(1, 8, 8, 3, dropout=0.5)
    assert torch.equal(without(x), without(x))
    assert not torch.equal(some(x), some(x))


def test_mlp_is_linear_relu_linear() -> None:
    torch.manual_seed(0)
    model = mlp(12, 3)
    assert parameters(model) == 12 * 128 + 128 + 128 * 3 + 3
    x = torch.randn(5, 12)
    state = model.state_dict()
    hidden = (x @ state["hidden1.weight"].T + state["hidden1.bias"]).clamp_min(0)
    assert_close(model(x).detach(), hidden @ state["fc.weight"].T + state["fc.bias"])
    assert torch.equal(model(x), model(x.reshape(5, 3, 2, 2)))  # images are laid flat


def test_mlp_of_any_depth() -> None:
    assert parameters(mlp(4, 2, hidden=(8, 6))) == 4 * 8 + 8 + 8 * 6 + 6 + 6 * 2 + 2
    assert parameters(mlp(4, 2, hidden=())) == 4 * 2 + 2


def test_logits_are_linear_in_the_mean_of_the_embeddings() -> None:
    torch.manual_seed(0)
    model = embedding_bag(50, 4)
    assert sum(p.numel() for p in model.parameters()) == 50 * 64 + 64 * 4 + 4
    bags = [[3, 7, 7], [49], [1, 2, 3, 4]]
    padded = torch.tensor([bag + [0] * (4 - len(bag)) for bag in bags])
    state = model.state_dict()
    means = torch.stack([state["embedding.weight"][bag].mean(0) for bag in bags])
    expected = means @ state["fc.weight"].T + state["fc.bias"]
    assert_close(model(padded).detach(), expected)
    assert_close(model(nn.functional.pad(padded, (0, 5))).detach(), expected)


def test_an_empty_text_gives_the_bias_and_teaches_no_embedding() -> None:
    torch.manual_seed(0)
    model = embedding_bag(10, 3)
    logits = model(torch.tensor([[0, 0], [4, 0]]))
    bias = model.state_dict()["fc.bias"]
    assert torch.equal(logits[0].detach(), bias)
    logits[0].square().sum().backward()
    gradients = {name: p.grad for name, p in model.named_parameters()}
    embedding, offset = gradients["embedding.weight"], gradients["fc.bias"]
    assert embedding is not None
    assert not embedding.any()
    assert offset is not None
    assert_close(offset, 2 * bias)


def test_filling_up_is_never_learned() -> None:
    model = embedding_bag(10, 3)
    model(torch.tensor([[4, 0, 0]])).sum().backward()
    gradient = dict(model.named_parameters())["embedding.weight"].grad
    assert gradient is not None
    assert gradient[4].any()
    assert not gradient[0].any()
