"""Data that several tests of this folder start from."""

from __future__ import annotations

from pathlib import Path

import pytest

from proselflc.data.dataset import Dataset
from proselflc.data.sources import cifar
from proselflc.files.regular import file_lock

CSV = "id,height,width,label\nr1,1,2,cat\nr2,3,4,dog\nr3,5,6,cat\nr4,7,8,dog\n"
SHARED = Path(__file__).parents[2] / "../shared/data"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "animals.csv"
    path.write_text(CSV)
    return path


@pytest.fixture(scope="session")
def cifar100_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a cache that holds the real CIFAR-100, decoded once for all workers of a session."""
    if not (SHARED / "cifar-100-python.tar.xz").is_file():
        pytest.skip("the real CIFAR-100 is not in ../shared/data")
    base = tmp_path_factory.getbasetemp()
    cache = (base.parent if base.name.startswith("popen-") else base) / "cifar100-cache"
    with file_lock(cache.with_name("cifar100.lock")):
        cifar.load(SHARED, "cifar100", cache=cache)
    return cache


@pytest.fixture(scope="session")
def cifar100(cifar100_cache: Path) -> Dataset:
    return cifar.load(SHARED, "cifar100", cache=cifar100_cache)
