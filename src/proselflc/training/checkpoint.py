"""Checkpoints of a run: the last two states, written whole or not at all, without pickle.

A state is a safetensors file `STEP-DIGEST.safetensors` with tensors by name, and everything else as
JSON in its metadata. The digest of the content in the name tells a damaged file from a good one.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Size, Tensor, as_tensor
from torch.optim import Optimizer

from proselflc.errors import InputError
from proselflc.files.regular import NotRegularError, check_regular, content_of, whole_file

Json: TypeAlias = dict[str, object]
KEPT = 2
_NAME = re.compile(r"([0-9]{10})-([0-9a-f]{32})\.safetensors")


@dataclass(frozen=True)
class State:
    """A state that training can continue from."""

    step: int  # number of completed optimiser steps
    tensors: dict[str, Tensor]  # by dotted names
    facts: Json  # everything else, as JSON holds it
    digest: str = ""  # of the file that it was read from


def write(folder: Path, state: State) -> Path:
    """Add a state to the folder and remove all but the last two."""
    folder.mkdir(exist_ok=True)
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in state.tensors.items()}
    content = save(_apart(tensors), metadata={"facts": json.dumps(state.facts)})
    path = folder / f"{state.step:010d}-{_digest(content)}.safetensors"
    with whole_file(path) as file:
        file.write(content)
    for old in _files(folder)[KEPT:]:
        old.unlink()
    return path


def read_last(folder: Path) -> tuple[State | None, list[str]]:
    """Return the newest state that is not damaged, or None, and a sentence per damaged one."""
    notes: list[str] = []
    for path in _files(folder):
        state = _read(path)
        if isinstance(state, State):
            return state, notes
        notes.append(f"the checkpoint {path.name} is damaged and is not used: {state}")
    return None, notes


def peek(folder: Path) -> Json:
    """Return the facts of the newest state without reading its tensors; none if it is damaged.

    It is not compared with its digest, which `read_last` does before the state is used.
    """
    for path in _files(folder):
        try:
            check_regular(path)
            with safe_open(path, framework="pt") as file:
                facts = json.loads(file.metadata()["facts"])
        except (OSError, ValueError, KeyError, TypeError, RecursionError, SafetensorError):
            continue
        if isinstance(facts, dict):
            return facts
    return {}


def can_go_on(folder: Path) -> bool:
    """Return whether there is a state that is not damaged, or none at all."""
    state, damages = read_last(folder)
    return state is not None or not damages


def remove_beyond(folder: Path, step: int) -> None:
    """Delete the states after a step, which are damaged."""
    for path in _files(folder):
        if int(path.name[:10]) > step:
            path.unlink()


def part(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return the tensors whose names begin with `prefix` and a dot, without that prefix."""
    return {
        name.removeprefix(prefix + "."): tensor
        for name, tensor in tensors.items()
        if name.startswith(prefix + ".")
    }


def named(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors with `prefix` and a dot before their names."""
    return {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}


def optimizer_tensors(optimizer: Optimizer) -> dict[str, Tensor]:
    """Return the state of an optimiser, by the number of a parameter and the name of a value."""
    return {
        f"{number}.{name}": as_tensor(value)
        for number, values in optimizer.state_dict()["state"].items()
        for name, value in values.items()
        if value is not None
    }


def restore_optimizer(optimizer: Optimizer, tensors: dict[str, Tensor]) -> None:
    """Restore a state that `optimizer_tensors` returned; refuse one of other parameters."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    values: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        number, _, key = name.partition(".")
        k = int(number) if number.isdecimal() else len(parameters)
        fits = k < len(parameters) and value.shape in (Size(), parameters[k].shape)
        if not fits or not value.is_floating_point():
            raise InputError(
                f"the checkpoint does not fit this optimiser: {name} has another shape or type"
            )
        values.setdefault(k, {})[key] = value
    optimizer.load_state_dict({**optimizer.state_dict(), "state": values})


def _files(folder: Path) -> list[Path]:
    """Return the files of the states in a folder, newest first."""
    if not folder.is_dir():
        return []
    return sorted((path for path in folder.iterdir() if _NAME.fullmatch(path.name)), reverse=True)


def _read(path: Path) -> State | str:
    """Return the state in a file, or why it is damaged."""
    match = _NAME.fullmatch(path.name)
    assert match is not None
    try:
        if _digest(content_of(path)) != match[2]:
            return "its content is not what was written"
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            facts = json.loads(file.metadata()["facts"])
    except NotRegularError:
        raise
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None
    except (ValueError, KeyError, TypeError, RecursionError, SafetensorError) as error:
        return " ".join(str(error).split())[:200]
    if not isinstance(facts, dict):
        return "its facts are not an object"
    return State(int(match[1]), tensors, facts, match[2])


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def _apart(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors with a copy for each that shares memory with another (tied weights)."""
    seen: set[int] = set()
    result = {}
    for name, tensor in tensors.items():
        shared = tensor.untyped_storage().data_ptr() in seen
        seen.add(tensor.untyped_storage().data_ptr())
        result[name] = tensor.clone() if shared else tensor
    return result
