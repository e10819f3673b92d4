"""CIFAR ResNets: their size, their shortcuts, their initial weights."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing import assert_close

from proselflc.models.resnet import CifarResNet


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
