"""Every type in a public signature is exported by `proselflc`."""

from __future__ import annotations

import ast
import importlib
import inspect
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import proselflc
from proselflc.correction import target, trust

# What is passed around inside the package: `Run` and `Audit` read their files by the first, and
# batches of texts are made of the second. The others list keyword arguments.
INTERNAL = {"RunDirectory", "Bags", "Options", "TargetOptions"}
NOT_CALLED = {"Recording.__init__"}  # `record` makes it


def signatures() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Every public function, constructor and method of ours, by its name."""
    names = [(name, getattr(proselflc, name)) for name in proselflc.__all__]
    functional = dict(names)["functional"]
    names += [(f"functional.{name}", getattr(functional, name)) for name in functional.__all__]
    for name, one in names:
        if inspect.isclass(one):
            for method, function in inspect.getmembers(one, inspect.isroutine):
                public = not method.startswith("_") or method in ("__init__", "__call__")
                if f"{name}.{method}" in NOT_CALLED:
                    continue
                if public and str(getattr(function, "__module__", "")).startswith("proselflc"):
                    yield f"{name}.{method}", function
        elif callable(one):
            yield name, one


def types_of(function: Callable[..., Any]) -> Iterator[type]:
    """Classes of ours that its signature names, inside unions and generic types too."""

    def inside(hint: Any) -> Iterator[type]:
        if isinstance(hint, type) and hint.__module__.startswith("proselflc"):
            yield hint
        for part in typing.get_args(hint):
            yield from inside(part)

    plain: Any = inspect.unwrap(function)
    known = for_type_checkers(plain.__module__)
    for hint in typing.get_type_hints(getattr(plain, "__func__", plain), None, known).values():
        yield from inside(hint)


def for_type_checkers(module: str) -> dict[str, Any]:
    """The names that a module imports for type checkers alone."""
    source = inspect.getsource(importlib.import_module(module))
    names: dict[str, Any] = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            for statement in node.body:
                exec(ast.unparse(statement), names)  # our own imports
    return names


@pytest.mark.parametrize(
    "name",
    [
        *("Run", "Audit", "Predictions", "Dataset", "InputError", "DivergenceError", "Recording"),
        *("Trust", "Reference", "Ramp", "Sharpened", "Product", "Uniform", "Prediction"),
        *("HardPrediction", "SharpenedPrediction", "Teacher", "RememberedPrediction"),
    ],
)
def test_what_the_interface_names_is_exported(name: str) -> None:
    assert name in proselflc.__all__
    assert getattr(proselflc, name).__name__ == name


def test_every_type_of_a_public_signature_is_exported() -> None:
    missing = {
        f"{kind.__name__} in {where}"
        for where, function in signatures()
        for kind in types_of(function)
        if kind.__name__ not in INTERNAL and getattr(proselflc, kind.__name__, None) is not kind
    }
    assert missing == set()
    assert len(list(signatures())) > 60


def test_every_reference_and_trust_that_makes_a_target_is_exported() -> None:
    for module, base in ((target, target.Reference), (trust, trust.Trust)):
        own = [
            one for one in vars(module).values() if inspect.isclass(one) and issubclass(one, base)
        ]
        assert len(own) > 5
        for one in own:
            assert one.__name__ in proselflc.__all__
            assert getattr(proselflc, one.__name__) is one


def test_a_target_can_be_made_of_exported_names_alone() -> None:
    target = proselflc.Target(
        proselflc.SharpenedPrediction(0.5),
        proselflc.Growth(8) * proselflc.Sharpened(proselflc.MaxProbability(), 0.5),
    )
    assert target.formula == "(1 − ε) q + ε p_T"
    assert target.trust.symbol == "g(t)·max p_T"
    assert isinstance(target.trust, proselflc.Product)


def test_find_label_issues_means_one_thing() -> None:
    """No other module of the package has a function of that name with another contract."""
    folder = Path(str(proselflc.__file__)).parent
    homes = {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef) and node.name == "find_label_issues"
    }
    assert homes == {"exporting/labels.py"}


def test_type_checkers_and_python_agree_about_what_is_exported() -> None:
    """The imports for type checkers, the table of homes and `__all__` name the same."""
    checked = for_type_checkers("proselflc")
    own = {name for name, one in checked.items() if not name.startswith("__")}
    assert own == set(proselflc.__all__) == {*proselflc._HOME, "functional"}
    for name in proselflc._HOME:
        assert checked[name] is getattr(proselflc, name)
    assert list(proselflc.__all__) == sorted(proselflc.__all__)


def test_the_former_name_of_an_objective_still_works() -> None:
    assert proselflc.Method is proselflc.Objective
