"""The HTTP server of the review page, and who may use it.

Every request that does not come from the page itself is refused: another Host, another Origin, no
key, another method, too large a body. An answer reads only the run, its data and the files of the
page.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from typing import Annotated, Literal, TypeVar
from urllib.parse import parse_qs

import numpy as np
from msgspec import Meta
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from proselflc.data.decisions import DecisionChange
from proselflc.errors import InputError
from proselflc.files.typed import Count, Share, convert, decode_json
from proselflc.reviewing.view import SIDES, SOURCES, ReviewView, source
from proselflc.run.review import Among, View

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
_ANY = -1  # in place of a class id


@dataclass(frozen=True)
class StateQuery:
    """The query of `/api/state`."""

    since: Count = 0


@dataclass(frozen=True)
class ViewQuery:
    """The part of a query that selects and orders examples; see `View`."""

    among: Among = "suspects"
    given: Count = _ANY
    suggested: Count = _ANY
    low: Share = 0.0
    high: Share = 1.0
    order: Literal["quality", "teaching", "drawn"] = "quality"
    state: Literal["all", "open", "decided"] = "all"
    line: Count = 0
    offset: Count = 0
    limit: Annotated[int, Meta(ge=1, le=MOST_ITEMS)] = MOST_ITEMS


@dataclass(frozen=True)
class DecisionRequest:
    """A decision about one example, or an undo."""

    index: Count  # the position of the example
    base: Count  # the line of the decision that it replaces; 0 for none
    label: int | None = _ANY  # a class id, or None for "cannot tell"
    undo: bool = False  # whether to take back the decision at `base` instead


@dataclass(frozen=True)
class DecisionsRequest:
    """The body of `/api/decide`, with at most one decision for each example.

    The key is random text that identifies the request, so that repeating it changes nothing,
    and `since` the line of `review.jsonl` up to which the page knows the decisions.
    """

    key: Annotated[str, Meta(pattern=r"\A[0-9A-Za-z]{8,64}\Z")]
    since: Count
    decisions: Annotated[list[DecisionRequest], Meta(min_length=1, max_length=MOST_DECISIONS)]


@dataclass(frozen=True)
class AccessGuard:
    """Passes on requests from the page that was opened with the key, and refuses all others.

    The token is the key in the address of the page, and the session the value of the cookie
    that is set in exchange for it.
    """

    app: ASGIApp
    hosts: frozenset[str]  # `name:port` under which the page may be requested, in lower case
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    session: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)

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

        response = self._refuse_foreign(scope) or self._authenticate(scope)
        await (response or self.app)(scope, receive, send_guarded)

    def _refuse_foreign(self, scope: Scope) -> Response | None:
        """Return the refusal of a request that does not come from the page, or None."""
        method, headers = scope["method"], _headers(scope)
        host, origin = headers.get("host", []), headers.get("origin", [])
        if len(host) != 1 or host[0].lower() not in self.hosts:
            return _text("This page is not served under that name.", 421)
        if method not in ("GET", "HEAD", "POST"):
            return _text("Only GET and POST requests are answered.", 405)
        own = [f"http://{host[0].lower()}"]
        if [name.lower() for name in origin] not in ([], own) or (method == "POST" and not origin):
            return _text("This request does not come from the page.", 403)
        is_opening = scope["path"] == "/" and method == "GET"
        if headers.get("sec-fetch-site", ["none"])[0] not in ("none", "same-origin"):
            is_navigating = headers.get("sec-fetch-mode", [""])[0] == "navigate"
            if not (is_opening and is_navigating):
                return _text("This request does not come from the page.", 403)
        if len(scope.get("query_string", b"")) > LONGEST_QUERY:
            return _text("The address is too long.", 414)
        return _refuse_body(method, headers)

    def _authenticate(self, scope: Scope) -> Response | None:
        """Return a cookie in exchange for the key, a refusal, or None if the cookie is valid."""
        headers = _headers(scope)
        name = cookie_name(headers["host"][0])
        tokens = parse_qs(scope.get("query_string", b"").decode("latin-1")).get("token", [])
        if scope["path"] == "/" and scope["method"] == "GET" and tokens:
            if len(tokens) != 1 or not _equal(tokens[0], self.token):
                return _text(
                    "The key in this address is wrong. Open the address that the review command "
                    "printed last.",
                    403,
                )
            response = Response(status_code=303, headers={"Location": "/"})
            # A strict cookie would be left out when the address is clicked in another page, such
            # as a terminal in a browser. A lax one is sent to open the page, but never to decide.
            response.set_cookie(name, self.session, httponly=True, samesite="lax", path="/")
            return response
        cookie = _cookies(headers).get(name)
        if cookie is None or not _equal(cookie, self.session):
            return _text(
                "Open the address that the review command printed; it contains a key.", 401
            )
        return None


@dataclass(frozen=True)
class Api:
    """Answers the requests of the page."""

    view: ReviewView

    def page(self, request: Request) -> Response:
        content, kind = source(request.url.path)
        return Response(content, media_type=kind)

    def start(self, request: Request) -> Response:
        self.view.review.refresh()
        return JSONResponse(self.view.start())

    def state(self, request: Request) -> Response:
        since = _query(request, StateQuery).since
        self.view.review.refresh()
        return JSONResponse(self.view.state(since))

    def items(self, request: Request) -> Response:
        query = _query(request, ViewQuery)
        rows = self._rows(query)
        self.view.review.refresh()
        items = self.view.items(rows[query.offset : query.offset + query.limit])
        return JSONResponse({"total": len(rows), "offset": query.offset, "items": items})

    def next(self, request: Request) -> Response:
        """Answer with the place of the next undecided suspect, from `offset` on, or null."""
        query = _query(request, ViewQuery)
        rows = self._rows(query)
        self.view.review.refresh()
        is_open = self.view.review.label[rows[query.offset :]] == -1
        place = query.offset + int(is_open.argmax()) if is_open.any() else None
        return JSONResponse({"place": place, "total": len(rows)})

    def item(self, request: Request) -> Response:
        self.view.review.refresh()
        [item] = self.view.items(np.array([self._index(request)], np.int64))
        return JSONResponse(item)

    def example(self, request: Request) -> Response:
        return JSONResponse(self.view.detail(self._index(request)))

    def neighbours(self, request: Request) -> Response:
        return JSONResponse(self.view.neighbours(self._index(request)))

    def map(self, request: Request) -> Response:
        self.view.review.refresh()
        if self.view.map is None:
            raise HTTPException(404, "the run has no map")
        return JSONResponse(self.view.map.to_json())

    def picture(self, request: Request) -> Response:
        size = request.path_params["size"]
        picture = self.view.picture(self._index(request), size) if size in SIDES else None
        if picture is None:
            raise HTTPException(404, "there is no such picture")
        content, kind = picture
        return Response(content, media_type=kind)

    async def decide(self, request: Request) -> Response:
        try:
            body = await request.body()
        except ClientDisconnect:  # the client is gone
            return _text("The request is incomplete.", 400)
        return await run_in_threadpool(self._decide, body)

    def _decide(self, body: bytes) -> Response:
        """Write the decisions, and answer once they are on disk."""
        view, review = self.view, self.view.review
        try:
            request = decode_json(body, DecisionsRequest, "the request")
        except InputError as error:
            raise HTTPException(400, str(error)) from None
        rows = [decision.index for decision in request.decisions]
        if len(set(rows)) != len(rows):
            raise HTTPException(400, "an example may appear only once in a request")
        changes = [self._change(decision) for decision in request.decisions]
        conflicts = review.decisions.add(changes, view.by, request.key)
        review.refresh()
        pairs = list(zip(rows, conflicts, strict=True))
        return JSONResponse(
            {
                "conflicts": [view.standing(i) for i, conflict in pairs if conflict],
                "done": [view.standing(i) for i, conflict in pairs if not conflict],
                **view.state(request.since),
            }
        )

    def _change(self, decision: DecisionRequest) -> DecisionChange:
        review, index = self.view.review, decision.index
        if index >= len(review.ids) or not review.can_be_decided(index):
            raise HTTPException(
                400, "that example has a label and is not a suspect, duplicate, outlier or drawn"
            )
        names = review.names
        # Without a label, the given class is the last of these.
        labels = (*names, "")[review.given[index]], names[review.suggested[index]]
        if decision.undo:
            return DecisionChange(review.ids[index], None, decision.base, True, *labels)
        label = None if decision.label is None else names[self._class(decision.label)]
        return DecisionChange(review.ids[index], label, decision.base, False, *labels)

    def _class(self, label: int) -> int:
        last = len(self.view.review.names) - 1
        if not 0 <= label <= last:
            raise HTTPException(400, f"a class must be a whole number from 0 to {last}")
        return label

    def _index(self, request: Request) -> int:
        index: int = request.path_params["index"]
        if index >= len(self.view.review.ids):
            raise HTTPException(404, "there is no such example")
        return index

    def _rows(self, query: ViewQuery) -> np.ndarray:
        """Return the positions of the selected suspects, in the order of the query."""
        return self.view.review.view(
            View(
                among=query.among,
                given=None if query.given == _ANY else self._class(query.given),
                suggested=None if query.suggested == _ANY else self._class(query.suggested),
                low=query.low,
                high=query.high,
                order=query.order,
                state=query.state,
                line=query.line,
            )
        )


def create_app(view: ReviewView, hosts: frozenset[str]) -> AccessGuard:
    """Return the application that serves the page of a review under the names of `hosts`."""
    api = Api(view)
    get = {
        **dict.fromkeys(SOURCES, api.page),
        "/api/start": api.start,
        "/api/state": api.state,
        "/api/items": api.items,
        "/api/next": api.next,
        "/api/item/{index:int}": api.item,
        "/api/example/{index:int}": api.example,
        "/api/neighbours/{index:int}": api.neighbours,
        "/api/map": api.map,
        "/picture/{size}/{index:int}": api.picture,
    }
    app = Starlette(
        routes=[
            *(Route(address, answer, methods=["GET"]) for address, answer in get.items()),
            Route("/api/decide", api.decide, methods=["POST"]),
        ],
        exception_handlers={HTTPException: _http_error, InputError: _input_error},
    )
    app.router.redirect_slashes = False
    return AccessGuard(app, hosts)


def cookie_name(host: str) -> str:
    """Return a name with the port: ports share cookies, and two reviews must not mix theirs."""
    return f"proselflc-review-{host.rpartition(':')[2]}"


def _refuse_body(method: str, headers: Mapping[str, list[str]]) -> Response | None:
    if method != "POST":
        if headers.get("content-length", ["0"]) != ["0"] or "transfer-encoding" in headers:
            return _text("A GET request has no body.", 400)
        return None
    kind = headers.get("content-type", [""])[0].partition(";")[0].strip().lower()
    if kind != "application/json":
        return _text("Decisions must be sent as application/json.", 415)
    length = headers.get("content-length", [])
    if len(length) != 1 or not length[0].isascii() or not length[0].isdigit():
        return _text("The request must state the length of its body.", 411)
    if len(length[0]) > 9 or int(length[0]) > LARGEST_BODY:
        return _text(f"A body may have at most {LARGEST_BODY:,} bytes.", 413)
    return None


def _headers(scope: Scope) -> dict[str, list[str]]:
    headers: dict[str, list[str]] = {}
    for name, value in scope["headers"]:
        headers.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
    return headers


def _cookies(headers: Mapping[str, list[str]]) -> dict[str, str]:
    cookies: SimpleCookie = SimpleCookie()
    try:
        cookies.load("; ".join(headers.get("cookie", [])))
    except CookieError:
        return {}
    return {name: cookie.value for name, cookie in cookies.items()}


def _equal(text: str, secret: str) -> bool:
    """Compare in constant time."""
    return hmac.compare_digest(text.encode("utf-8", "replace"), secret.encode())


def _text(text: str, status: int) -> Response:
    return PlainTextResponse(text + "\n", status)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": str(error.detail)}, error.status_code)


async def _input_error(request: Request, error: Exception) -> Response:
    return JSONResponse({"error": str(error)}, 500)


def _query(request: Request, kind: type[T]) -> T:
    """Return the query as the given type; an empty value counts as left out."""
    values = {name: _number(text) for name, text in request.query_params.items() if text}
    try:
        return convert(values, kind, "the query")
    except InputError as error:
        raise HTTPException(400, str(error)) from None


def _number(text: str) -> int | float | str:
    """Return the number that a text stands for, if any; `1e9` is not a whole number."""
    if text.isascii() and text.isdigit() and len(text) <= 15:
        return int(text)
    try:
        return float(text[:20])
    except ValueError:
        return text
