"""The TOML file behind the flags of a command: `--config`, or that of the run to be resumed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from proselflc.errors import InputError
from proselflc.files.regular import is_regular
from proselflc.run import config

_WRITTEN = {"train": "config.toml", "search": "study.toml"}  # what the commands write
_COMMAND = {"out": str, **dict.fromkeys(("resume", "overwrite", "quiet", "json"), bool)}
_SEARCH = {
    **{"space": tuple[str, ...], "trials": int, "prune": bool, "jobs": int, "storage": str},
    "no_retrain": bool,
}
_EXCLUSIVE = (("epochs", "steps"), ("eval_epochs", "eval_steps"))


def read(command: str, arguments: Sequence[str]) -> tuple[dict[str, Any], Path | None]:
    """Return the options in the file behind the flags, as text by name, and its path."""
    from proselflc.models.factory import check_repeated
    from proselflc.training.run_directory import RunDirectory, read_toml

    path = _find(command, arguments)
    if path is None:
        return {}, None
    if path.name == _WRITTEN["train"]:
        RunDirectory(path.parent).checked(path)
    table = read_toml(path)
    if command == "search":
        table.pop("study", None)  # what a study writes about itself
    more = {**_COMMAND, **(_SEARCH if command == "search" else {})}
    found = config.read_options(table, path, more)
    check_repeated(found.get("model", ""), path, flag_value(arguments, "--model"))
    if found.get("overwrite") and not _has_flag(arguments, "--overwrite"):
        raise InputError(
            f"{path} sets overwrite, which a file cannot do alone as it may come from anywhere",
            field="overwrite",
            fix="add --overwrite to the command, or remove the line from the file",
        )
    return as_text(behind_flags(found, arguments)), path


def behind_flags(options: Mapping[str, Any], flags: Iterable[str]) -> dict[str, Any]:
    """Return the options of a file without those that flags contradict.

    The method's parameters go if a flag names another method, and a number of steps goes if a flag
    gives a number of epochs, or the other way round.
    """
    flags, found = tuple(flags), dict(options)
    method = flag_value(flags, "--method")
    if method is not None and method != found.get("method"):
        found = {name: value for name, value in found.items() if not name.startswith("method.")}
    for pair in _EXCLUSIVE:
        for name, other in (pair, pair[::-1]):
            if flag_value(flags, "--" + name.replace("_", "-")) is not None:
                found.pop(other, None)
    return found


def as_text(options: Mapping[str, Any]) -> dict[str, str | list[str]]:
    """Return options as the words of a command line, by name; empty lists are left out."""
    words: dict[str, str | list[str]] = {}
    for name, value in options.items():
        key = name if name.startswith("method.") else name.replace("_", "-")
        if isinstance(value, tuple):
            words |= {key: list(value)} if value else {}
        else:
            words[key.lower()] = str(value).lower() if isinstance(value, bool) else str(value)
    return words


def flag_value(flags: Iterable[str], name: str) -> str | None:
    """Return the value of a flag on a command line, the last if it is repeated."""
    found, is_next = None, False
    for word in flags:
        if is_next:
            found, is_next = word, False
        elif word == name:
            is_next = True
        elif word.startswith(name + "="):
            found = word.partition("=")[2]
    return found


def _has_flag(flags: Iterable[str], name: str) -> bool:
    return any(word.partition("=")[0] == name for word in flags)


def _find(command: str, arguments: Sequence[str]) -> Path | None:
    """Return the TOML file that --config names or that --resume continues, if any."""
    name, out = flag_value(arguments, "--config"), flag_value(arguments, "--out")
    if name is not None:
        return config.find(name)
    if out is None or not _has_flag(arguments, "--resume"):
        return None
    path = Path(out) / _WRITTEN[command]
    if not is_regular(path):
        is_help = _has_flag(arguments, "--help") or _has_flag(arguments, "-h")
        if command == "train" and not is_help and not _has_flag(arguments, "--data"):
            from proselflc.training.saved_model import no_run

            raise InputError(f"{no_run(Path(out))}; to start one that can be resumed, add --data")
        return None
    if command == "search":
        from proselflc.searching.study_directory import StudyDirectory

        StudyDirectory(Path(out)).read()  # a study of another version may have other options
    return path
