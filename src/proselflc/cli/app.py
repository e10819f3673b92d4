"""The command `proselflc`.

Nothing heavy is imported before a command runs, so that `--help` answers at once.
"""

from __future__ import annotations

import errno
import io
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

from cyclopts import App, CycloptsError, Parameter
from cyclopts.config import Dict

from proselflc import __version__, methods
from proselflc.cli import data, labels, learning, listing
from proselflc.errors import InputError, RunError
from proselflc.files.regular import is_regular
from proselflc.run import config, method_options
from proselflc.run.config import Config
from proselflc.terminal.printing import complain
from proselflc.training.method import Method
from proselflc.wording import on_command_line

app = App(
    name="proselflc",
    help="Learn from wrongly labelled data.",
    version=__version__,
    help_format="markdown",
    default_parameter=Parameter(negative=()),
    suppress_keyboard_interrupt=False,
)


# These two take the parameters of the chosen method as options. Their usage line is fixed because
# generating it takes a tenth of the time of --help.
LEARNING: dict[str, Callable[..., None]] = {"train": learning.train, "search": learning.search}
CONFIG_FILES = {"train": "config.toml", "search": "study.toml"}
for name, learns in LEARNING.items():
    app.command(learns, usage=f"Usage: proselflc {name} [OPTIONS]")
for command in (
    *(listing.datasets, listing.methods, listing.models, listing.doctor),
    *(learning.predict, learning.demo, learning.reproduce),
    *(labels.audit, labels.report, labels.export, labels.review),
    *(data.noise, data.embed),
):
    app.command(command)


def main() -> None:
    """Run the command line and exit with its code.

    The code is 0 for success, 1 for a failed run, 2 for wrong input and 130 for an interrupt. Any
    other exception is a bug: Python prints its traceback and exits with 1.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal without ε
    if os.environ.get("WORLD_SIZE", "1") == "1":
        sys.exit(run(sys.argv[1:]))
    try:
        code = run(sys.argv[1:])
    except Exception:
        traceback.print_exc()
        code = 1
    if code == 0:
        sys.exit()
    # At its end, one of several processes must not wait for the others, which may be gone.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code."""
    with on_command_line():
        return _run(arguments)


def _run(arguments: Sequence[str]) -> int:
    try:
        prepare(arguments)
        app(
            arguments,
            exit_on_error=False,
            print_error=False,
            result_action="return_value",
        )
        sys.stdout.flush()
    except (InputError, CycloptsError) as error:
        complain(str(error))
        return 2
    except RunError as error:
        complain(str(error))
        return 1
    except KeyboardInterrupt as error:
        complain(str(error) or "interrupted")
        return 130
    except MemoryError:
        complain(
            "there is not enough memory: check for a file that is far larger than it should be, "
            "or use a machine with more memory"
        )
        return 1
    except BrokenPipeError:
        # The reader of the output has closed it; Python must not complain when it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        sys.stderr.write("cannot write the output: no space left on the device\n")
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return 0


@app.command
def completion(shell: Literal["bash", "zsh", "fish"] = "bash", /) -> None:
    """Print a script that enables Tab completion of commands and options in a shell.

    For bash, save it as ~/.local/share/bash-completion/completions/proselflc; for fish, as
    ~/.config/fish/completions/proselflc.fish; for zsh, as _proselflc in a folder of $fpath.

    Args:
        shell: shell to print the script for.
    """
    for command in LEARNING:
        _add_parameters(command, methods.names())
    sys.stdout.write(app.generate_completion(prog_name="proselflc", shell=shell))


def prepare(arguments: Sequence[str]) -> None:
    """Give `train` and `search` the options that the arguments call for.

    These are the parameters of the method that the command line or a TOML file chooses. The file is
    --config, or that of the run to be resumed; flags override it.

    Raises:
        InputError: the file or an option of the method cannot be used.
    """
    for command in LEARNING:
        app[command].config = ()
        _add_parameters(command, [Config.method])
    if not arguments or arguments[0] not in LEARNING:
        return
    command = arguments[0]
    values, source = _read_file(command, arguments)
    method = config.flag_value(arguments, "--method") or values.get("method", Config.method)
    chosen = _add_parameters(command, [name.strip() for name in method.split(",")])
    method_options.check(arguments[1:], chosen)
    if source is not None:
        # By command: among flat keys, "noise" would be taken for the command of that name.
        app[command].config = (Dict({command: values}, source=str(source)),)


def _add_parameters(command: str, names: Sequence[str]) -> tuple[Method[Any], ...]:
    """Add the parameters of methods to a command as options; return the methods."""
    chosen = tuple(map(methods.find, names))
    app[command].default_command = method_options.taking(LEARNING[command], chosen)
    return chosen


def _has_flag(arguments: Sequence[str], flag: str) -> bool:
    return any(word.partition("=")[0] == flag for word in arguments)


def _read_file(command: str, arguments: Sequence[str]) -> tuple[dict[str, Any], Path | None]:
    """Return the options of the TOML file that a command line refers to, and the file's path."""
    from proselflc.models.named_code import check_repeated
    from proselflc.training.run_directory import RunDirectory, read_toml

    path = _find_file(command, arguments)
    if path is None:
        return {}, None
    if path.name == CONFIG_FILES["train"]:
        RunDirectory(path.parent).checked(path)
    table = dict(read_toml(path))
    own = config.of_search(table, path) if command == "search" else {}
    values = config.options(table, path, arguments)
    check_repeated(values.get("model", ""), path, config.flag_value(arguments, "--model"))
    if values.get("overwrite") == "true" and not _has_flag(arguments, "--overwrite"):
        raise InputError(
            f"{path} sets overwrite, which a file cannot do alone as it may come from anywhere",
            field="overwrite",
            fix="add --overwrite to the command, or remove the line from the file",
        )
    return {**values, **own}, path


def _find_file(command: str, arguments: Sequence[str]) -> Path | None:
    """Return the TOML file that --config names or that --resume continues, if any."""
    name = config.flag_value(arguments, "--config")
    if name is not None:
        return config.find(name)
    out = config.flag_value(arguments, "--out")
    if out is None or not _has_flag(arguments, "--resume"):
        return None
    path = Path(out) / CONFIG_FILES[command]
    if not is_regular(path):
        is_help = _has_flag(arguments, "--help") or _has_flag(arguments, "-h")
        if command == "train" and not is_help and not _has_flag(arguments, "--data"):
            from proselflc.training.saved_model import no_run

            raise InputError(f"{no_run(Path(out))}; to start one that can be resumed, add --data")
        return None
    if command == "search":
        from proselflc.searching.study_directory import StudyDirectory

        StudyDirectory(Path(out)).read()  # the file of another version may have other options
    return path
