"""Damage to a run is noticed, and a command that is killed leaves a manifest that agrees."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import proselflc
from proselflc.cli import app as cli
from proselflc.data.sources import arrays
from proselflc.errors import InputError
from proselflc.files import manifest
from proselflc.run import audit as auditing
from proselflc.run import resumption
from proselflc.run.reader import Run, load_run
from proselflc.training import checkpoint
from proselflc.training.run_directory import RunDirectory

N, C = 60, 3
Y = np.arange(N) % C
X = (np.eye(C)[Y] + np.random.default_rng(0).normal(0, 0.3, (N, C))).astype(np.float32)
Y[:6] = (Y[:6] + 1) % C
MADE = ("examples.parquet", "audit.json", "audit.npz", "summary.json")


def train(out: Path, **options: Any) -> Run:
    return proselflc.fit(X, Y, epochs=3, out=out, notes=False, **options)


def killed(work: Callable[[], object], at: int, name: str | None = None) -> bool:
    """Do something in a process that is killed when it is about to name its file number `at`.

    Args:
        work: what to do.
        at: which file, from 0 on; of those of this name, where one is given.
        name: of the file.

    Returns:
        Whether it was killed, and did not end before.
    """
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        assert code in (0, -signal.SIGKILL)
        return code != 0
    replace, count = os.replace, 0

    def die(source: Any, target: Any) -> None:
        nonlocal count
        if name in (None, Path(target).name):
            if count == at:
                os.kill(os.getpid(), signal.SIGKILL)
            count += 1
        replace(source, target)

    os.replace = die  # type: ignore[assignment]
    try:
        work()
    except BaseException:
        os._exit(1)
    os._exit(0)


def listed(run: Path) -> dict[str, Any]:
    files = manifest.read(run)
    assert files is not None
    return files


def assert_agrees(run: Path) -> None:
    """The manifest lists every file that a reader reads, and each is as it says."""
    directory = RunDirectory(run)
    for name in listed(run):
        directory.checked(run / name)
    there = {str(path.relative_to(run)) for path in directory.listed()}
    assert there == set(listed(run))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("whole") / "run").path


@pytest.fixture
def run(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "run"))


def test_a_finished_run_lists_all_that_it_wrote(whole: Path) -> None:
    assert set(listed(whole)) == {
        *("audit.json", "audit.npz", "config.toml", "evaluation.json", "examples.parquet"),
        *("history.jsonl", "labels.npz", "model.json", "model.safetensors", "summary.json"),
        *("neighbours.npz", "map.npz", "witness.npz"),
        *(f"dynamics/epoch-0000{k}.npy" for k in range(3)),
        *("dynamics/recent_p.npy", "dynamics/recent_target.npy"),
    }
    assert_agrees(whole)


READERS: dict[str, Callable[[Run], object]] = {
    "config.toml": lambda run: run.config,
    "labels.npz": lambda run: run.labels,
    "history.jsonl": lambda run: run.history,
    "dynamics/epoch-00001.npy": lambda run: run.records,
    "dynamics/epoch-00002.npy": lambda run: [*run.dynamics],
    "dynamics/recent_p.npy": lambda run: run.recent("p"),
    "dynamics/recent_target.npy": lambda run: run.recent("target"),
    "model.json": lambda run: run.names,
    "model.safetensors": lambda run: run.model,
    "examples.parquet": lambda run: run.examples,
    "audit.json": lambda run: run.audit,
    "audit.npz": lambda run: run.audit,
    "evaluation.json": lambda run: run.evaluation,
    "summary.json": lambda run: run.summary,
    "neighbours.npz": lambda run: run.neighbours,
    "map.npz": lambda run: run.map,
}


@pytest.mark.parametrize("name", sorted(READERS))
@pytest.mark.parametrize("how", ["flipped", "cut", "gone"])
def test_a_reader_says_which_file_differs(run: Path, name: str, how: str) -> None:
    found = Run(run)
    path = run / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    if how == "gone":
        path.unlink()
    else:
        path.write_bytes(content if how == "flipped" else content[:-1])
    words = {
        "flipped": f"{path} differs from what the run wrote (sha256 ",
        "cut": f"{path} differs from what the run wrote ({len(content) - 1:,} bytes instead of ",
        "gone": f"{path} is missing, though the run wrote it: ",
    }[how]
    with pytest.raises(InputError) as raised:
        [*found.records.observed] if name == "dynamics/epoch-00001.npy" else READERS[name](found)
    assert words in str(raised.value)


@pytest.mark.parametrize(
    ("name", "commands"),
    [
        ("labels.npz", ("audit", "export", "review")),
        ("dynamics/epoch-00000.npy", ("audit",)),
        ("examples.parquet", ("export", "review")),
        ("model.safetensors", ("predict",)),
        ("model.json", ("predict",)),
        ("config.toml", ("predict", "audit", "export", "report", "review", "train")),
        ("summary.json", ("audit", "report", "train")),
    ],
)
def test_commands_refuse_a_file_with_one_changed_bit(
    run: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    name: str,
    commands: tuple[str, ...],
) -> None:
    content = bytearray((run / name).read_bytes())
    place = content.index(b"seed") + 1 if name == "config.toml" else len(content) // 2
    content[place] ^= 1
    (run / name).write_bytes(content)
    np.savez(tmp_path / "new.npz", x=X)
    options = {
        "predict": ("--data", str(tmp_path / "new.npz")),
        "audit": (),
        "export": ("--out", str(tmp_path / "labels.csv")),
        "report": (),
        "review": ("--no-browser", "--port", "0"),
    }
    for command in commands:
        arguments = [command, str(run), *options.get(command, ())]
        if command == "train":
            arguments = ["train", "--out", str(run), "--resume", "--json"]
        assert cli.run(arguments) == 2, command
        said = capsys.readouterr()
        assert said.err.count("\n") == (2 if (name, command) == ("summary.json", "train") else 1)
        assert f"{run / name} differs from what the run wrote" in said.err
        assert said.out == ""
    assert not (tmp_path / "labels.csv").exists()


def test_a_report_names_what_it_leaves_out(run: Path) -> None:
    (run / "history.jsonl").write_bytes((run / "history.jsonl").read_bytes()[:-2] + b" }")
    page = proselflc.report(run, quiet=True).read_text()
    assert "history.jsonl differs from what the run wrote" in page


def test_labels_of_a_damaged_run_are_not_learned(run: Path, tmp_path: Path) -> None:
    content = (run / "examples.parquet").read_bytes()
    (run / "examples.parquet").write_bytes(content.replace(b"suggested_label", b"suggested_labeL"))
    np.savez(tmp_path / "d.npz", x=X, y=Y)
    options = ["--data", str(tmp_path / "d.npz"), "--labels", str(run), "--epochs", "1"]
    assert cli.run(["train", *options, "--out", str(tmp_path / "new")]) == 2
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("at", range(7))
def test_an_audit_that_is_killed_is_read_or_asked_for_again(run: Path, at: int) -> None:
    """Its files are the manifest with the marks, the four that are made, and the manifest."""
    before = {name: (run / name).read_bytes() for name in MADE}
    assert killed(lambda: auditing.audit(run), at) == (at < 6)
    found = load_run(run)
    assert len(found.labels.ids) == N
    assert len(found.predict(X[:2]).labels) == 2
    for name in ("examples", "audit", "summary"):
        if at in (0, 6):
            assert getattr(found, name) is not None
            continue
        with pytest.raises(InputError, match=f"interrupted.*run proselflc audit {run} again"):
            getattr(found, name)
    auditing.audit(run)
    assert_agrees(run)
    assert {name: (run / name).read_bytes() for name in MADE} == before  # the same audit


def test_folds_that_are_killed_are_made_again(run: Path) -> None:
    with pytest.raises(InputError, match="given in Python"):
        auditing.audit(run, folds=2)
    data = arrays.load(X, Y)
    at = 0
    while killed(lambda: auditing.audit(run, folds=2, dataset=data), at, "manifest.json"):
        load_run(run).predict(X[:2])
        at += 1
    assert at >= 4  # two of the predictions of all folds, two of the audit
    assert auditing.audit(run, folds=2, dataset=data).folds == 2
    assert {"folds/folds.json", "folds/p.npy"} < set(listed(run))
    assert_agrees(run)
    for k in (1, 2):
        assert "held_out.npy" in listed(run / "folds" / f"2-{k}")
        assert_agrees(run / "folds" / f"2-{k}")
    p = run / "folds" / "p.npy"
    p.write_bytes(p.read_bytes()[:-1] + b"\x33")
    with pytest.raises(InputError, match=r"p\.npy differs from what the run wrote"):
        auditing.audit(run)


def test_two_audits_at_a_time_are_one_too_many(run: Path) -> None:
    with RunDirectory(run).locked(), pytest.raises(InputError, match="in use by another process"):
        auditing.audit(run)
    assert_agrees(run)


@pytest.mark.parametrize("back", range(9))
def test_training_that_is_killed_at_its_end_is_finished_by_resuming(
    whole: Path, tmp_path: Path, back: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last files of a run: before the manifest it is not finished."""
    out, files = tmp_path / "run", 0
    replace = os.replace

    def count(source: Any, target: Any) -> None:
        nonlocal files
        files += 1
        replace(source, target)

    monkeypatch.setattr(os, "replace", count)
    train(tmp_path / "counted")
    monkeypatch.undo()
    assert killed(lambda: train(out), files - 1 - back)
    with pytest.raises(InputError, match=r"is not finished|has a summary\.json but no"):
        load_run(out)
    train(out, resume=True)
    assert_agrees(out)
    for name in ("model.safetensors", "examples.parquet", "audit.npz"):
        assert (out / name).read_bytes() == (whole / name).read_bytes()


@pytest.mark.parametrize(
    "name", ["labels.npz", "dynamics/epoch-00000.npy", "history.jsonl", "config.toml"]
)
def test_a_run_is_not_resumed_from_damage(tmp_path: Path, name: str) -> None:
    out = tmp_path / "run"
    assert killed(lambda: train(out, eval_epochs=1), 0, "model.safetensors")
    content = (out / name).read_bytes()
    if name == "history.jsonl":
        lines = content.splitlines(keepends=True)
        changed = b"".join([lines[0].replace(b'"train_loss": ', b'"train_loss": 1'), *lines[1:]])
    elif name == "config.toml":
        changed = content.replace(b'proselflc = "0', b'proselflc = "1')
    else:
        changed = bytes([*content[:-9], content[-9] ^ 1, *content[-8:]])
    assert changed != content
    (out / name).write_bytes(changed)
    with pytest.raises(InputError, match=f"{name} differs from what the run wrote"):
        train(out, eval_epochs=1, resume=True)
    (out / name).write_bytes(content)
    train(out, eval_epochs=1, resume=True)
    assert_agrees(out)


def test_a_state_of_an_earlier_version_says_nothing_of_files(tmp_path: Path) -> None:
    state = checkpoint.State(1, {}, {})
    assert resumption.check_files(state, RunDirectory(tmp_path), b"").files == {}


def test_a_run_that_has_lost_its_manifest_is_not_taken_for_an_old_one(run: Path) -> None:
    (run / "manifest.json").unlink()
    with pytest.raises(InputError, match=r"no manifest\.json: it was killed at its very end, or"):
        load_run(run)
    shutil.rmtree(run / "checkpoints")
    with pytest.raises(InputError, match=r"no manifest\.json and no checkpoint to make it from"):
        train(run, resume=True)
    assert len(list(run.iterdir())) > 9  # nothing was removed


def test_a_run_of_an_earlier_version_is_read_with_a_note(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (run / "manifest.json").unlink()
    config = (run / "config.toml").read_text()
    (run / "config.toml").write_text(config.replace("format = 2", "format = 1"))
    np.savez(tmp_path / "new.npz", x=X)
    note = f"note: {run} has no manifest.json, because an older version of proselflc wrote it: "
    for command in (
        ["predict", str(run), "--data", str(tmp_path / "new.npz")],
        ["audit", str(run)],
        ["export", str(run)],
        ["export", str(run), "--out", str(tmp_path / "labels.csv")],
        ["report", str(run)],
    ):
        assert cli.run(command) == 0
        assert capsys.readouterr().err.count(note) == 1
    assert not (run / "manifest.json").exists()
    assert "no manifest.json" in (run / "report.html").read_text()


def test_recordings_have_a_manifest_too(tmp_path: Path) -> None:
    out = tmp_path / "run"

    def show(**options: Any) -> Run:
        with proselflc.record(N, C, out=out, labels=Y, inputs=X, **options) as rec:
            for _ in range(3):
                rec(np.arange(N), 5 * X)
        return rec.run

    run = show()
    assert "inputs.npz" in listed(out)
    assert_agrees(out)
    epoch = out / "dynamics" / "epoch-00001.npy"
    content = epoch.read_bytes()
    epoch.write_bytes(content[:-1] + b"\x33")
    with pytest.raises(InputError, match=r"epoch-00001\.npy differs"):
        list(run.dynamics)
    with pytest.raises(InputError, match=r"epoch-00001\.npy differs"):
        show(resume=2)
    epoch.write_bytes(content)
    show(resume=2)
    assert len(listed(out)) == len({*out.rglob("*.*")} - {out / "manifest.json", out / ".lock"})
    assert_agrees(out)


@pytest.mark.parametrize("rows", ["fewer", "others"])
def test_half_of_the_examples_is_never_exported(
    run: Path, tmp_path: Path, rows: str, resealed: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not even where the manifest agrees."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.read_table(run / "examples.parquet")
    if rows == "fewer":
        table = table.slice(0, N // 2)
    else:
        ids = ["another", *table["id"].to_pylist()[1:]]
        table = table.set_column(1, "id", pa.array(ids))
    pq.write_table(table, run / "examples.parquet")
    resealed(run)
    for form in ("csv", "npz", "parquet"):
        out = tmp_path / f"labels.{form}"
        assert cli.run(["export", str(run), "--out", str(out)]) == 2
        words = {"fewer": f"has {N // 2} rows, but the run has", "others": "does not belong to"}
        assert words[rows] in capsys.readouterr().err
        assert not out.exists()
    assert cli.run(["export", str(run)]) == 2
    assert capsys.readouterr().out == ""
    np.savez(tmp_path / "d.npz", x=X, y=Y)
    options = ["--data", str(tmp_path / "d.npz"), "--labels", str(run), "--epochs", "1"]
    assert cli.run(["train", *options, "--out", str(tmp_path / "new")]) == 2
    words = {"fewer": "does not belong to the labels", "others": "is a run on other data"}
    assert words[rows] in capsys.readouterr().err


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_weights_that_are_not_finite_are_refused(run: Path, resealed: Any, value: float) -> None:
    from safetensors.torch import load_file, save_file

    weights = load_file(run / "model.safetensors")
    name = sorted(weights)[0]
    weights[name].view(-1)[0] = value
    save_file(weights, run / "model.safetensors")
    resealed(run)
    with pytest.raises(InputError, match=f'the tensor "{name}" in .*holds 1 NaN or infinite'):
        load_run(run).predict(X)


def test_the_manifest_is_no_option_and_no_result(whole: Path) -> None:
    assert "manifest" not in (whole / "config.toml").read_text()
    assert "manifest.json" not in listed(whole)
