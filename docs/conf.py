"""How Sphinx makes the site from the pages here: `make site`, or `sphinx-build docs build/site`.

What the code says itself is written into docs/reference/ first, by tools/site_pages.py.
"""

import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tools")]

import site_pages  # noqa: E402

import proselflc  # noqa: E402

project = "proselflc"
author = "the proselflc contributors"
release = version = proselflc.__version__
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
]
source_suffix = {".md": "markdown"}
exclude_patterns = ["images"]
highlight_language = "none"
smartquotes = False  # -- begins an option
default_role = "code"

myst_heading_anchors = 3
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
napoleon_use_ivar = True
# Types of other libraries: their pages are elsewhere, and the site asks for nothing elsewhere.
nitpick_ignore_regex = [(r"py:.*", r"(?!proselflc\.[A-Z]).*")]

html_theme = "furo"
html_title = "proselflc"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
copybutton_exclude = ".linenos, .gp, .go"


def _without_links_out(app: Any, name: str, source: list[str]) -> None:
    """Name the pages of the repository that are not of the site; a link would lead nowhere."""
    here = Path(app.env.doc2path(name)).parent

    def plain(link: re.Match[str]) -> str:
        leads = (here / link[1]).resolve()
        inside = leads.is_relative_to(app.srcdir) or not leads.is_relative_to(ROOT)
        return link[0] if inside else f"`{leads.relative_to(ROOT)}`"

    source[0] = re.sub(r"\[[^]]*\]\((\.\./[^):]+\.md)\)", plain, source[0])


def _skipped(app: Any, kind: str, name: str, member: Any, skip: bool, options: Any) -> bool | None:
    """Leave out what scikit-learn adds to every estimator, which refers to its own pages."""
    return True if re.fullmatch(r"set_\w+_request", name) else None


def setup(app: Any) -> None:
    app.connect("autodoc-skip-member", _skipped)
    app.connect("builder-inited", lambda app: site_pages.write(Path(app.srcdir) / "reference"))
    app.connect("source-read", _without_links_out)
