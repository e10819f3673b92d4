"""The history and the records say the same about every method: one definition of ε and H(p).

The network is trained beforehand and does not move (the learning rate is 1e-30), and a step shows
it all examples at once, unaugmented. So what is recorded in the step of an epoch and what is
measured after it are about the same outputs, and must agree to half precision.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import proselflc
from proselflc import methods
from proselflc.run.reader import Run
from proselflc.training.observations import recent_epochs

N, CLASSES, EPOCHS = 240, 4, 8
HALF = 2e-3  # records are kept in half precision
OPTIONS: dict[str, dict[str, Any]] = {
    "gce_truncated": {"begin": 0.5, "k": 0.3},
    "d2l": {"begin": 0.0, "window": 2},
    "m_dyr_s": {"begin": 0.3},
    "m_dyr_h": {"begin": 0.3},
    "md_dyr_sh": {"begin": 0.3},
    "sat": {"begin": 0.25},
    "tf_kd_self": {"first": "proselflc"},
}
# The methods whose ε is 0 by their definition: they replace or reweigh labels in another way.
WITHOUT_TRUST = {
    *("cce", "gce", "gce_truncated", "sl", "forward", "backward", "s_adaptation", "masking"),
    *("joint_soft", "joint_hard", "elr", "sat"),
}


def examples() -> tuple[Any, Any]:
    generator = np.random.default_rng(3)
    y = generator.permutation(np.arange(N) % CLASSES)
    return (np.eye(CLASSES)[y] + generator.normal(0, 0.25, (N, CLASSES))).astype(np.float32), y


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A network that has learned the true labels."""
    out = tmp_path_factory.mktemp("teacher") / "run"
    return proselflc.fit(*examples(), method="cce", model="mlp", epochs=30, out=out, notes=False)


def trained(name: str, teacher: Run, folder: Path, **options: Any) -> Run:
    parameters = dict(OPTIONS.get(name, {}))
    if name == "distillation":
        parameters["teacher"] = teacher.path
    if name == "masking":
        np.save(folder / "mask.npy", np.ones((CLASSES, CLASSES), np.int64))
        parameters["mask"] = folder / "mask.npy"
    x, y = examples()
    chosen: dict[str, Any] = {
        "noise": "pairflip:0.3",
        "trusted": 0.2 if name == "pseudo_label" else None,
        "model": "mlp",
        "weights": teacher.directory.weights,
        "optimizer": "sgd",
        "lr": 1e-30,
        "weight_decay": 0.0,
        "epochs": EPOCHS,
        "batch_size": N,
        "eval_epochs": 1,
        "notes": False,
        **options,
    }
    return proselflc.fit(x, y, method=name, parameters=parameters, **chosen)


def mean(values: Any, rows: Any = slice(None)) -> float:
    return float(np.asarray(values, np.float64)[rows].mean())


@pytest.mark.parametrize("name", methods.names())
def test_history_says_what_the_records_say(name: str, teacher: Run, tmp_path: Path) -> None:
    run = trained(name, teacher, tmp_path)
    history: list[Any] = list(run.history)
    records = list(run.dynamics)
    assert len(history) == len(records) == EPOCHS
    noisy = run.labels.flipped
    for line, epoch in zip(history, records, strict=True):
        for field, measure in (("trust", "epsilon"), ("entropy", "entropy")):
            found = {key: line[key] for key in line if key.startswith(measure)}
            expected = {
                measure: mean(epoch[field]),
                f"{measure}_clean": mean(epoch[field], ~noisy),
                f"{measure}_noisy": mean(epoch[field], noisy),
            }
            assert found == pytest.approx(expected, abs=HALF), line["epoch"]
        assert line["train_accuracy"] == mean(epoch["predicted"] == run.labels.given)
    last = history[-recent_epochs(EPOCHS) :]
    for column, measure in (("trust", "epsilon"), ("entropy", "entropy")):
        by_history = math.fsum(float(line[measure]) for line in last) / len(last)
        assert mean(run.examples[column].to_numpy()) == pytest.approx(by_history, abs=HALF)
    ever = max(float(line["epsilon"]) for line in history)
    assert (ever < HALF) == (name in WITHOUT_TRUST)
