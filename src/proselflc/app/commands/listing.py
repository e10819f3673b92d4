"""What there is to choose from: data sets, methods, models."""

from __future__ import annotations

import sys

from proselflc.app.printing import print_json, print_table
from proselflc.data.opening import DATASETS


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


def methods(*, json: bool = False) -> None:
    """List the methods, where the paper has them, what they need, cost and minimise.

    What some need beside the data: a teacher run is --method.teacher, a trusted part --trusted, a
    mask --method.mask. The cost is that of a step beside one of cross entropy, as measured with a
    ResNet-20; the second decimal is within what one measurement differs from the next.

    Args:
        json: print the list as JSON.
    """
    from proselflc.app.method_cost import costs
    from proselflc.correction.catalogue import METHODS

    cost = costs()
    if json:
        print_json(
            {
                name: {
                    "title": one.title,
                    "criterion": one.criterion,
                    "where": one.where,
                    "loss": one.loss,
                    "entropy": one.entropy,
                    "semantic_class": one.semantic_class,
                    "needs": None if one.needs == "–" else one.needs,
                    "cost": cost.get(name),
                    "when": one.when,
                }
                for name, one in METHODS.items()
            }
        )
        return
    print_table(
        ("name", "paper", "needs", "cost", "loss", "title"),
        [
            (
                name,
                one.where,
                one.needs,
                f"× {cost[name]:.1f}" if name in cost else "–",
                one.loss,
                one.title,
            )
            for name, one in METHODS.items()
        ],
    )


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
