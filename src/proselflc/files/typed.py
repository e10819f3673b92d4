"""JSON and TOML read into dataclasses, whose types say what a file may hold."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Annotated, Any, TypeAlias, TypeVar

import msgspec

from proselflc.errors import InputError
from proselflc.files.regular import decoded

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

T = TypeVar("T")
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=1 << 48)]
Share: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=1)]
LARGEST = 1 << 28  # bytes of a file that is read at once


def read_json(path: Path, kind: type[T]) -> T:
    """Return the content of a JSON file as the given type."""
    return decode_json(decoded(path, LARGEST), kind, path)


def decode_json(text: str | bytes, kind: type[T], source: object) -> T:
    """Return JSON text as the given type; `source` names it in errors.

    >>> decode_json('{"a": 1}', dict[str, int], "x.json")
    {'a': 1}
    >>> decode_json('{"a": [1, "b"]}', dict[str, list[int]], "x.json")
    Traceback (most recent call last):
    proselflc.errors.InputError: x.json is damaged: expected `int`, got `str` at `$[...][1]`
    """
    try:
        return msgspec.json.decode(text, type=kind, dec_hook=_convert_path)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise damaged(source, error) from None


def read_toml(path: Path, kind: type[T]) -> T:
    """Return the content of a TOML file as the given type."""
    try:
        table = tomllib.loads(decoded(path, LARGEST))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not a TOML file: {error}") from None
    return convert(table, kind, path)


def convert(value: object, kind: type[T], source: object) -> T:
    """Return plain Python values as the given type; `source` names them in errors."""
    try:
        return msgspec.convert(value, type=kind, dec_hook=_convert_path)
    except (msgspec.ValidationError, RecursionError) as error:
        raise damaged(source, error) from None


def finite(value: object) -> object:
    """Return a value with None for every number that is not finite, which JSON cannot hold."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value


def damaged(source: object, error: Exception) -> InputError:
    """Return the error for a file that does not hold what it should."""
    reason = " ".join(str(error).split())[:200] or type(error).__name__
    reason = reason.replace(" - at `", " at `")
    if reason[1:2].islower():  # not "JSON"
        reason = reason[0].lower() + reason[1:]
    return InputError(f"{source} is damaged: {reason}")


def _convert_path(kind: type, value: object) -> Any:
    if kind is Path:
        if isinstance(value, str):
            return Path(value)
        raise TypeError(f"Expected `str`, got `{type(value).__name__}`")
    raise NotImplementedError(f"{kind} cannot be read from a file")
