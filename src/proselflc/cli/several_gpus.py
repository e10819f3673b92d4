"""The commands that spread the runs of a reproduction over several GPUs."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence


def commands(arguments: Sequence[str], hours: float) -> dict[str, str]:
    """Return the commands that train on several GPUs of a machine, and as a SLURM array.

    All workers share the directory of the results, and each claims runs that no other has. The
    time limit of a job is a day, or less if eight jobs need less. Two minutes before it a worker
    is told to stop; its run continues when the command is given again.
    """
    line = shlex.join(["proselflc", "reproduce", *arguments])
    limit = max(1, min(24, math.ceil(1.5 * hours / 8)))
    return {
        "4 GPUs of one machine": (
            f"for gpu in 0 1 2 3; do CUDA_VISIBLE_DEVICES=$gpu {line} & done; wait"
        ),
        "8 GPUs of a SLURM cluster": (
            f"sbatch --array=0-7 --gpus=1 --cpus-per-task=8 --time={limit}:00:00 "
            f"--signal=B:TERM@120 --requeue --wrap {shlex.quote(f'exec {line}')}"
        ),
    }
