"""What several tests of data begin with."""

from __future__ import annotations

from pathlib import Path

import pytest

CSV = "id,height,width,label\nr1,1,2,cat\nr2,3,4,dog\nr3,5,6,cat\nr4,7,8,dog\n"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "animals.csv"
    path.write_text(CSV)
    return path
