"""What a run does beside training: refuse mistakes, stop for an observer, measure, and track."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import accelerate.tracking
import pytest
from accelerate.tracking import GeneralTracker

from proselflc.cli import app as cli
from proselflc.data.request import Request
from proselflc.run.config import Config, OutputOptions
from proselflc.run.observers import Meter
from proselflc.run.summary import best_validation
from proselflc.run.train import train
from proselflc.terminal import Interrupted, Silent
from proselflc.training.loop import Observer, StepResult
from proselflc.training.recipe import Recipe

DIGITS = ("train", "--data", "digits", "--model", "mlp", "--quiet")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ("--epochs 0", "--epochs must be at least 1, got 0"),
        ("--epochs 1.5", "--epochs"),
        ("--epochs 1 --steps 1", "both 1 epochs and 1 steps were asked for"),
        ("--lr nan", "--lr must be a positive number, got nan"),
        ("--lr -1", "--lr must be a positive number, got -1.0"),
        ("--lr abc", "--lr"),
        ("--batch-size 5000", "lower --batch-size"),
        ("--method proselfc", 'did you mean "proselflc"?'),
        ("--method cce --method.epsilon 0.1", "method cce has no --method.epsilon"),
        ("--method boot_soft --method.epsilon 2", "between 0 and 1, got 2.0"),
        ("--optimizer adam", 'Did you mean "adamw"?'),
        ("--schedule cosin", 'Did you mean "cosine"?'),
        ("--noise nonsense", 'unknown kind of noise "nonsense"'),
        ("--trusted nonsense", "--trusted nonsense is neither"),
        ("--config nowhere.toml", "there is no file nowhere.toml"),
        ("--tracker tensorbord", 'unknown tracker "tensorbord"; did you mean "tensorboard"?'),
        ("--tracker all", 'unknown tracker "all"'),
        ("--nonsense 1", "--nonsense"),
        (
            "--resume --overwrite",
            "--resume continues what is in --out, and",
        ),
    ],
)
def test_a_mistake_gets_one_sentence(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], options: str, reason: str
) -> None:
    assert cli.run([*DIGITS, *options.split(), "--out", str(tmp_path / "run")]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert reason in err
    assert not (tmp_path / "run").exists()


def test_resume_needs_to_know_what(capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.run([*DIGITS, "--resume"]) == 2
    assert capfd.readouterr().err == ("--resume needs --out, the directory to continue\n")


def test_a_tracker_that_is_not_installed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accelerate.tracking, "get_available_trackers", list)
    for name, extra in (("tensorboard", '"proselflc[tensorboard]"'), ("wandb", "wandb")):
        assert cli.run([*DIGITS, "--tracker", name, "--out", str(tmp_path / "run")]) == 2
        assert capfd.readouterr().err == (
            f"the tracker {name} is not installed: pip install {extra}\n"
        )
    assert not (tmp_path / "run").exists()


def test_tensorboard_writes_into_the_run(tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    out = tmp_path / "run"
    assert cli.run([*DIGITS, "--epochs", "2", "--tracker", "tensorboard", "--out", str(out)]) == 0
    events = [path for path in out.rglob("events.*") if path.parent.name == "run"]
    assert len(events) == 1
    assert events[0].is_relative_to(out / "tracking")
    read = accumulator.EventAccumulator(str(events[0].parent))
    read.Reload()
    assert [one.step for one in read.Scalars("test_accuracy")] == [11, 22]
    assert "val_accuracy" not in read.Tags()["scalars"]
    assert cli.run([*DIGITS, "--steps", "1", "--overwrite", "--out", str(out)]) == 0
    assert not (out / "tracking").exists()


class StopAt(Observer):
    """Asks for a stop after a step, and keeps the number of the last one."""

    def __init__(self, step: int) -> None:
        self.at, self.last = step, 0

    def after_step(self, result: StepResult) -> None:
        self.last = result.step
        if result.step == self.at:
            self.stop_reason = "enough for now"


@pytest.mark.parametrize(("step", "method"), [(5, "proselflc"), (11, "elr"), (12, "joint_soft")])
def test_a_run_that_an_observer_stopped_resumes_and_ends_with_the_same_bytes(
    step: int, method: str, tmp_path: Path, assert_same: Callable[[Path, Path], None]
) -> None:
    config = Config(
        request=Request(data="digits"),
        noise="pair:0.4",
        method=method,
        model="mlp",
        recipe=Recipe(epochs=3),
        eval_epochs=1,
    )
    whole, out = (tmp_path / name for name in ("whole", "stopped"))
    display, observer = Silent(), StopAt(step)
    train(config, OutputOptions(whole), display)
    assert train(config, OutputOptions(out), display, observers=[observer]) == out
    assert observer.last == step + 1  # every process learns of the stop in the next step
    assert [int(path.name[:10]) for path in (out / "checkpoints").iterdir()] == [step + 1]
    assert not (out / "summary.json").exists()
    assert train(config, OutputOptions(out, resume=True), display) == out
    assert_same(whole, out)


def test_a_signal_counts_more_than_an_observer(tmp_path: Path) -> None:
    class Interrupt(StopAt):
        def after_step(self, result: StepResult) -> None:
            super().after_step(result)
            if self.stop_reason is not None and result.step == self.at:
                signal.raise_signal(signal.SIGINT)

    config = Config(request=Request(data="digits"), model="mlp", recipe=Recipe(epochs=2))
    with pytest.raises(Interrupted):
        train(config, OutputOptions(tmp_path / "run"), Silent(), observers=[Interrupt(3)])


class Notebook(GeneralTracker):  # type: ignore[misc]
    """A third-party tracker."""

    name = "notebook"
    requires_logging_directory = False
    calls: list[Any] = []  # noqa: RUF012

    def __init__(self, run_name: str, **more: Any) -> None:
        super().__init__()
        self.calls.append(run_name)

    @property
    def tracker(self) -> None:
        return None

    def store_init_configuration(self, values: dict[str, Any]) -> None:
        if values["seed"] == 13:
            raise ValueError("unlucky\nnumber")
        self.calls.append(values["epochs"])

    def log(self, values: dict[str, Any], step: int | None = None, **more: Any) -> None:
        self.calls.append((step, sorted(values)))

    def finish(self) -> None:
        self.calls.append("end")


def test_other_trackers_are_found_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(accelerate.tracking.LOGGER_TYPE_TO_CLASS, "notebook", Notebook)
    monkeypatch.setattr(Notebook, "calls", [])
    options = [*DIGITS, "--epochs", "1", "--tracker", "notebook", "--eval-epochs", "1"]
    assert cli.run([*options, "--out", str(tmp_path / "mine")]) == 0
    name, epochs, (step, values), end = Notebook.calls
    assert (name, epochs, step, end) == ("mine", 1, 11, "end")
    assert "train_loss" in values
    capfd.readouterr()
    assert cli.run([*options, "--seed", "13", "--out", str(tmp_path / "other")]) == 2
    assert capfd.readouterr().err == "the tracker notebook cannot be started: unlucky number\n"


def test_validation_chooses_the_first_of_equals() -> None:
    def line(step: int, validation: float | None, test: float | None) -> dict[str, object]:
        return {"step": step, "val_accuracy": validation, "test_accuracy": test}

    assert best_validation([]) is None
    assert best_validation([line(1, None, 0.9)]) is None
    assert best_validation([line(1, 0.5, 0.1), line(2, 0.7, 0.2), line(3, 0.7, 0.9)]) == 0.2
    assert best_validation([line(1, 0.5, None)]) is None


def test_the_meter_counts_between_points_across_a_resume() -> None:
    meter = Meter()
    meter.start()
    meter.examples, meter.loss_sum = 10, 5.0
    other = Meter()
    other.restore(meter.facts())
    other.start()
    assert other.loss == meter.loss == 0.5
    assert other.seconds >= meter.facts()["seconds"] - 1  # type: ignore[operator]
    other.pause()
    stopped = other.seconds
    assert other.seconds == stopped
    other.after_evaluation({})
    assert other.loss is None
    assert other.examples == 0
