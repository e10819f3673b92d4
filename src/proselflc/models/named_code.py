"""Code that makes a model: which names stand for it, and when it may be executed.

`package.module:factory` is imported and called. The user names it on the command line or in a call.
A file is not trusted: code that it names is executed only if the user names it too.
"""

from __future__ import annotations

from pathlib import Path

from proselflc.errors import InputError
from proselflc.wording import option

LIBRARIES = ("timm", "torchvision")  # whose models are made by name: nothing else is imported


def names_code(model: object) -> bool:
    """Return whether a model's name is `package.module:factory`, which would be imported.

    >>> names_code("my_models:small"), names_code("timm:resnet18"), names_code("mlp")
    (True, False, False)
    """
    kind, colon, _ = str(model or "").partition(":")
    return bool(colon) and kind not in LIBRARIES


def check_repeated(model: str, source: Path, repeated: str | None) -> None:
    """Refuse code that a file names and the user does not."""
    if repeated is not None or not names_code(model):
        return
    module, _, factory = model.partition(":")
    raise InputError(
        f"{source} would have this command import the Python module {module}, which is looked for "
        f"in {Path.cwd()} first, and call {factory} in it to make the model, but a file is not "
        "trusted to name code",
        field="model",
        fix=f"if you trust that code, name it yourself with {option('model', model)}",
    )
