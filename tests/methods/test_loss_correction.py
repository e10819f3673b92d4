"""Forward and backward correction, with T given and with T estimated."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from proselflc import methods
from proselflc.cli import app as cli
from proselflc.correction.criteria import CrossEntropy
from proselflc.data.inputs import Features
from proselflc.data.serving import fit
from proselflc.errors import InputError
from proselflc.methods.loss_correction import (
    ESTIMATES,
    FIRST,
    MOST_CONDITION,
    Estimate,
    LossCorrection,
    percentile,
)
from proselflc.training import checkpoint, processes
from proselflc.training.loop import Training, train_steps
from proselflc.training.recipe import Recipe
from proselflc.training.strategy import RunContext, Strategy

n, C, BATCH, EPOCHS = 120, 4, 20, 8
BATCHES = n // BATCH
TOTAL = EPOCHS * BATCHES
BOUNDARY = round(FIRST * EPOCHS) * BATCHES
NAMES = ("ant", "bee", "cat", "dog")
RECIPE = Recipe(optimizer="sgd", lr=0.1, weight_decay=1e-3, schedule="cosine")
T = 0.6 * torch.eye(C, dtype=torch.float64) + 0.4 * torch.eye(C, dtype=torch.float64).roll(1, 1)
T[0] = torch.tensor([0.5, 0.2, 0.2, 0.1])


@pytest.fixture
def data(clouds: Any) -> Any:
    """Four clouds of points whose labels are drawn from T."""
    return clouds(n, BATCH, T, apart=2.0, note=lambda note: None)


def context(given: Tensor | None = None) -> RunContext:
    return RunContext(
        total_steps=TOTAL,
        batches=BATCHES,
        given=np.zeros(n, np.int64) if given is None else given.numpy(),
        names=NAMES,
        preprocessing=fit(Features(np.eye(4, dtype=np.float32))),
    )


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(C, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, C))


def training(strategy: Strategy, recipe: Recipe = RECIPE) -> Training:
    accelerator = processes.accelerator(recipe.precision)
    return Training(network(), strategy, recipe, TOTAL, BATCHES, accelerator=accelerator)


def weights(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def test_backward_with_the_true_matrix_is_unbiased() -> None:
    """Averaged over the labels that a true class is given, the loss is that of the true class."""
    criterion = LossCorrection(context(), backward=True, transition=T).criterion.double()
    logits = 3 * torch.randn(9, C, generator=torch.Generator().manual_seed(0)).double()
    for i in range(C):
        expected = sum(
            T[i, y] * -np.linalg.inv(T.numpy())[y, j] * logits.log_softmax(1)[:, j]
            for y in range(C)
            for j in range(C)
        )
        losses = torch.stack(
            [torch.stack([criterion(z[None], torch.tensor([y])) for z in logits]) for y in range(C)]
        )  # [C, N]
        assert_close(T[i] @ losses, -logits.log_softmax(1)[:, i], rtol=1e-5, atol=1e-5)
        assert_close(T[i] @ losses, expected, rtol=1e-5, atol=1e-5)
        plain = torch.stack([-logits.log_softmax(1)[:, y] for y in range(C)])
        assert float((T[i] @ plain + logits.log_softmax(1)[:, i]).abs().min()) > 1e-3


def test_forward_with_the_true_matrix_has_the_clean_minimiser() -> None:
    """The best p for labels that are given by Tᵀη is η itself; for cross entropy it is Tᵀη."""
    eta = torch.tensor([0.1, 0.6, 0.25, 0.05], dtype=torch.float64)
    shares = eta @ T
    forward = LossCorrection(context(), backward=False, transition=T).criterion.double()
    for criterion, expected in ((forward, eta), (CrossEntropy(), shares)):
        z = torch.zeros(C, dtype=torch.float64, requires_grad=True)
        optimizer = torch.optim.LBFGS([z], max_iter=200, line_search_fn="strong_wolfe")

        def loss(
            z: Tensor = z,
            criterion: nn.Module = criterion,
            optimizer: torch.optim.LBFGS = optimizer,
        ) -> Tensor:
            optimizer.zero_grad()
            each = torch.stack([criterion(z[None], torch.tensor([y])) for y in range(C)])
            total: Tensor = shares @ each
            torch.autograd.backward(total)
            return total

        for _ in range(5):
            optimizer.step(loss)  # type: ignore[no-untyped-call]
        assert_close(z.detach().softmax(0), expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("backward", [False, True], ids=["forward", "backward"])
def test_a_matrix_that_is_given_is_all_there_is_to_it(backward: bool) -> None:
    strategy = LossCorrection(context(), backward=backward, transition=T)
    assert len(strategy.stages) == 1
    assert strategy.facts() == {"transition": "given"}
    found = strategy.transition()
    assert found is not None
    assert_close(found.double(), T)


@pytest.mark.parametrize("estimate", ESTIMATES)
@pytest.mark.parametrize("backward", [False, True], ids=["forward", "backward"])
def test_the_estimate_is_of_the_first_stage_and_the_second_begins_anew(
    data: Any, backward: bool, estimate: str
) -> None:
    notes = list[str]()
    plain = training(Strategy(CrossEntropy()), replace(RECIPE, schedule="constant"))
    ours = training(
        LossCorrection(context(data.y), backward=backward, estimate=estimate),
        replace(RECIPE, schedule="constant"),
    )
    alike = train_steps(plain, data)
    base: dict[str, Tensor] = {}
    for result in train_steps(ours, data, lambda model: data.snapshot(model, notes)):
        if result.step <= BOUNDARY:
            assert result.loss == next(alike).loss
            base = weights(ours.module)
        if result.step == BOUNDARY + 1:
            expected = network()(result.batch.x)  # fresh weights answered
            assert_close(result.logits, expected.detach())
    model = network()
    model.load_state_dict(base)
    with torch.no_grad():
        p = model.eval()(data.x).softmax(1)
    expected, said = ESTIMATES[estimate](p, data.y, NAMES)
    found = ours.strategy.transition()
    assert found is not None
    assert notes == list(said)
    assert_close(found.double(), expected, rtol=1e-6, atol=1e-6)
    assert float((expected - torch.eye(C)).abs().max()) > 0.02
    assert ours.strategy.facts() == {"transition": f"estimated by {estimate}"}
    batch = next(data.batches())
    z = torch.randn(BATCH, C, generator=torch.Generator().manual_seed(1)).double()
    if backward:
        inverse = torch.from_numpy(np.linalg.inv(expected.numpy()))
        loss = -(inverse[batch.y] * z.log_softmax(1)).sum(1).mean()
    else:
        loss = -(z.softmax(1) @ expected).gather(1, batch.y[:, None]).log().mean()
    assert_close(ours.strategy.loss(z, batch, 0.5), loss, rtol=1e-4, atol=1e-5)


def test_an_estimate_that_cannot_be_inverted_is_mended_and_said(data: Any) -> None:
    """A network that says almost the same of everything gives rows that are almost alike."""
    notes = list[str]()
    strategy = LossCorrection(context(data.y), backward=True, estimate="anchor")
    z = 0.01 * nn.functional.one_hot(data.clean, C).float()
    snapshot = replace(
        data.snapshot(nn.Identity(), notes), predict=lambda rows=None: iter([(torch.arange(n), z)])
    )
    strategy.arrange(1, nn.Identity())
    strategy.enter(1, snapshot)
    found = strategy.transition()
    assert found is not None
    assert np.linalg.cond(found.double().numpy()) <= MOST_CONDITION * 1.001
    assert any("of the identity is mixed into it" in note for note in notes)
    assert bool(strategy.loss(torch.zeros(BATCH, C), next(data.batches()), 0.5).isfinite())


def test_what_cannot_be_used_is_refused_in_a_sentence(tmp_path: Path) -> None:
    np.save(tmp_path / "T.npy", np.full((4, 4), 0.25))
    np.save(tmp_path / "small.npy", np.eye(3))
    for parameters, reason in (
        (dict(estimate="guess"), 'unknown estimate "guess"'),
        (dict(transition=tmp_path / "T.npy"), "transition is singular"),
        (dict(transition=tmp_path / "small.npy"), f"{tmp_path / 'small.npy'}: the trans"),
        (dict(transition=tmp_path / "small.npy"), "but there are 4 classes"),
    ):
        with pytest.raises(InputError) as caught:
            methods.strategy("backward", methods.resolved("backward", parameters), context())
        assert reason in str(caught.value)
        assert "\n" not in str(caught.value)


def test_a_matrix_by_which_a_label_cannot_be_is_refused_before_training(tmp_path: Path) -> None:
    np.save(tmp_path / "T.npy", np.eye(C)[[0, 1, 2, 2]])  # a dog is always called a cat
    parameters = methods.resolved("forward", dict(transition=tmp_path / "T.npy"))
    with pytest.raises(InputError, match=r"7 examples are labelled dog.* zero: mix"):
        methods.strategy("forward", parameters, context(torch.tensor([3] * 7 + [0, 1, 2])))
    methods.strategy("forward", parameters, context(torch.arange(n) % 3))  # no dog


@pytest.mark.parametrize("step", [20, 22, 23, 70])
def test_a_run_that_was_stopped_ends_with_the_same_matrix_and_says_the_same_of_it(
    tmp_path: Path, step: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """22 batches an epoch; the second stage begins after the first."""

    def noted(p: Tensor, given: Tensor, names: Sequence[str]) -> Estimate:
        return Estimate(percentile(p, given, names).T, ("it did not go as planned",))

    monkeypatch.setitem(ESTIMATES, "percentile", noted)
    monkeypatch.setattr(checkpoint, "KEPT", 1000)
    out, train = tmp_path / "run", "train --data digits --noise pair:0.4 --model mlp --epochs 4"
    more = ["--method", "forward", "--batch-size", "60", "--out", str(out)]
    assert cli.run([*train.split(), *more, "--checkpoint-seconds", "0"]) == 0
    assert capsys.readouterr().err.count("it did not go as planned") == 1
    before = {name: (out / name).read_bytes() for name in ("transition.npy", "model.safetensors")}
    summary = json.loads((out / "summary.json").read_text())
    assert summary["notes"] == ["it did not go as planned"]
    assert summary["transition"] == "estimated by percentile"
    for name in ("summary.json", *before):
        (out / name).unlink()
    for path in (out / "checkpoints").iterdir():
        if int(path.name[:10]) > step:
            path.unlink()
    assert cli.run(["train", "--out", str(out), "--resume", "--quiet"]) == 0
    again = json.loads((out / "summary.json").read_text())
    assert {**again, "seconds": 0} == {**summary, "seconds": 0}
    assert {name: (out / name).read_bytes() for name in before} == before


@pytest.mark.parametrize("seed", range(3))
def test_forward_beats_cross_entropy_on_digits_and_the_run_has_its_matrix(
    tmp_path: Path, seed: int
) -> None:
    train = "train --data digits --noise pair:0.4 --model mlp --epochs 60 --batch-size 64 --quiet"
    accuracies = {}
    for method in ("cce", "forward"):
        out = tmp_path / method
        more = ["--method", method, "--seed", str(seed), "--out", str(out)]
        assert cli.run([*train.split(), *more]) == 0
        summary = json.loads((out / "summary.json").read_text())
        accuracies[method] = summary["test_accuracy"]
        assert (out / "transition.npy").is_file() == (method == "forward")
        said = "estimated by percentile" if method == "forward" else None
        assert summary.get("transition") == said
    assert accuracies["forward"] > accuracies["cce"] + 0.1
    used = np.load(tmp_path / "forward" / "transition.npy")
    with np.load(tmp_path / "forward" / "labels.npz") as labels:
        realised = labels["transition"]
    assert 0.5 * abs(used - realised).sum(1).mean() < 0.25
    assert 0.5 * abs(np.eye(10) - realised).sum(1).mean() > 0.35
