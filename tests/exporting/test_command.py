"""`proselflc export`: every format and place, read back by training, and what can go wrong."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pyarrow.parquet as pq
import pytest
from PIL import Image

import proselflc
from proselflc.cli.app import run as command
from proselflc.data.decisions import DecisionChange
from proselflc.data.inputs import Features, Ints
from proselflc.data.noise_generators import Numbers
from proselflc.data.opening import open_data
from proselflc.data.request import Request
from proselflc.exporting.labels import corrected_labels, find_label_issues
from proselflc.training.run_directory import read_toml

NAMES = ("=1", "-1", 'a "b", c')
N = 120


def features() -> tuple[Numbers, Ints, Ints]:
    """Clusters [N, 3], their classes, and labels of which every sixth is wrong."""
    generator = np.random.default_rng(0)
    true = generator.integers(3, size=N)
    given = np.where(np.arange(N) % 6 == 0, (true + 1) % 3, true)
    return np.eye(3)[true] + generator.normal(0, 0.15, (N, 3)), true, given


def write_table(path: Path, *, ids: bool = True) -> Path:
    """A table with a test split, quoted cells, and names that spreadsheets would execute."""
    x, _, given = features()
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([*(["id"] if ids else []), "a", "b", "c", "label", "split"])
        for k in range(N):
            name = [f"@row {k}"] if ids else []
            split = "test" if k % 10 == 9 else "train"
            writer.writerow([*name, *x[k].round(4), NAMES[given[k]], split])
    return path


def train(*arguments: object) -> None:
    options = ("--model", "mlp", "--epochs", "15", "--batch-size", "16", "--quiet")
    assert command(["train", *(str(one) for one in arguments), *options]) == 0


def exported(*arguments: object) -> None:
    assert command(["export", *(str(one) for one in arguments)]) == 0


def refused(arguments: Sequence[object], capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert command(["export", *(str(one) for one in arguments)]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    return said.err


@pytest.fixture(scope="module")
def table_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("table")
    train("--data", write_table(folder / "d.csv"), "--out", folder / "run")
    assert sum(proselflc.load_run(folder / "run").examples["is_suspect"].to_pylist()) >= 10
    return folder / "run"


@pytest.fixture(scope="module")
def image_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Grey images in folders, one in six in the wrong one, with the same names in each."""
    folder = tmp_path_factory.mktemp("images")
    for name, tone in (("dark", 0), ("light", 255)):
        (folder / "photos" / name).mkdir(parents=True)
        for k in range(18):
            colour = 255 - tone if k % 6 == 5 else tone
            Image.new("L", (8, 8), colour).save(folder / "photos" / name / f"{k}.png")
    train("--data", folder / "photos", "--out", folder / "run", "--image-size", 8)
    return folder / "run"


def suggested(run: Path) -> dict[str, str]:
    table = proselflc.load_run(run).examples
    return dict(zip(table["id"].to_pylist(), table["suggested_label"].to_pylist(), strict=True))


def changed(run: Path) -> dict[str, str]:
    """The labels of a run after what its audit would change by itself."""
    rows = proselflc.load_run(run).examples.to_pylist()
    names = {"keep": "given_label", "review": "given_label", "change": "suggested_label"}
    return {row["id"]: row[names[row["action"]]] for row in rows}


def labels_of(request: Request) -> dict[str, str]:
    data = open_data(request)
    return {name: data.names[k] for name, k in zip(data.train.ids, data.train.labels, strict=True)}


@pytest.mark.parametrize("ending", ["csv", "tsv", "parquet", "npz"])
def test_every_format_is_read_back_as_labels(table_run: Path, tmp_path: Path, ending: str) -> None:
    out = tmp_path / f"labels.{ending}"
    exported(table_run, "--out", out, "--soft")
    data = str(table_run.parent / "d.csv")
    assert labels_of(Request(data, labels=out)) == changed(table_run)
    if ending != "csv":
        return
    train("--data", data, "--labels", out, "--out", tmp_path / "again")
    again = proselflc.load_run(tmp_path / "again").labels
    assert [again.names[k] for k in again.given] == list(changed(table_run).values())


def test_cleanlabs_names_are_read_back(table_run: Path, tmp_path: Path) -> None:
    data = str(table_run.parent / "d.csv")
    own = labels_of(Request(data))
    for ending in ("csv", "parquet"):
        out = tmp_path / f"issues.{ending}"
        exported(table_run, "--format", "cleanlab", "--out", out)
        assert labels_of(Request(data, labels=out)) == own
        corrected = Request(data, labels=out, label_column="corrected_label")
        assert labels_of(corrected) == changed(table_run)


def test_what_cleanlab_writes_is_read(tmp_path: Path) -> None:
    from cleanlab.classification import CleanLearning  # type: ignore[import-untyped]
    from sklearn.linear_model import LogisticRegression

    x, true, given = features()
    frame = CleanLearning(LogisticRegression(), cv_n_folds=3).find_label_issues(x, given)
    assert frame["is_label_issue"].sum() >= 10
    np.savez(tmp_path / "d.npz", x=x, y=true)
    for path in (tmp_path / "issues.csv", tmp_path / "issues.parquet"):
        frame.to_csv(path) if path.suffix == ".csv" else frame.to_parquet(path)
        data = open_data(Request(str(tmp_path / "d.npz"), labels=path))
        assert data.train.labels.tolist() == given.tolist()
        asked = Request(str(tmp_path / "d.npz"), labels=path, label_column="predicted_label")
        assert open_data(asked).train.labels.tolist() == frame["predicted_label"].tolist()
    both = pd.concat([pd.DataFrame(x, columns=["a", "b", "c"]), frame], axis=1)
    both.to_csv(tmp_path / "both.csv", index=False)
    data = open_data(Request(str(tmp_path / "both.csv")))
    assert data.train.labels.tolist() == given.tolist()
    assert isinstance(data.train.inputs, Features)
    assert data.train.inputs.columns == ("a", "b", "c")


def test_a_text_table_on_the_screen(
    table_run: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    exported(table_run, "--min-confidence", "0.5", "--only-suspects")
    frame = pd.read_csv(io.BytesIO(capsysbinary.readouterr().out))
    columns = ["id", "label", "given_label", "is_suspect", "action", "quality", "confidence"]
    assert list(frame)[:7] == columns
    assert frame["reviewed"].isna().all()
    assert frame["is_suspect"].all()
    sure = frame["confidence"] >= 0.5
    assert (frame["label"] != frame["given_label"]).eq(sure).all()
    assert frame["id"].str.startswith("'@row ").all()


@pytest.mark.parametrize("kind", ["npz", "parquet"])
def test_bytes_go_to_a_pipe(
    table_run: Path, capsysbinary: pytest.CaptureFixture[bytes], kind: str
) -> None:
    exported(table_run, "--format", kind)
    content = io.BytesIO(capsysbinary.readouterr().out)
    if kind == "npz":
        assert len(np.load(content, allow_pickle=False)["labels"]) == 108
    else:
        assert pq.read_table(content).num_rows == 108


def test_a_summary_as_json(
    table_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, copy = tmp_path / "l.npz", tmp_path / "copy.csv"
    exported(table_run, "--out", out, "--copy", copy, "--json")
    printed = capsys.readouterr()
    answer = json.loads(printed.out)
    own, new = labels_of(Request(str(table_run.parent / "d.csv"))), changed(table_run)
    many = sum(own[name] != new[name] for name in own)
    every = sum(own[name] != label for name, label in suggested(table_run).items())
    assert 0 < many < every
    (note,) = answer.pop("notes")
    assert note.startswith(f'{many} labels in the column "label" were changed')
    audit = json.loads((table_run / "audit.json").read_text())
    assert answer.pop("warnings") == audit["warnings"]
    assert f"{many} of 108 labels were changed, and {every - many} suspect" in (printed.err)
    assert str(table_run.parent / "d.csv") in note
    assert answer == {
        "run": str(table_run),
        "examples": 108,
        "suspects": every,
        "corrections": many,
        "left": every - many,
        "reviewed": 0,
        "written": {"copy": str(copy), "out": str(out)},
    }


def test_a_corrected_copy_of_their_table(table_run: Path, tmp_path: Path) -> None:
    source, copy = table_run.parent / "d.csv", tmp_path / "copy.csv"
    exported(table_run, "--copy", copy)
    with source.open(newline="", encoding="utf-8") as file:
        old = list(csv.reader(file))
    with copy.open(newline="", encoding="utf-8") as file:
        new = list(csv.reader(file))
    assert new[0] == [*old[0], "label_before"]
    better, seen = changed(table_run), 0
    for before, after in zip(old[1:], new[1:], strict=True):
        assert [*after[:4], after[5]] == [*before[:4], before[5]]
        assert after[4] == better.get(before[0], before[4])  # test rows as they were
        assert after[6].removeprefix("'") == before[4]
        seen += before[0] in better
    assert seen == len(better) == 108
    data = open_data(Request(str(copy)))
    assert {
        name: data.names[k] for name, k in zip(data.train.ids, data.train.labels, strict=True)
    } == better
    assert isinstance(data.train.inputs, Features)
    assert data.train.inputs.columns == ("a", "b", "c")
    assert data.test is not None


def test_columns_that_are_ignored_stay_in_the_copy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, run, copy = tmp_path / "d.csv", tmp_path / "run", tmp_path / "copy.csv"
    plain = write_table(source).read_text(encoding="utf-8").splitlines()
    wide = [line + ("," + "town,note" if k == 0 else f",Bonn,n{k}") for k, line in enumerate(plain)]
    source.write_text("\n".join(wide) + "\n", encoding="utf-8")
    options = ("--data", source, "--ignore-column", "town", "--ignore-column", "note")
    train(*options, "--out", run)
    assert read_toml(run / "config.toml")["ignore_column"] == ["town", "note"]
    assert command(["audit", str(run), "--folds", "2"]) == 0
    exported(run, "--copy", copy)
    made = copy.read_text(encoding="utf-8").splitlines()
    assert made[0] == wide[0] + ",label_before"
    assert all(f",Bonn,n{k}," in line for k, line in enumerate(made) if k)
    capsys.readouterr()
    (run / "summary.json").unlink()
    assert command(["train", *map(str, options), "--out", str(run), "--resume"]) == 0
    (run / "summary.json").unlink()
    capsys.readouterr()
    again = ("--data", source, "--ignore-column", "town", "note", "a")
    assert command(["train", *map(str, again), "--out", str(run), "--resume"]) == 2
    assert "ignore_column (town, note there, town, note, a now)" in capsys.readouterr().err


def test_a_copy_of_a_parquet_table(tmp_path: Path) -> None:
    x, _, given = features()
    frame = pd.DataFrame(x, columns=["a", "b", "c"]).assign(y=given.astype(np.int16))
    frame.to_parquet(tmp_path / "d.parquet")
    train("--data", tmp_path / "d.parquet", "--trusted", "0.2", "--out", tmp_path / "run")
    exported(tmp_path / "run", "--copy", tmp_path / "copy.parquet")
    made = pd.read_parquet(tmp_path / "copy.parquet")
    pd.testing.assert_frame_equal(made[["a", "b", "c"]], frame[["a", "b", "c"]])
    assert made["y"].dtype == made["label_before"].dtype == np.int16
    assert made["label_before"].tolist() == given.tolist()
    expected = given.astype(str).astype(object)
    better = changed(tmp_path / "run")
    assert len(better) == 96
    for row, name in better.items():  # rows that were set aside stay as they are
        expected[int(row)] = name
    assert made["y"].tolist() == [int(name) for name in expected]


def test_a_copy_of_the_table_beside_the_data(image_run: Path, tmp_path: Path) -> None:
    photos = image_run.parent / "photos"
    labels = tmp_path / "l.csv"
    ids = sorted(str(p.relative_to(photos)) for p in photos.glob("*/*"))
    lines = [f"{name},{0 if name.startswith('dark') else 1},x" for name in ids]
    labels.write_text("\n".join(["file,truth,more", *lines]))
    options = ("--labels", labels, "--label-column", "truth", "--image-size", 8)
    train("--data", photos, *options, "--out", tmp_path / "run")
    exported(tmp_path / "run", "--copy", tmp_path / "copy.csv")
    better = changed(tmp_path / "run")
    assert set(better.values()) == {"dark", "light"}
    number = {name: 0 if better[name] == "dark" else 1 for name in ids}
    assert (tmp_path / "copy.csv").read_text().splitlines() == [
        "file,truth,more,label_before",
        *(f"{name},{number[name]},x,{int(name.startswith('light'))}" for name in ids),
    ]


def test_folders_of_links(image_run: Path, tmp_path: Path) -> None:
    exported(image_run, "--links", tmp_path / "links")
    photos = image_run.parent / "photos"
    expected = {
        f"{label}/{name.replace('/', '__')}": photos / name
        for name, label in changed(image_run).items()
    }
    made = {str(p.relative_to(tmp_path / "links")): p for p in (tmp_path / "links").glob("*/*")}
    assert made.keys() == expected.keys()
    assert len(made) == 36
    assert all(made[name].samefile(expected[name]) for name in made)


def test_hard_links_can_be_learned_from(image_run: Path, tmp_path: Path) -> None:
    exported(image_run, "--links", tmp_path / "links", "--link", "hard")
    own = labels_of(Request(str(tmp_path / "links")))
    assert sorted(own.values()) == sorted(changed(image_run).values())


def test_suspects_alone_as_links(image_run: Path, tmp_path: Path) -> None:
    exported(image_run, "--links", tmp_path / "links", "--only-suspects")
    examples = proselflc.load_run(image_run).examples
    chosen = examples.filter(examples["is_suspect"])["id"].to_pylist()
    assert sorted(p.name for p in (tmp_path / "links").glob("*/*")) == sorted(
        name.replace("/", "__") for name in chosen
    )


def test_from_python(table_run: Path) -> None:
    assert corrected_labels(str(table_run)) == list(changed(table_run).values())
    frame = find_label_issues(table_run)
    assert frame["id"].tolist() == list(changed(table_run))


def test_predictions_are_neutralised_too(
    table_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, out = str(table_run.parent / "d.csv"), tmp_path / "p.tsv"
    assert command(["predict", str(table_run), "--data", data]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert len(rows) == 12
    assert all(row["id"].startswith("'@row ") for row in rows)
    assert {row["given_label"] for row in rows} == {"'=1", "-1", 'a "b", c'}
    assert command(["predict", str(table_run), "--data", data, "--out", str(out)]) == 0
    assert list(csv.DictReader(io.StringIO(out.read_text()), delimiter="\t")) == rows


def test_nothing_is_replaced_unasked(
    table_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "l.csv"
    out.write_text("mine")
    assert "exists: choose another name or pass --overwrite" in refused(
        [table_run, "--out", out], capsys
    )
    assert "exists: choose" in refused([table_run, "--copy", out], capsys)
    assert out.read_text() == "mine"
    exported(table_run, "--out", out, "--overwrite")
    assert out.read_text().startswith("id,label,")


def test_options_that_do_not_go_together(
    table_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for options, sentence in (
        (["--out", tmp_path / "x.txt"], '--out must end in .csv, .tsv, .parquet, .pq, .npz, got "'),
        (["--format", "npz", "--out", tmp_path / "x.csv"], '--out must end in .npz, got "x.csv"'),
        (["--out", tmp_path / "no" / "x.csv"], "there is no folder"),
        (["--copy", tmp_path / "x.parquet"], "must be a .csv file too, but --copy is"),
        (["--copy", tmp_path / "x.csv", "--only-suspects"], "--only-suspects is not possible"),
        (["--copy", tmp_path / "x.csv", "--soft"], "--soft adds distributions to a file"),
        (["--copy", tmp_path / "x.csv", "--format", "npz"], "--format npz is the format of a file"),
        (["--format", "cleanlab", "--soft"], "--soft is not possible with --format cleanlab"),
        (["--min-confidence", "90"], "--min-confidence must be from 0 to 1, got 90.0"),
        (["--suspects", "--reviewed"], "all suspects, but --reviewed follows fewer: give one"),
        (["--suspects", "--min-confidence", "0.5"], "but --min-confidence 0.5 follows fewer"),
        (["--link", "hard"], "--link hard needs a folder"),
        (["--data", "x"], "--data is only used by --copy and --links"),
        (["--links", tmp_path / "x"], "the data of"),
    ):
        assert sentence in refused([table_run, *options], capsys)
    assert list(tmp_path.iterdir()) == []
    source = table_run.parent / "d.csv"
    assert "is the original: name" in refused([table_run, "--copy", source, "--overwrite"], capsys)


def test_runs_that_cannot_be_exported(
    table_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], resealed: Any
) -> None:
    assert "there is no run" in refused([tmp_path / "none"], capsys)
    assert "is not a run: it has no config.toml that a run" in refused([tmp_path], capsys)
    for change, sentence in (
        (lambda run: (run / "summary.json").unlink(), "is not finished"),
        (lambda run: (run / "examples.parquet").unlink(), "has no examples.parquet"),
        (lambda run: os.truncate(run / "examples.parquet", 300), "cannot read the Parquet file"),
        (lambda run: (run / "labels.npz").write_bytes(b""), "is not an .npz file or is damaged"),
    ):
        shutil.copytree(table_run, tmp_path / "run")
        change(tmp_path / "run")
        resealed(tmp_path / "run")
        assert sentence in refused([tmp_path / "run", "--out", tmp_path / "l.npz"], capsys)
        assert not (tmp_path / "l.npz").exists()
        shutil.rmtree(tmp_path / "run")


def test_a_table_that_has_moved_or_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, run, copy = tmp_path / "d.csv", tmp_path / "run", tmp_path / "copy.csv"
    train("--data", write_table(source, ids=False), "--out", run)
    lines = source.read_text().splitlines()
    assert lines[1].split(",")[3:] != lines[2].split(",")[3:]
    source.write_text("\n".join([lines[0], lines[2], lines[1], *lines[3:]]))
    said = refused([run, "--copy", copy], capsys)
    assert "2 of 108 labels differ, the first in line 2, " in said
    source.write_text("\n".join(lines[:-30]))
    said = refused([run, "--copy", copy], capsys)
    assert 'has changed since training: 27 of 108 examples are missing, the first is "90"' in said
    source.unlink()
    said = refused([run, "--copy", copy], capsys)
    assert f"{source}, does not exist" in said
    write_table(tmp_path / "moved.csv", ids=False)
    exported(run, "--copy", copy, "--data", tmp_path / "moved.csv")
    assert copy.read_text().startswith("a,b,c,label,split,label_before\n")


def test_runs_without_a_table_to_copy(
    image_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "copy.csv"
    assert "which is not a table" in refused([image_run, "--copy", copy], capsys)
    inside = image_run.parent / "photos" / "links"
    assert "would be read as a class" in refused([image_run, "--links", inside], capsys)
    x, _, given = features()
    proselflc.fit(x, given, epochs=15, out=tmp_path / "python")
    said = refused([tmp_path / "python", "--copy", copy], capsys)
    assert (
        "given in Python, so there is no table to copy: write the labels to a file with --out"
        in said
    )
    source = write_table(tmp_path / "d.csv")
    train("--data", source, "--noise", "pair:0.2", "--out", tmp_path / "noisy")
    said = refused([tmp_path / "noisy", "--copy", copy], capsys)
    assert "were corrupted on purpose (--noise pairflip:0.2)" in said


def test_a_place_that_cannot_be_written(
    table_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "folder.csv").mkdir()
    said = refused([table_run, "--out", tmp_path / "folder.csv", "--overwrite"], capsys)
    assert said.startswith(f"cannot write {tmp_path / 'folder.csv'}")
    assert [path.name for path in tmp_path.iterdir()] == ["folder.csv"]


def test_what_people_decide_is_in_every_export_and_learned(table_run: Path, tmp_path: Path) -> None:
    run = shutil.copytree(table_run, tmp_path / "run")
    loaded = proselflc.load_run(run)
    table = loaded.examples
    rows = table.filter(table["is_suspect"]).to_pylist()
    wanted = [  # the first is kept, the second accepted, of the third nobody can tell
        DecisionChange(rows[0]["id"], rows[0]["given_label"], 0),
        DecisionChange(rows[1]["id"], rows[1]["suggested_label"], 0),
        DecisionChange(rows[2]["id"], None, 0),
    ]
    loaded.decisions.add(wanted, "anna", "1")
    data = str(table_run.parent / "d.csv")
    own = labels_of(Request(data))
    accepted = {rows[1]["id"]: rows[1]["suggested_label"]}
    decided = {**own, **accepted}
    by_people = {rows[0]["id"]: rows[0]["given_label"], **accepted}
    everything = {**changed(run), **by_people}
    assert decided != own
    least = sorted(row["p_suggested"] for row in rows[3:])[-1]
    sure = {r["id"]: r["suggested_label"] for r in rows[2:] if r["p_suggested"] >= least}
    for options, expected in (
        ((), everything),
        (("--suspects",), {**suggested(run), **by_people}),
        (("--reviewed",), decided),
        (("--reviewed", "--min-confidence", least), {**decided, **sure}),
    ):
        out, copy = tmp_path / "labels.csv", tmp_path / "copy.csv"
        exported(run, "--out", out, "--copy", copy, "--overwrite", *options)
        assert labels_of(Request(data, labels=out)) == expected
        assert labels_of(Request(str(copy))) == expected
        asked = Request(
            data,
            labels=run,
            reviewed="--reviewed" in options,
            suspects="--suspects" in options,
            min_confidence=least if len(options) > 1 else None,
        )
        assert labels_of(asked) == expected
    train("--data", data, "--labels", run, "--reviewed", "--out", tmp_path / "again")
    again = proselflc.load_run(tmp_path / "again")
    learned = [again.labels.names[k] for k in again.labels.given]
    assert dict(zip(again.labels.ids, learned, strict=True)) == decided
    assert again.config["reviewed"] is True


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--reviewed",), "--reviewed chooses among the labels of a run"),
        (("--suspects",), "--suspects chooses among the labels of a run"),
        (("--force",), "--force chooses among the labels of a run"),
        (("--suspects", "--reviewed", "--labels", "RUN"), "--suspects follows all suspects, but"),
        (("--min-confidence", "0.5"), "--min-confidence chooses among the labels of a run"),
        (
            ("--min-confidence", "2", "--labels", "RUN"),
            "must be from 0 to 1, got 2",
        ),
    ],
)
def test_options_that_choose_need_a_run(
    table_run: Path, capfd: pytest.CaptureFixture[str], options: tuple[str, ...], sentence: str
) -> None:
    flags = [str(table_run) if one == "RUN" else one for one in options]
    data = str(table_run.parent / "d.csv")
    assert command(["train", "--data", data, "--epochs", "1", *flags]) == 2
    assert sentence in capfd.readouterr().err


def test_training_says_what_it_changes(
    table_run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    data, labels = str(table_run.parent / "d.csv"), suggested(table_run)
    given, sure = labels_of(Request(data)), changed(table_run)
    many, every = (sum(given[k] != new[k] for k in new) for new in (sure, labels))
    options = ("--data", data, "--labels", str(table_run), "--model", "mlp", "--epochs", "3")
    assert command(["train", *options, "--out", str(tmp_path / "a")]) == 0
    said = capfd.readouterr().err
    left = f"{every - many} suspect{'s were' if every - many > 1 else ' was'} left for review"
    assert f"note: {many} labels are changed as {table_run} suggests; {left}\n" in said
    assert command(["train", *options, "--out", str(tmp_path / "b"), "--suspects"]) == 0
    said = capfd.readouterr().err
    assert f"note: {every} labels are changed as {table_run} suggests\n" in said
    assert "note: all suspects are followed" in said
    assert f"of the {every} changed labels are right as given" in said
    assert read_toml(tmp_path / "b" / "config.toml")["suspects"] is True
    again = proselflc.load_run(tmp_path / "b").labels
    assert [again.names[k] for k in again.given] == list(labels.values())


def test_a_run_that_is_too_short_to_correct_labels(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, run = write_table(tmp_path / "d.csv"), tmp_path / "run"
    short = ("--model", "mlp", "--epochs", "1", "--quiet")
    assert command(["train", "--data", str(source), "--out", str(run), *short, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    audit = json.loads((run / "audit.json").read_text())
    assert printed["warnings"] == audit["warnings"]
    assert printed["warnings"][0]["code"] == "barely_learned"
    reason = f"the audit of {run} corrects no label, because the model fits only "
    for options in ((), ("--out", tmp_path / "l.csv"), ("--copy", tmp_path / "c.csv", "--json")):
        said = refused([run, *options], capsys)
        assert said.startswith(reason)
        assert said.endswith("pass --force to use its labels as given\n")
    assert not (tmp_path / "l.csv").exists()
    exported(run, "--out", tmp_path / "l.csv", "--force", "--json")
    answer = json.loads(capsys.readouterr().out)
    assert (answer["corrections"], answer["suspects"], answer["left"]) == (0, 0, 0)
    assert answer["warnings"][0]["code"] == "barely_learned"
    exported(run, "--out", tmp_path / "again.csv", "--force")
    said = capsys.readouterr().err
    assert said == "0 of 108 labels were changed; the audit calls none suspect.\n"
    own = labels_of(Request(str(source)))
    assert labels_of(Request(str(source), labels=tmp_path / "l.csv")) == own
    again = ["train", "--data", str(source), "--labels", str(run), *short]
    assert command([*again, "--out", str(tmp_path / "again")]) == 2
    assert capsys.readouterr().err.startswith(reason)
    assert not (tmp_path / "again").exists()
    assert command([*again, "--out", str(tmp_path / "again"), "--reviewed"]) == 2
    assert command([*again, "--out", str(tmp_path / "again"), "--force"]) == 0
    loaded = proselflc.load_run(run)
    name, label = next(iter(own.items()))
    other = next(one for one in NAMES if one != label)
    loaded.decisions.add([DecisionChange(name, other, 0)], "anna", "1")
    exported(run, "--out", tmp_path / "r.csv", "--reviewed")
    found = labels_of(Request(str(source), labels=tmp_path / "r.csv"))
    assert found == {**own, name: other}
    assert command([*again, "--out", str(tmp_path / "reviewed"), "--reviewed"]) == 0
