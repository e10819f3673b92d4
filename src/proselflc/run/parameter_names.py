"""Errors and notes in the words of who calls from Python: parameters, not options."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Mapping
from typing import ParamSpec, TypeVar

from proselflc.errors import InputError
from proselflc.terminal.display import Display
from proselflc.training.loop import DivergenceError

P = ParamSpec("P")
R = TypeVar("R")
# An option as a sentence has it, and not two hyphens in a file's name; or a whole command.
_OPTION = re.compile(r"""proselflc train [^,;]*|(?<![^\s("])--([a-z]+(?:-[a-z]+)*)(?:\.(\w+))?""")


def naming_parameters(function: Callable[P, R]) -> Callable[P, R]:
    """A function whose errors say lr where they would say --lr.

    What is below it speaks of options, for most people come from the command line. Options that
    the function has no parameter for are left as they are.
    """
    parameters = inspect.signature(function).parameters

    @functools.wraps(function)
    def named(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except (InputError, DivergenceError) as error:
            error.args = (renamed(str(error), parameters),)
            raise

    return named


class NamingParameters:
    """A display whose notes say lr where they would say --lr.

    Args:
        display: that shows them, and everything else.
        function: whose parameters are named.
    """

    def __init__(self, display: Display, function: Callable[..., object]) -> None:
        self.begin, self.step, self.point = display.begin, display.step, display.point
        self.end = display.end
        self._display = display
        self._parameters = inspect.signature(function).parameters

    def note(self, text: str) -> None:
        self._display.note(renamed(text, self._parameters))


def renamed(message: str, parameters: Mapping[str, inspect.Parameter]) -> str:
    """A message with parameters of a function in place of options.

    >>> def fit(lr: float, method: str, parameters: object, resume: bool = False) -> None: ...
    >>> found = inspect.signature(fit).parameters
    >>> renamed("lower --lr, or pass --resume; --data is no matter", found)
    'lower lr, or pass resume=True; --data is no matter'
    >>> renamed("method proselflc has no --method.epsilon", found)
    'method proselflc has no parameters["epsilon"]'
    >>> renamed("go on with proselflc train --resume, or pass --resume", found)
    'go on with proselflc train --resume, or pass resume=True'
    """

    def name(option: re.Match[str]) -> str:
        one = (option[1] or "").replace("-", "_")  # nothing for a command, which stays
        if one not in parameters:
            return option[0]
        if option[2] is not None:
            return f'parameters["{option[2]}"]'
        return f"{one}=True" if parameters[one].default is False else one

    return _OPTION.sub(name, message)
