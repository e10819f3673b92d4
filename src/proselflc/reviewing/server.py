"""Who may look at a review and decide: the server of its page.

Everything is refused that does not come from the page itself: another Host, another Origin, no key,
another method, too large a body. Nothing is read for an answer but the run, its data and the
files that the page is made of.
"""

from __future__ import annotations

import hmac
import json
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from typing import Any, TypeVar
from urllib.parse import parse_qs

import numpy as np
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from proselflc.data.labels.decisions import Wanted
from proselflc.errors import InputError
from proselflc.reviewing.view import SIDES, SOURCES, Sheet, source
from proselflc.run.review import View

LARGEST_BODY = 1 << 17
LONGEST_QUERY = 2000
MOST_ITEMS = 200  # of a list, in an answer
MOST_DECISIONS = 500  # in a request

_HEADERS = {
    "Content-Security-Policy": "; ".join(
        (
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self'",
            "img-src 'self'",
            "connect-src 'self'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        )
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}

T = TypeVar("T")


@dataclass(frozen=True)
class Gate:
    """Lets through what comes from the page, opened with the key, and nothing else.

    Attributes:
        app: what is behind it.
        hosts: `name:port` that the page may be asked for by.
        token: the key in the address that is opened.
        pass_: what the cookie holds that is given for it.
    """

    app: ASGIApp
    hosts: frozenset[str]
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    pass_: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008})
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = [(k.lower().encode(), v.encode()) for k, v in _HEADERS.items()]
                message = {**message, "headers": [*message["headers"], *own]}
            await send(message)

        answer = self._refusal(scope) or self._entrance(scope)
        await (answer or self.app)(scope, receive, send_guarded)

    def _refusal(self, scope: Scope) -> Response | None:
        """Why a request goes no further, or None."""
        method, headers = scope["method"], _headers(scope)
        host, origin = headers.get("host", []), headers.get("origin", [])
        if len(host) != 1 or host[0].lower() not in self.hosts:
            return _said("This page is not served under that name.", 421)
        if method not in ("GET", "HEAD", "POST"):
            return _said("Only GET and POST are answered.", 405)
        own = [f"http://{host[0].lower()}"]
        if [one.lower() for one in origin] not in ([], own) or (method == "POST" and not origin):
            return _said("That request does not come from the page.", 403)
        is_opening = scope["path"] == "/" and method == "GET"
        if headers.get("sec-fetch-site", ["none"])[0] not in ("none", "same-origin"):
            is_navigating = headers.get("sec-fetch-mode", [""])[0] == "navigate"
            if not (is_opening and is_navigating):
                return _said("That request does not come from the page.", 403)
        if len(scope.get("query_string", b"")) > LONGEST_QUERY:
            return _said("That address is too long.", 414)
        return _refused_body(method, headers)

    def _entrance(self, scope: Scope) -> Response | None:
        """A cookie for the key, a refusal without either, or None."""
        headers = _headers(scope)
        name = cookie_name(headers["host"][0])
        tokens = parse_qs(scope.get("query_string", b"").decode("latin-1")).get("token", [])
        if scope["path"] == "/" and scope["method"] == "GET" and tokens:
            if len(tokens) != 1 or not _same(tokens[0], self.token):
                return _said(
                    "The key in that address is not the right one: open the address that proselflc "
                    "review has printed last.",
                    403,
                )
            answer = Response(status_code=303, headers={"Location": "/"})
            # Strict would leave it out where the address was clicked on in another page, such as a
            # terminal in a browser. Lax sends it along to open the page, and never to decide.
            answer.set_cookie(name, self.pass_, httponly=True, samesite="lax", path="/")
            return answer
        held = _cookies(headers).get(name)
        if held is None or not _same(held, self.pass_):
            return _said("Open the address that proselflc review has printed: it holds a key.", 401)
        return None


@dataclass(frozen=True)
class Desk:
    """Answers the page.

    Attributes:
        sheet: what there is to say.
    """

    sheet: Sheet

    def page(self, request: Request) -> Response:
        content, kind = source(request.url.path)
        return Response(content, media_type=kind)

    def start(self, request: Request) -> Response:
        self.sheet.review.refresh()
        return JSONResponse(self.sheet.start())

    def state(self, request: Request) -> Response:
        since = _whole(request, "since", 0, 1 << 40) or 0
        self.sheet.review.refresh()
        return JSONResponse(self.sheet.state(since))

    def items(self, request: Request) -> Response:
        rows = self.sheet.review.view(self._view(request))
        offset = _whole(request, "offset", 0, 1 << 40) or 0
        limit = _whole(request, "limit", 1, MOST_ITEMS) or MOST_ITEMS
        self.sheet.review.refresh()
        shown = self.sheet.items(rows[offset : offset + limit])
        return JSONResponse({"total": len(rows), "offset": offset, "items": shown})

    def next(self, request: Request) -> Response:
        """The place of the first undecided suspect from a place on, or null."""
        rows = self.sheet.review.view(self._view(request))
        begin = _whole(request, "from", 0, 1 << 40) or 0
        self.sheet.review.refresh()
        is_open = self.sheet.review.label[rows[begin:]] == -1
        place = begin + int(is_open.argmax()) if is_open.any() else None
        return JSONResponse({"place": place, "total": len(rows)})

    def item(self, request: Request) -> Response:
        self.sheet.review.refresh()
        [one] = self.sheet.items(np.array([self._index(request)], np.int64))
        return JSONResponse(one)

    def example(self, request: Request) -> Response:
        return JSONResponse(self.sheet.detail(self._index(request)))

    def neighbours(self, request: Request) -> Response:
        return JSONResponse(self.sheet.neighbours(self._index(request)))

    def picture(self, request: Request) -> Response:
        found = self.sheet.picture(self._index(request), request.path_params["size"])
        if found is None:
            raise HTTPException(404, "there is no picture of it")
        return Response(found.content, media_type=found.kind)

    async def decide(self, request: Request) -> Response:
        try:
            body = await request.body()
        except ClientDisconnect:  # in the middle of it: there is no one to answer
            return _said("The request did not arrive as a whole.", 400)
        return await run_in_threadpool(self._decide, body)

    def _decide(self, body: bytes) -> Response:
        """Write what was decided; only when that is on disk is there an answer."""
        review = self.sheet.review
        key, since, wanted, rows = self._wanted(body)
        against = review.decisions.add(wanted, self.sheet.by, key)
        review.refresh()
        conflicts = [self.sheet.standing(i) for i, one in zip(rows, against, strict=True) if one]
        own = [self.sheet.standing(i) for i, one in zip(rows, against, strict=True) if not one]
        return JSONResponse({"conflicts": conflicts, "done": own, **self.sheet.state(since)})

    def _wanted(self, body: bytes) -> tuple[str, int, list[Wanted], list[int]]:
        try:
            value = json.loads(body)
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            raise HTTPException(400, "expected a JSON object")
        key, since, given = (value.get(name) for name in ("key", "since", "decisions"))
        if not isinstance(key, str) or not 8 <= len(key) <= 64 or not key.isalnum():
            raise HTTPException(400, "expected a key of 8 to 64 letters and digits")
        if not isinstance(given, list) or not 1 <= len(given) <= MOST_DECISIONS:
            raise HTTPException(400, f"expected 1 to {MOST_DECISIONS} decisions")
        wanted = [self._decision(one) for one in given]
        rows = [self.sheet.review.position(one.example) for one in wanted]
        if len(set(rows)) != len(rows):
            raise HTTPException(400, "expected no example twice")
        return key, _in_range(since, 0, 1 << 40, "since"), wanted, rows

    def _decision(self, value: object) -> Wanted:
        review = self.sheet.review
        if not isinstance(value, dict):
            raise HTTPException(400, "expected a decision")
        index = _in_range(value.get("index"), 0, len(review.ids) - 1, "index")
        base = _in_range(value.get("base"), 0, 1 << 40, "base")
        if not review.is_suspect(index):
            raise HTTPException(400, "that example is no suspect")
        names = review.names
        shown = names[review.given[index]], names[review.suggested[index]]
        if value.get("undo") is True:
            return Wanted(review.ids[index], None, base, True, *shown)
        label = value.get("label", -1)
        if label is not None:
            label = names[_in_range(label, 0, len(names) - 1, "label")]
        return Wanted(review.ids[index], label, base, False, *shown)

    def _index(self, request: Request) -> int:
        index: int = request.path_params["index"]
        if index >= len(self.sheet.review.ids):
            raise HTTPException(404, "there is no such example")
        return index

    def _view(self, request: Request) -> View:
        last = len(self.sheet.review.names) - 1
        return View(
            given=_whole(request, "given", 0, last),
            suggested=_whole(request, "suggested", 0, last),
            low=_share(request, "low", 0.0),
            high=_share(request, "high", 1.0),
            order=_word(
                request, "order", {"quality": "quality", "teaching": "teaching", "drawn": "drawn"}
            ),
            state=_word(request, "state", {"all": "all", "open": "open", "decided": "decided"}),
            line=_whole(request, "line", 0, 1 << 40) or 0,
        )


def served(sheet: Sheet, hosts: frozenset[str]) -> Gate:
    """The page of a review, for a server to serve.

    Args:
        sheet: what it shows.
        hosts: `name:port` that it may be asked for by, in small letters.
    """
    desk = Desk(sheet)
    numbered = "{index:int}"
    app = Starlette(
        routes=[
            *(Route(address, desk.page, methods=["GET"]) for address in SOURCES),
            Route("/api/start", desk.start, methods=["GET"]),
            Route("/api/state", desk.state, methods=["GET"]),
            Route("/api/items", desk.items, methods=["GET"]),
            Route("/api/next", desk.next, methods=["GET"]),
            Route(f"/api/item/{numbered}", desk.item, methods=["GET"]),
            Route(f"/api/example/{numbered}", desk.example, methods=["GET"]),
            Route(f"/api/neighbours/{numbered}", desk.neighbours, methods=["GET"]),
            *(
                Route(f"/picture/{size}/{numbered}", _sized(desk, size), methods=["GET"])
                for size in SIDES
            ),
            Route("/api/decide", desk.decide, methods=["POST"]),
        ],
        exception_handlers={HTTPException: _http_error, InputError: _input_error},
    )
    app.router.redirect_slashes = False
    return Gate(app, hosts)


def cookie_name(host: str) -> str:
    """Cookies are shared between ports; two reviews must not take each other's."""
    return f"proselflc-review-{host.rpartition(':')[2]}"


def _sized(desk: Desk, size: str) -> Callable[[Request], Response]:
    def picture(request: Request) -> Response:
        request.path_params["size"] = size
        return desk.picture(request)

    return picture


def _refused_body(method: str, headers: Mapping[str, list[str]]) -> Response | None:
    if method != "POST":
        if headers.get("content-length", ["0"]) != ["0"] or "transfer-encoding" in headers:
            return _said("A question has no body.", 400)
        return None
    kind = headers.get("content-type", [""])[0].partition(";")[0].strip().lower()
    if kind != "application/json":
        return _said("Decisions are sent as application/json.", 415)
    length = headers.get("content-length", [])
    if len(length) != 1 or not length[0].isascii() or not length[0].isdigit():
        return _said("The length of the body must be said.", 411)
    if len(length[0]) > 9 or int(length[0]) > LARGEST_BODY:
        return _said(f"A body has at most {LARGEST_BODY:,} bytes.", 413)
    return None


def _headers(scope: Scope) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, value in scope["headers"]:
        found.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
    return found


def _cookies(headers: Mapping[str, list[str]]) -> dict[str, str]:
    cookie: SimpleCookie = SimpleCookie()
    try:
        cookie.load("; ".join(headers.get("cookie", [])))
    except CookieError:
        return {}
    return {name: one.value for name, one in cookie.items()}


def _same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode("utf-8", "replace"), other.encode())


def _said(words: str, status: int) -> Response:
    return PlainTextResponse(words + "\n", status)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": str(error.detail)}, error.status_code)


async def _input_error(request: Request, error: Exception) -> Response:
    return JSONResponse({"error": str(error)}, 500)


def _in_range(value: Any, low: int, high: int, name: str) -> int:
    if type(value) is not int or not low <= value <= high:
        raise HTTPException(400, f"{name} must be a whole number from {low} to {high}")
    return value


def _whole(request: Request, name: str, low: int, high: int) -> int | None:
    text = request.query_params.get(name, "")
    if text == "":
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 15:
        raise HTTPException(400, f"{name} must be a whole number")
    return _in_range(int(text), low, high, name)


def _share(request: Request, name: str, default: float) -> float:
    text = request.query_params.get(name, "")
    if text == "":
        return default
    try:
        value = float(text[:20])
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise HTTPException(400, f"{name} must be a number from 0 to 1")
    return value


def _word(request: Request, name: str, known: Mapping[str, T]) -> T:
    text = request.query_params.get(name) or next(iter(known))
    if text not in known:
        raise HTTPException(400, f"{name} must be one of {', '.join(known)}")
    return known[text]
