"""EfficientNet-Lite0 against the plain network, photos that every machine has, and its origin."""

import copy

import pytest
import torch
import torch.nn.functional as F
from sklearn.datasets import load_sample_images
from torch.testing import assert_close

from proselflc.models.efficientnet import PIXELS, EfficientNetLite0
from proselflc.models.weights import read_state
from proselflc.pretrained import catalogue, efficientnet


@pytest.fixture(scope="module")
def network() -> EfficientNetLite0:
    """The plain network with its published weights, in evaluation."""
    network = EfficientNetLite0(1000)
    network.load_state_dict(catalogue.initial_state("efficientnet_lite0")[1])
    return network.eval().requires_grad_(False)


def pixels(*shape: int) -> torch.Tensor:
    g = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, shape, generator=g, dtype=torch.uint8)


def normalized(x: torch.Tensor) -> torch.Tensor:
    return (x / 255 - PIXELS.mean[0]) / PIXELS.std[0]


@pytest.mark.parametrize("size", [(128, 128), (131, 160)])
def test_the_folded_encoder_is_the_plain_network(
    network: EfficientNetLite0, size: tuple[int, int]
) -> None:
    x = pixels(20, 3, *size)
    encode = efficientnet.Folded(copy.deepcopy(network))
    assert_close(encode(x), network.features(normalized(x)), rtol=1e-3, atol=1e-4)


def test_the_published_number_of_parameters(network: EfficientNetLite0) -> None:
    assert round(sum(p.numel() for p in network.parameters()) / 1e6, 2) == 4.65


def test_photos_are_recognised(network: EfficientNetLite0) -> None:
    """The photos of scikit-learn show a palace in China and a flower."""
    photos = torch.stack([torch.tensor(one) for one in load_sample_images().images])
    middle = photos.permute(0, 3, 1, 2)[:, :, :, 107:534].float()
    x = F.interpolate(middle, (224, 224), mode="bilinear", antialias=True)
    assert network(normalized(x)).argmax(1).tolist() == [698, 985]  # palace, daisy


def test_grey_is_three_equal_channels(network: EfficientNetLite0) -> None:
    x = normalized(pixels(2, 1, 64, 64))
    assert_close(network(x), network(x.repeat(1, 3, 1, 1)))


def test_features_are_those_of_the_published_network(network: EfficientNetLite0) -> None:
    origin = pytest.importorskip(
        "efficientnet_lite_pytorch", reason="the network of the weights' author is not installed"
    )
    theirs = origin.EfficientNet.from_name("efficientnet-lite0")
    theirs.load_state_dict(read_state(catalogue.weights("efficientnet_lite0")))
    x = normalized(pixels(2, 3, 128, 96))
    maps = theirs.eval().extract_features(x)
    assert_close(network.features(x), maps.mean((2, 3)))
    assert_close(network(x), theirs(x))
