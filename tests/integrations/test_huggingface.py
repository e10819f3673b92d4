"""Criteria in the real Trainer, on tiny transformers built from a configuration."""

from __future__ import annotations

import copy
import pickle
import re
import runpy
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import proselflc
from proselflc import CrossEntropy, ProSelfLC
from proselflc.errors import InputError

transformers = pytest.importorskip("transformers")

from proselflc.integrations import huggingface as hf  # noqa: E402

EXAMPLES = Path(__file__).parents[2] / "examples"
N, LENGTH, CLASSES = 40, 6, 3
# Some recordings here are short.
pytestmark = pytest.mark.filterwarnings("ignore:the model was trained for:UserWarning")


def classified() -> list[dict[str, Any]]:
    """Sequences of one word per class among others; every fifth label is wrong."""
    g = np.random.default_rng(0)
    rows = []
    for k in range(N):
        clean = k % CLASSES
        words = g.integers(10, 20, LENGTH)
        words[g.integers(LENGTH)] = 1 + clean
        given = (clean + 1) % CLASSES if k % 5 == 0 else clean
        rows.append({"input_ids": words.tolist(), "labels": given, "index": k})
    return rows


def tiny(kind: str = "BertForSequenceClassification") -> Any:
    config = transformers.BertConfig(
        vocab_size=20,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=LENGTH,
        num_labels=CLASSES,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    torch.manual_seed(0)
    return getattr(transformers, kind)(config)


def arguments(folder: Path, **options: Any) -> Any:
    chosen = {
        "per_device_train_batch_size": 8,
        "num_train_epochs": 2,
        "learning_rate": 1e-2,
        "report_to": [],
        "save_strategy": "no",
        "logging_strategy": "no",
        "disable_tqdm": True,
        "use_cpu": True,
        "dataloader_pin_memory": False,
        "seed": 0,
        **options,
    }
    return transformers.TrainingArguments(output_dir=str(folder), **chosen)


def trained(folder: Path, model: Any, **options: Any) -> Any:
    """A trainer that has trained; what is no option of it is one of its arguments."""
    own = ("compute_loss_func", "callbacks", "train_dataset", "eval_dataset")
    chosen = {"train_dataset": classified()} | {k: options.pop(k) for k in own if k in options}
    trainer = transformers.Trainer(model=model, args=arguments(folder, **options), **chosen)
    trainer.remove_callback(transformers.PrinterCallback)
    trainer.train()
    return trainer


def weights(model: Any) -> Tensor:
    return torch.cat([one.detach().flatten() for one in model.parameters()])


@pytest.mark.parametrize("accumulated", [1, 3])
def test_cross_entropy_trains_as_the_trainer_itself_does(tmp_path: Path, accumulated: int) -> None:
    """Accumulated batches as one large batch; 40 = 24 + 16, so the last step has fewer.

    Not as the Trainer accumulates with its own loss: BERT takes no notice of the number of labels
    in a step, so that its loss is too large then.
    """
    own, ours = tiny(), tiny()
    before = weights(ours)
    trained(tmp_path, own, per_device_train_batch_size=8 * accumulated, optim="sgd")
    trained(
        tmp_path,
        ours,
        gradient_accumulation_steps=accumulated,
        optim="sgd",
        compute_loss_func=hf.compute_loss_func(CrossEntropy()),
    )
    torch.testing.assert_close(weights(ours), weights(own), rtol=0, atol=1e-6)
    assert (weights(ours) - before).abs().max() > 1e-3


def test_tokens_are_learned_as_the_trainer_itself_does(tmp_path: Path) -> None:
    rows = classified()
    for row in rows:
        labels = [k % CLASSES for k in row["input_ids"]]
        labels[: row["index"] % 4] = [-100] * (row["index"] % 4)
        row["labels"] = labels
    own, ours = (tiny("BertForTokenClassification") for _ in range(2))
    trained(tmp_path, own, train_dataset=rows, per_device_train_batch_size=16, optim="sgd")
    func = hf.compute_loss_func(CrossEntropy())
    common: dict[str, Any] = {"gradient_accumulation_steps": 2, "optim": "sgd"}
    trained(tmp_path, ours, train_dataset=rows, compute_loss_func=func, **common)
    torch.testing.assert_close(weights(ours), weights(own), rtol=0, atol=1e-6)


class Watch(ProSelfLC):
    """Keeps the time that every call was told, and whether it was one to learn from."""

    def __init__(self) -> None:
        super().__init__(total_steps=1)
        self.calls: list[tuple[bool, float | None, int]] = []

    def forward(self, *args: Any, **options: Any) -> Tensor:
        self.calls.append((torch.is_grad_enabled(), options.get("progress"), int(self.t)))
        return super().forward(*args, **options)


def test_accumulated_batches_are_one_step_and_evaluation_is_none(tmp_path: Path) -> None:
    """5 batches an epoch, 2 at a time: 3 steps an epoch, 6 in all."""
    criterion = Watch()
    trained(
        tmp_path,
        tiny(),
        gradient_accumulation_steps=2,
        eval_strategy="epoch",
        eval_dataset=classified()[:8],
        compute_loss_func=hf.compute_loss_func(criterion),
        callbacks=[hf.ClockCallback(criterion)],
    )
    learned = [progress for learning, progress, _ in criterion.calls if learning]
    assert learned == pytest.approx([k / 6 for k in (1, 1, 2, 2, 3, 4, 4, 5, 5, 6)])
    evaluated = [(progress, t) for learning, progress, t in criterion.calls if not learning]
    assert evaluated == [(None, 3), (None, 6)]
    assert (int(criterion.t), criterion.total_steps, criterion.progress) == (6, 6, 1.0)


def test_a_run_that_is_resumed_goes_on_where_it_was(tmp_path: Path) -> None:
    whole, half = Watch(), Watch()
    common: dict[str, Any] = {"save_strategy": "epoch", "save_only_model": False}
    model = tiny()
    trained(
        tmp_path / "whole",
        model,
        compute_loss_func=hf.compute_loss_func(whole),
        callbacks=[hf.ClockCallback(whole)],
        **common,
    )
    again = tiny()
    trainer = transformers.Trainer(
        model=again,
        args=arguments(tmp_path / "whole", **common),
        train_dataset=classified(),
        compute_loss_func=hf.compute_loss_func(half),
        callbacks=[hf.ClockCallback(half)],
    )
    trainer.remove_callback(transformers.PrinterCallback)
    trainer.train(resume_from_checkpoint=str(tmp_path / "whole" / "checkpoint-5"))
    assert [one[1] for one in half.calls] == [one[1] for one in whole.calls[5:]]
    torch.testing.assert_close(weights(again), weights(model), rtol=0, atol=1e-6)


def test_without_a_callback_the_clock_counts_calls(tmp_path: Path) -> None:
    criterion = ProSelfLC(total_steps=10)
    trained(tmp_path, tiny(), compute_loss_func=hf.compute_loss_func(criterion))
    assert int(criterion.t) == 10


def test_examples_are_recorded_by_their_index(tmp_path: Path) -> None:
    """The column is no argument of the model, and survives all the same."""
    datasets = pytest.importorskip("datasets")
    data = datasets.Dataset.from_list(classified()).add_column("remark", ["text"] * N)
    criterion, model = ProSelfLC(total_steps=1), tiny()
    seen: list[Any] = []
    with proselflc.record(N, CLASSES, out=tmp_path / "run", criterion=criterion) as rec:
        loss = hf.compute_loss_func(criterion, rec, model)

        def watched(outputs: Any, labels: Tensor, num_items_in_batch: Any = None) -> Tensor:
            seen.append((outputs.logits.detach().clone(), labels.clone()))
            return loss(outputs, labels, num_items_in_batch=num_items_in_batch)

        trained(
            tmp_path,
            model,
            train_dataset=data,
            num_train_epochs=4,
            gradient_accumulation_steps=2,
            eval_strategy="epoch",
            eval_dataset=data.remove_columns("index").select(range(8)),
            compute_loss_func=watched,
            callbacks=[hf.ClockCallback(criterion, rec)],
        )
    run = proselflc.load_run(tmp_path / "run")
    epochs = list(run.dynamics)
    assert len(epochs) == 4
    assert run.labels.given.tolist() == [row["labels"] for row in classified()]
    # What was recorded of the last epoch is what the model said of those labels then.
    last = [one for one in seen if len(one[1]) == 8 and not one[0].isnan().any()][-6:-1]
    p = torch.cat([z.softmax(1).gather(1, y[:, None])[:, 0] for z, y in last]).sort().values
    there = np.sort(epochs[-1]["p_given"].astype(np.float32))
    np.testing.assert_allclose(there, p.numpy(), atol=1e-3)
    assert run.summary["method"] == "proselflc"
    assert float(np.nanmean(epochs[-1]["trust"])) > float(np.nanmean(epochs[0]["trust"]))


def test_a_model_can_be_trained_and_recorded_again(tmp_path: Path) -> None:
    """As in a notebook, whose cell is run twice."""
    criterion, model = CrossEntropy(), tiny()
    for _ in range(2):
        with proselflc.record(N, CLASSES) as rec:
            trained(
                tmp_path,
                model,
                num_train_epochs=1,
                compute_loss_func=hf.compute_loss_func(criterion, rec, model),
                callbacks=[hf.ClockCallback(criterion, rec)],
            )
        assert not np.isnan(next(iter(rec.run.dynamics))["p_given"]).any()
    assert model(input_ids=torch.ones(1, 3, dtype=torch.long)).logits.shape == (1, CLASSES)


def test_a_copy_of_a_recorded_model_asks_its_own_weights() -> None:
    """As an average of the weights does, and a checkpoint of the whole model."""
    model = tiny().eval()
    hf.compute_loss_func(CrossEntropy(), proselflc.record(N, CLASSES), model)
    words = torch.ones(1, 3, dtype=torch.long)
    before = model(input_ids=words).logits
    for again in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        torch.nn.init.zeros_(again.classifier.weight)
        torch.nn.init.ones_(again.classifier.bias)
        assert again(input_ids=words).logits.tolist() == [[1.0] * CLASSES]
    torch.testing.assert_close(model(input_ids=words, index=torch.zeros(1)).logits, before)


def test_what_is_recorded_is_of_the_step_also_without_a_callback() -> None:
    """The clock of the criterion counts calls then: after one of two, g(½) = ½."""
    rows, model, criterion = classified(), tiny(), ProSelfLC(total_steps=2, trust="global")
    with proselflc.record(N, CLASSES, criterion=criterion) as rec:
        loss = hf.compute_loss_func(criterion, rec, model)
        words = torch.tensor([row["input_ids"] for row in rows])
        labels = torch.tensor([row["labels"] for row in rows])
        loss(model(input_ids=words, index=torch.arange(N)), labels)
    assert (next(iter(rec.run.dynamics))["trust"] == 0.5).all()


def test_the_example_corrects_its_labels(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import huggingface_text

    huggingface_text.main(tmp_path)
    before, after = (
        float(share) for share in re.findall(r"right \w+ +([\d.]+)%", capsys.readouterr().out)
    )
    assert before < 85
    assert after > 95


def test_what_does_not_fit_is_said(tmp_path: Path) -> None:
    def fails(words: str, model: Any, **options: Any) -> None:
        with pytest.raises(InputError, match=words):
            trained(tmp_path, model, **options)

    criterion = CrossEntropy()
    func, clock = hf.compute_loss_func(criterion), hf.ClockCallback(criterion)
    ours: dict[str, Any] = {"compute_loss_func": func, "callbacks": [clock]}
    fails(
        "label_smoothing_factor=0.1 would have no effect",
        tiny(),
        label_smoothing_factor=0.1,
        **ours,
    )
    causal = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            vocab_size=20,
            n_embd=8,
            n_layer=1,
            n_head=1,
            n_positions=8,
            bos_token_id=0,
            eos_token_id=0,
        )
    )
    fails("predicts the next token", causal, **ours)
    with pytest.raises(InputError, match="recording needs the model"):
        hf.compute_loss_func(criterion, proselflc.record(2, 2))
    with pytest.raises(InputError, match='already has a parameter "labels"'):
        hf.compute_loss_func(criterion, proselflc.record(2, 2), tiny(), column="labels")
    with pytest.raises(InputError, match="found no labels"):
        func({"logits": torch.zeros(2, 3)}, None)
    tokens, positions = tiny("BertForTokenClassification"), torch.arange(2)
    recorded = hf.compute_loss_func(criterion, proselflc.record(2, CLASSES), tokens)
    outputs = tokens(input_ids=torch.ones(2, 3, dtype=torch.long), index=positions)
    with pytest.raises(InputError, match=r"\[2, 3, 3\], but recording needs one label per"):
        recorded(outputs, torch.zeros(2, 3, dtype=torch.long))
    many: Any = types.SimpleNamespace(n_gpu=2, label_smoothing_factor=0)
    with pytest.raises(InputError, match="2 copies of a model in one process: start one"):
        hf.ClockCallback(criterion, proselflc.record(2, 2)).on_train_begin(
            many, transformers.TrainerState(), transformers.TrainerControl()
        )
    rows = [{k: v for k, v in row.items() if k != "index"} for row in classified()]
    model = tiny()
    recorded = hf.compute_loss_func(criterion, proselflc.record(N, CLASSES), model)
    fails('no column "index"', model, train_dataset=rows, compute_loss_func=recorded)


def test_a_missing_or_old_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    old = types.ModuleType("transformers")
    vars(old).update(transformers.__dict__, __version__="4.47.9")
    monkeypatch.setitem(sys.modules, "transformers", old)
    with pytest.raises(ImportError, match=r"^transformers 4\.47\.9 is too old"):
        runpy.run_path(str(hf.__file__))
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ImportError, match=r'needs transformers: pip install "proselflc\[hf\]"$'):
        runpy.run_path(str(hf.__file__))


W = torch.tensor([20.0, 1.0, 9.0])


def by_torch(weight: Tensor | None = W, ignore_index: int = -100) -> Any:
    """The mean of F.cross_entropy over the whole batch that comes."""

    def loss(outputs: Any, labels: Tensor, num_items_in_batch: Any = None) -> Tensor:
        z = outputs["logits"].reshape(-1, CLASSES)
        return torch.nn.functional.cross_entropy(
            z, labels.reshape(-1), weight=weight, ignore_index=ignore_index
        )

    return loss


@pytest.mark.parametrize("ignore_index", [-100, 2])
@pytest.mark.parametrize("make", [CrossEntropy, lambda **k: proselflc.BootSoft(0.0, **k)])
def test_class_weights_mean_what_they_mean_to_f_cross_entropy(make: Any, ignore_index: int) -> None:
    criterion = make(weight=W, ignore_index=ignore_index)
    func = hf.compute_loss_func(criterion)
    outputs = {"logits": torch.linspace(-2, 2, 24).reshape(8, CLASSES).requires_grad_()}
    labels = torch.tensor([0, 1, 2, 0, 1, 2, 1, 1])
    labels[3] = ignore_index
    items = int((labels != -100).sum())
    expected = by_torch(ignore_index=ignore_index)(outputs, labels)
    for number in (None, items, torch.tensor(items)):
        loss = func(outputs, labels, num_items_in_batch=number)
        torch.testing.assert_close(loss, expected)
        gradients = [
            torch.autograd.grad(one, outputs["logits"], retain_graph=True)[0]
            for one in (loss, expected)
        ]
        torch.testing.assert_close(*gradients)


def test_a_part_of_a_step_counts_by_its_share_where_no_callback_knows_the_others() -> None:
    func = hf.compute_loss_func(CrossEntropy(weight=W))
    outputs = {"logits": torch.linspace(-2, 2, 24).reshape(8, CLASSES)}
    labels = torch.tensor([0, 1, 2, 0, 1, 2, 1, 1])
    loss = func(outputs, labels, num_items_in_batch=torch.tensor(32))
    torch.testing.assert_close(loss, by_torch()(outputs, labels) * 8 / 32)


@pytest.mark.parametrize("tokens", [False, True])
@pytest.mark.parametrize("accumulated", [1, 3])
def test_class_weights_train_as_one_large_batch_of_f_cross_entropy(
    tmp_path: Path, accumulated: int, tokens: bool
) -> None:
    """Also with gradients clipped, and with a last step that has fewer batches."""
    rows, kind = classified(), "BertForSequenceClassification"
    if tokens:
        kind = "BertForTokenClassification"
        for row in rows:
            row["labels"] = [k % CLASSES for k in row["input_ids"]]
            row["labels"][: row["index"] % 4] = [-100] * (row["index"] % 4)
    own, ours = tiny(kind), tiny(kind)
    before = weights(ours)
    common: dict[str, Any] = {"optim": "sgd", "max_grad_norm": 0.5, "train_dataset": rows}
    whole = trained(
        tmp_path,
        own,
        per_device_train_batch_size=8 * accumulated,
        compute_loss_func=by_torch(),
        **common,
    )
    criterion = CrossEntropy(weight=W)
    parts = trained(
        tmp_path,
        ours,
        gradient_accumulation_steps=accumulated,
        compute_loss_func=hf.compute_loss_func(criterion),
        callbacks=[hf.ClockCallback(criterion)],
        **common,
    )
    torch.testing.assert_close(weights(ours), weights(own), rtol=0, atol=1e-6)
    assert (weights(ours) - before).abs().max() > 1e-3
    losses = [one.state.log_history[-1]["train_loss"] for one in (parts, whole)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


@pytest.mark.parametrize("option", ["deepspeed", "fsdp"])
def test_class_weights_in_parts_are_refused_where_gradients_are_elsewhere(option: str) -> None:
    criterion = CrossEntropy(weight=W)
    args = types.SimpleNamespace(
        label_smoothing_factor=0.0,
        n_gpu=1,
        gradient_accumulation_steps=2,
        device="cpu",
        **{"deepspeed": None, "fsdp": None, option: "yes"},
    )
    with pytest.raises(InputError, match=r"^class weights.* with gradient_accumulation_steps=2"):
        hf.ClockCallback(criterion).on_train_begin(args, None, None, model=tiny())  # type: ignore[arg-type]
