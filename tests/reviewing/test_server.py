"""Nobody in: what does not come from the page, opened with its key, is refused over real HTTP."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from proselflc.auditing.mapping import points
from proselflc.auditing.neighbours import neighbours_of
from proselflc.auditing.plain_features import PlainFeatures

Headers = list[tuple[str, str]]
GOOD = {"key": "0123456789ab", "since": 0, "decisions": [{"index": 0, "label": 1, "base": 0}]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images in folders, one of which is none, and a file that must not be served."""
    folder = tmp_path_factory.mktemp("review")
    for k, name in enumerate(("cat", "dog", "fox") * 4):
        place = folder / "photos" / name
        place.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (64, 40), (20 * k, 100, 50)).save(place / f"{k}.png")
    (folder / "secret.txt").write_text("a file that must not be served")
    return folder


@pytest.fixture(scope="module")
def run(folder: Path, reviewable: Callable[..., Path]) -> Path:
    ids = [f"{('cat', 'dog', 'fox')[k % 3]}/{k}.png" for k in range(12)]
    return reviewable(folder, ids=ids, data=str(folder / "photos"))


@pytest.fixture(scope="module")
def server(run: Path, serve: Callable[..., Any]) -> Any:
    server = serve(run)
    server.enter()
    return server


def headers(server: Any, **changes: str | None) -> Headers:
    """Those of the page, some of them changed or left out."""
    own = {
        "Host": server.host,
        "Cookie": server.cookie,
        "Origin": f"http://{server.host}",
        "Content-Type": "application/json",
        **{name.replace("_", "-"): value for name, value in changes.items()},
    }
    return [(name, value) for name, value in own.items() if value is not None]


EVIL = "http://evil.example"
GETS: list[tuple[str, str, dict[str, str | None], int]] = [
    ("no cookie", "/", {"Cookie": None}, 401),
    ("no cookie, script", "/review/start.js", {"Cookie": None}, 401),
    ("no cookie, data", "/api/start", {"Cookie": None}, 401),
    ("no cookie, picture", "/picture/large/0", {"Cookie": None}, 401),
    ("no cookie, map", "/api/map", {"Cookie": None}, 401),
    ("wrong token", "/?token=wrong", {"Cookie": None}, 403),
    ("wrong token with a cookie", "/?token=wrong", {}, 403),
    ("empty token", "/?token=", {"Cookie": None}, 401),
    ("two tokens", "/?token=TOKEN&token=wrong", {"Cookie": None}, 403),
    ("token elsewhere", "/api/start?token=TOKEN", {"Cookie": None}, 401),
    ("wrong cookie", "/api/start", {"Cookie": "NAME=wrong"}, 401),
    ("token as cookie", "/api/start", {"Cookie": "NAME=TOKEN"}, 401),
    ("cookie of another port", "/api/start", {"Cookie": "OTHER"}, 401),
    ("damaged cookie", "/api/start", {"Cookie": 'NAME="\\'}, 401),
    ("another host", "/api/start", {"Host": "evil.example"}, 421),
    ("another port", "/api/start", {"Host": "127.0.0.1:1"}, 421),
    ("no port", "/api/start", {"Host": "127.0.0.1"}, 421),
    ("host with a user", "/api/start", {"Host": "HOST@evil.example"}, 421),
    ("empty host", "/api/start", {"Host": ""}, 421),
    ("host with a dot", "/api/start", {"Host": "localhost.:PORT"}, 421),
    ("another origin", "/api/start", {"Origin": EVIL}, 403),
    ("no origin known", "/api/start", {"Origin": "null"}, 403),
    ("from another site", "/api/start", {"Sec_Fetch_Site": "cross-site"}, 403),
    ("from another port", "/picture/large/0", {"Sec_Fetch_Site": "same-site"}, 403),
    ("a frame of another site", "/review.css", {"Sec_Fetch_Site": "cross-site"}, 403),
    ("script of another site", "/", {"Sec_Fetch_Site": "cross-site"}, 403),
    ("asked to decide", "/api/decide", {}, 405),
    ("a body", "/api/start", {"Content_Length": "3"}, 400),
    ("up", "/../../etc/passwd", {}, 404),
    ("up, hidden", "/%2e%2e/%2e%2e/etc/passwd", {}, 404),
    ("up, from pictures", "/picture/large/../../../secret.txt", {}, 404),
    ("up, hidden slashes", "/picture/large/..%2f..%2fsecret.txt", {}, 404),
    ("up, backslashes", "/picture/large/..\\..\\secret.txt", {}, 404),
    ("absolute", "//etc/passwd", {}, 404),
    ("the run's files", "/review.jsonl", {}, 404),
    ("the run's labels", "/labels.npz", {}, 404),
    ("another template", "/report.html", {}, 404),
    ("a template by its name", "/review.html", {}, 404),
    ("a name for a number", "/picture/large/cat", {}, 404),
    ("a negative number", "/picture/large/-1", {}, 404),
    ("beyond the last", "/picture/large/12", {}, 404),
    ("far beyond the last", "/api/example/99999999999999999999", {}, 404),
    ("another size", "/picture/huge/0", {}, 404),
    ("nul", "/picture/large/0%00", {}, 404),
    ("a slash more", "/api/start/", {}, 404),
    ("negative place", "/api/items?offset=-1", {}, 400),
    ("too many at once", "/api/items?limit=100000", {}, 400),
    ("no order", "/api/items?order=__class__", {}, 400),
    ("no list", "/api/items?among=everything", {}, 400),
    ("no class", "/api/items?given=3", {}, 400),
    ("no probability", "/api/items?low=nan", {}, 400),
    ("no line", "/api/state?since=1e9", {}, 400),
    ("too long", "/api/items?given=" + "0" * 3000, {}, 414),
]


@pytest.mark.parametrize(
    ("path", "changes", "status"), [one[1:] for one in GETS], ids=[one[0] for one in GETS]
)
def test_what_is_asked_for_otherwise_is_refused(
    server: Any, path: str, changes: dict[str, str | None], status: int
) -> None:
    token = server.address.partition("token=")[2]
    name, _, value = server.cookie.partition("=")
    words = {
        "TOKEN": token,
        "NAME": name,
        "OTHER": f"proselflc-review-1={value}",
        "HOST": server.host,
        "PORT": str(server.port),
    }

    def put(text: str) -> str:
        for word, meant in words.items():
            text = text.replace(word, meant)
        return text

    changes = {"Origin": None, "Content_Type": None, **changes}
    filled = {k: None if v is None else put(v) for k, v in changes.items()}
    body = b"abc" if "Content_Length" in changes else b""
    found, answered, content = server.send("GET", put(path), headers(server, **filled), body)
    assert found == status, content
    assert_guarded(answered)
    assert b"a file that must not be served" not in content
    assert b"root:" not in content
    assert token.encode() not in content
    assert value.encode() not in content


def assert_guarded(answered: dict[str, str]) -> None:
    policy = answered["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert answered["x-content-type-options"] == "nosniff"
    assert answered["referrer-policy"] == "no-referrer"
    assert answered["cache-control"] == "no-store"
    assert "access-control-allow-origin" not in answered


def changed(**changes: object) -> dict[str, object]:
    return {**GOOD, **changes}


def one(**changes: object) -> dict[str, object]:
    return changed(decisions=[{"index": 0, "label": 1, "base": 0, **changes}])


POSTS: list[tuple[str, str, dict[str, str | None], object, int]] = [
    ("no cookie", "/api/decide", {"Cookie": None}, GOOD, 401),
    ("no cookie but the token", "/?token=TOKEN", {"Cookie": None}, GOOD, 401),
    ("no origin", "/api/decide", {"Origin": None}, GOOD, 403),
    ("another origin", "/api/decide", {"Origin": EVIL}, GOOD, 403),
    ("origin unknown", "/api/decide", {"Origin": "null"}, GOOD, 403),
    ("another scheme", "/api/decide", {"Origin": "https://HOST"}, GOOD, 403),
    ("another port", "/api/decide", {"Origin": "http://127.0.0.1:1"}, GOOD, 403),
    ("a longer origin", "/api/decide", {"Origin": "http://HOST.evil.example"}, GOOD, 403),
    (
        "another host, own origin",
        "/api/decide",
        {"Host": "evil.example", "Origin": EVIL},
        GOOD,
        421,
    ),
    ("from another site", "/api/decide", {"Sec_Fetch_Site": "cross-site"}, GOOD, 403),
    ("from another port", "/api/decide", {"Sec_Fetch_Site": "same-site"}, GOOD, 403),
    ("as text", "/api/decide", {"Content_Type": "text/plain"}, GOOD, 415),
    ("as a form", "/api/decide", {"Content_Type": "application/x-www-form-urlencoded"}, GOOD, 415),
    ("as nothing", "/api/decide", {"Content_Type": None}, GOOD, 415),
    ("claimed too large", "/api/decide", {"Content_Length": "999999999999"}, GOOD, 413),
    ("too large", "/api/decide", {}, "x" * 140_000, 413),
    ("in pieces", "/api/decide", {"Transfer_Encoding": "chunked"}, GOOD, 411),
    ("where one asks", "/api/start", {}, GOOD, 405),
    ("to the page", "/", {}, GOOD, 405),
    ("no JSON", "/api/decide", {}, b"{", 400),
    ("deep JSON", "/api/decide", {}, b"[" * 100_000, 400),
    ("a list", "/api/decide", {}, [], 400),
    ("no UTF-8", "/api/decide", {}, b"\xff\xfe", 400),
    ("no key", "/api/decide", {}, changed(key=None), 400),
    ("a key with more", "/api/decide", {}, changed(key="a" * 65), 400),
    ("a key with lines", "/api/decide", {}, changed(key="abcdefgh\n{}"), 400),
    ("no decision", "/api/decide", {}, changed(decisions=[]), 400),
    ("too many", "/api/decide", {}, changed(decisions=[{}] * 501), 400),
    ("none at all", "/api/decide", {}, changed(decisions=None), 400),
    ("twice", "/api/decide", {}, changed(decisions=GOOD["decisions"] * 2), 400),  # type: ignore[operator]
    ("no example", "/api/decide", {}, one(index=12), 400),
    ("negative", "/api/decide", {}, one(index=-1), 400),
    ("yes for one", "/api/decide", {}, one(index=True), 400),
    ("no suspect", "/api/decide", {}, one(index=11), 400),
    ("no class", "/api/decide", {}, one(label=3), 400),
    ("a class by name", "/api/decide", {}, one(label="cat"), 400),
    ("no label", "/api/decide", {}, changed(decisions=[{"index": 0, "base": 0}]), 400),
    ("no base", "/api/decide", {}, one(base=None), 400),
]


@pytest.mark.parametrize(
    ("path", "changes", "value", "status"),
    [one[1:] for one in POSTS],
    ids=[one[0] for one in POSTS],
)
def test_decisions_that_do_not_come_from_the_page_are_refused(
    server: Any,
    run: Path,
    path: str,
    changes: dict[str, str | None],
    value: object,
    status: int,
) -> None:
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    token = server.address.partition("token=")[2]
    filled = {
        name: None if text is None else text.replace("HOST", server.host)
        for name, text in changes.items()
    }
    if "Transfer_Encoding" not in changes:
        filled = {"Content_Length": str(len(body)), **filled}
    found, answered, content = server.send(
        "POST", path.replace("TOKEN", token), headers(server, **filled), body
    )
    assert found == status, content
    assert_guarded(answered)
    assert "set-cookie" not in answered
    assert not (run / "review.jsonl").exists()  # nothing was decided


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "LOCK"])
def test_other_methods_are_refused(server: Any, run: Path, method: str) -> None:
    own = headers(server, Content_Length="0")
    found, answered, _ = server.send(method, "/api/decide", own)
    assert found == 405
    assert "access-control-allow-methods" not in answered
    assert not (run / "review.jsonl").exists()


@pytest.mark.parametrize("hosts", [[], ["HOST", "HOST"], ["HOST", "evil.example"]])
def test_one_host_is_named_once(server: Any, hosts: list[str]) -> None:
    own = [("Host", one.replace("HOST", server.host)) for one in hosts]
    found, _, content = server.send("GET", "/api/start", [*own, ("Cookie", server.cookie)])
    assert found in (400, 421)
    assert b"names" not in content


def test_another_host_in_the_address_is_not_believed(server: Any) -> None:
    own = [("Host", "evil.example"), ("Cookie", server.cookie)]
    found, _, content = server.send("GET", f"http://{server.host}/api/start", own)
    assert found == 421
    assert b"names" not in content


def test_the_key_is_exchanged_for_a_cookie_that_scripts_cannot_read(server: Any) -> None:
    token = server.address.partition("/?")[2]
    found, answered, content = server.send("GET", f"/?{token}", [("Host", server.host)])
    assert (found, answered["location"], content) == (303, "/", b"")
    cookie = answered["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=lax" in cookie
    assert "path=/" in cookie
    assert len(token) > 40
    assert token.partition("=")[2] not in answered["set-cookie"]


def test_what_is_asked_for_rightly_is_answered(server: Any) -> None:
    own = headers(server, Origin=None, Content_Type=None)
    for path, kind in (
        ("/", "text/html; charset=utf-8"),
        ("/review/start.js", "text/javascript; charset=utf-8"),
        ("/look.css", "text/css; charset=utf-8"),
        ("/review.svg", "image/svg+xml"),
        ("/api/start", "application/json"),
        ("/map.js", "text/javascript; charset=utf-8"),
        ("/map.css", "text/css; charset=utf-8"),
        ("/picture/full/0", "image/png"),
        ("/picture/large/0", "image/png"),
        ("/picture/small/0", "image/png"),
    ):
        found, answered, content = server.send("GET", path, own)
        assert (found, answered["content-type"]) == (200, kind)
        assert content
        assert_guarded(answered)
    pixels = np.asarray(Image.open(io.BytesIO(content)))  # the last is a picture, made anew
    assert pixels.shape == (40, 64, 3)
    name = [("Host", f"localhost:{server.port}"), *own[1:]]
    assert server.send("GET", "/api/start", name)[0] == 200


def test_the_page_holds_no_script_of_its_own(server: Any) -> None:
    own = headers(server, Origin=None, Content_Type=None)
    _, _, content = server.send("GET", "/", own)
    page = content.decode()
    assert "<script>" not in page
    assert "<style" not in page
    assert " style=" not in page
    assert "onclick" not in page
    assert "http" not in page.replace("http-equiv", "")


def test_a_file_that_is_no_image_is_not_handed_out(
    folder: Path, reviewable: Callable[..., Path], serve: Callable[..., Any], tmp_path: Path
) -> None:
    """Not even one that a table of image paths names."""
    table = tmp_path / "paths.csv"
    names, rows = ("cat", "dog"), []
    for k in range(4):
        Image.new("RGB", (8, 8)).save(tmp_path / f"{k}.png")
        rows.append(f"{k}.png,{names[k % 2]}")
    table.write_text("path,label\n" + "\n".join(rows) + "\n")
    ids = [f"{k}.png" for k in range(4)]
    run = reviewable(tmp_path, n=4, names=names, ids=ids, data=str(table))
    server = serve(run)
    server.enter()
    (tmp_path / "0.png").write_text("<svg onload=alert(1)>")
    (tmp_path / "1.png").unlink()
    (tmp_path / "1.png").symlink_to(folder / "secret.txt")
    own = headers(server, Origin=None, Content_Type=None)
    for k, status in enumerate((404, 404, 200, 200)):
        for size in ("full", "large"):
            found, answered, content = server.send("GET", f"/picture/{size}/{k}", own)
            assert found == status, content
            assert b"a file that must not be served" not in content
            kind = "image/png" if status == 200 else "application/json"
            assert answered["content-type"] == kind


def test_duplicates_are_listed_and_decided(
    reviewable: Callable[..., Path], serve: Callable[..., Any], tmp_path: Path
) -> None:
    run = reviewable(tmp_path, suspects=2)
    x = np.random.default_rng(0).normal(size=(12, 3)).astype(np.float32)
    x[9] = x[7]
    neighbours_of(PlainFeatures(x, "test columns"), 12).save(run / "neighbours.npz")
    server = serve(run)
    server.enter()
    assert server.get("/api/start")["listed"] == {"conflicting": 2, "duplicates": 2}
    items = server.get("/api/items?among=conflicting")
    assert [one["index"] for one in items["items"]] == [7, 9]
    assert server.get("/api/example/7")["copies"] == [{"id": "id-9", "given": 0}]
    assert server.get("/api/example/1")["copies"] == []
    decision = {"index": 9, "base": 0, "label": 1}
    done = server.post({"key": "abcdefgh", "since": 0, "decisions": [decision]})
    assert done["done"][0]["label"] == 1
    refused = {"index": 10, "base": 0, "label": 1}
    server.post({"key": "abcdefgi", "since": 0, "decisions": [refused]}, 400)
    left = server.get(f"/api/items?among=conflicting&state=open&line={done['line']}")
    assert [one["index"] for one in left["items"]] == [7]


def test_the_map_is_one_answer(
    reviewable: Callable[..., Path], serve: Callable[..., Any], tmp_path: Path
) -> None:
    run = reviewable(tmp_path, suspects=2)
    points.save(run / "map.npz", np.random.default_rng(0).normal(size=(12, 2)).astype(np.float32))
    server = serve(run)
    server.enter()
    assert server.get("/api/start")["hasMap"] is True
    found = server.get("/api/map")
    order = np.frombuffer(base64.b64decode(found["index"]), "<u4").tolist()
    assert sorted(order[:2]) == [0, 1]
    assert found["ids"] == [f"id-{i}" for i in order]
    assert found["decided"] == []
    server.post({"key": "abcdefgh", "since": 0, "decisions": [{"index": 1, "base": 0, "label": 2}]})
    assert server.get("/api/map")["decided"] == [[1, 2]]
    assert server.get("/api/item/1")["isOpen"] is True
    assert server.get("/api/item/7")["isOpen"] is False


def test_a_run_without_a_map_says_so(
    reviewable: Callable[..., Path], serve: Callable[..., Any], tmp_path: Path
) -> None:
    run = reviewable(tmp_path, suspects=2)
    server = serve(run)
    server.enter()
    assert server.get("/api/start")["hasMap"] is False
    status, _, _ = server.send("GET", "/api/map", headers(server, Origin=None, Content_Type=None))
    assert status == 404
    (run / "map.npz").write_bytes(b"nonsense")
    server = serve(run)
    server.enter()
    start = server.get("/api/start")
    assert start["hasMap"] is False
    assert any("map.npz is damaged" in note for note in start["notes"])
