"""What runs came to, kept by a hash of their options, so that none is done twice.

A store is a directory that tables, figures, benchmarks and machines share. `records/KEY.json` says
what a run came to; `records.jsonl.xz` has many such records in one file, small enough to commit.
`runs/` has the runs that are not recorded yet, and the queue from which workers claim them.
"""

from __future__ import annotations

import functools
import json
import lzma
import os
import platform
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from proselflc import methods
from proselflc.errors import InputError
from proselflc.files.regular import content_of, is_regular, open_regular
from proselflc.files.whole import must_be_own_folder, whole_file
from proselflc.queue import storage as queue_storage
from proselflc.queue.run_queue import Queue
from proselflc.queue.run_store import key
from proselflc.run.config import MAY_CHANGE, Config, versions

_COMPACT: dict[str, Any] = {"ensure_ascii": False, "separators": (",", ":")}
_BEGIN = re.compile(rb'{"key":"([0-9a-f]{16})"')
_PRESET = 9 | lzma.PRESET_EXTREME
_LARGEST = 2**30  # bytes of an archive


@dataclass(frozen=True)
class Record:
    """What a run came to.

    Attributes:
        facts: as the file holds them.
    """

    facts: Mapping[str, Any]

    @property
    def summary(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.facts["summary"]
        return found

    @property
    def history(self) -> list[Mapping[str, Any]]:
        """Its evaluation points."""
        return list(self.facts["history"])

    @property
    def test(self) -> Mapping[str, Any]:
        """All that was measured on the test part."""
        found: Mapping[str, Any] = self.facts["test"]
        return found

    @property
    def validation_accuracy(self) -> float | None:
        """At the end, on the examples that were kept aside; None without any."""
        found: float | None = self.facts["validation_accuracy"]
        return found


@dataclass(frozen=True)
class Store:
    """A directory of records.

    Attributes:
        path: of the directory.
    """

    path: Path

    @property
    def _records(self) -> Path:
        return self.path / "records"

    @property
    def runs(self) -> Path:
        """The directories of runs."""
        return self.path / "runs"

    @property
    def archive(self) -> Path:
        """The file of packed records."""
        return self.path / "records.jsonl.xz"

    def record(self, config: Config) -> Record | None:
        """Return what a run came to; None if it is not there yet.

        Raises:
            InputError: the file is damaged.
        """
        return self._read(key(config))

    def records(self) -> Iterator[Record]:
        """Return all records in the order of their keys.

        Raises:
            InputError: a file is damaged.
        """
        for name in sorted({*(path.stem for path in self._files()), *self._packed()}):
            found = self._read(name)
            if found is not None:
                yield found

    def pack(self) -> int:
        """Move all records into the archive; return how many it has.

        The files are removed when the archive is written, and what is in both counts once: a pack
        that is killed loses nothing.
        """
        files = self._files()
        lines = [json.dumps(dict(one.facts), **_COMPACT).encode() for one in self.records()]
        with whole_file(self.archive) as file:
            file.write(lzma.compress(b"".join(line + b"\n" for line in lines), preset=_PRESET))
        for path in files:
            path.unlink(missing_ok=True)
        return len(lines)

    def _files(self) -> list[Path]:
        return list(self._records.glob("*.json"))

    def _packed(self) -> Mapping[str, bytes]:
        if not is_regular(self.archive):
            return {}
        state = self.archive.stat()
        return _lines(self.archive, state.st_mtime_ns, state.st_size)

    def _read(self, name: str) -> Record | None:
        path = self._records / f"{name}.json"
        is_file = is_regular(path)
        packed = None if is_file else self._packed().get(name)
        if not is_file and packed is None:
            return None
        try:
            facts = json.loads(content_of(path) if packed is None else packed)
        except (OSError, ValueError, RecursionError):
            facts = None
        if not _is_record(facts, name):
            place = path if is_file else f"the record {name} in {self.archive}"
            raise InputError(
                f"{place} is not a record of a run, or is damaged: remove it, and the run is done "
                "again"
            )
        return Record(facts)

    def add(self, config: Config, facts: Mapping[str, Any]) -> Record:
        """Keep what a run came to."""
        self._records.mkdir(parents=True, exist_ok=True)
        name = key(config)
        whole = {"key": name, "config": _shown(config), **facts, "made_with": made_with()}
        with whole_file(self._records / f"{name}.json") as file:
            file.write(json.dumps(whole, indent=1, ensure_ascii=False).encode() + b"\n")
        return Record(whole)

    def queue(self) -> Queue:
        """Return the queue of runs for the workers that share the directory.

        Raises:
            InputError: the directory cannot be written to, or the queue's journal is damaged.
        """
        must_be_own_folder(self.runs)
        try:
            self.runs.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(
                f"cannot write to {self.path}: {error.strerror or error}; choose another --out"
            ) from None
        cure = "remove it; what is recorded is kept"
        storage = queue_storage.opened(self.runs / "journal.log", cure=cure)
        return Queue(storage, "proselflc-runs", self.runs)


@functools.lru_cache(maxsize=4)
def _lines(archive: Path, changed: int, size: int) -> Mapping[str, bytes]:
    """Return the lines of an archive by the keys that they begin with."""
    found: dict[str, bytes] = {}
    try:
        with open_regular(archive) as packed, lzma.open(packed) as file:
            content = file.read(_LARGEST + 1)
        if len(content) > _LARGEST:
            raise ValueError(f"it has more than {_LARGEST:,} bytes")
        for line in content.splitlines():
            begin = _BEGIN.match(line)
            if begin is None:
                raise ValueError(f"line {len(found) + 1} is not a record")
            found[begin[1].decode()] = line
    except (OSError, EOFError, ValueError, lzma.LZMAError) as error:
        raise InputError(f"{archive} is damaged ({error}): restore it or remove it") from None
    return found


def _is_record(facts: object, name: str) -> bool:
    """Whether a file holds what `Store.add` writes, as far as it is looked at."""
    if not isinstance(facts, dict) or facts.get("key") != name:
        return False
    summary, test, history = (facts.get(key) for key in ("summary", "test", "history"))
    if not isinstance(summary, dict) or not isinstance(test, dict) or not isinstance(history, list):
        return False
    numbers = (summary.get("test_accuracy"), facts.get("validation_accuracy"))
    calibration = test.get("calibration", [])
    return (
        all(one is None or type(one) in (int, float) for one in numbers)
        and all(isinstance(line, dict) for line in history)
        and isinstance(calibration, list)
        and all(isinstance(one, dict) and "ece" in one for one in calibration)
    )


def made_with() -> dict[str, Any]:
    """Versions and hardware."""
    import torch

    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    machine = {"machine": platform.machine(), "processor": _processor(), "cores": os.cpu_count()}
    return {**versions(), **machine, "device": device}


def _processor() -> str:
    """What it calls itself, where the system says so."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.processor()


def _shown(config: Config) -> dict[str, Any]:
    """The options without where things are on a machine."""
    table = resolved_table(config)
    table = {name: value for name, value in table.items() if name not in MAY_CHANGE}
    table.pop("weights", None)
    paths = methods.find(config.method).paths
    table["method"] = {name: v for name, v in table["method"].items() if name not in paths}
    return table


def resolved_table(config: Config) -> dict[str, Any]:
    """The options, with those parameters of the method that are its defaults."""
    parameters = methods.resolved(config.method, config.parameters)
    return replace(config, parameters=parameters.given()).table()
