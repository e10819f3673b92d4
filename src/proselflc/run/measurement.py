"""What is measured of a model during and after training, over all processes."""

from __future__ import annotations

from pathlib import Path

import torch

from proselflc.auditing import evaluation
from proselflc.auditing.fitting import Fitting, FittingPoint
from proselflc.data.dataset import Dataset, Part
from proselflc.run.history import history_line
from proselflc.run.observers import Meter
from proselflc.run.prepare import PreparedRun
from proselflc.training import processes
from proselflc.training.inference import Logits, logits_of_all, predict_batches
from proselflc.training.loop import DivergenceError, StepResult, Training
from proselflc.training.run_directory import Json
from proselflc.training.strategy import CorrectedBatch
from proselflc.wording import option


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


def logits(
    prepared: PreparedRun, training: Training, part: Part | None, folder: Path
) -> Logits | None:
    """Return the logits [n, C] of a part of the data, or None if there is no such part.

    Args:
        folder: the place of a temporary file for logits that do not fit into memory.
    """
    if part is None:
        return None
    loader, C = prepared.for_evaluation(part), prepared.dataset.num_classes
    model, accelerator = training.evaluated, training.accelerator
    return logits_of_all(model, loader, len(part), C, accelerator, folder)


def final_measures(dataset: Dataset, test: Logits | None, validation: Logits | None) -> Json:
    """Return what `evaluation.json` holds: all measures on the test and validation parts."""
    result: Json = {}
    if validation is not None:
        assert dataset.validation is not None
        y = torch.from_numpy(dataset.validation.labels)
        measures = evaluation.evaluate(validation, y, dataset.num_classes).to_json()
        result["validation"] = {
            **measures,
            "temperature": evaluation.fitted_temperature(validation, y),
        }
    if test is not None:
        assert dataset.test is not None
        y = torch.from_numpy(dataset.test.labels)
        measures = evaluation.evaluate(test, y, dataset.num_classes).to_json()
        result["test"] = {**measures, "calibration": evaluation.paper_calibration(test, y)}
    return result
