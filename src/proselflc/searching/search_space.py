"""The search space: candidates for the optimiser's options and for the methods' parameters."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias, get_args, get_type_hints

from proselflc import methods
from proselflc.errors import InputError, unknown
from proselflc.run.config import Config
from proselflc.training.method import Value
from proselflc.training.recipe import EPOCHS, Recipe
from proselflc.wording import option

if TYPE_CHECKING:
    from proselflc.training.strategy import RunContext

Chosen: TypeAlias = Mapping[str, Value]  # one value for each name

LONGEST = 1000  # values in a list
LENGTHS = (EPOCHS // 2, EPOCHS, EPOCHS * 2)  # epochs
RATES = (1 / 3, 1.0, 3.0)  # times the default learning rate of the model

_RECIPE = (
    *("epochs", "steps", "batch_size", "optimizer", "lr", "momentum", "weight_decay"),
    *("schedule", "warmup", "clip", "ema"),
)


@dataclass(frozen=True)
class Values:
    """A list of values."""

    values: tuple[Value, ...]

    def __str__(self) -> str:
        return ",".join(map(str, self.values))

    def corners(self) -> tuple[Value, ...]:
        """Return values that are valid only if all candidates are."""
        return self.values


@dataclass(frozen=True)
class Range:
    """The numbers from `low` to `high`, searched on a linear or a logarithmic scale."""

    low: float
    high: float
    is_whole: bool
    is_log: bool = False

    def __str__(self) -> str:
        return f"{self.low}..{self.high}{':log' if self.is_log else ''}"

    def corners(self) -> tuple[Value, ...]:
        """Return both ends."""
        return self.low, self.high


Candidates: TypeAlias = Values | Range


@dataclass(frozen=True)
class Space:
    """The candidates of a search."""

    recipe: Mapping[str, Candidates]  # for Γ and the optimiser's options, for all methods
    methods: Mapping[str, Mapping[str, Candidates]]  # for the parameters of each

    def words(self) -> list[str]:
        """Return the space as `read` takes it."""
        own = [
            f"{method}.{name}={candidates}"
            for method, space in self.methods.items()
            for name, candidates in space.items()
        ]
        return [*(f"{name}={candidates}" for name, candidates in self.recipe.items()), *own]


def is_grid(space: Mapping[str, Candidates]) -> bool:
    """Return whether all candidates are lists, so that every combination can be tried."""
    return all(isinstance(candidates, Values) for candidates in space.values())


def grid(space: Mapping[str, Candidates]) -> Iterator[dict[str, Value]]:
    """Return every combination, the last name changing first; an empty space has one."""
    values = [candidates.corners() for candidates in space.values()]
    for combination in itertools.product(*values):
        yield dict(zip(space, combination, strict=True))


def read(words: Sequence[str], names: Sequence[str], asked: Config, resolved: Config) -> Space:
    """Return the search space that the words describe, completed by defaults.

    A word is NAME=VALUE,VALUE…, NAME=LOW..HIGH or NAME=LOW..HIGH:log; a parameter applies to
    all methods that take it, METHOD.NAME to one. By default, Γ and the learning rate are
    searched unless the user has fixed them in `asked`, and for each method the parameters of
    its grid that are not fixed. `resolved` has the defaults of the model filled in.
    """
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
            recipe[parameter] = _candidates(
                parameter, text, get_type_hints(Recipe)[parameter], word
            )
            continue
        takers = [taker for taker in names if parameter in _takes(taker) and method in ("", taker)]
        if not takers:
            known = [*(() if method else _RECIPE), *_known_parameters(names, method)]
            raise _invalid(word, unknown("name", name, known))
        for taker in takers:
            hint = get_type_hints(methods.find(taker).parameters)[parameter]
            own[taker][parameter] = _candidates(parameter, text, hint, word)
    if "epochs" in recipe and "steps" in recipe:
        raise InputError(
            f"{option('space')} has both epochs and steps", field="space", fix="search one of them"
        )
    if not recipe:
        recipe |= _default_recipe(asked, resolved)
    for name in names:
        grid = methods.find(name).grid
        own[name] = own[name] or {
            k: Values(v) for k, v in grid.items() if k not in asked.parameters
        }
    return Space(recipe, own)


def applied(config: Config, method: str, recipe: Chosen, parameters: Chosen) -> Config:
    """Return a config with a method and the chosen values, without parameters it does not take."""
    changes: dict[str, Any] = dict(recipe)
    if "epochs" in changes:
        changes["steps"] = None
    elif "steps" in changes:
        changes["epochs"] = None
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


def _takes(method: str) -> list[str]:
    found = methods.find(method)
    return [name for name in found.takes if name not in found.paths]


def _known_parameters(names: Sequence[str], method: str) -> list[str]:
    prefix = f"{method}." if method else ""
    takers = [taker for taker in names if method in ("", taker)]
    return list(dict.fromkeys(prefix + name for taker in takers for name in _takes(taker)))


def _default_recipe(asked: Config, resolved: Config) -> dict[str, Candidates]:
    found: dict[str, Candidates] = {}
    if asked.recipe.epochs is None and asked.recipe.steps is None:
        found["epochs"] = Values(LENGTHS)
    if asked.recipe.lr is None:
        assert resolved.recipe.lr is not None
        found["lr"] = Values(tuple(float(f"{resolved.recipe.lr * rate:.2g}") for rate in RATES))
    return found


def _candidates(name: str, text: str, hint: Any, word: str) -> Candidates:
    """Return the candidates that a text describes, for a parameter with this type hint."""
    types = [kind for kind in (get_args(hint) or (hint,)) if kind is not type(None)]
    kind = next((number for number in (int, float) if number in types), str)
    if any(map(get_args, types)):  # an optional whole number, or a list of names
        flat = [part for kind in types for part in get_args(kind)]
        kind = int if int in flat else str
        if kind is str:
            return Values(tuple(_named(part, flat, word) for part in _parts(text, word)))
    if kind is not str and ".." in text:
        return _range(name, text, kind, word)
    return Values(tuple(_number(part, kind, word) for part in _parts(text, word)))


def _parts(text: str, word: str) -> list[str]:
    parts = [part.strip() for part in text.split(",")]
    if len(parts) > LONGEST or len(set(parts)) < len(parts) or not all(parts):
        raise _invalid(
            word[:80], f"must have distinct values separated by commas, at most {LONGEST}"
        )
    return parts


def _named(part: str, known: Sequence[str], word: str) -> str:
    if part not in known:
        raise _invalid(word, unknown("value", part, known))
    return part


def _number(part: str, kind: type, word: str) -> Value:
    if kind is str:
        return part
    try:
        value: int | float = kind(part)
    except ValueError:
        what = "a whole number" if kind is int else "a number"
        raise _invalid(word, f"{part} is not {what}") from None
    if not math.isfinite(value):
        raise _invalid(word, f"{part} is not a finite number")
    return value


def _range(name: str, text: str, kind: type, word: str) -> Range:
    ends, _, scale = text.partition(":")
    low, high = (_number(end.strip(), kind, word) for end in ends.split("..", 1))
    assert not isinstance(low, str)
    assert not isinstance(high, str)
    if low >= high or scale not in ("", "log") or (scale == "log" and low <= 0):
        raise _invalid(
            word,
            f"a range is written like {name}=0.01..1 or {name}=0.01..1:log, with the lower end "
            "first, which must be above 0 for log",
        )
    return Range(low, high, kind is int, scale == "log")


def _invalid(word: str, reason: str, *, fix: str | None = None) -> InputError:
    return InputError(f"{option('space', word)}: {reason}", field="space", fix=fix)


def check(space: Space, config: Config, context: RunContext) -> None:
    """Refuse values that a recipe or a method does not accept, before any training.

    Each method is checked with the shortest training that may be chosen.
    """
    from proselflc.training.strategy import spans

    for name, candidates in space.recipe.items():
        for value in candidates.corners():
            applied(config, "cce", {name: value}, {})
    lengths = {
        name: min(map(int, candidates.corners()))
        for name, candidates in space.recipe.items()
        if name in ("epochs", "steps")
    }
    shortest = applied(config, "cce", lengths, {}).recipe
    context = replace(context, total_steps=shortest.total_steps(context.batches))
    for method, own_space in space.methods.items():
        values = [
            {name: value}
            for name, candidates in own_space.items()
            for value in candidates.corners()
        ]
        for chosen in ({}, *values):
            own = methods.resolved(method, applied(config, method, {}, chosen).parameters)
            stages = methods.strategy(method, own, context).stages
            spans(stages, context.total_steps, context.batches)
