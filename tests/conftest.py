"""What all tests share."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

# Starting Python with torch takes longer than most runs of a test. This process has it all
# imported; every program that a test wants is a fork of it: a process of its own all the same,
# with its own signals and streams, that can be killed.
SERVER = """
import json, os, resource, runpy, sys, traceback
import filelock, pyarrow.parquet, rich.progress, sklearn.datasets, sklearn.metrics, tomli_w
import torch._dynamo
import proselflc.app.cli, proselflc.app.config, proselflc.app.display, proselflc.app.run

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
        runpy.run_module("proselflc", run_name="__main__", alter_sys=True)
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
    """Tests run side by side; each has one core."""
    torch.set_num_threads(1)


@dataclass(frozen=True)
class Done:
    """What a program has left: its exit code (−9 for one that was killed) and its output."""

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
            env={**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "150"},
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
    ) -> Running:
        """Start it, in a folder, with more environment, a limit on files or a terminal."""
        self._count += 1
        stem = self._folder / f"{self._count}"
        streams = (stem.with_suffix(".out"), stderr or stem.with_suffix(".err"))
        pid = self.ask(
            {
                "arguments": [str(one) for one in arguments],
                "environment": dict(environment or {}),
                "folder": str(folder or self._folder),
                "largest_file": largest_file,
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
