"""Tf-KD_self: a network learns, then teaches a fresh one like itself."""

from __future__ import annotations

import copy
import json
import shutil
import signal
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import log_softmax, rel_entr, softmax
from torch import Tensor, nn
from torch.nn import functional as F
from torch.testing import assert_close

from proselflc import methods
from proselflc.cli import app as cli
from proselflc.correction.criteria import CrossEntropy
from proselflc.data.batches import Batch
from proselflc.data.preprocessing import Standardization
from proselflc.errors import InputError
from proselflc.methods.tf_kd_self import TeacherFreeDistillation
from proselflc.training import checkpoint, processes
from proselflc.training.checkpoint import State
from proselflc.training.loop import Training, train_steps
from proselflc.training.observations import observe
from proselflc.training.recipe import Recipe
from proselflc.training.strategy import CorrectedBatch, RunContext, Snapshot, Strategy

N, C, D = 12, 3, 5
BATCHES, TOTAL = 3, 12  # two epochs of each stage
HALF = TOTAL // 2
ALPHA, TAU, M = 0.6, 3.0, 0.4
SGD = Recipe(optimizer="sgd", lr=0.2, weight_decay=0.01, schedule="cosine", steps=TOTAL)
FIRST = [
    *("boot_hard", "boot_soft", "cce", "confidence_penalty", "gce", "label_smoothing"),
    *("proselflc", "proselflc_lt", "sl"),
]


class Few:
    """Three batches of N examples that are different in every epoch."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        self.dtype = dtype

    def __len__(self) -> int:
        return BATCHES

    def batch(self, epoch: int, number: int) -> Batch:
        generator = torch.Generator().manual_seed(100 * epoch + number)
        x = torch.randn(N, D, generator=generator).to(self.dtype)
        return Batch(x, torch.randint(C, (N,), generator=generator), torch.arange(N) + N * number)

    def batches(self, epoch: int = 0, start: int = 0) -> Iterator[Batch]:
        for number in range(start, BATCHES):
            yield self.batch(epoch, number)


def network(*, norm: bool = True, dropout: float = 0.3) -> nn.Sequential:
    torch.manual_seed(0)
    norms = (nn.BatchNorm1d(7),) if norm else ()
    return nn.Sequential(nn.Linear(D, 7), *norms, nn.ReLU(), nn.Dropout(dropout), nn.Linear(7, C))


def tf_kd() -> TeacherFreeDistillation:
    return TeacherFreeDistillation(CrossEntropy(), alpha=ALPHA, temperature=TAU, multiplier=M)


def training(
    recipe: Recipe = SGD,
    model: nn.Module | None = None,
    strategy: Strategy | None = None,
    total: int = TOTAL,
) -> Training:
    return Training(
        network() if model is None else model,
        tf_kd() if strategy is None else strategy,
        recipe,
        total,
        BATCHES,
        accelerator=processes.accelerator(recipe.precision),
    )


def snapshot(model: nn.Module) -> Snapshot:
    given = np.zeros(N * BATCHES, np.int64)
    return Snapshot(model, given, C, lambda rows=None: iter(()), lambda text: None)


def weights(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def assert_equal(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    assert one.keys() == other.keys()
    for name, tensor in one.items():
        assert torch.equal(tensor, other[name]), name


def test_the_first_stage_makes_the_teacher() -> None:
    """Half as long a run by cross entropy ends with the very weights that teach."""
    plain = training(strategy=Strategy(CrossEntropy()), total=HALF)
    losses = [result.loss for result in train_steps(plain, Few())]
    ours = training()
    for result, loss in zip(train_steps(ours, Few(), snapshot), losses, strict=False):
        assert result.loss == loss
        assert ours.strategy.teacher is None
    ours = training()
    for result in train_steps(ours, Few(), snapshot):
        if result.step > HALF:
            assert isinstance(ours.strategy, TeacherFreeDistillation)
            assert ours.strategy.teacher is not None
            assert_equal(weights(ours.strategy.teacher.model), weights(plain.module))
    assert ours.step == TOTAL


def test_the_average_of_the_weights_teaches_where_there_is_one() -> None:
    ours = training(replace(SGD, ema=0.7))
    some = train_steps(ours, Few(), snapshot)
    for _ in range(HALF):
        next(some)
    averaged, last = weights(ours.evaluated), weights(ours.module)
    next(some)
    assert isinstance(ours.strategy, TeacherFreeDistillation)
    assert ours.strategy.teacher is not None
    assert_equal(weights(ours.strategy.teacher.model), averaged)
    assert not torch.equal(averaged["0.weight"], last["0.weight"])


def test_the_second_stage_is_a_loop_from_the_initial_weights() -> None:
    """Against a loop by hand in float64, with the published formula."""
    initial = network(norm=False, dropout=0.0).double()
    ours, loader = training(model=copy.deepcopy(initial)), Few(torch.float64)
    found = [(result.loss, weights(ours.module)) for result in train_steps(ours, loader, snapshot)]
    student, teacher = copy.deepcopy(initial), copy.deepcopy(initial)
    teacher.load_state_dict(found[HALF - 1][1])
    optimizer = torch.optim.SGD(student.parameters(), momentum=0.9, weight_decay=0.01)
    for step in range(HALF, TOTAL):
        batch = loader.batch(*divmod(step, BATCHES))
        for group in optimizer.param_groups:
            group["lr"] = 0.2 * (1 + np.cos(np.pi * (step - HALF) / HALF)) / 2
        z, z_t = student(batch.x), teacher(batch.x).detach()
        kl = F.kl_div((z / TAU).log_softmax(1), (z_t / TAU).softmax(1), reduction="batchmean")
        loss = (1 - ALPHA) * F.cross_entropy(z, batch.y) + ALPHA * M * TAU**2 * kl
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
        assert found[step][0] == pytest.approx(loss.item(), rel=1e-6)
        assert_close(found[step][1], weights(student), rtol=1e-8, atol=1e-10)


def test_the_teacher_stays_as_it_is() -> None:
    ours = training()
    some = train_steps(ours, Few(), snapshot)
    for _ in range(HALF + 1):
        next(some)
    teacher = ours.strategy.teacher
    assert isinstance(teacher, nn.Module)
    before = weights(teacher)
    for _ in some:
        ours.strategy.train()
    assert_equal(weights(teacher), before)
    assert all(p.grad is None and not p.requires_grad for p in teacher.parameters())
    assert not any(module.training for module in teacher.modules() if module is not teacher)
    learned = {id(p) for group in ours.bare_optimizer.param_groups for p in group["params"]}
    assert learned == {id(p) for p in ours.module.parameters()}


def in_second_stage(strategy: TeacherFreeDistillation, model: nn.Module) -> None:
    strategy.arrange(0, model)
    strategy.enter(0, snapshot(model))
    strategy.arrange(1, model)
    strategy.enter(1, snapshot(model))


@pytest.mark.parametrize("multiplier", [0.01, 1.0, 5.0])
def test_the_value_is_the_published_one_with_the_right_reduction(multiplier: float) -> None:
    strategy = TeacherFreeDistillation(
        CrossEntropy(), alpha=ALPHA, temperature=TAU, multiplier=multiplier
    )
    model, batch = network().double(), Few(torch.float64).batch(0, 0)
    in_second_stage(strategy, model)
    z = np.random.default_rng(0).normal(size=(N, C))
    z_t = model.eval()(batch.x).detach().numpy()
    kl = rel_entr(softmax(z_t / TAU, axis=1), softmax(z / TAU, axis=1))
    surprise = -log_softmax(z, axis=1)[np.arange(N), batch.y.numpy()]
    expected = (1 - ALPHA) * surprise.sum() / N + ALPHA * multiplier * TAU**2 * kl.sum() / N
    found = strategy.loss(torch.from_numpy(z), batch, 0.5).item()
    assert found == pytest.approx(expected, rel=1e-10)
    # The published code divides by the classes too, and multiplies by as much more.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of this very trap
        published = F.kl_div(
            torch.from_numpy(z / TAU).log_softmax(1), torch.from_numpy(z_t / TAU).softmax(1)
        )
    theirs = (1 - ALPHA) * surprise.mean() + ALPHA * (multiplier * C) * TAU**2 * published.item()
    assert found == pytest.approx(theirs, rel=1e-10)


@pytest.mark.parametrize("multiplier", [0.25, 1.0])
def test_the_gradient_is_that_of_the_corrected_label_that_is_recorded(multiplier: float) -> None:
    """At τ = 1, and times 1 − α + α m."""
    strategy = TeacherFreeDistillation(
        CrossEntropy(), alpha=ALPHA, temperature=1.0, multiplier=multiplier
    )
    model, batch = network().double(), Few(torch.float64).batch(0, 0)
    in_second_stage(strategy, model)
    z = torch.randn(N, C, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    ours, plain = (z.clone().requires_grad_() for _ in range(2))
    torch.autograd.backward(strategy.loss(ours, batch, 0.5))
    p_t = model.eval()(batch.x).softmax(1).detach()
    scale = 1 - ALPHA + ALPHA * multiplier
    epsilon = ALPHA * multiplier / scale
    q_tilde = (1 - epsilon) * F.one_hot(batch.y, C).double() + epsilon * p_t
    torch.autograd.backward(-scale * (q_tilde * plain.log_softmax(1)).sum(1).mean())
    assert_close(ours.grad, plain.grad, rtol=1e-10, atol=1e-12)
    seen = observe(CorrectedBatch(strategy, z, batch, 0.5), means=True)
    assert_close(seen.means[1], q_tilde.float())
    assert_close(seen.facts[:, 5], torch.full((N,), epsilon))


def context() -> RunContext:
    scaling = Standardization((0.0,) * D, (1.0,) * D)
    given = np.arange(N * BATCHES) % C
    return RunContext(TOTAL, BATCHES, given, ("ant", "bee", "cat"), scaling)


def made(parameters: dict[str, Any]) -> Any:
    resolved = methods.resolved("tf_kd_self", parameters)
    return methods.strategy("tf_kd_self", resolved, context())


@pytest.mark.parametrize("name", FIRST)
def test_the_first_stage_is_any_method_of_one_stage(name: str) -> None:
    alone = methods.strategy(name, methods.resolved(name, {}), context())
    plain, ours = (
        training(strategy=alone, total=HALF),
        training(strategy=made(dict(first=name))),
    )
    some = train_steps(ours, Few(), snapshot)
    for result in train_steps(plain, Few()):
        mine = next(some)
        assert mine.loss == result.loss
        assert torch.equal(mine.logits, result.logits)
    assert type(ours.criterion) is type(plain.criterion)
    next(some)
    assert type(ours.criterion).__name__ == "Distillation"


def test_the_first_method_takes_its_parameters() -> None:
    found = made(dict(first="proselflc", sharpness=4.0, trust="global")).criterion
    alone = methods.resolved("proselflc", dict(sharpness=4.0, trust="global"))
    assert found.method == methods.strategy("proselflc", alone, context()).criterion.method


def test_defaults() -> None:
    assert methods.resolved("tf_kd_self", {}).given() == {
        "first": "cce",
        "epsilon": 0.95,
        "temperature": 20.0,
        "multiplier": 1.0,
    }
    stages = made({}).stages
    assert [(stage.share, stage.fresh) for stage in stages] == [(0.5, False), (0.5, True)]


@pytest.mark.parametrize(
    ("parameters", "reason"),
    [
        (dict(first="proselfc"), 'unknown method "proselfc"; did you mean'),
        (dict(first="tf_kd_self"), "cannot be tf_kd_self, which is more than a criterion"),
        (dict(first="distillation"), "cannot be distillation, which is more than a"),
        (dict(first="joint_soft"), "cannot be joint_soft, which is more than a criterion"),
        (dict(transition=Path("T.npy")), "method tf_kd_self has no"),
        (dict(q=0.5), "method cce has no"),
        (dict(multiplier=0.0), "multiplier must be a number above 0 and finite, got 0.0"),
        (dict(multiplier=float("nan")), "multiplier must be a number above 0"),
        (dict(epsilon=1.5), "epsilon must be a number between 0 and 1, got 1.5"),
        (dict(temperature=-1.0), "temperature must be a number above 0"),
    ],
)
def test_what_it_cannot_use(parameters: dict[str, Any], reason: str) -> None:
    with pytest.raises(InputError) as caught:
        made(parameters)
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("stop", [2, HALF, HALF + 1])
def test_a_restored_run_goes_on_in_half_precision(stop: int) -> None:
    recipe = replace(SGD, precision="bf16")
    whole, losses, state = training(recipe), [], None
    for result in train_steps(whole, Few(), snapshot):
        losses.append(result.loss)
        if result.step == stop:
            tensors = {name: tensor.clone() for name, tensor in whole.tensors().items()}
            state = State(stop, tensors, whole.facts())
    assert state is not None
    resumed = training(recipe)
    resumed.restore(state)
    assert [result.loss for result in train_steps(resumed, Few(), snapshot)] == losses[stop:]
    assert_equal(
        {name: tensor.clone() for name, tensor in whole.tensors().items()},
        {name: tensor.clone() for name, tensor in resumed.tensors().items()},
    )


# 31 batches an epoch, the last of them uneven: the second stage begins after step 62.
TRAIN = (
    *("train", "--data", "digits", "--noise", "symmetric:0.4", "--model", "mlp"),
    *("--epochs", "4", "--batch-size", "42", "--eval-steps", "50", "--quiet"),
    *("--method", "tf_kd_self", "--method.first", "proselflc"),
)
MADE_LAST = ("summary.json", "evaluation.json", "examples.parquet", "model.safetensors")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nobody disturbed, with its state after every step."""
    torch.set_num_threads(1)
    out = tmp_path_factory.mktemp("whole") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint, "KEPT", 1000)
        assert cli.run([*TRAIN, "--checkpoint-seconds", "0", "--out", str(out)]) == 0
    assert len(list((out / "checkpoints").iterdir())) == 124
    return out


@pytest.mark.parametrize("step", [17, 61, 62, 63, 100])
def test_stopped_anywhere_it_ends_with_the_same_bits(
    assert_same: Any, whole: Path, tmp_path: Path, step: int
) -> None:
    out = tmp_path / "run"
    shutil.copytree(whole, out)
    for name in MADE_LAST:
        (out / name).unlink()
    for path in (out / "checkpoints").iterdir():
        if int(path.name[:10]) > step:
            path.unlink()
    resume = ["train", "--out", str(out), "--resume", "--checkpoint-seconds", "60", "--quiet"]
    assert cli.run(resume) == 0
    assert_same(out, whole)


def test_killed_it_goes_on_as_if_nothing_had_happened(
    assert_same: Any, program: Any, whole: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"

    def last() -> int:
        return max(
            (int(path.name[:10]) for path in out.glob("checkpoints/*.safetensors")), default=0
        )

    for least in (20, 75):
        running = program.start(*TRAIN, "--out", out, "--checkpoint-seconds", 0, "--resume")
        running.until(lambda least=least: last() >= least)
        running.send(signal.SIGKILL)
        running.wait()
    assert not (out / "summary.json").exists()
    program("train", "--out", out, "--resume", "--checkpoint-seconds", 60, "--quiet")
    assert_same(out, whole)


def test_history_says_which_stage_a_line_belongs_to(whole: Path) -> None:
    lines = [json.loads(line) for line in (whole / "history.jsonl").read_text().splitlines()]
    assert [(line["step"], line["stage"]) for line in lines] == [
        (50, "teacher"),
        (100, "student"),
        (124, "student"),
    ]
    assert lines[-1]["epsilon"] == pytest.approx(0.95)


def test_on_digits_it_is_better_than_cross_entropy_for_as_long(tmp_path: Path) -> None:
    found = {}
    for method in ("cce", "tf_kd_self"):
        train = ["train", "--data", "digits", "--noise", "symmetric:0.4", "--model", "mlp"]
        train += ["--epochs", "40", "--batch-size", "64", "--quiet", "--method", method]
        assert cli.run([*train, "--out", str(tmp_path / method)]) == 0
        found[method] = json.loads((tmp_path / method / "summary.json").read_text())
    cce, ours = found["cce"], found["tf_kd_self"]
    assert ours["steps"] == cce["steps"]
    assert ours["test_accuracy"] > cce["test_accuracy"] + 0.03
    assert ours["wrong_fitting"] < cce["wrong_fitting"] / 3


def test_one_epoch_is_too_few_for_two_stages(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    train = ["train", "--data", "digits", "--model", "mlp", "--epochs", "1", "--quiet"]
    out = tmp_path / "run"
    assert cli.run([*train, "--method", "tf_kd_self", "--out", str(out)]) == 2
    assert not out.exists()
    assert capfd.readouterr().err == (
        "the method has 2 stages (teacher, student) and needs an epoch for each, got 1: raise "
        "--epochs\n"
    )
