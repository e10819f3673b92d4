"""The models by name: what each takes, how it is best trained, and how it is built."""

import math
from collections.abc import Callable
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn

from proselflc.errors import InputError, unknown
from proselflc.models import efficientnet, factory, networks
from proselflc.models.efficientnet import EfficientNetLite0
from proselflc.models.factory import LIBRARIES, words
from proselflc.models.pixels import Pixels
from proselflc.models.shape import KINDS, BagShape, FeatureShape, ImageShape, Shape, example
from proselflc.models.weights import load_pretrained, read_state

# Makes a network for a shape that the model takes and C classes, weights from torch's generator.
Build: TypeAlias = Callable[[Any, int], nn.Module]


@dataclass(frozen=True)
class Model:
    """A network, and the recipe it is trained with unless the user says otherwise."""

    title: str  # a short description
    where: str  # the section of the paper that uses it, or "–"
    takes: tuple[type[Shape], ...]  # the shapes of input it is made for
    build: Build
    optimizer: Literal["sgd", "adamw"]
    lr: float
    weight_decay: float
    pretrained: str | None = None  # the backbone whose weights it begins with, in `pretrained`
    pixels: Pixels | None = None  # how images are scaled for those


def _convnet(shape: ImageShape, num_classes: int) -> nn.Module:
    return networks.convnet(shape.channels, shape.height, shape.width, num_classes)


def _mlp(shape: FeatureShape | ImageShape, num_classes: int) -> nn.Module:
    return networks.mlp(math.prod(astuple(shape)), num_classes)


def _linear(shape: FeatureShape, num_classes: int) -> nn.Module:
    return networks.linear(shape.width, num_classes)


def _cifar_resnet(depth: int) -> Build:
    return lambda shape, num_classes: networks.CifarResNet(depth, shape.channels, num_classes)


def _resnet18(shape: ImageShape, num_classes: int) -> nn.Module:
    return networks.resnet18(shape.channels, num_classes)


def _resnet50(shape: ImageShape, num_classes: int) -> nn.Module:
    return networks.resnet50(shape.channels, num_classes)


def _efficientnet_lite0(shape: ImageShape, num_classes: int) -> nn.Module:
    return EfficientNetLite0(num_classes)


def _embedding_bag(shape: BagShape, num_classes: int) -> nn.Module:
    return networks.embedding_bag(shape.num_embeddings, num_classes)


_IMAGES: tuple[type[Shape], ...] = (ImageShape,)

MODELS: dict[str, Model] = {
    "convnet": Model("three convolutions, for CPUs", "–", _IMAGES, _convnet, "sgd", 0.05, 5e-4),
    "mlp": Model("a hidden layer of 128", "–", (FeatureShape, ImageShape), _mlp, "sgd", 0.05, 0.0),
    "resnet20": Model("CIFAR ResNet-20", "–", _IMAGES, _cifar_resnet(20), "sgd", 0.1, 5e-4),
    "resnet32": Model("CIFAR ResNet-32", "–", _IMAGES, _cifar_resnet(32), "sgd", 0.1, 5e-4),
    "resnet44": Model("CIFAR ResNet-44", "CIFAR-100", _IMAGES, _cifar_resnet(44), "sgd", 0.1, 5e-4),
    "resnet56": Model("CIFAR ResNet-56", "–", _IMAGES, _cifar_resnet(56), "sgd", 0.1, 5e-4),
    "resnet18": Model("ResNet-18 for 224 px", "–", _IMAGES, _resnet18, "sgd", 0.01, 1e-4),
    "resnet50": Model(
        "ResNet-50 for 224 px", "ImageNet, Clothing1M", _IMAGES, _resnet50, "sgd", 0.01, 1e-4
    ),
    "efficientnet_lite0": Model(
        "EfficientNet-Lite0 with ImageNet weights",
        "–",
        _IMAGES,
        _efficientnet_lite0,
        "sgd",
        0.01,
        1e-4,
        pretrained="efficientnet_lite0",
        pixels=efficientnet.PIXELS,
    ),
    "linear": Model(
        "linear, for pretrained features", "–", (FeatureShape,), _linear, "sgd", 0.7, 0.0
    ),
    "embedding_bag": Model(
        "mean of n-gram embeddings", "–", (BagShape,), _embedding_bag, "adamw", 5e-3, 0.0
    ),
}

_ELSEWHERE = "package.module:factory, timm:NAME or torchvision:NAME"


def default_name(shape: Shape) -> str:
    """Return the model to use if the user names none: one that a CPU can train if possible."""
    if isinstance(shape, ImageShape):
        return "convnet" if max(shape.height, shape.width) <= 64 else "resnet18"
    return "mlp" if isinstance(shape, FeatureShape) else "embedding_bag"


def build(
    name: str,
    shape: Shape,
    num_classes: int,
    *,
    generator_seed: int,
    weights: Path | None = None,
    state: dict[str, Tensor] | None = None,
    report: Callable[[str], None] | None = None,
) -> nn.Module:
    """Build a model with weights that depend on the seed only, and try it on two examples.

    Args:
        name: one of `MODELS`; `package.module:factory`, which is called with `num_classes` and
            `shape` as far as its signature has them; or, where they are installed, `timm:NAME`
            and `torchvision:NAME`.
        weights: a file with trained weights, see `load_pretrained`.
        state: trained weights that have been read from that file already.
        report: called with a sentence if the classifier of these weights was left out.
    """
    if num_classes < 1:
        raise InputError(f"a model needs at least 1 class, got {num_classes}")
    make = _maker(name, shape)
    # Only the CPU's generator, where models are made: `torch.manual_seed` also seeds other devices.
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(generator_seed)
        try:
            module = make(shape, num_classes)
        except (RuntimeError, MemoryError) as error:  # too large for this machine
            raise InputError(
                f'cannot make model "{name}" for {num_classes} classes: {words(error)}'
            ) from None
        if weights is not None:
            new = load_pretrained(module, read_state(weights) if state is None else state, weights)
            if new and report is not None:
                report(
                    f"{', '.join(new)} are newly initialised: the classifier in {weights} is not "
                    f"for {num_classes} classes"
                )
        logits = tried(name, module, shape, num_classes)
    if weights is not None and not bool(logits.isfinite().all()):
        raise InputError(
            f"the weights in {weights} give NaN or infinite logits",
            field="weights",
            fix="check that the file is not damaged",
        )
    return module.train()


def _maker(name: str, shape: Shape) -> Build:
    """Return what builds the model of that name, if it is known and takes these inputs."""
    kind, colon, rest = name.partition(":")
    if not colon:
        if name not in MODELS:
            raise InputError(f"{unknown('model', name, MODELS)}; or {_ELSEWHERE}", field="model")
        if type(shape) not in MODELS[name].takes:
            raise _misfit(name, MODELS[name].takes, shape)
        return MODELS[name].build
    if not kind or not rest:
        raise InputError(f'model "{name}" lacks a part: expected {_ELSEWHERE}', field="model")
    if kind not in LIBRARIES:
        return lambda shape, num_classes: factory.call_factory(
            kind,
            rest,
            arguments={"num_classes": num_classes, "shape": shape},
            gives="maps a batch to logits [N, C]",
        )
    if not isinstance(shape, ImageShape):
        raise _misfit(name, _IMAGES, shape)
    channels = shape.channels
    if kind == "timm":
        return lambda _, num_classes: factory.timm_model(
            rest, channels=channels, num_classes=num_classes
        )
    return lambda _, num_classes: factory.torchvision_model(rest, num_classes=num_classes)


def _misfit(name: str, takes: tuple[type[Shape], ...], shape: Shape) -> InputError:
    fitting = [key for key, model in MODELS.items() if type(shape) in model.takes]
    return InputError(
        f'model "{name}" takes {" and ".join(KINDS[kind] for kind in takes)}, but these are '
        f"{KINDS[type(shape)]}: use {', '.join(fitting)} or package.module:factory"
    )


def tried(name: str, module: nn.Module, shape: Shape, num_classes: int) -> Tensor:
    """Return the module's logits [2, C] for two examples, in evaluation mode."""
    x = example(shape)
    module.eval()
    try:
        with torch.no_grad():
            logits = module(x)
    except Exception as error:  # it may be the user's code, which may fail in any way
        raise InputError(
            f'model "{name}" failed on a batch of shape {list(x.shape)}: '
            f"{type(error).__name__}: {words(error)}; it must take "
            f"{KINDS[type(shape)]} of this shape"
        ) from None
    expected = f"expected logits [2, {num_classes}]"
    if not isinstance(logits, Tensor):
        raise InputError(
            f'model "{name}" gave {type(logits).__name__} for {num_classes} classes: {expected}'
        )
    if list(logits.shape) != [2, num_classes]:
        raise InputError(
            f'model "{name}" gave {list(logits.shape)} for {num_classes} classes: {expected} for '
            "a batch of 2"
        )
    if not logits.is_floating_point():
        raise InputError(
            f'model "{name}" gave {logits.dtype} for {num_classes} classes: {expected} of floats'
        )
    return logits
