"""Folders of links by class: nothing escapes, nothing collides, nothing is left half made."""

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proselflc.data.sources import image_folder
from proselflc.data.sources.image_folder import MARK, safe, write
from proselflc.errors import InputError


def files(folder: Path, *names: str) -> list[Path]:
    paths = []
    for name in names:
        path = folder / "source" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())
        paths.append(path)
    return paths


def found(folder: Path) -> dict[str, str]:
    """What every link below the folder leads to."""
    below = [path for path in folder.rglob("*") if path.name != MARK and not path.is_dir()]
    return {str(path.relative_to(folder)): path.read_bytes().decode() for path in below}


def test_images_are_under_their_class(tmp_path: Path) -> None:
    paths = files(tmp_path, "cat/1.png", "dog/1.png", "dog/2.JPG")
    ids = ["cat/1.png", "dog/1.png", "dog/2.JPG"]
    done = write(tmp_path / "out", paths, ids, np.array([1, 1, 0]), ["cat", "dog", "cow"])
    assert done.links == 3
    assert done.renamed == {}
    assert found(tmp_path / "out") == {
        "cat/dog__2.JPG": "dog/2.JPG",
        "dog/cat__1.png": "cat/1.png",
        "dog/dog__1.png": "dog/1.png",
    }
    assert all(p.is_symlink() for p in (tmp_path / "out").glob("*/*"))
    assert not (tmp_path / "out" / "cow").exists()


@pytest.mark.parametrize("link", ["hard", "copy"])
def test_hard_links_and_copies(tmp_path: Path, link: image_folder.Link) -> None:
    (path,) = files(tmp_path, "1.png")
    write(tmp_path / "out", [path], ["1.png"], np.array([0]), ["a"], link=link)
    made = tmp_path / "out" / "a" / "1.png"
    assert not made.is_symlink()
    assert made.samefile(path) == (link == "hard")
    assert made.read_bytes() == b"1.png"


def test_links_work_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files(tmp_path, "1.png")
    monkeypatch.chdir(tmp_path)
    write(Path("out"), [Path("source/1.png")], ["1.png"], np.array([0]), ["a"])
    monkeypatch.chdir("/")
    assert (tmp_path / "out" / "a" / "1.png").read_bytes() == b"1.png"


HOSTILE = [
    "..",
    ".",
    "",
    "/",
    "../../evil",
    "/etc/passwd",
    "a\0b",
    "x" * 5000,
    "<script>alert(1)</script>",
    "Cat",
    "cat",
    "CAT",
    ".hidden",
    "con",
    "a\\..\\b",
    "new\nline",
    "\x1b[31m",
    "\ud800",
    "é",
    "e\u0301",
    "name.",
    "name ",
]


@pytest.mark.parametrize("link", ["symbolic", "hard", "copy"])
def test_hostile_names_stay_inside_and_apart(tmp_path: Path, link: image_folder.Link) -> None:
    paths = files(tmp_path, *(f"{k}.png" for k in range(len(HOSTILE))))
    labels = np.arange(len(HOSTILE))
    (tmp_path / "box").mkdir()
    done = write(tmp_path / "box" / "out", paths, HOSTILE, labels, HOSTILE, link=link)
    assert os.listdir(tmp_path / "box") == ["out"]
    folders = [path for path in (tmp_path / "box" / "out").iterdir() if path.is_dir()]
    assert len(folders) == len(HOSTILE)
    assert len({path.name.casefold() for path in folders}) == len(HOSTILE)
    assert all(not path.name.startswith(".") for path in folders)
    contents = sorted(found(tmp_path / "box" / "out").values())
    assert contents == sorted(path.name for path in paths)
    assert "Cat" not in done.renamed
    assert done.renamed["cat"] == "cat~2"
    assert done.renamed["CAT"] == "CAT~3"


def test_hostile_ids_in_one_class_stay_apart(tmp_path: Path) -> None:
    paths = files(tmp_path, *(f"{k}.png" for k in range(len(HOSTILE))))
    write(tmp_path / "out", paths, HOSTILE, np.zeros(len(HOSTILE), np.int64), ["a"])
    links = [path.name for path in (tmp_path / "out" / "a").iterdir()]
    assert len({name.casefold() for name in links}) == len(HOSTILE)
    assert all(name.endswith(".png") for name in links)
    assert {path.read_bytes().decode() for path in (tmp_path / "out" / "a").iterdir()} == {
        path.name for path in paths
    }


@given(st.text())
def test_a_safe_name_is_one_step(name: str) -> None:
    made = safe(name)
    assert made == os.path.basename(made)
    assert made not in ("", ".", "..")
    assert "\0" not in made
    assert len(made.encode()) <= 120
    assert safe(made) == made


def test_many_names_alike_take_no_longer(tmp_path: Path) -> None:
    (path,) = files(tmp_path, "1.png")
    n = 3000
    ids = [f"{'/' * k}x.png" for k in range(n)]
    write(tmp_path / "out", [path] * n, ids, np.zeros(n, np.int64), ["a"])
    assert (tmp_path / "out" / "a" / f"x~{n}.png").is_symlink()


def test_a_folder_with_something_in_it_is_refused(tmp_path: Path) -> None:
    paths = files(tmp_path, "1.png")
    out = tmp_path / "out"
    out.mkdir()
    write(out, paths, ["old"], np.array([0]), ["a"])  # it was empty
    with pytest.raises(InputError, match="is not empty"):
        write(out, paths, ["new"], np.array([0]), ["b"])
    assert list(found(out)) == ["a/old.png"]
    write(out, paths, ["new"], np.array([0]), ["b"], overwrite=True)
    assert list(found(out)) == ["b/new.png"]
    assert sorted(os.listdir(tmp_path)) == ["out", "source"]


def test_what_somebody_else_made_is_never_replaced(tmp_path: Path) -> None:
    paths = files(tmp_path, "1.png")
    with pytest.raises(InputError, match="files that proselflc did not write"):
        write(tmp_path / "source", paths, ["x"], np.array([0]), ["a"], overwrite=True)
    assert paths[0].is_file()


def test_a_failure_leaves_what_was_there(tmp_path: Path) -> None:
    paths = files(tmp_path, "1.png")
    out = tmp_path / "out"
    write(out, paths, ["old"], np.array([0]), ["a"])
    gone = tmp_path / "source" / "gone.png"
    with pytest.raises(InputError, match=r"gone\.png is missing since training"):
        write(out, [*paths, gone], ["a", "b"], np.array([0, 0]), ["a"], overwrite=True)
    assert list(found(out)) == ["a/old.png"]
    assert sorted(os.listdir(tmp_path)) == ["out", "source"]


def test_an_interruption_between_the_two_renamings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = files(tmp_path, "1.png")
    out = tmp_path / "out"
    write(out, paths, ["old"], np.array([0]), ["a"])
    rename = Path.rename
    calls = []

    def interrupted(path: Path, target: Path) -> Path:
        calls.append(path)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write(out, paths, ["new"], np.array([0]), ["a"], overwrite=True)
    assert list(found(out)) == ["a/old.png"]
    assert sorted(os.listdir(tmp_path)) == ["out", "source"]


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda p: p.write_bytes(b""), "is not a folder: choose another name"),
        (lambda p: p.symlink_to(p.parent), "is a link, and nothing is written through a link"),
    ],
)
def test_a_place_that_is_no_folder(tmp_path: Path, make: object, sentence: str) -> None:
    assert callable(make)
    make(tmp_path / "out")
    with pytest.raises(InputError, match=sentence):
        image_folder.check_writable(tmp_path / "out", overwrite=True)


def test_a_place_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"there is no folder .*nowhere"):
        image_folder.check_writable(tmp_path / "nowhere" / "out", overwrite=False)


ENDLESS = """
import sys
from pathlib import Path
import numpy as np
from proselflc.data.sources.image_folder import write

n = 100_000
write(Path(sys.argv[1]), [Path(sys.argv[2])] * n, [str(k) for k in range(n)],
      np.zeros(n, np.int64), ["a"])
"""


def test_a_kill_leaves_no_half_folder(tmp_path: Path) -> None:
    (path,) = files(tmp_path, "1.png")
    place = tmp_path / "place"
    place.mkdir()
    running = subprocess.Popen([sys.executable, "-c", ENDLESS, str(place / "out"), str(path)])
    try:
        while not any(place.glob(".*.part/a/100.png")):
            assert running.poll() is None
            time.sleep(0.001)
    finally:
        running.kill()
        running.wait()
    assert not (place / "out").exists()
    write(place / "other", [path], ["1"], np.array([0]), ["a"])
    assert len(os.listdir(place)) == 2  # it may be that somebody is still making the first
    write(place / "out", [path], ["1"], np.array([0]), ["a"])
    assert list(found(place / "out")) == ["a/1.png"]
    assert sorted(os.listdir(place)) == ["other", "out"]
