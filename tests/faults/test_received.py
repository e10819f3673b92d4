"""Runs and data that others send: only regular files are read, and no link is written through."""

from __future__ import annotations

import errno
import os
import re
import shutil
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from proselflc.cli import app as cli
from proselflc.errors import InputError
from proselflc.run.reader import load_run
from proselflc.run.review import Review

SECONDS = 30  # after which a command is said to hang


@contextmanager
def in_time() -> Iterator[None]:
    """Fail where something waits for ever."""

    def late(*_: object) -> None:
        raise AssertionError(f"it hangs: nothing has happened for {SECONDS} seconds")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("trained") / "run"
    learned = ("--data", "digits", "--noise", "pair:0.3", "--model", "mlp", "--epochs", "5")
    assert cli.run(["train", *learned, "--out", str(out), "--quiet"]) == 0
    return out


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "run"))


Reseal = Callable[[Path], None]
Say = Callable[..., tuple[int, str]]


@pytest.fixture
def say(capfd: pytest.CaptureFixture[str]) -> Say:
    """Runs a command in time; its code and what it complains of."""

    def go(*words: object) -> tuple[int, str]:
        with in_time():
            code = cli.run([str(word) for word in words])
        complaint = capfd.readouterr().err
        assert "Traceback" not in complaint
        return code, complaint

    return go


# What each command must read, and so refuse.
NEEDED: dict[str, tuple[str, ...]] = {
    "audit": ("config.toml", "summary.json", "labels.npz", "dynamics/epoch-00001.npy"),
    "export": ("config.toml", "summary.json", "labels.npz", "examples.parquet", "review.jsonl"),
    "report": ("config.toml", "summary.json", "report.html"),
    "predict": ("config.toml", "summary.json", "model.json", "model.safetensors"),
    "review": ("config.toml", "summary.json", "labels.npz", "examples.parquet", "review.jsonl"),
    "resume": ("config.toml", "summary.json"),
    "labels": ("examples.parquet", "review.jsonl"),
}
BESIDE = (
    *("report.html", "transition.npy", "stages.json"),
    *("inputs.parquet", "inputs.npz", "folds/folds.json"),
)
SLOW = ("report", "labels")  # which are asked about fewer files


def every_file(run: Path) -> list[str]:
    files = [str(path.relative_to(run)) for path in run.rglob("*") if path.is_file()]
    return sorted({*files, "review.jsonl", ".review.lock", *BESIDE})


@pytest.mark.parametrize("command", NEEDED)
def test_a_pipe_in_place_of_any_file_of_a_run(run: Path, say: Say, command: str) -> None:
    whole = run.with_name("whole")
    run.rename(whole)
    refused = set()
    for name in every_file(whole):
        if command in SLOW and name not in (*NEEDED[command], "labels.npz"):
            continue
        shutil.copytree(whole, run)
        (run / name).unlink(missing_ok=True)
        (run / name).parent.mkdir(exist_ok=True)
        os.mkfifo(run / name)
        code, complaint = _done(run, say, command)
        assert code in (0, 2), (name, complaint)
        if code == 2:
            assert f"{run / name}" in complaint, (name, complaint)
            assert "is a named pipe" in complaint, (name, complaint)
            refused.add(name)
        shutil.rmtree(run)
    assert set(NEEDED[command]) <= refused


def _done(run: Path, say: Say, command: str) -> tuple[int, str]:
    if command == "review":
        try:
            with in_time():
                Review(load_run(run)).decisions.check_writable()
        except InputError as error:
            return 2, str(error)
        return 0, ""
    beside = run.with_name("out")
    words: dict[str, tuple[object, ...]] = {
        "audit": ("audit", run),
        "export": ("export", run, "--out", beside.with_suffix(".csv"), "--overwrite"),
        "report": ("report", run, "--overwrite"),
        "predict": ("predict", run, "--data", "digits", "--json"),
        "resume": ("train", "--out", run, "--resume", "--quiet"),
        "labels": (
            *("train", "--data", "digits", "--labels", run, "--model", "mlp", "--epochs", 1),
            *("--out", beside, "--overwrite", "--quiet"),
        ),
    }
    return say(*words[command])


def test_a_pipe_as_a_checkpoint(run: Path, say: Say) -> None:
    (run / "summary.json").unlink()
    (state,) = (run / "checkpoints").iterdir()
    state.unlink()
    os.mkfifo(state)
    code, complaint = say("train", "--out", run, "--resume", "--quiet")
    assert code == 2
    assert f"{state} is a named pipe, and only regular files are read" in complaint


def _socket(path: Path) -> None:
    here = os.getcwd()
    os.chdir(path.parent)  # the path of a socket must be short
    try:
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(path.name)
    finally:
        os.chdir(here)


KINDS: dict[str, Callable[[Path], Any]] = {
    "a named pipe": os.mkfifo,
    "a folder": Path.mkdir,
    "a socket": _socket,
    "a device": lambda path: path.symlink_to("/dev/zero"),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["labels.npz", "dynamics/epoch-00000.npy", "examples.parquet"])
def test_what_is_there_in_place_of_a_file_is_said(
    run: Path, say: Say, name: str, kind: str
) -> None:
    (run / name).unlink()
    KINDS[kind](run / name)
    code, complaint = say(*(("audit", run) if name.startswith("dyn") else ("export", run)))
    assert code == 2
    assert f"{run / name} is {kind}, and only regular files are read: put the file" in complaint


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("option", "name"),
    [
        ("--data", "x.csv"),
        ("--data", "x.parquet"),
        ("--data", "x.npz"),
        ("--labels", "x.csv"),
        ("--labels", "x.npz"),
        ("--features", "x.npy"),
        ("--features", "x.npz"),
        ("--config", "x.toml"),
        ("--weights", "x.safetensors"),
        ("--weights", "x.pt"),
        ("--method.transition", "x.npy"),
        ("--method.transition", "x.csv"),
    ],
)
def test_what_a_user_names_is_a_regular_file(
    tmp_path: Path, say: Say, option: str, name: str, kind: str
) -> None:
    path = tmp_path / name
    KINDS[kind](path)
    words = [option, path] if option == "--data" else ["--data", "digits", option, path]
    if option.startswith("--method"):
        words += ["--method", "forward"]
    code, complaint = say("train", *words, "--out", tmp_path / "run", "--quiet")
    assert code == 2
    if kind == "a folder" and option in ("--data", "--labels"):
        return  # a folder of images, or a run
    assert f"{path} is {kind}" in complaint


def test_a_link_that_the_user_names_is_read(tmp_path: Path, say: Say) -> None:
    rows = "".join(f"{k},{k % 2}\n" for k in range(40))
    (tmp_path / "real.csv").write_text("x,label\n" + rows)
    (tmp_path / "link.csv").symlink_to(tmp_path / "real.csv")
    words = ("--data", tmp_path / "link.csv", "--epochs", 1, "--out", tmp_path / "run", "--quiet")
    assert say("train", *words)[0] == 0


def test_a_pipe_among_images(tmp_path: Path, say: Say) -> None:
    for name in ("cat", "dog"):
        (tmp_path / "data" / name).mkdir(parents=True)
        for k in range(3):
            Image.new("RGB", (8, 8), (9 * k, 0, 0)).save(tmp_path / "data" / name / f"{k}.png")
    pipe = tmp_path / "data" / "cat" / "x.png"
    os.mkfifo(pipe)
    words = ("train", "--data", tmp_path / "data", "--epochs", 1, "--image-size", 16)
    code, complaint = say(*words, "--out", tmp_path / "run", "--quiet")
    assert code == 2
    assert f"cannot read the image {pipe}: it is a named pipe, not a regular file" in complaint


def test_a_page_is_not_written_over_a_pipe_or_a_device(run: Path, say: Say) -> None:
    for kind, make in (("a named pipe", os.mkfifo), ("a socket", _socket)):
        place = run.with_name(f"{kind[2:5]}.html")
        make(place)
        for more in ((), ("--overwrite",)):
            code, complaint = say("report", run, "--out", place, *more)
            assert code == 2
            assert re.search(rf"{re.escape(str(place))}(, which)? is {kind}", complaint)
        assert place.exists()


@pytest.mark.parametrize("name", ["checkpoints", "dynamics", "tracking", "folds"])
@pytest.mark.parametrize("command", ["overwrite", "resume", "audit", "folds"])
def test_nothing_goes_through_a_linked_folder(
    run: Path, trained: Path, say: Say, name: str, command: str
) -> None:
    other = Path(shutil.copytree(trained, run.with_name("other")))
    (other / name).mkdir(exist_ok=True)
    (other / name / ".0123456789abcdef.part").write_text("half")
    before = contents(other)
    shutil.rmtree(run / name, ignore_errors=True)
    (run / name).symlink_to(other / name)
    if command == "resume":
        (run / "summary.json").unlink()
    words = {
        "overwrite": ("train", "--data", "digits", "--model", "mlp", "--epochs", 1),
        "resume": ("train",),
        "audit": ("audit", run),
        "folds": ("audit", run, "--folds", 2),
    }[command]
    if words[0] == "train":
        words = (*words, "--out", run, f"--{command}", "--quiet")
    code, complaint = say(*words)
    if name != "folds" or words[0] == "audit":
        assert code == 2
        assert f"{run / name} is a link, " in complaint
    assert contents(other) == before


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_a_file_of_a_run_that_is_a_link_is_replaced(run: Path, say: Say) -> None:
    """Reading follows a link, as of those who keep large files elsewhere; writing does not."""
    mine = run.with_name("mine")
    mine.mkdir()
    for name in ("examples.parquet", "audit.json", "audit.npz", "summary.json"):
        (run / name).rename(mine / name)
        (run / name).symlink_to(mine / name)
    (run / "report.html").symlink_to(mine / "summary.json")
    before = contents(mine)
    assert say("audit", run) == (0, "")
    assert say("report", run, "--overwrite")[0] == 0
    assert contents(mine) == before
    assert not any((run / name).is_symlink() for name in before)


def test_a_review_that_is_a_link_is_left_alone(run: Path, say: Say) -> None:
    mine = run.with_name("mine.txt")
    for content in ("one line that is no JSON\n", "", None):
        if content is None:
            mine.unlink()
        else:
            mine.write_text(content)
        (run / "review.jsonl").unlink(missing_ok=True)
        (run / "review.jsonl").symlink_to(mine)
        code, complaint = say("review", run, "--no-browser", "--port", 0)
        assert code == 2
        assert "review.jsonl is a link, and nothing is written through a link" in complaint
        assert (mine.read_text() if mine.exists() else None) == content


def test_a_study_is_not_overwritten_through_a_link(trained: Path, tmp_path: Path) -> None:
    from proselflc.searching.study import StudyDirectory

    runs = tmp_path / "mine"
    run = Path(shutil.copytree(trained, runs / "cce-0123456789abcdef"))
    (runs / ".cce-0123456789abcdef.lock").write_text("")
    study = StudyDirectory(tmp_path / "study")
    study.path.mkdir()
    study.runs.symlink_to(runs)
    before = contents(runs)
    study.clear()
    assert contents(runs) == before
    assert run.is_dir()
    with pytest.raises(InputError, match=r"study/runs is a link, and nothing"), study.locked():
        pass
    study.runs.unlink()
    (tmp_path / "mine.log").write_text("mine")
    study.journal.symlink_to(tmp_path / "mine.log")
    with pytest.raises(InputError, match=r"journal\.log is a link, and nothing"), study.locked():
        pass
    assert (tmp_path / "mine.log").read_text() == "mine"


@pytest.mark.parametrize("command", ["audit", "export", "report", "review", "labels"])
def test_no_examples_are_said(run: Path, say: Say, command: str, resealed: Reseal) -> None:
    path = run / "examples.parquet"
    rows = len(pq.read_table(path))
    pq.write_table(pq.read_table(path).slice(0, 0), path)
    resealed(run)
    code, complaint = _done(run, say, command)
    if command == "audit":  # which writes it anew
        assert (code, len(pq.read_table(path))) == (0, rows)
        return
    assert code == (0 if command == "report" else 2)  # a page without them, with a note
    if command == "labels":
        assert f"it has 0 rows for {rows:,} labels" in complaint
    else:
        assert f"{path} has 0 rows, but the run has {rows:,} examples: write it again" in complaint


def test_rows_of_examples_are_those_of_the_labels(run: Path, say: Say, resealed: Reseal) -> None:
    path = run / "examples.parquet"
    whole = pq.read_table(path)
    pq.write_table(whole.slice(0, len(whole) // 2), path)
    resealed(run)
    code, complaint = say("export", run)
    assert code == 2
    assert f"has {len(whole) // 2:,} rows, but the run has {len(whole):,} examples" in complaint


HOSTILE = ("..", ".", "/etc", "../../evil", "a\0b", "x" * 5000, "C:\\x", "-")


@pytest.mark.parametrize("link", ["symbolic", "hard", "copy"])
def test_names_and_ids_of_a_received_run_stay_in_the_folder_of_links(
    tmp_path: Path, reviewable: Callable[..., Path], say: Say, link: str
) -> None:
    images = tmp_path / "images"
    images.mkdir()
    for k in range(len(HOSTILE)):
        Image.new("RGB", (4, 4), (k, 0, 0)).save(images / f"{k}.png")
    (tmp_path / "box").mkdir()
    run = reviewable(
        tmp_path / "box", n=len(HOSTILE), names=HOSTILE, ids=HOSTILE, config={"data": "(python)"}
    )
    from proselflc.data.request import FROM_PYTHON

    config = (run / "config.toml").read_text().replace("(python)", FROM_PYTHON)
    (run / "config.toml").write_text(config)
    paths = [str(images / f"{k}.png") for k in range(len(HOSTILE))]
    pq.write_table(pa.table({"path": pa.array(paths)}), run / "inputs.parquet")
    out = tmp_path / "box" / "out"
    before = contents(images)
    assert say("export", run, "--links", out, "--link", link)[0] == 0
    assert sorted(os.listdir(tmp_path / "box")) == ["out", "run"]
    made = [path for path in out.rglob("*.png")]
    assert len(made) == len(HOSTILE)
    assert all(path.parent.parent == out for path in made)
    assert sorted(path.read_bytes() for path in made) == sorted(before.values())
    assert say("export", run, "--links", out, "--link", link, "--overwrite")[0] == 0
    assert contents(images) == before  # what the links lead to stays


@pytest.mark.parametrize("link", ["symbolic", "hard", "copy"])
def test_a_received_run_cannot_have_other_files_copied(
    tmp_path: Path, reviewable: Callable[..., Path], say: Say, link: str
) -> None:
    from proselflc.data.request import FROM_PYTHON

    secret = tmp_path / "secret.png"
    secret.write_text("a key, which is no image")
    run = reviewable(tmp_path, n=3, config={"data": FROM_PYTHON})
    pq.write_table(pa.table({"path": pa.array([str(secret)] * 3)}), run / "inputs.parquet")
    code, complaint = say("export", run, "--links", tmp_path / "out", "--link", link)
    assert code == 2
    assert f"cannot read the image {secret}" in complaint
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("link", ["symbolic", "hard", "copy"])
def test_paths_of_a_table_that_leave_its_folder(tmp_path: Path, say: Say, link: str) -> None:
    outside, data = tmp_path / "outside", tmp_path / "data"
    outside.mkdir()
    data.mkdir()
    rows = ["path,label"]
    for k in range(12):
        Image.new("RGB", (8, 8), (20 * k, 255 * (k % 2), 0)).save(outside / f"{k}.png")
        place = f"../outside/{k}.png" if k % 2 else str(outside / f"{k}.png")
        rows.append(f"{place},{'../up' if k % 3 else '/root'}")
    (data / "table.csv").write_text("\n".join(rows) + "\n")
    words = ("--epochs", 1, "--image-size", 16, "--out", tmp_path / "run", "--quiet")
    assert say("train", "--data", data / "table.csv", *words)[0] == 0
    before, out = contents(outside), tmp_path / "box" / "out"
    out.parent.mkdir()
    for more in ((), ("--overwrite",)):
        code, _ = say("export", tmp_path / "run", "--links", out, "--link", link, "--force", *more)
        assert code == 0
        assert os.listdir(out.parent) == ["out"]
        made = list(out.rglob("*.png"))
        assert sorted(path.read_bytes() for path in made) == sorted(before.values())
        assert contents(outside) == before
    (data / "table.csv").write_text("path,label\n/etc/hostname,a\n../outside/1.png,b\n")
    code, complaint = say("train", "--data", data / "table.csv", *words, "--overwrite")
    assert code == 2
    assert "cannot read the image /etc/hostname: it is not a JPEG, PNG" in complaint


DAMAGED = {
    "an open bracket": b"{'descr': [('a', '<f2'), 'fortran_order': False, 'shape': (4,), }",
    "a string that ends nowhere": b"{'descr': '''<f2, 'fortran_order': False, 'shape': (4,), }",
    "very many brackets": b"(" * 5000,
    "very many signs": b"-" * 9000 + b"1",
    "NUL": b"\0" * 60,
    "a very large number": b"{'descr': '<f2', 'fortran_order': False, 'shape': (9"
    + b"9" * 5000
    + b",)}",
    "a type of nothing": b"{'descr': '<U0', 'fortran_order': False, 'shape': (4,), }",
    "a dictionary in itself": b"{'descr': {}, 'fortran_order': False, 'shape': (4,), }",
}


@pytest.mark.parametrize("name", ["epoch-00000.npy", "recent_p.npy"])
@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_header_of_dynamics(
    run: Path, say: Say, name: str, damage: str, resealed: Reseal
) -> None:
    path = run / "dynamics" / name
    text = DAMAGED[damage].ljust(117) + b"\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + bytes(20000))
    resealed(run)
    code, complaint = say("audit", run)
    if name.startswith("epoch"):
        assert code == 2
        assert complaint.startswith(f"cannot read {path}: ") or f"{path} holds" in complaint


def test_a_file_system_that_cannot_be_written(
    run: Path, say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is said is what opening says; that nothing can be removed either is not said over it."""

    def refuse(*_: object, **__: object) -> Any:
        raise OSError(errno.EROFS, "Read-only file system")

    opened = open

    def read_only(path: Any, mode: str = "r", *more: Any, **options: Any) -> Any:
        return refuse() if "x" in mode else opened(path, mode, *more, **options)

    monkeypatch.setattr(Path, "unlink", refuse)
    monkeypatch.setattr("builtins.open", read_only)
    out = run.with_name("out.csv")
    for words in (
        ("export", run, "--out", out),
        ("predict", run, "--data", "digits", "--out", out),
    ):
        assert say(*words) == (2, f"cannot write {out}: Read-only file system\n")
    page = run / "report.html"
    assert say("report", run) == (2, f"cannot write {page}: Read-only file system\n")


def test_a_folder_in_place_of_a_later_epoch_is_not_resumed_over(run: Path, say: Say) -> None:
    for name in ("summary.json", "manifest.json"):
        (run / name).unlink()
    (run / "dynamics" / "epoch-00099.npy").mkdir()
    code, complaint = say("train", "--resume", "--out", run, "--quiet")
    assert code == 2
    assert "epoch-00099.npy is a folder" in complaint


def test_a_damaged_run_does_not_cost_a_whole_page(run: Path, say: Say) -> None:
    assert say("report", run)[0] == 0
    whole = (run / "report.html").read_bytes()
    os.truncate(run / "examples.parquet", 1000)
    code, complaint = say("report", run)
    assert code == 2
    assert "report.html would be replaced by a page without examples" in complaint
    assert (run / "report.html").read_bytes() == whole
    assert say("report", run, "--overwrite")[0] == 0
    assert (run / "report.html").read_bytes() != whole
