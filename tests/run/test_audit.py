"""`proselflc audit`: what is computed anew, what is said, what is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

import proselflc
from proselflc.auditing.audit import OLDER, Audit
from proselflc.auditing.caveats import AuditWarning
from proselflc.auditing.judge import Judge
from proselflc.cli import app as cli
from proselflc.errors import InputError
from proselflc.pages.values import format_chance, share_in_words
from proselflc.run import audit as auditing
from proselflc.run import audit_words
from proselflc.run.reader import Run, load_run
from proselflc.training.run_directory import RunDirectory

MADE = ("examples.parquet", "audit.json", "audit.npz", "witness.npz", "summary.json")
ABOUT_LABELS = (
    *("label_accuracy_before", "label_accuracy_after", "detection"),
    *("estimated_noise_rate", "realised_noise_rate", "noise_low", "noise_high"),
    *("expected_precision", "warnings", "label_accuracy_after_suspects", "suspects", "changes"),
    "judge",
)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory, program: Any) -> Path:
    """A run on noisy digits."""
    out = tmp_path_factory.mktemp("auditing") / "run"
    program(
        *("train", "--data", "digits", "--noise", "pair:0.4", "--model", "mlp", "--quiet"),
        *("--epochs", 8, "--batch-size", 64, "--out", out),
    )
    return out


@pytest.fixture
def run(original: Path, tmp_path: Path) -> Path:
    """A copy to spoil."""
    return Path(shutil.copytree(original, tmp_path / "run"))


def summary(run: Path) -> Any:
    return json.loads((run / "summary.json").read_text())


def test_an_audit_of_what_training_has_seen_changes_nothing(run: Path, program: Any) -> None:
    before = {name: (run / name).read_bytes() for name in MADE}
    program("audit", run)
    assert {name: (run / name).read_bytes() for name in MADE} == before


def test_what_is_lost_comes_back(run: Path, original: Path, resealed: Any) -> None:
    for name in MADE[:3]:
        (run / name).unlink()
    numbers = {key: value for key, value in summary(run).items() if key not in ABOUT_LABELS}
    (run / "summary.json").write_text(json.dumps(numbers))
    resealed(run)
    auditing.audit(run)
    for name in MADE[:-1]:
        assert (run / name).read_bytes() == (original / name).read_bytes(), name
    assert summary(run) == summary(original)


def test_folds_change_everything_about_the_labels_and_nothing_else(
    run: Path, original: Path, program: Any
) -> None:
    found = json.loads(program("audit", run, "--folds", 2, "--json").stdout)
    assert found["folds"] == 2
    assert found["estimated_noise_rate"] == summary(run)["estimated_noise_rate"]
    before, after = summary(original), summary(run)
    differs = {key: before.pop(key) != after.pop(key) for key in ABOUT_LABELS}
    # At the end of what the witness allows the other estimates may be the same.
    for key in ("label_accuracy_before", "realised_noise_rate", "noise_low"):
        assert not differs[key], key
    for key in ("label_accuracy_after", "detection"):
        assert differs[key], key
    assert before == after
    examples = pq.read_table(run / "examples.parquet").to_pandas()
    assert (examples.is_suspect == (examples.suggested_label != examples.given_label)).all()
    assert examples.is_suspect.sum() == found["suspects"] == load_run(run).audit.suspects
    after_all = (examples.suggested_label == examples.clean_label).mean()
    assert summary(run)["label_accuracy_after_suspects"] == pytest.approx(after_all)
    labels = examples.suggested_label.where(examples.action == "change", examples.given_label)
    after_changes = (labels == examples.clean_label).mean()
    assert summary(run)["label_accuracy_after"] == pytest.approx(after_changes)
    program("audit", run, "--folds", 0)
    assert (run / "examples.parquet").read_bytes() == (original / "examples.parquet").read_bytes()
    assert (run / "witness.npz").read_bytes() == (original / "witness.npz").read_bytes()


def test_json_has_the_worst(run: Path, program: Any) -> None:
    done = program("audit", run, "--worst", 4, "--json")
    warned = load_run(run).audit.warnings
    assert done.stderr.splitlines() == [f"Caution: {one.about(run)}." for one in warned]
    found = json.loads(done.stdout)
    examples = pq.read_table(run / "examples.parquet").to_pandas()
    worst = examples[examples.is_suspect].sort_values(["quality", "index"])[:4]
    assert found["run"] == str(run)
    assert [one["id"] for one in found["worst"]] == worst.id.tolist()
    assert [one["index"] for one in found["worst"]] == worst["index"].tolist()
    assert [one["given_label"] for one in found["worst"]] == worst.given_label.tolist()
    assert [one["suggested_label"] for one in found["worst"]] == worst.suggested_label.tolist()
    np.testing.assert_allclose([one["quality"] for one in found["worst"]], worst.quality)
    for key, value in json.loads((run / "audit.json").read_text()).items():
        assert found[key] == value


def test_in_words(run: Path, program: Any) -> None:
    done = program("audit", run, "--worst", 3)
    assert done.stderr == ""
    found = load_run(run).audit
    examples = pq.read_table(run / "examples.parquet").to_pandas()
    worst = examples[examples.is_suspect].sort_values(["quality", "index"])[:3]
    lines = done.stdout.splitlines()
    share = found.suspects / 1297
    assert lines[0] == (
        f"{found.suspects:,} of 1,297 labels are suspect ({share:.1%}), {found.changes:,} of them "
        f"sure enough to be changed; about {found.estimated_noise_rate:.1%} are estimated to be "
        "wrong "
        f"({found.noise_low:.1%} to {found.noise_high:.1%}), {found.realised_noise_rate:.1%} "
        "really are."
    )
    assert (examples.action == "change").sum() == found.changes
    assert found.judge is not None
    if found.expected_precision is not None:
        words = share_in_words(found.expected_precision).capitalize()
        assert lines.pop(1) == f"{words} suspects should really be wrong."
    assert lines[1] == (
        "A second opinion (image patches) that did not see the labels is right for "
        f"about {found.judge.accuracy:.0%} of the examples."
    )
    cautions = [line for line in lines if line.startswith("Caution: ")]
    assert cautions == [f"Caution: {one.about(run)}." for one in found.warnings]
    start = lines.index("The 3 least likely to be right:") + 2
    for line, row in zip(lines[start : start + 3], worst.itertuples(), strict=True):
        cells = [row.id, row.given_label, "→", row.suggested_label, format_chance(row.quality)]
        assert line.split() == cells
    assert f"proselflc report {run}" in done.stdout
    assert f"proselflc export {run} --out labels.csv" in done.stdout
    assert "least likely" not in program("audit", run, "--worst", 0).stdout


def audited(**changes: Any) -> Audit:
    """Of 20 labels: 5 cats are called dogs, 1 dog a cat, and fewer than half a fox a dog."""
    found = Audit(
        num_examples=20,
        suspects=6,
        folds=None,
        estimated_noise_rate=0.32,
        realised_noise_rate=None,
        expected_precision=0.83,
        names=("cat", "dog", "fox"),
        joint=np.array([[6, 5, 0], [1, 5, 0], [0, 0.4, 2.6]]),
        realised=None,
        changes=4,
        noise_low=0.28,
        noise_high=0.36,
        judge=Judge("standardised columns", 0.914, 0.87, 0.9, 0.8),
    )
    return replace(found, **changes)


def suspect(name: str, given: str, suggested: str) -> pa.Table:
    columns = {
        "index": [0],
        "id": [name],
        "given_label": [given],
        "suggested_label": [suggested],
        "is_suspect": [True],
        "quality": pa.array([0.25], pa.float32()),
        "p_suggested": pa.array([0.5], pa.float32()),
    }
    return pa.table(columns)


def test_one_suspect_is_one() -> None:
    found, table = audited(suspects=1, num_examples=300, changes=0), suspect("x", "a", "b")
    text = auditing.describe(Run(Path("a")), found, table, 0)
    assert text.startswith("1 of 300 labels is suspect (0.3%); ")
    assert "in 10 suspects" not in text


def test_what_is_said_of_an_audit() -> None:
    table = suspect("one", "dog", "cat")
    text = auditing.describe(Run(Path("my runs/a")), audited(), table, 10)
    assert text == (
        "6 of 20 labels are suspect (30.0%), 4 of them sure enough to be changed; about 32.0% are "
        "estimated to be wrong (28.0% to 36.0%).\n"
        "About 8 in 10 suspects should really be wrong.\n"
        "A second opinion (standardised columns) that did not see the labels is "
        "right for about 91% of the examples.\n"
        "\n"
        "Most frequent suspects (given → suggested):\n"
        "  dog → cat  1\n"
        "\n"
        "The suspect:\n"
        "  id   given → suggested  quality\n"
        "  one  dog → cat          25%\n"
        "\n"
        "Every label is in my runs/a/examples.parquet. Next:\n"
        "  proselflc report 'my runs/a'                   # a page about them\n"
        "  proselflc review 'my runs/a'                   # review them with the keyboard\n"
        "  proselflc export 'my runs/a' --out labels.csv  # the corrected labels\n"
    )


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ('data = "a/patients.CSV"', "--copy corrected.csv"),
        ('data = "a/patients.csv.GZ"', "--copy corrected.csv.gz"),
        ('data = "patients.jsonl"', "--copy corrected.jsonl"),
        ('data = "patients.xlsx"', "--copy corrected.xlsx"),
        ('data = "patients.parquet"', "--copy corrected.parquet"),
        ('data = "photos"\nlabels = "given.tsv"', "--copy corrected.tsv"),
        ('data = "patients.csv"\nlabels = "runs/a"\nreviewed = true', "--copy corrected.csv"),
        ('data = "patients.csv"\nnoise = "pairflip:0.2"', "--out labels.csv"),
        ('data = "digits"', "--out labels.csv"),
    ],
)
def test_a_table_is_to_be_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: str, words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.toml").write_text(config)
    text = auditing.describe(Run(tmp_path), audited(), suspect("one", "dog", "cat"), 1)
    assert f"proselflc export {tmp_path} {words}  # the corrected labels\n" in text


def test_images_are_to_be_sorted_into_folders_and_the_advice_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reviewable: Callable[..., Path]
) -> None:
    monkeypatch.chdir(tmp_path)
    for k in range(12):
        file = Path(f"my photos/{('cat', 'dog', 'fox')[k % 3]}/{k:02}.png")
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (2, 2)).save(file)
    ids = [f"{('cat', 'dog', 'fox')[k % 3]}/{k:02}.png" for k in range(12)]
    run = Run(reviewable(Path(), "a", ids=ids, data="my photos"))
    for folder in ("sorted", "sorted-2"):  # the second time the first is there
        text = auditing.describe(run, run.audit, run.examples, 1)
        advice = f"proselflc export a --links {folder}"
        assert f"{advice}  # the corrected labels\n" in text
        assert cli.run(advice.split()[1:]) == 0
        assert len(list(Path(folder).glob("*/*.png"))) == 12
    monkeypatch.chdir("my photos")
    run = Run(Path("../a"))
    assert "--out labels.csv" in auditing.describe(run, run.audit, run.examples, 1)


def test_what_is_said_of_a_run_that_was_too_short() -> None:
    warning = AuditWarning("few_epochs", "the model was trained for 1 epoch, so none is suspect")
    found = audited(suspects=0, changes=0, expected_precision=None, warnings=(warning,))
    text = auditing.describe(Run(Path("a")), found, suspect("one", "dog", "cat").slice(0, 0), 10)
    assert text.startswith("No label is called suspect; how many are wrong is not known.\n")
    assert f"\n\nCaution: {warning.message}.\n\nEvery label is in" in text
    assert text.endswith("Next:\n  proselflc report a  # a page about them\n")


def test_nothing_is_offered_that_a_warning_advises_against() -> None:
    """Without sure changes no corrected labels; with an unsure rate a review that measures it."""
    wide = AuditWarning("wide_range", "the estimates differ")
    table = suspect("one", "dog", "cat")
    text = auditing.describe(Run(Path("a")), audited(changes=0, warnings=(wide,)), table, 1)
    assert "sure enough" not in text
    assert text.endswith(
        "  proselflc report a              # a page about them\n"
        "  proselflc review a --sample 30  # measure the share of wrong ones\n"
        "  proselflc review a              # review them with the keyboard\n"
    )


def test_an_audit_of_an_older_version_has_no_range() -> None:
    older = audited(changes=None, noise_low=None, noise_high=None, judge=None, warnings=(OLDER,))
    text = auditing.describe(Run(Path("a")), older, suspect("one", "dog", "cat"), 1)
    assert text.startswith(
        "6 of 20 labels are suspect (30.0%); about 32.0% are estimated to be wrong.\n"
    )
    assert "\n\nCaution: an older version made this audit" in text
    assert "Second opinion" not in text
    assert "proselflc export" not in text


def test_what_is_said_where_nothing_is_wrong() -> None:
    judge = Judge("4 folds", 0.914, 0.87, 0.9, 0.8)
    nothing = audited(
        suspects=0,
        changes=0,
        expected_precision=None,
        estimated_noise_rate=0.0,
        noise_low=0.0,
        noise_high=0.013,
        folds=4,
        judge=judge,
    )
    table = suspect("one", "dog", "cat").slice(0, 0)
    text = auditing.describe(Run(Path("a")), nothing, table, 10)
    assert text.startswith(
        "None of 20 labels is suspect; about 0.0% are estimated to be wrong (0.0% to 1.3%).\n"
        "A second opinion (4 folds) that did not see the labels is right for about "
        "91% of the examples.\n"
        "Each was assessed by one of 4 models that had not seen it.\n\nEvery label"
    )
    assert "Most frequent" not in text
    assert text.endswith("Next:\n  proselflc report a  # a page about them\n")


@pytest.mark.parametrize(
    ("precision", "words"),
    [(0.97, "Nearly all"), (0.5, "About 5 in 10"), (0.06, "About 1 in 10"), (0.04, "Hardly any")],
)
def test_the_precision_in_words(precision: float, words: str) -> None:
    table = suspect("one", "dog", "cat")
    text = auditing.describe(Run(Path("a")), audited(expected_precision=precision), table, 0)
    assert f"\n{words}" in text


def test_names_from_strangers_are_shown_and_shortened() -> None:
    evil = "\x1b[31m\n" + "x" * 100
    judge, warning = Judge(evil, 0.9, 0.9, 0.9, 0.9), AuditWarning("odd", "\x1b[31m\nodd")
    found = audited(names=(evil, "dog", "fox"), judge=judge, warnings=(warning,))
    text = auditing.describe(Run(Path("a\x07")), found, suspect(evil, "dog", evil), 1)
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "\\x1b[31m\\n" in text
    assert "\nCaution: \\x1b[31m\\nodd.\n" in text
    assert max(len(line) for line in text.splitlines()) < 140
    assert text.count("…") == 4


def test_most_frequent_pairs(fabricate: Callable[..., Path]) -> None:
    table = Run(fabricate(n=12, suspects=5)).examples
    found = [tuple(one.values()) for one in auditing.pairs(table)]
    assert found == [("cat", "dog", 2), ("dog", "fox", 2), ("fox", "cat", 1)]
    assert len(auditing.pairs(table, 1)) == 1
    assert auditing.pairs(table.slice(6)) == []


def test_the_words_count_the_suspects_that_the_page_shows(run: Path, program: Any) -> None:
    examples = pq.read_table(run / "examples.parquet").to_pandas()
    suspects = examples[examples.is_suspect]
    counted = suspects.groupby(["given_label", "suggested_label"]).size()
    lines = program("audit", run).stdout.splitlines()
    start = lines.index("Most frequent suspects (given → suggested):") + 1
    for line in lines[start : start + audit_words.PAIRS]:
        given, _, suggested, count = line.split()
        assert counted[given, suggested] == int(count)
    assert int(lines[start].split()[-1]) == counted.max()
    listed = json.loads(program("audit", run, "--json").stdout)["pairs"]
    assert [one["count"] for one in listed] == sorted(counted, reverse=True)[: audit_words.PAIRS]


def test_a_run_that_is_in_memory_reads_its_files_anew(run: Path, resealed: Any) -> None:
    one = load_run(run)
    before = (one.audit, one.examples, one.summary)
    (run / "dynamics" / "epoch-00007.npy").unlink()
    resealed(run)
    found = auditing.audit(one)
    assert not one.examples["quality"].equals(before[1]["quality"])
    assert one.summary["detection"] != before[2]["detection"]
    assert one.audit is not before[0]
    assert one.audit.suspects == found.suspects == int(one.examples["is_suspect"].to_numpy().sum())


def lose_dynamics(run: Path) -> None:
    shutil.rmtree(run / "dynamics")


def lose_an_epoch(run: Path) -> None:
    (run / "dynamics" / "epoch-00003.npy").unlink()


def cut_an_epoch(run: Path) -> None:
    path = run / "dynamics" / "epoch-00003.npy"
    path.write_bytes(path.read_bytes()[:500])


def take_other_records(run: Path) -> None:
    path = run / "dynamics" / "epoch-00003.npy"
    np.save(path, np.load(path)[:-1])


def take_other_labels(run: Path) -> None:
    other = run.parent / "other"
    proselflc.fit(np.eye(4), [0, 1, 0, 1], epochs=1, out=other)
    shutil.copy(other / "labels.npz", run)


def damage_labels(run: Path) -> None:
    (run / "labels.npz").write_bytes(b"PK")


def damage_summary(run: Path) -> None:
    (run / "summary.json").write_text("{")


def unfinish(run: Path) -> None:
    (run / "summary.json").unlink()


def come_from_the_future(run: Path) -> None:
    path = run / "config.toml"
    path.write_text(path.read_text().replace("format = 2", "format = 3"))


def fold_other_labels(run: Path) -> None:
    (run / "folds").mkdir()
    facts = {"folds": 2, "fingerprint": "0", "seed": 0}
    (run / "folds" / "folds.json").write_text(json.dumps(facts))


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lose_dynamics, "has no dynamics, which an audit needs: train it again"),
        (lose_an_epoch, "has no record of epoch 3"),
        (cut_an_epoch, "cannot read"),
        (take_other_records, "it belongs to another run"),
        (take_other_labels, "their fingerprints differ: restore the run's own file"),
        (damage_labels, "labels.npz"),
        (damage_summary, "summary.json is damaged"),
        (unfinish, "is not finished: continue it with"),
        (come_from_the_future, "by a newer version of proselflc (format 3, this one reads 2)"),
        (fold_other_labels, "or audit with --folds 0"),
    ],
)
def test_a_spoilt_run_is_one_sentence_and_nothing_is_written(
    run: Path, program: Any, resealed: Any, spoil: Any, words: str
) -> None:
    spoil(run)
    resealed(run)
    before = {name: (run / name).read_bytes() for name in MADE if (run / name).exists()}
    done = program("audit", run, code=2)
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert words in done.stderr
    assert {name: (run / name).read_bytes() for name in MADE if (run / name).exists()} == before


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nowhere",), "there is no run nowhere"),
        (("RUN", "--folds", 1), "--folds must be 0 or at least 2, got 1"),
        (("RUN", "--folds", -3), "--folds must be 0 or at least 2, got -3"),
        (("RUN", "--folds", 2.5), "whole number"),
        (("RUN", "--folds", 5000), "cannot make 5000 folds of 1297 examples"),
        (("RUN", "--worst", -1), "--worst must be at least 0, got -1"),
    ],
)
def test_wrong_arguments_are_one_sentence(
    original: Path, program: Any, arguments: tuple[object, ...], words: str
) -> None:
    done = program("audit", *(original if a == "RUN" else a for a in arguments), code=2)
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert words in done.stderr


def test_folds_of_other_labels_can_be_done_without(run: Path, program: Any, resealed: Any) -> None:
    fold_other_labels(run)
    resealed(run)
    program("audit", run, "--folds", 0)
    assert load_run(run).audit.folds is None
    program("audit", run, "--folds", 2)
    assert load_run(run).audit.folds == 2


def test_a_run_in_use_is_left_alone(run: Path, program: Any) -> None:
    with RunDirectory(run).locked():
        done = program("audit", run, code=2)
    assert "is in use by another process" in done.stderr
    assert done.stderr.count("\n") == 1


def test_several_processes_are_too_many(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(InputError, match="one process: start it without torchrun"):
        auditing.audit(run)


def test_cautions_reach_stderr_where_no_progress_is_shown(tmp_path: Path, program: Any) -> None:
    caution = (
        "Caution: the model was trained for 2 epochs, but an audit needs at least 3, so labels are "
        "ranked, but none is called suspect; train for more epochs."
    )
    digits = ("train", "--data", "digits", "--model", "mlp", "--epochs", 2)
    for options in (("--quiet",), ("--json",), ("--quiet", "--json")):
        done = program(*digits, "--out", tmp_path / "run", "--overwrite", *options)
        assert caution in done.stderr.splitlines()
        assert ("--json" in options) == bool(done.stdout)
        if done.stdout:
            assert "few_epochs" in [one["code"] for one in json.loads(done.stdout)["warnings"]]
    done = program("audit", tmp_path / "run", "--quiet", "--json")
    assert done.stderr.startswith(caution)
    found = json.loads(done.stdout)
    assert (found["suspects"], found["changes"], found["worst"]) == (0, 0, [])
    assert found["warnings"][0]["code"] == "few_epochs"
    assert load_run(tmp_path / "run").examples["quality"].null_count == 0  # it is ranked


def test_other_methods_are_audited_too(tmp_path: Path, program: Any) -> None:
    out = tmp_path / "run"
    program(
        *("train", "--data", "digits", "--noise", "symmetric:0.3", "--method", "cce"),
        *("--model", "mlp", "--epochs", 5, "--quiet", "--out", out),
    )
    found = json.loads(program("audit", out, "--json", "--worst", 0).stdout)
    assert found["suspects"] > 100
    assert found["worst"] == []


def test_duplicates_with_different_labels_come_first() -> None:
    table = suspect("one", "dog", "cat")
    rows = pa.concat_tables([table, suspect("two", "cat", "dog"), suspect("three", "dog", "cat")])
    rows = rows.append_column("duplicate_group", pa.array([7, None, 7], pa.int64()))
    rows = rows.append_column("conflicting", pa.array([True, False, True]))
    text = auditing.describe(Run(Path("a")), audited(), rows, 10)
    first, *_, last = text.partition("Most frequent suspects")
    assert (
        "2 examples in 1 group of duplicates have different labels; review them first:\n" in first
    )
    assert first.count("dog") == 2
    assert "different labels" not in last
    assert "review them first.\n" in auditing.describe(Run(Path("a")), audited(), rows, 0)
