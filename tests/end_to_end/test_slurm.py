"""examples/slurm.sbatch: stopped before the time limit, queued again, resumed, on two machines.

The machines are this one twice; stand-ins for SLURM's commands do what those do.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from safetensors import safe_open

SCRIPT = Path(__file__).parents[2] / "examples" / "slurm.sbatch"
STEPS = 500
COMMANDS = {
    # One task per machine. A signal to srun itself kills the tasks.
    "srun": """
[ "$1" = --kill-on-bad-exit=1 ] || exit 9
shift
tasks=()
trap 'kill -KILL "${tasks[@]}"' TERM
for ((node = 0; node < SLURM_NNODES; node++)); do
    SLURM_NODEID=$node "$@" &
    tasks+=($!)
done
echo "${tasks[@]}" >"$SLURM_SUBMIT_DIR/tasks"
code=0
for task in "${tasks[@]}"; do
    while kill -0 "$task" 2>/dev/null; do wait "$task" || code=$?; done
done
exit "$code"
""",
    # It signals all processes of the tasks, to which torchrun passes the signal on as well.
    "scancel": """
[ "$*" = "--signal=TERM $SLURM_JOB_ID" ] || exit 9
for task in $(cat "$SLURM_SUBMIT_DIR/tasks"); do
    kill -TERM $(cat "/proc/$task/task/$task/children") "$task"
done
""",
    "scontrol": """
case "$1" in
show) [ "$2 $3" = "hostnames loop[1-2]" ] && printf '127.0.0.1\\n127.0.0.1\\n' ;;
requeue) echo "$2" >>"$SLURM_SUBMIT_DIR/queued" ;;
*) exit 9 ;;
esac
""",
    "torchrun": f'exec {sys.executable} -m torch.distributed.run "$@"\n',
}


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """What SLURM sets in a job, with its commands first on the path."""
    commands = tmp_path / "bin"
    commands.mkdir()
    for name, body in COMMANDS.items():
        (commands / name).write_text(f"#!/bin/bash\n{body}")
        (commands / name).chmod(0o755)
    job = os.getpid()
    while not is_free(20000 + job % 20000):  # the port that the script takes
        job += 1
    return {
        **os.environ,
        "PATH": f"{commands}:{os.environ['PATH']}",
        "SLURM_JOB_ID": str(job),
        "SLURM_JOB_NODELIST": "loop[1-2]",
        "SLURM_NNODES": "2",
        "SLURM_CPUS_PER_TASK": "1",
        "SLURM_SUBMIT_DIR": str(tmp_path),
    }


def is_free(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) != 0


def start(tmp_path: Path, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    options = ["--data", "digits", "--model", "mlp", "--method", "elr", "--steps", str(STEPS)]
    out = ["--checkpoint-seconds", "0.5", "--out", str(tmp_path / "run")]
    with open(tmp_path / "log", "a") as log:
        return subprocess.Popen(
            ["bash", str(SCRIPT), *options, *out], stdout=log, stderr=log, env=environment
        )


def test_a_job_that_is_signalled_is_queued_again_and_ends_its_run(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    run, log = tmp_path / "run", tmp_path / "log"
    first = start(tmp_path, environment)
    until = time.monotonic() + 300
    while not list(run.glob("checkpoints/*.safetensors")):
        assert first.poll() is None, log.read_text()
        assert time.monotonic() < until, log.read_text()
        time.sleep(0.05)
    first.send_signal(signal.SIGUSR1)
    assert first.wait(timeout=300) == 0, log.read_text()
    assert (tmp_path / "queued").read_text() == f"{environment['SLURM_JOB_ID']}\n"
    kept = sorted(run.glob("checkpoints/*.safetensors"))[-1]
    stopped_at = int(kept.name[:10])
    assert 0 < stopped_at < STEPS
    assert not (run / "summary.json").exists()
    with safe_open(kept, framework="pt") as file:
        assert json.loads(file.metadata()["facts"])["processes"] == 2
    assert "stopped after step" in log.read_text()

    assert start(tmp_path, environment).wait(timeout=300) == 0, log.read_text()
    assert json.loads((run / "summary.json").read_text())["steps"] == STEPS
    lines = [json.loads(line)["step"] for line in (run / "history.jsonl").read_text().splitlines()]
    assert lines == sorted(set(lines))
    assert lines[-1] == STEPS
    assert (tmp_path / "queued").read_text().count("\n") == 1  # a run that ended is not queued


def test_the_job_asks_for_what_it_relies_on() -> None:
    asked = re.findall(r"^#SBATCH --(\S+)", SCRIPT.read_text(), re.MULTILINE)
    assert {"requeue", "signal=B:USR1@120", "ntasks-per-node=1", "open-mode=append"} <= set(asked)
    assert os.access(SCRIPT, os.X_OK)
