"""The files of a run: who may write them, what is damaged, what is removed."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from proselflc.errors import InputError
from proselflc.files.regular import decoded
from proselflc.training.run_directory import RunDirectory

CONFIG = 'fingerprint = "0"\n[versions]\n'


def begun(path: Path) -> RunDirectory:
    directory = RunDirectory(path)
    directory.make()
    directory.config.write_text(CONFIG)
    return directory


def test_a_directory_is_begun_by_its_config_and_finished_by_its_summary(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path / "a" / "run")
    assert directory.make() is True
    assert directory.make() is False
    assert not directory.is_begun
    directory.config.write_text("lr = 0.1  # a file for --config, not of a run")
    assert not directory.is_begun
    directory.config.write_text(CONFIG)
    assert directory.is_begun
    assert not directory.is_finished
    directory.write_json(directory.summary, {})
    assert directory.is_finished


def test_clearing_removes_what_a_run_writes_and_nothing_else(tmp_path: Path) -> None:
    directory = begun(tmp_path)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "mine.txt").write_text("mine")
    directory.dynamics.symlink_to(outside)
    directory.checkpoints.mkdir()
    state = f"{7:010d}-{'0' * 32}.safetensors"
    for path in (
        directory.labels,
        directory.stages,
        directory.report,
        directory.checkpoints / state,
        outside / "epoch-00000.npy",
        outside / "recent_p.npy",
    ):
        path.write_text("of the run")
    for path in (tmp_path / "notes.md", directory.checkpoints / "my_model.pt"):
        path.write_text("mine")
    directory.clear()
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"outside", "dynamics", "notes.md", "checkpoints"}
    assert {path.name for path in outside.iterdir()} == {
        "mine.txt",
        "epoch-00000.npy",
        "recent_p.npy",
    }  # a link is not followed
    assert [path.name for path in directory.checkpoints.iterdir()] == ["my_model.pt"]
    (directory.checkpoints / "my_model.pt").unlink()
    directory.clear()
    assert not directory.checkpoints.exists()


def test_folds_are_cleared_and_swept_with_their_run(tmp_path: Path) -> None:
    directory = begun(tmp_path / "run")
    for k in (1, 2):
        fold = begun(directory.fold(k, 2).path)
        fold.checkpoints.mkdir()
        for path in (fold.labels, fold.held_out, fold.path / ".lock"):
            path.write_text("of the fold")
        (fold.checkpoints / f".{'0' * 16}.part").write_text("half")
    directory.folds_p.write_text("")
    directory.folds_done.write_text("")
    assert directory.present() == ("folds", "config.toml")
    assert [fold.path.name for fold in directory.runs_of_folds()] == ["2-1", "2-2"]
    directory.sweep()
    assert not list(directory.path.rglob("*.part"))
    (directory.folds / "2-2" / "notes.md").write_text("mine")
    directory.clear()
    left = [path for path in directory.path.rglob("*") if path.is_file()]
    assert left == [directory.folds / "2-2" / "notes.md"]
    left[0].unlink()
    directory.clear()
    assert not directory.folds.exists()


def test_folds_behind_links_are_not_ours(tmp_path: Path) -> None:
    directory, other = begun(tmp_path / "run"), begun(tmp_path / "other")
    directory.folds.mkdir()
    directory.fold(1, 2).path.symlink_to(other.path)
    directory.fold(2, 2).path.symlink_to(directory.path)
    assert directory.runs_of_folds() == []
    directory.clear()
    assert other.is_begun


@pytest.mark.parametrize(
    ("number", "words"),
    [
        ("3", "newer version of proselflc (format 3, this one reads 2)"),
        ("'x'", "damaged"),
    ],
)
def test_a_later_format_is_refused(tmp_path: Path, number: str, words: str) -> None:
    directory = begun(tmp_path)
    directory.check_format()
    directory.config.write_text(f"format = {number}\n{CONFIG}")
    with pytest.raises(InputError) as raised:
        directory.check_format()
    assert str(raised.value).startswith(str(tmp_path))
    assert words in str(raised.value)


def test_the_config_is_removed_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A clearing that is killed half way leaves a run that can be seen to be one."""
    directory = begun(tmp_path)
    for path in (directory.summary, directory.labels):
        path.write_text("")
    removed: list[str] = []
    unlink = Path.unlink

    def remember(self: Path, missing_ok: bool = False) -> None:
        if self.exists():
            removed.append(self.name)
        unlink(self, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", remember)
    directory.clear()
    assert removed == ["summary.json", "labels.npz", "config.toml"]


def test_names_that_are_taken(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path)
    assert directory.present() == ()
    (tmp_path / "labels.npz").write_text("")
    (tmp_path / "checkpoints").mkdir()
    assert directory.present() == ("checkpoints", "labels.npz")


def test_what_is_half_written_is_swept_away(tmp_path: Path) -> None:
    directory = begun(tmp_path)
    directory.checkpoints.mkdir()
    for name in (".0123456789abcdef.part", ".mine.part", "0123456789abcdef.part"):
        (directory.checkpoints / name).write_text("")
    directory.sweep()
    assert {path.name for path in directory.checkpoints.iterdir()} == {
        ".mine.part",
        "0123456789abcdef.part",
    }


def test_a_directory_that_was_not_used_is_removed(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path / "run")
    directory.make()
    with directory.locked():
        directory.remove_unused()
        assert not directory.path.exists()
    directory.make()
    (directory.path / "mine").write_text("")
    directory.remove_unused()
    assert directory.path.is_dir()


FOLDERS = ("checkpoints", "dynamics", "tracking", "folds")


@pytest.mark.parametrize("name", FOLDERS)
def test_nothing_is_deleted_through_a_link(tmp_path: Path, name: str) -> None:
    directory, other = begun(tmp_path / "run"), begun(tmp_path / "other")
    folder = other.path / name
    folder.mkdir()
    names = (
        f"{7:010d}-{'0' * 32}.safetensors",
        "epoch-00000.npy",
        "recent_p.npy",
        "events.out",
        "folds.json",
        "p.npy",
        ".0123456789abcdef.part",
    )
    for one in names:
        (folder / one).write_text("of the other")
    (directory.path / name).symlink_to(folder)
    directory.sweep()
    directory.clear()
    assert {path.name for path in folder.iterdir()} == set(names)
    assert (directory.path / name).is_symlink()


@pytest.mark.parametrize("name", FOLDERS[:3])
def test_a_run_with_a_folder_elsewhere_is_not_written_to(tmp_path: Path, name: str) -> None:
    directory = begun(tmp_path / "run")
    (directory.path / name).symlink_to(tmp_path / "nowhere")
    sentence = rf"run/{name} is a link, and nothing is written or deleted through a link: replace"
    with pytest.raises(InputError, match=sentence), directory.locked():
        pass
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("make", [os.symlink, os.link], ids=["symbolic", "hard"])
def test_a_lock_that_is_another_file_is_not_emptied(
    tmp_path: Path, make: Callable[[Path, Path], None]
) -> None:
    mine = tmp_path / "mine.txt"
    mine.write_text("mine")
    directory = begun(tmp_path / "run")
    make(mine, directory.path / ".lock")
    with pytest.raises(InputError, match=r"\.lock is a (link|second name)"), directory.locked():
        pass
    assert mine.read_text() == "mine"


def test_one_at_a_time(tmp_path: Path) -> None:
    first, second = RunDirectory(tmp_path).locked(), RunDirectory(tmp_path).locked()
    with first, pytest.raises(InputError, match="is in use by another process"), second:
        pass
    with RunDirectory(tmp_path).locked():
        assert (tmp_path / ".lock").exists()


def test_what_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="choose another out="):
        RunDirectory(tmp_path / "file" / "run").make()


def test_json_holds_no_numbers_that_are_none(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path)
    value = {"a": math.nan, "b": [math.inf, 1.5], "c": {"d": -math.inf}, "e": "ä", "f": True}
    directory.write_json(directory.summary, value)
    assert "ä" in directory.summary.read_text()
    known = {"a": None, "b": [None, 1.5], "c": {"d": None}, "e": "ä", "f": True}
    assert json.loads(directory.summary.read_text(), parse_constant=pytest.fail) == known
    directory.write_history([{"step": 1, "train_loss": math.nan}])
    assert directory.read_history() == [{"step": 1, "train_loss": None}]


def test_the_history_is_a_line_each(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path)
    assert directory.read_history() == []
    lines: list[dict[str, object]] = [{"step": 1, "g": None}, {"step": 2, "g": 0.5}]
    directory.write_history(lines)
    assert len(directory.history.read_text().splitlines()) == 2
    assert directory.read_history() == lines


@pytest.mark.parametrize("content", [b"{", b"[1]", b"\xff", b"[" * 100_000])
def test_damaged_files_are_named(tmp_path: Path, content: bytes) -> None:
    directory = RunDirectory(tmp_path)
    directory.summary.write_bytes(content)
    with pytest.raises(InputError, match=r"summary\.json"):
        directory.read_json(directory.summary)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        decoded(tmp_path / "nowhere.json")
