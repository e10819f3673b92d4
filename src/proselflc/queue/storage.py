"""The storages of a queue: a journal file, any database, or Optuna's gRPC proxy to one."""

from __future__ import annotations

import itertools
import json
import os
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proselflc.errors import InputError
from proselflc.files.regular import file_lock, must_be_own, open_own
from proselflc.wording import option

if TYPE_CHECKING:
    from optuna.storages import BaseStorage
    from sqlalchemy.engine import URL


GRPC = "grpc://"  # how the address of a gRPC proxy begins
PATIENCE = 10.0  # seconds for a gRPC proxy to answer


def check_installed(command: str) -> None:
    """Refuse a command that needs Optuna if Optuna is not installed."""
    try:
        import optuna  # noqa: F401
    except ImportError:
        raise InputError(
            f"{command} needs Optuna, which is not installed",
            fix='pip install "proselflc[search]"',
        ) from None


def name_of(key: str, stage: str) -> str:
    """Return the name of Optuna's study for a stage of the plan with this key."""
    return f"proselflc-{key}/{stage}"


def delete(storage: BaseStorage, key: str) -> None:
    """Remove every stage of the plan with this key from the storage."""
    import optuna

    for name in optuna.get_all_study_names(storage):
        if name.startswith(name_of(key, "")):
            with suppress(KeyError):  # another process has removed it
                optuna.delete_study(study_name=name, storage=storage)


def opened(
    journal: Path,
    url: str | None = None,
    report: Callable[[str], None] | None = None,
    *,
    cure: str | None = None,
) -> BaseStorage:
    """Open the storage of a queue: a journal, a database for SQLAlchemy, or grpc://host:port.

    `report` receives sentences about what the user may not expect, and `cure` says what to do
    about a damaged journal; by default, to overwrite the study.
    """
    if url is None:
        overwrite = f"start the study again with {option('overwrite', True)}"
        return _journal(journal, report, cure or overwrite)
    return _proxy(url) if url.startswith(GRPC) else _database(url)


def _journal(journal: Path, report: Callable[[str], None] | None, cure: str) -> BaseStorage:
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    def damaged(reason: str) -> InputError:
        return InputError(f"{journal} is damaged ({reason})", fix=cure)

    # A lock that ends with its process; Optuna's own outlives a killed process by 30 seconds.
    lock: Any = file_lock(journal.with_name(f".{journal.name}.lock"))
    try:
        with lock:
            _drop_damaged_line(journal, report)
        return JournalStorage(JournalFileBackend(str(journal), lock_obj=lock))
    except InputError:
        raise
    except AssertionError:  # raised by Optuna for an unknown operation
        raise damaged("it holds a record of an unknown kind") from None
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise damaged(_reason(error)) from None
    except OSError as error:
        raise InputError(f"cannot read {journal}: {error.strerror or error}") from None


def _proxy(url: str) -> BaseStorage:
    import optuna

    found = re.fullmatch(r"([\w.-]+|\[[0-9a-fA-F:]+\]):(\d{1,5})/?", url.removeprefix(GRPC))
    if found is None:
        raise InputError(
            f"the storage {redacted(url)} cannot be reached: the address of a gRPC proxy is "
            f"{GRPC}host:port",
            field="storage",
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            proxy = optuna.storages.GrpcStorageProxy(host=found[1], port=int(found[2]))
        proxy.wait_server_ready(timeout=PATIENCE)
    except ImportError:
        raise InputError(
            f"the storage {url} needs gRPC, which is not installed",
            field="storage",
            fix="pip install grpcio protobuf",
        ) from None
    except ConnectionError:
        raise InputError(
            f"the storage {url} cannot be reached: no gRPC proxy has answered in {PATIENCE:.0f} "
            "seconds; start one with optuna.storages.run_grpc_proxy_server",
            field="storage",
        ) from None
    return proxy


def _database(url: str) -> BaseStorage:
    from optuna.storages import RDBStorage

    if _address(url) is None:
        raise InputError(
            f"the storage {redacted(url)} cannot be reached: it should be an address such as "
            "postgresql://user:password@host/database, with %40 for an @ in the password",
            field="storage",
        )
    kwargs = {"connect_args": {"timeout": 60}} if url.startswith("sqlite:") else None
    try:
        return RDBStorage(url, engine_kwargs=kwargs)
    except Exception as error:  # from SQLAlchemy, from a driver, or because it is not installed
        raise InputError(
            f"the storage {redacted(url)} cannot be reached ({_reason(error, url)})",
            field="storage",
            fix="check the address, that the database runs, and that its driver is installed",
        ) from None


@contextmanager
def storage_errors(url: str | None) -> Iterator[None]:
    """Turn the loss of a storage into an `InputError`, and silence Optuna's log."""
    import optuna

    was = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    lost: list[type[Exception]] = [optuna.exceptions.StorageInternalError]
    if url is not None and url.startswith(GRPC):
        with suppress(ImportError):
            import grpc  # type: ignore[import-untyped, unused-ignore]

            lost.append(grpc.RpcError)
    try:
        yield
    except tuple(lost) as error:
        raise InputError(
            f"the storage {redacted(url or 'journal')} can no longer be reached "
            f"({_reason(error, url)}); finished runs are kept",
            field="storage",
            fix=f"continue with {option('resume', True)}",
        ) from None
    finally:
        optuna.logging.set_verbosity(was)


def redacted(url: str) -> str:
    """Return an address without its password and its options, which may hold one too.

    >>> redacted("postgresql://me:secret@host/db?sslmode=require"), redacted("sqlite:///a.db")
    ('postgresql://me:***@host/db', 'sqlite:///a.db')
    """
    made = _address(url)
    if made is None:  # any part of it may be the password
        scheme = re.match(r"[\w+]+://", url)
        return f"{scheme[0]}***" if scheme else "***" if re.search(r"[@?]", url) else url
    if made.password is None and "?" not in url:
        return url
    return made.set(query={}).render_as_string(hide_password=True)


def _address(url: str) -> URL | None:
    """Return the parts of an address, or None if it is not valid.

    For SQLAlchemy, an @ that is not written %40 ends a password, so such an address is not valid.
    """
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        made = make_url(url)
    except (ArgumentError, ValueError):
        return None
    is_file = made.get_backend_name() == "sqlite"
    return None if "@" in f"{made.host}{'' if is_file else made.database}" else made


def _reason(error: Exception, url: str | None = None) -> str:
    """Return the text of another library's error, shortened and without the password."""
    text = " ".join(str(error.__cause__ or error).split()) or type(error).__name__
    for secret in () if url is None else _secrets(url):
        text = text.replace(secret, "***")
    return text[:200]


def _secrets(url: str) -> list[str]:
    """Return the secrets of an address, as they are written and as they are decoded."""
    made = _address(url)
    if made is None:
        return [url]
    written = re.match(r"[^:]+://[^:/]*:([^@]*)@", url)
    values = itertools.chain(*made.normalized_query.values())
    found = (written and written[1], made.password, url.partition("?")[2], *values)
    return sorted({str(one) for one in found if one}, key=len, reverse=True)


def _drop_damaged_line(journal: Path, report: Callable[[str], None] | None) -> None:
    """Drop an incomplete last line, which a killed process or a power cut may leave.

    Optuna ignores it, but fails once another line follows it.
    """
    must_be_own(journal)
    if not journal.is_file():
        return
    with open_own(journal) as file:
        file.seek(0)
        content = file.read()
        *before, last = content.splitlines(keepends=True) or [b""]
        if not last or _is_record(last):
            return
        if before and not _is_record(before[-1]):
            raise ValueError("more than its last line cannot be read")
        if not before and (last.endswith(b"\n") or not last.startswith(b'{"op_code"')):
            raise ValueError("it does not begin like a journal")
        if os.fstat(file.fileno()).st_nlink > 1:
            raise ValueError("it is a hard link, and nothing is cut off through a link")
        file.truncate(len(content) - len(last))
    if report is not None:
        report(f"the last line of {journal} is incomplete and was dropped")


def _is_record(line: bytes) -> bool:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return line.endswith(b"\n") and isinstance(record, dict) and "op_code" in record
