"""Draw the folders of the package and their imports.

    python tools/house.py docs/images/house.svg

`FLOORS` is the plan; `tests/test_floors.py` holds every import to it.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from xml.sax.saxutils import escape

SOURCE = Path(__file__).parents[1] / "src" / "proselflc"

# From the ground up: a folder may import those on floors below its own, and nothing beside it.
FLOORS: tuple[tuple[str, ...], ...] = (
    ("wording",),
    ("errors",),
    ("options", "files"),
    ("correction", "models"),
    ("pretrained",),
    ("data",),
    ("learners",),
    ("functional", "pages", "training"),
    ("terminal", "methods", "auditing"),
    ("run",),
    ("queue",),
    ("recording", "exporting", "reporting", "reviewing", "searching", "paper"),
    ("integrations",),
    ("cli",),
)
ABOUT = {
    "wording": "how options are written",
    "errors": "what a user is told",
    "options": "checked values of options",
    "files": "whole files, regular files",
    "correction": "the algebra of targets",
    "data": "inputs, labels, noise",
    "models": "networks by name",
    "pretrained": "encoders by name",
    "learners": "trees and estimators",
    "functional": "the algebra without state",
    "pages": "drawings and HTML",
    "training": "the loop and its records",
    "methods": "a file each",
    "auditing": "which labels are wrong",
    "run": "from config to summary",
    "terminal": "progress and signals",
    "queue": "runs kept by their options",
    "recording": "your own training loop",
    "exporting": "corrected labels",
    "reporting": "a page about runs",
    "reviewing": "a page for decisions",
    "searching": "choosing parameters",
    "paper": "tables and figures",
    "integrations": "scikit-learn, Lightning, …",
    "cli": "commands and options",
}
ENTRANCES = ("__init__", "__main__")  # they import what a user asks for, on any floor

_WIDTH, _HEIGHT, _GAP, _RISE, _MARGIN = 152, 46, 14, 40, 20


def level(folder: str) -> int:
    """Return the floor of a folder, 0 for the lowest."""
    return next(k for k, floor in enumerate(FLOORS) if folder in floor)


def modules() -> Iterator[tuple[str, Path]]:
    """Yield the folder and the path of every module except the entrances."""
    for path in sorted(SOURCE.rglob("*.py")):
        folder = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        if folder not in ENTRANCES:
            yield folder, path


def imported(path: Path) -> set[str]:
    """Return the folders of the package that a module imports from."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                raise ValueError(f"{path}: imports are written out in full")
            module = node.module or ""
            names = [module, *(f"{module}.{alias.name}" for alias in node.names)]
        for name in names:
            first, *rest = name.split(".")
            if first == "proselflc" and rest and any(rest[0] in floor for floor in FLOORS):
                found.add(rest[0])
    return found


def arrows() -> dict[str, set[str]]:
    """Return the folders that each folder imports from."""
    found: dict[str, set[str]] = {}
    for folder, path in modules():
        found.setdefault(folder, set()).update(imported(path) - {folder})
    return found


def essential(graph: dict[str, set[str]]) -> dict[str, set[str]]:
    """Return the arrows that do not follow from others."""

    def reached(folder: str) -> set[str]:
        return graph.get(folder, set()).union(*(reached(one) for one in graph.get(folder, ())))

    return {
        folder: {one for one in ones if not any(one in reached(o) for o in ones - {one})}
        for folder, ones in graph.items()
    }


def drawn(graph: dict[str, set[str]]) -> str:
    """Return the drawing as SVG."""
    widest = max(len(floor) for floor in FLOORS)
    width = 2 * _MARGIN + widest * _WIDTH + (widest - 1) * _GAP
    height = 2 * _MARGIN + len(FLOORS) * _HEIGHT + (len(FLOORS) - 1) * _RISE
    counted: dict[str, int] = {}
    for folder, _ in modules():
        counted[folder] = counted.get(folder, 0) + 1
    place = {}
    for k, floor in enumerate(FLOORS):
        here = [folder for folder in floor if folder in counted]
        left = (width - len(here) * _WIDTH - (len(here) - 1) * _GAP) / 2
        top = height - _MARGIN - _HEIGHT - k * (_HEIGHT + _RISE)
        for i, folder in enumerate(here):
            place[folder] = (left + i * (_WIDTH + _GAP), top)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="system-ui, sans-serif" role="img">',
        "<title>The folders of proselflc; an arrow goes to what is imported</title>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" fill="#7a8594"/></marker></defs>',
    ]
    for folder, ones in sorted(essential(graph).items()):
        for one in sorted(ones):
            (x1, y1), (x2, y2) = place[folder], place[one]
            lines.append(
                f'<path d="M{x1 + _WIDTH / 2:.0f} {y1 + _HEIGHT}L{x2 + _WIDTH / 2:.0f} {y2 - 1}" '
                'stroke="#7a8594" fill="none" marker-end="url(#tip)"/>'
            )
    for folder, (x, y) in place.items():
        files = "" if counted[folder] == 1 else f" · {counted[folder]}"
        lines += [
            f'<rect x="{x:.0f}" y="{y:.0f}" width="{_WIDTH}" height="{_HEIGHT}" rx="7" '
            'fill="#eef3fa" stroke="#4a6d9c"/>',
            f'<text x="{x + _WIDTH / 2:.0f}" y="{y + 19:.0f}" text-anchor="middle" '
            f'font-size="14" font-weight="600" fill="#1c2733">{escape(folder + files)}</text>',
            f'<text x="{x + _WIDTH / 2:.0f}" y="{y + 35:.0f}" text-anchor="middle" '
            f'font-size="10.5" fill="#4b5866">{escape(ABOUT[folder])}</text>',
        ]
    return "\n".join([*lines, "</svg>", ""])


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(drawn(arrows()), encoding="utf-8")
