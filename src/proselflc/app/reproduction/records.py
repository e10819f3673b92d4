"""Runs that are kept by a hash of their options, so that none is done twice.

A store is a directory that tables, figures, benchmarks and machines share: `records/KEY.json` says
what a run came to, small enough to commit; `runs/` has the runs themselves, which only those need
who go on with them. What a machine is doing at the moment it has locked; others do something else.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from proselflc import methods
from proselflc.app.config import MAY_CHANGE, Config, versions
from proselflc.app.kept_runs import key
from proselflc.data.locking import file_lock
from proselflc.data.writing import whole_file
from proselflc.errors import InputError
from proselflc.regular_files import content_of, is_regular


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

    def record(self, config: Config) -> Record | None:
        """What a run came to; None if it is not there yet.

        Raises:
            InputError: the file is damaged.
        """
        path = self._records / f"{key(config)}.json"
        if not is_regular(path):
            return None
        try:
            facts = json.loads(content_of(path))
        except (OSError, ValueError, RecursionError):
            facts = None
        if not _is_record(facts, path.stem):
            raise InputError(
                f"{path} is no record of a run, or is damaged: remove it, and the run is done again"
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

    @contextmanager
    def claimed(self, config: Config) -> Iterator[bool]:
        """Whether this process may do a run; False while another one does it.

        Raises:
            InputError: the directory cannot be written to.
        """
        from filelock import Timeout

        try:
            self.runs.mkdir(parents=True, exist_ok=True)
            lock = file_lock(self.runs / f"{key(config)}.lock")
            lock.acquire(timeout=0)
        except Timeout:
            yield False
            return
        except OSError as error:
            raise InputError(
                f"cannot write to {self.path}: {error.strerror or error}; give another --out"
            ) from None
        try:
            yield True
        finally:
            lock.release()


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
