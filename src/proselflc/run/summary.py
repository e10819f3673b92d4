"""What a run leaves at its end: a model for predictions, the audit, and a summary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from safetensors.torch import save
from torch import nn

from proselflc.auditing import suspects
from proselflc.auditing.audit import Audit
from proselflc.auditing.detection import detection, label_accuracy
from proselflc.auditing.examples import write_parquet
from proselflc.auditing.records import Records
from proselflc.data.labels.labels import Labels
from proselflc.files.manifest import Written
from proselflc.files.whole import whole_file
from proselflc.run.prepare import PreparedRun
from proselflc.training.observations import Epochs
from proselflc.training.run_directory import Json, RunDirectory
from proselflc.training.strategy import Strategy


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
) -> None:
    """Audit the labels, and write examples, audit, evaluation, summary and last the manifest.

    Args:
        written: the files of the run, trained or recorded, so far.
        measured: measures on test and validation examples, as in `evaluation.json`.
        facts: what the method adds to the summary, such as an estimate.
        notes: sentences about estimates that the reader should know.
    """
    table, audit = suspects.audit_labels(
        labels, Records(Epochs(directory.dynamics, written.checked))
    )
    write_parquet(table, directory.examples)
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


def label_summary(labels: Labels, table: Any, audit: Audit) -> Json:
    """Return what a summary says about labels, from what `suspects.audit_labels` returns."""
    before, after = label_accuracy(table)
    found = None
    if labels.clean is not None:
        suspect, quality = (table[name].to_numpy() for name in ("is_suspect", "quality"))
        found = asdict(detection(suspect, quality, labels.flipped))
    return {
        "label_accuracy_before": before,
        "label_accuracy_after": after,
        "detection": found,
        "estimated_noise_rate": audit.estimated_noise_rate,
        "realised_noise_rate": audit.realised_noise_rate,
    }


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


def write_model(directory: RunDirectory, prepared: PreparedRun, module: nn.Module) -> None:
    """Write the weights, and what else a prediction needs."""
    state = {
        name: tensor.detach().cpu().clone().contiguous()
        for name, tensor in module.state_dict().items()
    }
    with whole_file(directory.weights) as file:
        file.write(save(state))
    values = prepared.labels.values
    directory.write_json(
        directory.model,
        {
            "model": prepared.config.model,
            "num_classes": prepared.dataset.num_classes,
            "names": list(prepared.dataset.names),
            "preprocessing": prepared.preprocessing.to_json(),
            **({} if values is None else {"label_type": values.to_json()}),
            "averaged": prepared.config.recipe.ema is not None,
            "skipped": [asdict(example) for example in prepared.dataset.skipped],
        },
    )
