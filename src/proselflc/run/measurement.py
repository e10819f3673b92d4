"""What is measured of a model during and after training, and a line of the history."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import torch

from proselflc.auditing import evaluation
from proselflc.auditing.fitting import Fitting, FittingPoint
from proselflc.data.dataset import Part
from proselflc.run.observers import Meter
from proselflc.run.prepare import PreparedRun
from proselflc.training import processes
from proselflc.training.inference import logits_of_all, predict_batches
from proselflc.training.loop import DivergenceError, StepResult, Training
from proselflc.training.run_directory import Json
from proselflc.training.strategy import CorrectedBatch
from proselflc.wording import option


def history_line(
    fitting: FittingPoint,
    *,
    step: int,
    epoch: float,
    seconds: float,
    images_per_second: float | None,
    progress: float | None = None,
    stage: str | None = None,
    train_loss: float | None = None,
    test_accuracy: float | None = None,
    val_accuracy: float | None = None,
    lr: float | None = None,
    g: float | None = None,
) -> Json:
    """Return a line of the history, of a trained or a recorded run.

    A new measure of the training examples is a field of `FittingPoint`, and appears here by itself.

    Args:
        epoch: number of completed epochs, which need not be whole.
        seconds: time spent training, without evaluations.
        images_per_second: examples per second since the last line.
        progress: t/Γ of the whole run; None if Γ is unknown.
        train_loss: mean loss since the last line.
        g: g(t), for a method with a global trust.
    """
    measures = asdict(fitting)
    return {
        "step": step,
        "epoch": epoch,
        "progress": progress,
        "stage": stage,
        "train_loss": train_loss,
        "train_accuracy": measures.pop("train_accuracy"),
        "test_accuracy": test_accuracy,
        "val_accuracy": val_accuracy,
        "lr": lr,
        "g": g,
        **measures,
        "seconds": round(seconds, 3),
        "images_per_second": images_per_second,
    }


def evaluate(prepared: PreparedRun, training: Training, meter: Meter, result: StepResult) -> Json:
    """Measure the model after a step and return a line of the history."""
    meter.pause()
    training.share_buffers()
    return history_line(
        fitting(prepared, training),
        step=result.step,
        epoch=round(result.step / len(prepared.train), 6),
        progress=result.step / prepared.total_steps,
        stage=training.span.stage.name if len(training.spans) > 1 else None,
        train_loss=meter.loss,
        test_accuracy=accuracy(prepared, training, prepared.dataset.test),
        val_accuracy=accuracy(prepared, training, prepared.dataset.validation),
        lr=result.lr,
        g=training.strategy.global_trust(training.progress),
        seconds=meter.seconds,
        images_per_second=meter.speed,
    )


def fitting(prepared: PreparedRun, training: Training) -> FittingPoint:
    """Measure what the paper plots, on the training examples with test-time transforms.

    ε is that of `Strategy.taught`, as in the records of the last step.
    """
    clean = prepared.labels.clean
    truth = None if clean is None else torch.from_numpy(clean)
    C = prepared.dataset.num_classes
    measures = Fitting(C, clean is not None)
    sample = torch.from_numpy(prepared.sample)
    loader = prepared.for_evaluation(prepared.dataset.train.take(prepared.sample))
    for batch, z in predict_batches(training.evaluated, loader, training.accelerator.device):
        batch = batch._replace(index=sample[batch.index])
        corrected = CorrectedBatch(training.strategy, z, batch, training.progress)
        measures.add_measured(
            corrected.evidence.log_p.argmax(-1).cpu(),
            corrected.entropy.cpu(),
            batch.y,
            None if truth is None else truth[batch.index],
            corrected.trust.cpu(),
        )
    sums = processes.summed(training.accelerator, measures.sums())
    if not bool(sums.isfinite().all()):
        raise DivergenceError(
            f"the model's outputs are not finite after step {training.step}: try a lower "
            f"{option('lr')}, a {option('warmup')} of some hundred steps, or {option('clip', 1)}"
        )
    return Fitting.from_sums(sums, num_classes=C, clean_known=clean is not None).result()


def accuracy(prepared: PreparedRun, training: Training, part: Part | None) -> float | None:
    """Return the accuracy on a part of the data, or None if there is no such part."""
    if part is None:
        return None
    right = torch.zeros(1, dtype=torch.float64)
    loader = prepared.for_evaluation(part)
    for batch, z in predict_batches(training.evaluated, loader, training.accelerator.device):
        right += (z.argmax(1).cpu() == batch.y).sum()
    return float(processes.summed(training.accelerator, right)) / len(part)


def final_measures(prepared: PreparedRun, training: Training, folder: Path) -> Json:
    """Return what `evaluation.json` holds: all measures on the test and validation parts.

    All processes compute the logits, and the main one alone measures them. Logits that do not fit
    into memory are in a temporary file in the folder.
    """
    result: Json = {}
    dataset, C = prepared.dataset, prepared.dataset.num_classes
    for name, part in (("validation", dataset.validation), ("test", dataset.test)):
        if part is None:
            continue
        batches, accelerator = prepared.for_evaluation(part), training.accelerator
        z = logits_of_all(training.evaluated, batches, len(part), C, accelerator, folder)
        if not accelerator.is_main_process:
            continue
        y = torch.from_numpy(part.labels)
        measures = evaluation.evaluate(z, y, C).to_json()
        if part is dataset.test:
            result[name] = {**measures, "calibration": evaluation.paper_calibration(z, y)}
        else:
            result[name] = {**measures, "temperature": evaluation.fitted_temperature(z, y)}
    return result
