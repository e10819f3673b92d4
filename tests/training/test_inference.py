"""Answers of a model: in evaluation mode, row for row, and the model left as it was."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.testing import assert_close

from proselflc.auditing.evaluation import fitted_temperature, paper_calibration
from proselflc.data import memory_budget
from proselflc.data.batches import Loader, Order
from proselflc.data.dataset import Part
from proselflc.data.inputs import Features
from proselflc.data.preprocessing import Standardization
from proselflc.training import processes
from proselflc.training.inference import StoredLogits, logits_of_all, predict_batches

N, FEATURES, C = 23, 4, 3


@pytest.fixture
def part() -> Part:
    values = np.random.default_rng(0).normal(size=(N, FEATURES)).astype(np.float32)
    return Part(Features(values), np.arange(N) % C, tuple(map(str, range(N))))


@pytest.fixture
def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.BatchNorm1d(FEATURES), nn.Dropout(0.5), nn.Linear(FEATURES, C))


def loader(part: Part, *, shuffle: bool = False) -> Loader:
    scaling = Standardization((0.0,) * FEATURES, (1.0,) * FEATURES)
    return Loader(part, scaling, Order(5, shuffle=shuffle))


def by_hand(model: nn.Module, part: Part) -> torch.Tensor:
    assert isinstance(part.inputs, Features)
    bn, linear = model[0], model[2]  # type: ignore[index]
    x = torch.from_numpy(part.inputs.values)
    x = (x - bn.running_mean) / (bn.running_var + bn.eps).sqrt() * bn.weight + bn.bias
    logits: torch.Tensor = (x @ linear.weight.T + linear.bias).detach()
    return logits


def test_answers_are_those_of_evaluation_mode_and_change_nothing(
    model: nn.Module, part: Part
) -> None:
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    model.train()
    found = list(predict_batches(model, loader(part), torch.device("cpu")))
    assert [len(batch.y) for batch, _ in found] == [5, 5, 5, 5, 3]
    assert_close(torch.cat([logits for _, logits in found]), by_hand(model, part))
    assert all(not logits.requires_grad and logits.dtype == torch.float32 for _, logits in found)
    assert model.training
    assert all(module.training for module in model.modules())
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name])


def test_the_mode_comes_back_even_if_nobody_wants_all_answers(model: nn.Module, part: Part) -> None:
    for was_training in (True, False):
        model.train(was_training)
        some = predict_batches(model, loader(part), torch.device("cpu"))
        next(some)
        assert not model.training
        some.close()  # type: ignore[attr-defined]
        assert model.training is was_training


def test_all_logits_are_in_the_order_of_the_examples(
    model: nn.Module, part: Part, tmp_path: Path
) -> None:
    accelerator = processes.accelerator("no")
    logits = logits_of_all(model, loader(part, shuffle=True), N, C, accelerator, tmp_path)
    assert isinstance(logits, torch.Tensor)
    assert_close(logits, by_hand(model, part))


def test_an_example_that_was_not_read_has_no_logits(
    model: nn.Module, part: Part, tmp_path: Path
) -> None:
    scaling = Standardization((0.0,) * FEATURES, (1.0,) * FEATURES)
    some = Loader(part, scaling, Order(5, shuffle=False, drop_last=True))
    logits = logits_of_all(model, some, N, C, processes.accelerator("no"), tmp_path)
    assert isinstance(logits, torch.Tensor)
    assert_close(logits[:20], by_hand(model, part)[:20])
    assert logits[20:].isnan().all()


def test_a_share_without_examples_is_passed_over(model: nn.Module, part: Part) -> None:
    scaling = Standardization((0.0,) * FEATURES, (1.0,) * FEATURES)
    shards = []
    for rank in range(4):  # the last batch has 3 examples for 4 processes
        order = Order(5, shuffle=False, shard=(rank, 4))
        shards += list(predict_batches(model, Loader(part, scaling, order), torch.device("cpu")))
    assert all(len(batch.y) for batch, _ in shards)
    index = torch.cat([batch.index for batch, _ in shards])
    assert sorted(index.tolist()) == list(range(N))
    assert_close(torch.cat([logits for _, logits in shards]), by_hand(model, part)[index])


def test_many_logits_are_in_a_file_that_leaves_nothing_behind(
    model: nn.Module, part: Part, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    accelerator = processes.accelerator("no")
    whole = logits_of_all(model, loader(part), N, C, accelerator, tmp_path)
    assert isinstance(whole, torch.Tensor)
    monkeypatch.setattr(memory_budget, "DENSE_NUMBERS", N * C - 1)
    model.train()
    stored = logits_of_all(model, loader(part, shuffle=True), N, C, accelerator, tmp_path)
    assert isinstance(stored, StoredLogits)
    assert model.training
    assert (len(stored), stored.shape, stored.size(1)) == (N, (N, C), C)
    assert_close(stored[0:N], whole, rtol=0, atol=0)
    assert_close(stored[7:9], whole[7:9], rtol=0, atol=0)
    assert stored[N:N].shape == (0, C)
    for measure in (fitted_temperature, paper_calibration):
        y = torch.arange(N) % C
        assert measure(stored, y) == measure(whole, y)
    del stored
    assert list(tmp_path.iterdir()) == []
