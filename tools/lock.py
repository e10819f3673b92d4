"""Print the versions that a fresh install would take now, as lines for constraints.txt.

torch is asked for by the version that is tested; its local tag (such as +cpu) is dropped, so that
the file serves every platform.
"""

import json
import subprocess
import sys
from pathlib import Path

import tomllib

TORCH = "torch==2.13.0"
ROOT = Path(__file__).parents[1]


def main() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    groups = project["dependency-groups"]["dev"]
    report = subprocess.run(
        [
            *(sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"),
            *("--dry-run", "--ignore-installed", "--report", "-"),
            *(TORCH, "-e", f"{ROOT}[all]", *groups),
        ],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    pins = {
        item["metadata"]["name"].lower(): item["metadata"]["version"].partition("+")[0]
        for item in json.loads(report)["install"]
    }
    del pins["proselflc"]
    print("# What make and CI install and test: made by `make lock`, not by hand. Users need not.")
    for name in sorted(pins):
        print(f"{name}=={pins[name]}")


if __name__ == "__main__":
    main()
