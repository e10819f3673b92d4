"""`proselflc review`: where it is served, what it says, and what it refuses before it begins."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from proselflc.cli.app import run as command
from proselflc.data.decisions import DecisionChange, read_decisions
from proselflc.errors import InputError
from proselflc.reviewing import command as reviewing


@pytest.fixture
def run(reviewable: Callable[..., Path], tmp_path: Path) -> Path:
    return reviewable(tmp_path)


def refused(capfd: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert command(["review", *(str(one) for one in arguments), "--no-browser"]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    return err


def test_a_port_that_is_taken(run: Path, serve: Callable[..., Any]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        server = serve(run, "--port", port)
        assert server.port > port
        said = server.running.streams[1].read_text()
        assert f"port {port} is in use, so the page is served on port {server.port}" in said
        server.enter()
        assert server.get("/api/start")["suspects"] == 6


def test_nobody_else_can_reach_it(run: Path, serve: Callable[..., Any]) -> None:
    server = serve(run)
    assert server.host.startswith("127.0.0.1:")
    listening = Path("/proc/net/tcp")
    if not listening.is_file():
        pytest.skip("no list of sockets here")
    port = f":{server.port:04X}"
    rows = [line.split()[1] for line in listening.read_text().splitlines()[1:]]
    assert {row for row in rows if row.endswith(port)} == {f"0100007F{port}"}


def test_what_it_says_at_the_end(run: Path, serve: Callable[..., Any]) -> None:
    server = serve(run, "--name", "anna")
    server.enter()
    labels = {0: 1, 1: 2, 2: 2, 4: None}  # twice as suggested, kept, unsure
    wanted = [{"index": k, "label": label, "base": 0} for k, label in labels.items()]
    answer = server.post({"key": "a" * 12, "since": 0, "decisions": wanted})
    assert [one["label"] for one in answer["done"]] == [1, 2, 2, -2]
    assert answer["left"] == 2
    done = server.kill(2)
    assert done.code == 0
    counts = (
        "4 of 6 suspects are decided: 2 changed to the suggested label, 0 to another one, "
        "1 kept as given, 1 marked “cannot tell”."
    )
    assert counts in done.stderr
    assert "Traceback" not in done.stderr


def test_the_end_as_json(run: Path, serve: Callable[..., Any], program: Any) -> None:
    running = program.start("review", run, "--no-browser", "--port", 0, "--json", "--sample", 4)
    err = running.streams[1]
    running.until(lambda: err.is_file() and "token=" in err.read_text())
    assert "a sample of 4 of 12 labels was drawn" in err.read_text()
    running.until(lambda: "Ctrl-C" in err.read_text())
    running.send(2)
    done = running.wait()
    assert done.code == 0
    found = json.loads(done.stdout)
    assert (found["suspects"], found["decided"], found["sample"]["size"]) == (6, 0, 4)
    assert found["sample"]["wrong_interval"] == [0, 1]
    assert found["measured"] is None


def test_the_same_request_after_a_lost_answer(run: Path, serve: Callable[..., Any]) -> None:
    server = serve(run)
    server.enter()
    body = {"key": "b" * 12, "since": 0, "decisions": [{"index": 0, "label": 1, "base": 0}]}
    first, second = server.post(body), server.post(body)
    assert first["done"] == second["done"]
    assert second["conflicts"] == []
    assert len((run / "review.jsonl").read_text().splitlines()) == 2


def test_two_people_with_a_server_each(run: Path, serve: Callable[..., Any]) -> None:
    anna, ben = serve(run, "--name", "anna"), serve(run, "--name", "ben")
    decision = {"index": 1, "label": 2, "base": 0}
    for one in (anna, ben):
        one.enter()
    anna.post({"key": "c" * 12, "since": 0, "decisions": [decision]})
    answer = ben.post({"key": "d" * 12, "since": 0, "decisions": [{**decision, "label": 0}]})
    [against] = answer["conflicts"]
    assert (against["by"], against["label"], against["line"]) == ("anna", 2, 2)
    assert answer["done"] == []
    assert ben.get("/api/item/1")["label"] == 2


def test_a_directory_that_cannot_be_written_is_refused_first(
    run: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.open

    def refuse(path: Any, flags: int, *more: Any, **options: Any) -> int:
        if str(path).endswith("review.jsonl") and flags & os.O_RDWR:
            raise OSError(30, "Read-only file system")
        return real(path, flags, *more, **options)

    monkeypatch.setattr(os, "open", refuse)  # root may write everywhere, so chmod is no test
    said = refused(capfd, run)
    assert "Read-only file system; it keeps the decisions: make the run directory" in said


def test_what_cannot_be_reviewed(
    run: Path, reviewable: Callable[..., Path], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert "there is no run" in refused(capfd, tmp_path / "nowhere")
    none = reviewable(tmp_path, "none", suspects=0)
    assert "so there is nothing to review" in refused(capfd, none)
    assert f"proselflc review {none} --sample 30" in refused(capfd, none)
    assert "--port must be from 0 to 65535" in refused(capfd, run, "--port", 70000)
    assert "--sample must be at least 1" in refused(capfd, run, "--sample", 0)
    assert "--name must have from 1 to 40" in refused(capfd, run, "--name", "x" * 50)
    said = refused(capfd, run, "--host", "203.0.113.7")  # an address of nobody
    assert "cannot be served at 203.0.113.7" in said
    assert not (run / "review.jsonl").exists()


@pytest.mark.parametrize("name", ["summary.json", "config.toml"])
@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff", b"= 1"])
def test_damage_that_the_page_would_meet_is_refused_at_the_start(
    run: Path, capfd: pytest.CaptureFixture[str], name: str, content: bytes
) -> None:
    if (name, content) == ("config.toml", b"[1]"):
        content = b"[1"
    if (name, content) == ("config.toml", b""):
        content = b"\0"
    (run / name).write_bytes(content)
    assert str(run / name) in refused(capfd, run)


def test_without_the_extra(
    run: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "uvicorn", None)
    assert 'pip install "proselflc[review]"' in refused(capfd, run)


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", {"127.0.0.1", "localhost", "[::1]"}),
        ("::1", {"[::1]", "localhost"}),
        ("Lab.Example", {"lab.example"}),
    ],
)
def test_names_that_it_is_asked_for_by(host: str, expected: set[str]) -> None:
    assert reviewing.host_names(host) == expected


def test_everywhere_is_every_name_of_this_machine() -> None:
    found = reviewing.host_names("0.0.0.0")
    assert {"127.0.0.1", "localhost", socket.gethostname().lower()} <= found
    assert "0.0.0.0" not in found
    assert reviewing.is_loopback("127.0.0.1")
    assert not reviewing.is_loopback("0.0.0.0")


def test_a_browser_is_opened_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []

    def open_(address: str) -> bool:
        opened.append(address)
        return True

    monkeypatch.setattr("webbrowser.open", open_)
    monkeypatch.setattr("sys.platform", "linux")
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    assert not reviewing._open_browser("http://x")
    monkeypatch.setenv("DISPLAY", ":0")
    assert reviewing._open_browser("http://x")
    assert opened == ["http://x"]


def test_no_browser_and_other_labels_are_said(
    run: Path, program: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    environment = {"DISPLAY": "", "WAYLAND_DISPLAY": ""}
    running = program.start("review", run, "--port", 0, environment=environment)
    err = running.streams[1]
    running.until(lambda: err.is_file() and "no browser could be opened" in err.read_text())
    assert "the examples themselves cannot be shown" in err.read_text()
    running.send(9)
    running.wait()
    path = run / "review.jsonl"
    read_decisions(path, "e" * 64).add([DecisionChange("id-0", "cat", 0)], "anna", "1")
    assert "is about other labels than those of the run" in refused(capfd, run)


def test_a_run_that_is_replaced_leaves_decisions_there(tmp_path: Path) -> None:
    rows = [f"{k},{k * 0.5},{'ab'[k % 2]}" for k in range(12)]
    (tmp_path / "d.csv").write_text("\n".join(["x,z,label", *rows]))
    options = ["--data", str(tmp_path / "d.csv"), "--steps", "1", "--quiet"]
    assert command(["train", *options, "--out", str(tmp_path / "run")]) == 0
    path = tmp_path / "run" / "review.jsonl"
    path.write_text("the work of a person")
    again = ["train", *options, "--out", str(tmp_path / "run"), "--overwrite"]
    assert command(again) == 0
    assert path.read_text() == "the work of a person"


def test_a_reader_without_a_lock_reads_all_the_same(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import filelock

    found = read_decisions(run / "review.jsonl", "e" * 64)
    found.add([DecisionChange("id-0", "cat", 0)], "anna", "1")

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(filelock.FileLock, "acquire", refuse)
    again = read_decisions(run / "review.jsonl", "e" * 64)
    assert list(again.standing) == ["id-0"]
    with pytest.raises(InputError, match="cannot write"):
        again.add([DecisionChange("id-1", "cat", 0)], "anna", "2")
    assert os.path.exists(run / "review.jsonl")
