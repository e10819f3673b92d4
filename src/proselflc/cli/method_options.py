"""The options `--method.NAME`, made from the parameters of the chosen methods.

Only the files of these methods are imported, so that `train --help` need not wait for torch.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import MISSING, field, fields, make_dataclass, replace
from typing import Annotated, Any, TypeVar, get_args, get_type_hints

from cyclopts import Group, Parameter

from proselflc.options import Whole
from proselflc.run.config import check_taken
from proselflc.training.method import Method

R = TypeVar("R")
_FIELD = "parameters"  # the keyword argument of a command that holds these options


def with_parameters(command: Callable[..., R], takers: Sequence[Method[Any]]) -> Callable[..., R]:
    """Return a command that also takes the parameters of methods and puts them into its config."""
    signature = inspect.signature(command)

    @functools.wraps(command)
    def extended(*args: Any, **kwargs: Any) -> R:
        given = values(kwargs.pop(_FIELD, None))
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


def values(options: object | None) -> dict[str, Any]:
    """Return the parameters that were given, by name."""
    return {} if options is None else {k: v for k, v in vars(options).items() if v is not None}


def check(arguments: Sequence[str], takers: Sequence[Method[Any]]) -> None:
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
