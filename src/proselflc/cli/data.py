"""Commands that list, check and prepare: data sets, methods, models, the installation, noise."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from proselflc.cli import options
from proselflc.data.opening import DATASETS
from proselflc.data.request import InputsRequest, Request
from proselflc.errors import InputError, RunError, printable
from proselflc.options import Whole
from proselflc.terminal import print_json, print_table, say, say_notes

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
        "\n--data also takes an image folder, a table (.csv, .tsv, .parquet, .feather, .jsonl, "
        ".xlsx) and an .npz file.\n"
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
    """List the models and learners, the inputs they take and where the paper uses them.

    Args:
        json: print the list as JSON.
    """
    from proselflc.learners.boosting import LEARNING_RATE, ROUNDS
    from proselflc.learners.catalogue import LEARNERS, is_installed
    from proselflc.models.catalogue import MODELS
    from proselflc.models.shape import KINDS

    takes = {name: [KINDS[kind] for kind in model.takes] for name, model in MODELS.items()}
    if json:
        columns = ("title", "where", "takes", "optimizer", "lr", "weight_decay")
        networks = {
            name: {key: getattr(model, key) for key in columns} | {"takes": takes[name]}
            for name, model in MODELS.items()
        }
        learners = {
            name: {
                **dict.fromkeys(columns),
                "title": title,
                "where": "–",
                "takes": ["tables"],
                "lr": LEARNING_RATE,
                "rounds": ROUNDS,
                "installed": is_installed(name),
            }
            for name, (title, _) in LEARNERS.items()
        }
        print_json(networks | learners)
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
        ]
        + [
            (
                name,
                "tables",
                "–",
                f"{ROUNDS} rounds, lr {LEARNING_RATE:g}",
                title if is_installed(name) else f"{title}; not installed",
            )
            for name, (title, _) in LEARNERS.items()
        ],
    )
    sys.stdout.write(
        "\nFor a table, --model auto is the default: it chooses between mlp and boosting. A table "
        "can also\nbe audited with any classifier of scikit-learn, by sklearn:package.Class.\n"
        "--model also takes package.module:factory, timm:NAME and torchvision:NAME.\n"
        "Photos and texts are learned by the features of a pretrained model if one is installed:\n"
        "--backbone names it, and --backbone none trains one of these models from scratch.\n"
    )


def doctor(*, json: bool = False) -> None:
    """Check the installation: what is installed, what is missing and how to install it.

    The exit code is 1 if a required package is missing or unusable.

    Args:
        json: print the result as JSON.
    """
    from proselflc.cli.doctor import describe, diagnose

    found = diagnose()
    if json:
        print_json({"healthy": not found.faults, **asdict(found)})
    else:
        sys.stdout.write(describe(found))
    if found.faults:
        raise RunError("; ".join(found.faults))


def columns(
    *,
    json: bool = False,
    request: Annotated[InputsRequest, Parameter(name="*")] = InputsRequest(),  # noqa: B008
) -> None:
    """Show what the columns of a table hold, as `train` would read them.

    Kinds are found from the training rows. Change one with --categorical, --numeric, --text or
    --ignore-column.

    Args:
        json: print the columns as JSON.
        request: the table.
    """
    from proselflc.data.tables.cells import short
    from proselflc.data.tables.standard_input import title
    from proselflc.data.tables.summary import summarize

    if not request.data:
        raise InputError("there is no table", field="data", fix="give the path of one")
    found = summarize(Path(request.data), request)
    if json:
        say_notes(found.notes)
        print_json({**asdict(found), "data": title(found.data)})
        return
    rows, wide = found.rows, len(found.columns)
    size = f"{rows:,} row{'s' * (rows != 1)}, {wide:,} column{'s' * (wide != 1)}"
    say(f"{title(found.data)}: {size}, {found.form}")
    print_table(
        ("column", "kind", "missing", "distinct", "example", "note"),
        [
            tuple(
                map(
                    printable,
                    (
                        short(one.column),
                        one.kind,
                        f"{one.missing:,}",
                        f"{one.distinct:,}",
                        one.example,
                        one.note,
                    ),
                )
            )
            for one in found.columns
        ],
    )
    say_notes(found.notes)


def noise(
    *,
    kind: str,
    out: Path,
    rate: str | None = None,
    seed: Whole = 0,
    transition: Path | None = None,
    human: Path | None = None,
    pairs: str | None = None,
    overwrite: bool = False,
    json: bool = False,
    request: Annotated[Request, Parameter(name="*")] = Request(),  # noqa: B008
) -> None:
    """Add reproducible label noise to any data and write a file that --data can read.

    Args:
        kind: kind of noise: symmetric, pair, or the full name of a generator. KIND:RATE sets the
            rate too.
        out: output file: .npz for arrays; .csv or .tsv for image files, texts and tables; or a name
            ending in labels.npz for the labels alone, to be read by --labels.
        rate: share of labels to change, from 0 to 1.
        seed: random seed; the same seed gives the same labels on every machine.
        transition: transition matrix for kind transition: a .npy, .npz or .csv file with one row
            per true class.
        human: file of human labels for kind human.
        pairs: pairs of class names for kind confusable_pairs, as in "cat:dog,truck:car" (default:
            estimated from the data).
        overwrite: replace an existing file.
        json: print the result as JSON.
        request: data to change.
    """
    from proselflc.data.corruption import Corruption, corrupt_data

    result = corrupt_data(
        request, Corruption(kind, out, rate, seed, transition, human, pairs, overwrite)
    )
    say_notes(result.notes)
    if json:
        print_json(asdict(result))
    (sys.stderr if json else sys.stdout).write(str(result))


def noise_with_kinds() -> Callable[..., None]:
    """Return the command `noise` with the names of all generators in its help."""
    from proselflc.data.noise_generators import GENERATORS, GENERATORS_WITHOUT_RATE

    @functools.wraps(noise)
    def named(*args: Any, **kwargs: Any) -> None:
        noise(*args, **kwargs)

    names = ", ".join((*GENERATORS, *GENERATORS_WITHOUT_RATE))
    named.__doc__ = (noise.__doc__ or "").replace("of a generator.", f"of a generator: {names}.")
    return named


@dataclass(frozen=True)
class EmbedOptions:
    """How to embed a data set.

    Attributes:
        model: efficientnet_lite0, minilm or wordllama, if installed; hf:DIR for a local directory;
            timm:NAME or sentence-transformers:NAME, if cached; or package.module:factory.
        out: output file: .npy, or .npz if the data has a test part.
        weights: weights of the model, a safetensors file or a state dict.
        batch_size: number of examples per batch.
        size: height and width that images are resized to.
        workers: number of processes that decode image files.
        overwrite: replace an existing file.
        quiet: show no progress.
    """

    model: str
    out: Path
    weights: Path | None = None
    batch_size: Whole = 64
    size: Whole = 224
    workers: Whole = 2
    overwrite: bool = False
    quiet: bool = False


def embed(
    *,
    options: Annotated[EmbedOptions, Parameter(name="*")],
    json: bool = False,
    request: Annotated[Request, Parameter(name="*")] = Request(),  # noqa: B008
) -> None:
    """Compute embeddings of images or texts with a local model, for --features.

    Args:
        options: how to embed it.
        json: print the result as JSON.
        request: data to embed.
    """
    from proselflc.cli import embedding

    result = embedding.embed(request, options)
    if json:
        print_json(result)
    else:
        written = "{dimensions} numbers per example written to {out}".format(**result)
        sys.stdout.write(f"{printable(written)}\n")
