"""What a run leaves at its end: a model to predict with, and the run in a few numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from safetensors.torch import save
from torch import nn

from proselflc.auditing.audit import Audit
from proselflc.auditing.detection import detection, label_accuracy
from proselflc.data.labels.labels import Labels
from proselflc.files.whole import whole_file
from proselflc.run.prepare import PreparedRun
from proselflc.training.run_directory import Json, RunDirectory
from proselflc.training.strategy import Strategy


def summary(
    prepared: PreparedRun,
    history: list[Json],
    measured: Mapping[str, Any],
    table: Any,
    audit: Audit,
    *,
    steps: int,
    seconds: float,
    notes: Sequence[str] = (),
) -> Json:
    """The run in a few numbers, named as in the interface.

    Args:
        prepared: of the run.
        history: its evaluation points.
        measured: as `measurement.everything` gives it.
        table, audit: as `suspects.examine` makes them.
        steps: that were taken.
        seconds: that training took.
        notes: what the method wants to be known of its estimates, in sentences.
    """
    last = history[-1] if history else {}
    test = measured.get("test", {})
    return {
        "method": prepared.config.method,
        "data": prepared.dataset.name,
        "noise": prepared.labels.generator,
        "seed": prepared.config.recipe.seed,
        "steps": steps,
        "test_accuracy": test.get("accuracy"),
        "test_accuracy_at_best_validation": best_validation(history),
        "correct_fitting": last.get("correct_fitting"),
        "wrong_fitting": last.get("wrong_fitting"),
        "semantic_correction": last.get("semantic_correction"),
        "ece": test.get("ece"),
        "nll": test.get("nll"),
        "brier": test.get("brier"),
        **of_labels(prepared.labels, table, audit),
        **prepared.strategy.facts(),
        **({"notes": list(notes)} if notes else {}),
        "seconds": round(seconds, 3),
        "fingerprint": prepared.labels.fingerprint,
    }


def of_labels(labels: Labels, table: Any, audit: Audit) -> Json:
    """What a summary says about the labels.

    Args:
        labels: that were learned from.
        table, audit: as `suspects.examine` makes them.
    """
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
    """Test accuracy where validation accuracy was best, the first of equals."""
    lines = [line for line in history if line.get("val_accuracy") is not None]
    if not lines:
        return None
    best = max(lines, key=lambda line: (float(str(line["val_accuracy"])), -int(str(line["step"]))))
    accuracy = best["test_accuracy"]
    return None if accuracy is None else float(str(accuracy))


def write_transition(directory: RunDirectory, strategy: Strategy) -> None:
    """Write the transition matrix that a method has worked with, where it has one."""
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
            "skipped": [asdict(one) for one in prepared.dataset.skipped],
        },
    )
