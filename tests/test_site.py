"""The site builds without a warning, says what the code says, and asks for nothing elsewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import proselflc
from proselflc import methods
from proselflc.cli.app import app
from proselflc.run.config import Config, recipes

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tools"))

import site_pages  # noqa: E402


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "sphinx", "-W", "--keep-going", "-n", "-q"),
            *("-d", str(out / "doctrees"), str(ROOT / "docs"), str(out / "html")),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return out / "html"


def test_every_page_is_in_the_site(site: Path) -> None:
    pages = {path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")}
    assert len(pages) > 20
    contents = (site / "index.html").read_text(encoding="utf-8")
    for page in pages:
        assert (site / page.with_suffix(".html")).is_file()
        if page.name != "index.md":
            reached = contents.count(f'href="{page.with_suffix(".html")}"')
            assert reached, f"no list of contents leads to {page}"


def test_nothing_is_asked_for_elsewhere(site: Path) -> None:
    """Pages can be read offline and do not track their readers."""
    loaded = re.compile(
        r"""<(?:script|img|iframe)[^>]*?src=["'](?!data:)([^"']+)|<link[^>]*?href=["']([^"']+)"""
    )
    seen = 0
    for page in site.rglob("*.html"):
        for found in loaded.finditer(page.read_text(encoding="utf-8")):
            address = found[1] or found[2]
            assert "//" not in address, f"{page.name} loads {address}"
            seen += 1
    for style in site.rglob("*.css"):
        text = style.read_text(encoding="utf-8")
        assert not re.search(r"@import|url\(\s*[\"']?(?:https?:)?//", text), style.name
    assert seen > 100


def test_every_method_has_its_section(site: Path) -> None:
    text = (site / "reference" / "methods.html").read_text(encoding="utf-8")
    for name, method in methods.every().items():
        assert f'id="method-{name.replace("_", "-")}"' in text
        assert f">{name}</span>" in text or f'<span class="pre">{name}' in text
        assert method.when.endswith("."), f"{name} does not say when to use it"
        assert method.when.count(". ") <= 1, f"{name} says it in more than two sentences"


def test_commands_and_options_are_all_there() -> None:
    pages = site_pages.pages()
    commands = set(re.findall(r"^## (.+)$", pages["commands.md"], re.M))
    assert commands == {name for name in app if not name.startswith("-")}
    options = set(re.findall(r"^\| `(--[\w.-]+)`", pages["configuration.md"], re.M))
    wanted = {f"--{name.replace('_', '-')}" for name in Config().values()}
    assert {one.lower() for one in options} == {one.lower() for one in wanted}
    assert set(re.findall(r"^### (.+)$", pages["configuration.md"], re.M)) == set(recipes())
    for column in (page for page in pages.values() if "| option |" in page):
        assert "||" not in column


def test_every_public_name_is_documented(site: Path) -> None:
    text = (site / "reference" / "python.html").read_text(encoding="utf-8")
    for name in set(proselflc.__all__) - {"functional"}:
        assert f'id="proselflc.{name}"' in text, name
