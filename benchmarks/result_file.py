"""The form of a benchmark's result: NAME.json with every number, and NAME.md made from them.

The JSON has what was measured (`config`), the seeds, the versions and the machine (`made_with`) and
the numbers (`found`), to six digits. The Markdown is what the documents show.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from proselflc.files.regular import whole_file

RESULTS = Path(__file__).parent / "results"
_SHORT = re.compile(r"\[\s[^\[\]{}\"]*\]")  # a list of numbers, which is written in one line


def write(
    name: str,
    found: Any,
    text: str,
    *,
    config: Mapping[str, Any],
    seeds: Sequence[int] = (),
    made_with: Any,
    folder: Path = RESULTS,
) -> None:
    """Write both files, each whole or not at all.

    Args:
        name: of the benchmark.
        found: the numbers.
        text: the Markdown.
        config: what was measured, as far as the benchmark may be told otherwise.
        seeds: of the runs; empty where a benchmark measures time.
        made_with: versions and machine.
        folder: where the files go.
    """
    save(name, found, config=config, seeds=seeds, made_with=made_with, folder=folder)
    with whole_file(folder / f"{name}.md") as file:
        file.write(text.rstrip().encode() + b"\n")


def save(
    name: str,
    found: Any,
    *,
    config: Mapping[str, Any],
    seeds: Sequence[int] = (),
    made_with: Any,
    folder: Path = RESULTS,
) -> None:
    """Write the JSON alone, as `write` does."""
    folder.mkdir(parents=True, exist_ok=True)
    content = {
        "benchmark": name,
        "config": dict(config),
        "seeds": list(seeds),
        "made_with": made_with,
        "found": _rounded(found),
    }
    with whole_file(folder / f"{name}.json") as file:
        text = json.dumps(content, indent=1, ensure_ascii=False)
        file.write(_SHORT.sub(lambda found: " ".join(found[0].split()), text).encode() + b"\n")


def _rounded(value: Any) -> Any:
    """Return a value with six digits of every number: more are not known, and only take space."""
    if isinstance(value, Mapping):
        return {key: _rounded(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(one) for one in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


def read(name: str, folder: Path = RESULTS) -> dict[str, Any] | None:
    """Return the content of the JSON; None where there is no such result."""
    path = folder / f"{name}.json"
    if not path.is_file():
        return None
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


def preformatted(text: str) -> str:
    """Return text as a block of Markdown that is shown as it is."""
    return f"```text\n{text.rstrip()}\n```\n"
