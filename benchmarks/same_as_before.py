"""Train every method on digits with the code of an earlier commit and with this one, and compare.

Both learn in a process of their own from the same command lines, a few epochs each, with parameters
by which everything that a method does happens within these. Weights, and the columns of
`examples.parquet` that both have, must be equal bit for bit.

One difference from 4a06c7b is intended: trusted examples are now drawn from a random stream of
their own, so that `pseudo_label`, whose case has `--trusted 0.1`, learns from others.

    python benchmarks/same_as_before.py 4a06c7b           # also written to results/
    python benchmarks/same_as_before.py 4a06c7b elr sat   # some methods, and no file
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import result_file

from proselflc import methods
from proselflc.paper.records import made_with

ROOT = Path(__file__).parents[1]
COMMON = (
    *("train", "--data", "digits", "--noise", "pair:0.4", "--model", "mlp", "--batch-size", "64"),
    *("--epochs", "8", "--eval-epochs", "4", "--workers", "0", "--deterministic", "--quiet"),
)
# What a method needs, or what makes it act early; by the name of the case.
OPTIONS: dict[str, tuple[str, ...]] = {
    "d2l": ("--method.begin", "0.1", "--method.window", "2"),
    "distillation": ("--method.teacher", "proselflc"),
    "gce_truncated": ("--method.begin", "0.3"),
    "m_dyr_h": ("--method.begin", "0.2"),
    "m_dyr_s": ("--method.begin", "0.2"),
    "masking": ("--method.mask", "mask.npy"),
    "md_dyr_sh": ("--method.begin", "0.2"),
    "pseudo_label": ("--trusted", "0.1"),
    "sat": ("--method.begin", "0.2"),
}
# Cases beside those of the defaults: the method and its options.
MORE: dict[str, tuple[str, tuple[str, ...]]] = {
    "proselflc, global": ("proselflc", ("--method.trust", "global", "--method.sharpness", "14")),
    "forward, given": ("forward", ("--method.transition", "transition.npy")),
    "s_adaptation, complex": ("s_adaptation", ("--method.layer", "complex")),
    "tf_kd_self, first gce": ("tf_kd_self", ("--method.first", "gce", "--method.q", "0.5")),
    "sl, A = -9.21": ("sl", ("--method.A", "-9.21")),
}
PROGRAM = """
import contextlib, json, sys
import torch
import proselflc
try:
    from proselflc.cli import app as cli
except ImportError:  # an earlier commit
    from proselflc.app import cli
assert proselflc.__file__.startswith(sys.argv[1]), proselflc.__file__
torch.set_num_threads(1)
codes = {}
for name, arguments in json.loads(sys.stdin.read()).items():
    with contextlib.redirect_stdout(sys.stderr):
        codes[name] = cli.run([*arguments, "--out", name])
print(json.dumps(codes))
"""


def cases(wanted: Sequence[str]) -> dict[str, list[str]]:
    """The command line of every case; proselflc comes first, which teaches another."""
    found = {name: (name, OPTIONS.get(name, ())) for name in methods.names()} | MORE
    names = sorted(found, key=lambda name: (name != "proselflc", name))
    return {
        name: [*COMMON, "--method", found[name][0], *found[name][1]]
        for name in names
        if not wanted or found[name][0] in (*wanted, "proselflc")
    }


def train(source: Path, folder: Path, arguments: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """Train all cases by the code in a checkout; their exit codes."""
    folder.mkdir()
    rolled = np.eye(10)[:, np.roll(range(10), 1)]
    np.save(folder / "mask.npy", np.eye(10) + rolled)
    np.save(folder / "transition.npy", 0.6 * np.eye(10) + 0.4 * rolled)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(source.resolve())],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(source / "src"), "PYTHONHASHSEED": "0"},
        input=json.dumps(arguments),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    codes: dict[str, int] = json.loads(done.stdout)
    return codes


def compared(before: Path, after: Path) -> tuple[str, str]:
    """Whether weights and examples of two runs are equal, in words."""
    one, other = (path / "model.safetensors" for path in (before, after))
    weights = "equal" if one.read_bytes() == other.read_bytes() else "DIFFERENT"
    tables = [pq.read_table(path / "examples.parquet") for path in (before, after)]
    shared = [name for name in tables[0].column_names if name in tables[1].column_names]
    differing = [name for name in shared if not tables[0][name].equals(tables[1][name])]
    said = f"{len(shared)} columns equal" if not differing else f"DIFFERENT: {differing}"
    gone = [name for name in tables[0].column_names if name not in shared]
    return weights, said + (f", GONE: {gone}" if gone else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commit")
    parser.add_argument("methods", nargs="*")
    options = parser.parse_args()
    wanted = cases(options.methods)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "-q", "--detach", folder / "old", options.commit], check=True)
        try:
            codes = [
                train(source, folder / side, wanted)
                for side, source in (("before", folder / "old"), ("after", ROOT))
            ]
        finally:
            subprocess.run([*git, "remove", "--force", folder / "old"], check=True)
        width = max(map(len, wanted))
        lines = [
            f"Trained on digits by commit {options.commit} and by the code at hand, 8 epochs each:",
            "",
            f"{'case':{width}}  {'weights':9}  examples.parquet",
        ]
        found = {}
        for case in wanted:
            if codes[0][case] != 0 or codes[1][case] != 0:
                said = "FAILED", f"exit codes {codes[0][case]} and {codes[1][case]}"
            else:
                said = compared(folder / "before" / case, folder / "after" / case)
            found[case] = dict(zip(("weights", "examples"), said, strict=True))
            lines.append(f"{case:{width}}  {said[0]:9}  {said[1]}")
    text = "\n".join(lines)
    print(text)
    if not options.methods:
        result_file.write(
            "same_as_before",
            found,
            result_file.preformatted(text),
            config={"commit": options.commit, "arguments": COMMON},
            seeds=(0,),
            made_with=made_with(),
        )
    sys.exit(any(word in text for word in ("DIFFERENT", "FAILED", "GONE")))


if __name__ == "__main__":
    main()
