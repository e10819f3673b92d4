"""A finished run teaches: what is learned from it, and which runs cannot teach."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import log_softmax, rel_entr, softmax
from torch import Tensor, nn
from torch.nn import functional as F
from torch.testing import assert_close

import proselflc
from proselflc import methods
from proselflc.cli import app as cli
from proselflc.data.batches import Batch
from proselflc.data.sources import arrays
from proselflc.errors import InputError
from proselflc.methods.distillation import FrozenTeacher, KnowledgeDistillation
from proselflc.models.weights import read_state
from proselflc.run.config import Config
from proselflc.run.prepare import prepare
from proselflc.run.reader import load_run
from proselflc.training import processes
from proselflc.training.loop import Training
from proselflc.training.observations import observe
from proselflc.training.recipe import Recipe
from proselflc.training.strategy import CorrectedBatch, RunContext

N, C, D = 12, 3, 4
NAMES = ("ant", "bee", "cat")
SGD = Recipe(optimizer="sgd", lr=0.2, weight_decay=0.01, schedule="constant", steps=6)


def blobs(n: int = 90) -> tuple[Any, Any]:
    generator = np.random.default_rng(0)
    y = generator.integers(C, size=n)
    return np.eye(C, D)[y] + generator.normal(0, 0.3, (n, D)), y


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on three blobs."""
    x, y = blobs()
    path = tmp_path_factory.mktemp("teacher") / "run"
    proselflc.fit(x, y, names=NAMES, model="mlp", steps=20, out=path)
    return path


def context(run: Path, *, names: tuple[str, ...] = NAMES, model: str = "mlp") -> RunContext:
    given = np.arange(N) % C
    return RunContext(6, 3, given, names, load_run(run).preprocessing, model=model)


def taught(run: Path, *, epsilon: float = 0.5, temperature: float = 1.0) -> KnowledgeDistillation:
    return KnowledgeDistillation(context(run), run, epsilon=epsilon, temperature=temperature)


def batch(seed: int = 0, size: int = N, dtype: torch.dtype = torch.float32) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(size, D, generator=generator, dtype=dtype)
    return Batch(
        x, torch.randint(C, (size,), generator=generator), torch.arange(size) + size * seed
    )


def network(dtype: torch.dtype = torch.float32) -> nn.Sequential:
    """With what behaves differently in training."""
    torch.manual_seed(1)
    layers = nn.Linear(D, 7), nn.BatchNorm1d(7), nn.ReLU(), nn.Dropout(0.5), nn.Linear(7, C)
    return nn.Sequential(*layers).to(dtype)


def training(strategy: KnowledgeDistillation, recipe: Recipe = SGD) -> Training:
    torch.manual_seed(0)
    student = nn.Sequential(nn.Linear(D, 7), nn.ReLU(), nn.Linear(7, C))
    accelerator = processes.accelerator(recipe.precision)
    return Training(student, strategy, recipe, 6, 3, accelerator=accelerator)


def weights(module: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}


def test_the_teacher_is_the_model_of_the_run(run: Path) -> None:
    strategy, x = taught(run), batch().x
    logits = strategy.teacher_logits(batch())
    assert logits is not None
    saved = load_run(run).model
    with torch.no_grad():
        assert torch.equal(logits, saved(x))
    assert not logits.requires_grad


def test_the_teacher_stays_as_it_is(run: Path) -> None:
    strategy = taught(run)
    strategy.teacher = FrozenTeacher(network())
    before = weights(strategy.teacher)
    ours = training(strategy)
    student = weights(ours.module)
    for k in range(6):
        strategy.train()  # whoever calls it
        ours.learn(batch(k))
    after = weights(strategy.teacher)
    assert all(torch.equal(tensor, after[name]) for name, tensor in before.items())
    assert "model.1.running_mean" in before
    assert not any(
        torch.equal(tensor, ours.module.state_dict()[k]) for k, tensor in student.items()
    )
    assert all(parameter.grad is None for parameter in strategy.teacher.parameters())
    assert not any(parameter.requires_grad for parameter in strategy.teacher.parameters())
    assert not any(module.training for module in strategy.teacher.model.modules())
    learned = {id(p) for group in ours.bare_optimizer.param_groups for p in group["params"]}
    assert not learned & {id(p) for p in strategy.parameters()}


def test_the_teacher_answers_in_the_precision_of_the_student(run: Path) -> None:
    x, y = blobs()
    config = Config(
        model="mlp",
        method="distillation",
        parameters=dict(teacher=run),
        recipe=Recipe(steps=6, precision="bf16"),
    )
    setting = prepare(config, arrays.load(x, y, names=NAMES), report=lambda text: None)
    assert isinstance(setting.strategy, KnowledgeDistillation)
    assert setting.strategy.teacher.precision == "bf16"
    # Not that network: products of its size need instructions that some machines refuse.
    teacher, one = FrozenTeacher(network(), precision="bf16"), batch()
    student = processes.accelerator("bf16").prepare(network()).eval()
    with torch.no_grad():
        found, alike, exact = teacher(one), student(one.x), network().eval()(one.x)
    assert found.dtype == torch.float32
    assert torch.equal(found, alike)
    assert not torch.equal(found, exact)
    assert_close(found, exact, rtol=0.05, atol=0.05)
    assert {weight.dtype for weight in teacher.parameters()} == {torch.float32}


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0])
def test_the_gradient_is_that_of_the_corrected_label(run: Path, epsilon: float) -> None:
    strategy, one = taught(run, epsilon=epsilon), batch(dtype=torch.float64)
    strategy.teacher = FrozenTeacher(network(torch.float64))
    z = torch.randn(N, C, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    ours, plain = (z.clone().requires_grad_() for _ in range(2))
    torch.autograd.backward(strategy.loss(ours, one, 0.5))
    p_t = network(torch.float64).eval()(one.x).softmax(1).detach()
    q_tilde = (1 - epsilon) * F.one_hot(one.y, C).double() + epsilon * p_t
    torch.autograd.backward(-(q_tilde * plain.log_softmax(1)).sum(1).mean())
    assert_close(ours.grad, plain.grad, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("tau", [1.0, 4.0])
def test_the_divergence_is_summed_over_classes_and_averaged_over_the_batch(
    run: Path, tau: float
) -> None:
    epsilon = 0.7
    strategy, one = taught(run, epsilon=epsilon, temperature=tau), batch(dtype=torch.float64)
    strategy.teacher = FrozenTeacher(network(torch.float64))
    z = np.random.default_rng(3).normal(size=(N, C))
    z_t = network(torch.float64).eval()(one.x).detach().numpy()
    kl = rel_entr(softmax(z_t / tau, axis=1), softmax(z / tau, axis=1))
    surprise = -log_softmax(z, axis=1)[np.arange(N), one.y.numpy()]
    expected = (1 - epsilon) * surprise.sum() / N + epsilon * tau**2 * kl.sum() / N
    found = strategy.loss(torch.from_numpy(z), one, 0.5).item()
    assert found == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("parts", [1, 3])
def test_a_batch_is_asked_about_once(run: Path, parts: int) -> None:
    strategy = taught(run, epsilon=0.3)
    asked: list[Tensor] = []
    strategy.teacher.model.register_forward_pre_hook(lambda _, x: asked.append(x[0]))
    ours = training(strategy, Recipe(**{**SGD.__dict__, "accumulate": parts}))
    for k in range(3):
        asked.clear()
        one = batch(k)
        logits = ours.learn(one).logits
        seen = observe(CorrectedBatch(strategy, logits, one, 0.5), means=True)
        assert torch.equal(torch.cat(asked), one.x)
        assert len(asked) == parts
        p_t = load_run(run).model(one.x).softmax(1).detach()
        assert_close(seen.means[1], 0.7 * F.one_hot(one.y, C) + 0.3 * p_t)
    other = batch(7)
    observe(CorrectedBatch(strategy, torch.zeros(N, C), other, 0.5), means=False)
    assert torch.equal(asked[-1], other.x)  # not what was kept of another batch
    ours.learn(batch(8))
    observe(CorrectedBatch(strategy, torch.zeros(N, C), batch(8), 0.5), means=False)
    assert torch.equal(torch.cat(asked[parts + 1 :]), batch(8).x)


def test_classes_in_another_order_are_matched_by_name(run: Path) -> None:
    names = ("cat", "ant", "bee")
    strategy = KnowledgeDistillation(context(run, names=names), run, epsilon=0.5, temperature=1.0)
    logits = strategy.teacher_logits(batch())
    with torch.no_grad():
        theirs = load_run(run).model(batch().x)
    assert logits is not None
    for column, name in enumerate(names):
        assert torch.equal(logits[:, column], theirs[:, NAMES.index(name)])


def refused(run: Path, where: RunContext) -> str:
    parameters = methods.resolved("distillation", dict(teacher=run))
    with pytest.raises(InputError) as caught:
        methods.strategy("distillation", parameters, where)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_teacher_that_cannot_teach_is_refused(run: Path, tmp_path: Path) -> None:
    here = context(run)
    assert "there is no run" in refused(tmp_path / "none", here)
    assert "it has no config.toml" in refused(tmp_path, here)
    unfinished = tmp_path / "unfinished"
    shutil.copytree(run, unfinished)
    (unfinished / "summary.json").unlink()
    assert "is not finished" in refused(unfinished, here)
    more = context(run, names=(*NAMES, "dog"))
    assert "has 3 classes and the data 4, and they differ (it does not know dog)" in (
        refused(run, more)
    )
    assert "(the data does not have cat)" in refused(run, context(run, names=NAMES[:2]))
    with pytest.raises(InputError) as caught:
        methods.resolved("distillation", {})
    assert caught.value.field == "method.teacher"


def test_a_teacher_with_other_inputs_is_refused(run: Path, tmp_path: Path) -> None:
    x, y = blobs()
    proselflc.fit(x + 1, y, names=NAMES, model="mlp", steps=2, out=tmp_path / "moved")
    texts = ["ant", "bee", "cat"] * 20
    proselflc.fit(texts, np.arange(60) % 3, names=NAMES, steps=2, out=tmp_path / "texts")
    for other in ("moved", "texts"):
        assert "preprocesses its inputs differently" in refused(tmp_path / other, context(run))


def test_damaged_weights_are_refused(run: Path, tmp_path: Path, resealed: Any) -> None:
    from safetensors.torch import save_file

    other = tmp_path / "run"
    shutil.copytree(run, other)
    state = read_state(other / "model.safetensors")
    name = next(iter(state))
    save_file({**state, name: state[name] * torch.nan}, other / "model.safetensors")
    resealed(other)
    assert "NaN or infinite numbers" in refused(other, context(run))
    save_file({k: v for k, v in state.items() if k != name}, other / "model.safetensors")
    resealed(other)
    assert "do not fit the model" in refused(other, context(run))
    (other / "model.safetensors").write_bytes(b"\x80\x04K\x01.")
    resealed(other)
    assert "cannot read weights" in refused(other, context(run))
    described = json.loads((other / "model.json").read_text())
    (other / "model.json").write_text(json.dumps({**described, "names": 3}))
    resealed(other)
    assert "$.names" in refused(other, context(run))


def test_a_stranger_s_code_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the code that the user named for this run is trusted."""
    (tmp_path / "factory_of_a_teacher.py").write_text(
        "import pathlib, torch\npathlib.Path('was_run').touch()\n"
        "def small(num_classes, shape):\n"
        "    return torch.nn.Linear(shape.width, num_classes)\n"
    )
    monkeypatch.chdir(tmp_path)
    x, y = blobs()
    made = "factory_of_a_teacher:small"
    out = tmp_path / "run"
    proselflc.fit(x, y, names=NAMES, model=made, steps=2, out=out)
    (tmp_path / "was_run").unlink()
    monkeypatch.delitem(__import__("sys").modules, "factory_of_a_teacher")
    said = refused(out, context(out))
    assert f"not one of this package ({made})" in said
    assert not (tmp_path / "was_run").exists()
    strategy = methods.strategy(
        "distillation",
        methods.resolved("distillation", dict(teacher=out)),
        context(out, model=made),
    )
    logits = strategy.teacher_logits(batch())
    assert logits is not None
    with torch.no_grad():
        assert torch.equal(logits, load_run(out, model=made).model(batch().x))


TRAIN = (
    *("train", "--data", "digits", "--noise", "symmetric:0.4", "--model", "mlp"),
    *("--batch-size", "64", "--quiet"),
)


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run by ProSelfLC."""
    torch.set_num_threads(1)
    out = tmp_path_factory.mktemp("digits") / "run"
    assert cli.run([*TRAIN, "--epochs", "8", "--method", "proselflc", "--out", str(out)]) == 0
    return out


def summary(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "summary.json").read_text())
    return found


def test_a_good_teacher_keeps_its_student_from_wrong_labels(digits: Path, tmp_path: Path) -> None:
    train = [*TRAIN, "--epochs", "40"]
    taught = ["--method", "distillation", "--method.teacher", str(digits)]
    assert cli.run([*train, *taught, "--out", str(tmp_path / "taught")]) == 0
    assert cli.run([*train, "--method", "cce", "--out", str(tmp_path / "alone")]) == 0
    one, other = summary(tmp_path / "taught"), summary(tmp_path / "alone")
    assert one["test_accuracy"] > other["test_accuracy"] + 0.04
    assert one["wrong_fitting"] < other["wrong_fitting"] / 2


def test_killed_it_goes_on_as_if_nothing_had_happened(
    program: Any, digits: Path, tmp_path: Path
) -> None:
    train = (*TRAIN, "--epochs", "4", "--method", "distillation", "--method.teacher", digits)
    whole, out = tmp_path / "whole", tmp_path / "run"
    program(*train, "--out", whole)
    running = program.start(*train, "--out", out, "--checkpoint-seconds", 0)
    running.until(lambda: len(list(out.glob("checkpoints/*.safetensors"))) >= 2)
    running.send(signal.SIGKILL)
    running.wait()
    assert not (out / "summary.json").exists()
    program("train", "--out", out, "--resume", "--checkpoint-seconds", 60, "--quiet")
    for name in ("model.safetensors", "examples.parquet", "evaluation.json"):
        assert (out / name).read_bytes() == (whole / name).read_bytes(), name
    for path in (whole / "dynamics").iterdir():
        assert path.read_bytes() == (out / "dynamics" / path.name).read_bytes(), path.name


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ("--method.teacher nowhere", "must be a finished run: there is no run"),
        ("", "method distillation needs --method.teacher, a finished run as the teacher: give it"),
        ("--method.teacher RUN --trusted 0.2", "preprocesses its inputs differently"),
        ("--method.teacher RUN --method.epsilon 2", "between 0 and 1, got 2.0"),
        ("--method.teacher RUN --method.temperature 0", "above 0 and finite, got 0"),
        ("--method.teacher RUN --method.multiplier 1", "has no --method.multiplier"),
    ],
)
def test_a_mistake_gets_one_sentence(
    digits: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], options: str, reason: str
) -> None:
    words = options.replace("RUN", str(digits)).split()
    out = tmp_path / "run"
    assert cli.run([*TRAIN, "--method", "distillation", *words, "--out", str(out)]) == 2
    assert not out.exists()
    said = capfd.readouterr().err
    assert said.count("\n") == 1
    assert reason in said
