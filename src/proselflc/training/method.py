"""A method: its description, its own parameters, and the strategy that they make.

Every file in `methods/` has one, or several that share a strategy. Nothing here imports torch, so
that the command line can show a method's parameters at once.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, get_args, get_type_hints

from proselflc.errors import InputError
from proselflc.options import make_plain
from proselflc.wording import option

if TYPE_CHECKING:
    from proselflc.correction.criterion import Criterion
    from proselflc.correction.target import Target
    from proselflc.training.strategy import RunContext, Strategy

Value: TypeAlias = str | int | float  # what a search chooses from
T = TypeVar("T")


def checked(default: T, check: Callable[[Any, str], T]) -> T:
    """Return a field of parameters that has a default and a check.

    The check takes a value and the field's name and returns the value to keep, or raises a
    `ValueError` or a `TypeError` that says what was expected.
    """
    return field(default=default, metadata={"check": check})


@dataclass(frozen=True)
class Parameters:
    """The parameters of a method; a method without any uses this class as it is.

    A subclass has a field for every parameter, with its default and its check, and a docstring that
    says what each means, which `--help` shows. A parameter without a default must be given; one
    that is None by default need not be. Fields that are paths also take strings.
    """

    def __post_init__(self) -> None:
        make_plain(self)
        for name in paths(type(self)):
            value = getattr(self, name)
            if value is not None and not isinstance(value, str | Path):
                message = f"{name} must be a path, got {type(value).__name__}"
                raise InputError(message, field=f"method.{name}")
            object.__setattr__(self, name, None if value is None else Path(value))
        for one in fields(self):
            check, value = one.metadata.get("check"), getattr(self, one.name)
            if check is not None and value is not None:
                try:
                    object.__setattr__(self, one.name, check(value, one.name))
                except (ValueError, TypeError) as error:
                    raise InputError(str(error), field=f"method.{one.name}") from None

    def given(self) -> dict[str, Any]:
        """Return the parameters that have a value, by name."""
        return {name: value for name, value in asdict(self).items() if value is not None}


P = TypeVar("P", bound=Parameters)


@dataclass(frozen=True, kw_only=True)
class Method(Generic[P]):
    """A method, which is a criterion and nothing else, or a strategy."""

    title: str  # its name in the literature
    loss: str  # what it minimises, in the paper's letters
    where: str  # the place in the paper, or how the method is related to it
    entropy: str = "–"  # what it does to low-entropy predictions, compared with cross entropy
    semantic_class: str = "annotated"  # where the class of its target can come from
    when: str  # when to use it, in a sentence that agrees with docs/results.md and docs/methods.md
    needs: str = "–"  # what the user has to give besides the data, in a few words
    parameters: type[P]
    grid: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)  # tried by a search
    # The name of the public criterion that it is, or that its strategy builds on. Without a
    # strategy, the parameters are its arguments.
    criterion: str
    # Returns the target of the algebra that is taught, where the criterion alone does not say it;
    # without a strategy, that of a plain `Criterion`.
    target: Callable[[P], Target] | None = None
    # Makes the strategy of a method that is more than a criterion, from the run's context and the
    # parameters by name.
    strategy: Callable[..., Strategy] | None = None
    learns_trusted: bool = False  # whether trusted examples are for learning, not for validation
    name: str = ""  # by which a user chooses it; `proselflc.methods` sets it

    @property
    def weighs(self) -> bool:
        """Return whether it can use sample weights, as a method that is a criterion can."""
        return self.strategy is None

    @property
    def paths(self) -> tuple[str, ...]:
        """Return the names of the parameters that are paths."""
        return paths(self.parameters)

    @property
    def takes(self) -> tuple[str, ...]:
        """Return the names of its parameters."""
        return tuple(one.name for one in fields(self.parameters))

    def default_target(self) -> Target | None:
        """Return the target of the algebra that it teaches by default, or None outside of it."""
        from proselflc.correction.target import Target

        if self.target is not None:
            return self.target(self._defaults())
        if self.strategy is not None:
            return None
        found = self.make_criterion(self._defaults(), 1).method
        return found if isinstance(found, Target) else None

    def _defaults(self) -> P:
        """Return the parameters by default; a path that must be given is the current folder."""
        return self.parameters(**{name: Path() for name in _required(self.parameters)})

    def resolved(self, given: Mapping[str, Any]) -> P:
        """Return all its parameters: those given, checked, and defaults for the others.

        Paths become absolute, because a run may be resumed, audited or repeated from any folder.
        A value of None means not given.
        """
        known = {name: value for name, value in given.items() if value is not None}
        for name in known:
            if name not in self.takes:
                raise not_taken(self, name)
        for name in _required(self.parameters):
            if name not in known:
                raise InputError(
                    f"method {self.name} needs {option(f'method.{name}')}, {self.needs}",
                    field=f"method.{name}",
                    fix="give it",
                )
        try:
            made = self.parameters(**known)
            absolute = {k: os.path.abspath(v) for k, v in made.given().items() if k in self.paths}
            return self.parameters(**{**made.given(), **absolute})
        except (ValueError, TypeError) as error:
            field = getattr(error, "field", None)
            raise InputError(f"method {self.name}: {error}", field=field) from None

    def make_criterion(self, parameters: P, total_steps: int) -> Criterion:
        """Return the criterion of a method that is nothing else."""
        from proselflc.correction import criteria
        from proselflc.correction.criterion import Criterion

        if self.target is not None:
            return Criterion(self.target(parameters), total_steps=total_steps)
        kind: Callable[..., Criterion] = getattr(criteria, self.criterion)
        given = asdict(parameters)
        if "total_steps" in inspect.signature(kind).parameters:
            given["total_steps"] = total_steps
        return kind(**given)

    def make(self, parameters: P, context: RunContext) -> Strategy:
        """Return the strategy."""
        from proselflc.training.strategy import Strategy

        try:
            if self.strategy is not None:
                return self.strategy(context, **vars(parameters))
            criterion = self.make_criterion(parameters, context.total_steps)
            return Strategy(criterion, context.sample_weight)
        except InputError:
            raise
        except (ValueError, TypeError) as error:
            raise InputError(f"method {self.name}: {error}") from None


def paths(parameters: type[Parameters]) -> tuple[str, ...]:
    """Return the names of the parameters that are paths."""
    hints = get_type_hints(parameters)
    return tuple(name for name, hint in hints.items() if Path in (hint, *get_args(hint)))


def _required(parameters: type[Parameters]) -> tuple[str, ...]:
    """Return the names of the parameters that have no default."""
    return tuple(one.name for one in fields(parameters) if one.default is MISSING)


def not_taken(method: Method[Any], parameter: str) -> InputError:
    """Return the error that a method does not take a parameter, and which it does."""
    takes = method.takes
    close = get_close_matches(str(parameter), takes, n=1)
    hint = f"; did you mean {option(f'method.{close[0]}')}? It" if close else ": it"
    listed = ", ".join(option(f"method.{name}") for name in takes) or "no parameters"
    field = f"method.{parameter}"
    return InputError(
        f"method {method.name} has no {option(field)}{hint} takes {listed}", field=field
    )
