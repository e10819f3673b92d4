"""What memory may be taken: the limit, what is free, and the sentence that refuses more."""

from __future__ import annotations

from pathlib import Path

import pytest

from proselflc.data import memory_budget
from proselflc.errors import InputError


def test_up_to_the_limit_is_allowed_and_one_byte_more_is_refused_with_the_figure() -> None:
    memory_budget.require(4 * 10**9, "this", "do that")
    with pytest.raises(InputError) as caught:
        memory_budget.require(16 * 10**9, "a table of 200,000 × 20,000", "take fewer classes")
    assert str(caught.value) == (
        "a table of 200,000 × 20,000 needs 16.0 GB of memory, and the limit is 4.0 GB: take fewer "
        "classes, or raise the limit with PROSELFLC_MEMORY_GB=16"
    )


def test_what_is_not_free_is_refused_whatever_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 9 kB\nMemAvailable:    2000000 kB\n")
    monkeypatch.setattr(memory_budget, "_MEMINFO", meminfo)
    monkeypatch.setattr(memory_budget, "_CGROUP", tmp_path / "gone")
    assert memory_budget.available() == 2_048_000_000
    with pytest.raises(InputError, match=r"needs 3\.0 GB of memory, and 2\.0 GB are free: do that"):
        memory_budget.require(3 * 10**9, "this", "do that")
    (tmp_path / "memory.max").write_text("3000000000\n")
    (tmp_path / "memory.stat").write_text("anon 1800000000\nfile 5\n")
    monkeypatch.setattr(memory_budget, "_CGROUP", tmp_path)
    assert memory_budget.available() == 1_200_000_000
    (tmp_path / "memory.max").write_text("max\n")
    assert memory_budget.available() == 2_048_000_000
    meminfo.write_text("nothing")
    assert memory_budget.available() is None
    memory_budget.require(3 * 10**9, "this", "do that")


def test_the_environment_raises_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_budget, "_MEMINFO", Path("gone"))
    monkeypatch.setattr(memory_budget, "_CGROUP", Path("gone"))
    monkeypatch.setenv("PROSELFLC_MEMORY_GB", "16")
    memory_budget.require(16 * 10**9, "this", "do that")
    monkeypatch.setenv("PROSELFLC_MEMORY_GB", "0.5")
    assert memory_budget.limit() == 5 * 10**8
    for text in ("much", "-1", "0", "nan", "inf"):
        monkeypatch.setenv("PROSELFLC_MEMORY_GB", text)
        with pytest.raises(InputError, match="expected gigabytes, such as 16"):
            memory_budget.limit()
