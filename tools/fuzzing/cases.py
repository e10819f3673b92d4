"""Cases by number: the damaged file, the kind of damage, and the outcome of each command."""

from __future__ import annotations

import gc
import os
import random
import shutil
import socket
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import NamedTuple

from fuzzing import corpus, requests
from fuzzing.commands import COMMANDS
from fuzzing.formats import FORMATS
from fuzzing.outcome import Ended, Kind, ended, judged
from fuzzing.subjects import SUBJECTS, Subject

PLACES = 0.12  # share of cases in which something else than a file is where the file was
OTHER = 0.04  # share in which it is another run's file, and in which it is any other file
HUGE = 8 << 30  # bytes of a file that is mostly a hole


class Result(NamedTuple):
    """The outcome of one command in one case.

    Attributes:
        number: of the case.
        group: "checked" for a file with a checksum, "run" for another of a run, else "data".
        subject: the file.
        damage: how it was damaged.
        command: by its name.
        kind: of the outcome.
        words: about it.
    """

    number: int
    group: str
    subject: str
    damage: str
    command: str
    kind: Kind
    words: str


class Fuzzer:
    """A runner of cases in its own folder, which it fills and restores.

    Args:
        folder: an empty one.
        seed: of everything that is drawn.
        drawing: the figures of reports are drawn in one case out of this many, which takes most of
            the time of a report; in the others, or all with 0, every figure is the first one drawn.
    """

    def __init__(self, folder: Path, seed: int = 0, *, drawing: int = 1) -> None:
        self.folder = folder
        self.seed = seed
        self.drawing = drawing
        self._kept: dict[str, tuple[os.stat_result, bytes]] = {}
        self._expected: dict[tuple[str, bool], Ended] = {}
        self._drawn: list[bytes] = []
        corpus.create(folder)
        with corpus.working_directory(folder):
            for path, entry in sorted(_files(".", ())):
                self._kept[path] = (entry.stat(), Path(path).read_bytes())
            runs = ("other", "half_of_other", "folding_other")
            self._untouched = {*runs, "data"}
        self._checked = _under_manifest(folder)
        there = [one for one in SUBJECTS if any(folder.glob(one.path))]
        self._order = [one for one in there for _ in range(one.weight)]
        random.Random(0).shuffle(self._order)
        gc.collect()
        gc.freeze()

    def run(self, numbers: Iterable[int]) -> Iterator[Result]:
        """Run the cases with these numbers and yield an outcome per command."""
        from proselflc.files.regular import fleeting

        with ExitStack() as stack:
            stack.enter_context(corpus.working_directory(self.folder))
            stack.enter_context(fleeting())
            stack.callback(requests.close)
            for number in numbers:
                draws = self.drawing > 0 and number // len(self._order) % self.drawing == 0
                with nullcontext() if draws else _one_figure(self._drawn):
                    yield from self._case(number, draws)

    def _case(self, number: int, draws: bool) -> Iterator[Result]:
        subject = self._order[number % len(self._order)]
        for command in subject.commands:
            if (command, draws) not in self._expected:
                self._expected[command, draws] = self._undamaged(command)
        draw = random.Random(f"{self.seed}:{number}")
        path = draw.choice(sorted(Path().glob(subject.path)))
        checked = str(path) in self._checked
        damage = self._damage(path, subject, draw)
        for command in subject.commands:
            found, expected = ended(COMMANDS[command]), self._expected[command, draws]
            kind, words = judged(found, expected, path.name if checked else None)
            escaped = self._restore(str(path), all_of_it=number % 16 == 0)
            if escaped:
                kind, words = "escaped", escaped
            group = "data" if path.parts[0] == "data" else "checked" if checked else "run"
            yield Result(number, group, str(path), damage, command, kind, words)
        _remove(path)
        if path.parts[0] in self._untouched:
            path.write_bytes(self._kept[str(path)][1])
            self._kept[str(path)] = (path.stat(), self._kept[str(path)][1])
        self._restore()

    def _undamaged(self, command: str) -> Ended:
        found = ended(COMMANDS[command])
        self._restore()
        if found.code != 0:
            raise RuntimeError(f"{command} fails without damage: {found}")
        return found

    def _damage(self, path: Path, subject: Subject, draw: random.Random) -> str:
        """Damage a file and return a description."""
        content, chance = path.read_bytes(), draw.random()
        if chance < PLACES:
            return _replace(path, draw)
        other = Path(str(path).replace("run", "other", 1))
        if chance < PLACES + OTHER and other != path and other.is_file():
            changed, name = other.read_bytes(), "another run's file"
        elif chance < PLACES + 2 * OTHER:
            stranger = draw.choice(list(self._kept))
            changed, name = self._kept[stranger][1], f"the content of {stranger}"
        else:
            change = draw.choice(FORMATS[subject.format])
            changed, name = change(content, draw), getattr(change, "__name__", "")
        path.unlink()
        path.write_bytes(changed)
        return name

    def _restore(self, keep: str = "", *, all_of_it: bool = False) -> str:
        """Restore everything but one path; return a description of changes outside the runs.

        Args:
            keep: the path.
            all_of_it: also data and the other runs, which no command has a reason to touch.
        """
        escaped, there = "", {}
        skipped = () if all_of_it else self._untouched
        for path, entry in _files(".", skipped):
            if path == keep:
                continue
            there[path] = entry
            if path not in self._kept:
                escaped = f"{path} was made" if path.startswith("outside/") else escaped
                _remove(Path(path))
        for path, (was, content) in self._kept.items():
            if path == keep or path.split("/", 1)[0] in skipped:
                continue
            if path in there and _same(there[path].stat(follow_symlinks=False), was):
                continue
            escaped = f"{path} was changed" if path.startswith("outside/") else escaped
            _remove(Path(path))
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            Path(path).write_bytes(content)
            self._kept[path] = (os.stat(path), content)
        for name in ("new", "cache"):
            shutil.rmtree(name, ignore_errors=True)
        return escaped


def _files(folder: str, skipped: Container[str]) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Return everything below a folder that is not a folder."""
    with os.scandir(folder) as entries:
        for entry in entries:
            path = entry.path.removeprefix("./")
            if not entry.is_dir(follow_symlinks=False):
                yield path, entry
            elif path not in skipped and path not in ("new", "cache"):
                yield from _files(entry.path, ())


def _same(now: os.stat_result, was: os.stat_result) -> bool:
    return (now.st_ino, now.st_mtime_ns, now.st_size) == (was.st_ino, was.st_mtime_ns, was.st_size)


def _replace(path: Path, draw: random.Random) -> str:
    """Replace a file by something else, and return a description."""
    path.unlink()
    what = draw.choice(
        (
            *("nothing", "a folder", "a FIFO", "a socket", "a link to nowhere"),
            *("a link to itself", "a link to a file outside", "a huge file"),
        )
    )
    if what == "a folder":
        path.mkdir()
    elif what == "a FIFO":
        os.mkfifo(path)
    elif what == "a socket":
        with socket.socket(socket.AF_UNIX) as one, corpus.working_directory(path.parent):
            one.bind(path.name)
    elif what == "a link to nowhere":
        path.symlink_to("nowhere")
    elif what == "a link to itself":
        path.symlink_to(path.name)
    elif what == "a link to a file outside":
        path.symlink_to(Path("outside/canary").absolute())
    elif what == "a huge file":
        with path.open("wb") as file:
            file.truncate(HUGE)
    return what


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@contextmanager
def _one_figure(drawn: list[bytes]) -> Iterator[None]:
    """Draw only the first figure of a report and reuse it for all others, for speed."""
    from proselflc.pages import drawing

    before: Callable[..., bytes] = drawing._rendered

    def rendered(*arguments: object, **options: object) -> bytes:
        if not drawn:
            drawn.append(before(*arguments, **options))
        return drawn[0]

    drawing._rendered = rendered
    try:
        yield
    finally:
        drawing._rendered = before


def _under_manifest(folder: Path) -> set[str]:
    """Return the files whose checksums the finished runs keep."""
    from proselflc.files import manifest

    runs = [path.parent for path in folder.glob(f"*/{manifest.NAME}")]
    return {
        str((run / name).relative_to(folder)) for run in runs for name in manifest.read(run) or ()
    }
