"""Trained weights of the user: read without running code, loaded without guessing."""

import hashlib
import os
import pickle
import zipfile
from collections.abc import Iterable
from io import BytesIO
from pathlib import Path
from typing import IO

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from proselflc.errors import InputError
from proselflc.files.regular import content_of, is_regular, open_regular
from proselflc.models.factory import words

_NAMED = 3  # how many names of each kind an error lists


def read_state(path: Path, *, sha256: str | None = None) -> dict[str, Tensor]:
    """Return the tensors of a safetensors file, or of a state dict that `torch.save` wrote.

    No code in a file is run. The wrappers `state_dict` and `model` of checkpoints are removed, and
    so is the prefix `module.` of a model that was trained in several processes. If `sha256` is
    given, a file with another hash is refused.
    """
    if not is_regular(path):
        raise InputError(f"there is no weights file {path}")
    try:
        content = None if sha256 is None else _checked(path, sha256)
        if path.suffix == ".safetensors":
            from safetensors import torch as safetensors

            state: object = (
                safetensors.load_file(path) if content is None else safetensors.load(content)
            )
        else:
            with open_regular(path) if content is None else BytesIO(content) as file:
                _check_unpacked_size(file)
                state = torch.load(file, map_location="cpu", weights_only=True)
    except InputError:
        raise
    except ImportError:
        raise InputError(f"reading {path} needs safetensors: pip install safetensors") from None
    except Exception as error:  # pickles and headers can be broken in any way
        # What torch says of a pickle ends in the advice to trust it and run its code.
        unsafe = isinstance(error, pickle.UnpicklingError)
        reason = "it is damaged, or holds more than tensors" if unsafe else words(error)
        raise InputError(
            f"cannot read weights from {path}: {reason}; expected a safetensors file or a state "
            "dict of tensors"
        ) from None
    for wrapper in ("state_dict", "model"):
        if isinstance(state, dict) and isinstance(state.get(wrapper), dict):
            state = state[wrapper]
    if not isinstance(state, dict) or not all(
        isinstance(name, str) and isinstance(value, Tensor) for name, value in state.items()
    ):
        raise InputError(f"{path} does not hold a state dict: expected names and their tensors")
    if state and all(name.startswith("module.") for name in state):
        state = {name.removeprefix("module."): value for name, value in state.items()}
    return state


def load_strictly(module: nn.Module, state: dict[str, Tensor], path: Path) -> None:
    """Load the weights into the module; every name and shape must fit."""
    try:
        module.load_state_dict(state, strict=True)
    except RuntimeError as error:
        reason = _mismatch(module, state) or words(error)
        raise InputError(f"the weights in {path} do not fit the model: {reason}") from None


def load_pretrained(module: nn.Module, state: dict[str, Tensor], path: Path) -> tuple[str, ...]:
    """Load weights that may have been trained for another number of classes.

    The classifier is the last layer that the module registered, linear or a convolution. Where it
    differs in the number of its outputs alone it stays as it is; all else must fit, as in
    `load_strictly`.

    Returns:
        the names of the parameters that stayed as they were, none if the classifier fitted.
    """
    own = module.state_dict()
    head = _classifier(module)
    if not all(name in own and name in state for name in head) or not _other_classes(
        [(own[name].shape, state[name].shape) for name in head]
    ):
        head = ()
    load_strictly(module, state | {name: own[name] for name in head}, path)
    return head


def _classifier(module: nn.Module) -> tuple[str, ...]:
    """Return the names of the parameters of the last layer, if it can be a classifier."""
    prefix, last = "", module
    for name, part in module.named_modules():
        if next(part.parameters(recurse=False), None) is not None:
            prefix, last = f"{name}." if name else "", part
    parameters = dict(last.named_parameters(recurse=False))
    if not isinstance(last, nn.Linear | nn.Conv2d) or any(map(is_lazy, parameters.values())):
        return ()
    return tuple(f"{prefix}{name}" for name in parameters)


def _other_classes(shapes: list[tuple[torch.Size, torch.Size]]) -> bool:
    """Return whether the file's layer differs from the model's in its first dimension only."""
    outputs = {(own[:1], other[:1]) for own, other in shapes}
    same = all(own[1:] == other[1:] for own, other in shapes)
    return same and len(outputs) == 1 and all(own != other for own, other in shapes)


def _mismatch(module: nn.Module, state: dict[str, Tensor]) -> str:
    """Return what is missing, unexpected or of another shape; empty if nothing is."""
    own = module.state_dict()
    # Older files hold no count of batches, which torch does not need.
    counts = ("num_batches_tracked",)
    missing = [name for name in own if name not in state and not name.endswith(counts)]
    unexpected = [name for name in state if name not in own]
    shapes = [
        f"{name} is {list(state[name].shape)} instead of {list(own[name].shape)}"
        for name in own
        if name in state and not is_lazy(own[name]) and own[name].shape != state[name].shape
    ]
    found = (
        ("missing: ", missing),
        ("not in the model: ", unexpected),
        ("of another shape: ", shapes),
    )
    return "; ".join(title + _first(names) for title, names in found if names)


def _first(names: Iterable[str]) -> str:
    """Return a few names, and how many more there are."""
    listed = list(names)
    more = len(listed) - _NAMED
    return ", ".join(listed[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _checked(path: Path, sha256: str) -> bytes:
    """Return the content of a file that must have this hash."""
    content = content_of(path)
    found = hashlib.sha256(content).hexdigest()
    if found != sha256:
        raise InputError(f"{path} has the sha256 {found[:12]}…, expected {sha256[:12]}…")
    return content


def _check_unpacked_size(file: IO[bytes]) -> None:
    """Refuse an archive that would unpack to more than it is; torch itself never compresses."""
    if zipfile.is_zipfile(file):
        with zipfile.ZipFile(file) as archive:
            unpacked = sum(info.file_size for info in archive.infolist())
        if unpacked > file.seek(0, os.SEEK_END):
            raise ValueError("it is a compressed archive, which torch.save does not write")
    file.seek(0)
