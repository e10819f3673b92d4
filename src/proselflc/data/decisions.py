"""Review decisions about labels: `review.jsonl` of a run, a file that only grows.

A line is a JSON object. The first names the labels that the others are about; then come

    {"example": ID, "label": CLASS or null, "given": …, "suggested": …, "by": …, "at": …, "key": …}
    {"undo": LINE, "of": ID, "by": …, "at": …}
    {"sample": [ID, …], "groups": [NUMBER, …], "strata": [NUMBER, …], "suspects": NUMBER, …}
    {}

A null label means that the reviewer cannot tell. LINE is the number of the line that is undone. The
last decision about an example that was not undone is the standing one. "previous" in a line is the
digest of the line before it, so that missing and changed lines are noticed; lines of older versions
have none. {} replaces a line that was lost. Several processes append lines, never through a link.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from threading import RLock
from typing import Any, TypeVar

import msgspec

from proselflc.errors import InputError
from proselflc.files.regular import file_lock, must_be_own, open_own, open_regular, whole_file
from proselflc.files.typed import Count, convert

T = TypeVar("T")
NAME = "review.jsonl"
FORMAT = 1
_MAX_LENGTH = 200  # characters of `by`, `at` and `key`
_PATIENCE = 30.0  # seconds to wait for another writer


@dataclass(frozen=True)
class Decision:
    """A decision about the label of an example."""

    line: int  # number in the file, from 1
    example: str
    label: str | None  # None if the reviewer cannot tell
    by: str
    at: str
    key: str  # of the request that made it


@dataclass(frozen=True)
class DecisionChange:
    """A request to write or undo a decision."""

    example: str
    label: str | None
    base: int  # line of the standing decision that the reviewer saw; 0 for none
    undo: bool = False  # whether to undo that line instead
    given: str = ""  # the labels that the reviewer saw, for people who read the file
    suggested: str = ""


@dataclass(frozen=True)
class Sample:
    """A random sample of the labels; of the suspects alone if an older version drew it."""

    examples: tuple[str, ...]  # ids in the order in which they were drawn
    suspects: int  # number of suspects at that time
    seed: int
    groups: tuple[Count, ...] = ()  # the group of labels that each was drawn from
    strata: tuple[Count, ...] | None = None  # sizes of the groups; None in older versions

    @property
    def is_possible(self) -> bool:
        """Return whether no example was drawn twice, and no group more often than it is large."""
        sizes = (self.suspects,) if self.strata is None else self.strata
        groups = (0,) * len(self.examples) if self.strata is None else self.groups
        fits = all(g < len(sizes) and many <= sizes[g] for g, many in Counter(groups).items())
        return fits and len(set(self.examples)) == len(self.examples) == len(groups)


@dataclass(frozen=True)
class _Undo:
    undo: int
    of: str | msgspec.UnsetType = msgspec.UNSET  # missing in lines of older versions


@dataclass
class Decisions:
    """The content of a `review.jsonl`, as far as it has been read."""

    path: Path
    fingerprint: str  # of the labels under review
    lines: int = 0  # that were read
    samples: list[Sample] = field(default_factory=list)  # the last one is current
    notes: list[str] = field(default_factory=list)  # about lines that were dropped
    _stacks: dict[str, list[Decision]] = field(default_factory=dict, repr=False)
    _of_line: dict[int, str] = field(default_factory=dict, repr=False)
    _past: list[str | None] = field(default_factory=lambda: [None], repr=False)  # by line
    _offset: int = field(default=0, repr=False)
    _digest: str | None = field(default=None, repr=False)  # of the last line; None for a lost one
    _is_open: bool = field(default=False, repr=False)  # the last line has no line break
    _held: Any = field(default_factory=RLock, repr=False)

    @property
    def standing(self) -> dict[str, Decision]:
        """Return the standing decisions by example."""
        with self._held:
            return {name: stack[-1] for name, stack in self._stacks.items() if stack}

    def of(self, example: str) -> Decision | None:
        """Return the standing decision about an example."""
        stack = self._stacks.get(example)
        return stack[-1] if stack else None

    def touched_since(self, line: int) -> set[str]:
        """Return the examples that later lines are about."""
        with self._held:
            return {name for name in self._past[line + 1 :] if name is not None}

    def undecided(self, line: int, examples: Sequence[str]) -> list[bool]:
        """Return for each example whether it had no decision at a given length of the file."""
        count: dict[str, int] = {}
        with self._held:
            for k, name in enumerate(self._past[: line + 1]):
                if name is not None:
                    count[name] = count.get(name, 0) + (1 if k in self._of_line else -1)
        return [count.get(name, 0) == 0 for name in examples]

    def check(self, ids: Collection[str], names: Collection[str]) -> None:
        """Refuse decisions about examples or classes that a run does not have."""
        for decision in self.standing.values():
            if decision.example not in ids:
                raise InputError(
                    f'{self.path} decides about "{decision.example}", which the run does not have: '
                    "it belongs to another run, so move it away"
                )
            if decision.label is not None and decision.label not in names:
                raise InputError(
                    f'line {decision.line} of {self.path} says "{decision.label}", which is not a '
                    "class of the run: the classes have changed since the review",
                    fix="move the file away or restore the old name",
                )

    def refresh(self) -> None:
        """Read the lines that any process added."""
        with self._held:
            if _size_of(self.path) in (None, self._offset):
                return
            with _locked(self.path, needed=False):
                self._catch_up()

    def add(self, requests: Sequence[DecisionChange], by: str, key: str) -> list[Decision | None]:
        """Write decisions; they are on disk when this returns.

        A decision is not written if another one was made since its reviewer looked, and not
        written again if the file already has it with the same key. Returned are the conflicting
        decisions of the requests that were not written for that reason, None for the others.
        """
        with self._held, _locked(self.path, needed=True):
            self._catch_up(repair=True)
            source = {"by": by, "at": _now(), "key": key}
            lines: list[Mapping[str, object]] = []
            conflicts: list[Decision | None] = []
            for request in requests:
                standing = self.of(request.example)
                line = 0 if standing is None else standing.line
                if request.undo:
                    stack = self._stacks.get(request.example, [])
                    exists = any(decision.line == request.base for decision in stack)
                    conflicts.append(standing if exists and line != request.base else None)
                    if line == request.base and exists:
                        lines.append({"undo": request.base, "of": request.example, **source})
                    continue
                if standing is not None and standing.key == key:  # the answer was lost
                    conflicts.append(None)
                    continue
                is_outdated = standing is not None and line != request.base
                conflicts.append(standing if is_outdated else None)
                if not is_outdated:
                    labels = {
                        "label": request.label,
                        "given": request.given,
                        "suggested": request.suggested,
                    }
                    lines.append({"example": request.example, **labels, **source})
            self._append(lines)
            return conflicts

    def draw(self, sample: Sample, by: str) -> None:
        """Write a sample."""
        with self._held, _locked(self.path, needed=True):
            self._catch_up(repair=True)
            drawn = {"sample": sample.examples, "suspects": sample.suspects, "seed": sample.seed}
            of = {} if sample.strata is None else {"groups": sample.groups, "strata": sample.strata}
            self._append([{**drawn, **of, "by": by, "at": _now()}])

    def check_writable(self) -> None:
        """Refuse a file that cannot be written, before the first decision."""
        with self._held, _locked(self.path, needed=True):
            self._catch_up(repair=True)
            is_new = _size_of(self.path) is None
            with _explain_failure(self.path):
                with open_own(self.path):
                    pass
                if is_new:
                    self.path.unlink()

    def _append(self, lines: Sequence[Mapping[str, object]]) -> None:
        if not lines:
            return
        pieces = [b""] if self._is_open else []
        before = self._digest
        if self._offset == 0:
            pieces = [_encode_line({"review": FORMAT, "fingerprint": self.fingerprint})]
            before = _digest_of(pieces[0])
        for line in lines:
            pieces.append(_encode_line(line if before is None else {**line, "previous": before}))
            before = _digest_of(pieces[-1])
        _append_text(self.path, self._offset, b"\n".join([*pieces, b""]))
        self._catch_up()

    def _catch_up(self, *, repair: bool = False) -> None:
        """Read the rest of the file; if `repair`, cut off a damaged last line.

        The first line is never cut off: a file that does not begin as a review is not ours.
        """
        added = _read_from(self.path, self._offset)
        if self._is_open and added:
            if not added.startswith(b"\n"):
                raise self._damaged(self.lines)
            self._is_open, self._offset, added = False, self._offset + 1, added[1:]
        *lines, rest = added.split(b"\n")
        for line in lines:
            if line.strip() or not self.lines:  # an editor may have left blank lines
                self._read(line)
            self._offset += len(line) + 1
        is_whole = not self.lines or _parse_line(rest) is not None
        if rest and is_whole:  # an editor removed the line break
            self._read(rest)
            self._offset += len(rest)
            self._is_open, rest = True, b""
        if rest:
            note = (
                f"the last line of {self.path} is damaged, as by a power failure, and was dropped: "
                "its decision was never confirmed, so decide again"
            )
            if note not in self.notes:
                self.notes.append(note)
            if repair:
                with _explain_failure(self.path):
                    _separate(self.path)
                    with open_own(self.path) as file:
                        file.truncate(self._offset)
                        os.fsync(file.fileno())

    def _read(self, line: bytes) -> None:
        number = self.lines + 1
        value = _parse_line(line)
        if number == 1:
            if not isinstance(value, dict) or value.get("review") != FORMAT:
                raise InputError(
                    f"{self.path} is not a review that this version of proselflc reads: it should "
                    f'begin with {{"review": {FORMAT}, …}}',
                    fix="restore its first line, or move the file away",
                )
            if value.get("fingerprint") != self.fingerprint:
                raise InputError(
                    f"{self.path} is about other labels than those of the run, which was trained "
                    "again since the review",
                    fix="move the file away, or restore the old run",
                )
            self._past.append(None)
        elif not isinstance(value, dict):
            raise self._damaged(number)
        elif not value:  # a line that was lost
            self._past.append(None)
        elif value.get("previous", self._digest) != self._digest and self._digest is not None:
            raise InputError(
                f"lines are missing before line {number} of {self.path}, or the line before it was "
                "changed",
                fix="restore the file from a copy; or, to continue without them, replace each by a "
                "line with {}, which stands for a lost line",
            )
        elif "undo" in value:
            self._past.append(self._undo(number, value))
        elif "sample" in value:
            drawn = self._convert(number, {**value, "examples": value["sample"]}, Sample)
            if not drawn.is_possible:
                raise self._damaged(number)
            self.samples.append(drawn)
            self._past.append(None)
        else:
            found = self._convert(number, {**value, "line": number}, Decision)
            by, at, key = (text[:_MAX_LENGTH] for text in (found.by, found.at, found.key))
            decision = replace(found, by=by, at=at, key=key)
            self._stacks.setdefault(decision.example, []).append(decision)
            self._of_line[number] = decision.example
            self._past.append(decision.example)
        self.lines = number
        self._digest = _digest_of(line) if value else None

    def _undo(self, number: int, value: Mapping[str, Any]) -> str:
        found = self._convert(number, value, _Undo)
        name = self._of_line.get(found.undo)
        stack = [] if name is None else self._stacks[name]
        kept = [decision for decision in stack if decision.line != found.undo]
        if name is None or len(kept) == len(stack) or found.of not in (msgspec.UNSET, name):
            raise self._damaged(number)
        self._stacks[name] = kept
        return name

    def _convert(self, number: int, value: Mapping[str, Any], kind: type[T]) -> T:
        try:
            return convert(value, kind, self.path)
        except InputError:
            raise self._damaged(number) from None

    def _damaged(self, number: int) -> InputError:
        return InputError(
            f"line {number} of {self.path} is damaged",
            fix="restore the file from a copy; or, to continue without this line, write {} in its "
            "place",
        )


def read_decisions(path: Path, fingerprint: str) -> Decisions:
    """Return the decisions of a file; none if there is no such file."""
    found = Decisions(path, fingerprint)
    found.refresh()
    return found


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def _size_of(path: Path) -> int | None:
    """Return the number of bytes; None if there is no file."""
    must_be_own(path)
    try:
        return os.lstat(path).st_size
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None


def _read_from(path: Path, offset: int) -> bytes:
    """Return the bytes from an offset on; none if there is no file."""
    if _size_of(path) is None:
        if offset:
            raise InputError(f"{path} is gone: restore it")
        return b""
    try:
        with open_regular(path, follow=False) as file:
            if file.seek(0, os.SEEK_END) < offset:
                raise InputError(f"{path} has lost lines: restore them")
            file.seek(offset)
            return file.read()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None


def _append_text(path: Path, offset: int, text: bytes) -> None:
    """Append to a file of `offset` bytes; the text is on disk when this returns."""
    with _explain_failure(path):
        if offset == 0:
            with whole_file(path) as file:  # the first line is never incomplete
                file.write(text)
            return
        _separate(path)
        with open_own(path) as file:
            try:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            except OSError:
                file.truncate(offset)  # no incomplete line stays
                raise


@contextmanager
def _locked(path: Path, *, needed: bool) -> Iterator[None]:
    """Keep other processes from writing; without `needed`, continue if locking is impossible."""
    from filelock import Timeout

    lock = file_lock(path.with_name(".review.lock"), timeout=_PATIENCE)
    try:
        lock.acquire()
    except Timeout:
        raise InputError(f"{path} is being written by another process: try again") from None
    except (OSError, NotImplementedError) as error:
        if needed:
            raise _unwritable(path, getattr(error, "strerror", None) or str(error)) from None
        yield
        return
    try:
        yield
    finally:
        lock.release()


def _encode_line(line: Mapping[str, object]) -> bytes:
    return json.dumps(line, ensure_ascii=True).encode()


def _parse_line(line: bytes) -> object:
    """Return the value of a line, or None if it is not JSON."""
    try:
        return json.loads(line.decode())  # given bytes, it would guess at their encoding
    except (ValueError, RecursionError):
        return None


def _digest_of(line: bytes) -> str:
    """Return the sixteen hexadecimal digits that the next line has as "previous".

    Surrounding white space does not count: some editors change line breaks.
    """
    return hashlib.blake2b(line.strip(), digest_size=8).hexdigest()


def _separate(path: Path) -> None:
    """Give the file its own copy if it is a hard link, so that the other name is unchanged."""
    if os.lstat(path).st_nlink > 1:
        with open_regular(path, follow=False) as old, whole_file(path) as file:
            file.write(old.read())


@contextmanager
def _explain_failure(path: Path) -> Iterator[None]:
    """Say in errors of writing that the file keeps decisions."""
    try:
        yield
    except InputError as error:
        raise _unwritable(path, str(error).removeprefix(f"cannot write {path}: ")) from None
    except OSError as error:
        raise _unwritable(path, error.strerror or str(error)) from None


def _unwritable(path: Path, reason: str) -> InputError:
    return InputError(
        f"cannot write {path}: {reason}; it keeps the decisions",
        fix="make the run directory writable or copy the run elsewhere",
    )
