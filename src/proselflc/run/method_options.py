"""The options `--method.NAME`, made from the parameters of the methods that were chosen.

Only the files of these methods are imported, so that `train --help` need not wait for torch.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import MISSING, Field, field, fields, make_dataclass, replace
from typing import Annotated, Any, TypeVar, get_args, get_type_hints

from cyclopts import Group, Parameter

from proselflc import methods
from proselflc.errors import InputError
from proselflc.options import Whole
from proselflc.training.method import Method, not_taken

R = TypeVar("R")
_FIELD = "parameters"  # what a command calls these options


def chosen(method: str) -> tuple[Method[Any], ...]:
    """Return the methods that `--method` names, several with commas between them.

    Raises:
        InputError: one is unknown.
    """
    return tuple(methods.find(name.strip()) for name in method.split(","))


def taking(command: Callable[..., R], takers: Sequence[Method[Any]]) -> Callable[..., R]:
    """Return a command that takes the parameters of methods too, and puts them into its config.

    Args:
        command: a function with a keyword argument `options`, a `Config`.
        takers: the methods; an option that several have is there once.
    """
    signature = inspect.signature(command)
    own = _options(takers)

    @functools.wraps(command)
    def taken(*args: Any, **kwargs: Any) -> R:
        given = kwargs.pop(_FIELD, None)
        options = kwargs.get("options", signature.parameters["options"].default)
        return command(*args, **{**kwargs, "options": replace(options, parameters=values(given))})

    group = Group(
        f"Parameters of {', '.join(one.name for one in takers)}",
        help="`--method NAME --help` shows those of another method.",
    )
    hint = Annotated[own, Parameter(name="--method", group=group)]  # type: ignore[valid-type]
    more = inspect.Parameter(_FIELD, inspect.Parameter.KEYWORD_ONLY, default=None)
    taken.__annotations__ = {**command.__annotations__, _FIELD: hint}
    vars(taken)["__signature__"] = signature.replace(
        parameters=[*signature.parameters.values(), more]
    )
    return taken


def values(options: object | None) -> dict[str, Any]:
    """Return the parameters that were given, by name."""
    return {} if options is None else {k: v for k, v in vars(options).items() if v is not None}


def check(arguments: Iterable[str], takers: Sequence[Method[Any]]) -> None:
    """Refuse an option `--method.NAME` that none of the methods takes.

    Raises:
        InputError: there is one.
    """
    for word in arguments:
        if word == "--":
            return
        found = re.match(r"--method\.([^=]+)", word)
        if found is not None:
            refuse_unless_taken(found[1].replace("-", "_"), takers)


def refuse_unless_taken(parameter: str, takers: Sequence[Method[Any]]) -> None:
    """Refuse a parameter that none of the methods takes.

    Raises:
        InputError: none does.
    """
    if any(parameter.lower() in map(str.lower, one.takes) for one in takers):
        return
    if len(takers) == 1:
        raise InputError(not_taken(takers[0], parameter))
    raise InputError(
        f"--method.{parameter} is no parameter of {', '.join(one.name for one in takers)}: leave "
        "it out"
    )


def kinds(takers: Sequence[Method[Any]]) -> dict[str, type]:
    """Return what every parameter of the methods is: a whole number, a number or a string."""
    return {
        name: next((kind for kind in (int, float) if kind in _types(hint)), str)
        for one in takers
        for name, hint in get_type_hints(one.parameters).items()
    }


def meanings(method: Method[Any]) -> dict[str, str]:
    """Return what the docstring of a method's parameters says of each."""
    text = inspect.cleandoc(method.parameters.__doc__ or "").partition("Attributes:\n")[2]
    found = re.findall(r"^    (\w+): (.*(?:\n        .*)*)", text, re.M)
    return {name: " ".join(said.split()) for name, said in found}


def defaults(method: Method[Any]) -> dict[str, str]:
    """Return the default of every parameter of a method, in words."""
    return {one.name: _default(one) for one in fields(method.parameters)}


def _default(one: Field[Any]) -> str:
    if one.default is MISSING:
        return "must be given"
    return "none" if one.default is None else str(one.default)


def _options(takers: Sequence[Method[Any]]) -> type:
    """Return a dataclass of optional fields, one for every parameter that a method takes."""
    by_name: dict[str, list[Method[Any]]] = {}
    for method in takers:
        for name in method.takes:
            by_name.setdefault(name, []).append(method)
    made = []
    for name, those in by_name.items():
        hint = get_type_hints(those[0].parameters)[name]
        kind = Whole if int in _types(hint) else next(t for t in _types(hint) if t is not None)
        about = Parameter(
            name=list(dict.fromkeys((name, name.lower()))),
            help=_help(name, those),
            show_default=_shown({defaults(one)[name] for one in those}),
        )
        made.append((name, Annotated[kind | None, about], field(default=None)))
    # Without a module of its own it would be taken for a type of Python's, which has no fields.
    return make_dataclass("Parameters", made, frozen=True, namespace={"__module__": __name__})


def _help(name: str, takers: Sequence[Method[Any]]) -> str:
    said = {one.name: meanings(one)[name] for one in takers}
    if len(set(said.values())) == 1:
        return next(iter(said.values()))
    return " ".join(f"For {method}: {text}" for method, text in said.items())


def _shown(found: set[str]) -> Callable[[object], str] | bool:
    """Return how `--help` shows the default, which is not there if methods differ in it."""
    if len(found) != 1 or "none" in found:
        return False
    (said,) = found
    return lambda _: said


def _types(hint: Any) -> tuple[Any, ...]:
    """Return the types that a hint allows; `float | None` allows a number."""
    return tuple(one for one in (get_args(hint) or (hint,)) if one is not type(None))
