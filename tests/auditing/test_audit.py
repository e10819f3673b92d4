"""What the suspects of a run say together: counted by hand, written, damaged and read."""

from __future__ import annotations

import contextlib
import json
import math
import shutil
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import confusion_matrix

from proselflc.auditing.audit import OLDER, Audit, noise_rate
from proselflc.auditing.caveats import AuditWarning
from proselflc.auditing.judge import ConfusedPair, Judge
from proselflc.data import class_matrix
from proselflc.errors import InputError
from proselflc.training.run_directory import Json, RunDirectory

Doubles = npt.NDArray[np.float64]


def made(seed: int = 0, C: int = 3, *, known: bool = True, folds: int | None = None) -> Audit:
    """An audit of any numbers that go together; the last class has no examples in truth."""
    generator = np.random.default_rng(seed)
    joint: Doubles = generator.gamma(0.5, 10, (C, C))
    n = math.ceil(joint.sum())
    joint *= n / joint.sum()
    chances = generator.random((C, C))
    chances[:, -1] = chances[-1] = 0
    numbers = generator.multinomial(n, chances.ravel() / chances.sum()).reshape(C, C)
    realised = numbers.astype(np.float64)
    suspects, rate = int(generator.integers(0, n + 1)), noise_rate(joint)
    shares: tuple[float, float, float, float] = tuple(generator.random(4).tolist())
    confused = tuple(ConfusedPair("a", f"b{k}", float(generator.random())) for k in range(seed % 3))
    return Audit(
        num_examples=n,
        suspects=suspects,
        folds=folds,
        estimated_noise_rate=rate,
        realised_noise_rate=noise_rate(realised) if known else None,
        expected_precision=None if seed % 2 else float(generator.random()),
        names=tuple(f"class\n<{k}> é" for k in range(C)),
        joint=joint,
        realised=realised if known else None,
        changes=int(generator.integers(0, suspects + 1)),
        noise_low=rate / 2,
        noise_high=(1 + rate) / 2,
        judge=Judge(None if seed % 5 else "2 folds", *shares, confused),
        warnings=tuple(AuditWarning(f"code_{k}", f"é\n<{k}>") for k in range(seed % 4)),
    )


def assert_same(one: Audit, other: Audit) -> None:
    for field in fields(Audit):
        a, b = getattr(one, field.name), getattr(other, field.name)
        if isinstance(a, np.ndarray):
            assert b.dtype == np.float64
            np.testing.assert_array_equal(a, b)
        else:
            assert a == b
            assert type(a) is type(b)


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 1000),
    C=st.integers(2, 40),
    known=st.booleans(),
    folds=st.none() | st.integers(2, 9),
)
def test_what_is_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, seed: int, C: int, known: bool, folds: int | None
) -> None:
    directory = RunDirectory(tmp_path_factory.mktemp("run"))
    audit = made(seed, C, known=known, folds=folds)
    audit.save(directory)
    assert sorted(file.name for file in directory.path.iterdir()) == ["audit.json", "audit.npz"]
    assert_same(audit, Audit.load(directory))


def test_a_second_audit_takes_the_place_of_the_first(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path)
    made(0, 4, known=True).save(directory)
    again = made(1, 4, known=False, folds=5)
    again.save(directory)
    assert_same(again, Audit.load(directory))


@pytest.mark.parametrize("spell", ["none", "missing"])
def test_an_audit_of_an_older_version_is_read_with_a_warning(tmp_path: Path, spell: str) -> None:
    """It has neither a range nor a judge, and its precision is not known to be right."""
    directory = RunDirectory(tmp_path)
    audit = replace(made(), changes=None, noise_low=None, noise_high=None, judge=None, warnings=())
    audit.save(directory)
    if spell == "missing":
        facts = json.loads(directory.audit.read_text(encoding="utf-8"))
        for name in ("changes", "noise_low", "noise_high", "judge", "warnings"):
            del facts[name]
        directory.audit.write_text(json.dumps(facts), encoding="utf-8")
    found = Audit.load(directory)
    assert_same(found, replace(audit, warnings=(OLDER,)))
    assert OLDER.code == "older_audit"
    assert "audit the run again" in OLDER.message
    assert not found.abstains


def test_an_audit_abstains_by_its_warnings() -> None:
    usual = (AuditWarning("wide_range", "a"), AuditWarning("no_witness", "b"))
    assert not replace(made(), warnings=usual).abstains
    for code in ("few_epochs", "barely_learned", "memorised", "too_weak"):
        assert replace(made(), warnings=(*usual, AuditWarning(code, "c"))).abstains


def test_two_files_of_two_audits_are_not_believed(tmp_path: Path) -> None:
    """As when a process was killed between the two."""
    directory = RunDirectory(tmp_path)
    first = made(0, 4)
    first.save(directory)
    kept = directory.audit.read_bytes()
    replace(first, joint=first.joint.T[::-1].copy()).save(directory)
    directory.audit.write_bytes(kept)
    with pytest.raises(InputError, match=r"damaged.* proselflc audit"):
        Audit.load(directory)


def test_what_is_not_there(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path)
    with pytest.raises(InputError, match=r"has no audit\.json: .* proselflc audit "):
        Audit.load(directory)
    made().save(directory)
    directory.audit_arrays.unlink()
    with pytest.raises(InputError, match=r"has no audit\.npz: .* proselflc audit "):
        Audit.load(directory)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """Where `made(folds=4)` is; `damaging` puts it right again."""
    directory = RunDirectory(tmp_path_factory.mktemp("run"))
    made(folds=4).save(directory)
    return directory


def copied(saved: RunDirectory, folder: Path) -> RunDirectory:
    for file in (saved.audit, saved.audit_arrays):
        shutil.copy(file, folder)
    return RunDirectory(folder)


@contextlib.contextmanager
def damaging(data: st.DataObject, path: Path) -> Iterator[None]:
    """Change a byte of a file, or cut it off; a sentence about it is no failure."""
    content = path.read_bytes()
    where = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        changed = bytes([content[where] ^ data.draw(st.integers(1, 255))])
        path.write_bytes(content[:where] + changed + content[where + 1 :])
    else:
        path.write_bytes(content[:where])
    try:
        with contextlib.suppress(InputError):
            yield
    finally:
        path.write_bytes(content)


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_damaged_arrays_are_a_sentence_or_do_no_harm(
    saved: RunDirectory, data: st.DataObject
) -> None:
    """A check sum tells of every change to the numbers; it can only be in what nobody reads."""
    audit = made(folds=4)
    with damaging(data, saved.audit_arrays):
        loaded = Audit.load(saved)
        if loaded.realised is None:  # the name of an array is not part of the sum
            audit = replace(audit, realised=None)
        assert_same(audit, loaded)


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_damaged_facts_are_a_sentence_or_sound(saved: RunDirectory, data: st.DataObject) -> None:
    """A digit that has become another one cannot be known, but what is read is an audit."""
    audit = made(folds=4)
    with damaging(data, saved.audit):
        loaded = Audit.load(saved)
        assert loaded.num_examples == audit.num_examples
        assert loaded.estimated_noise_rate == pytest.approx(audit.estimated_noise_rate, abs=1e-5)
        np.testing.assert_array_equal(loaded.joint, audit.joint)
        assert len(loaded.names) == 3
        assert all(isinstance(name, str) for name in loaded.names)
        assert 0 <= loaded.suspects <= loaded.num_examples
        assert loaded.expected_precision is None or 0 <= loaded.expected_precision <= 1
        assert loaded.to_json()["suspects"] == loaded.suspects


NO_NUMBERS: tuple[object, ...] = (math.nan, math.inf, True, 10**400, "0.5", [0.5])
NO_COUNTS: tuple[object, ...] = (*NO_NUMBERS, -1, 1.5)
NO_SHARES: tuple[object, ...] = (*NO_NUMBERS, -0.1, 1.1)
NO_CLASSES: tuple[object, ...] = (
    *(None, {}, "abc", [1, 2, 3]),
    *([{}] * 3, [{"name": 1}] * 3, [{"name": "a"}]),
)

NO_JUDGES: tuple[object, ...] = (1, "a", [], {}, {"kind": "a"})
NO_WARNINGS: tuple[object, ...] = (1, "a", [1], [{}], [{"code": "a"}])


def without(name: str) -> Callable[[Json], object]:
    return lambda facts: facts.pop(name)


def setting(name: str, value: object) -> Callable[[Json], object]:
    return lambda facts: facts.update({name: value})


@pytest.mark.parametrize(
    "change",
    [
        *(without(name) for name in ("examples", "suspects", "estimated_noise_rate", "classes")),
        *(
            setting(name, value)
            for name in ("examples", "suspects", "folds", "changes")
            for value in NO_COUNTS
        ),
        *(
            setting(name, value)
            for name in (
                *("estimated_noise_rate", "realised_noise_rate", "expected_precision"),
                *("noise_low", "noise_high"),
            )
            for value in NO_SHARES
        ),
        *(
            (lambda facts, name=name, value=value: facts["judge"].update({name: value}))
            for name in ("accuracy", "skill", "agreement", "fitted")
            for value in NO_SHARES
        ),
        *(setting("judge", value) for value in NO_JUDGES),
        *(setting("warnings", value) for value in NO_WARNINGS),
        setting("changes", made().suspects + 1),
        setting("estimated_noise_rate", 0.9),
        setting("examples", 10**6),
        setting("suspects", 10**6),
        *(setting("classes", value) for value in NO_CLASSES),
    ],
)
def test_facts_that_cannot_be_are_refused(
    saved: RunDirectory, tmp_path: Path, change: Callable[[Json], object]
) -> None:
    directory = copied(saved, tmp_path)
    facts = json.loads(directory.audit.read_text(encoding="utf-8"))
    change(facts)
    directory.audit.write_text(json.dumps(facts), encoding="utf-8")
    with pytest.raises(InputError, match=r"audit\.json is damaged: .* proselflc audit"):
        Audit.load(directory)


@pytest.mark.parametrize(
    "arrays",
    [
        {"realised": np.eye(3)},
        {"joint": np.eye(4)},
        {"joint": np.ones(3)},
        {"joint": np.eye(3, dtype=np.float32)},
        {"joint": np.diag([1, np.nan, 1])},
        {"joint": np.diag([1, np.inf, 1])},
        {"joint": np.diag([1.0, -1, 1])},
        {"joint": np.full((3, 3), 1e308)},
        {"joint": 2 * made().joint},
        {"joint": made().joint, "realised": np.eye(3)},
        {"joint": made().joint, "realised": np.eye(2)},
        {"joint": made().joint, "realised": np.full((3, 3), np.nan)},
        {"joint": np.eye(3).astype("U3")},
    ],
)
def test_arrays_that_cannot_be_are_refused(
    saved: RunDirectory, tmp_path: Path, arrays: dict[str, Any]
) -> None:
    directory = copied(saved, tmp_path)
    np.savez(directory.audit_arrays, **arrays)
    with pytest.raises(InputError, match="damaged"):
        Audit.load(directory)


def test_objects_are_refused(saved: RunDirectory, tmp_path: Path) -> None:
    """They would be pickles."""
    directory = copied(saved, tmp_path)
    np.savez(directory.audit_arrays, joint=np.array([[{}]], dtype=object))
    with pytest.raises(InputError, match="Python objects"):
        Audit.load(directory)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 1000), C=st.integers(2, 12))
def test_transitions_are_rows_of_chances(seed: int, C: int) -> None:
    audit = made(seed, C)
    assert audit.realised is not None
    assert audit.realised_transition is not None
    for chances, counts in (
        (audit.transition, audit.joint),
        (audit.realised_transition, audit.realised),
    ):
        np.testing.assert_allclose(chances.sum(1), 1)
        for k in range(C):
            total = sum(counts[k].tolist())
            expected = [v / total if total else float(i == k) for i, v in enumerate(counts[k])]
            np.testing.assert_allclose(chances[k], expected, rtol=1e-12)
    assert audit.realised_transition[-1].tolist() == [0] * (C - 1) + [1]  # it has no examples
    assert replace(audit, realised=None).realised_transition is None


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 1000), C=st.integers(2, 12), known=st.booleans())
def test_every_class_is_told_by_its_given_label(seed: int, C: int, known: bool) -> None:
    audit = made(seed, C, known=known)
    classes = audit.to_json()["classes"]
    assert isinstance(classes, list)
    assert [one["name"] for one in classes] == list(audit.names)
    for i, one in enumerate(classes):
        column = [float(audit.joint[k, i]) for k in range(C)]
        assert one["examples"] == round(sum(column))
        wrong = sum(v for k, v in enumerate(column) if k != i) / sum(column)
        assert one["estimated_noise_rate"] == pytest.approx(wrong, abs=1e-12)
        assert ("realised_noise_rate" in one) == known
        if audit.realised is not None:
            column = [float(audit.realised[k, i]) for k in range(C)]
            if sum(column):
                wrong = sum(v for k, v in enumerate(column) if k != i) / sum(column)
                assert one["realised_noise_rate"] == pytest.approx(wrong, abs=1e-12)
            else:
                assert one["realised_noise_rate"] is None


def test_the_facts_are_named_as_the_interface_names_them() -> None:
    audit = made(10, 2, folds=4)
    judge = audit.judge
    assert judge is not None
    facts = audit.to_json()
    del facts["classes"]
    assert facts == {
        "examples": audit.num_examples,
        "suspects": audit.suspects,
        "changes": audit.changes,
        "folds": 4,
        "estimated_noise_rate": audit.estimated_noise_rate,
        "noise_low": audit.noise_low,
        "noise_high": audit.noise_high,
        "realised_noise_rate": audit.realised_noise_rate,
        "expected_precision": audit.expected_precision,
        "judge": {
            "kind": "2 folds",
            "accuracy": judge.accuracy,
            "skill": judge.skill,
            "agreement": judge.agreement,
            "fitted": judge.fitted,
            "confused": ({"one": "a", "other": "b0", "accuracy": judge.confused[0].accuracy},),
            "kappa": judge.kappa,
        },
        "measured": None,
        "warnings": [
            {"code": "code_0", "message": "é\n<0>"},
            {"code": "code_1", "message": "é\n<1>"},
        ],
    }


@settings(max_examples=60, deadline=None)
@given(
    labels=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=30),
    C=st.integers(5, 7),
)
def test_what_is_counted_is_the_confusion_matrix(labels: list[tuple[int, int]], C: int) -> None:
    clean, y = (np.array([pair[k] for pair in labels], dtype=np.int64) for k in range(2))
    counts = class_matrix.counted(clean, y, C)
    assert counts.shape == (C, C)
    if labels:
        np.testing.assert_array_equal(counts, confusion_matrix(clean, y, labels=range(C)))
        assert noise_rate(counts) == pytest.approx((clean != y).mean())
    else:
        assert (counts == 0).all()
        assert noise_rate(counts) == 0


def test_a_noise_rate_is_never_below_zero() -> None:
    """The sum of the diagonal is rounded otherwise than the sum of all."""
    for sizes in np.random.default_rng(0).integers(1, 5000, (200, 10)) / 7:
        assert 0 <= noise_rate(np.diag(sizes)) < 1e-12
