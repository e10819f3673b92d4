"""Workers that share a database or a gRPC proxy and no directory: a killed one blocks nothing.

The database is PostgreSQL, in a cluster of its own; the proxy is Optuna's, in a process of its own.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from proselflc.queue import storage as queue_storage
from proselflc.queue.run_queue import Queue

ENTRIES = 12
WORKER = f"""
import sys, time, warnings
from pathlib import Path
warnings.simplefilter("default")
from proselflc.queue import run_queue, storage as queue_storage
run_queue.ALIVE_EVERY, run_queue.DEAD_AFTER = 0.2, 3.0
folder, url, seconds = Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])
storage = queue_storage.opened(folder / "journal.log", url)
queue = run_queue.Queue(storage, "runs", folder)
while sum(one.is_over for one in queue.entries().values()) < {ENTRIES}:
    claim = queue.claim(range({ENTRIES}))
    if claim is None:
        time.sleep(0.05)
        continue
    with claim:
        print(claim.name, flush=True)
        time.sleep(seconds)
        claim.complete(claim.name / 100, folder.name)
"""
PROXY = """
import sys, warnings
from optuna.storages import RDBStorage, run_grpc_proxy_server
warnings.simplefilter("ignore")
run_grpc_proxy_server(RDBStorage(sys.argv[1]), host="127.0.0.1", port=int(sys.argv[2]))
"""


@pytest.fixture(scope="module")
def postgresql() -> Iterator[str]:
    """Return the address of a database in a cluster that lives as long as these tests."""
    pytest.importorskip("psycopg", reason="needs psycopg, which the dev group installs")
    found = [*Path("/usr/lib/postgresql").glob("*/bin/initdb"), shutil.which("initdb")]
    programs = [Path(one).parent for one in found if one is not None]
    if not programs:
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
    owner = "postgres" if os.getuid() == 0 else None  # root may not run it
    folder = Path(tempfile.mkdtemp(prefix="cluster-", dir="/tmp"))
    if owner is not None:
        shutil.chown(folder, owner)

    def run(name: str, *arguments: object) -> None:
        command = [str(programs[0] / name), *map(str, arguments)]
        with (folder.parent / f"{folder.name}.log").open("ab") as log:
            subprocess.run(command, user=owner, cwd="/", stdout=log, stderr=log, check=True)

    data = folder / "data"
    settings = f"-c listen_addresses= -c unix_socket_directories={folder} -c fsync=off"
    try:
        run("initdb", "--no-sync", "--auth=trust", "--username=postgres", "-D", data)
        run("pg_ctl", "start", "-w", "-D", data, "-l", folder / "log", "-o", settings)
        yield f"postgresql+psycopg://postgres@/postgres?host={folder}"
        run("pg_ctl", "stop", "-m", "immediate", "-D", data)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        (folder.parent / f"{folder.name}.log").unlink(missing_ok=True)


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the address of a gRPC proxy that runs as long as these tests."""
    pytest.importorskip("grpc", reason="needs grpcio, which the dev group installs")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    database = f"sqlite:///{tmp_path_factory.mktemp('proxy') / 'trials.db'}"
    server = subprocess.Popen([sys.executable, "-c", PROXY, database, str(port)])
    yield f"grpc://127.0.0.1:{port}"
    server.kill()
    server.wait()


@pytest.fixture(params=["postgresql", "proxy"])
def url(request: pytest.FixtureRequest) -> str:
    found: str = request.getfixturevalue(request.param)
    return found


def worker(program: Any, folder: Path, url: str, seconds: float) -> Any:
    folder.mkdir()
    return program.start(folder, url, seconds, code=WORKER)


def test_what_a_killed_worker_had_is_done_by_the_others(
    program: Any, url: str, tmp_path: Path
) -> None:
    victim = worker(program, tmp_path / "victim", url, 600)
    stdout = victim.streams[0]
    victim.until(lambda: stdout.is_file() and stdout.read_text() == "0\n")  # amid its run
    victim.send(signal.SIGKILL)
    assert victim.wait().code == -signal.SIGKILL
    began = time.monotonic()
    others = [worker(program, tmp_path / name, url, 0.1) for name in ("one", "two")]
    ended = [one.wait(120) for one in others]
    assert [one.code for one in ended] == [0, 0], ended
    done = [one.stdout.split() for one in ended]
    assert time.monotonic() - began < 60
    assert sorted(map(int, done[0] + done[1])) == list(range(ENTRIES))  # each once
    storage: Any = queue_storage.opened(tmp_path / "none", url)
    entries = Queue(storage, "runs", tmp_path).entries()
    if url.startswith(queue_storage.GRPC):
        storage.close()
    else:
        storage.remove_session()
        storage.engine.dispose()
    assert entries[0].attempts[0].state.name == "FAIL"
    for name, entry in entries.items():
        (current,) = (one for one in entry.attempts if one.state.name == "COMPLETE")
        assert current.value == int(name) / 100
        assert current.user_attrs["run"] in ("one", "two")


def test_two_machines_search_together(program: Any, url: str, tmp_path: Path) -> None:
    options = (
        *("search", "--data", "digits", "--noise", "pair:0.4", "--model", "mlp"),
        *("--batch-size", 64, "--method", "proselflc", "--space", "epochs=1", "sharpness=8,16"),
        *("--no-retrain", "--json", "--storage", url),
    )
    first, second = (program(*options, "--out", tmp_path / name) for name in ("one", "two"))
    found = [json.loads(one.stdout) for one in (first, second)]
    assert found[0]["stages"] == found[1]["stages"]
    assert found[0]["chosen"]["proselflc"]["parameters"]["sharpness"] in (8.0, 16.0)
    assert len(list((tmp_path / "one" / "runs").glob("*/summary.json"))) == 3
    assert not list((tmp_path / "two" / "runs").iterdir())  # all was done
