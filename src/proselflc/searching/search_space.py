"""What a search may choose: values or ranges of the optimiser's options and the methods' own."""

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

if TYPE_CHECKING:
    from proselflc.training.strategy import RunContext

Chosen: TypeAlias = Mapping[str, Value]  # a value for every name of a space

LONGEST = 1000  # values that are tried one after the other
LENGTHS = (EPOCHS // 2, EPOCHS, EPOCHS * 2)  # epochs
RATES = (1 / 3, 1.0, 3.0)  # times the learning rate that suits the model

_RECIPE = (
    *("epochs", "steps", "batch_size", "optimizer", "lr", "momentum", "weight_decay"),
    *("schedule", "warmup", "clip", "ema"),
)


@dataclass(frozen=True)
class Values:
    """A few values, all of which may be tried."""

    values: tuple[Value, ...]

    def __str__(self) -> str:
        return ",".join(map(str, self.values))

    def corners(self) -> tuple[Value, ...]:
        """Values that all must be good for all of it to be."""
        return self.values


@dataclass(frozen=True)
class Range:
    """Any number from `low` to `high`, whole or not, by its size or by its logarithm."""

    low: float
    high: float
    is_whole: bool
    is_log: bool = False

    def __str__(self) -> str:
        return f"{self.low}..{self.high}{':log' if self.is_log else ''}"

    def corners(self) -> tuple[Value, ...]:
        return self.low, self.high


Choice: TypeAlias = Values | Range


@dataclass(frozen=True)
class Space:
    """What may be chosen.

    Attributes:
        recipe: Γ and the optimiser's options, for all methods.
        methods: of every method its own parameters.
    """

    recipe: Mapping[str, Choice]
    methods: Mapping[str, Mapping[str, Choice]]

    def words(self) -> list[str]:
        """As `--space` takes it."""
        own = [
            f"{method}.{name}={choice}"
            for method, choices in self.methods.items()
            for name, choice in choices.items()
        ]
        return [*(f"{name}={choice}" for name, choice in self.recipe.items()), *own]


def is_grid(choices: Mapping[str, Choice]) -> bool:
    """Whether all that may be chosen can be tried."""
    return all(isinstance(choice, Values) for choice in choices.values())


def grid(choices: Mapping[str, Choice]) -> Iterator[dict[str, Value]]:
    """Every combination, the last name changing first; one empty one of nothing."""
    values = [choice.corners() for choice in choices.values()]
    for combination in itertools.product(*values):
        yield dict(zip(choices, combination, strict=True))


def read(words: Sequence[str], names: Sequence[str], asked: Config, resolved: Config) -> Space:
    """What may be chosen, from `--space` and, where that says nothing, by default.

    By default Γ and the learning rate are searched where the user has fixed neither, and of every
    method the parameters of its grid that are not fixed.

    Args:
        words: NAME=VALUE,VALUE…, NAME=LOW..HIGH or NAME=LOW..HIGH:log each; a parameter is of all
            methods that take it, and METHOD.NAME of one.
        names: of the methods.
        asked: what the user has fixed.
        resolved: with the defaults of its model filled in.

    Raises:
        InputError: a name is unknown, or a value is none for it.
    """
    for name in names:
        methods.resolved(name, _own(name, asked.parameters))
    recipe: dict[str, Choice] = {}
    own: dict[str, dict[str, Choice]] = {name: {} for name in names}
    for word in words:
        name, _, text = (part.strip() for part in word.partition("="))
        method, _, parameter = name.rpartition(".")
        parameter = parameter.replace("-", "_")
        if not text:
            raise InputError(f"--space {word} says no values: write it like lr=0.01,0.1")
        if not method and parameter in _RECIPE:
            recipe[parameter] = _choice(parameter, text, get_type_hints(Recipe)[parameter], word)
            continue
        takers = [one for one in names if parameter in _takes(one) and method in ("", one)]
        if not takers:
            known = [*(one for one in _RECIPE if not method), *_known_parameters(names, method)]
            raise InputError(f"--space {word}: {unknown('name', name, known)}")
        for one in takers:
            hint = get_type_hints(methods.find(one).parameters)[parameter]
            own[one][parameter] = _choice(parameter, text, hint, word)
    if "epochs" in recipe and "steps" in recipe:
        raise InputError("--space has both epochs and steps: search one of them")
    if not recipe:
        recipe |= _default_recipe(asked, resolved)
    for one in names:
        own[one] = own[one] or _default_parameters(one, asked.parameters)
    return Space(recipe, own)


def applied(config: Config, method: str, recipe: Chosen, parameters: Chosen) -> Config:
    """A config with a method, and with what was chosen in place of what it says.

    Args:
        config: resolved but for the parameters, which may be of other methods.
        method: its name.
        recipe, parameters: what was chosen.

    Raises:
        InputError: a value is not possible.
    """
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
    """Return those parameters that a method takes."""
    takes = methods.find(method).takes
    return {name: value for name, value in parameters.items() if name in takes}


def _takes(method: str) -> list[str]:
    found = methods.find(method)
    return [name for name in found.takes if name not in found.paths]


def _known_parameters(names: Sequence[str], method: str) -> list[str]:
    prefix = f"{method}." if method else ""
    takers = [one for one in names if method in ("", one)]
    return list(dict.fromkeys(prefix + name for one in takers for name in _takes(one)))


def _default_recipe(asked: Config, resolved: Config) -> dict[str, Choice]:
    found: dict[str, Choice] = {}
    if asked.recipe.epochs is None and asked.recipe.steps is None:
        found["epochs"] = Values(LENGTHS)
    if asked.recipe.lr is None:
        assert resolved.recipe.lr is not None
        found["lr"] = Values(tuple(float(f"{resolved.recipe.lr * one:.2g}") for one in RATES))
    return found


def _default_parameters(method: str, fixed: Mapping[str, Any]) -> dict[str, Choice]:
    grid = methods.find(method).grid
    return {name: Values(values) for name, values in grid.items() if name not in fixed}


def _choice(name: str, text: str, hint: Any, word: str) -> Choice:
    """What stands behind the equals sign."""
    types = [one for one in (get_args(hint) or (hint,)) if one is not type(None)]
    kind = next((one for one in (int, float) if one in types), str)
    if any(get_args(one) for one in types):  # an optional whole number, or names to choose from
        flat = [part for one in types for part in get_args(one)]
        kind = int if int in flat else str
        if kind is str:
            return Values(tuple(_named(part, flat, word) for part in _parts(text, word)))
    if kind is not str and ".." in text:
        return _range(name, text, kind, word)
    return Values(tuple(_number(part, kind, word) for part in _parts(text, word)))


def _parts(text: str, word: str) -> list[str]:
    parts = [part.strip() for part in text.split(",")]
    if len(parts) > LONGEST or len(set(parts)) < len(parts) or not all(parts):
        raise InputError(
            f"--space {word[:80]} must have distinct values with commas between them, at most "
            f"{LONGEST}"
        )
    return parts


def _named(part: str, known: Sequence[str], word: str) -> str:
    if part not in known:
        raise InputError(f"--space {word}: {unknown('value', part, known)}")
    return part


def _number(part: str, kind: type, word: str) -> Value:
    if kind is str:
        return part
    try:
        value: int | float = kind(part)
    except ValueError:
        what = "a whole number" if kind is int else "a number"
        raise InputError(f"--space {word}: {part} is not {what}") from None
    if not math.isfinite(value):
        raise InputError(f"--space {word}: {part} is not a finite number")
    return value


def _range(name: str, text: str, kind: type, word: str) -> Range:
    ends, _, scale = text.partition(":")
    low, high = (_number(end.strip(), kind, word) for end in ends.split("..", 1))
    assert not isinstance(low, str)
    assert not isinstance(high, str)
    if low >= high or scale not in ("", "log") or (scale == "log" and low <= 0):
        raise InputError(
            f"--space {word}: a range is written like {name}=0.01..1 or {name}=0.01..1:log, its "
            "lower end first, which for log must be above 0"
        )
    return Range(low, high, kind is int, scale == "log")


def check(space: Space, config: Config, context: RunContext) -> None:
    """Refuse values that a recipe or a method refuses, before anything is trained.

    A method must be able to do with the shortest training that may be chosen.

    Args:
        space: to look at.
        config: resolved but for the parameters.
        context: that the methods will be in, but for Γ.

    Raises:
        InputError: there is one.
    """
    from proselflc.training.strategy import spans

    for name, choice in space.recipe.items():
        for value in choice.corners():
            applied(config, "cce", {name: value}, {})
    lengths = {
        name: min(map(int, choice.corners()))
        for name, choice in space.recipe.items()
        if name in ("epochs", "steps")
    }
    shortest = applied(config, "cce", lengths, {}).recipe
    context = replace(context, total_steps=shortest.total_steps(context.batches))
    for method, choices in space.methods.items():
        values = [{name: value} for name, choice in choices.items() for value in choice.corners()]
        for chosen in ({}, *values):
            own = methods.resolved(method, applied(config, method, {}, chosen).parameters)
            stages = methods.strategy(method, own, context).stages
            spans(stages, context.total_steps, context.batches)
