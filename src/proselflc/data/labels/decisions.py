"""Review decisions about labels: `review.jsonl` of a run, a file that only grows.

A line is a JSON object. The first names the labels that the others are about; then come

    {"example": ID, "label": CLASS or null, "given": …, "suggested": …, "by": …, "at": …, "key": …}
    {"undo": LINE, "of": ID, "by": …, "at": …}
    {"sample": [ID, …], "suspects": NUMBER, "seed": NUMBER, "by": …, "at": …}
    {}

A null label means that the reviewer cannot tell. LINE is the number of the line that is undone. The
last decision about an example that was not undone is the standing one. "previous" in a line is the
digest of the line before it, so that missing and changed lines are noticed; lines of older versions
have none. {} replaces a line that was lost.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from threading import RLock
from typing import Any, NamedTuple, TypeVar

import msgspec

from proselflc.data.labels import review_file
from proselflc.data.labels.review_file import digest, encode_line, parse_line
from proselflc.errors import InputError
from proselflc.files.typed import convert

T = TypeVar("T")
NAME = "review.jsonl"
FORMAT = 1
_MAX_LENGTH = 200  # characters of `by`, `at` and `key`


class Decision(NamedTuple):
    """A decision about the label of an example.

    Attributes:
        line: line number in the file, from 1.
        example: id of the example.
        label: its class; None if the reviewer cannot tell.
        by: reviewer.
        at: time of the decision.
        key: key of the request that made it.
    """

    line: int
    example: str
    label: str | None
    by: str
    at: str
    key: str


@dataclass(frozen=True)
class DecisionChange:
    """A request to write or undo a decision.

    Attributes:
        example: id of the example.
        label: as in `Decision`.
        base: line of the standing decision that the reviewer saw; 0 for none.
        undo: whether to undo that line instead.
        given, suggested: labels that the reviewer saw, for people who read the file.
    """

    example: str
    label: str | None
    base: int
    undo: bool = False
    given: str = ""
    suggested: str = ""


@dataclass(frozen=True)
class Sample:
    """A random sample of the suspects, drawn to measure precision.

    Attributes:
        examples: ids in the order in which they were drawn.
        suspects: number of suspects that it was drawn from.
        seed: seed of the draw.
    """

    examples: tuple[str, ...]
    suspects: int
    seed: int


@dataclass(frozen=True)
class _DecisionLine:
    example: str
    label: str | None
    by: str
    at: str
    key: str


@dataclass(frozen=True)
class _UndoLine:
    undo: int
    of: str | msgspec.UnsetType = msgspec.UNSET  # missing in lines of older versions


@dataclass(frozen=True)
class _SampleLine:
    sample: list[str]
    suspects: int
    seed: int


@dataclass
class Decisions:
    """The content of a `review.jsonl`, as far as it has been read.

    Attributes:
        path: the file.
        fingerprint: fingerprint of the labels under review.
        lines: number of lines read.
        sample: the last sample, or None.
        notes: messages about lines that were dropped.
    """

    path: Path
    fingerprint: str
    lines: int = 0
    sample: Sample | None = None
    notes: list[str] = field(default_factory=list)
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
            if review_file.size_of(self.path) in (None, self._offset):
                return
            with review_file.locked(self.path, needed=False):
                self._catch_up()

    def add(self, requests: Sequence[DecisionChange], by: str, key: str) -> list[Decision | None]:
        """Write decisions; they are on disk when this returns.

        A decision is not written if another one was made since its reviewer looked, and not
        written again if the file already has it with the same key.

        Returns:
            The conflicting decision for each request that was not written, else None.
        """
        with self._held, review_file.locked(self.path, needed=True):
            self._catch_up(mend=True)
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
        with self._held, review_file.locked(self.path, needed=True):
            self._catch_up(mend=True)
            drawn = {"sample": sample.examples, "suspects": sample.suspects, "seed": sample.seed}
            self._append([{**drawn, "by": by, "at": _now()}])

    def check_writable(self) -> None:
        """Refuse a file that cannot be written, before the first decision."""
        with self._held, review_file.locked(self.path, needed=True):
            self._catch_up(mend=True)
            review_file.check_writable(self.path)

    def _append(self, lines: Sequence[Mapping[str, object]]) -> None:
        if not lines:
            return
        pieces = [b""] if self._is_open else []
        before = self._digest
        if self._offset == 0:
            pieces = [encode_line({"review": FORMAT, "fingerprint": self.fingerprint})]
            before = digest(pieces[0])
        for line in lines:
            pieces.append(encode_line(line if before is None else {**line, "previous": before}))
            before = digest(pieces[-1])
        review_file.append(self.path, self._offset, b"\n".join([*pieces, b""]))
        self._catch_up()

    def _catch_up(self, *, mend: bool = False) -> None:
        """Read the rest of the file; if `mend`, cut off a damaged last line.

        The first line is never cut off: a file that does not begin as a review is another's.
        """
        added = review_file.read_from(self.path, self._offset)
        if self._is_open and added:
            if not added.startswith(b"\n"):
                raise self._damaged(self.lines)
            self._is_open, self._offset, added = False, self._offset + 1, added[1:]
        *lines, rest = added.split(b"\n")
        for line in lines:
            if line.strip() or not self.lines:  # an editor may have left blank lines
                self._read(line)
            self._offset += len(line) + 1
        if rest and (
            not self.lines or parse_line(rest) is not None
        ):  # an editor removed the line break
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
            if mend:
                review_file.truncate(self.path, self._offset)

    def _read(self, line: bytes) -> None:
        number = self.lines + 1
        value = parse_line(line)
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
            self.sample = self._read_sample(number, value)
            self._past.append(None)
        else:
            found = self._convert(number, value, _DecisionLine)
            by, at, key = (text[:_MAX_LENGTH] for text in (found.by, found.at, found.key))
            decision = Decision(number, found.example, found.label, by, at, key)
            self._stacks.setdefault(decision.example, []).append(decision)
            self._of_line[number] = decision.example
            self._past.append(decision.example)
        self.lines = number
        self._digest = digest(line) if value else None

    def _undo(self, number: int, value: Mapping[str, Any]) -> str:
        found = self._convert(number, value, _UndoLine)
        name = self._of_line.get(found.undo)
        stack = [] if name is None else self._stacks[name]
        kept = [decision for decision in stack if decision.line != found.undo]
        if name is None or len(kept) == len(stack) or found.of not in (msgspec.UNSET, name):
            raise self._damaged(number)
        self._stacks[name] = kept
        return name

    def _read_sample(self, number: int, value: Mapping[str, Any]) -> Sample:
        found = self._convert(number, value, _SampleLine)
        distinct = len(set(found.sample))
        if distinct != len(found.sample) or found.suspects < distinct:
            raise self._damaged(number)
        return Sample(tuple(found.sample), found.suspects, found.seed)

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
