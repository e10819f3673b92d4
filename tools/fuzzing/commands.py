"""The commands that read a damaged file, run within this process for speed."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from fuzzing import requests
from fuzzing.corpus import SMALL

# What runs a command in the folder of the corpus: exit code and result from what stands for stdout.
Action = Callable[[io.TextIOWrapper], tuple[int, str]]
TIMES = ("seconds", "images_per_second")


def line(*arguments: str, written: tuple[str, ...] = ()) -> Action:
    """Return a command line; its result is what it prints, or the files that it writes."""

    def action(stdout: io.TextIOWrapper) -> tuple[int, str]:
        from proselflc.cli.app import run

        code = run(arguments)
        stdout.flush()
        if written and code == 0:
            return code, _contents(written)
        buffer = stdout.buffer
        assert isinstance(buffer, io.BytesIO)
        return code, buffer.getvalue().decode("utf-8", "replace")

    return action


def _contents(patterns: tuple[str, ...]) -> str:
    found = (path for name in patterns for path in sorted(Path().glob(name)) if path.is_file())
    return "\n".join(map(_content, found))


def _content(path: Path) -> str:
    """Return a file as comparable text, without times."""
    with path.open("rb") as file:
        content = file.read(1 << 24)
    if path.suffix in (".json", ".jsonl"):
        lines = content.splitlines() if path.suffix == ".jsonl" else [content]
        with suppress(ValueError, AttributeError, RecursionError):  # it is damaged itself
            values = [json.loads(one) for one in lines]
            kept = [{k: v for k, v in one.items() if k not in TIMES} for one in values]
            content = json.dumps(kept).encode()
    text = content.hex() if bytes(1) in content else content.decode("utf-8", "replace")
    return f"{path}: {text}"


def called(function: Callable[[], object]) -> Action:
    """Return a call of the library; its result is what it returns."""

    def action(_: io.TextIOWrapper) -> tuple[int, str]:
        from proselflc.errors import InputError
        from proselflc.training.loop import DivergenceError

        try:
            result = function()
        except (InputError, DivergenceError) as error:
            sys.stderr.write(f"{error}\n")
            return 2, ""
        except MemoryError:  # which the command line answers
            sys.stderr.write("there is not enough memory\n")
            return 1, ""
        return 0, result if isinstance(result, str) else repr(result)

    return action


def train(
    data: str, *, model: str = "mlp", method: str = "proselflc", epochs: int = 1, **more: Any
) -> Action:
    """Return an action that trains as the command line does once its options are read."""

    def function() -> object:
        from proselflc.data.request import Request
        from proselflc.run.config import Config, OutputOptions
        from proselflc.run.train import train as run_train
        from proselflc.terminal import Display
        from proselflc.training.recipe import Recipe

        names = ("labels", "features", "text_column", "path_column")
        asked = {name: more[name] for name in names if name in more}
        options = {name: more[name] for name in ("trusted", "noise", "weights") if name in more}
        config = Config(
            request=Request(data=data, **asked),
            method=method,
            parameters=more.get("parameters", {}),
            model=model,
            recipe=Recipe(epochs=epochs, batch_size=6),
            image_size=8,
            workers=0,
            **options,
        )
        run_train(config, OutputOptions(Path("new")), Display())
        return _contents(("new/model.safetensors", "new/examples.parquet", "new/labels.npz"))

    return called(function)


RESUMED = (
    *("model.safetensors", "examples.parquet", "audit.json", "evaluation.json", "summary.json"),
    *("history.jsonl", "dynamics/*.npy"),
)


def _resume(run: str) -> Action:
    files = tuple(f"{run}/{name}" for name in RESUMED)
    return line("train", "--out", run, "--resume", "--quiet", written=files)


def _trained(*options: str) -> Action:
    out = ("new/model.safetensors", "new/examples.parquet", "new/labels.npz")
    return line("train", *options, *SMALL, "--out", "new", written=out)


def _cifar10(place: str) -> Action:
    """Return an action that reads CIFAR-10 with the checksums of the files at hand."""

    def load() -> object:
        import hashlib

        from proselflc.data.inputs import Images
        from proselflc.data.sources import cifar

        sums = {}
        for name in cifar._LAYOUTS["cifar10"].checksums:
            file = Path("data/cifar-10-batches-py", name)
            is_small = file.is_file() and file.stat().st_size < 1 << 20
            sums[name] = hashlib.md5(file.read_bytes()).hexdigest() if is_small else ""
        data = cifar.load(Path(place), "cifar10", cache=Path("cache"), checksums=sums)
        assert isinstance(data.train.inputs, Images)
        return data.train.labels.tolist(), int(data.train.inputs.pixels.sum())

    return called(load)


def _cifar_n(path: str) -> Action:
    def load() -> object:
        import numpy as np

        from proselflc.data.dataset import Dataset, Part
        from proselflc.data.inputs import Images
        from proselflc.data.sources import cifar_n

        clean = np.array([(i + j) % 10 for i in range(1, 6) for j in range(4)])
        part = Part(Images(np.zeros((20, 1, 1, 1), np.uint8)), clean, tuple(map(str, range(20))))
        images = Dataset("cifar", part, tuple(f"class {c}" for c in range(10)), test=part)
        found = cifar_n.with_human_labels(images, Path(path), "worse_label", "cifar10n")
        return found.train.labels.tolist()

    return called(load)


def _mask() -> object:
    from proselflc.data.class_matrix import read_mask

    return read_mask(Path("data/mask.npy"), 3).tolist()


def _loaded(name: str) -> Action:
    """Return an action that reads a data set without training on it."""

    def load() -> object:
        from proselflc.data.opening import open_data
        from proselflc.data.request import Request

        found = open_data(Request(data=f"data/{name}", on_bad_image="error"))
        return found.train.ids, found.train.labels.tolist(), found.names, found.test is None

    return called(load)


CSV = "data/table.csv"
TABLE = ("--data", CSV)
PAGE = ("--out", "page.html")
COMMANDS: dict[str, Action] = {
    "predict": line("predict", "run", *TABLE),
    "audit": line("audit", "run", "--json"),
    "audit --folds": line("audit", "folding_run", "--folds", "2", "--json", "--quiet"),
    "export": line("export", "run"),
    "export --reviewed": line("export", "run", "--reviewed"),
    "report": line("report", "run", *PAGE, written=("page.html",)),
    "report recorded": line("report", "recorded", *PAGE, written=("page.html",)),
    "review": requests.review("run"),
    "review recorded": requests.review("recorded"),
    "review recorded texts": requests.review("recorded_texts"),
    "review: decide": requests.decide("run", Path("data/decision.json")),
    "review: ask": requests.questions("run", Path("data/addresses.txt")),
    "resume": _resume("half_of_run"),
    "resume finished": line("train", "--out", "run", "--resume", "--quiet"),
    "train --config run": _trained("--config", "run/config.toml", "--epochs", "2"),
    "train --labels run": train(CSV, labels="run"),
    "train with a teacher": train(
        CSV, method="distillation", parameters={"teacher": "run"}, trusted="0.25",
        noise="symmetric:0.3",
    ),
    "train": train(CSV),
    "train tsv": train("data/table.tsv"),
    "train parquet": train("data/table.parquet"),
    "predict parquet": line("predict", "run", "--data", "data/table.parquet"),
    "train text": train("data/table_text.tsv", model="embedding_bag", text_column="text"),
    "train npz": train("data/arrays.npz"),
    "train --features": train(CSV, features="data/features.npy"),
    "train images": train("data/pictures"),
    "train paths": train("data/paths.csv", path_column="path"),
    "train idx": train("data/idx"),
    "read cifar": _cifar10("data/cifar-10-batches-py"),
    "read cifar archive": _cifar10("data/cifar-10-python.tar.gz"),
    "read cifar-n pt": _cifar_n("data/CIFAR-10_human.pt"),
    "read cifar-n npz": _cifar_n("data/CIFAR-10_human.npz"),
    "train --labels csv": train(CSV, labels="data/table_labels.csv"),
    "train --labels npz": train(CSV, labels="data/labels.npz"),
    "train --labels exported": train(CSV, labels="data/exported.npz"),
    "train --config": _trained("--config", "data/options.toml", "--steps", "4"),
    **{
        f"train with {name}": train(
            CSV, method="forward", parameters={"transition": f"data/{name}"}
        )
        for name in ("transition.npy", "transition.npz", "transition.csv")
    },
    "read mask": called(_mask),
    "train --weights": train(CSV, weights=Path("data/weights.safetensors")),
    "train --weights pt": train(CSV, weights=Path("data/weights.pt")),
    "read clothing1m": _loaded("clothing1m"),
    "read imagenet": _loaded("imagenet"),
}  # fmt: skip
