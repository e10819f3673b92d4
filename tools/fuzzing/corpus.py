"""The corpus to damage: small runs with every file that a run can have, data in every format."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import pickle
import random
import shutil
import struct
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from fuzzing.requests import ADDRESSES

CLASSES = ("ant", "bee", "cow")
SMALL = ("--batch-size", "6", "--quiet")
MLP = ("--model", "mlp")


def create(folder: Path) -> None:
    """Create everything in an empty folder; paths in it are relative to the folder."""
    from proselflc.files.regular import fleeting

    with working_directory(folder), fleeting():
        Path("outside").mkdir()
        Path("outside/canary").write_text("unchanged\n")
        Path("data").mkdir()
        for number, name in enumerate(("table", "other_table")):
            _tables(name, number)
        _arrays()
        _pictures()
        _archives()
        _lists()
        Path("data/addresses.txt").write_text("\n".join(ADDRESSES))
        _runs()


@contextlib.contextmanager
def working_directory(folder: Path) -> Iterator[None]:
    """Change the current directory within a block."""
    before = os.getcwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def _tables(name: str, seed: int) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    draw = random.Random(seed)
    rows = [
        (
            f"r{k}",
            round(draw.gauss(3 * (k % 3), 0.5), 3),
            round(draw.gauss(-(k % 3), 0.5), 3),
            k % 3,
        )
        for k in range(48)
    ]
    for suffix, mark in ((".csv", ","), (".tsv", "\t")):
        lines = [mark.join(("id", "a", "b", "label"))]
        lines += [mark.join((i, str(a), str(b), CLASSES[c])) for i, a, b, c in rows]
        Path(f"data/{name}{suffix}").write_text("\n".join(lines) + "\n")
    columns = list(zip(*rows, strict=True))
    table = pa.table(
        {
            "id": columns[0],
            "a": columns[1],
            "b": columns[2],
            "label": [CLASSES[c] for c in columns[3]],
        }
    )
    pq.write_table(table, f"data/{name}.parquet")
    words = ("buzz wing", "honey sting", "milk grass")
    texts = [f"{words[c]} {i}\t{CLASSES[c]}" for i, _, _, c in rows]
    Path(f"data/{name}_text.tsv").write_text("text\tlabel\n" + "\n".join(texts) + "\n")
    labels = [f"{i},{CLASSES[(c + (k == 3)) % 3]}" for k, (i, _, _, c) in enumerate(rows)]
    Path(f"data/{name}_labels.csv").write_text("id,label\n" + "\n".join(labels) + "\n")


def _arrays() -> None:
    draw = np.random.default_rng(0)
    y = np.arange(48) % 3
    x = (draw.normal(size=(48, 4)) + y[:, None]).astype(np.float32)
    np.savez("data/arrays.npz", x=x, y=y, x_test=x[:6], y_test=y[:6])
    np.save("data/features.npy", x)
    transition = np.full((3, 3), 0.1) + 0.7 * np.eye(3)
    np.save("data/transition.npy", transition)
    np.savez("data/transition.npz", transition=transition)
    np.savetxt("data/transition.csv", transition, "%.3f", ",")
    np.save("data/mask.npy", np.ones((3, 3), np.int64))
    Path("data/options.toml").write_text(
        'data = "data/table.csv"\nepochs = 1\nbatch_size = 12\nmodel = "mlp"\nlr = 0.1\n'
        'noise = "symmetric:0.2"\n\n[method]\nname = "proselflc"\nsharpness = 10\n'
    )


def _picture(c: int, k: int) -> bytes:
    from PIL import Image

    pixels = np.random.default_rng(k).integers(0, 80, (9, 9, 3)).astype(np.uint8)
    pixels[..., c] += 150
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


def _pictures() -> None:
    rows = ["path,label"]
    for k in range(12):
        folder = Path("data/pictures") / CLASSES[k % 3]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{k}.png").write_bytes(_picture(k % 3, k))
        rows.append(f"pictures/{CLASSES[k % 3]}/{k}.png,{CLASSES[k % 3]}")
    Path("data/paths.csv").write_text("\n".join(rows) + "\n")


def _archives() -> None:
    draw = np.random.default_rng(1)
    Path("data/idx").mkdir()
    for split, n in (("train", 20), ("t10k", 10)):
        images = draw.integers(0, 256, (n, 5, 4)).astype(np.uint8)
        header = struct.pack(">BBBB3I", 0, 0, 8, 3, *images.shape)
        Path(f"data/idx/{split}-images-idx3-ubyte").write_bytes(header + images.tobytes())
        labels = (np.arange(n) % 10).astype(np.uint8)
        packed = struct.pack(">BBBBI", 0, 0, 8, 1, n) + labels.tobytes()
        Path(f"data/idx/{split}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(packed, mtime=0))
    files: dict[str, dict[bytes, Any]] = {
        f"data_batch_{i}": {
            b"data": draw.integers(0, 256, (4, 3072), dtype=np.uint8),
            b"labels": [(i + j) % 10 for j in range(4)],
        }
        for i in range(1, 6)
    }
    files["test_batch"] = {b"data": draw.integers(0, 256, (3, 3072), dtype=np.uint8)}
    files["test_batch"][b"labels"] = [9, 8, 7]
    files["batches.meta"] = {b"label_names": [b"class %d" % i for i in range(10)]}
    folder = Path("data/cifar-10-batches-py")
    folder.mkdir()
    with tarfile.open("data/cifar-10-python.tar.gz", "w:gz") as tar:
        for name, held in files.items():
            content = pickle.dumps(held, 2)
            (folder / name).write_bytes(content)
            info = tarfile.TarInfo(f"cifar-10-batches-py/{name}")
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    import torch

    clean = np.array([(i + j) % 10 for i in range(1, 6) for j in range(4)])
    human = {"clean_label": clean, "worse_label": (clean + 1) % 10}
    torch.save(human, "data/CIFAR-10_human.pt")
    np.savez("data/CIFAR-10_human.npz", allow_pickle=False, **human)


def _lists() -> None:
    """Write Clothing1M and ImageNet in their published layout, with a few pictures."""
    from scipy.io import savemat

    root = Path("data/clothing1m")
    keys = [f"images/{k % 3}/{k}.png" for k in range(10)]
    for k, key in enumerate(keys):
        (root / key).parent.mkdir(parents=True, exist_ok=True)
        (root / key).write_bytes(_picture(k % 3, k))
    for name, some in (("noisy_train", keys[:6]), ("clean_train", []), ("clean_val", keys[6:8])):
        (root / f"{name}_key_list.txt").write_text("\n".join(some) + "\n")
    (root / "clean_test_key_list.txt").write_text("\n".join(keys[8:]) + "\n")
    (root / "noisy_label_kv.txt").write_text("".join(f"{k} {i}\n" for i, k in enumerate(keys)))
    (root / "clean_label_kv.txt").write_text("".join(f"{k} {i}\n" for i, k in enumerate(keys[6:])))
    root = Path("data/imagenet")
    synsets = ["n01440764", "n01443537", "n02012849"]
    for k in range(6):
        folder = root / "train" / synsets[k % 3]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{k}.JPEG").write_bytes(_picture(k % 3, k))
    (root / "val").mkdir()
    for k in range(3):
        (root / "val" / f"ILSVRC2012_val_{k + 1:08d}.JPEG").write_bytes(_picture(k, k))
    kit = root / "ILSVRC2012_devkit_t12" / "data"
    kit.mkdir(parents=True)
    rows = np.array(
        [(k + 1, s) for k, s in enumerate(synsets)], [("ILSVRC2012_ID", "i4"), ("WNID", "O")]
    )
    savemat(kit / "meta.mat", {"synsets": rows})
    (kit / "ILSVRC2012_validation_ground_truth.txt").write_text("1\n2\n3\n")
    (root / "words.txt").write_text("n01440764\ttench, Tinca tinca\nn01443537\tgoldfish\n")


def _runs() -> None:
    """Create finished runs with every file, interrupted runs, and recorded runs."""
    import torch
    from safetensors.torch import load_file

    from proselflc import record
    from proselflc.data.decisions import DecisionChange
    from proselflc.run.reader import load_run
    from proselflc.run.review import Review

    for out, data in (("other", "other_table"), ("run", "table")):
        told("train", "--data", f"data/{data}.csv", *SMALL, *MLP, "--epochs", "4", "--out", out,
             "--method", "forward", "--noise", "symmetric:0.3", "--trusted", "0.25",
             "--checkpoint-seconds", "0")  # fmt: skip
        shutil.copytree(out, f"half_of_{out}")
        for name in ("summary.json", "evaluation.json", "examples.parquet", "model.safetensors",
                     "manifest.json"):  # fmt: skip
            Path(f"half_of_{out}", name).unlink(missing_ok=True)
        newest = sorted(Path(f"half_of_{out}", "checkpoints").iterdir())[-1]
        newest.unlink()
        told("audit", out, "--folds", "2", "--quiet")
        shutil.copytree(out, f"folding_{out}")
        for name in ("folds/folds.json", "folds/p.npy"):
            Path(f"folding_{out}", name).unlink()
        reviewed = Review(load_run(out))
        labels = reviewed.run.labels
        for k in reviewed.suspects[:4].tolist():
            shown = labels.names[reviewed.given[k]], labels.names[reviewed.suggested[k]]
            wanted = [DecisionChange(labels.ids[k], shown[k % 2], 0, False, *shown)]
            reviewed.decisions.add(wanted, "me", f"key{k:08d}")
        one, two = reviewed.suspects[4:6].tolist()
        decided = [{"index": one, "label": 1, "base": 0}, {"index": two, "label": None, "base": 0}]
        asked = {"key": "abcdefgh12345678", "since": 0, "decisions": decided}
        Path("data/decision.json").write_text(json.dumps(asked))
    told("train", "--data", "data/table.csv", *SMALL, *MLP, "--epochs", "1", "--out", "plain")
    told("export", "plain", "--force", "--format", "npz", "--out", "data/exported.npz")
    shutil.copy("plain/model.safetensors", "data/weights.safetensors")
    torch.save(load_file("plain/model.safetensors"), "data/weights.pt")
    shutil.move("plain/labels.npz", "data/labels.npz")
    shutil.rmtree("plain")
    n, y = 30, np.arange(30) % 3
    true = (y + np.isin(np.arange(n), (4, 9, 20))) % 3  # three labels are wrong
    x = np.random.default_rng(0).integers(0, 40, (n, 6, 6, 3)) + 90 * true[:, None, None, None]
    words = ("buzz wing", "honey sting", "milk grass")
    texts = [f"{words[c]} {k}" for k, c in enumerate(true)]
    for out, inputs in (("recorded", x.astype(np.uint8)), ("recorded_texts", texts)):
        logits = torch.nn.functional.one_hot(torch.from_numpy(true), 3) * 4.0
        with record(n, 3, out=out, labels=y, inputs=inputs) as rec:
            for _ in range(4):
                rec(torch.arange(n), logits)


def told(*arguments: str) -> None:
    """Run a command that must succeed."""
    from proselflc.cli.app import run

    said = io.StringIO()
    with (
        contextlib.redirect_stderr(said),
        contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO())),
    ):
        code = run(arguments)
    if code != 0:
        raise RuntimeError(f"{json.dumps(arguments)} ended with {code}: {said.getvalue()}")
