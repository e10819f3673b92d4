"""EfficientNet-Lite0 (Tan and Le 2019, in the form of Liu 2020 for small devices).

Without squeeze-and-excitation, and with ReLU6 instead of swish: 4.65 million parameters. Strided
convolutions are padded as TensorFlow pads, where the published weights were trained.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import fuse_conv_bn_eval

from proselflc.models.pixels import Pixels

FEATURES = 1280  # that the classifier takes
PIXELS = Pixels((127 / 255,) * 3, (128 / 255,) * 3)  # (x - 127) / 128

_STEM = 32  # channels
_EPSILON = 1e-3
_MOMENTUM = 0.01
_DROPOUT = 0.2


@dataclass(frozen=True)
class _Stage:
    blocks: int
    expansion: int
    kernel: int
    stride: int  # of its first block
    width: int


_STAGES = (
    _Stage(1, 1, 3, 1, 16),
    _Stage(2, 6, 3, 2, 24),
    _Stage(2, 6, 5, 2, 40),
    _Stage(3, 6, 3, 2, 80),
    _Stage(3, 6, 5, 1, 112),
    _Stage(4, 6, 5, 2, 192),
    _Stage(1, 6, 3, 1, 320),
)


class EfficientNetLite0(nn.Module):
    """A convolution, 16 inverted bottlenecks, a convolution, and a linear layer on the mean.

    Maps are halved five times; the last ones are averaged whole, so that images may have any size.
    Grey images are taken as three equal channels.
    """

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        before = _STEM
        self.stem = Convolution(3, before, 3, 2)
        blocks = []
        for stage in _STAGES:
            for i in range(stage.blocks):
                stride = stage.stride if i == 0 else 1
                blocks.append(_Block(before, stage.width, stage.expansion, stage.kernel, stride))
                before = stage.width
        self.blocks = nn.Sequential(*blocks)
        self.head = Convolution(before, FEATURES, 1)
        self.dropout = nn.Dropout(_DROPOUT)
        self.fc = nn.Linear(FEATURES, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits [N, C] of images [N, 3, h, w], or of grey ones [N, 1, h, w]."""
        logits: Tensor = self.fc(self.dropout(self.features(x)))
        return logits

    def features(self, x: Tensor) -> Tensor:
        """Return [N, 1280] of images [N, 3, h, w], or of grey ones [N, 1, h, w]."""
        maps: Tensor = self.head(self.blocks(self.stem(x.expand(-1, 3, -1, -1))))
        return maps.mean((2, 3))


class _Block(nn.Module):
    """An inverted bottleneck: 1×1 to more channels, k×k channel by channel, 1×1 to `width`.

    The input is added where the shape stays.
    """

    def __init__(self, before: int, width: int, expansion: int, kernel: int, stride: int) -> None:
        super().__init__()
        inner = before * expansion
        self.shortcut = stride == 1 and before == width
        self.expand = Convolution(before, inner, 1) if expansion > 1 else nn.Identity()
        self.depthwise = Convolution(inner, inner, kernel, stride, groups=inner)
        self.project = Convolution(inner, width, 1, relu=False)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.project(self.depthwise(self.expand(x)))
        return y + x if self.shortcut else y


class Convolution(nn.Module):
    """A convolution without bias, batch norm, and ReLU6 unless `relu` is False."""

    def __init__(
        self,
        before: int,
        width: int,
        kernel: int,
        stride: int = 1,
        *,
        groups: int = 1,
        relu: bool = True,
    ) -> None:
        super().__init__()
        self.kernel, self.stride = kernel, stride
        padding = kernel // 2 if stride == 1 else 0
        self.conv = nn.Conv2d(
            before, width, kernel, stride, padding=padding, groups=groups, bias=False
        )
        self.bn: nn.BatchNorm2d | nn.Identity = nn.BatchNorm2d(
            width, eps=_EPSILON, momentum=_MOMENTUM
        )
        self.relu = relu

    def forward(self, x: Tensor) -> Tensor:
        """Return [N, width, ⌈h / stride⌉, ⌈w / stride⌉] from [N, before, h, w]."""
        if self.stride == 2:
            x = _padded(x, self.kernel)
        x = self.bn(self.conv(x))
        return F.relu6(x, inplace=True) if self.relu else x

    def fold(self) -> None:
        """Put batch norm, as it is in evaluation, into the weights of the convolution."""
        assert isinstance(self.bn, nn.BatchNorm2d), "it is folded once"
        self.conv = fuse_conv_bn_eval(self.conv, self.bn)
        self.bn = nn.Identity()


def _padded(x: Tensor, kernel: int) -> Tensor:
    """Return x with zeros around it, as many as a stride of 2 needs for ⌈side / 2⌉ outputs.

    TensorFlow puts the smaller half above and to the left, and torch can pad equally only.
    """
    height, width = (kernel - 2 + side % 2 for side in x.shape[2:])
    top, left = height // 2, width // 2
    return F.pad(x, (left, width - left, top, height - top))
