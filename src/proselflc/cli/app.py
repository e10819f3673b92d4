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
from typing import Any, Literal

from cyclopts import App, CycloptsError, Parameter
from cyclopts.config import Dict

from proselflc import __version__, methods
from proselflc.cli import data, labels, learning, options
from proselflc.errors import InputError, RunError
from proselflc.run.config import Config
from proselflc.terminal import complain
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
for name, learns in LEARNING.items():
    app.command(learns, usage=f"Usage: proselflc {name} [DATA] [OPTIONS]")
app.command(data.columns, usage="Usage: proselflc columns FILE [OPTIONS]")
for command in (
    *(data.datasets, data.methods, data.models, data.doctor),
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


@on_command_line()
def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code."""
    try:
        with options.with_data(arguments) as words:
            prepare(words)
            app(
                words,
                exit_on_error=False,
                print_error=False,
                result_action="return_value",
            )
        sys.stdout.flush()
    except (InputError, CycloptsError) as error:
        complain(str(error), is_of_all=True)
        return 2
    except RunError as error:
        complain(str(error), is_of_all=True)
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
    """Give `train` and `search` the options that the arguments call for, `noise` its full help.

    The options are the parameters of the method that the command line or a TOML file chooses. The
    file is --config, or that of the run to be resumed; flags override it.

    Raises:
        InputError: the file or an option of the method cannot be used.
    """
    for command in LEARNING:
        app[command].config = ()
        _add_parameters(command, [Config.method])
    if arguments and arguments[0] == "noise":
        app["noise"].default_command = data.noise_with_kinds()
    if not arguments or arguments[0] not in LEARNING:
        return
    command = arguments[0]
    values, source = options.read_config(command, arguments)
    method = options.flag_value(arguments, "--method") or values.get("method", Config.method)
    chosen = _add_parameters(command, [name.strip() for name in method.split(",")])
    options.check_parameters(arguments[1:], chosen)
    if source is not None:
        # By command: among flat keys, "noise" would be taken for the command of that name.
        app[command].config = (Dict({command: values}, source=str(source)),)


def _add_parameters(command: str, names: Sequence[str]) -> tuple[Method[Any], ...]:
    """Add the parameters of methods to a command as options; return the methods."""
    chosen = tuple(map(methods.find, names))
    app[command].default_command = options.with_parameters(LEARNING[command], chosen)
    return chosen
