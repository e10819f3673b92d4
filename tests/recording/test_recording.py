"""A run made of what somebody else's training loop shows of its examples."""

from __future__ import annotations

import os
import re
import signal
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import proselflc
from proselflc import BootSoft, Criterion, CrossEntropy, Distillation, Fixed, ProSelfLC, Target
from proselflc.data.inputs import Features, ImageFiles, Images, Texts
from proselflc.errors import InputError
from proselflc.recording import recording
from proselflc.run import original

# Most of what is recorded here is short.
pytestmark = pytest.mark.filterwarnings("ignore:the model was trained for:UserWarning")
N, C = 60, 3


def examples() -> tuple[Tensor, Tensor, Tensor]:
    """Inputs that show their class, labels every fifth of which is wrong, and the true ones."""
    g = torch.Generator().manual_seed(0)
    clean = torch.arange(N) % C
    x = torch.eye(C)[clean] + 0.15 * torch.randn(N, C, generator=g)
    return x, torch.where(torch.arange(N) % 5 == 0, (clean + 1) % C, clean), clean


def batches(epoch: int, size: int = 16, keep: int = N) -> Iterator[Tensor]:
    """Of 60 examples in batches of 16, the last has 12."""
    order = torch.randperm(N, generator=torch.Generator().manual_seed(epoch))[:keep]
    yield from torch.split(order, size)


def steps(
    epochs: int, size: int = 16, lost: int | None = None
) -> Iterator[tuple[int, Tensor, Tensor, Tensor]]:
    """A plain training loop: epoch, index, logits before the step, and labels.

    What is said of the example `lost` is no number after the first epoch.
    """
    x, given, _ = examples()
    torch.manual_seed(0)
    model = nn.Linear(C, C)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for epoch in range(epochs):
        for index in batches(epoch, size):
            logits = model(x[index])
            loss = nn.functional.cross_entropy(logits, given[index])
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            optimizer.step()
            if lost is not None and epoch > 0:
                logits = torch.where((index == lost)[:, None], torch.nan, logits)
            yield epoch, index, logits, given[index]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Recorded in eight epochs, with texts to show and true labels to measure by."""
    out = tmp_path_factory.mktemp("recorded") / "run"
    _, _, clean = examples()
    words = ("crawls in the hill", "flies to flowers", "gives us milk")
    # Numbers that do not tell which labels are wrong, as those of the examples would.
    texts = [f"this is text {7 * k % 61}, it {words[c]}" for k, c in enumerate(clean.tolist())]
    names = ("ant", "bee", "cow")
    with proselflc.record(N, C, out=out, names=names, clean=clean, inputs=texts) as rec:
        for _, index, logits, labels in steps(8):
            rec(index, logits, labels)
    return out


def test_every_epoch_holds_what_the_model_said(run: Path) -> None:
    """By the definition of p, its entropy and its largest other class."""
    found = proselflc.load_run(run)
    epochs = list(found.dynamics)
    assert len(epochs) == 8
    for epoch, index, logits, labels in steps(8):
        p = logits.detach().double().softmax(1).numpy()
        rows = epochs[epoch][index.numpy()]
        given = np.arange(len(p)), labels.numpy()
        np.testing.assert_allclose(rows["p_given"], p[given], rtol=2e-3)
        np.testing.assert_array_equal(rows["predicted"], p.argmax(1))
        np.testing.assert_allclose(rows["entropy"], -(p * np.log(p)).sum(1), rtol=2e-3, atol=1e-4)
        p[given] = -1
        np.testing.assert_array_equal(rows["other"], p.argmax(1))
        np.testing.assert_allclose(rows["p_other"], p.max(1), rtol=2e-3)
        np.testing.assert_array_equal(rows["semantic"], labels)
        assert (rows["trust"] == 0).all()


def test_wrong_labels_are_found_and_corrected(run: Path) -> None:
    _, given, clean = examples()
    found = proselflc.load_run(run)
    suspect, wrong = found.examples["is_suspect"].to_numpy(), (given != clean).numpy()
    assert suspect[wrong].mean() > 0.9
    assert suspect[~wrong].mean() < 0.05
    right = proselflc.corrected_labels(run) == clean.numpy()
    assert right.mean() > 0.95
    assert found.summary["label_accuracy_before"] == pytest.approx(0.8)
    assert found.summary["label_accuracy_after"] == pytest.approx(right.mean())
    right = proselflc.corrected_labels(run, suspects=True) == clean.numpy()
    assert found.summary["label_accuracy_after_suspects"] == pytest.approx(right.mean())
    assert found.examples["witness"].null_count == 0  # by the texts
    assert found.audit.judge is not None
    assert found.audit.judge.kind == "words and letters"
    issues = proselflc.find_label_issues(found)
    assert issues["is_label_issue"].tolist() == suspect.tolist()
    assert issues["id"].tolist() == [str(k) for k in range(N)]


def test_the_history_says_how_it_was_learned(run: Path) -> None:
    _, given, clean = examples()
    lines = proselflc.load_run(run).history
    assert [line["epoch"] for line in lines] == list(range(1, 9))
    assert [line["step"] for line in lines] == [4 * k for k in range(1, 9)]
    assert [line["progress"] for line in lines] == [k / 8 for k in range(1, 9)]
    hits: list[Tensor] = []
    for epoch, index, logits, labels in steps(8):
        if epoch == 7:
            hits.append((logits.argmax(1) == labels)[(given != clean)[index]])
    assert lines[7]["wrong_fitting"] == pytest.approx(torch.cat(hits).float().mean().item())
    assert lines[7]["train_loss"] is None
    assert lines[7]["epsilon"] is None  # nobody knows how far the loop trusts its predictions


def test_the_command_line_works_on_it(
    run: Path, program: Any, serve: Callable[..., Any], tmp_path: Path
) -> None:
    assert "12 of 60 labels are suspect" in program("audit", run).stdout
    program("export", run, "--out", tmp_path / "labels.csv")
    assert (tmp_path / "labels.csv").read_text().splitlines()[1].startswith("0,ant,bee,True,")
    program("report", run, "--out", tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert "this is text 35, it " in page
    assert "A recorded loop" in page
    assert "8 epochs" in page
    assert "recorded from your own training loop: run that again" in page
    serving = serve(run)
    serving.enter()
    start = serving.get("/api/start")
    assert (start["suspects"], start["kind"]) == (12, "text")
    assert serving.get("/api/example/5")["text"].startswith("this is text 35, it ")
    near = serving.get("/api/neighbours/5")
    assert near["how"] == "surest"
    assert "has no model" in near["why"]


def test_what_needs_a_model_or_our_loop_says_so(run: Path, program: Any) -> None:
    words = "recorded from your own training loop"
    for arguments in (
        ("predict", run, "--data", "digits"),
        ("audit", run, "--folds", 2),
        ("train", "--out", run, "--resume"),
        ("train", "--config", run / "config.toml"),
    ):
        done = program(*arguments, code=2)
        assert words in done.stderr
        assert done.stderr.count("\n") == 1


def test_a_page_without_examples_still_has_numbers(tmp_path: Path, program: Any) -> None:
    out = tmp_path / "run"
    with proselflc.record(N, C, out=out) as rec:
        for _, index, logits, labels in steps(4):
            rec(index, logits, labels)
    done = program("report", out)
    assert "given in Python and is not on disk" in done.stderr
    assert "quality" in (out / "report.html").read_text()


KINDS = [list, np.asarray, torch.as_tensor]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_lists_arrays_tensors_and_any_precision(kind: Any, dtype: torch.dtype) -> None:
    with proselflc.record(N, C) as rec:
        for _, index, logits, labels in steps(2):
            rec(kind(index.tolist()), logits.to(dtype), kind(labels.tolist()))
    for epoch, index, logits, labels in steps(2):
        rows = list(rec.run.dynamics)[epoch][index.numpy()]
        p = logits.detach().to(dtype).double().softmax(1).gather(1, labels[:, None])[:, 0]
        np.testing.assert_allclose(rows["p_given"], p, atol=1e-3)


def rows_of(rec: recording.Recording) -> list[bytes]:
    return [np.asarray(epoch).tobytes() for epoch in rec.run.dynamics]


def recorded(epochs: int = 3, **options: Any) -> recording.Recording:
    with proselflc.record(N, C, **options) as rec:
        for _, index, logits, labels in steps(epochs):
            rec(index, logits, labels)
    return rec


def test_what_may_wait_on_an_accelerator_is_recorded_alike(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    at_once = rows_of(recorded())
    monkeypatch.setattr(recording, "_may_wait", lambda facts: True)
    assert rows_of(recorded()) == at_once
    monkeypatch.setattr(recording, "_MOST_WAITING", 40)
    assert rows_of(recorded()) == at_once


def test_end_epoch_and_epochs_that_end_by_themselves_agree() -> None:
    with proselflc.record(N, C) as rec:
        last = 0
        for epoch, index, logits, labels in steps(3):
            if epoch != last:
                rec.end_epoch()
                last = epoch
            rec(index, logits, labels)
        rec.end_epoch()
        rec.end_epoch()  # nothing came since
        assert rec.epoch == 3
    assert rows_of(rec) == rows_of(recorded())


def test_dropped_examples_are_marked() -> None:
    """A loader that drops the last, smaller batch: 48 of 60 come in an epoch."""
    _, given, _ = examples()
    with proselflc.record(N, C, labels=given) as rec:
        for epoch in range(3):
            for index in batches(epoch, keep=48):
                rec(index, torch.zeros(len(index), C))
    epochs = list(rec.run.dynamics)
    assert len(epochs) == 3
    for epoch, rows in enumerate(epochs):
        came = np.zeros(N, bool)
        came[torch.cat(list(batches(epoch, keep=48))).numpy()] = True
        np.testing.assert_array_equal(np.isnan(rows["p_given"]), ~came)


def test_examples_that_are_drawn_again_count_the_last_time() -> None:
    _, given, _ = examples()
    logits = torch.randn(2, N, C, generator=torch.Generator().manual_seed(0))
    index = torch.tensor([0, 1, 1, 0, 2])
    with proselflc.record(N, C, labels=given, repeats=True) as rec:
        for z in logits:
            rec(index, z[:5], given[index])
            rec(torch.tensor([1]), z[5:6])
            rec.end_epoch()
    for z, rows in zip(logits, rec.run.dynamics, strict=True):
        p = z.softmax(1)
        expected = [p[3, given[0]], p[5, given[1]], p[4, given[2]]]
        np.testing.assert_allclose(rows["p_given"][:3], expected, rtol=1e-3)
        assert np.isnan(rows["p_given"][3:]).all()


def test_logits_that_are_no_numbers_count_as_not_seen() -> None:
    _, given, _ = examples()
    z = torch.zeros(N, C)
    z[7, 1] = torch.nan
    with proselflc.record(N, C) as rec:
        with pytest.warns(UserWarning, match="in epoch 1 are not finite, first of example 7"):
            rec(range(N), z, given)
        rec(range(N), z, given)  # it is said once
    for rows in rec.run.dynamics:
        assert np.flatnonzero(np.isnan(rows["p_given"])).tolist() == [7]


ALL = list(range(6))
LABELS = [0, 1, 2, 0, 1, 2]
Z = torch.zeros(6, 3)


def half(rec: recording.Recording) -> None:
    rec([0, 1, 2], Z[:3], [0, 1, 2])


def again_and_said(rec: recording.Recording) -> None:
    rec(ALL, Z, LABELS)
    half(rec)
    rec.end_epoch()


def some_again_and_said(rec: recording.Recording) -> None:
    rec([0, 1, 2, 3], Z[:4], LABELS[:4])
    rec([3, 4], Z[:2], LABELS[3:5])
    rec.end_epoch()


def changed(rec: recording.Recording) -> None:
    rec(ALL, Z, LABELS)
    rec([0], Z[:1], [1])


def early(rec: recording.Recording) -> None:
    rec([0], Z[:1], [0])
    rec([0], Z[:1], [0])


def forgotten(rec: recording.Recording) -> None:
    for _ in range(4):
        rec(ALL, Z, LABELS)


WRONG: dict[str, tuple[dict[str, Any], Callable[[recording.Recording], object], str]] = {
    "outside": ({}, lambda r: r([6], Z[:1], [0]), "index 6 is not a position among 6 examples"),
    "negative": ({}, lambda r: r([-1], Z[:1], [0]), "index -1 is not a position"),
    "width": ({}, lambda r: r([0], torch.zeros(1, 4), [0]), r"\[N, 3\], .* \[1, 4\]"),
    "flat": ({}, lambda r: r([0], torch.zeros(3), [0]), r"float32 \[3\]"),
    "whole": ({}, lambda r: r([0], torch.zeros(1, 3).long(), [0]), "int64"),
    "label": ({}, lambda r: r([0], Z[:1], [3]), r"label 3 is not a class id, expected 0 … 2"),
    "ignored": ({}, lambda r: r([0], Z[:1], [-100]), "label -100 is not a class id"),
    "soft": (
        {},
        lambda r: r([0], Z[:1], [[0.2, 0.8, 0]]),
        r"1 whole numbers as labels, .*\[1, 3\]",
    ),
    "floats": ({}, lambda r: r([0.0], Z[:1], [0]), "numbers as index, .*float64"),
    "count": ({}, lambda r: r([0, 1], Z[:1], [0]), r"1 whole numbers as index, .*\[2\]"),
    "words": ({}, lambda r: r(["a"], Z[:1], [0]), "index is a list that cannot be converted"),
    "none": ({}, lambda r: r([0], Z[:1]), "the labels are unknown"),
    "changed": ({}, changed, "example 0 has the label 1, but had 0 before"),
    "other": (
        {"labels": LABELS},
        lambda r: r([1], Z[:1], [0]),
        "but had 1 in labels",
    ),
    "nothing": ({}, lambda r: None, "nothing was recorded"),
    "early": ({}, early, "example 0 occurred again after 1 of 6 examples"),
    "twice": ({}, lambda r: r([0, 0], Z[:2], [0, 0]), "twice in one batch: pass repeats=True"),
    "missing": ({}, half, r"3 of 6 examples did not occur .*such as example 3"),
    "both": ({}, again_and_said, "when example 0 occurred again: if examples occur more than once"),
    "padded": (
        {"labels": LABELS},
        some_again_and_said,
        "when example 3 occurred again: if examples occur more than once",
    ),
    "forgotten": ({"repeats": True}, forgotten, "24 examples were recorded without a call of"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_use_is_said_in_a_sentence(case: str, tmp_path: Path) -> None:
    options, use, words = WRONG[case]
    with pytest.raises(InputError, match=words) as said:
        _used(proselflc.record(6, 3, out=tmp_path / "run", **options), use)
    assert "\n" not in str(said.value)
    if not options and case not in ("both", "changed"):
        assert not (tmp_path / "run").exists()  # a mistake leaves nothing behind


def _used(rec: recording.Recording, use: Callable[[recording.Recording], object]) -> None:
    with rec:
        use(rec)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"n": 0}, "n=? must be a whole number of at least 1, got 0"),
        ({"num_classes": 1}, "num_classes=? must be a whole number of at least 2"),
        ({"names": ["a"]}, "there are 1 names for 3 classes"),
        ({"names": ["a", "a", "b"]}, "two classes have the same name"),
        ({"ids": ["x"] * 6}, 'the id "x" more than once'),
        ({"ids": ["x"]}, "there are 1 ids for 6 examples"),
        ({"labels": [0, 1]}, r"labels has shape \[2\], expected 6"),
        ({"labels": [0, 1, 2, 0, 1, 3]}, "labels has the label 3"),
        ({"labels": list("abcabx"), "names": "abc"}, 'unknown class "x"'),
        ({"clean": [0.5] * 6}, "clean is float64"),
        ({"inputs": ["text"]}, "there are 1 inputs for 6 examples"),
        ({"data": "digits"}, "digits has 1297 training examples of 10 classes, expected 6 of 3"),
        ({"data": "digits", "labels": LABELS}, "data has its own labels"),
        ({"criterion": Distillation(0.5)}, "a teacher are not recorded"),
        ({"inputs": ["\ud800"] * 6}, r'inputs has the text "\\ud800", which is not valid Unicode'),
        ({"ids": [*"abcde", "\ud800"]}, r'has the id "\\ud800", which is not valid Unicode'),
        ({"names": ["a", "b", "\ud800"]}, r'has the class "\\ud800", which is not valid Unicode'),
        ({"resume": True}, "resume= needs out="),
        ({"resume": 3}, "resume= needs out="),
        ({"resume": 0}, "resume= needs out="),
        ({"resume": -1}, "resume=? must be a bool or a number of epochs, got -1"),
        ({"resume": 1.5}, "resume=? must be a bool or a number of epochs, got 1.5"),
        ({"resume": True, "overwrite": True}, "resume= continues .* overwrite=True replaces it"),
        ({"resume": 0, "overwrite": True}, "resume= continues .* overwrite=True replaces it"),
    ],
)
def test_what_does_not_fit_together_is_said(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words) as error:
        proselflc.record(**{"n": 6, "num_classes": 3, **options})
    assert error.value.field in (None, *options, "out")


def test_a_run_is_not_replaced_unless_that_is_said(tmp_path: Path) -> None:
    out = tmp_path / "run"
    first = rows_of(recorded(2, out=out))
    with pytest.raises(
        InputError,
        match=r"holds a finished run: pass overwrite=True to replace it",
    ) as said:
        proselflc.record(N, C, out=out)
    assert said.tb is not None  # a notebook keeps it too, and with it all that was under way
    assert rows_of(recorded(3, out=out, overwrite=True))[:2] == first
    one = proselflc.record(N, C, out=tmp_path / "used")
    with pytest.raises(InputError, match="in use by another process"):
        proselflc.record(N, C, out=tmp_path / "used")
    one.__exit__(KeyboardInterrupt, None, None)
    assert not (tmp_path / "used").exists()


def killed(out: Path, after: int) -> None:
    """Record so many steps in another process, which is then killed."""
    child = os.fork()
    if child == 0:
        rec = proselflc.record(N, C, out=out)
        for k, (_, index, logits, labels) in enumerate(steps(4)):
            if k == after:
                os.kill(os.getpid(), signal.SIGKILL)
            rec(index, logits, labels)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def test_epochs_that_are_not_there_cannot_be_resumed_after(tmp_path: Path) -> None:
    out = tmp_path / "run"
    with pytest.raises(InputError, match="run has 0 whole epochs, not 3 to resume after"):
        proselflc.record(N, C, out=out, resume=3)
    assert not out.exists()
    killed(out, after=2)
    with pytest.raises(InputError, match="run has 0 whole epochs, not 3 to resume after"):
        proselflc.record(N, C, out=out, resume=3)
    for resume in (True, 0):  # a loop that was killed in its first epoch begins again
        with proselflc.record(N, C, out=tmp_path / f"{resume}", resume=resume) as rec:
            assert rec.epoch == 0
            for _, index, logits, labels in steps(1):
                rec(index, logits, labels)


def test_whole_epochs_survive_a_kill_and_it_goes_on(tmp_path: Path) -> None:
    whole = rows_of(recorded(4))
    out = tmp_path / "run"
    killed(out, after=2)  # in the first epoch: nothing is there
    assert not (out / "config.toml").exists()
    killed(out, after=11)  # in the third one
    with pytest.raises(
        InputError, match=r"is not finished: continue it with record\(…, out='.*', resume"
    ):
        proselflc.load_run(out)
    assert [path.name for path in sorted((out / "dynamics").iterdir())] == [
        "epoch-00000.npy",
        "epoch-00001.npy",
    ]
    with proselflc.record(N, C, out=out, resume=True) as rec:
        assert rec.epoch == 2
        for epoch, index, logits, labels in steps(4):
            if epoch >= 2:
                rec(index, logits, labels)
    assert rows_of(rec) == whole
    history = proselflc.load_run(out).history
    assert [line["step"] for line in history] == [4, 8, 12, 16]
    seconds = [line["seconds"] for line in history]
    assert seconds == sorted(seconds)  # type: ignore[type-var]

    with pytest.raises(InputError, match="is finished: say after how many of its 4 epochs"):
        proselflc.record(N, C, out=out, resume=True)
    with pytest.raises(InputError, match="has 4 whole epochs, not 9"):
        proselflc.record(N, C, out=out, resume=9)
    with pytest.raises(InputError, match="begun with other examples, labels or classes"):
        proselflc.record(N, C, out=out, resume=3, labels=[0] * N)
    with proselflc.record(N, C, out=out, resume=3):
        pass  # with none more, it is finished as it is
    assert len(list(proselflc.load_run(out).dynamics)) == 3


@pytest.mark.parametrize("dies_at", ["history.jsonl", "epoch-00001.npy"])
def test_a_kill_while_an_epoch_is_written_leaves_as_many_lines_as_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dies_at: str
) -> None:
    replace = os.replace

    def die(source: Any, target: Any) -> None:
        if Path(target).name == dies_at:
            raise ZeroDivisionError
        replace(source, target)

    rec = proselflc.record(6, 3, out=tmp_path / "run")
    rec(ALL, Z, LABELS)
    with monkeypatch.context() as dying:
        dying.setattr(os, "replace", die)
        with pytest.raises(ZeroDivisionError):
            rec(ALL, Z, LABELS)
    rec.__exit__(ZeroDivisionError, None, None)
    with proselflc.record(6, 3, out=tmp_path / "run", resume=True) as rec:
        assert rec.epoch == 1
        for _ in range(2):
            rec(ALL, Z, LABELS)
    told = [(line["epoch"], line["progress"]) for line in rec.run.history]
    assert told == [(1, 1 / 3), (2, 2 / 3), (3, 1.0)]


def test_records_without_labels_are_not_thrown_away(tmp_path: Path) -> None:
    out = tmp_path / "run"
    recorded(2, out=out)
    (out / "labels.npz").unlink()
    with pytest.raises(InputError, match=r"labels\.npz"):
        proselflc.record(N, C, out=out, resume=1)
    assert len(list((out / "dynamics").iterdir())) == 2


def test_a_run_of_our_own_is_not_gone_on_with(tmp_path: Path, reviewable: Any) -> None:
    run = reviewable(tmp_path, n=N)
    with pytest.raises(InputError, match="a run that was trained, not recorded"):
        proselflc.record(N, C, out=run, resume=True)


def test_an_error_in_the_loop_leaves_whole_epochs(tmp_path: Path) -> None:
    out = tmp_path / "run"

    def fails(rec: recording.Recording) -> None:
        for epoch, index, logits, labels in steps(3):
            if epoch == 2:
                raise ZeroDivisionError
            rec(index, logits, labels)

    with pytest.raises(ZeroDivisionError):
        _used(proselflc.record(N, C, out=out), fails)
    assert len(list((out / "dynamics").iterdir())) == 2


def test_what_a_criterion_teaches_is_recorded(tmp_path: Path) -> None:
    _, given, _ = examples()
    criterion = ProSelfLC(total_steps=2 * 4)
    z = torch.randn(N, C, generator=torch.Generator().manual_seed(0)) * 4
    with proselflc.record(N, C, criterion=criterion) as rec:
        for epoch in range(2):
            for index in batches(epoch):
                criterion(z[index].requires_grad_(), given[index])
                rec(index, z[index], given[index])
    for epoch, rows in enumerate(rec.run.dynamics):
        for k, index in enumerate(batches(epoch)):
            progress = (4 * epoch + k + 1) / 8
            expected = criterion.correct(z[index], given[index], progress=progress)
            np.testing.assert_allclose(rows["trust"][index], expected.trust, rtol=2e-3, atol=1e-6)
            np.testing.assert_array_equal(rows["semantic"][index], expected.target.argmax(1))
    assert rec.run.summary["method"] == "proselflc"
    last = rec.run.history[-1]["epsilon"]
    assert last == pytest.approx(np.asarray(list(rec.run.dynamics)[1]["trust"], float).mean())
    with proselflc.record(N, C, criterion=BootSoft(0.25)) as rec:
        rec(range(N), z, given)
    assert rec.run.history[0]["epsilon"] == 0.25


def test_a_criterion_of_ones_own_is_not_called_by_the_name_of_another() -> None:
    for criterion, name in (
        (Criterion(Target(trust=Fixed(0.5))), "A recorded loop"),
        (CrossEntropy(), "cce"),
    ):
        with proselflc.record(6, 3, criterion=criterion) as rec:
            rec(ALL, Z, LABELS)
        assert rec.run.summary["method"] == name


def test_a_kill_in_the_very_beginning_is_gone_on_with(tmp_path: Path) -> None:
    """When the config was written, and the labels were not."""
    proselflc.record(6, 3, out=tmp_path, labels=LABELS).__exit__(KeyboardInterrupt, None, None)
    (tmp_path / "labels.npz").unlink()
    with proselflc.record(6, 3, out=tmp_path, labels=list("abcabc"), names="abc", resume=True) as r:
        r(ALL, Z)
    assert r.run.labels.given.tolist() == LABELS


def test_data_of_ours_shows_its_examples(tmp_path: Path) -> None:
    from proselflc.data.sources import small_images

    train = small_images.load_digits().train
    z = torch.zeros(1297, 10)
    right = train.labels.copy()
    right[0] = (right[0] + 1) % 10
    with proselflc.record(1297, 10, data="digits", out=tmp_path / "run", clean=right) as rec:
        rec(range(1297), z, train.labels)
    assert rec.run.labels.ids == train.ids
    assert rec.run.summary["realised_noise_rate"] == pytest.approx(1 / 1297)
    assert isinstance(original.inputs(rec.run), Images)
    other = [(train.labels[0] + 1) % 10]
    with pytest.raises(InputError, match=r"example 0 has the label \d, but had \d in digits"):
        proselflc.record(1297, 10, data="digits")([0], z[:1], other)


def test_inputs_are_kept_as_they_came(tmp_path: Path) -> None:
    import pandas as pd  # type: ignore[import-untyped]

    pixels = np.arange(6 * 4 * 4, dtype=np.uint8).reshape(6, 4, 4)
    frame = pd.DataFrame({"label": np.arange(6.0), "b": np.arange(6.0) ** 2})
    given: dict[str, Any] = {
        "texts": ["", "a\nb", "=1+1", "ü", "  ", "f"],
        "paths": [Path(f"{k}.png") for k in range(6)],
        "images": pixels,
        "frame": frame,
        "numbers": frame.to_numpy(),
    }
    kept = {}
    for name, inputs in given.items():
        with proselflc.record(6, 3, inputs=inputs, out=tmp_path / name) as rec:
            rec(ALL, Z, LABELS)
        kept[name] = original.inputs(proselflc.load_run(tmp_path / name))
    assert kept["texts"] == Texts(tuple(given["texts"]))
    assert kept["paths"] == ImageFiles(tuple(path.absolute() for path in given["paths"]))
    assert isinstance(kept["images"], Images)
    np.testing.assert_array_equal(kept["images"].pixels[..., 0], pixels)
    for name, columns in (("frame", ("label", "b")), ("numbers", None)):
        features = kept[name]
        assert isinstance(features, Features)
        assert features.columns == columns
        np.testing.assert_array_equal(features.values, frame.to_numpy())


def test_kept_inputs_that_are_damaged_are_named(tmp_path: Path, resealed: Any) -> None:
    import pandas as pd

    with proselflc.record(6, 3, inputs=np.zeros((6, 2)), out=tmp_path / "run") as rec:
        rec(ALL, Z, LABELS)
    file = tmp_path / "run" / "inputs.npz"
    for arrays, words in (
        ({"x": np.zeros((5, 2), np.float32)}, "keeps 5 inputs for 6 examples"),
        ({"x": np.zeros(6)}, "holds neither images nor numbers"),
        ({"x": np.zeros((6, 2), np.float32), "columns": np.array(["a"])}, "1 names for 2 columns"),
    ):
        np.savez(file, **arrays)
        resealed(tmp_path / "run")
        with pytest.raises(InputError, match=words):
            original.inputs(rec.run)
    table = tmp_path / "run" / "inputs.parquet"
    pd.DataFrame({"text": range(6)}).to_parquet(table)
    resealed(tmp_path / "run")
    with pytest.raises(InputError, match=r"inputs\.parquet holds neither texts nor paths"):
        original.inputs(rec.run)
    table.write_bytes(b"nothing")
    resealed(tmp_path / "run")
    with pytest.raises(InputError, match=r"cannot read the Parquet file .*inputs\.parquet"):
        original.inputs(rec.run)


LOST = int(list(batches(1))[1][0])  # an example that the second process has in the second epoch


def one_of_two(rank: int, folder: Path) -> None:
    """Every other batch is this process's, and the sampler fills up the last one."""
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder / 'store'}", rank=rank, world_size=2
    )
    with proselflc.record(N, C, out=folder / "run", repeats=True) as rec:
        last = 0
        for k, (epoch, index, logits, labels) in enumerate(steps(3, lost=LOST)):
            if epoch != last:
                rec.end_epoch()
                last = epoch
            if k % 2 == rank:
                rec(index, logits, labels)
        rec.end_epoch()
    assert len(proselflc.load_run(folder / "run").examples) == N
    torch.distributed.destroy_process_group()


@pytest.mark.filterwarnings("ignore:logits in epoch")
def test_two_processes_record_together(tmp_path: Path) -> None:
    children = []
    for rank in range(2):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                one_of_two(rank, tmp_path)
                code = 0
            finally:
                os._exit(code)
        children.append(child)
    for child in children:
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    with proselflc.record(N, C) as expected:
        for _, index, logits, labels in steps(3, lost=LOST):
            expected(index, logits, labels)
    run = proselflc.load_run(tmp_path / "run")
    assert [np.isnan(rows["p_given"][LOST]) for rows in run.dynamics] == [False, True, True]
    assert [np.asarray(epoch).tobytes() for epoch in run.dynamics] == rows_of(expected)
    assert run.examples.equals(expected.run.examples)
    assert [line["step"] for line in run.history] == [4, 8, 12]


def test_processes_that_are_not_together_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trainers bring them together later than torchrun starts them, and part them earlier."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(InputError, match="need one directory"):
        proselflc.record(6, 3)
    rec = proselflc.record(6, 3, out=tmp_path / "run")
    half(rec)
    with pytest.raises(InputError, match="no single one of several processes"):
        half(rec)
    with pytest.raises(InputError, match=r"records of 2 processes"):
        rec.end_epoch()
    monkeypatch.setenv("RANK", "1")
    proselflc.record(6, 3, out=tmp_path / "run")  # it does not touch the directory


def test_links_lead_to_the_images_of_a_recording(tmp_path: Path, program: Any) -> None:
    paths = [tmp_path / f"{k}.png" for k in range(6)]
    for path in paths:
        Image.new("RGB", (4, 4)).save(path)
    with proselflc.record(6, 3, out=tmp_path / "run", names="abc", inputs=paths) as rec:
        rec(ALL, 5 * torch.eye(3)[LABELS], LABELS)
    done = program("export", tmp_path / "run", "--links", tmp_path / "links", code=2)
    assert "trained for 1 epoch, but an audit needs at least 3" in done.stderr
    program("export", tmp_path / "run", "--links", tmp_path / "links", "--force")
    links = sorted(path for path in (tmp_path / "links").rglob("*") if path.is_symlink())
    assert [(one.parent.name, one.resolve()) for one in links] == [
        ("abc"[k % 3], paths[k]) for k in (0, 3, 1, 4, 2, 5)
    ]


def test_a_recording_leaves_gradients_alone() -> None:
    z = torch.zeros(6, 3, requires_grad=True)
    loss = CrossEntropy()(z, torch.tensor(LABELS))
    with proselflc.record(6, 3) as rec:
        rec(ALL, z, LABELS)
    loss.backward()
    expected = torch.full((6, 3), 1 / 18)
    expected[range(6), LABELS] -= 1 / 6
    torch.testing.assert_close(z.grad, expected)


def test_numbers_may_be_numpys_and_an_end_that_failed_is_no_end() -> None:
    numbers: tuple[Any, Any] = np.int64(6), np.int64(3)
    rec = proselflc.record(*numbers)
    for _ in range(2):
        with pytest.raises(InputError, match="nothing was recorded"):
            rec.finish()
    rec(ALL, Z, LABELS)
    assert len(rec.finish().examples) == 6


def test_one_process_of_a_group_needs_no_directory(tmp_path: Path) -> None:
    """As torchrun starts it for one device."""
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1
    )
    try:
        with proselflc.record(6, 3) as rec:
            rec(ALL, Z, LABELS)
    finally:
        torch.distributed.destroy_process_group()
    assert len(rec.run.examples) == 6


def test_who_announces_the_ends_of_epochs_may_draw_as_often_as_he_likes() -> None:
    """As trainers do whose sampler draws with replacement, more than there are."""
    with proselflc.record(6, 3) as rec:
        rec.expect_end_epoch()
        for _ in range(2):
            for _ in range(4):
                rec(ALL, Z, LABELS)
            rec.end_epoch()
    assert rec.epoch == 2


@pytest.mark.parametrize(("epochs", "warned"), [(1, 1), (2, 1), (3, 0)])
def test_too_few_epochs_are_told_in_the_words_of_the_audit(
    epochs: int, warned: int, tmp_path: Path, program: Any
) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with proselflc.record(6, 3, out=tmp_path / "run") as rec:
            for _ in range(epochs):
                rec(ALL, Z, LABELS)
    assert len(caught) == warned
    for one in caught:
        assert one.filename == __file__
        assert f"{one.message}.\n" in program("audit", tmp_path / "run").stdout


def test_it_can_be_used_without_a_with_block() -> None:
    rec = proselflc.record(6, 3)
    rec(ALL, Z, LABELS)
    run = rec.finish()
    assert rec.finish() is run
    assert len(run.examples) == 6
    assert re.fullmatch(r"proselflc-.*", run.path.name)
    with pytest.raises(InputError, match="the recording is finished"):
        rec(ALL, Z, LABELS)
