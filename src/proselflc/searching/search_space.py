"""The search space: candidates for the optimiser's options and for the methods' parameters.

Candidates are Optuna's distributions: a list of values or a range of numbers.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias, get_args, get_type_hints

from proselflc import methods
from proselflc.errors import InputError, unknown
from proselflc.run.config import Config
from proselflc.training.method import Value
from proselflc.training.recipe import EPOCHS, Recipe
from proselflc.wording import option

if TYPE_CHECKING:
    from optuna.distributions import (
        CategoricalDistribution,
        FloatDistribution,
        IntDistribution,
    )

    from proselflc.training.strategy import RunContext

Candidates: TypeAlias = "CategoricalDistribution | IntDistribution | FloatDistribution"
Chosen: TypeAlias = Mapping[str, Value]  # one value for each name

LONGEST = 1000  # values in a list
LENGTHS = (EPOCHS // 2, EPOCHS, EPOCHS * 2)  # epochs
RATES = (1 / 3, 1.0, 3.0)  # times the default learning rate of the model

_RECIPE = (
    *("epochs", "steps", "batch_size", "optimizer", "lr", "momentum", "weight_decay"),
    *("schedule", "warmup", "clip", "ema"),
)


@dataclass(frozen=True)
class Space:
    """The candidates of a search."""

    recipe: Mapping[str, Candidates]  # for Γ and the optimiser's options, for all methods
    methods: Mapping[str, Mapping[str, Candidates]]  # for the parameters of each

    def words(self) -> list[str]:
        """Return the space as `read` takes it."""
        every = {"": self.recipe} | {f"{method}.": own for method, own in self.methods.items()}
        return [
            f"{prefix}{name}={_format(candidates)}"
            for prefix, space in every.items()
            for name, candidates in space.items()
        ]


def is_range(candidates: Candidates) -> bool:
    """Return whether candidates are a range of numbers rather than a list of values."""
    return not hasattr(candidates, "choices")


def corners(candidates: Candidates) -> tuple[Value, ...]:
    """Return a list's values or a range's ends, which are valid only if all candidates are."""
    known = vars(candidates)
    return (known["low"], known["high"]) if is_range(candidates) else tuple(known["choices"])


def _format(candidates: Candidates) -> str:
    values = map(str, corners(candidates))
    if not is_range(candidates):
        return ",".join(values)
    return "..".join(values) + (":log" if vars(candidates)["log"] else "")


def grid(space: Mapping[str, Candidates]) -> list[dict[str, Value]] | None:
    """Return every combination, the last name changing first, or None if there is a range.

    An empty space has one combination.
    """
    if any(map(is_range, space.values())):
        return None
    values = map(corners, space.values())
    return [dict(zip(space, chosen, strict=True)) for chosen in itertools.product(*values)]


def read(words: Sequence[str], names: Sequence[str], asked: Config, resolved: Config) -> Space:
    """Return the search space that the words describe, completed by defaults.

    A word is NAME=VALUE,VALUE…, NAME=LOW..HIGH or NAME=LOW..HIGH:log; a parameter applies to
    all methods that take it, METHOD.NAME to one. By default, Γ and the learning rate are
    searched unless the user has fixed them in `asked`, and for each method the parameters of
    its grid that are not fixed. `resolved` has the defaults of the model filled in.
    """
    from optuna.distributions import CategoricalDistribution

    for name in names:
        methods.resolved(name, _own(name, asked.parameters))
    recipe: dict[str, Candidates] = {}
    own: dict[str, dict[str, Candidates]] = {name: {} for name in names}
    for word in words:
        name, _, text = (part.strip() for part in word.partition("="))
        method, _, parameter = name.rpartition(".")
        parameter = parameter.replace("-", "_")
        if not text:
            raise _invalid(word, "has no values", fix="write it like lr=0.01,0.1")
        if not method and parameter in _RECIPE:
            hint = get_type_hints(Recipe)[parameter]
            recipe[parameter] = _candidates(parameter, text, hint, word)
            continue
        asked_of = {taker: _searchable(taker) for taker in names if method in ("", taker)}
        takers = [taker for taker, takes in asked_of.items() if parameter in takes]
        if not takers:
            prefix = f"{method}." if method else ""
            own_names = [prefix + known for takes in asked_of.values() for known in takes]
            known = dict.fromkeys([*(() if method else _RECIPE), *own_names])
            raise _invalid(word, unknown("name", name, known))
        for taker in takers:
            hint = get_type_hints(methods.find(taker).parameters)[parameter]
            own[taker][parameter] = _candidates(parameter, text, hint, word)
    if "epochs" in recipe and "steps" in recipe:
        raise InputError(
            f"{option('space')} has both epochs and steps", field="space", fix="search one of them"
        )
    defaults: dict[str, Sequence[Value]] = {}
    if asked.recipe.epochs is None and asked.recipe.steps is None:
        defaults["epochs"] = LENGTHS
    if asked.recipe.lr is None:
        assert resolved.recipe.lr is not None
        defaults["lr"] = [float(f"{resolved.recipe.lr * rate:.2g}") for rate in RATES]
    for space, values in [(recipe, defaults)] + [
        (own[name], {k: v for k, v in methods.find(name).grid.items() if k not in asked.parameters})
        for name in names
    ]:
        if not space:
            space |= {k: CategoricalDistribution(v) for k, v in values.items()}
    return Space(recipe, own)


def applied(config: Config, method: str, recipe: Chosen, parameters: Chosen) -> Config:
    """Return a config with a method and the chosen values, without parameters it does not take."""
    changes: dict[str, Any] = dict(recipe)
    for length, other in (("epochs", "steps"), ("steps", "epochs")):
        if length in recipe:
            changes[other] = None
    own = {**_own(method, config.parameters), **parameters}
    return replace(
        config,
        method=method,
        parameters=methods.resolved(method, own).given(),
        recipe=replace(config.recipe, **changes),
    )


def _own(method: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters that a method takes."""
    takes = methods.find(method).takes
    return {name: value for name, value in parameters.items() if name in takes}


def _searchable(method: str) -> list[str]:
    found = methods.find(method)
    return [name for name in found.takes if name not in found.paths]


def _candidates(name: str, text: str, hint: Any, word: str) -> Candidates:
    """Return the candidates that a text describes, for a parameter with this type hint."""
    from optuna.distributions import (
        CategoricalDistribution,
        FloatDistribution,
        IntDistribution,
    )

    types = [kind for kind in (get_args(hint) or (hint,)) if kind is not type(None)]
    flat = [part for kind in types for part in get_args(kind) or (kind,)]
    kind = next((number for number in (int, float) if number in flat), str)
    if kind is not str and ".." in text:
        ends, _, scale = text.partition(":")
        low, high = (_number(end.strip(), kind, word) for end in ends.split("..", 1))
        if low >= high or scale not in ("", "log") or (scale == "log" and low <= 0):
            raise _invalid(
                word,
                f"a range is written like {name}=0.01..1 or {name}=0.01..1:log, with the lower end "
                "first, which must be above 0 for log",
            )
        if kind is int:
            return IntDistribution(int(low), int(high), log=bool(scale))
        return FloatDistribution(low, high, log=bool(scale))
    parts = [part.strip() for part in text.split(",")]
    if len(parts) > LONGEST or len(set(parts)) < len(parts) or not all(parts):
        raise _invalid(
            word[:80], f"must have distinct values separated by commas, at most {LONGEST}"
        )
    if kind is not str:
        return CategoricalDistribution([_number(part, kind, word) for part in parts])
    names = [value for value in flat if isinstance(value, str)]  # of a Literal
    for part in parts if names else ():
        if part not in names:
            raise _invalid(word, unknown("value", part, names))
    return CategoricalDistribution(parts)


def _number(part: str, kind: type, word: str) -> int | float:
    try:
        value: int | float = kind(part)
    except ValueError:
        what = "a whole number" if kind is int else "a number"
        raise _invalid(word, f"{part} is not {what}") from None
    if not math.isfinite(value):
        raise _invalid(word, f"{part} is not a finite number")
    return value


def _invalid(word: str, reason: str, *, fix: str | None = None) -> InputError:
    return InputError(f"{option('space', word)}: {reason}", field="space", fix=fix)


def check(space: Space, config: Config, context: RunContext) -> None:
    """Refuse values that a recipe or a method does not accept, before any training.

    Each method is checked with the shortest training that may be chosen.
    """
    from proselflc.training.strategy import spans

    shortest: dict[str, Value] = {}
    for name, candidates in space.recipe.items():
        for value in corners(candidates):
            applied(config, "cce", {name: value}, {})
        if name in ("epochs", "steps"):
            shortest[name] = min(map(int, corners(candidates)))
    recipe = applied(config, "cce", shortest, {}).recipe
    context = replace(context, total_steps=recipe.total_steps(context.batches))
    for method, own_space in space.methods.items():
        values = [{name: one} for name, found in own_space.items() for one in corners(found)]
        for chosen in ({}, *values):
            own = methods.resolved(method, applied(config, method, {}, chosen).parameters)
            stages = methods.strategy(method, own, context).stages
            spans(stages, context.total_steps, context.batches)
