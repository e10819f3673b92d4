"""Models from elsewhere; with stand-ins for timm and torchvision, which may not be there."""

import sys
import types
from pathlib import Path

import pytest
from torch import nn

from proselflc.errors import InputError
from proselflc.models.factory import call_factory, import_timm, timm_model, torchvision_model

MODULE = """
from torch import nn

class Made(nn.Module):
    def __init__(self, **got):
        super().__init__()
        self.got = got

def none(): return Made()
def classes(num_classes): return Made(num_classes=num_classes)
def both(*, shape, num_classes=3, width=2): return Made(shape=shape, num_classes=num_classes)
def swallows(width=2, **others): return Made(**others)
def positional(num_classes=5, /): return Made(num_classes=num_classes)
def needs(argument): return Made()
def fails(): raise OSError("no such\\nluck")
def other(): return [1]
number = 3
"""


pytestmark = pytest.mark.usefixtures("here")


def call(name: str, package: str = "own_models") -> nn.Module:
    arguments = {"num_classes": 10, "shape": "s"}
    return call_factory(package, name, arguments=arguments, gives="maps a to b")


@pytest.mark.parametrize(
    ("name", "got"),
    [
        ("none", {}),
        ("classes", {"num_classes": 10}),
        ("both", {"num_classes": 10, "shape": "s"}),
        ("swallows", {"num_classes": 10}),
        ("positional", {"num_classes": 5}),
    ],
)
def test_a_factory_gets_what_it_takes(name: str, got: dict[str, object]) -> None:
    assert call(name).got == got


def test_the_search_path_is_as_before(here: Path) -> None:
    before = list(sys.path)
    call("none")
    with pytest.raises(InputError):
        call("fails")
    assert sys.path == before
    assert str(here) not in sys.path


@pytest.mark.parametrize(
    ("package", "name", "message"),
    [
        ("not_there", "x", "ModuleNotFoundError: No module named 'not_there'"),
        ("own_models", "missing", "no attribute 'missing'"),
        ("own_models", "needs", "missing 1 required positional argument"),
        ("own_models", "fails", "OSError: no such luck"),
        ("own_models", "number", "'int' object is not callable"),
        ("own_models", "other", '"own_models:other" gave list, expected .* that maps a to b'),
        ("builtins", "dict", "gave dict"),
    ],
)
def test_what_fails_is_told_in_a_sentence(package: str, name: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        call(name, package)
    assert "\n" not in str(caught.value)


def test_what_a_factory_may_take_is_told() -> None:
    with pytest.raises(InputError, match="without arguments besides num_classes and shape in a"):
        call("needs")
    with pytest.raises(InputError, match="without arguments in a module"):
        call_factory("own_models", "needs", arguments={}, gives="")


class Library(types.ModuleType):
    """As much of timm and of torchvision.models as is used."""

    def is_model(self, name: str) -> bool:
        return name.partition(".")[0] in ("tiny", "stubborn")

    def list_models(self, module: object = None) -> list[str]:
        return ["tiny", "stubborn"] if module is self else ["tiny", "stubborn", "detector"]

    def create_model(
        self, name: str, *, pretrained: bool, num_classes: int, in_chans: int
    ) -> nn.Module:
        assert pretrained is False
        if name == "stubborn":
            raise TypeError("unexpected in_chans")
        return nn.Conv2d(in_chans, num_classes, 1)

    def get_model(self, name: str, *, weights: None, num_classes: int) -> nn.Module:
        if name == "stubborn":
            raise TypeError("unexpected num_classes")
        return nn.Conv2d(3, num_classes, 1)


@pytest.fixture
def libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    torchvision = types.ModuleType("torchvision")
    torchvision.models = Library("torchvision.models")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "timm", Library("timm"))
    monkeypatch.setitem(sys.modules, "torchvision", torchvision)


@pytest.mark.usefixtures("libraries")
def test_libraries_make_their_models() -> None:
    for name in ("tiny", "tiny.some_tag"):
        conv = timm_model(name, channels=1, num_classes=7)
        assert isinstance(conv, nn.Conv2d)
        assert (conv.in_channels, conv.out_channels) == (1, 7)
    conv = torchvision_model("tiny", num_classes=7)
    assert isinstance(conv, nn.Conv2d)
    assert conv.out_channels == 7


@pytest.mark.usefixtures("libraries")
def test_libraries_and_their_unknown_names() -> None:
    with pytest.raises(InputError, match=r'^timm has no model "tinny"; did you mean "tiny"\?$'):
        import_timm("tinny")
    with pytest.raises(InputError, match='torchvision has no model "xyz"; its list_models'):
        torchvision_model("xyz", num_classes=2)
    with pytest.raises(InputError, match='torchvision has no model "detector"'):
        torchvision_model("detector", num_classes=2)
    with pytest.raises(InputError, match='timm cannot make "stubborn": TypeError: unexpected in'):
        timm_model("stubborn", channels=3, num_classes=2)
    with pytest.raises(InputError, match='torchvision cannot make "stubborn": TypeError'):
        torchvision_model("stubborn", num_classes=2)


def test_libraries_that_are_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    monkeypatch.setitem(sys.modules, "torchvision", None)
    with pytest.raises(InputError, match=r"timm cannot be imported .*proselflc\[timm\]"):
        timm_model("tiny", channels=3, num_classes=2)
    with pytest.raises(InputError, match=r"torchvision cannot be imported .*goes with this torch"):
        torchvision_model("tiny", num_classes=2)


def test_a_torchvision_that_does_not_fit_torch(here: Path) -> None:
    """It fails while being imported, and not with ImportError."""
    (here / "torchvision").mkdir()
    (here / "torchvision" / "__init__.py").write_text('raise RuntimeError("no nms")')
    sys.modules.pop("torchvision", None)
    sys.path.insert(0, str(here))
    try:
        with pytest.raises(InputError, match=r"torchvision cannot be imported \(no nms\)"):
            torchvision_model("tiny", num_classes=2)
    finally:
        sys.path.remove(str(here))
