"""The residual networks for small images of He et al. 2016, section 4.2; the paper's ResNet-44."""

import torch.nn.functional as F
from torch import Tensor, nn

STAGES = (16, 32, 64)  # channels; the later two begin with a stride of 2


class CifarResNet(nn.Module):
    """Depth 6n + 2: a convolution, three stages of n blocks of two convolutions, a linear layer.

    Shortcuts have no parameters (option A). The last maps are averaged whole, so that images may
    have any size; from 8 pixels on the last stage still sees more than one place.

    Args:
        depth: 20, 32, 44, 56, or any other 6n + 2.
        channels: of the images.
        num_classes: C.
    """

    def __init__(self, depth: int, channels: int, num_classes: int) -> None:
        super().__init__()
        n, rest = divmod(depth - 2, 6)
        assert n >= 1, "6n + 2 is at least 8"
        assert rest == 0, "the depth is 6n + 2"
        before = STAGES[0]
        self.conv = _conv3x3(channels, before)
        self.bn = nn.BatchNorm2d(before)
        blocks: list[nn.Module] = []
        for width in STAGES:
            blocks.extend(_Block(before if i == 0 else width, width) for i in range(n))
            before = width
        self.blocks = nn.Sequential(*blocks)
        self.fc = nn.Linear(before, num_classes)
        initialize_convolutions(self)

    def forward(self, x: Tensor) -> Tensor:
        """[N, C] logits of images [N, channels, h, w]."""
        x = F.relu(self.bn(self.conv(x)), inplace=True)
        x = self.blocks(x)
        logits: Tensor = self.fc(x.mean((2, 3)))
        return logits


class _Block(nn.Module):
    """Two convolutions and a shortcut; where the channels grow, the maps shrink to a half."""

    def __init__(self, before: int, width: int) -> None:
        super().__init__()
        self.stride = 1 if before == width else 2
        self.extra = width - before
        self.conv1 = _conv3x3(before, width, self.stride)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = _conv3x3(width, width)
        self.bn2 = nn.BatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:
        """[N, width, h / stride, w / stride] of maps [N, before, h, w]."""
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        y = self.bn2(self.conv2(y))
        if self.extra:  # every other pixel, and channels of zeros behind the ones there are
            x = F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.extra))
        y += x
        return F.relu(y, inplace=True)


def initialize_convolutions(module: nn.Module) -> None:
    """Draw the weights of convolutions as He et al. 2015 do, N(0, 2 / (outputs · kernel area)).

    Batch norms stay at scale 1 and offset 0, linear layers as torch makes them.
    """
    for part in module.modules():
        if isinstance(part, nn.Conv2d):
            nn.init.kaiming_normal_(part.weight, mode="fan_out", nonlinearity="relu")


def _conv3x3(before: int, width: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(before, width, 3, stride, padding=1, bias=False)
