"""Automatic ProSelfLC: what it learns at first, when it begins to trust, and what it trusts."""

from __future__ import annotations

import json
import math
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.testing import assert_close

import proselflc
from proselflc import ProSelfLC, methods
from proselflc.correction import onset
from proselflc.correction.label_posterior import label_posterior, surest_labels
from proselflc.data import memory_budget
from proselflc.errors import InputError
from proselflc.methods.proselflc_auto import AutomaticProSelfLC
from proselflc.reporting.onset import read as read_onset
from proselflc.training.group import Group
from proselflc.training.loop import train_steps


def strategy(crowd: Any, epochs: int = 12, sharpness: float = 10.0) -> AutomaticProSelfLC:
    return AutomaticProSelfLC(crowd.context(epochs), sharpness=sharpness)


def some_logits(n: int, seed: int, C: int = 4) -> Tensor:
    return 2 * torch.randn(n, C, generator=torch.Generator().manual_seed(seed))


def with_loss(y: Tensor, loss: float, C: int = 4) -> Tensor:
    """Return logits [n, C] whose cross entropy with y is the loss."""
    p_y = math.exp(-loss)
    p = torch.full((len(y), C), (1 - p_y) / (C - 1))
    p[torch.arange(len(y)), y] = p_y
    return p.log()


def teach(one: AutomaticProSelfLC, crowd: Any, losses: Sequence[float]) -> None:
    """Let epochs have these losses on all labels."""
    for loss in losses:
        for batch in crowd.batches(int(one.epochs)):
            one.after_step(with_loss(batch.y, loss), batch)
        one.after_epoch(0, int(one.epochs), crowd.snapshot(torch.nn.Identity()))


def trusting(crowd: Any, C: int = 4) -> AutomaticProSelfLC:
    """Return a strategy after its onset, which remembers predictions of the true classes."""
    context = replace(crowd.context(12), names=("ant", "bee", "cat", "dog", "eel")[:C])
    one = AutomaticProSelfLC(context, sharpness=10.0)
    for epoch in range(3):
        for batch in crowd.batches(epoch):
            z = some_logits(20, epoch, C) + 3 * F.one_hot(crowd.clean[batch.index], C)
            one.after_step(z, batch)
    one.begun.fill_(3)
    one.after_epoch(0, 3, replace(crowd.snapshot(torch.nn.Identity()), num_classes=C))
    return one


def facts(one: AutomaticProSelfLC) -> dict[str, Any]:
    found = one.facts()["onset"]
    assert isinstance(found, dict)
    json.dumps(found)
    return found


def test_a_tenth_of_the_labels_is_held_out_by_the_seed(crowd: Any) -> None:
    one = strategy(crowd)
    assert int(one.held_out.sum()) == 12
    assert torch.equal(one.held_out, strategy(crowd).held_out)
    other = AutomaticProSelfLC(replace(crowd.context(12), seed=1), sharpness=10.0)
    assert not torch.equal(one.held_out, other.held_out)


@pytest.mark.parametrize("progress", [0.1, 0.6])
def test_held_out_labels_carry_no_loss_before_the_onset(crowd: Any, progress: float) -> None:
    """The others have ProSelfLC's loss and gradient, and the mean is over them alone."""
    one, batch = strategy(crowd), crowd.batch(torch.arange(crowd.n))
    z = some_logits(crowd.n, 0).requires_grad_()
    loss = one.loss(z, batch, progress)
    (found,) = torch.autograd.grad(loss, z)
    learned = ~one.held_out
    plain = ProSelfLC(1, reduction="none")(z, batch.y, progress=progress)[learned].mean()
    (expected,) = torch.autograd.grad(plain, z)
    assert_close(loss, plain)
    assert_close(found, expected)
    assert (found[one.held_out] == 0).all()
    assert one.mass(batch) == int(learned.sum())


def test_a_batch_of_held_out_labels_changes_nothing(crowd: Any) -> None:
    one = strategy(crowd)
    batch = crowd.batch(one.held_out.nonzero()[:, 0])
    z = some_logits(len(batch.y), 0).requires_grad_()
    loss = one.loss(z, batch, 0.3)
    (found,) = torch.autograd.grad(loss, z)
    assert (loss.item(), one.mass(batch)) == (0, 0)
    assert (found == 0).all()


def test_memory_is_the_mean_of_three_epochs_and_then_of_all(crowd: Any) -> None:
    """m ← m + (p − m)/min(k + 1, 3), and after the onset m ← m + (p − m)/(k + 1) from k = 2."""
    one = strategy(crowd, 20)
    expected, count = np.zeros((crowd.n, 4)), 0
    for epoch in range(9):
        for batch in crowd.batches(epoch):
            z = some_logits(20, 100 * epoch)
            held_out = one.held_out[batch.index]
            z[held_out] = with_loss(batch.y, 0.5 + 0.2**epoch)[held_out]
            one.after_step(z, batch)
            rows = batch.index.numpy()
            p = torch.softmax(z.double(), 1).numpy()
            expected[rows] += (p - expected[rows]) / (count + 1)
        count = count + 1 if one.onset else min(count + 1, 2)
        one.after_epoch(0, epoch, crowd.snapshot(torch.nn.Identity()))
        np.testing.assert_allclose(one.memory.average, expected, atol=1e-6)
    assert one.onset is not None
    assert 3 < one.onset < 8


def test_the_held_out_loss_is_the_mean_over_held_out_labels(crowd: Any) -> None:
    one, total = strategy(crowd), 0.0
    for batch in crowd.batches():
        z = some_logits(20, int(batch.index[0]))
        one.after_step(z, batch)
        total += float(
            F.cross_entropy(z, batch.y, reduction="none")[one.held_out[batch.index]].sum()
        )
    assert one.measures()["held_out_loss"] == pytest.approx(total / 12, rel=1e-5)
    one.after_epoch(0, 0, crowd.snapshot(torch.nn.Identity()))
    assert facts(one)["held_out_losses"] == pytest.approx([total / 12], rel=1e-5)


def test_before_any_held_out_label_was_seen_the_loss_is_that_of_a_guess(crowd: Any) -> None:
    one = strategy(crowd)
    assert one.measures() == {"held_out_loss": math.log(4)}
    learned = (~one.held_out).nonzero()[:20, 0]
    one.after_step(some_logits(20, 0), crowd.batch(learned))
    one.after_epoch(0, 0, crowd.snapshot(torch.nn.Identity()))
    assert facts(one)["held_out_losses"] == pytest.approx([math.log(4)])
    assert facts(one)["fall"] == pytest.approx(0, abs=1e-6)


def test_trust_begins_where_the_held_out_loss_has_settled(crowd: Any) -> None:
    one = strategy(crowd, 40)
    losses = [0.4 + 2**-k for k in range(1, 20)]
    expected = next(k for k in range(1, 20) if onset.has_settled(losses[:k], 4, 0.0))
    for loss in losses:
        assert one.measures()["held_out_loss"] is not None
        teach(one, crowd, [loss])
        if one.onset:
            break
    assert one.onset == expected
    assert one.measures() == {"held_out_loss": None}
    found = facts(one)
    assert (found["epoch"], found["latest"]) == (expected, 20)
    assert found["recent_error"] == pytest.approx(0, abs=1e-6)  # all labels have the same loss
    assert found["held_out_losses"] == pytest.approx(losses[:expected], rel=1e-5)
    assert found["fall"] == pytest.approx(math.log(4) - losses[expected - 1], rel=1e-4)
    assert 0 < found["recent_fall"] < 0.02 * found["fall"]
    teach(one, crowd, [0.1, 0.1])  # which is not looked at any more
    assert facts(one) == {**found, "surest": found["surest"], "contradicted": 0}


def test_trust_does_not_begin_where_the_fall_may_have_gone_on(crowd: Any) -> None:
    """The mean loss has settled, but it is that of labels of which half fall and half rise."""
    for spread, begins in ((0.0, True), (0.4, False)):
        one = strategy(crowd, 40)
        for epoch in range(9):
            for batch in crowd.batches(epoch):
                sign = 1.0 - 2.0 * (one.held_out.cumsum(0)[batch.index] % 2)
                loss = 0.8 + 0.4 * 0.3**epoch + spread * epoch / 9 * sign
                z = torch.cat(
                    [with_loss(y[None], float(v)) for y, v in zip(batch.y, loss, strict=True)]
                )
                one.after_step(z, batch)
            one.after_epoch(0, epoch, crowd.snapshot(torch.nn.Identity()))
        assert (one.onset is not None) == begins
        if not begins:
            every = one.losses[:9].double().numpy()
            fell = every[5] - every[8]
            error = float(np.std(fell, ddof=1) / math.sqrt(12))
            assert facts(one)["recent_error"] == pytest.approx(error)
            assert facts(one)["recent_fall"] + error > 0.02 * facts(one)["fall"]


def test_all_labels_are_learned_by_proselflc_from_half_on_if_the_loss_still_falls(
    crowd: Any,
) -> None:
    one, batch = strategy(crowd, 13), crowd.batch(torch.arange(crowd.n))
    teach(one, crowd, [1.3 - 0.1 * k for k in range(5)])
    assert one.mass(batch) == crowd.n - 12
    assert one.measures()["held_out_loss"] is not None
    teach(one, crowd, [0.8])
    assert one.onset is None
    assert one.transition() is None
    assert one.mass(batch) == crowd.n
    assert one.measures() == {"held_out_loss": None}
    z = some_logits(crowd.n, 0)
    assert_close(one.loss(z, batch, 0.6), ProSelfLC(1)(z, batch.y, progress=0.6))
    teach(one, crowd, [0.8] * 7)  # which would have settled
    assert one.onset is None
    assert (facts(one)["epoch"], facts(one)["latest"]) == (None, 6)
    assert facts(one)["held_out_losses"] == pytest.approx([1.3, 1.2, 1.1, 1.0, 0.9, 0.8])


def test_trust_never_begins_if_held_out_labels_are_guessed_worst(crowd: Any) -> None:
    one = strategy(crowd)
    teach(one, crowd, [1.5] * 12)
    assert one.onset is None
    assert facts(one)["epoch"] is None
    assert facts(one)["fall"] == 0
    assert facts(one)["held_out_losses"] == pytest.approx([1.5] * 6)


@pytest.mark.parametrize("epochs", [1, 2, 5])
def test_too_few_epochs_are_plain_proselflc(crowd: Any, epochs: int) -> None:
    one = strategy(crowd, epochs)
    training = crowd.training(one, epochs)
    for result in train_steps(training, crowd, crowd.snapshot):
        e = one.evidence(result.logits, result.batch, training.progress)
        target, trust = one.taught(e, result.batch)
        plain = ProSelfLC(1).correct(result.logits, result.batch.y, progress=training.progress)
        assert torch.equal(target, plain.target)
        assert torch.equal(trust, plain.trust)
        assert one.mass(result.batch) == len(result.batch.y)
    assert (facts(one)["epoch"], facts(one)["latest"]) == (None, 0)
    assert facts(one)["held_out_losses"] == []


def test_at_most_ten_thousand_labels_are_held_out(crowd: Any) -> None:
    context = replace(crowd.context(12), given=np.zeros(200_000, np.int64))
    one = AutomaticProSelfLC(context, sharpness=10.0)
    assert int(one.held_out.sum()) == 10_000
    assert one.losses.shape == (6, 10_000)
    long = AutomaticProSelfLC(replace(context, total_steps=10**6 * context.batches), sharpness=10.0)
    assert long.losses.shape == (500_000, 8)


def test_the_power_is_the_one_that_predicts_held_out_labels_best(crowd: Any) -> None:
    """a has the largest sum of log Σ_j s_j T_jy, s ∝ m_j^a π_j^(−(a − 1)/2), on held-out labels."""
    chosen = set()
    for scale in (0.5, 1.0, 3.0):
        one = strategy(crowd)
        for batch in crowd.batches():
            z = scale * (some_logits(20, 1) / 2 + F.one_hot(crowd.clean[batch.index], 4))
            one.after_step(z, batch)
        one._read_transition()
        one._choose_power()
        m, T = one.memory.average.double().numpy(), one.transition_matrix.double().numpy()
        shares = np.bincount(crowd.y, minlength=4) / crowd.n
        sums = []
        for a in (1.0, 1.5, 2.0):
            total = 0.0
            for i in one.held_out.nonzero()[:, 0].tolist():
                s = [m[i, j] ** a * shares[j] ** (-(a - 1) / 2) for j in range(4)]
                total += math.log(sum(s[j] / sum(s) * T[j, crowd.y[i]] for j in range(4)))
            sums.append(total)
        assert float(one.power) == (1.0, 1.5, 2.0)[int(np.argmax(sums))]
        chosen.add(float(one.power))
    assert len(chosen) > 1


@pytest.mark.parametrize("progress", [0.3, 0.55, 0.95])
def test_target_and_trust_are_the_formula_after_the_onset(crowd: Any, progress: float) -> None:
    """q̃ = w and ε = 1 − w_y, or ProSelfLC's where its g(t) l(p) is larger."""
    one, batch = trusting(crowd), crowd.batch(torch.arange(crowd.n))
    z = 2 * some_logits(crowd.n, 9)
    target, trust = one.taught(one.evidence(z, batch, progress), batch)
    m = one.memory.average
    confidence, predicted = m.max(1)
    found = surest_labels(confidence, predicted, batch.y, 4)
    assert_close(one.transition(), found.transition)
    shares = torch.bincount(crowd.y, minlength=4) / crowd.n
    a, b = float(one.power), float(one.bias)
    w = label_posterior(m, batch.y, found.transition, shares, a, b).double().numpy()
    assert 1 - w[np.arange(crowd.n), crowd.y].mean() >= found.rate - 1e-4  # the bias sees to it
    p = torch.softmax(z.double(), 1).numpy()
    local = 1 + (p * np.log(p)).sum(1) / math.log(4)
    eps = local / (1 + math.exp(-10 * (progress - 0.5)))
    from_memory = 1 - w[np.arange(crowd.n), crowd.y]
    own = from_memory >= eps
    q = F.one_hot(batch.y, 4).numpy()
    expected = np.where(own[:, None], w, (1 - eps[:, None]) * q + eps[:, None] * p)
    np.testing.assert_allclose(target, expected, atol=1e-5)
    np.testing.assert_allclose(trust, np.maximum(eps, from_memory), atol=1e-5)
    assert 0 < own.sum() < crowd.n
    assert one.mass(batch) == crowd.n


def test_loss_and_gradient_are_of_the_target_after_the_onset(
    crowd: Any, finite_differences: Callable[..., Any]
) -> None:
    """H(q̃, p) with ε a constant, and r one only where it is remembered."""
    one, batch = trusting(crowd), crowd.batch(torch.arange(12))
    z = some_logits(12, 9).requires_grad_()
    loss = one.loss(z, batch, 0.6)
    (found,) = torch.autograd.grad(loss, z)
    with torch.no_grad():
        target, trust = one.taught(one.evidence(z, batch, 0.6), batch)
        theirs = ProSelfLC(1).correct(z, batch.y, progress=0.6)
    own = (trust > theirs.trust).numpy()
    assert 0 < own.sum() < 12
    w, eps = target.double().numpy(), trust.double().numpy()[:, None]
    q = F.one_hot(batch.y, 4).double().numpy()

    def value(logits: Any) -> float:
        p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
        q_tilde = np.where(own[:, None], w, (1 - eps) * q + eps * p)
        return float(-(q_tilde * np.log(p)).sum(1).mean())

    at = z.detach().double().numpy()
    assert loss.item() == pytest.approx(value(at), rel=1e-5)
    np.testing.assert_allclose(found, finite_differences(value, at), atol=1e-5)


@pytest.mark.parametrize("sharpness", [0.0, 10.0, 16.0])
def test_it_never_trusts_less_than_proselflc(crowd: Any, sharpness: float) -> None:
    one = strategy(crowd, 20, sharpness)
    training, more = crowd.training(one, 20), 0
    for result in train_steps(training, crowd, crowd.snapshot):
        e = one.evidence(result.logits, result.batch, training.progress)
        _, trust = one.taught(e, result.batch)
        plain = ProSelfLC(1, sharpness=sharpness).correct(
            result.logits, result.batch.y, progress=training.progress
        )
        assert (trust >= plain.trust).all()
        more += int((trust > plain.trust).sum())
    assert one.onset is not None
    assert more > 0


def test_it_learns_fewer_wrong_labels_than_cross_entropy(crowd: Any) -> None:
    epochs, wrong = 60, crowd.y != crowd.clean
    fitted = {}
    for name in ("cce", "proselflc_auto"):
        made = methods.strategy(name, methods.resolved(name, {}), crowd.context(epochs))
        training = crowd.training(made, epochs)
        for _ in train_steps(training, crowd, crowd.snapshot):
            pass
        with torch.no_grad():
            predicted = training.module.eval()(crowd.x).argmax(1)
        fitted[name] = float((predicted == crowd.y)[wrong].double().mean())
    assert fitted["proselflc_auto"] < 0.05
    assert fitted["proselflc_auto"] < fitted["cce"] - 0.1


def test_clean_labels_are_left_alone(crowd: Any) -> None:
    crowd.y = crowd.clean
    crowd.x += 4.0 * F.one_hot(crowd.clean, 4)
    one = strategy(crowd, 20)
    for _ in train_steps(crowd.training(one, 20), crowd, crowd.snapshot):
        pass
    assert one.onset is not None
    assert facts(one)["contradicted"] == 0
    batch = crowd.batch(torch.arange(crowd.n))
    target, trust = one.taught(one.evidence(some_logits(crowd.n, 0), batch, 0.0), batch)
    assert torch.equal(target.argmax(1), crowd.y)
    assert trust.max() < 0.05
    assert_close(one.transition(), torch.eye(4))


def test_a_class_without_examples_is_never_suggested(crowd: Any) -> None:
    """The names list a class that no label has."""
    one = trusting(crowd, 5)
    batch = crowd.batch(torch.arange(crowd.n))
    target, trust = one.taught(one.evidence(some_logits(crowd.n, 9, 5), batch, 0.0), batch)
    own = trust > 0.01
    assert own.any()
    assert (target[own, 4] == 0).all()
    assert_close(target.sum(1), torch.ones(crowd.n))


@dataclass(frozen=True)
class Interleaved(Group):
    """Rows as two processes exchange them: those of even examples come first."""

    def rows(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        return tuple(torch.cat((one[::2], one[1::2])) for one in tensors)


def test_transition_and_bias_do_not_depend_on_the_order_of_processes(crowd: Any) -> None:
    """Saturated predictions are equally sure, so that their order decides which ones count."""
    found = []
    for group in (Group(), Interleaved()):
        one = strategy(crowd)
        one.group = group
        for epoch in range(3):
            for batch in crowd.batches(epoch):
                one.after_step(200.0 * F.one_hot(crowd.clean[batch.index], 4), batch)
            one.after_epoch(0, epoch, crowd.snapshot(torch.nn.Identity()))
        one.begun.fill_(3)
        one.after_epoch(0, 3, crowd.snapshot(torch.nn.Identity()))
        found.append((one.transition_matrix, one.bias, one.surest))
    for ours, theirs in zip(*found, strict=True):
        assert torch.equal(ours, theirs)
    assert int(found[0][2][1]) > 0


@pytest.mark.parametrize("epochs", [20, 30])
def test_it_resumes_bit_for_bit_before_and_after_the_onset(
    crowd: Any, assert_goes_on: Callable[..., dict[str, Tensor]], epochs: int
) -> None:
    begun: list[int] = []

    def new() -> Any:
        return crowd.training(strategy(crowd, epochs), epochs)

    training = new()
    for _ in train_steps(training, crowd, crowd.snapshot):
        if training.strategy.onset and not begun:
            begun.append(training.step)
    (at,) = begun
    for step in (1, crowd.total + 2, at - 2, at, at + 2, epochs * crowd.total - 1):
        end = assert_goes_on(new, crowd, step)
        assert int(end["strategy.begun"]) == at // crowd.total


@pytest.mark.parametrize("least", [40, 600])
def test_killed_before_or_after_the_onset_it_ends_with_the_same_bits(
    program: Any, assert_same: Any, tmp_path: Path, least: int
) -> None:
    options = (
        *("train", "--data", "digits", "--noise", "symmetric:0.4", "--model", "mlp"),
        *("--method", "proselflc_auto", "--epochs", 60, "--batch-size", 64),
    )
    program(*options, "--out", tmp_path / "whole")
    out = tmp_path / "run"
    running = program.start(*options, "--out", out, "--checkpoint-seconds", 0)
    states = out / "checkpoints"
    running.until(
        lambda: (
            max((int(one.name[:10]) for one in states.glob("*.safetensors")), default=0) >= least
        )
    )
    running.send(signal.SIGKILL)
    assert running.wait().code == -signal.SIGKILL
    program("train", "--out", out, "--resume", "--checkpoint-seconds", 60)
    assert_same(out, tmp_path / "whole")
    found = json.loads((out / "summary.json").read_text())["onset"]
    assert 40 < 21 * found["epoch"] < 600


def test_summary_and_history_have_the_onset(tmp_path: Path, crowd: Any) -> None:
    run = proselflc.fit(
        crowd.x.numpy(),
        crowd.y.numpy(),
        method="proselflc_auto",
        model="mlp",
        epochs=40,
        lr=0.1,
        eval_epochs=1,
        out=tmp_path / "run",
        notes=False,
    )
    found: Any = run.summary["onset"]
    assert 3 <= found["epoch"] <= 20
    assert len(found["held_out_losses"]) == found["epoch"]
    history: Any = run.history
    lines = [line for line in history if line["epoch"] and float(line["epoch"]).is_integer()]
    losses = [line["held_out_loss"] for line in lines]
    assert losses[: found["epoch"]] == pytest.approx(found["held_out_losses"])
    assert set(losses[found["epoch"] :]) == {None}
    assert 0 <= found["contradicted"] <= found["surest"] <= crowd.n
    began = read_onset(run.summary)
    assert began is not None
    assert began.epoch == found["epoch"]


def onset_of_run(x: Any, y: Any, out: Path, **options: Any) -> Any:
    """Return the onset of a small network that learned arrays."""
    run = proselflc.fit(x, y, method="proselflc_auto", model="mlp", out=out, notes=False, **options)
    return run.summary["onset"]


def test_rows_without_a_label_are_not_read(tmp_path: Path, crowd: Any) -> None:
    """A tenth of the others is held out."""
    x, y = crowd.x.numpy(), crowd.y.numpy()
    given = y.astype(object)
    given[::3] = None
    has_label = np.arange(crowd.n) % 3 > 0
    found = onset_of_run(x, given, tmp_path / "all", epochs=8)
    assert found == onset_of_run(x[has_label], y[has_label], tmp_path / "labelled", epochs=8)


@pytest.mark.parametrize("n", [2, 3, 11])
def test_a_handful_of_examples_is_learned(tmp_path: Path, n: int) -> None:
    y = np.arange(n) % 2
    x = np.eye(2, dtype=np.float32)[y]
    found = onset_of_run(x, y, tmp_path / "run", epochs=12, batch_size=2)
    assert all(math.isfinite(loss) for loss in found["held_out_losses"])
    assert 0 <= found["surest"] <= n


def test_the_closing_summary_says_when_trust_began(program: Any, tmp_path: Path) -> None:
    done = program(
        *("train", "--data", "digits", "--noise", "symmetric:0.4", "--model", "mlp"),
        *("--method", "proselflc_auto", "--epochs", 60, "--out", tmp_path / "run"),
    )
    assert "It began to trust its own predictions after epoch " in done.stderr
    assert "surest predictions contradicted the label" in done.stderr


@pytest.mark.parametrize(
    ("epochs", "why"),
    [
        (4, "training had fewer than 6 epochs"),
        (6, "it was still learning what labels share at half of training"),
    ],
)
def test_the_closing_summary_says_why_trust_never_began(
    program: Any, tmp_path: Path, epochs: int, why: str
) -> None:
    done = program(
        *("train", "--data", "digits", "--noise", "symmetric:0.4", "--model", "mlp"),
        *("--method", "proselflc_auto", "--epochs", epochs, "--out", tmp_path / "run"),
    )
    assert (
        f"It never trusted its own predictions more than ProSelfLC does, because {why}."
        in done.stderr
    )


def test_a_transition_matrix_that_does_not_fit_is_refused_with_its_size(
    crowd: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_budget, "LIMIT", 32 * 20_000**2 - 1)
    context = replace(crowd.context(2), names=tuple(map(str, range(20_000))))
    with pytest.raises(InputError) as caught:
        AutomaticProSelfLC(context, sharpness=10.0)
    assert str(caught.value) == (
        "the method keeps a transition matrix of 20,000 classes, which with the counts that it is "
        "made from and the copies for a checkpoint needs 12.8 GB of memory, and the limit is "
        "12.8 GB: merge classes, or use another method=, or raise the limit with "
        "PROSELFLC_MEMORY_GB=13"
    )
