"""A page in one file: template, look and script, under a policy that allows no others."""

from __future__ import annotations

import base64
import functools
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from proselflc import __version__
from proselflc.files.regular import open_regular

if TYPE_CHECKING:
    import jinja2

GENERATOR = "proselflc"  # how a page of ours is known again


@dataclass(frozen=True)
class Tile:
    """A number that stands out."""

    label: str
    value: str
    remark: str = ""


@functools.cache
def _environment() -> jinja2.Environment:
    """Return what keeps the templates, which take longer to compile than to fill in."""
    import jinja2

    return jinja2.Environment(
        loader=jinja2.PackageLoader("proselflc", ""),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def rendered(page: object, template: str) -> str:
    """A page as HTML.

    Args:
        page: what the template calls `page`.
        template: the path of its file in the package, such as "reporting/templates/report.html".
    """
    css, script = _source("look.css") + _source("report.css"), _source("report.js")
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


def is_ours(path: Path) -> bool:
    """Whether a file is a page that was made here, of a run, of several or of a study."""
    return begins_with(path, f'<meta name="generator" content="{GENERATOR} ')


def begins_with(path: Path, tag: str) -> bool:
    """Whether a tag is among the first of a file; a folder has none."""
    if path.is_dir():
        return False
    try:
        with open_regular(path) as file:
            return tag.encode() in file.read(1000)
    except OSError:
        return False
