"""Decisions are on disk before anybody goes on, and nobody overwrites another's unseen."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from proselflc.data.decisions import DecisionChange, Decisions, Sample, read_decisions
from proselflc.errors import InputError

FINGERPRINT = "f" * 64


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "review.jsonl"


def opened(path: Path) -> Decisions:
    return read_decisions(path, FINGERPRINT)


def standing(found: Decisions) -> dict[str, str | None]:
    return {name: one.label for name, one in found.standing.items()}


def test_what_is_decided_is_read_again(path: Path) -> None:
    log = opened(path)
    assert log.standing == {}
    assert log.add([DecisionChange("a", "cat", 0), DecisionChange("b", None, 0)], "anna", "1") == [
        None,
        None,
    ]
    again = opened(path)
    assert standing(again) == {"a": "cat", "b": None}
    assert (again.standing["a"].by, again.standing["a"].line) == ("anna", 2)
    assert again.notes == []


def test_a_later_decision_needs_to_know_the_earlier_one(path: Path) -> None:
    one, other = opened(path), opened(path)
    assert one.add([DecisionChange("a", "cat", 0)], "anna", "1") == [None]
    [against] = other.add([DecisionChange("a", "dog", 0)], "ben", "2")
    assert against is not None
    assert (against.label, against.by, against.line) == ("cat", "anna", 2)
    assert standing(opened(path)) == {"a": "cat"}  # not overwritten
    assert other.add([DecisionChange("a", "dog", against.line)], "ben", "3") == [None]
    assert standing(opened(path)) == {"a": "dog"}
    assert len(path.read_text().splitlines()) == 3  # and nothing is lost


def test_of_many_those_in_conflict_are_left_out(path: Path) -> None:
    opened(path).add([DecisionChange("b", "cat", 0)], "anna", "1")
    log = opened(path)
    log.add([DecisionChange("b", "fox", 2)], "anna", "2")
    against = log.add(
        [DecisionChange(name, "dog", 2 if name == "b" else 0) for name in "abc"], "ben", "3"
    )
    assert [one is None for one in against] == [True, False, True]
    assert standing(log) == {"a": "dog", "b": "fox", "c": "dog"}


def test_the_same_request_twice_is_written_once(path: Path) -> None:
    log = opened(path)
    for _ in range(2):
        assert log.add([DecisionChange("a", "cat", 0)], "anna", "the same") == [None]
    assert log.lines == 2


def test_undo_is_a_new_line_and_brings_back_what_was(path: Path) -> None:
    log = opened(path)
    log.add([DecisionChange("a", "cat", 0)], "anna", "1")
    log.add([DecisionChange("a", "dog", 2)], "anna", "2")
    assert log.add([DecisionChange("a", None, 3, undo=True)], "anna", "3") == [None]
    assert standing(opened(path)) == {"a": "cat"}
    assert log.add([DecisionChange("a", None, 2, undo=True)], "anna", "4") == [None]
    assert log.add([DecisionChange("a", None, 2, undo=True)], "anna", "4") == [
        None
    ]  # once is enough
    assert standing(opened(path)) == {}
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line.get("undo") for line in lines] == [None, None, None, 3, 2]


def test_what_another_has_decided_upon_is_not_taken_back_unseen(path: Path) -> None:
    log = opened(path)
    log.add([DecisionChange("a", "cat", 0)], "anna", "1")
    opened(path).add([DecisionChange("a", "dog", 2)], "ben", "2")
    [against] = log.add([DecisionChange("a", None, 2, undo=True)], "anna", "3")
    assert against is not None
    assert against.label == "dog"
    assert standing(opened(path)) == {"a": "dog"}


@pytest.mark.parametrize(
    "torn", [b'{"example": "b", "la', b"\0\0\0\0", b'{"example": "b"', b"\xff\xfe", b"nonsense"]
)
def test_a_damaged_last_line_is_dropped_and_said(path: Path, torn: bytes) -> None:
    opened(path).add([DecisionChange("a", "cat", 0)], "anna", "1")
    whole = path.read_bytes()
    path.write_bytes(whole + torn)
    log = opened(path)
    assert standing(log) == {"a": "cat"}
    assert len(log.notes) == 1
    assert "the last line of" in log.notes[0]
    assert path.read_bytes() == whole + torn  # who only reads changes nothing
    log.add([DecisionChange("c", "dog", 0)], "anna", "2")
    assert path.read_bytes().startswith(whole + b'{"example": "c"')
    again = opened(path)
    assert (standing(again), again.notes) == ({"a": "cat", "c": "dog"}, [])


@pytest.mark.parametrize("damaged", [b"\xff\xfe\n", b"nonsense\n"])
def test_a_last_line_that_was_written_whole_is_not_dropped(path: Path, damaged: bytes) -> None:
    """What it decided was confirmed, so whoever decided must hear of its damage."""
    opened(path).add([DecisionChange("a", "cat", 0)], "anna", "1")
    whole = path.read_bytes() + damaged
    path.write_bytes(whole)
    with pytest.raises(InputError, match=r"line 3 of .* is damaged: restore the file"):
        opened(path)
    assert path.read_bytes() == whole


@pytest.mark.parametrize("blank", [b"\n", b"\n\n", b"  \n"])
def test_blank_lines_at_the_end_are_no_damage(path: Path, blank: bytes) -> None:
    opened(path).add([DecisionChange("a", "cat", 0)], "anna", "1")
    path.write_bytes(path.read_bytes() + blank)
    log = opened(path)
    assert (standing(log), log.notes) == ({"a": "cat"}, [])
    log.add([DecisionChange("b", "dog", 0)], "anna", "2")
    assert standing(opened(path)) == {"a": "cat", "b": "dog"}


def test_a_damaged_line_before_the_last_is_not_passed_over(path: Path) -> None:
    log = opened(path)
    log.add([DecisionChange("a", "cat", 0)], "anna", "1")
    path.write_bytes(path.read_bytes() + b"nonsense\n")
    with path.open("a") as file:
        file.write(json.dumps({"example": "b", "label": "dog", "by": "", "at": "", "key": ""}))
        file.write("\n")
    with pytest.raises(InputError, match=r"line 3 of .* is damaged: restore the file"):
        opened(path)


@pytest.mark.parametrize(
    "line",
    [
        {"example": "b", "by": "", "at": "", "key": ""},
        {"example": 3, "label": "cat", "by": "", "at": "", "key": ""},
        {"example": "b", "label": ["cat"], "by": "", "at": "", "key": ""},
        {"example": "b", "label": "cat", "by": 1, "at": "", "key": ""},
        {"undo": 1},
        {"undo": 7},
        {"undo": 2, "of": None},
        {"undo": True},
        {"undo": "2"},
        {"sample": ["a", "a"], "suspects": 3, "seed": 0},
        {"sample": ["a"], "suspects": 0, "seed": 0},
        {"sample": "a", "suspects": 3, "seed": 0},
    ],
)
def test_lines_that_say_nothing_we_know_are_refused(path: Path, line: object) -> None:
    opened(path).add([DecisionChange("a", "cat", 0)], "anna", "1")
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")
    with pytest.raises(InputError, match=r"line 3 of .* is damaged"):
        opened(path)


def test_decisions_about_other_labels_are_refused(path: Path) -> None:
    opened(path).add([DecisionChange("a", "cat", 0)], "anna", "1")
    with pytest.raises(InputError, match="is about other labels than those of the run"):
        read_decisions(path, "e" * 64)
    path.write_text('{"review": 2}\n')
    with pytest.raises(InputError, match="not a review that this version"):
        opened(path)


def test_a_class_or_an_example_that_the_run_does_not_have(path: Path) -> None:
    log = opened(path)
    log.add([DecisionChange("a", "cat", 0)], "anna", "1")
    log.check({"a"}, {"cat"})
    with pytest.raises(InputError, match=r'line 2 of .* says "cat", which is not a class'):
        log.check({"a"}, {"dog"})
    with pytest.raises(InputError, match='decides about "a", which the run does not have'):
        log.check({"b"}, {"cat"})


def test_the_sample_is_remembered(path: Path) -> None:
    log = opened(path)
    log.draw(Sample(("a", "b"), 10, 3), "anna")
    assert opened(path).samples == [Sample(("a", "b"), 10, 3)]
    assert opened(path).standing == {}


def test_a_sample_keeps_the_groups_that_it_was_drawn_from(path: Path) -> None:
    log, drawn = opened(path), Sample(("a", "b", "c"), 2, 3, (0, 1, 0), (2, 40))
    log.draw(Sample(("a", "b"), 10, 3), "anna")  # as an older version draws
    log.draw(drawn, "anna")
    again = opened(path)
    assert again.samples == [Sample(("a", "b"), 10, 3), drawn]
    line = json.loads(path.read_text().splitlines()[-1])
    assert (line["groups"], line["strata"]) == ([0, 1, 0], [2, 40])


@pytest.mark.parametrize(
    "wrong",
    [
        {"groups": [0, 1]},  # one too few
        {"groups": [0, 1, 2]},  # a group that there is not
        {"groups": [0, -1, 0]},
        {"groups": [0, 0, 0]},  # three of a group of two
        {"strata": [2, -40]},
        {"strata": "many"},
        {"sample": ["a", "b", "a"]},
    ],
)
def test_a_sample_that_cannot_have_been_drawn(path: Path, wrong: dict[str, Any]) -> None:
    opened(path).draw(Sample(("a", "b", "c"), 2, 3, (0, 1, 0), (2, 40)), "anna")
    first, line = path.read_text().splitlines()
    path.write_text(f"{first}\n{json.dumps({**json.loads(line), **wrong})}\n")
    with pytest.raises(InputError, match=r"line 2 of .* is damaged"):
        opened(path)


def test_what_was_undecided_at_a_line(path: Path) -> None:
    log = opened(path)
    log.add([DecisionChange("a", "cat", 0)], "anna", "1")  # line 2, after the first
    log.add([DecisionChange("b", "cat", 0)], "anna", "2")
    log.add([DecisionChange("a", None, 2, undo=True)], "anna", "3")
    found = [log.undecided(line, ["a", "b", "c"]) for line in range(5)]
    assert found == [
        [True, True, True],
        [True, True, True],
        [False, True, True],
        [False, False, True],
        [True, False, True],
    ]
    assert log.touched_since(3) == {"a"}
    assert log.touched_since(1) == {"a", "b"}


def test_reading_takes_little_longer_than_parsing(path: Path) -> None:
    """A hundred thousand lines are read within a second wherever JSON is parsed in a third."""
    opened(path).add([DecisionChange(str(k), "cat", 0) for k in range(10_000)], "anna", "1")
    lines = path.read_bytes().splitlines()

    def best(work: Callable[[], object]) -> float:
        times = []
        for _ in range(3):
            begin = time.process_time()
            work()
            times.append(time.process_time() - begin)
        return min(times)

    assert best(lambda: opened(path)) < 3 * best(lambda: [json.loads(line) for line in lines])


def test_a_place_that_cannot_be_written_is_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = opened(path)
    log.check_writable()
    assert not path.exists()
    monkeypatch.setattr(os, "fsync", _no_space)
    with pytest.raises(InputError, match=r"cannot write .*No space left on device; it keeps"):
        log.add([DecisionChange("a", "cat", 0)], "anna", "1")
    monkeypatch.undo()
    assert not path.exists()  # nothing is half written
    log.add([DecisionChange("a", "cat", 0)], "anna", "1")
    whole = path.read_bytes()
    monkeypatch.setattr(os, "fsync", _no_space)
    with pytest.raises(InputError, match=r"cannot write .*No space left on device; it keeps"):
        log.add([DecisionChange("b", "cat", 0)], "anna", "2")
    monkeypatch.undo()
    assert path.read_bytes() == whole


def _no_space(descriptor: int) -> None:
    raise OSError(28, "No space left on device")


def test_lines_that_vanish_are_missed(path: Path) -> None:
    log = opened(path)
    log.add([DecisionChange("a", "cat", 0)], "anna", "1")
    path.write_bytes(b"")
    with pytest.raises(InputError, match="has lost lines"):
        log.refresh()
    path.unlink()
    with pytest.raises(InputError, match="is gone"):
        log.add([DecisionChange("b", "cat", 0)], "anna", "2")


def line(**value: object) -> bytes:
    """A line as versions before this one wrote it."""
    return json.dumps({"given": "", "suggested": "", "by": "anna", "at": "", **value}).encode()


def three(path: Path) -> list[bytes]:
    """The lines of a file with three decisions."""
    log = opened(path)
    for name in "abc":
        log.add([DecisionChange(name, "cat", 0)], "anna", name)
    return path.read_bytes().splitlines(keepends=True)


@pytest.mark.parametrize("missing", [1, 2])
def test_lines_missing_in_the_middle_are_noticed(path: Path, missing: int) -> None:
    lines = three(path)
    assert len(lines) == 4
    del lines[missing]
    path.write_bytes(b"".join(lines))
    with pytest.raises(
        InputError, match=rf"lines are missing before line {missing + 1} of .*jsonl"
    ):
        opened(path)
    assert path.read_bytes() == b"".join(lines)  # nothing is mended that is not understood
    lines.insert(missing, b"{}\n")  # as the message says
    path.write_bytes(b"".join(lines))
    log = opened(path)
    assert standing(log) == dict.fromkeys(set("abc") - {"abc"[missing - 1]}, "cat")
    log.add([DecisionChange("d", "dog", 0)], "ben", "d")
    assert opened(path).standing.keys() == log.standing.keys()


def test_a_line_that_was_changed_is_noticed(path: Path) -> None:
    lines = three(path)
    lines[1] = lines[1].replace(b"cat", b"dog")
    path.write_bytes(b"".join(lines))
    with pytest.raises(InputError, match=r"or the line before it was changed: restore the file"):
        opened(path)


def test_lines_of_older_versions_are_read_and_followed(path: Path) -> None:
    old = [line(example=name, label="cat", key=name) for name in "abc"]
    first = json.dumps({"review": 1, "fingerprint": FINGERPRINT}).encode()
    path.write_bytes(b"\n".join([first, *old, b""]))
    log = opened(path)
    assert standing(log) == {"a": "cat", "b": "cat", "c": "cat"}
    assert log.notes == []
    log.add([DecisionChange("d", "dog", 0)], "ben", "d")
    assert path.read_bytes().startswith(b"\n".join([first, *old, b""]))
    added = json.loads(path.read_bytes().splitlines()[-1])
    assert added["previous"] == hashlib.blake2b(old[-1], digest_size=8).hexdigest()
    path.write_bytes(b"\n".join([first, *old[:-1], path.read_bytes().splitlines()[-1], b""]))
    with pytest.raises(InputError, match="lines are missing before line 4"):
        opened(path)


def test_a_missing_line_break_at_the_end_drops_nothing(path: Path) -> None:
    lines = three(path)
    whole = b"".join(lines)
    path.write_bytes(whole.rstrip(b"\n"))  # as some editors do
    log = opened(path)
    assert standing(log) == {"a": "cat", "b": "cat", "c": "cat"}
    assert log.notes == []
    other = opened(path)
    assert log.add([DecisionChange("d", "dog", 0)], "ben", "d") == [None]
    assert path.read_bytes().startswith(whole)
    assert path.read_bytes().count(b"\n") == 5
    other.refresh()
    assert standing(other) == standing(opened(path)) == standing(log)
    assert len(other.standing) == 4


def test_other_line_breaks_change_nothing(path: Path) -> None:
    path.write_bytes(b"".join(three(path)).replace(b"\n", b"\r\n"))
    assert opened(path).standing.keys() == {"a", "b", "c"}


@pytest.mark.parametrize(
    "content", [b"one line that is no JSON", b"one line\n", b"\n", b'{"review": 1, "fi', b"5\n"]
)
def test_the_first_line_is_never_dropped(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(InputError, match="is not a review that this version"):
        opened(path)
    log = Decisions(path, FINGERPRINT)
    for change in (
        log.check_writable,
        lambda: log.add([DecisionChange("a", "cat", 0)], "anna", "1"),
        lambda: log.draw(Sample(("a",), 1, 0), "anna"),
    ):
        with pytest.raises(InputError, match="restore its first line, or move the file away"):
            change()
    assert path.read_bytes() == content


@pytest.mark.parametrize("name", ["review.jsonl", ".review.lock"])
@pytest.mark.parametrize("content", [b"mine", None], ids=["a file", "nothing"])
def test_nothing_is_written_through_a_link(
    tmp_path: Path, path: Path, name: str, content: bytes | None
) -> None:
    target = tmp_path / "elsewhere" / "mine.txt"
    target.parent.mkdir()
    if content is not None:
        target.write_bytes(content)
    log = opened(path)
    (tmp_path / name).symlink_to(target)
    for change in (
        log.check_writable,
        lambda: log.add([DecisionChange("a", "cat", 0)], "anna", "1"),
        lambda: log.draw(Sample(("a",), 1, 0), "anna"),
    ):
        with pytest.raises(InputError, match=rf"{name} is a link, and nothing is written through"):
            change()
    if name == path.name:
        with pytest.raises(InputError, match="is a link"):
            opened(path)
    assert (target.read_bytes() if content is not None else target.exists()) == (content or False)


def test_another_name_of_the_file_keeps_what_it_has(tmp_path: Path, path: Path) -> None:
    whole = b"".join(three(path))
    path.write_bytes(whole + b"torn")
    other = tmp_path / "copy.jsonl"
    os.link(path, other)
    log = opened(path)
    log.check_writable()  # which drops what is torn
    assert path.read_bytes() == whole
    log.add([DecisionChange("d", "dog", 0)], "ben", "d")
    assert other.read_bytes() == whole + b"torn"
    assert opened(path).standing.keys() == {"a", "b", "c", "d"}
    path.unlink()
    os.link(other, path)
    other.write_bytes(whole)
    opened(path).add([DecisionChange("e", "dog", 0)], "ben", "e")
    assert other.read_bytes() == whole


def test_a_lock_that_is_another_file_is_refused(tmp_path: Path, path: Path) -> None:
    mine = tmp_path / "mine"
    mine.write_text("mine")
    os.link(mine, tmp_path / ".review.lock")
    with pytest.raises(InputError, match=r"\.review\.lock is a second name of another file"):
        opened(path).add([DecisionChange("a", "cat", 0)], "anna", "1")
    assert mine.read_text() == "mine"


def test_an_undo_is_of_the_example_that_it_names(path: Path) -> None:
    log = opened(path)
    log.add([DecisionChange("a", "cat", 0), DecisionChange("b", "cat", 0)], "anna", "1")
    log.add([DecisionChange("b", None, 3, undo=True)], "anna", "2")
    lines = path.read_bytes().splitlines()
    assert json.loads(lines[3])["of"] == "b"
    path.write_bytes(b"\n".join([lines[0], b"{}", *lines[1:], b""]))  # one line too many
    with pytest.raises(InputError, match=r"line 5 of .* is damaged"):
        opened(path)


def test_a_pipe_in_place_of_the_file_is_refused(path: Path) -> None:
    os.mkfifo(path)
    with pytest.raises(InputError, match=r"review\.jsonl is a named pipe"):
        opened(path)


WRITER = """
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from proselflc.data.decisions import DecisionChange, read_decisions
log = read_decisions(Path(sys.argv[1]), "f" * 64)
for k in range(int(sys.argv[3])):
    log.add([DecisionChange(f"{sys.argv[2]}-{k}", "cat", 0)], sys.argv[2], f"{sys.argv[2]}-{k}")
    print(k, flush=True)
"""


def test_two_writers_lose_nothing(path: Path) -> None:
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(path), name, "60"], stdout=-1)
        for name in ("anna", "ben")
    ]
    for one in writers:
        one.communicate()
        assert one.returncode == 0
    found = opened(path)
    expected = {f"{name}-{k}" for name in ("anna", "ben") for k in range(60)}
    assert found.standing.keys() == expected
    assert found.lines == 121


def test_what_was_confirmed_survives_a_kill(path: Path) -> None:
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), "anna", "100000"], stdout=subprocess.PIPE
    )
    assert writer.stdout is not None
    confirmed = 0
    while confirmed < 50:
        confirmed = int(writer.stdout.readline()) + 1
    os.kill(writer.pid, signal.SIGKILL)
    rest = writer.stdout.read().splitlines()
    writer.stdout.close()
    writer.wait()
    confirmed += len(rest)
    found = opened(path)
    assert {f"anna-{k}" for k in range(confirmed)} <= found.standing.keys()
    assert found.add([DecisionChange("later", "cat", 0)], "ben", "1") == [
        None
    ]  # no lock is left behind
