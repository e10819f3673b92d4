"""A real browser, and what a page does in it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Dialog, Page, expect, sync_playwright

FLAGS = (
    "--no-sandbox",  # root, as in a container, may not have one
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


PATIENCE = 30_000  # milliseconds; a machine may be busy

expect.set_options(timeout=PATIENCE)


@dataclass
class Visit:
    """A page that was opened.

    Attributes:
        page: as playwright drives it.
        messages: warnings and errors of its console, and errors of its script.
        requests: addresses that it asked for.
        refused: why a request came to nothing.
        dialogs: what it said in windows of its own.
    """

    page: Page
    messages: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    refused: list[str | None] = field(default_factory=list)
    dialogs: list[str] = field(default_factory=list)


def _dismiss(dialog: Dialog, seen: Visit) -> None:
    seen.dialogs.append(dialog.message)
    dialog.dismiss()


@pytest.fixture(scope="session", autouse=True)  # before anything is made for a page
def chromium() -> str:
    """Where Debian's Chromium is."""
    path = shutil.which("chromium")
    if path is None:
        pytest.skip("Chromium is not installed; `make browser` installs it on Debian")
    return path


@pytest.fixture(scope="module")  # while it runs, no other test of its process could use asyncio
def browser(chromium: str) -> Iterator[Browser]:
    """Chromium, running."""
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=chromium, args=list(FLAGS))
        yield launched
        launched.close()


@pytest.fixture
def visit(browser: Browser) -> Iterator[Callable[..., Visit]]:
    """Opens a page; whatever is done there, it must not complain, load anything or pop up."""
    visits: list[tuple[Visit, str]] = []

    def go(path: Path, *, width: int = 1280, height: int = 900, **options: Any) -> Visit:
        context = browser.new_context(
            viewport={"width": width, "height": height}, reduced_motion="reduce", **options
        )
        context.set_default_timeout(PATIENCE)
        seen = Visit(context.new_page())
        page = seen.page
        page.on("pageerror", lambda error: seen.messages.append(str(error)))
        page.on("request", lambda request: seen.requests.append(request.url))
        page.on("requestfailed", lambda request: seen.refused.append(request.failure))
        page.on("console", lambda said: seen.messages.append(f"{said.type}: {said.text}"))
        page.on("dialog", lambda shown: _dismiss(shown, seen))
        page.goto(path.as_uri())
        visits.append((seen, path.as_uri()))
        return seen

    yield go
    for seen, address in visits:
        seen.page.wait_for_load_state("load")
        seen.page.context.close()
        assert seen.messages == []
        assert set(seen.requests) == {address}
        assert seen.dialogs == []
