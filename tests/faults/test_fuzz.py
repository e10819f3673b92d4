"""Every file that is read is damaged in many ways: nothing hangs, escapes or ends in a traceback.

`make fuzz` runs ten times as many cases of the same kind, and draws every figure of a report.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

from fuzzing.cases import Fuzzer
from fuzzing.outcome import FAILURES
from fuzzing.subjects import SUBJECTS

SEED = 18
CASES = 2000
PARTS = 20


@pytest.fixture(scope="module")
def fuzzer(tmp_path_factory: pytest.TempPathFactory) -> Fuzzer:
    return Fuzzer(tmp_path_factory.mktemp("fuzz"), SEED, drawing=0)


@pytest.mark.parametrize("part", range(PARTS))
def test_damage_is_answered(fuzzer: Fuzzer, part: int) -> None:
    numbers = range(part, CASES, PARTS)
    found = list(fuzzer.run(numbers))
    assert {one.number for one in found} == set(numbers)
    failures = [
        f"case {one.number}, {one.subject}, {one.damage}, {one.command}: {one.kind}, {one.words}\n"
        f"repeat it: python tools/fuzz.py --case {one.number} --seed {SEED}"
        for one in found
        if one.kind in FAILURES
    ]
    assert not failures, "\n\n".join(failures)
    kinds = Counter(one.kind for one in found)
    assert kinds["refused"] >= len(found) // 4  # the damage is such that it matters


def test_every_file_of_a_run_and_every_format_is_damaged(fuzzer: Fuzzer) -> None:
    """What the snapshot holds and no subject names would be left out without a word."""
    named = {path for one in SUBJECTS for path in fuzzer.folder.glob(one.path)}
    assert all(any(fuzzer.folder.glob(one.path)) for one in SUBJECTS)
    run = {path for path in (fuzzer.folder / "run").rglob("*") if path.is_file()}
    not_read = {".lock", ".review.lock", "epoch-00001.npy", "epoch-00002.npy"}
    in_other_runs = (
        "checkpoints",
        "folds/2-",
    )  # damaged where they are read: half and folding runs
    left = {
        str(path.relative_to(fuzzer.folder / "run"))
        for path in run - named
        if path.name not in not_read
    }
    assert {one for one in left if not one.startswith(in_other_runs)} == set()


def test_a_case_is_repeated_by_its_number(fuzzer: Fuzzer) -> None:
    one, two = ([tuple(r) for r in fuzzer.run([7, 123])] for _ in range(2))
    assert one == two
