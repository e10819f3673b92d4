"""Records of finished runs, named by a hash of their options, so that no run is trained twice.

A store is a directory that tables, figures, benchmarks and machines share. `records/KEY.json` has
the result of one run; `records.jsonl.xz` has many such records in one file, small enough to commit.
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
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from proselflc import methods
from proselflc.errors import InputError
from proselflc.files.regular import is_regular, must_be_own_folder, open_regular, whole_file
from proselflc.files.typed import convert, decode_json, read_json
from proselflc.queue import storage as queue_storage
from proselflc.queue.run_queue import Queue
from proselflc.queue.run_store import key
from proselflc.run.config import MAY_CHANGE, Config, versions
from proselflc.wording import option

_COMPACT: dict[str, Any] = {"ensure_ascii": False, "separators": (",", ":")}
_BEGIN = re.compile(rb'{"key":"([0-9a-f]{16})"')
_PRESET = 9 | lzma.PRESET_EXTREME
_LARGEST = 2**30  # bytes of an archive


@dataclass(frozen=True)
class CalibrationPoint:
    """The calibration error of a run at one temperature."""

    ece: float
    T: float | None = None
    reading: str | None = None
    measure: str | None = None


@dataclass(frozen=True)
class _Summary:
    test_accuracy: float | None = None


@dataclass(frozen=True)
class _Test:
    calibration: list[CalibrationPoint] = field(default_factory=list)


@dataclass(frozen=True)
class _Fields:
    """The fields of a record that tables and figures use."""

    key: str
    summary: _Summary
    test: _Test
    history: list[dict[str, Any]]
    validation_accuracy: float | None = None


@dataclass(frozen=True)
class RunRecord:
    """The result of a run: all facts of its file, and those that tables and figures use.

    The calibration errors are those on the test part, and the validation accuracy is the last
    one on the held-out examples.
    """

    facts: Mapping[str, Any]
    history: list[dict[str, Any]]
    calibration: list[CalibrationPoint]
    validation_accuracy: float | None

    @property
    def summary(self) -> Mapping[str, Any]:
        """Return the summary of the run."""
        summary: Mapping[str, Any] = self.facts["summary"]
        return summary

    @property
    def is_diverged(self) -> bool:
        """Return whether training diverged."""
        return "diverged" in self.facts


def _record(facts: Mapping[str, Any], name: str, source: object) -> RunRecord:
    fields = convert(facts, _Fields, source)
    if fields.key != name:
        raise InputError(f"{source} is damaged: its key is {fields.key[:40]!r}")
    calibration = fields.test.calibration
    return RunRecord(facts, fields.history, calibration, fields.validation_accuracy)


@dataclass(frozen=True)
class RecordStore:
    """A directory of records."""

    path: Path

    @property
    def _records(self) -> Path:
        return self.path / "records"

    @property
    def runs(self) -> Path:
        """Return the folder of the runs."""
        return self.path / "runs"

    @property
    def archive(self) -> Path:
        """Return the file of packed records."""
        return self.path / "records.jsonl.xz"

    def record(self, config: Config) -> RunRecord | None:
        """Return the record of a run; None if the run is not done."""
        return self._read(key(config))

    def records(self) -> Iterator[RunRecord]:
        """Return all records in the order of their keys."""
        for name in self.names():
            record = self._read(name)
            if record is not None:
                yield record

    def names(self) -> list[str]:
        """Return the keys of all records, sorted."""
        return sorted({*(path.stem for path in self._files()), *self._packed()})

    def pack(self) -> int:
        """Move all records into the archive; return how many it holds.

        The files are removed only after the archive is written, and a record in both counts once,
        so nothing is lost if the process is killed.
        """
        files = self._files()
        lines = [json.dumps(dict(record.facts), **_COMPACT).encode() for record in self.records()]
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

    def _read(self, name: str) -> RunRecord | None:
        path = self._records / f"{name}.json"
        try:
            if is_regular(path):
                return _record(read_json(path, dict[str, Any]), name, path)
            line = self._packed().get(name)
            if line is None:
                return None
            source = f"the record {name} in {self.archive}"
            return _record(decode_json(line, dict[str, Any], source), name, source)
        except InputError as error:
            fix = error.fix or "remove it, and the run is repeated"
            raise InputError(error.reason, fix=fix) from None

    def add(self, config: Config, facts: Mapping[str, Any]) -> None:
        """Write the record of a run."""
        self._records.mkdir(parents=True, exist_ok=True)
        name = key(config)
        whole = {"key": name, "config": _shareable(config), **facts, "made_with": made_with()}
        with whole_file(self._records / f"{name}.json") as file:
            file.write(json.dumps(whole, indent=1, ensure_ascii=False).encode() + b"\n")

    def queue(self) -> Queue:
        """Return the queue of runs for the workers that share the directory."""
        must_be_own_folder(self.runs)
        try:
            self.runs.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(
                f"cannot write to {self.path}: {error.strerror or error}",
                field="out",
                fix=f"choose another {option('out')}",
            ) from None
        cure = "remove it; finished runs keep their records"
        storage = queue_storage.opened(self.runs / "journal.log", cure=cure)
        return Queue(storage, "proselflc-runs", self.runs)


@functools.lru_cache(maxsize=4)
def _lines(archive: Path, changed: int, size: int) -> Mapping[str, bytes]:
    """Return the lines of an archive by the keys that they begin with."""
    lines: dict[str, bytes] = {}
    try:
        with open_regular(archive) as packed, lzma.open(packed) as file:
            content = file.read(_LARGEST + 1)
        if len(content) > _LARGEST:
            raise ValueError(f"it has more than {_LARGEST:,} bytes")
        for line in content.splitlines():
            begin = _BEGIN.match(line)
            if begin is None:
                raise ValueError(f"line {len(lines) + 1} is not a record")
            lines[begin[1].decode()] = line
    except (OSError, EOFError, ValueError, lzma.LZMAError) as error:
        raise InputError(
            f"{archive} is damaged: {error}",
            fix="restore the file, or move it away to train its runs again",
        ) from None
    return lines


def made_with() -> dict[str, Any]:
    """Return the versions and the hardware."""
    import torch

    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    machine = {"machine": platform.machine(), "processor": _processor(), "cores": os.cpu_count()}
    return {**versions(), **machine, "device": device}


def _processor() -> str:
    """Return the model name of the processor, if the system reports it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def _shareable(config: Config) -> dict[str, Any]:
    """Return the options without paths on this machine."""
    table = resolved_table(config)
    table = {name: value for name, value in table.items() if name not in MAY_CHANGE}
    table.pop("weights", None)
    paths = methods.find(config.method).paths
    table["method"] = {name: v for name, v in table["method"].items() if name not in paths}
    return table


def resolved_table(config: Config) -> dict[str, Any]:
    """Return the options with the method's default parameters filled in."""
    parameters = methods.resolved(config.method, config.parameters)
    return replace(config, parameters=parameters.given()).table()
