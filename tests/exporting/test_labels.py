"""Corrected labels: hard and soft, above a confidence, as tables, arrays and cleanlab's columns."""

from __future__ import annotations

import csv
import io
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa
import pytest

from proselflc.auditing.audit import Audit
from proselflc.auditing.caveats import AuditWarning
from proselflc.auditing.examples import write_parquet
from proselflc.auditing.measured import Measured, MeasuredPrecision
from proselflc.data.decisions import DecisionChange
from proselflc.data.labels import Labels
from proselflc.data.noise import fingerprint
from proselflc.errors import InputError
from proselflc.exporting.formats import text_lines
from proselflc.exporting.labels import LabelExport, corrected_labels, find_label_issues
from proselflc.run.reader import Run
from proselflc.training.run_directory import RunDirectory

NAMES = ("cat", "=dog", "<b>")
IDS = ("-1", "@b", "c/d.png", "e", 'f,"g"')
GIVEN = np.array([0, 1, 2, 0, 1])
SUGGESTED = np.array([0, 2, 0, 1, 1])
# The third is exactly at the threshold that is asked for below, the last was never seen.
SURE = np.array([0.75, 0.5, 0.9, 0.95, np.nan], np.float32)
SOFT = np.array(
    [[0.8, 0.1, 0.1], [0.2, 0.3, 0.5], [0.6, 0.3, 0.1], [0, 1, 0], [0, 1, 0]], np.float32
)


ACTIONS = ("keep", "review", "change", "change", "keep")


def made(
    path: Path,
    names: tuple[str, ...] = NAMES,
    distribution: pa.Array = None,
    *,
    actions: tuple[str, ...] | None = None,
    **audit: Any,
) -> Run:
    """A run directory with labels and examples; of an older version without actions."""
    path.mkdir(exist_ok=True)
    C = len(names)
    labels = Labels(
        given=GIVEN,
        clean=None,
        flipped=np.zeros(len(IDS), np.bool_),
        transition=np.eye(C),
        names=names,
        ids=IDS,
        generator="none",
        fingerprint=fingerprint(GIVEN, C),
    )
    labels.save(path / "labels.npz")
    if distribution is None:
        distribution = pa.array(SOFT.tolist(), pa.list_(pa.float32()))
    unknown = np.isnan(SURE)
    number = pa.array(SURE, mask=unknown)
    table = pa.table(
        {
            "index": pa.array(np.arange(len(IDS))),
            "id": pa.array(IDS),
            "given_label": pa.array([names[k] for k in GIVEN]),
            "suggested_label": pa.array([names[k] for k in SUGGESTED]),
            "is_suspect": pa.array(SUGGESTED != GIVEN),
            "quality": pa.array(1 - SURE, mask=unknown),
            "trust": number,
            "entropy": number,
            "p_given": pa.array(1 - SURE, mask=unknown),
            "p_suggested": number,
            "first_learned_epoch": pa.array([0, 1, None, 2, 3], pa.int32()),
            "flips": pa.array([0, 1, 2, 3, 4], pa.int32()),
            "corrected_distribution": distribution,
        }
    )
    if actions is not None:
        table = table.append_column("action", pa.array(actions))
    write_parquet(table, path / "examples.parquet")
    if audit:
        joint = np.zeros((C, C))
        joint[0, 0] = len(IDS)
        facts = {"folds": None, "realised_noise_rate": None, "expected_precision": None, **audit}
        own = {"num_examples": len(IDS), "suspects": 3, "estimated_noise_rate": 0.0}
        Audit(names=names, joint=joint, realised=None, **{**own, **facts}).save(RunDirectory(path))
    return Run(path)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A run of an older version."""
    return made(tmp_path / "run")


@pytest.fixture
def acting(tmp_path: Path) -> Run:
    """A run whose audit says what to do."""
    return made(tmp_path / "acting", actions=ACTIONS, changes=2, expected_precision=0.6)


WEAK = AuditWarning("too_weak", "the predictions are hardly better than chance")


@pytest.fixture
def abstaining(tmp_path: Path) -> Run:
    """A run whose audit corrects no label."""
    run = made(tmp_path / "weak", actions=("keep",) * 5, changes=0, suspects=0, warnings=(WEAK,))
    table = run.examples
    for name, column in (
        ("is_suspect", pa.array([False] * len(IDS))),
        ("suggested_label", table["given_label"]),
    ):
        table = table.set_column(table.column_names.index(name), name, column)
    write_parquet(table, run.directory.examples)
    return Run(run.path)


def test_the_columns_of_a_table(run: Run) -> None:
    table = LabelExport(run).table()
    assert table.column_names == [
        "id",
        "label",
        "given_label",
        "is_suspect",
        "action",
        "quality",
        "confidence",
        "reviewed",
    ]
    assert table["reviewed"].null_count == table["action"].null_count == 5
    assert tuple(table["id"].to_pylist()) == IDS
    assert table["label"].to_pylist() == ["cat", "<b>", "cat", "=dog", "=dog"]
    assert table["given_label"].to_pylist() == ["cat", "=dog", "<b>", "cat", "=dog"]
    assert table["is_suspect"].to_pylist() == [False, True, True, True, False]
    np.testing.assert_array_equal(table["confidence"].to_numpy(), SURE)
    np.testing.assert_array_equal(table["quality"].to_numpy(), 1 - SURE)


def test_only_what_is_sure_enough_is_corrected(run: Run) -> None:
    corrected = LabelExport(run, min_confidence=0.9)
    assert corrected.table()["label"].to_pylist() == ["cat", "=dog", "cat", "=dog", "=dog"]
    assert corrected.corrections == 2
    assert corrected.table()["is_suspect"].to_pylist() == [False, True, True, True, False]
    assert LabelExport(run, 1.0).corrections == 0
    assert corrected_labels(run, min_confidence=0.9) == ["cat", "=dog", "cat", "=dog", "=dog"]
    assert corrected_labels(run, min_confidence=1) == [NAMES[k] for k in GIVEN]


@pytest.mark.parametrize("wrong", [-0.1, 1.1, float("nan")])
def test_a_confidence_is_a_probability(run: Run, wrong: float) -> None:
    with pytest.raises(InputError, match="from 0 to 1, got") as error:
        LabelExport(run, wrong)
    assert error.value.field == "min_confidence"


def test_suspects_alone(run: Run) -> None:
    corrected = LabelExport(run, 0.9, only_suspects=True)
    assert corrected.table()["id"].to_pylist() == ["@b", "c/d.png", "e"]
    assert corrected.labels.tolist() == [1, 0, 1]
    assert corrected.table(soft=True)["p(=dog)"].to_pylist() == pytest.approx([1, 0.3, 1])


@pytest.mark.parametrize("has_many", [False, True])
def test_no_suspects_at_all(tmp_path: Path, has_many: bool) -> None:
    run = many(tmp_path / "run", [[0, 1, 2, 3, 4]] * 5)[0] if has_many else made(tmp_path / "run")
    table = run.examples
    place = table.column_names.index("is_suspect")
    nobody = table.set_column(place, "is_suspect", pa.array([False] * len(IDS)))
    write_parquet(nobody, run.directory.examples)
    corrected = LabelExport(Run(run.path), only_suspects=True)
    found = corrected.table(soft=True)
    assert len(found) == 0
    assert found.column_names == LabelExport(Run(run.path)).table(soft=True).column_names
    assert len(found.column_names) == 8 + (10 if has_many else 3)
    file = io.BytesIO()
    corrected.write_npz(file, soft=True)
    arrays = np.load(io.BytesIO(file.getvalue()), allow_pickle=False)
    assert arrays["probabilities"].shape == (0, 5 if has_many else 3)


def test_soft_labels(run: Run) -> None:
    table = LabelExport(run).table(soft=True)
    columns = [table[f"p({name})"].to_numpy() for name in NAMES]
    np.testing.assert_array_equal(np.stack(columns, 1), SOFT)
    kept = LabelExport(run, 0.9).table(soft=True)
    columns = [kept[f"p({name})"].to_numpy() for name in NAMES]
    expected = SOFT.copy()
    expected[1] = [0, 1, 0]  # the one suspect that is not sure enough is its given label
    np.testing.assert_array_equal(np.stack(columns, 1), expected)


def many(path: Path, classes: list[list[int]]) -> tuple[Run, tuple[str, ...]]:
    """A run of 101 classes, of which the five likeliest are kept."""
    names = tuple(f"class {k}" for k in range(101))
    p = [0.5, 0.25, 0.125, 0.0625, 0.03125]
    rows = [[{"label": names[k], "p": p[j]} for j, k in enumerate(row)] for row in classes]
    kind = pa.list_(pa.struct([("label", pa.string()), ("p", pa.float32())]))
    return made(path, names, pa.array(rows, kind)), names


def test_soft_labels_of_many_classes(tmp_path: Path) -> None:
    five = [[0, 1, 2, 3, 4], [2, 1, 7, 8, 9], [0, 2, 4, 6, 8], [1, 99, 98, 97, 96], [1, 2, 3, 4, 5]]
    run, names = many(tmp_path / "run", five)
    table = LabelExport(run).table(soft=True)
    assert table.column_names[8:] == [f"{what}_{k}" for k in range(1, 6) for what in ("label", "p")]
    for k in range(5):
        assert table[f"label_{k + 1}"].to_pylist() == [names[row[k]] for row in five]
        assert set(table[f"p_{k + 1}"].to_pylist()) == {0.5 ** (k + 1)}
    file = io.BytesIO()
    LabelExport(run, 0.9).write_npz(file, soft=True)
    arrays = np.load(io.BytesIO(file.getvalue()), allow_pickle=False)
    # The suspect that is not sure enough was given class 1: that comes first, once.
    assert arrays["classes"][1].tolist() == [1, 2, 7, 8, 9]
    assert arrays["probabilities"][1].tolist() == [1, 0, 0, 0, 0]
    others = [0, 2, 3, 4]
    assert arrays["classes"][others].tolist() == [five[k] for k in others]
    assert arrays["probabilities"][0].tolist() == [0.5, 0.25, 0.125, 0.0625, 0.03125]


def test_arrays(run: Run) -> None:
    file = io.BytesIO()
    LabelExport(run, 0.9).write_npz(file, soft=True)
    arrays = np.load(io.BytesIO(file.getvalue()), allow_pickle=False)
    names = ["given", "ids", "is_suspect", "labels", "names", "probabilities", "quality"]
    names.append("reviewed")
    assert sorted(arrays) == names
    assert arrays["ids"].tolist() == list(IDS)
    assert arrays["names"].tolist() == list(NAMES)
    assert arrays["labels"].tolist() == [0, 1, 0, 1, 1]
    assert arrays["given"].tolist() == GIVEN.tolist()
    assert arrays["is_suspect"].tolist() == [False, True, True, True, False]
    np.testing.assert_array_equal(arrays["quality"], 1 - SURE)
    np.testing.assert_array_equal(arrays["probabilities"][[0, 2, 3, 4]], SOFT[[0, 2, 3, 4]])
    file = io.BytesIO()
    LabelExport(run).write_npz(file)
    assert sorted(np.load(io.BytesIO(file.getvalue()))) == [n for n in names if n[0] != "p"]


def test_a_text_table_is_what_pandas_reads(run: Run) -> None:
    lines = list(text_lines(LabelExport(run).table(soft=True)))
    columns = "id,label,given_label,is_suspect,action,quality,confidence,reviewed"
    assert lines[0] == f"{columns},p(cat),p(=dog),p(<b>)\n"
    assert lines[1] == "-1,cat,cat,False,,0.25,0.75,,0.8,0.1,0.1\n"
    assert lines[2] == "'@b,<b>,'=dog,True,,0.5,0.5,,0.2,0.3,0.5\n"
    assert lines[5] == '"f,""g""",\'=dog,\'=dog,False,,,,,0.0,1.0,0.0\n'
    frame = pd.read_csv(io.StringIO("".join(lines)))
    assert frame["is_suspect"].dtype == bool
    np.testing.assert_allclose(frame["confidence"], SURE, atol=1e-6)
    tabs = list(text_lines(LabelExport(run).table(), "\t"))
    assert next(csv.reader([tabs[5]], delimiter="\t"))[0] == 'f,"g"'


def test_the_columns_of_cleanlab(run: Run) -> None:
    from cleanlab.classification import CleanLearning  # type: ignore[import-untyped]
    from sklearn.linear_model import LogisticRegression

    generator = np.random.default_rng(0)
    y = generator.integers(3, size=60)
    x = np.eye(3)[y] + generator.normal(0, 0.1, (60, 3))
    theirs = CleanLearning(LogisticRegression(), cv_n_folds=2).find_label_issues(x, y)
    ours = find_label_issues(run)
    assert list(ours)[:4] == list(theirs)
    assert list(ours)[4:] == ["corrected_label", "id", "action"]
    for name in ("is_label_issue", "label_quality"):
        assert ours[name].dtype.kind == theirs[name].dtype.kind
    assert type(ours.index) is type(theirs.index) is pd.RangeIndex
    assert ours["is_label_issue"].tolist() == [False, True, True, True, False]
    assert ours["predicted_label"].tolist() == ["cat", "<b>", "cat", "=dog", "=dog"]
    assert ours["given_label"].tolist() == ["cat", "=dog", "<b>", "cat", "=dog"]
    np.testing.assert_array_equal(ours["label_quality"], 1 - SURE)
    sure = LabelExport(run, 0.9).issues()
    assert sure["predicted_label"].to_pylist() == ours["predicted_label"].tolist()
    assert sure["corrected_label"].to_pylist() == ["cat", "=dog", "cat", "=dog", "=dog"]


def test_without_pandas(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(InputError, match=r'needs pandas: pip install "proselflc\[cleanlab\]"'):
        find_label_issues(run)


def test_a_run_without_examples(run: Run) -> None:
    run.directory.examples.unlink()
    with pytest.raises(InputError, match=r"has no examples\.parquet"):
        LabelExport(Run(run.path)).table()


def test_examples_of_another_run(run: Run) -> None:
    other = made(run.path.parent / "other", ("x", "y", "z"))
    other.directory.examples.rename(run.directory.examples)
    with pytest.raises(InputError, match=r"has classes that are not in"):
        corrected_labels(Run(run.path))


@pytest.mark.parametrize(
    "rows",
    [
        [[1.0], [0.5, 0.5], [], [1], [1]],  # of several lengths
        [[0.5, 0.5]] * 5,  # of two classes
    ],
)
def test_damaged_distributions(run: Run, rows: list[list[float]]) -> None:
    broken = made(run.path.parent / "broken", NAMES, pa.array(rows, pa.list_(pa.float32())))
    with pytest.raises(InputError, match=r"is damaged: .* 3 classes"):
        LabelExport(broken).table(soft=True)


def decide(run: Run, **labels: str | None) -> None:
    wanted = [DecisionChange(name, label, 0) for name, label in labels.items()]
    assert run.decisions.add(wanted, "anna", "1") == [None] * len(wanted)


def test_what_people_decide_comes_first_in_every_form(run: Run) -> None:
    # Kept against the suggestion, another than suggested, cannot tell, and no suspect at all.
    decide(run, **{"@b": "=dog", "c/d.png": "=dog", "e": None, "-1": "<b>"})
    corrected = LabelExport(run)
    labels = ["<b>", "=dog", "=dog", "=dog", "=dog"]
    table = corrected.table(soft=True)
    assert table["label"].to_pylist() == labels
    assert table["reviewed"].to_pylist() == ["corrected", "kept", "corrected", "unsure", None]
    assert table["p(<b>)"].to_pylist() == [1, 0, 0, 0, 0]
    assert table["p(=dog)"].to_pylist() == [0, 1, 1, 1, 1]
    assert corrected.issues()["corrected_label"].to_pylist() == labels
    assert (corrected.corrections, corrected.decided) == (3, 3)
    file = io.BytesIO()
    corrected.write_npz(file, soft=True)
    arrays = np.load(io.BytesIO(file.getvalue()), allow_pickle=False)
    assert [NAMES[k] for k in arrays["labels"]] == labels
    assert arrays["reviewed"].tolist() == [True, True, True, False, False]
    assert arrays["probabilities"].tolist()[:3] == [[0, 0, 1], [0, 1, 0], [0, 1, 0]]
    assert corrected_labels(run) == labels


def test_nothing_but_what_people_decide(run: Run) -> None:
    decide(run, **{"c/d.png": "cat"})
    only = LabelExport(run, reviewed=True)
    assert only.table()["label"].to_pylist() == ["cat", "=dog", "cat", "cat", "=dog"]
    assert only.corrections == 1
    sure = LabelExport(run, 0.95, reviewed=True)
    assert sure.table()["label"].to_pylist() == ["cat", "=dog", "cat", "=dog", "=dog"]
    assert corrected_labels(run, reviewed=True) == only.table()["label"].to_pylist()


def test_a_decision_among_many_classes_comes_first(tmp_path: Path) -> None:
    names = tuple(f"class {k}" for k in range(200))
    five = [[{"label": names[k], "p": 0.2} for k in range(5)]] * 5
    kind = pa.list_(pa.struct([("label", pa.string()), ("p", pa.float32())]))
    run = made(tmp_path / "many", names, pa.array(five, kind))
    decide(run, **{"@b": "class 150", "e": "class 3"})
    file = io.BytesIO()
    LabelExport(run).write_npz(file, soft=True)
    arrays = np.load(io.BytesIO(file.getvalue()), allow_pickle=False)
    assert arrays["classes"].tolist()[1] == [150, 1, 2, 3, 4]
    assert arrays["classes"].tolist()[3] == [3, 1, 2, 0, 4]
    assert arrays["probabilities"][1].tolist() == arrays["probabilities"][3].tolist()
    assert arrays["probabilities"][1].tolist() == [1, 0, 0, 0, 0]


def test_a_dropped_line_is_said(run: Run) -> None:
    decide(run, e="cat")
    with run.directory.review.open("ab") as file:
        file.write(b"torn")
    corrected = LabelExport(run)
    assert corrected.table()["label"].to_pylist()[3] == "cat"
    assert "the last line of" in corrected.notes[0]


def test_what_the_audit_would_change_is_changed(acting: Run) -> None:
    corrected = LabelExport(acting)
    assert corrected.table()["label"].to_pylist() == ["cat", "=dog", "cat", "=dog", "=dog"]
    assert corrected.table()["action"].to_pylist() == list(ACTIONS)
    assert (corrected.corrections, corrected.left) == (2, 1)
    assert corrected.notes == ()
    assert corrected_labels(acting) == corrected.table()["label"].to_pylist()
    issues = find_label_issues(acting)
    assert issues["corrected_label"].tolist() == corrected_labels(acting)
    assert issues["is_label_issue"].tolist() == [False, True, True, True, False]
    assert issues["action"].tolist() == list(ACTIONS)
    soft = corrected.table(soft=True)  # a suspect that is left for review has its given label
    assert [soft[f"p({name})"].to_pylist()[1] for name in NAMES] == [0, 1, 0]
    assert soft["p(cat)"].to_pylist()[2] == pytest.approx(0.6)


def test_the_cost_of_all_suspects_is_a_range_if_it_was_measured(tmp_path: Path) -> None:
    found = Measured(30, (0.2, 0.5, 0.7), MeasuredPrecision(suspects=(0.3, 0.6, 0.7)))
    run = made(tmp_path / "run", actions=ACTIONS, changes=2, expected_precision=0.6, measured=found)
    assert LabelExport(run, suspects=True).notes == (
        "all suspects are followed: about 1 (1 to 2) of the 3 changed labels are right as given, "
        "measured on 30 reviewed labels",
    )


def test_all_suspects_are_changed_at_a_stated_cost(
    acting: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    every = ["cat", "<b>", "cat", "=dog", "=dog"]
    corrected = LabelExport(acting, suspects=True)
    assert corrected.table()["label"].to_pylist() == every
    assert (corrected.corrections, corrected.left) == (3, 0)
    sentence = "all suspects are followed: about 1 of the 3 changed labels are right as given"
    assert corrected.notes == (sentence,)
    assert corrected_labels(acting, suspects=True) == every
    assert capsys.readouterr().err == f"note: {sentence}\n"
    corrected_labels(acting, suspects=True, notes=False)
    assert capsys.readouterr().err == ""
    assert find_label_issues(acting, suspects=True)["corrected_label"].tolist() == every


def test_a_cost_that_is_not_known_is_measured_by_a_review(tmp_path: Path) -> None:
    run = made(tmp_path / "run", actions=ACTIONS, changes=2)
    (note,) = LabelExport(run, suspects=True).notes
    assert "it is not known how many of the 3 changed labels are right as given" in note
    assert note.endswith(f"proselflc review {run.path} --sample 30 measures it")


def test_a_confidence_chooses_among_suspects_whatever_their_action(acting: Run) -> None:
    labels = LabelExport(acting, 0.5).table()["label"].to_pylist()
    assert labels == ["cat", "<b>", "cat", "=dog", "=dog"]
    labels = LabelExport(acting, 0.95).table()["label"].to_pylist()
    assert labels == ["cat", "=dog", "<b>", "=dog", "=dog"]


@pytest.mark.parametrize("other", [{"min_confidence": 0.0}, {"reviewed": True}])
def test_options_that_contradict_each_other(acting: Run, other: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"suspects=True follows all suspects, but .* fewer: give"):
        LabelExport(acting, suspects=True, **other)
    with pytest.raises(InputError, match="give one of them"):
        corrected_labels(acting, suspects=True, **other)


def test_an_audit_of_an_older_version_is_followed_with_a_note(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    assert corrected_labels(run) == ["cat", "<b>", "cat", "=dog", "=dog"]
    said = capsys.readouterr().err
    assert said.startswith(f"note: an older version of proselflc audited {run.path}, so all sus")
    assert f"run proselflc audit {run.path} to change only" in said
    assert LabelExport(run, reviewed=True).notes == ()
    assert LabelExport(run, 0.5).notes == ()


def test_an_audit_that_corrects_nothing_is_refused(abstaining: Run) -> None:
    reason = r"corrects no label, because the predictions are hardly better than chance: pass force"
    with pytest.raises(InputError, match=reason):
        corrected_labels(abstaining)
    with pytest.raises(InputError, match=reason):  # nothing has been reviewed
        corrected_labels(abstaining, reviewed=True)
    assert corrected_labels(abstaining, force=True) == [NAMES[k] for k in GIVEN]
    assert not find_label_issues(abstaining)["is_label_issue"].any()  # the ranking is there
    decide(abstaining, e="=dog")
    with pytest.raises(InputError, match=r"pass reviewed=True to use the decisions about it alone"):
        corrected_labels(abstaining)
    assert corrected_labels(abstaining, reviewed=True)[3] == "=dog"


def test_actions_in_arrays(acting: Run) -> None:
    file = io.BytesIO()
    LabelExport(acting).write_npz(file)
    arrays = np.load(io.BytesIO(file.getvalue()), allow_pickle=False)
    assert arrays["action"].tolist() == list(ACTIONS)
    assert arrays["labels"].tolist() == [0, 1, 0, 1, 1]
