"""The networks that come with proselflc.

Residual networks of He et al. 2016, for small images (section 4.2; the paper's ResNet-44 is one)
and for large ones (4.1): parameters of ResNet-18 and ResNet-50 have the names and shapes of the
files that torchvision publishes, so that ImageNet weights can be loaded. And networks that a CPU
trains in minutes: three convolutions, a perceptron, a bag of embeddings.
"""

import math
from collections import OrderedDict

import torch.nn.functional as F
from torch import Tensor, nn

STAGES = (16, 32, 64)  # channels for small images; the later two stages begin with a stride of 2
WIDTHS = (64, 128, 256, 512)  # of the four stages for large images; all but the first halve maps


class CifarResNet(nn.Module):
    """Depth 6n + 2: a convolution, three stages of n blocks of two convolutions, a linear layer.

    Shortcuts have no parameters (option A). The last maps are averaged whole, so that images may
    have any size; from 8 pixels on the last stage still sees more than one place.
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
        """Return logits [N, C] of images [N, channels, h, w]."""
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
        """Return maps [N, width, h / stride, w / stride] of maps [N, before, h, w]."""
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


class ResNet(nn.Module):
    """A 7×7 convolution and a pooling, four stages of blocks, a linear layer on the mean.

    With `bottleneck`, blocks are 1×1, 3×3 and 1×1 convolutions instead of two 3×3; the last of them
    gives four times the stage's width.
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
        """Return logits [N, C] of images [N, channels, h, w]."""
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
    """Two 3×3 convolutions and a shortcut, to maps [N, width, h / stride, w / stride]."""

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
    """1×1, 3×3 and 1×1 convolutions and a shortcut, to [N, 4 width, h / stride, w / stride].

    The 3×3 convolution has the stride, unlike in the article, where the first 1×1 has it: the
    published weights are of this form, which loses no pixels.
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
    """Return the shortcut's 1×1 convolution if the shape changes (option B), else None."""
    if before == after and stride == 1:
        return None
    return nn.Sequential(
        nn.Conv2d(before, after, 1, stride, bias=False),
        nn.BatchNorm2d(after),
    )


CONVOLUTIONS = (32, 64, 128)  # channels
COARSEST = 4  # most rows and columns that the last maps are pooled to
HIDDEN = 256
DIMENSIONS = 64  # of an embedding


def convnet(
    channels: int, height: int, width: int, num_classes: int, *, dropout: float = 0.0
) -> nn.Sequential:
    """Return three 3×3 convolutions of stride 2 and a linear layer with batch norm, and another.

    It maps [N, channels, height, width] to logits [N, C]. Up to 32 pixels the last maps are used as
    they are; larger ones are averaged over squares, to keep the linear layer small.
    """
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    before = channels
    for i, after in enumerate(CONVOLUTIONS, 1):
        layers[f"conv{i}"] = nn.Conv2d(before, after, 3, stride=2, padding=1, bias=False)
        layers[f"bn{i}"] = nn.BatchNorm2d(after)
        layers[f"relu{i}"] = nn.ReLU(inplace=True)
        height, width = math.ceil(height / 2), math.ceil(width / 2)
        before = after
    if max(height, width) > COARSEST:
        # Not nn.AdaptiveAvgPool2d, whose gradient on CUDA is not deterministic.
        square = math.ceil(height / COARSEST), math.ceil(width / COARSEST)
        layers["pool"] = nn.AvgPool2d(square, ceil_mode=True)
        height, width = math.ceil(height / square[0]), math.ceil(width / square[1])
    layers["flatten"] = nn.Flatten()
    layers["hidden"] = nn.Linear(before * height * width, HIDDEN, bias=False)
    layers["bn"] = nn.BatchNorm1d(HIDDEN)
    layers["relu"] = nn.ReLU(inplace=True)
    layers["dropout"] = nn.Dropout(dropout)
    layers["fc"] = nn.Linear(HIDDEN, num_classes)
    return nn.Sequential(layers)


def mlp(inputs: int, num_classes: int, *, hidden: tuple[int, ...] = (128,)) -> nn.Sequential:
    """Return linear layers with ReLU between them, without batch norm.

    They map [N, …] with `inputs` numbers per example, images included, to logits [N, C].
    """
    layers: OrderedDict[str, nn.Module] = OrderedDict(flatten=nn.Flatten())
    for i, width in enumerate(hidden, 1):
        layers[f"hidden{i}"] = nn.Linear(inputs, width)
        layers[f"relu{i}"] = nn.ReLU(inplace=True)
        inputs = width
    layers["fc"] = nn.Linear(inputs, num_classes)
    return nn.Sequential(layers)


class Scaled(nn.Module):
    """Multiplies by a constant."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        """Return x times the factor."""
        return x * self.factor


def linear(inputs: int, num_classes: int) -> nn.Sequential:
    """Return a linear classifier of standardised features, half of which are dropped in training.

    They are divided by the root of their number, so that one learning rate suits any number.
    Dropping half keeps it from memorising wrong labels, which it could if there are more features
    than examples.
    """
    return nn.Sequential(
        OrderedDict(
            scaled=Scaled(inputs**-0.5), dropped=nn.Dropout(0.5), fc=nn.Linear(inputs, num_classes)
        )
    )


def embedding_bag(num_embeddings: int, num_classes: int) -> nn.Sequential:
    """Return the mean of the embeddings of a text's n-grams and a linear layer.

    They map bags [N, L] int64, padded with 0, to logits [N, C]. Padding does not count, and an
    empty bag has embedding 0, so that its logits are the linear layer's bias.
    """
    return nn.Sequential(
        OrderedDict(
            embedding=nn.EmbeddingBag(num_embeddings, DIMENSIONS, mode="mean", padding_idx=0),
            fc=nn.Linear(DIMENSIONS, num_classes),
        )
    )
