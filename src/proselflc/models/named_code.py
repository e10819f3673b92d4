"""Code that makes a model: which names stand for such code, and who may have it executed.

`package.module:factory` is imported and called. Who runs a command names it there, or in a call;
a file may come from anybody, so what a file names is executed only where the user repeats it.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from proselflc.errors import InputError

LIBRARIES = ("timm", "torchvision")  # whose models are made by name: nothing else is imported


def names_code(model: object) -> bool:
    """Whether a model's name is `package.module:factory`, which would be imported.

    >>> names_code("my_models:small"), names_code("timm:resnet18"), names_code("mlp")
    (True, False, False)
    """
    kind, colon, _ = str(model or "").partition(":")
    return bool(colon) and kind not in LIBRARIES


def flag_for(model: object) -> str:
    """What a command needs that goes on with a model of the user's own; empty for others.

    >>> flag_for("my_models:small")
    ' --model my_models:small'
    """
    return f" --model {shlex.quote(str(model))}" if names_code(model) else ""


def check_repeated(model: str, source: Path, repeated: str | None) -> None:
    """Refuse code that a file names and the user does not.

    Args:
        model: as the file has it.
        source: the file.
        repeated: what the user says on this call that the model is, or None.

    Raises:
        InputError: the user has not said which model it is.
    """
    if repeated is not None or not names_code(model):
        return
    module, _, factory = model.partition(":")
    raise InputError(
        f"{source} would have this command import the Python module {module}, which is looked for "
        f"in {Path.cwd()} first, and call {factory} in it to make the model: a file may come from "
        f"anybody, so if you trust that code, repeat it on the command line with{flag_for(model)}"
    )
