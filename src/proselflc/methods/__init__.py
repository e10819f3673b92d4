"""All methods: a file here is the method of its name, whose object is `METHOD`.

Methods that share a strategy share a file and are listed in `FAMILIES`; any other file need not be
listed. A file is imported when its method is first used, since most need torch.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

from proselflc.errors import InputError, invalid_option, unknown
from proselflc.training.method import Method, Parameters

if TYPE_CHECKING:
    from proselflc.training.strategy import RunContext, Strategy

# By file, the methods in it and the names of their objects.
FAMILIES = {
    "dynamic_bootstrapping": {"m_dyr_s": "SOFT", "m_dyr_h": "HARD", "md_dyr_sh": "DYNAMIC"},
    "gce": {"gce": "METHOD", "gce_truncated": "TRUNCATED"},
    "joint": {"joint_soft": "SOFT", "joint_hard": "HARD"},
    "loss_correction": {"forward": "FORWARD", "backward": "BACKWARD"},
    "proselflc": {"proselflc": "METHOD", "proselflc_lt": "LOW_TEMPERATURE"},
    "pseudo_label": {"pseudo_label": "METHOD", "pseudo_label_ramped": "RAMPED"},
}
COSTS = "method_cost.json"  # what benchmarks/method_cost.py measured


def names() -> list[str]:
    """Return the names of all methods, in alphabetical order; nothing is imported."""
    return sorted(_places())


def find(name: str) -> Method[Any]:
    """Return the method of a name; refuse an unknown one."""
    if not isinstance(name, str):
        got = type(name).__name__
        raise invalid_option("method", f"must be a name such as proselflc, got {got}")
    places = _places()
    if name not in places:
        raise InputError(unknown("method", name, places), field="method")
    return _loaded(name, *places[name])


def every() -> dict[str, Method[Any]]:
    """Return all methods by name, in the order of the paper; those it does not have come last."""
    found = [find(name) for name in names()]
    # "Eq. 2" … "Section 1" … "Table 6" come before "beside …" and "later …", which are lower case.
    return {one.name: one for one in sorted(found, key=lambda one: (one.where, one.name))}


def titled(title: str) -> Method[Any]:
    """Return the method with a title, as in the tables of the paper."""
    (found,) = (one for one in every().values() if one.title == title)
    return found


def resolved(name: str, given: Mapping[str, Any]) -> Parameters:
    """Return all parameters of a method; see `Method.resolved`."""
    made: Parameters = find(name).resolved(given)
    return made


def weighs(name: object) -> bool:
    """Return whether there is a method of that name and it can use sample weights."""
    return isinstance(name, str) and name in _places() and find(name).weighs


def strategy(name: str, parameters: Parameters, context: RunContext) -> Strategy:
    """Return the strategy of a method whose parameters are resolved."""
    if context.sample_weight is not None and not weighs(name):
        raise InputError(
            f"method {name} cannot weigh examples",
            field="method",
            fix="leave the sample weights out, or choose one of "
            f"{', '.join(filter(weighs, names()))}",
        )
    return find(name).make(parameters, context)


def costs() -> dict[str, float]:
    """Return the cost of a step of each method, in steps of cross entropy.

    A wheel has the benchmark's result beside this file, a checkout where the benchmark wrote it;
    without either the result is empty.
    """
    here = Path(__file__)
    for path in (here.with_name(COSTS), here.parents[3] / "benchmarks" / "results" / COSTS):
        if path.is_file():
            measured = json.loads(path.read_text(encoding="utf-8"))["found"]
            return {name: one["times_cross_entropy"] for name, one in measured.items()}
    return {}


def _places() -> dict[str, tuple[str, str]]:
    """Return the file of every method and the name of its object there, by the method's name."""
    found: dict[str, tuple[str, str]] = {}
    for module in (one.name for one in iter_modules(__path__)):
        members = FAMILIES.get(module, {module: "METHOD"})
        found |= {name: (module, attribute) for name, attribute in members.items()}
    return found


@functools.cache
def _loaded(name: str, module: str, attribute: str) -> Method[Any]:
    from dataclasses import replace

    method: Method[Any] = getattr(import_module(f"{__name__}.{module}"), attribute)
    return replace(method, name=name)
