"""What is measured of a run: lines of its history, and what it leaves at its end.

At its end a run has a model for predictions, an evaluation, the audit, and a summary.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from safetensors.torch import save
from torch import Tensor, nn

from proselflc.auditing import evaluation, verdict, witness
from proselflc.auditing.audit import Audit
from proselflc.auditing.caveats import AuditWarning
from proselflc.auditing.detection import detection, label_accuracy
from proselflc.auditing.examples import write_parquet
from proselflc.auditing.fitting import Fitting, FittingPoint
from proselflc.auditing.records import HeldOut, Records
from proselflc.auditing.verdict import Compared
from proselflc.data.batches import Batch
from proselflc.data.corrections import Corrections
from proselflc.data.dataset import Dataset, Part
from proselflc.data.labels import Labels
from proselflc.data.preprocessing import Preprocessing
from proselflc.files.manifest import Written
from proselflc.files.regular import whole_file
from proselflc.run.config import Config
from proselflc.run.corrections import followed
from proselflc.run.observers import Meter
from proselflc.run.prepare import PreparedRun
from proselflc.run.unlabelled import with_unlabelled
from proselflc.training import processes
from proselflc.training.inference import StoredLogits, logits_of_all, predict_batches
from proselflc.training.loop import DivergenceError, StepResult, Training
from proselflc.training.observations import Epochs
from proselflc.training.run_directory import Json, RunDirectory
from proselflc.training.strategy import CorrectedBatch, Strategy
from proselflc.wording import option

if TYPE_CHECKING:
    import pyarrow as pa


class LearnedRun(Protocol):
    """A run that has learned, as far as its model is written."""

    @property
    def config(self) -> Config: ...

    @property
    def dataset(self) -> Dataset: ...

    @property
    def labels(self) -> Labels: ...

    @property
    def preprocessing(self) -> Preprocessing: ...


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
    of_method: Mapping[str, float | None] | None = None,
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
        of_method: what the method adds.
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
        **(of_method or {}),
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
        of_method=training.strategy.measures(),
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
    for batch, z in _predicted_sample(prepared, training):
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


def _predicted_sample(prepared: PreparedRun, training: Training) -> Iterator[tuple[Batch, Tensor]]:
    """Yield the batches of this process's sample, which may be empty, with their logits."""
    if len(prepared.sample):
        loader = prepared.for_evaluation(
            prepared.dataset.train.take(prepared.sample), is_share=True
        )
        yield from predict_batches(training.evaluated, loader, training.accelerator.device)


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
        result[name] = measures_of(name, z, torch.from_numpy(part.labels), C)
    return result


def measures_of(name: str, logits: Tensor | StoredLogits, labels: Tensor, num_classes: int) -> Json:
    """Return all measures of logits [n, C] on the "test" or the "validation" part."""
    measures = evaluation.evaluate(logits, labels, num_classes).to_json()
    if name == "test":
        return {**measures, "calibration": evaluation.paper_calibration(logits, labels)}
    return {**measures, "temperature": evaluation.fitted_temperature(logits, labels)}


def write_results(
    directory: RunDirectory,
    written: Written,
    labels: Labels,
    history: list[Json],
    *,
    method: str,
    data: str | None,
    seed: int | None,
    steps: int,
    seconds: object,
    measured: Mapping[str, Any],
    facts: Mapping[str, object],
    notes: Sequence[str] = (),
    warnings: Sequence[AuditWarning] = (),
    compared: Compared | None = None,
    held_out: HeldOut | None = None,
) -> None:
    """Audit the labels, and write examples, audit, evaluation, summary and last the manifest.

    Args:
        written: the files of the run, trained or recorded, so far.
        measured: measures on test and validation examples, as in `evaluation.json`.
        facts: what the method adds to the summary, such as an estimate.
        notes: sentences about estimates that the reader should know.
        warnings: reasons to be careful with the audit that are known already.
        compared: what the inputs say about the labels.
        held_out: predictions by models that were not trained on the examples, or None.
    """
    compared = compared or Compared()
    if compared.witness is not None:
        witness.write(directory, compared.witness)
    observed = Epochs(directory.dynamics, written.checked)
    records = Records(observed, held_out, compared.witness)
    table, audit = verdict.audit_labels(
        labels, records, tuple(warnings), examination=compared.examination
    )
    write_parquet(with_unlabelled(table, labels, directory), directory.examples)
    audit.save(directory)
    directory.write_json(directory.evaluation, measured)
    last = history[-1] if history else {}
    test = measured.get("test", {})
    summary: Json = {
        "method": method,
        "data": data,
        "noise": labels.generator,
        "seed": seed,
        "steps": steps,
        "test_accuracy": test.get("accuracy"),
        "test_accuracy_at_best_validation": best_validation(history),
        "correct_fitting": last.get("correct_fitting"),
        "wrong_fitting": last.get("wrong_fitting"),
        "semantic_correction": last.get("semantic_correction"),
        "ece": test.get("ece"),
        "nll": test.get("nll"),
        "brier": test.get("brier"),
        **label_summary(labels, table, audit),
        **facts,
        **({"notes": list(notes)} if notes else {}),
        "seconds": seconds,
        "fingerprint": labels.fingerprint,
    }
    directory.write_json(directory.summary, summary)
    written.seal(directory.listed())


def label_summary(labels: Labels, table: pa.Table, audit: Audit) -> Json:
    """Return what a summary says about labels, from what `verdict.audit_labels` returns."""
    before, by_suspects = label_accuracy(table)
    found = None
    if labels.clean is not None:
        suspect, quality = (table[name].to_numpy() for name in ("is_suspect", "quality"))
        found = asdict(detection(suspect, quality, labels.flipped))
    return {
        "label_accuracy_before": before,
        "label_accuracy_after": _accuracy_after_changes(table),
        "label_accuracy_after_suspects": by_suspects,
        "detection": found,
        "estimated_noise_rate": audit.estimated_noise_rate,
        "noise_low": audit.noise_low,
        "noise_high": audit.noise_high,
        "realised_noise_rate": audit.realised_noise_rate,
        "suspects": audit.suspects,
        **({"unlabelled": audit.unlabelled} if audit.unlabelled else {}),
        "changes": audit.changes,
        "expected_precision": audit.expected_precision,
        "judge": None if audit.judge is None else asdict(audit.judge),
        "warnings": [asdict(warning) for warning in audit.warnings],
    }


def _accuracy_after_changes(table: pa.Table) -> float | None:
    """Return the share of labels that are right after the changes of the audit; None if unknown."""
    if "clean_label" not in table.column_names or len(table) == 0:
        return None
    given, suggested, clean = (
        np.asarray(table[name].to_numpy())
        for name in ("given_label", "suggested_label", "clean_label")
    )
    labels = np.where(followed(table, Corrections()), suggested, given)
    return float((labels == clean).mean())


def best_validation(history: list[Json]) -> float | None:
    """Return the test accuracy where validation accuracy was best, at the first of equals."""
    lines = [line for line in history if line.get("val_accuracy") is not None]
    if not lines:
        return None
    best = max(lines, key=lambda line: float(str(line["val_accuracy"])))
    accuracy = best["test_accuracy"]
    return None if accuracy is None else float(str(accuracy))


def write_transition(directory: RunDirectory, strategy: Strategy) -> None:
    """Write the transition matrix of a method that has one."""
    T = strategy.transition()
    if T is not None:
        with whole_file(directory.transition) as file:
            array = T.detach().double().cpu().numpy()
            np.lib.format.write_array(file, array, allow_pickle=False)


def write_model(directory: RunDirectory, learned: LearnedRun, module: nn.Module | None) -> None:
    """Write the weights, and what else a prediction needs; without a module the latter alone."""
    if module is not None:
        state = {
            name: tensor.detach().cpu().clone().contiguous()
            for name, tensor in module.state_dict().items()
        }
        with whole_file(directory.weights) as file:
            file.write(save(state))
    values = learned.labels.values
    directory.write_json(
        directory.model,
        {
            "model": learned.config.model,
            "num_classes": learned.dataset.num_classes,
            "names": list(learned.dataset.names),
            "preprocessing": learned.preprocessing.to_json(),
            **({} if values is None else {"label_type": values.to_json()}),
            "averaged": learned.config.recipe.ema is not None,
            "skipped": [asdict(example) for example in learned.dataset.skipped],
        },
    )
