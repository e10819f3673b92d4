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
from proselflc.cli.commands import data, labels, learning, listing, machine, paper
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


# These two take the parameters of the chosen method as options. Their usage is written down, as
# working it out takes a tenth of the time of --help.
LEARNING: dict[str, Callable[..., None]] = {"train": learning.train, "search": learning.search}
for name, learns in LEARNING.items():
    app.command(learns, usage=f"Usage: proselflc {name} [OPTIONS]")
for command in (
    *(listing.datasets, listing.methods, listing.models),
    *(learning.predict, learning.demo),
    *(labels.audit, labels.report, labels.export, labels.review),
    *(data.noise, data.embed, paper.reproduce, machine.doctor),
):
    app.command(command)


def main() -> None:
    """Run the command line and leave with its exit code.

    0 done, 2 the user's input was wrong, 130 interrupted. Anything else that is raised is a fault
    of ours: Python shows it and leaves with 1.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal that knows no ε
    if os.environ.get("WORLD_SIZE", "1") == "1":
        sys.exit(run(sys.argv[1:]))
    try:
        code = run(sys.argv[1:])
    except Exception:
        traceback.print_exc()
        code = 1
    if code == 0:
        sys.exit()
    # One of several processes must not wait at its end for others that are gone.
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
            "there is not enough memory for this: look for a file that is far larger than it "
            "should be, or use a machine with more memory"
        )
        return 1
    except BrokenPipeError:
        # Whoever read our output has seen enough; Python must not complain about it at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        sys.stderr.write("cannot write the output: no space is left where it goes\n")
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return 0


@app.command
def completion(shell: Literal["bash", "zsh", "fish"] = "bash", /) -> None:
    """Print a script that has a shell complete commands and options by the Tab key.

    For bash, put it into ~/.local/share/bash-completion/completions/proselflc; for fish, into
    ~/.config/fish/completions/proselflc.fish; for zsh, into _proselflc in a folder of $fpath.

    Args:
        shell: which one.
    """
    _take_parameters("train", methods.names())
    _take_parameters("search", methods.names())
    sys.stdout.write(app.generate_completion(prog_name="proselflc", shell=shell))


def _check_begins(arguments: Sequence[str], out: Path) -> None:
    """Refuse to go on with a run that is not there, unless the data says what to begin."""
    from proselflc.training.saved_model import no_run

    if config.flag_value(arguments, "--data") is None:
        raise InputError(f"{no_run(out)}; to begin one that can be resumed, name --data too")


def prepare(arguments: Sequence[str]) -> None:
    """Have the command that is asked for take the options that it can have.

    These are the parameters of the method that the command line or a TOML file chooses; the file is
    --config, or that of the run to be resumed, and stands behind the flags.

    Raises:
        InputError: the file or an option of the method cannot be used.
    """
    for command in LEARNING:
        app[command].config = ()
        _take_parameters(command, [Config.method])
    if not arguments or arguments[0] not in LEARNING:
        return
    command = arguments[0]
    values, source = _read_file(command, arguments)
    method = config.flag_value(arguments, "--method") or values.get("method", Config.method)
    takers = _take_parameters(command, [name.strip() for name in method.split(",")])
    method_options.check(arguments[1:], takers)
    if source is not None:
        # By command: among flat keys, "noise" would be taken for the command of that name.
        app[command].config = (Dict({command: values}, source=str(source)),)


def _take_parameters(command: str, names: Sequence[str]) -> tuple[Method[Any], ...]:
    """Have a command take the parameters of methods as options; return the methods."""
    takers = tuple(map(methods.find, names))
    app[command].default_command = method_options.taking(LEARNING[command], takers)
    return takers


def _read_file(command: str, arguments: Sequence[str]) -> tuple[dict[str, Any], Path | None]:
    """Read the TOML file that stands behind the flags of a command: its options, and its path."""
    from proselflc.models.named_code import check_repeated
    from proselflc.training.run_directory import RunDirectory, read_toml

    kept = {"train": "config.toml", "search": "study.toml"}
    name = config.flag_value(arguments, "--config")
    if name is not None:
        path = config.find(name)
    else:
        out = config.flag_value(arguments, "--out")
        if out is None or not any(word.partition("=")[0] == "--resume" for word in arguments):
            return {}, None
        path = Path(out) / kept[command]
        if not is_regular(path):
            if command == "train" and not {"--help", "-h"} & set(arguments):
                _check_begins(arguments, Path(out))
            return {}, None
        if command == "search":
            from proselflc.searching.study_directory import StudyDirectory

            StudyDirectory(Path(out)).read()  # another version's may not even have these options
    if path.name == kept["train"]:
        RunDirectory(path.parent).checked(path)
    table = dict(read_toml(path))
    own = config.of_search(table, path) if command == "search" else {}
    values = config.options(table, path, arguments)
    check_repeated(values.get("model", ""), path, config.flag_value(arguments, "--model"))
    is_asked = any(word.partition("=")[0] == "--overwrite" for word in arguments)
    if values.get("overwrite") == "true" and not is_asked:
        raise InputError(
            f"{path} asks to overwrite what is in --out, and a file may come from anywhere: add "
            "--overwrite to the command if you want that, or remove the line from the file"
        )
    return {**values, **own}, path
