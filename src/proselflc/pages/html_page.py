"""HTML pages in one file, their tables and tiles, under a policy that forbids all other sources."""

from __future__ import annotations

import base64
import functools
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from proselflc import __version__
from proselflc.files.regular import open_regular
from proselflc.pages.values import NAME, TITLE, percent, shorten

if TYPE_CHECKING:
    import jinja2

GENERATOR = "proselflc"  # marks a page that was made here


@dataclass(frozen=True)
class Tile:
    """A highlighted number with its label and a remark."""

    label: str
    value: str
    remark: str = ""


@dataclass(frozen=True)
class Cell:
    """A cell of a table."""

    text: str
    title: str = ""  # tooltip with the whole text, if it was shortened
    order: float | None = None  # number to sort by; None for text and unknown values
    is_best: bool = False  # of its column


Column: TypeAlias = tuple[str, bool, Sequence[Cell]]  # title, whether it holds numbers, cells


@dataclass(frozen=True)
class Table:
    """A table of a page."""

    label: str  # what it shows, for screen readers
    heading: tuple[str, ...]
    numeric: tuple[bool, ...]  # whether each column holds numbers
    rows: tuple[tuple[Cell, ...], ...]
    is_sortable: bool = False

    @classmethod
    def of_columns(cls, label: str, columns: Iterable[Column], is_sortable: bool) -> Table:
        """Return a table of columns of the same length."""
        heading, numeric, cells = zip(*columns, strict=True)
        return cls(label, heading, numeric, tuple(zip(*cells, strict=True)), is_sortable)


def name_cell(words: str, limit: int = NAME) -> Cell:
    """Return a cell with a name, and its whole text as tooltip if it is shortened."""
    short = shorten(words, limit)
    return Cell(short, shorten(words, TITLE) if short.endswith("…") else "")


def share_cell(value: float | None, digits: int = 1, *, is_best: bool = False) -> Cell:
    """Return a cell with a share as a percentage, or a dash if it is unknown."""
    if value is None:
        return Cell("–")
    return Cell(percent(value, digits), order=value, is_best=is_best)


@functools.cache
def _environment() -> jinja2.Environment:
    """Return the environment that caches compiled templates."""
    import jinja2

    return jinja2.Environment(
        loader=jinja2.PackageLoader("proselflc", ""),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def render(page: object, template: str, *, has_map: bool = False) -> str:
    """Return a page as HTML: `page` for a template, named by its path in the package.

    A page with a map has an element `map`, and its points as JSON in `map-data`.
    """
    css, script = _source("look.css") + _source("report.css"), _source("report.js")
    if has_map:  # a script of the page, not a module: nothing imports from it
        css += _source("map.css")
        script = _source("map.js").replace("\nexport const ", "\nconst ") + script
    policy = "; ".join(
        (
            "default-src 'none'",
            "img-src data:",
            f"style-src 'sha256-{_hash(css)}'",
            f"script-src 'sha256-{_hash(script)}'",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )
    html: str = (
        _environment()
        .get_template(template)
        .render(
            page=page, css=css, script=script, policy=policy, generator=f"{GENERATOR} {__version__}"
        )
    )
    return html.lstrip()


def _source(name: str) -> str:
    from importlib.resources import files

    return (files("proselflc.pages") / "templates" / name).read_text(encoding="utf-8")


def _hash(source: str) -> str:
    return base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()


def is_own_page(path: Path) -> bool:
    """Return whether a file is a page that was made here."""
    return begins_with(path, f'<meta name="generator" content="{GENERATOR} ')


def begins_with(path: Path, tag: str) -> bool:
    """Return whether a tag is in the first 1,000 bytes of a file."""
    if path.is_dir():
        return False
    try:
        with open_regular(path) as file:
            return tag.encode() in file.read(1000)
    except OSError:
        return False
