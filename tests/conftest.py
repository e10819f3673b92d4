"""Fixtures for all tests."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tomli_w
import torch

from proselflc.auditing.audit import Audit
from proselflc.auditing.caveats import AuditWarning
from proselflc.auditing.examples import ACTIONS, write_parquet
from proselflc.auditing.judge import Judge
from proselflc.data import class_matrix
from proselflc.data.labels import Labels
from proselflc.data.noise import fingerprint
from proselflc.files.manifest import Written
from proselflc.training.observations import NO_CLASS, ROW
from proselflc.training.run_directory import RunDirectory

# Tests run side by side, each on one core, and so does all that they start: threads that wait for
# one another on cores that others need take many times as long.
os.environ["OMP_NUM_THREADS"] = "1"
torch.set_num_threads(1)

# A shell that puts the tests into the background has them ignore Ctrl-C, and all that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # the same under nohup
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

# Starting Python with torch takes longer than most tests. This process has everything imported,
# and every program that a test starts is a fork of it: a process with its own signals and streams,
# which can be killed.
SERVER = """
import json, os, resource, runpy, sys, traceback, types, warnings
import filelock, pyarrow.parquet, rich.progress, sklearn.datasets, sklearn.metrics, tomli_w
import jinja2, matplotlib.backends.backend_agg, matplotlib.figure, optuna, PIL.Image, torch._dynamo
import proselflc.cli.app, proselflc.run.config, proselflc.terminal, proselflc.run.train

def become(wanted):
    os.setsid()
    for number, stream in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(wanted[stream], os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
    os.environ.update(wanted["environment"])
    os.chdir(wanted["folder"])
    if wanted["largest_file"]:
        resource.setrlimit(resource.RLIMIT_FSIZE, (wanted["largest_file"],) * 2)
    sys.argv = ["proselflc", *wanted["arguments"]]
    try:
        if wanted["code"] is None:
            runpy.run_module("proselflc", run_name="__main__", alter_sys=True)
        else:
            warnings.simplefilter("error")
            sys.path.insert(0, "")
            main = sys.modules["__main__"] = types.ModuleType("__main__")
            exec(compile(wanted["code"], "<code>", "exec"), vars(main))
    except SystemExit as leaving:
        return leaving.code or 0
    except BaseException:
        traceback.print_exc()
        return 1
    return 0

for line in sys.stdin:
    wanted = json.loads(line)
    if "ended" in wanted:
        pid, status = os.waitpid(wanted["ended"], os.WNOHANG)
        answer = os.waitstatus_to_exitcode(status) if pid else None
    else:
        answer = os.fork()
        if answer == 0:
            code = become(wanted)
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
            os._exit(code)
    print(json.dumps(answer), flush=True)
"""


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    """Reset the number of threads, which an earlier test may have changed."""
    torch.set_num_threads(1)


@dataclass(frozen=True)
class Done:
    """The exit code of a program (−9 if it was killed) and its output."""

    code: int
    stdout: str
    stderr: str


class Running:
    """A program that was started."""

    def __init__(self, program: Program, pid: int, streams: tuple[Path, Path]) -> None:
        self.pid = pid
        self.streams = streams
        self._program = program
        self._code: int | None = None

    def ended(self) -> bool:
        if self._code is None:
            self._code = self._program.ask({"ended": self.pid})
        return self._code is not None

    def send(self, number: int) -> None:
        if not self.ended():
            os.kill(self.pid, number)

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait until something is so; the program must not end before that."""
        while not condition():
            assert not self.ended(), self.wait().stderr
            time.sleep(0.001)

    def wait(self, seconds: float = 120) -> Done:
        deadline = time.monotonic() + seconds
        while not self.ended():
            if time.monotonic() > deadline:
                self.send(signal.SIGKILL)
                raise AssertionError(f"still running after {seconds} seconds")
            time.sleep(0.01)
        assert self._code is not None
        out, err = (stream.read_text() if stream.is_file() else "" for stream in self.streams)
        return Done(self._code, out, err)


class Program:
    """`proselflc …` in processes of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0
        self._server = subprocess.Popen(
            [sys.executable, "-c", SERVER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "COLUMNS": "150"},
        )

    def ask(self, wanted: Mapping[str, object]) -> int | None:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(json.dumps(wanted) + "\n")
        self._server.stdin.flush()
        answer: int | None = json.loads(self._server.stdout.readline())
        return answer

    def start(
        self,
        *arguments: object,
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
        largest_file: int | None = None,
        stderr: Path | None = None,
        code: str | None = None,
    ) -> Running:
        """Start it, in a folder, with more environment, a limit on files or a terminal.

        Args:
            code: a Python program to run instead, with warnings as errors.
        """
        self._count += 1
        stem = self._folder / f"{self._count}"
        streams = (stem.with_suffix(".out"), stderr or stem.with_suffix(".err"))
        pid = self.ask(
            {
                "arguments": [str(one) for one in arguments],
                "environment": dict(environment or {}),
                "folder": str(folder or self._folder),
                "largest_file": largest_file,
                "code": code,
                "stdout": str(streams[0]),
                "stderr": str(streams[1]),
            }
        )
        assert pid is not None
        return Running(self, pid, streams)

    def __call__(self, *arguments: object, code: int = 0) -> Done:
        """Run it to its end; the exit code must be the one expected."""
        done = self.start(*arguments).wait()
        assert done.code == code, done.stderr
        assert "\x1b" not in done.stdout + done.stderr  # no colour
        return done

    def close(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            self._server.communicate()


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    """Runs the command line in processes of its own."""
    one = Program(tmp_path_factory.mktemp("program"))
    yield one
    one.close()


def reseal(run: Path) -> None:
    """Write a manifest that fits the current files, as a forger of a run would."""
    directory = RunDirectory(run)
    folds = [path for path in (directory.folds_done, directory.folds_p) if path.is_file()]
    Written(run).seal([*directory.listed(), *folds])


@pytest.fixture(scope="session")
def resealed() -> Callable[[Path], None]:
    """Makes damage pass for what the run wrote; see `reseal`."""
    return reseal


TIMES = ("seconds", "images_per_second")


def same_run(run: Path, other: Path) -> None:
    """Weights, dynamics, history and what is made of them are the same, bit for bit."""
    for name in ("model.safetensors", "model.json", "examples.parquet", "evaluation.json"):
        assert (run / name).read_bytes() == (other / name).read_bytes(), name
    names = sorted(path.name for path in (run / "dynamics").iterdir())
    assert names == sorted(path.name for path in (other / "dynamics").iterdir())
    for name in names:
        assert (run / "dynamics" / name).read_bytes() == (other / "dynamics" / name).read_bytes()
    one, two = (
        [
            json.loads((path / "summary.json").read_text()),
            *(json.loads(line) for line in (path / "history.jsonl").read_text().splitlines()),
        ]
        for path in (run, other)
    )
    for facts in (*one, *two):
        assert facts["seconds"] > 0
        for name in TIMES:
            facts.pop(name, None)
    assert one == two


@pytest.fixture
def assert_same() -> Callable[[Path, Path], None]:
    """Compares two runs; see `same_run`."""
    return same_run


def fabricated_run(
    folder: Path,
    name: str = "run",
    *,
    n: int = 12,
    names: Sequence[str] = ("cat", "dog", "fox"),
    ids: Sequence[str] | None = None,
    suspects: int | None = None,
    epochs: int = 4,
    points: int = 4,
    truth: bool = True,
    test: bool = True,
    audited: bool = True,
    older: bool = False,
    warnings: Sequence[AuditWarning] = (),
    config: dict[str, Any] | None = None,
    summary: dict[str, Any] | None = None,
    history: dict[str, Any] | None = None,
) -> Path:
    """Write the files of a run without training; every second example is a suspect, and sure."""
    path = folder / name
    path.mkdir()
    directory = RunDirectory(path)
    C, marked = len(names), n // 2 if suspects is None else suspects
    given = np.arange(n) % C
    is_suspect = np.arange(n) < marked
    suggested = np.where(is_suspect, (given + 1) % C, given)
    column = pa.array(names, pa.string())
    quality = np.where(is_suspect, 0.1, 0.9).astype(np.float32)
    flat = {
        "index": pa.array(np.arange(n)),
        "id": pa.array([f"id-{k}" for k in range(n)] if ids is None else ids, pa.string()),
        "given_label": column.take(pa.array(given)),
        "suggested_label": column.take(pa.array(suggested)),
        "is_suspect": pa.array(is_suspect),
        "action": pa.array(np.where(is_suspect, "change", "keep")),
        "quality": pa.array(quality),
        "witness": column.take(pa.array(suggested)),
        "trust": pa.array(quality),
        "entropy": pa.array(quality),
        "p_given": pa.array(quality),
        "p_suggested": pa.array(np.full(n, 0.8, np.float32)),
        "first_learned_epoch": pa.array(np.zeros(n, np.int32)),
        "flips": pa.array(np.zeros(n, np.int32)),
        "corrected_distribution": pa.array([[0.5]] * n, pa.list_(pa.float32())),
    }
    if older:  # a version that did not say what to do
        del flat["action"], flat["witness"]
    if truth:
        flat["clean_label"] = column.take(pa.array(suggested))
    write_parquet(pa.table(flat), directory.examples)
    for epoch in range(epochs):
        directory.dynamics.mkdir(exist_ok=True)
        rows = np.zeros(n, ROW)
        rows["p_given"] = np.linspace(0, 1, n) * (epoch + 1) / epochs
        rows["p_other"] = 1 - rows["p_given"]
        rows["predicted"] = NO_CLASS
        with (directory.dynamics / f"epoch-{epoch:05d}.npy").open("wb") as file:
            np.lib.format.write_array(file, rows)
    if audited:
        Audit(
            num_examples=n,
            suspects=marked,
            folds=None,
            estimated_noise_rate=marked / n,
            realised_noise_rate=marked / n if truth else None,
            expected_precision=0.88 if marked else None,
            names=tuple(names),
            joint=class_matrix.counted(suggested, given, C),
            realised=class_matrix.counted(suggested, given, C) if truth else None,
            changes=None if older else marked,
            noise_low=None if older else marked / n,
            noise_high=None if older else marked / n,
            judge=None if older else Judge("standardised columns", 0.95, 0.9, 0.9, 0.8),
            warnings=tuple(warnings),
        ).save(directory)
    table = {"fingerprint": "f" * 64, "data": "/nowhere/pets.csv", "epochs": epochs}
    table |= {"method": {"name": "proselflc"}, "seed": 7, **(config or {})}
    with directory.config.open("wb") as file:
        tomli_w.dump({**table, "versions": {"proselflc": "0.1.0"}}, file)
    known = 0.5 if truth else None
    line = {
        "train_accuracy": 0.8,
        "test_accuracy": 0.7 if test else None,
        "g": 0.5,
        "epsilon": 0.3,
        "entropy": 0.4,
        **dict.fromkeys(("correct_fitting", "wrong_fitting", "semantic_correction"), known),
        **dict.fromkeys(("entropy_clean", "entropy_noisy"), known),
        **(history or {}),
    }
    directory.write_history(
        [
            {"step": k + 1, "epoch": k + 1, "progress": (k + 1) / points, **line}
            for k in range(points)
        ]
    )
    bins = {
        "edges": [0, 0.5, 1],
        "counts": [10, 30],
        "confidence": [0.4, 0.9],
        "accuracy": [0.5, 0.8],
    }
    rows_of_table = [
        {"T": T, "reading": how, "measure": what, "ece": 0.123}
        for how in ("divide", "multiply")
        for T in (1.0, 0.25, 0.125)
        for what in ("max_p", "entropy")
    ]
    measured = {"n": 40, "accuracy": 0.7, "per_class": [0.5] * C, "reliability": bins}
    directory.write_json(
        directory.evaluation,
        {"test": {**measured, "calibration": rows_of_table}} if test else {},
    )
    directory.write_json(
        directory.summary,
        {
            "method": "proselflc",
            "data": "pets",
            "noise": "pairflip:0.4",
            "test_accuracy": 0.7 if test else None,
            "ece": 0.1 if test else None,
            "label_accuracy_before": 0.5 if truth else None,
            "label_accuracy_after": 1.0 if truth else None,
            "wrong_fitting": known,
            "realised_noise_rate": marked / n if truth else None,
            "detection": {"auroc": 0.9, "precision": 1.0} if truth else None,
            "seconds": 2.0,
            "fingerprint": "f" * 64,
            **(summary or {}),
        },
    )
    return path


@pytest.fixture(scope="session")
def fabricate_in() -> Callable[..., Path]:
    """Return a function that writes an untrained run into a folder; see `fabricated_run`."""
    return fabricated_run


@pytest.fixture
def fabricate(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes an untrained run into the folder of the test."""
    return partial(fabricated_run, tmp_path)


def reviewable_run(
    folder: Path,
    name: str = "run",
    *,
    n: int = 12,
    names: Sequence[str] = ("cat", "dog", "fox"),
    ids: Sequence[str] | None = None,
    data: str = "nowhere.csv",
    **options: Any,
) -> Path:
    """A fabricated run with labels, so that it can be reviewed; see `fabricated_run`."""
    config = {"data": data, **options.pop("config", {})}
    path = fabricated_run(folder, name, n=n, names=names, ids=ids, config=config, **options)
    given = np.arange(n) % len(names)
    Labels(
        given=given,
        clean=None,
        flipped=np.zeros(n, np.bool_),
        transition=np.eye(len(names)),
        names=tuple(names),
        ids=tuple(f"id-{k}" for k in range(n)) if ids is None else tuple(ids),
        generator="none",
        fingerprint=fingerprint(given, len(names)),
    ).save(path / "labels.npz")
    return path


@dataclass
class Serving:
    """A server of a review, in a process of its own.

    Attributes:
        running: the process.
        address: that it has printed, with its key.
        cookie: what the key is exchanged for, once `enter` was called.
    """

    running: Running
    address: str
    cookie: str = ""

    @property
    def host(self) -> str:
        return self.address.partition("//")[2].partition("/")[0]

    @property
    def port(self) -> int:
        return int(self.host.rpartition(":")[2])

    def send(
        self,
        method: str,
        path: str,
        headers: Sequence[tuple[str, str]] = (),
        body: bytes = b"",
    ) -> tuple[int, dict[str, str], bytes]:
        """Exactly this request, with nothing added; status, headers and body of the answer."""
        with socket.create_connection(("127.0.0.1", self.port), 30) as line:
            lines = [f"{method} {path} HTTP/1.1", *(f"{k}: {v}" for k, v in headers)]
            line.sendall("\r\n".join([*lines, "Connection: close", "", ""]).encode() + body)
            answer = http.client.HTTPResponse(line, method=method)
            answer.begin()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return answer.status, found, answer.read()

    def enter(self) -> None:
        """Exchange the key for a cookie."""
        token = self.address.partition("/?")[2]
        status, headers, _ = self.send("GET", f"/?{token}", [("Host", self.host)])
        assert status == 303
        self.cookie = headers["set-cookie"].partition(";")[0]

    def get(self, path: str) -> Any:
        """What the page would be told."""
        own = [("Host", self.host), ("Cookie", self.cookie)]
        status, _, body = self.send("GET", path, own)
        assert status == 200, body
        return json.loads(body)

    def post(self, value: object, status: int = 200) -> Any:
        """Decide as the page would."""
        body = json.dumps(value).encode()
        own = [("Host", self.host), ("Cookie", self.cookie), ("Origin", f"http://{self.host}")]
        kind = [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
        found, _, answer = self.send("POST", "/api/decide", [*own, *kind], body)
        assert found == status, answer
        return json.loads(answer)

    def kill(self, number: int = signal.SIGKILL) -> Done:
        self.running.send(number)
        return self.running.wait()


@pytest.fixture(scope="module")
def serve(program: Program) -> Iterator[Callable[..., Serving]]:
    """Starts the server of a review and ends it after the tests of the module."""
    servers: list[Serving] = []

    def go(run: Path, *options: object) -> Serving:
        chosen = options if "--port" in options else (*options, "--port", 0)
        running = program.start("review", run, "--no-browser", *chosen)
        printed = running.streams[0]
        running.until(lambda: printed.is_file() and printed.read_text().endswith("\n"))
        servers.append(Serving(running, printed.read_text().splitlines()[0]))
        return servers[-1]

    yield go
    for one in servers:
        one.kill()


@pytest.fixture(scope="session")
def reviewable() -> Callable[..., Path]:
    """Writes a run that can be reviewed into a folder; see `reviewable_run`."""
    return reviewable_run


def with_actions(path: Path, changes: int, **facts: Any) -> Path:
    """Let the audit of a fabricated run be sure of some suspects, and unsure of the others.

    The first suspects are those to change; `facts` are other values of the audit.
    """
    directory = RunDirectory(path)
    table = pq.read_table(directory.examples)
    suspect = table["is_suspect"].to_numpy().astype(np.int8)
    change = (np.cumsum(suspect) <= changes) & (suspect == 1)
    actions = pa.array(ACTIONS, pa.string()).take(pa.array(suspect + change))
    place = table.column_names.index("action")
    write_parquet(table.set_column(place, "action", actions), directory.examples)
    audit = Audit.load(directory)
    rate = audit.estimated_noise_rate
    known = {"noise_low": rate / 2, "noise_high": min(1.0, 2 * rate), "warnings": ()}
    replace(audit, changes=changes, **{**known, **facts}).save(directory)
    return path


@pytest.fixture(scope="session")
def acting() -> Callable[..., Path]:
    """Makes a fabricated run one with suspects that are not sure; see `with_actions`."""
    return with_actions
