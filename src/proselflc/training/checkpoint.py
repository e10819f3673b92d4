"""States of a run on disk: whole or not at all, the last two, no pickle.

A state is one safetensors file, `STEP-DIGEST.safetensors`: tensors by name, and what is no tensor
as JSON in its metadata. The digest of the content is part of the name, so that a file that was
damaged later is told from a good one.
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
from torch import Tensor

from proselflc.errors import InputError
from proselflc.files.regular import NotRegularError, check_regular, content_of
from proselflc.files.whole import whole_file

Json: TypeAlias = dict[str, object]
KEPT = 2
_NAME = re.compile(r"([0-9]{10})-([0-9a-f]{32})\.safetensors")


@dataclass(frozen=True)
class State:
    """What training can go on from.

    Attributes:
        step: completed optimiser steps.
        tensors: by dotted names.
        facts: everything that is no tensor.
    """

    step: int
    tensors: dict[str, Tensor]
    facts: Json


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
    """The newest state that is not damaged, or None; and a sentence about each one that is.

    Raises:
        InputError: one cannot be read at all, which says nothing about its content.
    """
    notes: list[str] = []
    for path in _files(folder):
        state = _read(path)
        if isinstance(state, State):
            return state, notes
        notes.append(f"the checkpoint {path.name} is damaged and is not used: {state}")
    return None, notes


def peek(folder: Path) -> Json:
    """Return what the newest state says of its run, without its tensors; nothing if it is damaged.

    It is not compared with its digest: `read_last` does that before anything is made of it.
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
    """Whether there is a state that is not damaged, or none at all.

    Raises:
        InputError: as `read_last`.
    """
    state, damages = read_last(folder)
    return state is not None or not damages


def remove_beyond(folder: Path, step: int) -> None:
    """Delete the states after this step, which were passed over."""
    for path in _files(folder):
        if int(path.name[:10]) > step:
            path.unlink()


def part(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors whose names begin with `prefix` and a dot, without it."""
    return {
        name.removeprefix(prefix + "."): tensor
        for name, tensor in tensors.items()
        if name.startswith(prefix + ".")
    }


def named(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors with `prefix` and a dot before their names."""
    return {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}


def _files(folder: Path) -> list[Path]:
    """The states in a folder, newest first."""
    if not folder.is_dir():
        return []
    return sorted((path for path in folder.iterdir() if _NAME.fullmatch(path.name)), reverse=True)


def _read(path: Path) -> State | str:
    """The state in a file, or why there is none."""
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
        return "its facts are no table"
    return State(int(match[1]), tensors, facts)


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def _apart(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The same tensors, none of which shares its memory with another: tied weights do."""
    seen: set[int] = set()
    result = {}
    for name, tensor in tensors.items():
        shared = tensor.untyped_storage().data_ptr() in seen
        seen.add(tensor.untyped_storage().data_ptr())
        result[name] = tensor.clone() if shared else tensor
    return result
