"""Requests to the review server within this process, without a network."""

from __future__ import annotations

import asyncio
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

Action = Callable[[io.TextIOWrapper], tuple[int, str]]
ADDRESSES = (
    *("/api/start", "/api/state?since=0", "/api/items?limit=5", "/api/next", "/api/example/1"),
    *("/api/item/1", "/api/neighbours/1", "/picture/small/1", "/"),
)
_loops: list[asyncio.AbstractEventLoop] = []


def close() -> None:
    """Close the event loops of this process."""
    while _loops:
        _loops.pop().close()


def review(run: str) -> Action:
    """Return an action that starts a review and makes the first requests of its page."""

    def action(stdout: io.TextIOWrapper) -> tuple[int, str]:
        import uvicorn

        from proselflc.cli.app import run as run_line

        answers: list[str] = []

        def serve(self: uvicorn.Server, sockets: Any = None) -> None:
            for address in ADDRESSES:
                status, text = asked(self.config.app, "GET", address)
                answers.append(
                    f"{address} {status} {text if status != 200 or 'api' in address else len(text)}"
                )

        before = uvicorn.Server.run
        uvicorn.Server.run = serve  # type: ignore[method-assign]
        try:
            code = run_line(["review", run, "--port", "0", "--no-browser", "--name", "me"])
        finally:
            uvicorn.Server.run = before  # type: ignore[method-assign]
        # What the page says of damage is said to the user, as a note on stderr is.
        for answer in answers:
            for mark in ('"why":"', '"curveGone":"', '"gone":"'):
                said = answer.partition(mark)[2].partition('"')[0]
                if said:
                    sys.stderr.write(f"note: {said}\n")
        return code, "\n".join(answers)

    return action


def decide(run: str, file: Path) -> Action:
    """Return an action that posts the content of a file as a decision."""

    def action(stdout: io.TextIOWrapper) -> tuple[int, str]:
        try:
            body = file.read_bytes() if file.is_file() and file.stat().st_size < 1 << 20 else b""
        except OSError:
            body = b""
        return _answered(*asked(_gate(run), "POST", "/api/decide", body))

    return action


def questions(run: str, file: Path) -> Action:
    """Return an action that requests the addresses in a file."""

    def action(stdout: io.TextIOWrapper) -> tuple[int, str]:
        gate, text = _gate(run), ""
        content = file.read_bytes() if file.is_file() and file.stat().st_size < 1 << 20 else b"/x"
        for address in content.decode("latin-1").split("\n"):
            status, answer = asked(gate, "GET", address[:5000] or "/")
            text += f"{status} {answer}\n"
        return 0, text

    return action


def _gate(run: str) -> Any:
    from proselflc.reviewing.server import create_app
    from proselflc.reviewing.view import ReviewView
    from proselflc.run.reader import load_run
    from proselflc.run.review import Review

    return create_app(ReviewView(Review(load_run(run)), "me"), frozenset(("127.0.0.1:1",)))


def _answered(status: int, text: str) -> tuple[int, str]:
    if status == 200:
        found = json.loads(text)
        return 0, json.dumps([[one["index"], one["label"]] for one in found["done"]])
    sys.stderr.write(text.rstrip("\n").replace("\n", " ") + "\n")
    return 2, ""


def asked(gate: Any, method: str, address: str, body: bytes = b"") -> tuple[int, str]:
    """Send a request as the page would, and return status and body of the response."""
    from proselflc.reviewing.server import cookie_name

    host = sorted(gate.hosts)[0]
    path, _, query = address.partition("?")
    headers = {"host": host, "cookie": f"{cookie_name(host)}={gate.session}"}
    if method == "POST":
        headers |= {"origin": f"http://{host}", "content-type": "application/json"}
        headers |= {"content-length": str(len(body))}
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "path": path,
        "raw_path": path.encode("latin-1", "replace"),
        "query_string": query.encode("latin-1", "replace"),
        "headers": [(k.encode(), v.encode()) for k, v in headers.items()],
        "scheme": "http",
        "server": ("127.0.0.1", 1),
        "client": ("127.0.0.1", 2),
        "root_path": "",
    }
    status, pieces = 0, [b""]

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]
        else:
            pieces.append(message.get("body", b""))

    if not _loops:
        _loops.append(asyncio.new_event_loop())
    _loops[0].run_until_complete(gate(scope, receive, send))
    return status, b"".join(pieces).decode("utf-8", "replace")
