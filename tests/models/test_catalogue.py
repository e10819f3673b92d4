"""Models by name: what each takes and gives, initial weights by a seed, each way to be refused."""

import sys
import types
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.testing import assert_close

from proselflc.errors import InputError
from proselflc.models.catalogue import MODELS, build, default_name
from proselflc.models.networks import CifarResNet
from proselflc.models.shape import BagShape, FeatureShape, ImageShape, Shape

IMAGES = ImageShape(3, 16, 16)
FEATURES = FeatureShape(6)
BAGS = BagShape(30)
KINDS: dict[type[Shape], Shape] = {ImageShape: IMAGES, FeatureShape: FEATURES, BagShape: BAGS}
EACH = {name: KINDS[model.takes[0]] for name, model in MODELS.items()}
EACH["resnet18"] = EACH["resnet50"] = EACH["efficientnet_lite0"] = ImageShape(3, 64, 64)


def some(shape: Shape, N: int) -> Tensor:
    g = torch.Generator().manual_seed(1)
    if isinstance(shape, ImageShape):
        return torch.randn(N, shape.channels, shape.height, shape.width, generator=g)
    if isinstance(shape, FeatureShape):
        return torch.randn(N, shape.width, generator=g)
    return torch.randint(0, shape.num_embeddings, (N, 9), generator=g)


def test_names_and_recipes() -> None:
    assert list(MODELS) == [
        "convnet",
        "mlp",
        "resnet20",
        "resnet32",
        "resnet44",
        "resnet56",
        "resnet18",
        "resnet50",
        "efficientnet_lite0",
        "linear",
        "embedding_bag",
    ]
    paper = MODELS["resnet44"]
    assert (paper.optimizer, paper.lr, paper.weight_decay) == ("sgd", 0.1, 5e-4)
    clothing = MODELS["resnet50"]
    assert (clothing.optimizer, clothing.lr, clothing.weight_decay) == ("sgd", 0.01, 1e-4)
    assert MODELS["embedding_bag"].optimizer == "adamw"


@pytest.mark.parametrize("name", MODELS)
def test_every_model_gives_logits_and_learns_with_all_its_parameters(name: str) -> None:
    shape = EACH[name]
    model = build(name, shape, 7, generator_seed=0)
    assert model.training
    x = some(shape, 3)
    logits = model(x)
    assert logits.shape == (3, 7)
    assert logits.dtype == torch.float32
    loss = nn.functional.cross_entropy(logits, torch.tensor([0, 3, 6]))
    named = dict(model.named_parameters())
    gradients = torch.autograd.grad(loss, list(named.values()))
    for key, gradient in zip(named, gradients, strict=True):
        assert gradient.isfinite().all(), key
        assert gradient.any(), key


@pytest.mark.parametrize("name", MODELS)
def test_a_row_does_not_depend_on_its_batch_in_evaluation(name: str) -> None:
    shape = EACH[name]
    model = build(name, shape, 5, generator_seed=0).eval()
    x = some(shape, 3)
    with torch.no_grad():
        assert_close(model(x[1:2]), model(x)[1:2], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", [n for n in MODELS if n != "resnet50"])
def test_the_seed_alone_decides_the_weights(name: str) -> None:
    shape = EACH[name]
    torch.manual_seed(5)
    first = build(name, shape, 4, generator_seed=1).state_dict()
    after = torch.rand(3)
    torch.manual_seed(5)
    assert torch.equal(torch.rand(3), after), "torch's generator moved"
    torch.manual_seed(6)
    second = build(name, shape, 4, generator_seed=1).state_dict()
    other = build(name, shape, 4, generator_seed=2).state_dict()
    assert all(torch.equal(first[key], second[key]) for key in first)
    assert not all(torch.equal(first[key], other[key]) for key in first)


def test_the_generator_is_put_back_when_a_model_fails() -> None:
    torch.manual_seed(5)
    expected = torch.rand(2)
    torch.manual_seed(5)
    with pytest.raises(InputError):
        build("torch.nn:Identity", IMAGES, 3, generator_seed=0)
    assert torch.equal(torch.rand(2), expected)


@settings(deadline=None, max_examples=25)
@given(
    name=st.sampled_from(["convnet", "mlp", "resnet20"]),
    channels=st.sampled_from([1, 3]),
    height=st.integers(8, 64),
    width=st.integers(8, 64),
    C=st.integers(1, 12),
)
def test_small_images_of_every_size_fit(
    name: str, channels: int, height: int, width: int, C: int
) -> None:
    model = build(name, ImageShape(channels, height, width), C, generator_seed=0)
    assert model(torch.ones(2, channels, height, width)).shape == (2, C)


@pytest.mark.parametrize(
    ("shape", "name"),
    [
        (ImageShape(1, 8, 8), "convnet"),
        (ImageShape(3, 64, 64), "convnet"),
        (ImageShape(3, 64, 65), "resnet18"),
        (ImageShape(3, 224, 224), "resnet18"),
        (FEATURES, "mlp"),
        (BAGS, "embedding_bag"),
    ],
)
def test_the_default_fits_its_shape(shape: Shape, name: str) -> None:
    assert default_name(shape) == name
    assert type(shape) in MODELS[name].takes


def test_unknown_names_are_refused_with_a_suggestion() -> None:
    with pytest.raises(InputError) as caught:
        build("resnet4", IMAGES, 3, generator_seed=0)
    assert str(caught.value).startswith('unknown model "resnet4"; did you mean "resnet44"? Known: ')
    assert "torchvision:NAME" in str(caught.value)
    for name in (":x", "x:", ":"):
        with pytest.raises(InputError, match=r"lacks a part: expected package\.module:factory"):
            build(name, IMAGES, 3, generator_seed=0)


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("convnet", BAGS, 'model "convnet" takes images, .* texts: use embedding_bag or pack'),
        ("mlp", BAGS, "takes features and images, but these are texts"),
        ("resnet44", FEATURES, "takes images, but these are features: use mlp, linear or"),
        (
            "embedding_bag",
            IMAGES,
            "use convnet, .*resnet50, efficientnet_lite0 or package",
        ),
        ("timm:tiny", BAGS, 'model "timm:tiny" takes images, but these are texts'),
        ("torchvision:tiny", FEATURES, "takes images, but these are features"),
    ],
)
def test_a_model_for_other_inputs_is_refused_with_those_that_fit(
    name: str, shape: Shape, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        build(name, shape, 3, generator_seed=0)


def test_no_classes() -> None:
    with pytest.raises(InputError, match="at least 1 class, got 0"):
        build("mlp", FEATURES, 0, generator_seed=0)


def test_a_model_larger_than_memory() -> None:
    with pytest.raises(InputError, match=r'cannot make model "mlp" for 3 classes: .*allocate'):
        build("mlp", FeatureShape(2**50), 3, generator_seed=0)


MODULE = """
import torch
from torch import nn
from proselflc.models.shape import ImageShape

def own(shape, num_classes):
    assert isinstance(shape, ImageShape)
    width = shape.channels * shape.height * shape.width
    return nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(width, num_classes)).eval()

def lazy(num_classes): return nn.Sequential(nn.Flatten(), nn.LazyLinear(num_classes))
def thousand(): return nn.Sequential(nn.Flatten(), nn.LazyLinear(1000))

class Gives(nn.Module):
    def __init__(self, make):
        super().__init__()
        self.make = make
    def forward(self, x): return self.make(len(x))

def pair(): return Gives(lambda N: (torch.zeros(N, 3), None))
def maps(): return Gives(lambda N: torch.zeros(N, 3, 4))
def integers(): return Gives(lambda N: torch.zeros(N, 3, dtype=torch.int64))
def single(): return Gives(lambda N: torch.zeros(3))
def fails(): return Gives(lambda N: 1 / 0)
def nothing(): return 3
"""


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("name", ["own_models:own", "own_models:lazy"])
def test_a_model_of_the_users(name: str) -> None:
    model = build(name, IMAGES, 3, generator_seed=4)
    assert all(part.training for part in model.modules())
    assert model(torch.zeros(5, 3, 16, 16)).shape == (5, 3)
    torch.rand(1)
    again = build(name, IMAGES, 3, generator_seed=4)
    for p, q in zip(model.parameters(), again.parameters(), strict=True):
        assert torch.equal(p, q)


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("thousand", r'model "own_models:thousand" gave \[2, 1000\] for 3 classes: .* \[2, 3\]'),
        ("maps", r"gave \[2, 3, 4\] for 3 classes"),
        ("single", r"gave \[3\] for 3 classes"),
        ("pair", r"gave tuple for 3 classes: expected logits \[2, 3\]"),
        ("integers", r"gave torch.int64 for 3 classes: expected logits \[2, 3\] of floats"),
        ("fails", r"failed on a batch of shape \[2, 3, 16, 16\]: ZeroDivisionError: division"),
        ("nothing", "gave int, expected an nn.Module that maps a batch to logits"),
        ("missing", "no attribute 'missing'"),
    ],
)
def test_a_model_that_gives_something_else_is_refused(name: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        build(f"own_models:{name}", IMAGES, 3, generator_seed=0)
    assert "\n" not in str(caught.value)


def test_models_of_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    """With stand-ins: the real ones cannot be imported everywhere."""
    torchvision, timm, models = (types.ModuleType(n) for n in ("torchvision", "timm", "models"))
    torchvision.models = models  # type: ignore[attr-defined]
    models.list_models = lambda module: ["tiny"]  # type: ignore[attr-defined]
    models.get_model = lambda name, weights, num_classes: CifarResNet(8, 3, num_classes)  # type: ignore[attr-defined]
    timm.is_model = lambda name: name == "tiny"  # type: ignore[attr-defined]
    timm.list_models = lambda: ["tiny"]  # type: ignore[attr-defined]
    timm.create_model = lambda name, pretrained, num_classes, in_chans: CifarResNet(  # type: ignore[attr-defined]
        8, in_chans, num_classes
    )
    monkeypatch.setitem(sys.modules, "torchvision", torchvision)
    monkeypatch.setitem(sys.modules, "timm", timm)
    grey = ImageShape(1, 8, 8)
    assert build("timm:tiny", grey, 4, generator_seed=0)(some(grey, 2)).shape == (2, 4)
    assert build("torchvision:tiny", IMAGES, 4, generator_seed=0)(some(IMAGES, 2)).shape == (2, 4)
    with pytest.raises(InputError, match=r'"torchvision:tiny" failed on .*\[2, 1, 8, 8\]: Runtime'):
        build("torchvision:tiny", grey, 4, generator_seed=0)
    with pytest.raises(InputError, match='timm has no model "tinny"'):
        build("timm:tinny", grey, 4, generator_seed=0)


def test_weights_are_loaded_and_a_new_head_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "w.pt"
    trained = build("convnet", IMAGES, 10, generator_seed=1).state_dict()
    torch.save(trained, path)
    said: list[str] = []
    same = build("convnet", IMAGES, 10, generator_seed=2, weights=path, report=said.append)
    assert all(torch.equal(value, trained[name]) for name, value in same.state_dict().items())
    assert said == []
    other = build("convnet", IMAGES, 4, generator_seed=2, weights=path, report=said.append)
    fresh = build("convnet", IMAGES, 4, generator_seed=2).state_dict()
    for name, value in other.state_dict().items():
        assert torch.equal(value, (fresh if name.startswith("fc.") else trained)[name])
    assert len(said) == 1
    assert said[0].startswith("fc.weight, fc.bias are newly initialised")
    with pytest.raises(InputError, match=r"do not fit the model: missing: hidden1\.weight"):
        build("mlp", IMAGES, 10, generator_seed=0, weights=path)


def test_weights_that_give_nan(tmp_path: Path) -> None:
    state = build("mlp", FEATURES, 3, generator_seed=0).state_dict()
    state["hidden1.bias"][0] = float("nan")
    torch.save(state, tmp_path / "w.pt")
    with pytest.raises(InputError, match="give NaN or infinite logits"):
        build("mlp", FEATURES, 3, generator_seed=0, weights=tmp_path / "w.pt")
