"""Texts of all kinds, and the weights of the pretrained models that are installed."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from proselflc.pretrained.catalogue import BACKBONES

_ODD = {
    "a lone surrogate": "\ud83d",
    "half a pair": "half a pair \udc00 and on",
    "control characters": "\x00\x01\x7f",
    "invisible": "\u200b\u200d\ufeff",
    "many accents": "a" + "\u0301" * 10_000,
    "emoji": "\U0001f600" * 30_000,
    "one long word": "x" * 1_000_000,
    "many words": "word " * 100_000,
    "marks of tokenizers": "<s></s>[CLS][SEP][PAD]<unk>",
}


@pytest.fixture(params=list(_ODD.values()), ids=list(_ODD))
def odd_text(request: pytest.FixtureRequest) -> str:
    """Return an unusual text: odd characters, very long words or mixed languages."""
    text: str = request.param
    return text


@pytest.fixture(scope="session")
def sentences() -> list[str]:
    """Texts in several languages."""
    return [
        "A court in Abuja has adjourned the hearing until Tuesday.",
        "An fara allurar rigakafin cutar shan inna a jihar Kano.",
        "I",
        "The movie is slow, but its last twenty minutes are worth the wait! 10/10 :-)",
        "这部电影 is partly по-русски.",
    ]


@pytest.fixture(scope="session")
def weights_of() -> Callable[[str], Path]:
    """Return the weights of a model; skips the test where their package is not installed."""

    def find(name: str) -> Path:
        path = BACKBONES[name].path
        if path is None:
            pytest.skip(f"needs {BACKBONES[name].package}, which the dev group installs")
        return path

    return find


@pytest.fixture
def copy_of(weights_of: Callable[[str], Path], tmp_path: Path) -> Callable[[str], Path]:
    """Return the weights in a copy of a model's files, which may be damaged."""

    def copy(name: str) -> Path:
        path, file = weights_of(name), Path(BACKBONES[name].file)
        package = path.parents[len(file.parts) - 1]
        for folder in ("tokenizers", "weights", "model"):
            if (package / folder).is_dir():
                shutil.copytree(package / folder, tmp_path / folder)
        return tmp_path / file

    return copy
