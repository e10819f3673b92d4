"""`proselflc audit --pred-probs`: what is printed, written and refused."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from proselflc import audit_predictions


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder with the probabilities of four classes, and labels of which a tenth is wrong."""
    generator = np.random.default_rng(0)
    true = generator.integers(0, 4, 800)
    p = generator.dirichlet([0.3] * 4, 800)
    p = 0.1 * p + 0.9 * np.eye(4)[true]
    given = true.copy()
    given[:80] = (given[:80] + 1) % 4
    names = np.array(["cat", "dog", "owl", "\x1b[31mred"])
    np.savez(tmp_path / "p.npz", pred_probs=p.astype(np.float32), names=names)
    np.save(tmp_path / "y.npy", given)
    return tmp_path


@pytest.fixture
def audit(program: Any, files: Path) -> Any:
    """Run the command in that folder; its exit code must be the one expected."""

    def go(*arguments: object, code: int = 0) -> Any:
        done = program.start("audit", *arguments, folder=files).wait()
        assert done.code == code, done.stderr
        assert "\x1b" not in done.stdout + done.stderr  # names are not obeyed
        return done

    return go


BOTH = ("--pred-probs", "p.npz", "--labels", "y.npy")


def test_the_result_as_text(audit: Any) -> None:
    printed = audit(*BOTH, "--worst", 2).stdout
    lines = printed.splitlines()
    assert lines[0].startswith("80 of 800 labels are suspect (10.0%); ")
    assert " of all are estimated to be wrong." in lines[0]
    assert "of the suspects should really be wrong." in lines[1]
    assert "of them are sure enough to change without a review." in lines[2]
    assert lines[3] == "The model predicts 90% of the given labels."
    assert "Most frequent suspects (given → suggested):" in lines
    at = lines.index("The 2 least likely to be right:")
    assert len(lines[at + 1 :]) == 3  # heading and two rows
    assert "dog → cat" in printed


def test_the_result_as_json_is_that_of_python(audit: Any, files: Path) -> None:
    found = json.loads(audit(*BOTH, "--worst", 3, "--json").stdout)
    with np.load(files / "p.npz") as arrays:
        expected = audit_predictions(np.load(files / "y.npy"), arrays["pred_probs"])
    assert found["examples"] == 800
    assert found["suspects"] == expected.is_suspect.sum() == 80
    assert found["changes"] == expected.action.count("change") > 0
    for name in (
        "estimated_noise_rate",
        "noise_low",
        "noise_high",
        "expected_precision",
        "precision_low",
        "precision_high",
        "agreement",
    ):
        assert found[name] == pytest.approx(getattr(expected, name))
    assert found["warnings"] == []
    assert sum(pair["count"] for pair in found["pairs"]) == 80
    assert [row["action"] for row in found["worst"]] == ["change"] * 3
    assert found["worst"][0]["quality"] == pytest.approx(expected.quality.min())


def test_warnings_are_data(audit: Any, files: Path) -> None:
    with np.load(files / "p.npz") as arrays:
        np.save(files / "few.npy", arrays["pred_probs"][:20])
    np.save(files / "few_labels.npy", np.load(files / "y.npy")[100:120])
    few = ("--pred-probs", "few.npy", "--labels", "few_labels.npy")
    codes = {one["code"] for one in json.loads(audit(*few, "--json").stdout)["warnings"]}
    assert codes == {"few_examples", "too_weak"}
    assert audit(*few).stdout.count("Caution: ") == 2


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet"])
def test_every_label_is_written(suffix: str, audit: Any, files: Path) -> None:
    out = files / f"audit{suffix}"
    assert f"Every label is in audit{suffix}." in audit(*BOTH, "--out", out.name).stdout
    if suffix == ".parquet":
        rows = [
            {key: str(cell) for key, cell in row.items()} for row in pq.read_table(out).to_pylist()
        ]
    else:
        with out.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file, delimiter="\t" if suffix == ".tsv" else ","))
    assert len(rows) == 800
    assert list(rows[0]) == [
        "index",
        "id",
        "given_label",
        "suggested_label",
        "is_suspect",
        "quality",
        "action",
    ]
    assert [row["action"] != "keep" for row in rows] == [True] * 80 + [False] * 720
    assert all(row["given_label"] == row["suggested_label"] for row in rows[80:])
    assert "exists" in audit(*BOTH, "--out", out.name, code=2).stderr
    audit(*BOTH, "--out", out.name, "--overwrite")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "there is nothing to audit: give a run directory, or --pred-probs and --labels"),
        (("--pred-probs", "p.npz"), "--labels is missing: --pred-probs needs it"),
        (("--labels", "y.npy"), "there is nothing to audit"),
        (("run", *BOTH), "--pred-probs cannot be combined with the run run: omit one of them"),
        (("run", "--labels", "y.npy"), "--labels is only used with --pred-probs: omit it"),
        (
            ("run", "--overwrite"),
            "--overwrite is only used with --pred-probs and --part test: omit",
        ),
        ((*BOTH, "--folds", "3"), "--folds is only used with a run: omit it"),
        ((*BOTH, "--out", "audit.json"), '--out must end in .csv, .tsv, .parquet, .pq, got "audit'),
        (("--pred-probs", "y.npy", "--labels", "y.npy"), "expected [n, C]"),
        (("--pred-probs", "gone.npy", "--labels", "y.npy"), "gone.npy"),
    ],
)
def test_what_is_refused(arguments: tuple[str, ...], message: str, audit: Any) -> None:
    done = audit(*arguments, code=2)
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


def test_columns_in_another_order_are_named(audit: Any, files: Path) -> None:
    with np.load(files / "p.npz") as arrays:
        np.save(files / "turned.npy", np.roll(arrays["pred_probs"], 2, axis=1))
    done = audit("--pred-probs", "turned.npy", "--labels", "y.npy", code=2)
    assert "the columns of pred_probs are in another order than the class ids" in done.stderr
    assert 'class "3" in column 1' in done.stderr
