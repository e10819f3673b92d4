"""The residual networks for large images of He et al. 2016, section 4.1: ResNet-18 and ResNet-50.

Parameters have the names and shapes of the files that torchvision publishes, so that ImageNet
weights, which the paper's Clothing1M recipe starts from, can be loaded.
"""

import torch.nn.functional as F
from torch import Tensor, nn

from proselflc.models.cifar_resnet import initialize_convolutions

WIDTHS = (64, 128, 256, 512)  # of the four stages; all but the first halve the maps


class ResNet(nn.Module):
    """A 7×7 convolution and a pooling, four stages of blocks, a linear layer on the mean.

    Args:
        blocks: how many there are in each of the four stages.
        bottleneck: blocks of 1×1, 3×3 and 1×1 convolutions instead of two 3×3; the last of them
            gives four times the stage's width.
        channels: of the images.
        num_classes: C.
    """

    def __init__(
        self,
        blocks: tuple[int, int, int, int],
        *,
        bottleneck: bool,
        channels: int,
        num_classes: int,
    ) -> None:
        super().__init__()
        block: type[_Basic] | type[_Bottleneck] = _Bottleneck if bottleneck else _Basic
        before = WIDTHS[0]
        self.conv1 = nn.Conv2d(channels, before, 7, 2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(before)
        stages = []
        for stage, (count, width) in enumerate(zip(blocks, WIDTHS, strict=True)):
            stride = 1 if stage == 0 else 2
            after = width * block.expansion
            rest = [block(after, width, 1) for _ in range(count - 1)]
            stages.append(nn.Sequential(block(before, width, stride), *rest))
            before = after
        self.layer1, self.layer2, self.layer3, self.layer4 = stages
        self.fc = nn.Linear(before, num_classes)
        initialize_convolutions(self)

    def forward(self, x: Tensor) -> Tensor:
        """[N, C] logits of images [N, channels, h, w]."""
        x = F.relu(self.bn1(self.conv1(x)), inplace=True)
        x = F.max_pool2d(x, 3, 2, padding=1)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        logits: Tensor = self.fc(x.mean((2, 3)))
        return logits


def resnet18(channels: int, num_classes: int) -> ResNet:
    return ResNet((2, 2, 2, 2), bottleneck=False, channels=channels, num_classes=num_classes)


def resnet50(channels: int, num_classes: int) -> ResNet:
    return ResNet((3, 4, 6, 3), bottleneck=True, channels=channels, num_classes=num_classes)


class _Basic(nn.Module):
    """[N, width, h / stride, w / stride] by two 3×3 convolutions and a shortcut."""

    expansion = 1

    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, width, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample = _projection(before, width, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        y = self.bn2(self.conv2(y))
        y += x if self.downsample is None else self.downsample(x)
        return F.relu(y, inplace=True)


class _Bottleneck(nn.Module):
    """[N, 4 width, h / stride, w / stride] by 1×1, 3×3 and 1×1 convolutions and a shortcut.

    The 3×3 convolution has the stride, where the article gives it to the first 1×1: the published
    weights are of this form, which loses no pixels.
    """

    expansion = 4

    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        after = width * self.expansion
        self.conv1 = nn.Conv2d(before, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, after, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(after)
        self.downsample = _projection(before, after, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        y = F.relu(self.bn2(self.conv2(y)), inplace=True)
        y = self.bn3(self.conv3(y))
        y += x if self.downsample is None else self.downsample(x)
        return F.relu(y, inplace=True)


def _projection(before: int, after: int, stride: int) -> nn.Sequential | None:
    """The shortcut's 1×1 convolution where the shape changes (option B), else the identity."""
    if before == after and stride == 1:
        return None
    return nn.Sequential(
        nn.Conv2d(before, after, 1, stride, bias=False),
        nn.BatchNorm2d(after),
    )
