"""Print the versions that a fresh install would take now, as lines for constraints.txt.

torch is asked for by the version that is tested; its local tag (such as +cpu) is dropped, so that
the file serves every platform. A version that needs a newer Python than the oldest we support is
pinned for the newer ones only.
"""

import json
import subprocess
import sys
from pathlib import Path

from pip._vendor.packaging.specifiers import SpecifierSet

TORCH = "torch==2.13.0"
ROOT = Path(__file__).parents[1]
OLDEST = "3.10"


def main() -> None:
    report = subprocess.run(
        [
            *(sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"),
            *("--dry-run", "--ignore-installed", "--report", "-"),
            *(TORCH, "-e", f"{ROOT}[all]", "--group", f"{ROOT / 'pyproject.toml'}:dev"),
        ],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    print("# What make and CI install and test: made by `make lock`, not by hand. Users need not.")
    lines = []
    for item in json.loads(report)["install"]:
        metadata = item["metadata"]
        version = metadata["version"].partition("+")[0]
        needed = SpecifierSet(metadata.get("requires_python", ""))
        newer = "" if needed.contains(f"{OLDEST}.0") else '; python_version > "3.10"'
        lines.append(f"{metadata['name'].lower()}=={version}{newer}")
    print("\n".join(sorted(line for line in lines if not line.startswith("proselflc="))))


if __name__ == "__main__":
    main()
