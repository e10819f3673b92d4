"""Models from elsewhere: a function of the user, timm, torchvision.

`package.module:factory` is imported and called. The user names it on the command line or in a call.
A file is not trusted: code that it names is executed only if the user names it too. Nothing here
imports torch until a model is made.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from proselflc.errors import InputError
from proselflc.wording import option

if TYPE_CHECKING:
    from torch import nn

LIBRARIES = ("timm", "torchvision")  # whose models are made by name: nothing else is imported


def names_code(model: object) -> bool:
    """Return whether a model's name is `package.module:factory`, which would be imported.

    >>> names_code("my_models:small"), names_code("timm:resnet18"), names_code("mlp")
    (True, False, False)
    """
    kind, colon, _ = str(model or "").partition(":")
    return bool(colon) and kind not in LIBRARIES


def check_repeated(model: str, source: Path, repeated: str | None) -> None:
    """Refuse code that a file names and the user does not."""
    if repeated is not None or not names_code(model):
        return
    module, _, factory = model.partition(":")
    raise InputError(
        f"{source} would have this command import the Python module {module}, which is looked for "
        f"in {Path.cwd()} first, and call {factory} in it to make the model, but a file is not "
        "trusted to name code",
        field="model",
        fix=f"if you trust that code, name it yourself with {option('model', model)}",
    )


def call_factory(
    package: str, name: str, *, arguments: Mapping[str, object], gives: str
) -> nn.Module:
    """Return the module that `package.module:factory` makes.

    Args:
        package, name: where the factory is; the current directory is searched first.
        arguments: what it is called with, as keywords, as far as its signature names them. A
            signature that ends in `**kwargs` also gets `num_classes`, which the factories of
            timm and torchvision pass on so.
        gives: what the module is expected to do, for the error.
    """
    from torch import nn

    here = str(Path.cwd())
    sys.path.insert(0, here)  # as `python -m` does: a file beside the data is found
    try:
        factory = getattr(importlib.import_module(package), name)
        taken = _taken(factory, arguments)
        module = factory(**{key: arguments[key] for key in taken})
    except Exception as error:  # it is the user's code, and may fail in any way
        besides = f"besides {' and '.join(arguments)} " if arguments else ""
        raise InputError(
            f'cannot make a model with "{package}:{name}": {type(error).__name__}: '
            f"{words(error)}; it must be a callable without arguments {besides}in a module that "
            "can be imported"
        ) from None
    finally:
        sys.path.remove(here)
    if not isinstance(module, nn.Module):
        raise InputError(
            f'"{package}:{name}" gave {type(module).__name__}, expected an nn.Module that {gives}'
        )
    return module


def import_timm(name: str) -> ModuleType:
    """Return timm, if it is installed and has a model of that name."""
    timm = _imported("timm", 'pip install "proselflc[timm]"')
    if not timm.is_model(name):
        raise _unknown("timm", name, timm.list_models())
    return timm


def timm_model(name: str, *, channels: int, num_classes: int) -> nn.Module:
    """Return an untrained timm model for images with this number of channels."""
    timm = import_timm(name)
    try:
        module: nn.Module = timm.create_model(
            name, pretrained=False, num_classes=num_classes, in_chans=channels
        )
    except Exception as error:  # over a thousand models, not all of which take every argument
        raise _failed("timm", name, error) from None
    return module


def torchvision_model(name: str, *, num_classes: int) -> nn.Module:
    """Return an untrained torchvision model, which takes images with three channels."""
    models = _imported("torchvision", "install the one that goes with this torch").models
    known = models.list_models(module=models)  # without those that find objects or segment
    if name not in known:
        raise _unknown("torchvision", name, known)
    try:
        module: nn.Module = models.get_model(name, weights=None, num_classes=num_classes)
    except Exception as error:
        raise _failed("torchvision", name, error) from None
    return module


def _taken(factory: Callable[..., object], arguments: Mapping[str, object]) -> list[str]:
    """Return which of the arguments a callable takes by keyword."""
    try:
        parameters = inspect.signature(factory).parameters.values()
    except (TypeError, ValueError):  # some built-in callables have none
        return []
    names = {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        names.add("num_classes")
    return [key for key in arguments if key in names]


def _imported(name: str, advice: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    # A torchvision that does not fit the installed torch raises the latter.
    except (ImportError, RuntimeError) as error:
        raise InputError(f"{name} cannot be imported ({words(error)}): {advice}") from None


def _unknown(library: str, name: str, known: list[str]) -> InputError:
    """Return an error that names the nearest of a library's thousand models, not all of them."""
    close = get_close_matches(name, known, n=1)
    hint = f'did you mean "{close[0]}"?' if close else "its list_models() lists them"
    return InputError(f'{library} has no model "{name}"; {hint}')


def _failed(library: str, name: str, error: Exception) -> InputError:
    return InputError(
        f'{library} cannot make "{name}": {type(error).__name__}: {words(error)}; choose another '
        "model"
    )


def words(error: Exception) -> str:
    """Return the text of an error, on one line and not too long."""
    return " ".join(str(error).split())[:300] or type(error).__name__
