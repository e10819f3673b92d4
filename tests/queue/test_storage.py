"""The storages of a queue: what is damaged or cannot be reached is said, and no password is."""

from __future__ import annotations

from pathlib import Path

import optuna
import pytest

from proselflc.errors import InputError
from proselflc.queue import storage as queue_storage
from proselflc.queue.run_queue import Queue


@pytest.fixture(autouse=True)
def _silent() -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)


def done(journal: Path, *notes: list[str]) -> int:
    """Do the next of six entries; return how many are over then."""
    storage = queue_storage.opened(journal, None, notes[0].append if notes else None)
    queue = Queue(storage, "a", journal.parent / "runs")
    claim = queue.claim(range(6))
    assert claim is not None
    with claim:
        claim.complete(0.5, "run")
    return sum(one.is_over for one in queue.entries().values())


def test_half_a_line_of_a_killed_process_is_dropped(tmp_path: Path) -> None:
    journal = tmp_path / "journal.log"
    assert done(journal) == 1
    with journal.open("ab") as file:
        file.write(b'{"op_code":5,"tri')
    assert done(journal) == 2
    assert done(journal) == 3


def test_a_damaged_journal_is_said(tmp_path: Path) -> None:
    journal = tmp_path / "journal.log"
    journal.write_text("not a journal\nat all\n")
    with pytest.raises(InputError, match=r"journal\.log is damaged .*: remove it$"):
        queue_storage.opened(journal, cure="remove it")


@pytest.mark.parametrize(
    ("line", "is_dropped"),
    [
        (b'{"op_code":5,"tri\n', True),
        (b"\xff\xfe\n", True),
        (b"[1]\n", True),
        (b'{"op_code":99,"worker_id":"a"}\n', False),
        (b'{"op_code":4}\n', False),
    ],
)
def test_a_damaged_last_line_is_dropped_or_said(
    tmp_path: Path, line: bytes, is_dropped: bool
) -> None:
    journal = tmp_path / "journal.log"
    assert done(journal) == 1
    whole = journal.read_bytes()
    journal.write_bytes(whole + line)
    notes: list[str] = []
    if not is_dropped:  # it is well written, so what it did is not known
        with pytest.raises(InputError, match=r"journal\.log is damaged .*overwrite=True"):
            queue_storage.opened(journal, None, notes.append)
        assert journal.read_bytes() == whole + line
        return
    assert done(journal, notes) == 2
    assert journal.read_bytes().startswith(whole)
    assert len(notes) == 1
    assert "the last line of" in notes[0]
    assert "was dropped" in notes[0]


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:s3cret@host/db", "postgresql://me:***@host/db"),
        ("postgresql://host/db?user=me&password=s3cret", "postgresql://host/db"),
        ("postgresql://me:s3cret@host/db?sslpassword=s3cret", "postgresql://me:***@host/db"),
        ("postgresql://me:s3%40cret@host/db", "postgresql://me:***@host/db"),
        ("postgresql://me:p@s3cret@host/db", "postgresql://***"),
        ("postgresql://m/e:s3cret@host/db", "postgresql://***"),
        ("postgresql://me:s3cret@host:port/db", "postgresql://***"),
        ("me:s3cret@host", "***"),
        ("nonsense?password=s3cret", "***"),
        ("nonsense", "nonsense"),
        ("sqlite:///a b@c.db", "sqlite:///a b@c.db"),
        ("sqlite://", "sqlite://"),
    ],
)
def test_of_an_address_nothing_secret_is_shown(url: str, shown: str) -> None:
    assert queue_storage.redacted(url) == shown
    assert queue_storage.redacted(shown) == shown


def test_a_password_with_an_at_sign_is_said_how_to_write(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"postgresql://\*\*\* .*%40") as caught:
        queue_storage.opened(tmp_path / "journal.log", "postgresql://me:p@s3cret@host/db")
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        *("nonsense", "sqlite:////nowhere/at/all.db", "mydb://me:s3cret@localhost:1/x"),
        *("mydb://host/x?password=s3cret", "me:s3cret@host"),
    ],
)
def test_a_storage_that_cannot_be_reached_is_said_without_its_password(
    url: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="cannot be reached") as caught:
        queue_storage.opened(tmp_path / "journal.log", url)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        *("postgresql://me:s3cret@host/db", "postgresql://me:s3%63ret@host/db"),
        *("postgresql://host/db?password=s3cret&x=1", "postgresql://host/db?password=s3%63ret"),
    ],
)
def test_a_storage_that_is_lost_is_said_without_its_password(url: str) -> None:
    with (
        pytest.raises(InputError, match=r"can no longer be reached .*resume=True") as caught,
        queue_storage.storage_errors(url),
    ):
        raise optuna.exceptions.StorageInternalError(f"lost {url}, password is s3cret")
    assert "password is ***" in str(caught.value)
    assert "ret@" not in str(caught.value)
    assert "s3" not in str(caught.value)


def test_optuna_keeps_its_own_loudness(tmp_path: Path) -> None:
    optuna.logging.set_verbosity(optuna.logging.INFO)
    with queue_storage.storage_errors(None):
        assert optuna.logging.get_verbosity() == optuna.logging.ERROR
    assert optuna.logging.get_verbosity() == optuna.logging.INFO


@pytest.mark.parametrize("url", ["grpc://", "grpc://host", "grpc://me:s3cret@host:1", "grpc://h:x"])
def test_the_address_of_a_grpc_proxy_is_a_host_and_a_port(url: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="grpc://host:port") as caught:
        queue_storage.opened(tmp_path / "journal.log", url)
    assert "s3cret" not in str(caught.value)


def test_a_grpc_proxy_that_does_not_answer_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_storage, "PATIENCE", 0.05)
    with pytest.raises(InputError, match=r"no gRPC proxy has answered.*run_grpc_proxy_server"):
        queue_storage.opened(tmp_path / "journal.log", "grpc://127.0.0.1:9")


def test_a_grpc_proxy_that_is_lost_is_said() -> None:
    grpc = pytest.importorskip("grpc", reason="needs grpcio")
    with (
        pytest.raises(InputError, match=r"grpc://host:1 can no longer be reached .*resume=True"),
        queue_storage.storage_errors("grpc://host:1"),
    ):
        raise grpc.RpcError("away")


@pytest.mark.parametrize("content", ["a line of mine\n", "a line of mine", '{"op_code": 0\n'])
def test_a_first_line_is_not_dropped_as_damage(tmp_path: Path, content: str) -> None:
    journal = tmp_path / "journal.log"
    journal.write_text(content)
    with pytest.raises(InputError, match="does not begin like a journal"):
        queue_storage.opened(journal)
    assert journal.read_text() == content


def test_nothing_is_cut_off_through_a_hard_link(tmp_path: Path) -> None:
    journal, mine = tmp_path / "journal.log", tmp_path / "mine.log"
    assert done(journal) == 1
    with journal.open("a") as file:
        file.write('{"op_code": 4, "wor')
    before = journal.read_bytes()
    mine.hardlink_to(journal)
    with pytest.raises(InputError, match="it is a hard link"):
        queue_storage.opened(journal)
    assert mine.read_bytes() == before
