"""Downloads from a local server that breaks off, lies, or is not there."""

import hashlib
import os
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from proselflc.data.sources import download
from proselflc.data.sources.download import FILES, RemoteFile, fetch, instructions
from proselflc.errors import InputError

CONTENT = os.urandom(300_000)
MD5 = hashlib.md5(CONTENT).hexdigest()


class Server(ThreadingHTTPServer):
    """Serves CONTENT at any path but /none, breaking off as told."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.sent = len(CONTENT)  # bytes before the connection breaks off
        self.requests = 0
        self.says_length = True
        self.watched = Path("no such file")
        self.was_early = False  # whether the file was there before all of it was sent

    def url(self, path: str = "file.bin") -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/{path}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.requests += 1
        if self.path == "/none":
            self.send_error(404)
            return
        self.send_response(200)
        if self.server.says_length:
            self.send_header("Content-Length", str(len(CONTENT)))
        self.end_headers()
        self.wfile.write(CONTENT[: self.server.sent - 1])
        self.wfile.flush()
        self.server.was_early |= self.server.watched.exists()
        self.wfile.write(CONTENT[self.server.sent - 1 : self.server.sent])

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def remote(*urls: str, md5: str | None = MD5, size: int | None = len(CONTENT)) -> list[RemoteFile]:
    return [RemoteFile(urls, "folder/file.bin", md5, size)]


def files_in(root: Path) -> set[str]:
    names = {p.relative_to(root).as_posix() for p in root.rglob("*") if p.is_file()}
    return {name for name in names if not name.endswith(".lock")}


@pytest.mark.parametrize("size", [len(CONTENT), None])
def test_file_appears_whole_and_only_then(server: Server, tmp_path: Path, size: int | None) -> None:
    server.watched = tmp_path / "folder/file.bin"
    (path,) = fetch("set", tmp_path, files=remote(server.url(), size=size))
    assert path == tmp_path / "folder/file.bin"
    assert path.read_bytes() == CONTENT
    assert files_in(tmp_path) == {"folder/file.bin"}
    assert not server.was_early
    assert server.requests == 1


def test_what_is_there_is_not_asked_for(server: Server, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/file.bin").write_bytes(b"mine")
    (path,) = fetch("set", tmp_path, files=remote(server.url()))
    assert path.read_bytes() == b"mine"
    assert server.requests == 0


@pytest.mark.parametrize("size", [len(CONTENT), None])
def test_broken_connection_leaves_nothing_and_the_next_run_starts_again(
    server: Server, tmp_path: Path, size: int | None
) -> None:
    server.sent = 100_000
    with pytest.raises(InputError, match="100,000") as caught:
        fetch("set", tmp_path, files=remote(server.url(), size=size))
    assert caught.value.field == "data_root"
    assert files_in(tmp_path) == set()
    assert server.requests == 3  # a connection may be better the next time
    server.sent = len(CONTENT)
    (path,) = fetch("set", tmp_path, files=remote(server.url(), size=size))
    assert path.read_bytes() == CONTENT


def test_wrong_checksum_leaves_nothing_and_names_both(server: Server, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        fetch("set", tmp_path, files=remote(server.url(), md5="0" * 32))
    assert MD5 in str(caught.value)
    assert "0" * 32 in str(caught.value)
    assert files_in(tmp_path) == set()


@pytest.mark.parametrize("says_length", [True, False])
def test_server_that_sends_too_much_is_left(
    server: Server, tmp_path: Path, says_length: bool
) -> None:
    server.says_length = says_length
    with pytest.raises(InputError, match="sent more than the 1,000 bytes"):
        fetch("set", tmp_path, files=remote(server.url(), size=1000))
    assert files_in(tmp_path) == set()


def test_second_address_serves_when_the_first_does_not(server: Server, tmp_path: Path) -> None:
    (path,) = fetch("set", tmp_path, files=remote(server.url("none"), server.url()))
    assert path.read_bytes() == CONTENT


def test_missing_page_is_said(server: Server, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none answered 404 Not Found"):
        fetch("set", tmp_path, files=remote(server.url("none")))


def test_addresses_of_other_kinds_are_not_opened(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(CONTENT)
    with pytest.raises(InputError, match="is not a web address"):
        fetch("set", tmp_path, files=remote((tmp_path / "secret").as_uri()))
    assert not (tmp_path / "folder/file.bin").exists()


def test_without_a_network_the_error_says_which_files_to_put_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    files = [
        RemoteFile((f"http://127.0.0.1:{port}/{name}",), f"set/{name}", MD5, 10) for name in "ab"
    ]
    with pytest.raises(InputError) as caught:
        fetch("set", tmp_path, files=files)
    message = str(caught.value)
    for name in "ab":
        assert f"http://127.0.0.1:{port}/{name} at {tmp_path / 'set' / name}" in message
    assert "refused" in message
    assert files_in(tmp_path) == set()


def test_place_that_cannot_be_written_is_a_plain_error(server: Server, tmp_path: Path) -> None:
    (tmp_path / "folder").write_text("a file where the folder should be")
    with pytest.raises(InputError, match="set could not be written below"):
        fetch("set", tmp_path, files=remote(server.url()))


def test_two_runs_at_once_download_once(server: Server, tmp_path: Path) -> None:
    threads = [
        threading.Thread(
            target=fetch, args=("set", tmp_path), kwargs={"files": remote(server.url())}
        )
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (tmp_path / "folder/file.bin").read_bytes() == CONTENT
    assert server.requests == 1


def test_named_sets_have_official_addresses_sizes_and_checksums() -> None:
    assert set(FILES) == {"mnist", "fashion-mnist", "cifar10", "cifar100", "cifar10n", "cifar100n"}
    for name, files in FILES.items():
        for file in files:
            assert all(url.startswith(("http://", "https://")) for url in file.urls)
            assert all(url.endswith("/" + Path(file.path).name) for url in file.urls)
            if name != "cifar10n":  # nothing is published for it
                assert file.md5 is not None
                assert len(bytes.fromhex(file.md5)) == 16
                assert file.size is not None
                assert file.size < download._LARGEST


def test_instructions_name_every_file_and_its_place(tmp_path: Path) -> None:
    assert instructions("cifar100", tmp_path) == (
        "put https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz at "
        f"{tmp_path / 'cifar-100-python.tar.gz'}"
    )
    text = instructions("mnist", None)
    assert text.count("-ubyte.gz at DIR/mnist/") == 4
    assert text.startswith("choose a folder with data_root=")
    with pytest.raises(InputError, match='did you mean "cifar100"'):
        instructions("cifar-100", tmp_path)
