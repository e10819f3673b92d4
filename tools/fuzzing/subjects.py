"""The files that are damaged: every file of a run, and every format that data can have."""

from __future__ import annotations

from typing import NamedTuple


class Subject(NamedTuple):
    """A file to damage.

    Attributes:
        path: of the file, or a pattern for several.
        format: a key of `FORMATS`.
        commands: that read it, by their names.
        weight: how many cases it has among those of all files; fewer where cases take long.
    """

    path: str
    format: str
    commands: tuple[str, ...]
    weight: int = 4


READERS = ("predict", "audit", "export", "report", "review")
RUN = (
    Subject("run/config.toml", "toml", (*READERS, "resume finished", "train --config run"), 2),
    Subject(
        "run/labels.npz",
        "npz",
        ("audit", "export --reviewed", "report", "review", "train --labels run"),
    ),
    Subject("run/history.jsonl", "jsonl", ("report", "audit")),
    Subject("run/dynamics/epoch-0000[03].npy", "npy", ("audit", "report", "review")),
    Subject("run/dynamics/recent_*.npy", "npy", ("audit", "report", "review")),
    Subject("run/model.safetensors", "safetensors", ("predict", "train with a teacher")),
    Subject("run/model.json", "json", ("predict", "audit", "review", "train with a teacher")),
    Subject(
        "run/examples.parquet", "parquet", ("export", "report", "review", "train --labels run")
    ),
    Subject("run/audit.json", "json", ("report", "review", "export")),
    Subject("run/audit.npz", "npz", ("report", "review", "export")),
    Subject("run/evaluation.json", "json", ("report",)),
    Subject("run/summary.json", "json", READERS),
    Subject(
        "run/review.jsonl",
        "jsonl",
        ("export --reviewed", "review", "train --labels run", "report"),
        3,
    ),
    Subject("run/stages.json", "json", ("report", "audit")),
    Subject("run/transition.npy", "npy", ("report",)),
    Subject("run/neighbours.npz", "npz", ("report", "review"), 2),
    Subject("run/map.npz", "npz", ("report", "review"), 2),
    Subject("run/witness.npz", "npz", ("audit", "report"), 2),
    Subject("run/manifest.json", "json", READERS, 2),
    Subject("run/folds/p.npy", "npy", ("audit", "report")),
    Subject("run/folds/folds.json", "json", ("audit", "report")),
    Subject("half_of_run/config.toml", "toml", ("resume",), 3),
    Subject("half_of_run/checkpoints/*.safetensors", "safetensors", ("resume",), 2),
    Subject("half_of_run/dynamics/*.npy", "npy", ("resume",), 3),
    Subject("half_of_run/history.jsonl", "jsonl", ("resume",), 2),
    Subject("half_of_run/labels.npz", "npz", ("resume",), 2),
    Subject("half_of_run/stages.json", "json", ("resume",), 1),
    Subject("folding_run/folds/2-1/config.toml", "toml", ("audit --folds",), 2),
    Subject("folding_run/folds/2-1/held_out.npy", "npy", ("audit --folds",), 2),
    Subject("folding_run/folds/2-1/labels.npz", "npz", ("audit --folds",), 1),
    Subject("folding_run/folds/2-1/summary.json", "json", ("audit --folds",), 1),
    Subject("folding_run/folds/2-1/model.safetensors", "safetensors", ("audit --folds",), 1),
    Subject("recorded/inputs.npz", "npz", ("review recorded", "report recorded")),
    Subject("recorded_texts/inputs.parquet", "parquet", ("review recorded texts",)),
)
INPUTS = (
    Subject("data/table.csv", "text", ("train", "predict"), 6),
    Subject("data/table.tsv", "text", ("train tsv",)),
    Subject("data/table.parquet", "parquet", ("train parquet", "predict parquet"), 5),
    Subject("data/table_text.tsv", "text", ("train text",), 2),
    Subject("data/arrays.npz", "npz", ("train npz",), 5),
    Subject("data/features.npy", "npy", ("train --features",), 5),
    Subject("data/pictures/ant/0.png", "picture", ("train images",), 3),
    Subject("data/paths.csv", "text", ("train paths",), 2),
    Subject("data/idx/train-images-idx3-ubyte", "idx", ("train idx",)),
    Subject("data/idx/train-labels-idx1-ubyte.gz", "bytes", ("train idx",)),
    Subject("data/cifar-10-batches-py/data_batch_1", "pickle", ("read cifar",), 10),
    Subject("data/cifar-10-python.tar.gz", "tar", ("read cifar archive",), 10),
    Subject("data/CIFAR-10_human.pt", "npz", ("read cifar-n pt",), 10),
    Subject("data/CIFAR-10_human.npz", "npz", ("read cifar-n npz",), 10),
    Subject("data/table_labels.csv", "text", ("train --labels csv",), 3),
    Subject("data/labels.npz", "npz", ("train --labels npz",)),
    Subject("data/exported.npz", "npz", ("train --labels exported",)),
    Subject("data/options.toml", "toml", ("train --config",)),
    Subject("data/transition.npy", "npy", ("train with transition.npy",), 3),
    Subject("data/transition.npz", "npz", ("train with transition.npz",), 3),
    Subject("data/transition.csv", "text", ("train with transition.csv",), 2),
    Subject("data/mask.npy", "npy", ("read mask",), 6),
    Subject("data/weights.safetensors", "safetensors", ("train --weights",), 3),
    Subject("data/weights.pt", "npz", ("train --weights pt",), 3),
    Subject("data/clothing1m/*.txt", "text", ("read clothing1m",), 8),
    Subject("data/imagenet/words.txt", "text", ("read imagenet",), 4),
    Subject("data/imagenet/ILSVRC2012_devkit_t12/data/*", "bytes", ("read imagenet",), 6),
    Subject("data/decision.json", "json", ("review: decide",), 8),
    Subject("data/addresses.txt", "text", ("review: ask",), 4),
)
SUBJECTS = (*RUN, *INPUTS)
