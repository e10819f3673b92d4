"""Records of runs: in files of their own or in one archive, whatever was killed in between."""

from __future__ import annotations

import lzma
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from proselflc.errors import InputError
from proselflc.paper.plan import SCALES
from proselflc.paper.records import RecordStore
from proselflc.queue.run_store import key
from proselflc.run.config import Config

CONFIG = SCALES["cpu"].config("cifar100", "gce", {}, seed=0, noise="pair:0.4")


def config(seed: int) -> Config:
    return replace(CONFIG, recipe=replace(CONFIG.recipe, seed=seed))


def facts(accuracy: float) -> dict[str, Any]:
    return {
        "summary": {"test_accuracy": accuracy, "title": "ε"},
        "validation_accuracy": None,
        "test": {"calibration": []},
        "history": [{"step": 1, "loss": 0.1 + 0.2}],
    }


@pytest.fixture
def store(tmp_path: Path) -> RecordStore:
    """Return a store with three records."""
    made = RecordStore(tmp_path)
    for seed in range(3):
        made.add(config(seed), facts(seed / 8))
    return made


def test_packed_records_are_the_same(store: RecordStore) -> None:
    before = [dict(one.facts) for one in store.records()]
    assert store.pack() == 3
    assert [path.name for path in store.path.rglob("*") if path.is_file()] == ["records.jsonl.xz"]
    assert [dict(one.facts) for one in store.records()] == before
    for seed in range(3):
        found = store.record(config(seed))
        assert found is not None
        assert found.facts == next(one for one in before if one["key"] == key(config(seed)))
    assert store.record(config(3)) is None


def test_a_record_added_after_packing_is_read_and_packed(
    store: RecordStore,
) -> None:
    store.pack()
    store.add(config(3), facts(0.5))
    assert len(list(store.records())) == 4
    assert store.pack() == 4
    found = store.record(config(3))
    assert found is not None
    assert found.summary == {"test_accuracy": 0.5, "title": "ε"}


def test_a_pack_that_is_killed_loses_nothing(
    store: RecordStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = [dict(one.facts) for one in store.records()]
    for place in ("replace", "unlink"):
        with monkeypatch.context() as patch:
            target: Any = os if place == "replace" else Path

            def killed(*_: object, **__: object) -> None:
                raise KeyboardInterrupt

            patch.setattr(target, place, killed)
            with pytest.raises(KeyboardInterrupt):
                store.pack()
        assert [dict(one.facts) for one in store.records()] == before
    assert store.pack() == 3
    assert [dict(one.facts) for one in store.records()] == before


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"no archive", "damaged"),
        (lzma.compress(b'{"key":"x"}\n'), "line 1 is not a record"),
        (lzma.compress(b"[1]\n" * 3)[:-20], "damaged"),
        (b"", "damaged"),
    ],
    ids=["no archive", "no key", "cut off", "empty"],
)
def test_a_damaged_archive_is_said(store: RecordStore, content: bytes, why: str) -> None:
    store.pack()
    store.archive.write_bytes(content)
    with pytest.raises(InputError, match=rf"records\.jsonl\.xz is .*{why}"):
        store.record(config(0))


def test_a_damaged_record_in_an_archive_is_named(store: RecordStore) -> None:
    name = key(config(0))
    line = f'{{"key":"{name}","summary":3}}\n'
    store.archive.write_bytes(lzma.compress(line.encode()))
    (store.path / "records" / f"{name}.json").unlink()
    with pytest.raises(
        InputError, match=rf"the record {name} in .*records\.jsonl\.xz is damaged.*summary"
    ):
        store.record(config(0))
