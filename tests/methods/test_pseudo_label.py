"""Pseudo-Label with trusted examples, and the ramped adaptation without."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.testing import assert_close

from proselflc import methods
from proselflc.cli import app as cli
from proselflc.correction.criterion import Criterion
from proselflc.correction.target import boot_hard, pseudo_label_ramped
from proselflc.correction.trust import Ramp
from proselflc.data import splits
from proselflc.data.batches import Batch
from proselflc.data.dataset import Dataset, Part
from proselflc.data.inputs import Bools, Features, ImageFiles, Texts
from proselflc.data.opening import open_data
from proselflc.data.request import Request
from proselflc.data.serving import fit
from proselflc.errors import InputError
from proselflc.methods.pseudo_label import PseudoLabel
from proselflc.run.config import Config
from proselflc.run.prepare import PreparedRun, prepare
from proselflc.training.observations import observe
from proselflc.training.strategy import CorrectedBatch, RunContext

n, C, N, BATCHES = 40, 3, 8, 5
TRUSTED = np.arange(n) % 4 == 0  # ten of forty
GIVEN = np.arange(n) % C


def context(trusted: Bools | None = TRUSTED) -> RunContext:
    return RunContext(
        total_steps=20,
        batches=BATCHES,
        given=GIVEN,
        names=("a", "b", "c"),
        preprocessing=fit(Features(np.eye(4, dtype=np.float32))),
        trusted=trusted,
    )


def strategy(*, weight: float = 3.0, begin: float = 0.1, end: float = 0.6) -> PseudoLabel:
    return PseudoLabel(context(), alpha=weight, begin=begin, end=end)


def some(index: list[int], seed: int = 0) -> tuple[Tensor, Batch]:
    z = 2 * torch.randn(len(index), C, generator=torch.Generator().manual_seed(seed))
    at = torch.tensor(index)
    return z, Batch(z, torch.from_numpy(GIVEN)[at], at)


@pytest.mark.parametrize(
    ("progress", "expected"),
    [
        *((0.0, 0.0), (0.05, 0.0), (0.1, 0.0), (0.225, 0.75), (0.35, 1.5), (0.6, 3.0)),
        *((0.8, 3.0), (1.0, 3.0)),
    ],
)
def test_the_weight_of_predictions_rises_in_a_straight_line(
    progress: float, expected: float
) -> None:
    one = strategy()
    z, batch = some([1, 2, 3, 5])  # none of them trusted
    loss = one.loss(z, batch, progress)
    surprise = -z.log_softmax(1).max(1).values.mean() * n / 30
    assert float(loss) == pytest.approx(expected * float(surprise), rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("progress", [0.0, 0.2, 0.35, 1.0])
def test_value_and_gradient_of_a_step_are_those_by_hand(progress: float) -> None:
    one = strategy()
    z, batch = some([0, 1, 2, 4, 7, 9])
    z.requires_grad_()
    loss = one.loss(z, batch, progress)
    (found,) = torch.autograd.grad(loss, z)
    alpha = 3.0 * min(max((progress - 0.1) / 0.5, 0.0), 1.0)
    p = z.detach().softmax(1)
    expected, value = torch.zeros_like(p), 0.0
    for row, index in enumerate(batch.index.tolist()):
        label = int(batch.y[row]) if TRUSTED[index] else int(p[row].argmax())
        share = 40 / 10 if TRUSTED[index] else alpha * 40 / 30
        expected[row] = share * (p[row] - F.one_hot(torch.tensor(label), C)) / 6
        value += -share * math.log(float(p[row, label])) / 6
    assert_close(found, expected, rtol=1e-5, atol=1e-6)
    assert float(loss.detach()) == pytest.approx(value, rel=1e-5)


def test_over_an_epoch_it_is_the_published_loss() -> None:
    """Mean over labelled plus α times mean over unlabelled, however examples are dealt out."""
    one = strategy()
    z, everything = some(list(range(n)))
    losses = -z.log_softmax(1)
    labelled = losses[TRUSTED][torch.arange(10), everything.y[TRUSTED]].mean()
    unlabelled = losses[~TRUSTED].min(1).values.mean()
    expected = float(labelled + 3.0 * unlabelled)
    assert float(one.loss(z, everything, 1.0)) == pytest.approx(expected, rel=1e-5)
    order = torch.randperm(n, generator=torch.Generator().manual_seed(1)).tolist()
    parts = [order[k : k + N] for k in range(0, n, N)]
    batches = [(z[part], Batch(*(tensor[part] for tensor in everything))) for part in parts]
    found = sum(float(one.loss(logits, batch, 1.0)) for logits, batch in batches) / len(batches)
    assert found == pytest.approx(expected, rel=1e-5)


def test_an_untrusted_label_is_never_looked_at() -> None:
    one = strategy()
    z, batch = some([1, 2, 3, 4])
    other = batch._replace(y=torch.where(one.trusted[batch.index], batch.y, (batch.y + 1) % C))
    assert not torch.equal(batch.y, other.y)
    assert_close(one.loss(z, batch, 0.9), one.loss(z, other, 0.9), rtol=0, atol=0)


def test_what_is_recorded_is_what_is_taught() -> None:
    one = strategy()
    z, batch = some([0, 1, 2, 4])
    seen = observe(CorrectedBatch(one, z, batch, 0.9), means=True)
    assert seen.facts[:, 5].tolist() == [0, 1, 1, 0]
    predicted = z.argmax(1)
    taught = torch.where(torch.from_numpy(TRUSTED)[batch.index], batch.y, predicted)
    assert seen.facts[:, 6].long().tolist() == taught.tolist()
    assert_close(seen.means[1], F.one_hot(taught, C).float(), rtol=0, atol=0)


def test_without_trusted_examples_it_says_what_to_do() -> None:
    with pytest.raises(InputError) as caught:
        PseudoLabel(context(None), alpha=3.0, begin=0.1, end=0.6)
    assert caught.value.field == "trusted"
    assert "pseudo_label_ramped" in str(caught.value)
    assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match="all are trusted"):
        PseudoLabel(context(np.ones(n, np.bool_)), alpha=3.0, begin=0.1, end=0.6)


@pytest.fixture(scope="module")
def digits() -> Dataset:
    return open_data(Request(data="digits"))


def prepared(dataset: Dataset | None, **options: Any) -> PreparedRun:
    return prepare(Config(**{"model": "mlp", **options}), dataset, report=lambda text: None)


def test_a_share_of_trusted_examples_is_learned_from(digits: Dataset) -> None:
    setting = prepared(digits, method="pseudo_label", noise="pair:0.4", trusted="0.1")
    other = prepared(digits, method="cce", noise="pair:0.4", trusted="0.1")
    assert setting.dataset.validation is None
    assert other.dataset.validation is not None
    mask = setting.strategy.get_buffer("trusted").numpy()
    assert len(mask) == len(setting.dataset.train) == 1297
    assert setting.dataset.train.ids == (*other.dataset.train.ids, *other.dataset.validation.ids)
    assert [setting.dataset.train.ids[k] for k in np.flatnonzero(mask)] == list(
        other.dataset.validation.ids
    )
    labels = setting.labels
    assert labels.clean is not None
    assert (labels.given == labels.clean)[mask].all()
    assert (labels.given != labels.clean)[~mask].mean() == pytest.approx(0.4, abs=0.05)
    truth = dict(zip(digits.train.ids, digits.train.labels.tolist(), strict=True))
    assert [truth[one] for one in labels.ids] == labels.clean.tolist()


def test_trusted_examples_from_a_file_are_learned_from(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
    y = np.arange(60) % 3
    np.savez(tmp_path / "noisy.npz", x=x[:40], y=y[:40])
    np.savez(tmp_path / "trusted.npz", x=x[40:], y=y[40:])
    setting = prepared(
        None,
        model=None,
        request=Request(data=str(tmp_path / "noisy.npz")),
        trusted=str(tmp_path / "trusted.npz"),
        method="pseudo_label",
    )
    part = setting.dataset.train
    assert isinstance(part.inputs, Features)
    np.testing.assert_array_equal(part.inputs.values, x)
    np.testing.assert_array_equal(part.labels, y)
    assert setting.strategy.get_buffer("trusted").tolist() == [False] * 40 + [True] * 20
    assert len(set(part.ids)) == 60  # both files count from 0


@pytest.mark.parametrize(
    "inputs",
    [Texts(("a", "b", "c")), ImageFiles((Path("a"), Path("b"), Path("c")))],
    ids=["texts", "files"],
)
def test_parts_of_every_form_are_put_together(inputs: Any) -> None:
    train = Part(inputs.take(np.array([0, 1])), np.array([0, 1]), ("x", "y"))
    trusted = Part(inputs.take(np.array([2])), np.array([1]), ("z",))
    found = splits.with_trusted_learned(Dataset("some", train, ("p", "q"), validation=trusted))
    assert found.train.inputs == inputs
    assert found.train.labels.tolist() == [0, 1, 1]
    assert found.train.ids == ("x", "y", "z")
    assert found.trusted is not None
    assert found.trusted.tolist() == [False, False, True]
    assert found.clean is None
    assert found.validation is None


def test_a_run_on_digits(tmp_path: Path) -> None:
    out = tmp_path / "run"
    options = ("--data", "digits", "--noise", "pair:0.4", "--model", "mlp", "--epochs", "8")
    words = ["train", *options, "--method", "pseudo_label", "--out", str(out), "--quiet"]
    assert cli.run(words) == 2
    assert cli.run([*words, "--trusted", "0.1"]) == 0
    summary = json.loads((out / "summary.json").read_text())
    assert summary["test_accuracy"] > 0.8
    assert summary["test_accuracy_at_best_validation"] is None
    assert not (out / "stages.json").exists()


@pytest.mark.parametrize("progress", [0.0, 0.1, 0.35, 0.6, 1.0])
def test_the_ramped_variant_is_boot_hard_whose_trust_rises(progress: float) -> None:
    z, batch = some(list(range(8)))
    z = z.double().requires_grad_()
    epsilon = 0.75 * min(max((progress - 0.1) / 0.5, 0.0), 1.0)
    for moment in (progress, torch.tensor(progress, dtype=torch.float64)):
        found = Criterion(pseudo_label_ramped(0.75, 0.1, 0.6))(z, batch.y, progress=moment)
        expected = Criterion(boot_hard(epsilon))(z, batch.y)
        assert_close(found, expected)
        assert_close(torch.autograd.grad(found, z), torch.autograd.grad(expected, z))


def test_a_ramp_of_no_length_is_a_step() -> None:
    step = Ramp(0.5, 0.3, 0.3)
    assert [step.at(t) for t in (0.0, 0.3, 0.300001, 1.0)] == [0, 0, 0.5, 0.5]


def test_time_is_needed() -> None:
    with pytest.raises(ValueError, match="progress of training, which is unknown"):
        Criterion(pseudo_label_ramped(0.75, 0.1, 0.6))(torch.zeros(2, 3), torch.tensor([0, 1]))


def test_the_method_says_that_it_is_an_adaptation(digits: Dataset) -> None:
    assert "our adaptation" in methods.find("pseudo_label_ramped").title
    assert methods.find("pseudo_label_ramped").needs == "–"
    setting = prepared(
        digits, method="pseudo_label_ramped", parameters=dict(epsilon=0.5, begin=0.2, end=0.4)
    )
    assert setting.strategy.criterion.method == pseudo_label_ramped(0.5, 0.2, 0.4)
