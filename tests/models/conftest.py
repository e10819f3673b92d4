"""A module of the user's, where a test file writes one."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def here(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """The current directory, in which `own_models.py` holds the test file's MODULE."""
    (tmp_path / "own_models.py").write_text(request.module.MODULE)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    sys.modules.pop("own_models", None)
