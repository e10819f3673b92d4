"""What is measured of a model while and after it is trained, over all processes."""

from __future__ import annotations

from pathlib import Path

import torch

from proselflc.auditing import calibration, evaluation
from proselflc.auditing.fitting import Fitting, FittingPoint
from proselflc.data.dataset import Dataset, Part
from proselflc.run.prepare import PreparedRun
from proselflc.training import processes
from proselflc.training.fit import DivergenceError, Training
from proselflc.training.inference import answers, logits_of_all
from proselflc.training.run_directory import Json
from proselflc.training.stored_logits import Logits


def fitting(prepared: PreparedRun, training: Training) -> FittingPoint:
    """Measure what the paper plots, on the training examples with test-time transforms.

    ε is what the strategy teaches with, as in the records of the step that was just taken.
    """
    clean = prepared.labels.clean
    truth = None if clean is None else torch.from_numpy(clean)
    C = prepared.dataset.num_classes
    sums_of = Fitting(C, clean is not None)
    sample = torch.from_numpy(prepared.sample)
    part = prepared.dataset.train.take(prepared.sample)
    loader = prepared.for_evaluation(part)
    for batch, logits in answers(training.evaluated, loader, training.accelerator.device):
        batch = batch._replace(index=sample[batch.index])
        e = training.strategy.evidence(logits, batch, training.progress)
        _, trust = training.strategy.taught(e, batch)
        sums_of.add(
            torch.log_softmax(logits, -1).cpu(),
            batch.y,
            None if truth is None else truth[batch.index],
            trust.cpu(),
        )
    sums = processes.summed(training.accelerator, sums_of.sums())
    if not bool(sums.isfinite().all()):
        raise DivergenceError(
            f"after step {training.step} the model's outputs are not finite numbers: try a "
            "lower --lr, a --warmup of some hundred steps, or --clip 1"
        )
    return Fitting.from_sums(sums, num_classes=C, clean_known=clean is not None).result()


def accuracy(prepared: PreparedRun, training: Training, part: Part | None) -> float | None:
    """The share of right predictions on a part; None where there is none."""
    if part is None:
        return None
    right = torch.zeros(1, dtype=torch.float64)
    loader = prepared.for_evaluation(part)
    for batch, logits in answers(training.evaluated, loader, training.accelerator.device):
        right += (logits.argmax(1).cpu() == batch.y).sum()
    return float(processes.summed(training.accelerator, right)) / len(part)


def logits(
    prepared: PreparedRun, training: Training, part: Part | None, folder: Path
) -> Logits | None:
    """[n, C] of a part, from all processes; None where there is none.

    Args:
        prepared, training: of the run.
        part: of its data.
        folder: for a temporary file, where they are too many for memory.
    """
    if part is None:
        return None
    loader, C = prepared.for_evaluation(part), prepared.dataset.num_classes
    model, accelerator = training.evaluated, training.accelerator
    return logits_of_all(model, loader, len(part), C, accelerator, folder)


def everything(dataset: Dataset, test: Logits | None, validation: Logits | None) -> Json:
    """Everything that is measured on test and validation examples."""
    result: Json = {}
    if validation is not None:
        assert dataset.validation is not None
        y = torch.from_numpy(dataset.validation.labels)
        measures = evaluation.evaluate(validation, y, dataset.num_classes).to_json()
        result["validation"] = {
            **measures,
            "temperature": calibration.fitted_temperature(validation, y),
        }
    if test is not None:
        assert dataset.test is not None
        y = torch.from_numpy(dataset.test.labels)
        measures = evaluation.evaluate(test, y, dataset.num_classes).to_json()
        result["test"] = {**measures, "calibration": calibration.paper_calibration(test, y)}
    return result
