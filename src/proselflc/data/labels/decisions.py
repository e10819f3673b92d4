"""What people have decided about labels: `review.jsonl` of a run, to which lines are only added.

A line is a JSON object. The first says which labels the others are about; then come

    {"example": ID, "label": CLASS or null, "given": …, "suggested": …, "by": …, "at": …, "key": …}
    {"undo": LINE, "of": ID, "by": …, "at": …}
    {"sample": [ID, …], "suspects": NUMBER, "seed": NUMBER, "by": …, "at": …}
    {}

where null is for somebody who cannot tell, and LINE is the number of the line that is taken back.
The last decision about an example that was not taken back stands. "previous" in a line is the
digest of the line before it, so that lines that are missing or were changed are noticed; lines of
older versions have none. {} stands for a line that was lost, as its owner has said.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from threading import RLock
from typing import Any, NamedTuple

from proselflc.data.labels import review_file
from proselflc.data.labels.review_file import digest, parsed, written
from proselflc.errors import InputError

NAME = "review.jsonl"
FORMAT = 1
_LONGEST_WORDS = 200  # characters of who decided, when and by which key


class Decision(NamedTuple):
    """What somebody decided about an example.

    Attributes:
        line: its number in the file, from 1.
        example: the example's id.
        label: the class that it belongs to; None for somebody who cannot tell.
        by: who decided.
        at: when.
        key: of the request that it came by.
    """

    line: int
    example: str
    label: str | None
    by: str
    at: str
    key: str


@dataclass(frozen=True)
class Wanted:
    """A decision that is to be written, or taken back.

    Attributes:
        example: the example's id.
        label: as in `Decision`.
        base: the line of the decision that stands, as far as whoever decides knows; 0 for none.
        undo: take that line back instead.
        given, suggested: the labels that were shown, to be read by people.
    """

    example: str
    label: str | None
    base: int
    undo: bool = False
    given: str = ""
    suggested: str = ""


@dataclass(frozen=True)
class Sample:
    """A sample of the suspects that was drawn for measuring.

    Attributes:
        examples: their ids, in the order in which they were drawn.
        suspects: how many there were to draw from.
        seed: of the draw.
    """

    examples: tuple[str, ...]
    suspects: int
    seed: int


@dataclass
class Decisions:
    """What a `review.jsonl` says, as far as it has been read.

    Attributes:
        path: the file.
        fingerprint: of the labels that are decided about.
        lines: how many were read.
        sample: the last one that was drawn, or None.
        notes: a sentence for what was dropped.
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
        """The decisions that stand, by example."""
        with self._held:
            return {name: stack[-1] for name, stack in self._stacks.items() if stack}

    def of(self, example: str) -> Decision | None:
        """The decision that stands about an example."""
        stack = self._stacks.get(example)
        return stack[-1] if stack else None

    def touched_since(self, line: int) -> set[str]:
        """The examples that later lines are about."""
        with self._held:
            return {name for name in self._past[line + 1 :] if name is not None}

    def undecided(self, line: int, examples: Sequence[str]) -> list[bool]:
        """Whether no decision stood about each of the examples when so many lines were there."""
        count: dict[str, int] = {}
        with self._held:
            for k, name in enumerate(self._past[: line + 1]):
                if name is not None:
                    count[name] = count.get(name, 0) + (1 if k in self._of_line else -1)
        return [count.get(name, 0) == 0 for name in examples]

    def check(self, ids: Collection[str], names: Collection[str]) -> None:
        """Refuse decisions about examples or classes that a run does not have.

        Raises:
            InputError: there are some.
        """
        for one in self.standing.values():
            if one.example not in ids:
                raise InputError(
                    f'{self.path} decides about "{one.example}", which the run does not have: it '
                    "belongs to another run, so move it away"
                )
            if one.label is not None and one.label not in names:
                raise InputError(
                    f'line {one.line} of {self.path} says "{one.label}", which is none of the '
                    "run's classes: the list of classes has changed since it was reviewed, so move "
                    "the file away or put the old name back"
                )

    def refresh(self) -> None:
        """Read the lines that were added, by whomever.

        Raises:
            InputError: the file cannot be read, is damaged before its last line, or is about other
                labels.
        """
        with self._held:
            if review_file.size_of(self.path) in (None, self._offset):
                return
            with review_file.locked(self.path, needed=False):
                self._catch_up()

    def add(self, wanted: Sequence[Wanted], by: str, key: str) -> list[Decision | None]:
        """Write decisions; when this returns they are on disk.

        One that is about an example of which something else has been decided than its writer knows
        is not written. One that is there already, by the same key, is not written again.

        Args:
            wanted: what to write.
            by: who decides.
            key: the same for the same request, if it is made again.

        Returns:
            For each of those that were not written the decision that stands against it, else None.

        Raises:
            InputError: the file cannot be written; then nothing was.
        """
        with self._held, review_file.locked(self.path, needed=True):
            self._catch_up(mend=True)
            said = {"by": by, "at": _now(), "key": key}
            lines: list[Mapping[str, object]] = []
            against: list[Decision | None] = []
            for one in wanted:
                standing = self.of(one.example)
                line = 0 if standing is None else standing.line
                if one.undo:
                    stack = self._stacks.get(one.example, [])
                    is_there = any(other.line == one.base for other in stack)
                    against.append(standing if is_there and line != one.base else None)
                    if line == one.base and is_there:
                        lines.append({"undo": one.base, "of": one.example, **said})
                    continue
                if standing is not None and standing.key == key:  # its writer never heard of it
                    against.append(None)
                    continue
                against.append(standing if standing is not None and line != one.base else None)
                if against[-1] is None:
                    shown = {"given": one.given, "suggested": one.suggested}
                    lines.append({"example": one.example, "label": one.label, **shown, **said})
            self._append(lines)
            return against

    def draw(self, sample: Sample, by: str) -> None:
        """Write which examples are the sample."""
        with self._held, review_file.locked(self.path, needed=True):
            self._catch_up(mend=True)
            drawn = {"sample": sample.examples, "suspects": sample.suspects, "seed": sample.seed}
            self._append([{**drawn, "by": by, "at": _now()}])

    def check_writable(self) -> None:
        """Refuse a place where decisions could not be kept, before anybody makes one.

        Raises:
            InputError: it is one.
        """
        with self._held, review_file.locked(self.path, needed=True):
            self._catch_up(mend=True)
            review_file.check_writable(self.path)

    def _append(self, lines: Sequence[Mapping[str, object]]) -> None:
        if not lines:
            return
        pieces = [b""] if self._is_open else []
        before = self._digest
        if self._offset == 0:
            pieces = [written({"review": FORMAT, "fingerprint": self.fingerprint})]
            before = digest(pieces[0])
        for line in lines:
            pieces.append(written(line if before is None else {**line, "previous": before}))
            before = digest(pieces[-1])
        review_file.append(self.path, self._offset, b"\n".join([*pieces, b""]))
        self._catch_up()

    def _catch_up(self, *, mend: bool = False) -> None:
        """Read on from where reading ended; if it may be mended, cut off what is damaged.

        The first line is never cut off: a file that does not begin as a review is not ours.
        """
        added = review_file.added(self.path, self._offset)
        if self._is_open and added:
            if not added.startswith(b"\n"):
                raise self._damaged(self.lines)
            self._is_open, self._offset, added = False, self._offset + 1, added[1:]
        *lines, rest = added.split(b"\n")
        for line in lines:
            if line.strip() or not self.lines:  # an editor may have left blank lines
                self._read(line)
            self._offset += len(line) + 1
        if rest and (not self.lines or parsed(rest) is not None):  # an editor took the line break
            self._read(rest)
            self._offset += len(rest)
            self._is_open, rest = True, b""
        if rest:
            note = (
                f"the last line of {self.path} is damaged, as by a cut of power, and was dropped: "
                "what it decided was never confirmed, so decide it again"
            )
            if note not in self.notes:
                self.notes.append(note)
            if mend:
                review_file.cut(self.path, self._offset)

    def _read(self, line: bytes) -> None:
        number = self.lines + 1
        value = parsed(line)
        if number == 1:
            if not isinstance(value, dict) or value.get("review") != FORMAT:
                raise InputError(
                    f"{self.path} is no review that this version of proselflc reads: it should "
                    f'begin with {{"review": {FORMAT}, …}}; put its first line back, or move the '
                    "file away"
                )
            if value.get("fingerprint") != self.fingerprint:
                raise InputError(
                    f"{self.path} is about other labels than those of the run, which was trained "
                    "anew since it was reviewed: move the file away, or put the old run back"
                )
            self._past.append(None)
        elif not isinstance(value, dict):
            raise self._damaged(number)
        elif not value:  # a line that was lost
            self._past.append(None)
        elif value.get("previous", self._digest) != self._digest and self._digest is not None:
            raise InputError(
                f"lines are missing before line {number} of {self.path}, or the line before it was "
                "changed: put the file back from a copy; or, to go on without them, write {} on a "
                "line of its own in place of each, which stands for a line that was lost"
            )
        elif "undo" in value:
            self._past.append(self._take_back(number, value))
        elif "sample" in value:
            self.sample = self._sampled(number, value)
            self._past.append(None)
        else:
            one = self._decision(number, value)
            self._stacks.setdefault(one.example, []).append(one)
            self._of_line[number] = one.example
            self._past.append(one.example)
        self.lines = number
        self._digest = digest(line) if value else None

    def _take_back(self, number: int, value: Mapping[str, Any]) -> str:
        line = value["undo"]
        name = self._of_line.get(line) if type(line) is int else None
        stack = [] if name is None else self._stacks[name]
        kept = [one for one in stack if one.line != line]
        if name is None or len(kept) == len(stack) or value.get("of", name) != name:
            raise self._damaged(number)
        self._stacks[name] = kept
        return name

    def _sampled(self, number: int, value: Mapping[str, Any]) -> Sample:
        examples, suspects, seed = (value.get(name) for name in ("sample", "suspects", "seed"))
        if (
            not isinstance(examples, list)
            or not all(isinstance(one, str) for one in examples)
            or len(set(examples)) != len(examples)
            or type(suspects) is not int
            or suspects < len(examples)
            or type(seed) is not int
        ):
            raise self._damaged(number)
        return Sample(tuple(examples), suspects, seed)

    def _decision(self, number: int, value: Mapping[str, Any]) -> Decision:
        # Written out, for there may be a hundred thousand lines before a page can be shown.
        example, label = value.get("example"), value.get("label", 0)
        by, at, key = value.get("by"), value.get("at"), value.get("key")
        if (
            not isinstance(example, str)
            or not (label is None or isinstance(label, str))
            or not (isinstance(by, str) and isinstance(at, str) and isinstance(key, str))
        ):
            raise self._damaged(number)
        longest = _LONGEST_WORDS
        return Decision(number, example, label, by[:longest], at[:longest], key[:longest])

    def _damaged(self, number: int) -> InputError:
        return InputError(
            f"line {number} of {self.path} is damaged: put the file back from a copy; or, to go on "
            "without what the line says, write {} in its place"
        )


def read_decisions(path: Path, fingerprint: str) -> Decisions:
    """What was decided; nothing where there is no such file.

    Args:
        path: a run's review.jsonl.
        fingerprint: of the run's labels.

    Raises:
        InputError: it cannot be read, is damaged before its last line, or is about other labels.
    """
    found = Decisions(path, fingerprint)
    found.refresh()
    return found


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
