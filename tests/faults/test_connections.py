"""Connections to a real server of a review that are slow, idle, too many or broken off."""

from __future__ import annotations

import contextlib
import json
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

PATIENCE = 0.6  # seconds that the server under test waits
SERVER = """
import sys
from proselflc.run.reader import load_run
from proselflc.reviewing.command import ServerOptions, review

def show(address):
    print(address, flush=True)

done = review(
    load_run(sys.argv[1]),
    ServerOptions(port=0, by="me", opens_browser=False, patience=float(sys.argv[2])),
    note=lambda text: None, announce=show,
)
print("decided", done.whole_precision.decided, flush=True)
"""


class Server:
    """A review in a process of its own."""

    def __init__(self, run: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVER, str(run), str(PATIENCE)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        address = self.process.stdout.readline()
        assert address, self.process.communicate()[1]
        self.host, _, query = address.partition("//")[2].strip().partition("/?")
        self.port = int(self.host.rpartition(":")[2])
        answer = self.ask(
            f"GET /?{query} HTTP/1.1\r\nHost: {self.host}\r\nConnection: close\r\n\r\n"
        )
        self.cookie = answer.partition("set-cookie: ")[2].partition(";")[0]
        assert self.cookie

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), 30)

    def ask(self, text: str) -> str:
        with self.connect() as line:
            line.sendall(text.encode())
            return received(line)

    def head(self, length: int) -> str:
        return (
            f"POST /api/decide HTTP/1.1\r\nHost: {self.host}\r\nCookie: {self.cookie}\r\n"
            f"Origin: http://{self.host}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {length}\r\n"
        )

    def state(self) -> str:
        return self.ask(
            f"GET /api/state HTTP/1.1\r\nHost: {self.host}\r\nCookie: {self.cookie}\r\n"
            "Connection: close\r\n\r\n"
        )


def received(line: socket.socket) -> str:
    """Everything until the server closes the connection."""
    pieces: list[bytes] = []
    while True:
        try:
            piece = line.recv(1 << 16)
        except ConnectionResetError:
            piece = b""
        if not piece:
            return b"".join(pieces).decode()
        pieces.append(piece)


@pytest.fixture(scope="module")
def server(reviewable: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    one = Server(reviewable(tmp_path_factory.mktemp("slow")))
    yield one
    if one.process.poll() is None:
        one.process.kill()
        one.process.communicate()


def closed_after(line: socket.socket, *, drip: bytes = b"") -> float:
    """Seconds until the server closes a connection to which bytes drip."""
    began = time.monotonic()
    while time.monotonic() - began < 30:
        readable, _, _ = select.select([line], [], [], PATIENCE / 10)
        try:
            if readable and not line.recv(1 << 16):
                return time.monotonic() - began
            if drip:
                line.sendall(drip)
        except (ConnectionResetError, BrokenPipeError):
            return time.monotonic() - began
    raise AssertionError("the connection is open after 30 seconds")


@pytest.mark.parametrize(
    ("begin", "drip"),
    [
        ("", b""),  # nothing ever comes
        ("GET / HTTP/1.1\r\nX: ", b"y"),  # headers, a byte at a time
        ("body", b" "),  # a body, a byte at a time
        ("body", b""),
    ],
    ids=["silent", "slow headers", "slow body", "half a body"],
)
def test_a_slow_connection_is_closed(server: Server, begin: str, drip: bytes) -> None:
    with server.connect() as line:
        text = server.head(100_000) + "\r\n{" if begin == "body" else begin
        line.sendall(text.encode())
        assert PATIENCE * 0.9 <= closed_after(line, drip=drip) < PATIENCE * 8
    assert server.state().startswith("HTTP/1.1 200")


def test_an_idle_connection_is_kept_for_a_while_and_closed(server: Server) -> None:
    with server.connect() as line:
        text = f"GET /api/state HTTP/1.1\r\nHost: {server.host}\r\nCookie: {server.cookie}\r\n\r\n"
        for _ in range(2):  # it may be used again
            line.sendall(text.encode())
            assert line.recv(12) == b"HTTP/1.1 200"
            while select.select([line], [], [], 0.1)[0]:
                line.recv(1 << 16)
        assert closed_after(line) < 10


def test_a_client_that_does_not_read_is_let_go(server: Server) -> None:
    """It asks for more than the buffers of both sides can hold."""
    text = f"GET /look.css HTTP/1.1\r\nHost: {server.host}\r\nCookie: {server.cookie}\r\n\r\n"
    whole = len(server.ask(text.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n")))
    many = (16 << 20) // whole
    with server.connect() as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        line.setblocking(False)
        sent, began = 0, time.monotonic()
        content = text.encode() * many
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            while sent < len(content) and time.monotonic() - began < PATIENCE * 4:
                if select.select([], [line], [], 0.05)[1]:
                    sent += line.send(content[sent:])
        time.sleep(PATIENCE * 2)
        line.setblocking(True)
        assert len(received(line)) < whole * many  # the end came before the last answer
    assert server.state().startswith("HTTP/1.1 200")


def test_idle_connections_are_bounded_and_others_are_still_answered(server: Server) -> None:
    lines = [server.connect() for _ in range(150)]
    try:
        assert server.state().startswith("HTTP/1.1 200")
        gone = sum(bool(select.select([line], [], [], 0)[0]) for line in lines)
        assert gone >= 45
    finally:
        for line in lines:
            line.close()


@pytest.mark.parametrize("sent", ["", "{", '{"key":"abcdefgh","since":0,'])
def test_a_client_that_disconnects_in_a_body_leaves_no_trace(server: Server, sent: str) -> None:
    for ending in ("close", "half"):
        with server.connect() as line:
            line.sendall((server.head(500) + "\r\n" + sent).encode())
            if ending == "half":
                line.shutdown(socket.SHUT_WR)
                received(line)
    assert server.state().startswith("HTTP/1.1 200")


def test_decisions_are_kept_and_the_server_says_nothing_of_all_this(server: Server) -> None:
    """Last: SIGHUP ends the server as Ctrl-C does, and stderr holds no traceback."""
    items = server.ask(
        f"GET /api/items HTTP/1.1\r\nHost: {server.host}\r\nCookie: {server.cookie}\r\n"
        "Connection: close\r\n\r\n"
    )
    index = json.loads(items.partition("\r\n\r\n")[2])["items"][0]["index"]
    decision = {"index": index, "label": 0, "base": 0}
    body = json.dumps({"key": "abcdefgh", "since": 0, "decisions": [decision]})
    answer = server.ask(server.head(len(body)) + "Connection: close\r\n\r\n" + body)
    assert answer.startswith("HTTP/1.1 200"), answer
    server.process.send_signal(signal.SIGHUP)
    out, err = server.process.communicate(timeout=60)
    assert err == ""
    assert out == "decided 1\n"
    assert server.process.returncode == 0
