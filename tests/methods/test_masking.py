"""Masking: a generator of transitions that is told which ones are possible."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.testing import assert_close

from proselflc import methods
from proselflc.cli import app as cli
from proselflc.data.batches import Batch
from proselflc.data.class_matrix import read_mask
from proselflc.data.inputs import Features
from proselflc.data.serving import fit
from proselflc.errors import InputError
from proselflc.methods import masking
from proselflc.methods.masking import CLIP, Masking, structure
from proselflc.training.recipe import Recipe
from proselflc.training.strategy import RunContext

n, C, BATCH, EPOCHS = 120, 4, 20, 8
BATCHES = n // BATCH
TOTAL = EPOCHS * BATCHES
RECIPE = Recipe(optimizer="sgd", lr=0.1, weight_decay=1e-3, schedule="cosine")
T = 0.65 * torch.eye(C) + 0.35 * torch.eye(C).roll(1, 1)
PAIRS = T > 0


@pytest.fixture
def data(clouds: Any) -> Any:
    """Four clouds of points whose labels are drawn from T."""
    return clouds(n, BATCH, T, apart=3.0, note=lambda note: None)


SITUATION = RunContext(
    total_steps=TOTAL,
    batches=BATCHES,
    given=np.zeros(n, np.int64),
    names=("ant", "bee", "cat", "dog"),
    preprocessing=fit(Features(np.eye(4, dtype=np.float32))),
    coarse=np.array([0, 1, 0, 1]),
)


def distance(one: Tensor | None, other: Tensor = T) -> float:
    """Total variation, the mean over rows."""
    assert one is not None
    return float(0.5 * (one - other).abs().sum(1).mean())


def inside(one: Tensor | None) -> float:
    """How much of the mass is within the mask of pairs."""
    assert one is not None
    return float((one * PAIRS).sum(1).mean())


def played(wrong: float, monkeypatch: pytest.MonkeyPatch, weight: float) -> Masking:
    """Generator and discriminator after 300 steps beside a model whose predictions are fixed.

    So many of them are wrong, anywhere; the labels are drawn from T. The generator begins at a
    matrix with 10 % of its mass outside the mask.
    """
    monkeypatch.setattr(masking, "STRUCTURE", weight)
    monkeypatch.setattr(masking, "PRETRAINING", 600)
    monkeypatch.setattr(masking, "PRETRAINING_RATE", 2e-3)
    strategy = Masking(SITUATION, mask=PAIRS)
    strategy.arrange(1, nn.Identity())
    strategy._pretrain(0.8 * T + 0.2 / C)
    assert distance(strategy.transition(), 0.8 * T + 0.2 / C) < 0.03
    generator, N = torch.Generator().manual_seed(0), 100
    for _ in range(300):
        clean = torch.randint(C, (N,), generator=generator)
        y = torch.multinomial(T[clean], 1, generator=generator)[:, 0]
        other = torch.randint(C, (N,), generator=generator)
        predicted = torch.where(torch.rand(N, generator=generator) < wrong, other, clean)
        logits = 6.0 * F.one_hot(predicted, C)
        strategy.after_step(logits, Batch(logits, y, torch.arange(N)))
    return strategy


def test_the_matrix_stays_within_a_correct_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    strategy = played(0.0, monkeypatch, weight=masking.STRUCTURE)
    assert inside(strategy.transition()) > 0.97
    assert distance(strategy.transition()) < 0.05


def test_a_correct_mask_finds_the_matrix_where_predictions_alone_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A quarter of the predictions is wrong, which looks like noise outside the mask."""
    with_mask, without, unweighted = (
        played(0.25, monkeypatch, weight=weight).transition()
        for weight in (masking.STRUCTURE, 0.0, 1.0)
    )
    assert distance(with_mask) < 0.75 * distance(without)
    assert inside(with_mask) > inside(without) + 0.02
    assert distance(unweighted) == pytest.approx(distance(without), abs=0.02)  # why there is one


def test_the_structure_of_a_matrix() -> None:
    S = torch.tensor([[[0.05, 0.95], [0.06, 0.94]], [[0.0, 1.0], [0.5, 0.5]]])
    expected = 1 / (1 + np.exp(-(S.numpy() - 0.05) / 0.005))
    assert_close(structure(S.log()), torch.from_numpy(expected).float().flatten(1))


def test_a_step_of_the_generator_is_rmsprop() -> None:
    net = Masking(SITUATION, mask=PAIRS).generator.double()
    z = torch.randn(7, masking.NOISE, generator=torch.Generator().manual_seed(0)).double()
    weights = [weight.clone().requires_grad_() for weight in net.layers.parameters()]
    v = [0.0 * weight.detach() for weight in weights]
    for _ in range(3):
        h = z
        for k in range(0, 6, 2):
            h = h @ weights[k].T + weights[k + 1]
            h = h.relu() if k < 4 else h
        gradients = torch.autograd.grad(h.square().sum(), weights)
        v = [0.9 * old + 0.1 * g**2 for old, g in zip(v, gradients, strict=True)]
        with torch.no_grad():
            for weight, square, g in zip(weights, v, gradients, strict=True):
                weight -= 1e-3 * g / (square + 1e-10) ** 0.5
        net.improve(lambda: net(z).square().sum(), 1e-3)
        for ours, theirs in zip(net.layers.parameters(), weights, strict=True):
            assert_close(ours, theirs.detach())
            assert not ours.requires_grad


def test_the_weights_of_the_discriminator_are_clipped() -> None:
    strategy, z = Masking(SITUATION, mask=PAIRS), torch.zeros(5, C)
    strategy.arrange(1, nn.Identity())
    strategy.after_step(z, Batch(z, torch.zeros(5).long(), torch.arange(5)))
    judged = torch.cat([weight.flatten() for weight in strategy.judge.layers.parameters()])
    assert judged.min() == pytest.approx(CLIP[0])
    assert judged.max() == pytest.approx(CLIP[1])


def test_the_loss_is_the_reconstruction_with_a_matrix_per_example(data: Any) -> None:
    strategy = Masking(SITUATION, mask=PAIRS)
    batch = next(data.batches())
    z = torch.randn(BATCH, C, generator=torch.Generator().manual_seed(1), requires_grad=True)
    assert_close(strategy.loss(z, batch, 0.5), F.cross_entropy(z, batch.y))
    strategy.arrange(1, nn.Identity())
    noise = strategy._noise(BATCH, "network", int(batch.index[0]))
    S = strategy.generator(noise).reshape(BATCH, C, C).softmax(2)
    assert not torch.equal(S[0], S[1])
    mixed = torch.einsum("ni,nij->nj", z.softmax(1), S)
    loss = strategy.loss(z, batch, 0.5)
    assert_close(loss, -mixed.gather(1, batch.y[:, None]).log().mean())
    assert loss.requires_grad
    assert not any(parameter.requires_grad for parameter in strategy.parameters())


def test_making_it_draws_nothing_from_the_stream_that_everybody_shares() -> None:
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    one = Masking(SITUATION, mask=PAIRS)
    assert torch.equal(torch.rand(3), expected)
    assert torch.equal(
        *(s.state_dict()["judge.layers.0.weight"] for s in (one, Masking(SITUATION)))
    )


def made(parameters: dict[str, Any], context: RunContext = SITUATION) -> Masking:
    resolved = methods.resolved("masking", parameters)
    strategy = methods.strategy("masking", resolved, context)
    assert isinstance(strategy, Masking)
    return strategy


def test_without_a_file_the_mask_is_that_of_the_coarse_classes() -> None:
    expected = [[1, 0, 1, 0], [0, 1, 0, 1], [1, 0, 1, 0], [0, 1, 0, 1]]
    assert made({}).mask.tolist() == expected
    assert made({}).facts() == {"transition": "learned within a mask"}
    with pytest.raises(InputError, match="no coarse classes") as caught:
        made({}, replace(SITUATION, coarse=None))
    assert caught.value.field == "method.mask"


@pytest.mark.parametrize("kind", ["csv", "npy", "npz"])
def test_a_mask_from_a_file_has_the_diagonal(tmp_path: Path, kind: str) -> None:
    path, mask = tmp_path / f"mask.{kind}", np.eye(C, k=1, dtype=bool)
    if kind == "csv":
        np.savetxt(path, mask, fmt="%d", delimiter=",")
    elif kind == "npy":
        np.save(path, mask)
    else:
        np.savez(path, mask=mask)
    assert made(dict(mask=path)).mask.tolist() == (mask | np.eye(C, dtype=bool)).tolist()


@pytest.mark.parametrize(
    ("mask", "reason"),
    [
        (np.eye(3), "has shape (3, 3), but there are 4 classes"),
        (0.5 * np.eye(4), "must hold only 0 and 1"),
        (np.full((4, 4), np.nan), "must hold only 0 and 1"),
        (np.full((4, 4), "x"), "expected a matrix of numbers"),
    ],
)
def test_a_file_that_is_no_mask(tmp_path: Path, mask: object, reason: str) -> None:
    np.save(tmp_path / "mask.npy", np.asarray(mask))
    with pytest.raises(InputError) as caught:
        read_mask(tmp_path / "mask.npy", C)
    assert reason in str(caught.value)


def test_too_many_classes_are_refused() -> None:
    many = replace(SITUATION, names=tuple(map(str, range(300))), coarse=np.zeros(300, np.int64))
    with pytest.raises(InputError, match="at most 256 classes, got 300"):
        Masking(many)


def test_masking_beats_cross_entropy_on_digits(tmp_path: Path) -> None:
    mask = np.eye(10) + np.roll(np.eye(10), 1, axis=1)
    np.savetxt(tmp_path / "mask.csv", mask, fmt="%d", delimiter=",")
    train = "train --data digits --noise pair:0.4 --model mlp --epochs 30 --batch-size 64 --quiet"
    accuracies = {}
    for method in (["cce"], ["masking", "--method.mask", str(tmp_path / "mask.csv")]):
        out = tmp_path / method[0]
        assert cli.run([*train.split(), "--out", str(out), "--method", *method]) == 0
        accuracies[method[0]] = json.loads((out / "summary.json").read_text())["test_accuracy"]
    assert accuracies["masking"] > accuracies["cce"] + 0.1
    used = np.load(tmp_path / "masking" / "transition.npy")
    assert (used * mask).sum(1).mean() > 0.95
