"""What there is to choose from: data sets, methods, models."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from proselflc.data.opening import DATASETS
from proselflc.run import method_options
from proselflc.terminal.printing import print_json, print_table

if TYPE_CHECKING:
    from proselflc.training.method import Method


def datasets(*, json: bool = False) -> None:
    """List the data sets that have a name, and where the paper uses them.

    Args:
        json: print the list as JSON.
    """
    rows = {
        name: {
            "title": one.title,
            "classes": one.classes,
            "train": one.train,
            "test": one.test,
            "where": one.where,
        }
        for name, one in DATASETS.items()
    }
    if json:
        print_json(rows)
        return
    table = [
        (name, f"{one.classes:,}", f"{one.train:,}", f"{one.test:,}", one.where, one.title)
        for name, one in DATASETS.items()
    ]
    print_table(("name", "classes", "train", "test", "paper", "what it is"), table)
    sys.stdout.write(
        "\n--data also takes an image folder, a .csv, .tsv or .parquet table, and an .npz file.\n"
    )


def methods(name: str | None = None, /, *, json: bool = False) -> None:
    """List the methods, where the paper has them, what they need, cost and minimise.

    With a NAME, show that method in full, with its parameters. What some need beside the data: a
    teacher run is --method.teacher, a trusted part --trusted, a mask --method.mask. The cost is
    that of a step beside one of cross entropy, as measured with a ResNet-20; the second decimal is
    within what one measurement differs from the next.

    Args:
        name: of a method to show in full.
        json: print the list as JSON.
    """
    from proselflc import methods as known

    cost = known.costs()
    if name is not None:
        _show_method(known.find(name), cost.get(name), json)
    elif json:
        print_json({key: _facts(one, cost.get(key)) for key, one in known.every().items()})
    else:
        print_table(
            ("name", "paper", "needs", "cost", "loss", "title"),
            [
                (key, one.where, one.needs, _times(cost.get(key)), one.loss, one.title)
                for key, one in known.every().items()
            ],
        )


def _facts(method: Method[Any], cost: float | None) -> dict[str, Any]:
    return {
        "title": method.title,
        "criterion": method.criterion_name,
        "where": method.where,
        "loss": method.loss,
        "entropy": method.entropy,
        "semantic_class": method.semantic_class,
        "needs": None if method.needs == "–" else method.needs,
        "cost": cost,
        "when": method.when,
    }


def _show_method(method: Method[Any], cost: float | None, json: bool) -> None:
    """Print all there is to say about a method."""
    means, defaults = method_options.meanings(method), method_options.defaults(method)
    if json:
        own = {
            name: {
                "default": getattr(method.parameters, name, None),
                "required": not hasattr(method.parameters, name),
                "meaning": means[name],
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
        "criterion": f"proselflc.{method.criterion_name}",
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
                    means[name],
                )
                for name in method.takes
            ],
        )


def _times(cost: float | None) -> str:
    return "–" if cost is None else f"× {cost:.1f}"


def models(*, json: bool = False) -> None:
    """List the models, what they take and where the paper uses them.

    Args:
        json: print the list as JSON.
    """
    from proselflc.models.catalogue import MODELS
    from proselflc.models.shape import KINDS

    rows = {
        name: {
            "title": one.title,
            "where": one.where,
            "takes": [KINDS[kind] for kind in one.takes],
            "optimizer": one.optimizer,
            "lr": one.lr,
            "weight_decay": one.weight_decay,
        }
        for name, one in MODELS.items()
    }
    if json:
        print_json(rows)
        return
    print_table(
        ("name", "takes", "paper", "optimiser", "what it is"),
        [
            (
                name,
                ", ".join(KINDS[kind] for kind in one.takes),
                one.where,
                f"{one.optimizer}, lr {one.lr:g}",
                one.title,
            )
            for name, one in MODELS.items()
        ],
    )
    sys.stdout.write(
        "\n--model also takes package.module:factory, timm:NAME and torchvision:NAME.\n"
    )
