"""The options of a command that trains: those of methods, and a TOML file behind the flags.

The options `--method.NAME` are made from the parameters of the chosen methods. Only the files of
these methods are imported, so that `train --help` need not wait for torch. The file is `--config`,
or that of the run to be resumed.
"""

from __future__ import annotations

import functools
import inspect
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, field, fields, make_dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args, get_type_hints

from cyclopts import Group, Parameter

from proselflc.errors import InputError
from proselflc.files.regular import is_regular
from proselflc.options import Whole
from proselflc.run import config
from proselflc.run.config import check_taken
from proselflc.training.method import Method

R = TypeVar("R")
_FIELD = "parameters"  # the keyword argument of a command that holds the parameters of methods
_WRITTEN = {"train": "config.toml", "search": "study.toml"}  # what the commands write
_COMMAND = {"out": str, **dict.fromkeys(("resume", "overwrite", "quiet", "json"), bool)}
_SEARCH = {
    **{"space": tuple[str, ...], "trials": int, "prune": bool, "jobs": int, "storage": str},
    "no_retrain": bool,
}
# Commands that take data as their first word, or as the second after a run.
_DATA_FIRST = {"train": 1, "search": 1, "columns": 1, "noise": 1, "embed": 1, "predict": 2}
_KEEPING = ("train", "search")  # whose runs open their data again
_ONE_WORD = {"--data=-": ("--data", "-")}
_EXCLUSIVE = (("epochs", "steps"), ("eval_epochs", "eval_steps"))


@contextmanager
def with_data(arguments: Sequence[str]) -> Iterator[list[str]]:
    """Yield the words of a command line with --data in front of data that is given without it.

    A table from standard input, -, is saved as a file, whose path takes its place. It stays where
    later commands need it, and is otherwise removed in the end.

    >>> with with_data(["train", "patients.csv", "--label", "kind"]) as words:
    ...     words
    ['train', '--data', 'patients.csv', '--label', 'kind']
    """
    words = _with_flag(arguments)
    is_piped = bool(words) and words[0] in _DATA_FIRST and flag_value(words, "--data") == "-"
    if not is_piped or _has_flag(words, "--help"):
        yield words
    elif words[0] in _KEEPING:
        from proselflc.terminal import say

        path = _saved(Path("runs"))
        say(f"standard input is saved as {path}")
        yield _with_path(words, path)
    else:
        with tempfile.TemporaryDirectory() as folder:
            yield _with_path(words, _saved(Path(folder)))


def _saved(folder: Path) -> Path:
    from proselflc.data.tables.standard_input import save

    return save(folder)


def _with_path(words: Sequence[str], path: Path) -> list[str]:
    return [str(path) if pair == ("--data", "-") else pair[1] for pair in pairwise(["", *words])]


def _with_flag(arguments: Sequence[str]) -> list[str]:
    """Return the words of a command line with --data in front of data that is given without it."""
    words = list(arguments)
    place = _DATA_FIRST.get(words[0], 0) if words else 0
    if not place:
        return words
    if len(words) > place and (words[place] == "-" or not words[place].startswith("-")):
        if _has_flag(words, "--data"):
            raise InputError(
                f"the data is given twice, as {words[place]} and with --data",
                field="data",
                fix="give it once",
            )
        words.insert(place, "--data")
    return [part for word in words for part in _ONE_WORD.get(word, (word,))]


def with_parameters(command: Callable[..., R], takers: Sequence[Method[Any]]) -> Callable[..., R]:
    """Return a command that also takes the parameters of methods and puts them into its config."""
    signature = inspect.signature(command)

    @functools.wraps(command)
    def extended(*args: Any, **kwargs: Any) -> R:
        given = given_parameters(kwargs.pop(_FIELD, None))
        options = kwargs.get("options", signature.parameters["options"].default)
        return command(*args, **{**kwargs, "options": replace(options, parameters=given)})

    group = Group(
        f"Parameters of {', '.join(taker.name for taker in takers)}",
        help="`--method NAME --help` shows those of another method.",
    )
    own = _options(takers)
    hint = Annotated[own, Parameter(name="--method", group=group)]  # type: ignore[valid-type]
    more = inspect.Parameter(_FIELD, inspect.Parameter.KEYWORD_ONLY, default=None)
    extended.__annotations__ = {**command.__annotations__, _FIELD: hint}
    vars(extended)["__signature__"] = signature.replace(
        parameters=[*signature.parameters.values(), more]
    )
    return extended


def given_parameters(options: object | None) -> dict[str, Any]:
    """Return the parameters that were given, by name."""
    return {} if options is None else {k: v for k, v in vars(options).items() if v is not None}


def check_parameters(arguments: Sequence[str], takers: Sequence[Method[Any]]) -> None:
    """Refuse an option `--method.NAME` that none of the methods takes."""
    for word in arguments:
        if word == "--":
            return
        found = re.match(r"--method\.([^=]+)", word)
        if found is not None:
            check_taken(found[1].replace("-", "_"), takers)


def meanings(method: Method[Any]) -> dict[str, str]:
    """Return the description of each parameter of a method, from the docstring of its class."""
    text = inspect.cleandoc(method.parameters.__doc__ or "").partition("Attributes:\n")[2]
    found = re.findall(r"^    (\w+): (.*(?:\n        .*)*)", text, re.M)
    return {name: " ".join(description.split()) for name, description in found}


def defaults(method: Method[Any]) -> dict[str, str]:
    """Return the default of each parameter of a method as text."""
    special = {MISSING: "must be given", None: "none"}
    return {f.name: special.get(f.default, str(f.default)) for f in fields(method.parameters)}


def _options(takers: Sequence[Method[Any]]) -> type:
    """Return a dataclass of optional fields, one for every parameter that a method takes."""
    by_name: dict[str, list[Method[Any]]] = {}
    for method in takers:
        for name in method.takes:
            by_name.setdefault(name, []).append(method)
    made = []
    for name, owners in by_name.items():
        hint = get_type_hints(owners[0].parameters)[name]
        types = [kind for kind in (get_args(hint) or (hint,)) if kind is not type(None)]
        about = Parameter(
            name=list(dict.fromkeys((name, name.lower()))),
            help=_help(name, owners),
            show_default=_show_default({defaults(owner)[name] for owner in owners}),
        )
        kind = Whole if int in types else types[0]
        made.append((name, Annotated[kind | None, about], field(default=None)))
    # Without a module of its own it would be taken for a built-in type, which has no fields.
    return make_dataclass("Parameters", made, frozen=True, namespace={"__module__": __name__})


def _help(name: str, owners: Sequence[Method[Any]]) -> str:
    texts = {owner.name: meanings(owner)[name] for owner in owners}
    if len(set(texts.values())) == 1:
        return next(iter(texts.values()))
    return " ".join(f"For {method}: {text}" for method, text in texts.items())


def _show_default(found: set[str]) -> Callable[[object], str] | bool:
    """Return how `--help` shows the default: not at all if methods differ in it."""
    if len(found) != 1 or "none" in found:
        return False
    (default,) = found
    return lambda _: default


def read_config(command: str, arguments: Sequence[str]) -> tuple[dict[str, Any], Path | None]:
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
        from proselflc.searching.study import StudyDirectory

        StudyDirectory(Path(out)).read()  # a study of another version may have other options
    return path
