"""Commands that list what is available: `datasets`, `methods`, `models` and `doctor`."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from proselflc.cli import options
from proselflc.data.opening import DATASETS
from proselflc.errors import RunError
from proselflc.terminal import print_json, print_table

if TYPE_CHECKING:
    from proselflc.training.method import Method


def datasets(*, json: bool = False) -> None:
    """List the named data sets and where the paper uses them.

    Args:
        json: print the list as JSON.
    """
    if json:
        columns = ("title", "classes", "train", "test", "where")
        print_json(
            {name: {key: getattr(data, key) for key in columns} for name, data in DATASETS.items()}
        )
        return
    print_table(
        ("name", "classes", "train", "test", "paper", "description"),
        [
            (name, f"{data.classes:,}", f"{data.train:,}", f"{data.test:,}", data.where, data.title)
            for name, data in DATASETS.items()
        ],
    )
    sys.stdout.write(
        "\n--data also takes an image folder, a .csv, .tsv or .parquet table, and an .npz file.\n"
    )


def methods(name: str | None = None, /, *, json: bool = False) -> None:
    """List the methods: their place in the paper, requirements, cost and loss.

    With a NAME, show that method in full, with its parameters. Some methods need more than the
    data: a teacher run (--method.teacher), a trusted part (--trusted) or a mask (--method.mask).
    The cost is the time of a training step relative to cross entropy, measured with a ResNet-20;
    repeated measurements differ in the second decimal.

    Args:
        name: method to show in full.
        json: print the list as JSON.
    """
    from proselflc import methods as known

    cost = known.costs()
    if name is not None:
        _print_method(known.find(name), cost.get(name), json)
    elif json:
        print_json({key: _facts(method, cost.get(key)) for key, method in known.every().items()})
    else:
        print_table(
            ("name", "paper", "needs", "cost", "loss", "title"),
            [
                (key, method.where, method.needs, _times(cost.get(key)), method.loss, method.title)
                for key, method in known.every().items()
            ],
        )


def _facts(method: Method[Any], cost: float | None) -> dict[str, Any]:
    columns = ("title", "criterion", "where", "loss", "entropy", "semantic_class")
    facts = {key: getattr(method, key) for key in columns}
    needs = None if method.needs == "–" else method.needs
    return {**facts, "needs": needs, "cost": cost, "when": method.when}


def _print_method(method: Method[Any], cost: float | None, json: bool) -> None:
    """Print everything about one method."""
    meanings, defaults = options.meanings(method), options.defaults(method)
    if json:
        own = {
            name: {
                "default": getattr(method.parameters, name, None),
                "required": not hasattr(method.parameters, name),
                "meaning": meanings[name],
                "searched": method.grid.get(name, ()),
            }
            for name in method.takes
        }
        print_json({**_facts(method, cost), "parameters": own})
        return
    target = method.default_target()
    facts = {
        "title": method.title,
        "paper": method.where,
        "loss": method.loss,
        "target": "–" if target is None else target.formula,
        "low entropy": method.entropy,
        "class taught": method.semantic_class,
        "criterion": f"proselflc.{method.criterion}",
        "needs": method.needs,
        "cost": _times(cost),
    }
    lines = [f"{name:14}{value}" for name, value in facts.items() if value != "–"]
    sys.stdout.write("\n".join([f"{method.name}: {method.when}", "", *lines]) + "\n")
    if method.takes:
        sys.stdout.write("\n")
        print_table(
            ("parameter", "default", "searched", "meaning"),
            [
                (
                    f"--method.{name}",
                    defaults[name],
                    ", ".join(map(str, method.grid.get(name, ()))) or "–",
                    meanings[name],
                )
                for name in method.takes
            ],
        )


def _times(cost: float | None) -> str:
    return "–" if cost is None else f"× {cost:.1f}"


def models(*, json: bool = False) -> None:
    """List the models, the inputs they take and where the paper uses them.

    Args:
        json: print the list as JSON.
    """
    from proselflc.models.catalogue import MODELS
    from proselflc.models.shape import KINDS

    takes = {name: [KINDS[kind] for kind in model.takes] for name, model in MODELS.items()}
    if json:
        columns = ("title", "where", "takes", "optimizer", "lr", "weight_decay")
        print_json(
            {
                name: {key: getattr(model, key) for key in columns} | {"takes": takes[name]}
                for name, model in MODELS.items()
            }
        )
        return
    print_table(
        ("name", "takes", "paper", "optimiser", "description"),
        [
            (
                name,
                ", ".join(takes[name]),
                model.where,
                f"{model.optimizer}, lr {model.lr:g}",
                model.title,
            )
            for name, model in MODELS.items()
        ],
    )
    sys.stdout.write(
        "\n--model also takes package.module:factory, timm:NAME and torchvision:NAME.\n"
    )


def doctor(*, json: bool = False) -> None:
    """Check the installation: what is installed, what is missing and how to install it.

    The exit code is 1 if a required package is missing or unusable.

    Args:
        json: print the result as JSON.
    """
    from proselflc.cli import doctor as checks

    found = checks.diagnose()
    if json:
        print_json({"healthy": not found.faults, **asdict(found)})
    else:
        sys.stdout.write(checks.describe(found))
    if found.faults:
        raise RunError("; ".join(found.faults))
