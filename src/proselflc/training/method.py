"""A method: what there is to say about it, its own parameters, and the strategy that they make.

Every file in `methods/` has one, or several that share a strategy. Nothing here imports torch, so
that the command line can show a method's parameters at once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, get_args, get_type_hints

from proselflc.errors import InputError
from proselflc.options import make_plain

if TYPE_CHECKING:
    from proselflc.correction.criterion import Criterion
    from proselflc.correction.target import Target
    from proselflc.training.strategy import RunContext, Strategy

Value: TypeAlias = str | int | float  # what a search chooses from
T = TypeVar("T")


def checked(default: T, check: Callable[[Any, str], T]) -> T:
    """Return a field of parameters that has a default and refuses what it cannot be.

    Args:
        default: the value where none is given.
        check: returns the value as it is to be kept; it takes the field's name too and raises a
            `ValueError` or a `TypeError` that says what was expected.
    """
    return field(default=default, metadata={"check": check})


@dataclass(frozen=True)
class Parameters:
    """The parameters of a method; a method without any takes this class as it is.

    A subclass has a field for every parameter, with its default and its check, and says in its
    docstring what each means: `--help` shows that. A parameter without a default must be given;
    one that is None by default need not be. Fields that are paths also take strings.
    """

    def __post_init__(self) -> None:
        make_plain(self)
        for name in paths(type(self)):
            value = getattr(self, name)
            if value is not None and not isinstance(value, str | Path):
                raise TypeError(f"{name} must be a path, got {type(value).__name__}")
            object.__setattr__(self, name, None if value is None else Path(value))
        for one in fields(self):
            check, value = one.metadata.get("check"), getattr(self, one.name)
            if check is not None and value is not None:
                object.__setattr__(self, one.name, check(value, one.name))

    def given(self) -> dict[str, Any]:
        """Return the parameters that have a value, by name."""
        return {name: value for name, value in asdict(self).items() if value is not None}


P = TypeVar("P", bound=Parameters)


@dataclass(frozen=True, kw_only=True)
class Method(Generic[P]):
    """A method, which is a criterion and nothing else, or a strategy.

    Attributes:
        title: its name in the literature.
        loss: what it minimises, in the paper's letters.
        where: the place in the paper, or how the method is related to it.
        entropy: what it does to low-entropy predictions, compared with cross entropy.
        semantic_class: where the class of its target can come from.
        when: when to use it, in a sentence that agrees with docs/results.md and docs/methods.md.
        needs: what the user has to give beside the data, in a few words.
        parameters: the class of its parameters.
        grid: the values that a search tries by default, by parameter.
        criterion: makes the criterion from the parameters and Γ, for a method that is nothing else.
        strategy: makes the strategy, for a method that does more.
        based_on: the public criterion that a strategy builds on.
        target: returns the target that a strategy teaches, if it is one of the algebra's.
        learns_trusted: whether trusted examples are for learning and not for validation.
        name: as `--method` takes it; `proselflc.methods` fills it in.
    """

    title: str
    loss: str
    where: str
    entropy: str = "–"
    semantic_class: str = "annotated"
    when: str
    needs: str = "–"
    parameters: type[P]
    grid: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)
    criterion: Callable[[P, int], Criterion] | None = None
    strategy: Callable[[P, RunContext], Strategy] | None = None
    based_on: str = ""
    target: Callable[[], Target] | None = None
    learns_trusted: bool = False
    name: str = ""

    def __post_init__(self) -> None:
        assert (self.criterion is None) != (self.strategy is None), "a method is one of the two"

    @property
    def weighs(self) -> bool:
        """Whether it can take sample weights, which a method that is a criterion can."""
        return self.criterion is not None

    @property
    def paths(self) -> tuple[str, ...]:
        """The parameters that are paths."""
        return paths(self.parameters)

    @property
    def takes(self) -> tuple[str, ...]:
        """The names of its parameters."""
        return tuple(one.name for one in fields(self.parameters))

    @property
    def criterion_name(self) -> str:
        """The class in `proselflc` that it is, or builds on."""
        if self.criterion is None:
            return self.based_on
        return type(self.criterion(self.parameters(), 1)).__name__

    def default_target(self) -> Target | None:
        """Return the target of the algebra that it teaches by default, or None if it is no such."""
        from proselflc.correction.target import Target

        if self.criterion is None:
            return None if self.target is None else self.target()
        found = self.criterion(self.parameters(), 1).method
        return found if isinstance(found, Target) else None

    def resolved(self, given: Mapping[str, Any]) -> P:
        """Return all its parameters: those given, checked, and defaults for the others.

        Paths become absolute, for a run is resumed, audited by folds or repeated from any folder.

        Args:
            given: the user's values by name; None stands for one that is not given.

        Raises:
            InputError: a parameter is unknown, is missing or has a value that it cannot have.
        """
        known = {name: value for name, value in given.items() if value is not None}
        for name in known:
            if name not in self.takes:
                raise InputError(not_taken(self, name))
        for one in fields(self.parameters):
            if one.default is MISSING and one.name not in known:
                what = f", {self.needs}" if self.needs != "–" else ""
                raise InputError(f"method {self.name} needs --method.{one.name}{what}: give it")
        try:
            made = self.parameters(**known)
            absolute = {k: os.path.abspath(v) for k, v in made.given().items() if k in self.paths}
            return self.parameters(**{**made.given(), **absolute})
        except InputError:
            raise
        except (ValueError, TypeError) as error:
            raise InputError(f"method {self.name}: {error}") from None

    def make(self, parameters: P, context: RunContext) -> Strategy:
        """Return the strategy.

        Raises:
            InputError: something that the method needs is not there, or cannot be used.
        """
        from proselflc.training.strategy import Strategy

        try:
            if self.strategy is not None:
                return self.strategy(parameters, context)
            assert self.criterion is not None
            criterion = self.criterion(parameters, context.total_steps)
            return Strategy(criterion, context.sample_weight)
        except InputError:
            raise
        except (ValueError, TypeError) as error:
            raise InputError(f"method {self.name}: {error}") from None


def paths(parameters: type[Parameters]) -> tuple[str, ...]:
    """Return the names of the parameters that are paths."""
    hints = get_type_hints(parameters)
    return tuple(name for name, hint in hints.items() if Path in (hint, *get_args(hint)))


def not_taken(method: Method[Any], parameter: str) -> str:
    """Return the message that a method does not take a parameter, and which it does."""
    takes = method.takes
    close = get_close_matches(str(parameter), takes, n=1)
    hint = f"; did you mean --method.{close[0]}? It" if close else ": it"
    listed = ", ".join(f"--method.{name}" for name in takes) or "no parameters"
    return f"method {method.name} has no --method.{parameter}{hint} takes {listed}"
