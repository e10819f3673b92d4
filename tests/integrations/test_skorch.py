"""The criteria go into skorch as they are, and the clock counts training alone."""

from __future__ import annotations

import io
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import proselflc
from proselflc.correction.criterion import Criterion

skorch = pytest.importorskip("skorch")
pytest.importorskip("skorch.helper")

N, BATCH, EPOCHS = 200, 32, 6


def data() -> tuple[Any, Any]:
    """Four clouds, a fifth of the labels wrong."""
    generator = np.random.default_rng(0)
    y = generator.integers(4, size=N)
    x = np.eye(4)[y] + generator.normal(0, 0.3, (N, 4))
    y[: N // 5] = (y[: N // 5] + 1) % 4
    return x.astype(np.float32), y


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 4))


def net(criterion: type[Criterion], **options: Any) -> Any:
    given = {f"criterion__{name}": value for name, value in options.items()}
    return skorch.NeuralNetClassifier(
        network,
        criterion=criterion,
        max_epochs=EPOCHS,
        batch_size=BATCH,
        lr=0.4,
        verbose=0,
        **given,
    )


def test_the_clock_counts_training_and_not_validation() -> None:
    x, y = data()
    steps = EPOCHS * math.ceil(0.8 * N / BATCH)  # a fifth is skorch's validation part
    classifier = net(proselflc.ProSelfLC, total_steps=steps).fit(x, y)
    clock = classifier.criterion_
    assert clock.t.item() == steps == clock.total_steps
    assert len(classifier.history[:, "valid_loss"]) == EPOCHS
    classifier.predict_proba(x)
    assert clock.t.item() == steps
    file = io.BytesIO()
    classifier.save_params(f_criterion=file)
    file.seek(0)
    again = net(proselflc.ProSelfLC, total_steps=steps).initialize()
    again.load_params(f_criterion=file)
    assert again.criterion_.t.item() == steps


def test_the_last_validation_loss_is_the_methods_at_the_end_of_training() -> None:
    """Validation looks at t/Γ of the steps that are completed, here all of them."""
    x, y = data()
    half = N // 2
    valid = skorch.dataset.Dataset(x[half:], y[half:])
    steps = EPOCHS * math.ceil(half / BATCH)
    classifier = net(proselflc.ProSelfLC, total_steps=steps, sharpness=8.0)
    classifier.set_params(
        train_split=skorch.helper.predefined_split(valid), iterator_valid__batch_size=N
    )
    classifier.fit(x[:half], y[:half])
    logits = classifier.forward(x[half:])
    expected = proselflc.functional.proselflc(
        logits, torch.from_numpy(y[half:]), progress=1.0, sharpness=8.0
    )
    assert classifier.history[-1, "valid_loss"] == pytest.approx(expected.item(), rel=1e-5)


CRITERIA: list[tuple[type[Criterion], dict[str, Any]]] = [
    (proselflc.CrossEntropy, {}),
    (proselflc.LabelSmoothing, {"epsilon": 0.1}),
    (proselflc.ConfidencePenalty, {"epsilon": 0.1}),
    (proselflc.BootSoft, {"epsilon": 0.2}),
    (proselflc.BootHard, {"epsilon": 0.2}),
    (proselflc.ProSelfLC, {"total_steps": 30}),
    (proselflc.LowTemperatureProSelfLC, {"total_steps": 30}),
    (proselflc.GeneralizedCrossEntropy, {"q": 0.7}),
    (proselflc.SymmetricCrossEntropy, {}),
    (proselflc.ForwardCorrection, {"transition": 0.8 * torch.eye(4) + 0.05}),
    (proselflc.BackwardCorrection, {"transition": 0.8 * torch.eye(4) + 0.05}),
]


@pytest.mark.parametrize(("criterion", "options"), CRITERIA, ids=lambda one: str(one)[:40])
def test_every_criterion_learns_and_gives_probabilities(
    criterion: type[Criterion], options: dict[str, Any]
) -> None:
    x, y = data()
    classifier = net(criterion, **options).fit(x, y)
    p = classifier.predict_proba(x)
    logits = classifier.forward(x, training=False)
    torch.testing.assert_close(torch.from_numpy(p), logits.softmax(1))
    loss = classifier.history[:, "train_loss"]
    assert loss[-1] < loss[0]
    assert (p[N // 5 :].argmax(1) == y[N // 5 :]).mean() > 0.8
