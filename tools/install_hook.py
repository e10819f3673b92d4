"""Install a git hook that runs ruff and mypy of this environment before every commit.

python tools/install_hook.py
"""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
MARK = "# made by tools/install_hook.py"
HOOK = """#!/bin/sh
{mark}
# What is staged is checked, in a copy: what is not staged does not count.
set -e
files=$(git diff --cached --name-only --diff-filter=ACMR -- '*.py')
[ -n "$files" ] || exit 0
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
git checkout-index --all --prefix="$copy/"
cd "$copy"
unset GIT_DIR GIT_INDEX_FILE GIT_WORK_TREE
echo "$files" | xargs "{python}" -m ruff check --quiet
echo "$files" | xargs "{python}" -m ruff format --quiet --check
MYPYPATH=src "{python}" -m mypy --no-error-summary --cache-dir "{cache}"
"""


def main() -> None:
    said = subprocess.run(
        ["git", "rev-parse", "--git-path", "hooks/pre-commit"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    path = ROOT / said
    if path.exists() and MARK not in path.read_text(encoding="utf-8"):
        sys.exit(f"{path} is there and not ours: move it away first")
    path.parent.mkdir(parents=True, exist_ok=True)
    cache = ROOT / ".mypy_cache"
    path.write_text(HOOK.format(mark=MARK, python=sys.executable, cache=cache), encoding="utf-8")
    os.chmod(path, 0o755)
    print(f"{path}: git runs ruff and mypy before a commit; `git commit --no-verify` does without")


if __name__ == "__main__":
    main()
