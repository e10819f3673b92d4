"""Under torch.compile nothing breaks the graph, and nothing compiles anew as training goes on."""

from collections.abc import Callable, Iterator

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend
from torch.testing import assert_close

import proselflc
from proselflc import Criterion, Fixed, Memory, Target
from proselflc.correction.target import RememberedPrediction

T = torch.full((5, 5), 0.05) + 0.75 * torch.eye(5)
EVERY: dict[str, Callable[[], Criterion]] = {
    "CrossEntropy": proselflc.CrossEntropy,
    "LabelSmoothing": lambda: proselflc.LabelSmoothing(0.2),
    "ConfidencePenalty": lambda: proselflc.ConfidencePenalty(0.2),
    "BootSoft": lambda: proselflc.BootSoft(0.3),
    "BootHard": lambda: proselflc.BootHard(0.3),
    "Distillation": lambda: proselflc.Distillation(0.3, 2.0),
    "ProSelfLC": lambda: proselflc.ProSelfLC(10),
    "LowTemperatureProSelfLC": lambda: proselflc.LowTemperatureProSelfLC(10),
    "GeneralizedCrossEntropy": proselflc.GeneralizedCrossEntropy,
    "SymmetricCrossEntropy": proselflc.SymmetricCrossEntropy,
    "ForwardCorrection": lambda: proselflc.ForwardCorrection(T),
    "BackwardCorrection": lambda: proselflc.BackwardCorrection(T),
}


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.parametrize("name", EVERY)
def test_compiled_equals_eager_with_one_graph(name: str) -> None:
    counter = CompileCounterWithBackend("aot_eager")
    eager, compiled = EVERY[name](), EVERY[name]()
    step = torch.compile(compiled, fullgraph=True, backend=counter)
    g = torch.Generator().manual_seed(1)
    for _ in range(4):
        z = torch.randn(6, 5, generator=g).requires_grad_()
        y = torch.randint(5, (6,), generator=g)
        y[0] = -100
        kwargs = {"teacher_logits": z.detach().flip(0)} if name == "Distillation" else {}
        expected, ours = eager(z, y, **kwargs), step(z, y, **kwargs)
        assert_close(ours, expected)
        (expected_gradient,) = torch.autograd.grad(expected, z)
        assert_close(torch.autograd.grad(ours, z)[0], expected_gradient)
    assert counter.frame_count == 1
    assert compiled.t == eager.t == 4


def test_progress_given_as_a_tensor_compiles_once() -> None:
    counter = CompileCounterWithBackend("aot_eager")
    criterion = proselflc.ProSelfLC(10)
    step = torch.compile(criterion, fullgraph=True, backend=counter)
    z, y = torch.randn(6, 5, requires_grad=True), torch.randint(5, (6,))
    for progress in (0.1, 0.4, 0.6, 0.9):
        ours = step(z, y, progress=torch.tensor(progress))
        assert_close(ours, criterion(z, y, progress=progress))
    assert counter.frame_count == 1


def test_progress_given_as_a_number_compiles_once_for_all_numbers() -> None:
    """PyTorch takes the first number for a constant, and the second for a variable for good."""
    counter = CompileCounterWithBackend("aot_eager")
    criterion = proselflc.ProSelfLC(10)
    step = torch.compile(criterion, fullgraph=True, backend=counter)
    z, y = torch.randn(6, 5, requires_grad=True), torch.randint(5, (6,))
    for progress in (0.1, 0.25, 0.4, 0.6, 0.75, 0.9):
        assert_close(step(z, y, progress=progress), criterion(z, y, progress=progress))
    assert counter.frame_count == 2


def test_a_compiled_training_step_with_the_criterion_inside() -> None:
    model = torch.nn.Linear(4, 5)
    criterion = proselflc.ProSelfLC(10)

    @torch.compile(fullgraph=True, backend="aot_eager")
    def loss_of(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return criterion(model(x), y)  # type: ignore[no-any-return]

    x, y = torch.randn(6, 4), torch.randint(5, (6,))
    for k in (1, 2, 3):
        loss = loss_of(x, y)
        assert_close(loss, proselflc.functional.proselflc(model(x), y, progress=k / 10))
    torch.autograd.backward(loss)
    assert criterion.t == 3
    assert model.weight.grad is not None


def test_a_memory_compiles_too() -> None:
    def make() -> Criterion:
        target = Target(RememberedPrediction(), Fixed(0.4))
        return Criterion(target, memory=Memory(10, 5))

    counter = CompileCounterWithBackend("aot_eager")
    eager, compiled = make(), make()
    step = torch.compile(compiled, fullgraph=True, backend=counter)
    g = torch.Generator().manual_seed(1)
    for _ in range(3):
        z = torch.randn(6, 5, generator=g).requires_grad_()
        y, index = torch.randint(5, (6,), generator=g), torch.randint(10, (6,), generator=g)
        assert_close(step(z, y, index=index), eager(z, y, index=index))
    assert counter.frame_count == 1
    assert_close(compiled.state_dict(), eager.state_dict())


@pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")
@pytest.mark.parametrize("name", ["ProSelfLC", "LowTemperatureProSelfLC", "not fused", "memory"])
def test_a_backward_that_computes_again_sees_the_same_time_and_memory(name: str) -> None:
    """As inductor partitions a step, which this backend does without a C++ compiler.

    What the forward reads and then writes, the counter and the memory, must not be read again.
    """
    make: Callable[[], Criterion] = {
        **EVERY,
        "not fused": lambda: proselflc.ProSelfLC(10, fused=False),
        "memory": lambda: Criterion(
            Target(RememberedPrediction(), proselflc.Growth(10)),
            total_steps=10,
            memory=Memory(10, 5, momentum=0.2),
        ),
    }[name]
    eager, compiled = make(), make()
    step = torch.compile(compiled, fullgraph=True, backend="aot_eager_decomp_partition")
    g = torch.Generator().manual_seed(1)
    for _ in range(6):
        z = (2 * torch.randn(6, 5, generator=g)).requires_grad_()
        y, index = torch.randint(5, (6,), generator=g), torch.randperm(10, generator=g)[:6]
        (expected,) = torch.autograd.grad(eager(z, y, index=index), z)
        (ours,) = torch.autograd.grad(step(z, y, index=index), z)
        assert_close(ours, expected)


@pytest.mark.parametrize("name", ["ProSelfLC", "BootSoft", "ConfidencePenalty"])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_compiled_is_eager_to_the_last_digits_of_double_precision(
    name: str, reduction: str
) -> None:
    eager, compiled = EVERY[name](), EVERY[name]()
    for criterion in (eager, compiled):
        criterion.weight = torch.tensor([1.0, 2.0, 0.0, 0.5, 5.0], dtype=torch.float64)
        criterion.reduction = reduction
    step = torch.compile(compiled, fullgraph=True, backend="aot_eager")
    g = torch.Generator().manual_seed(2)
    for _ in range(2):
        z = (4 * torch.randn(7, 5, generator=g, dtype=torch.float64)).requires_grad_()
        y = torch.tensor([0, 1, 2, 3, 4, -100, 4])
        expected, ours = eager(z, y), step(z, y)
        assert_close(ours, expected, rtol=1e-12, atol=1e-14)
        factor = torch.rand(expected.shape, generator=g, dtype=torch.float64)
        (gradient,) = torch.autograd.grad(expected, z, factor)
        assert_close(torch.autograd.grad(ours, z, factor)[0], gradient, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", ["ProSelfLC", "BootSoft", "ConfidencePenalty"])
def test_compiled_takes_extreme_logits_as_eager_does(name: str) -> None:
    logits = torch.tensor(
        [
            [1e4, -1e4, 0.0, 3.0, -3.0],
            [0.0, 0.0, 0.0, 0.0, -1e4],
            [1.0, 2.0, 3.0, 4.0, -torch.inf],
            [0.0, 0.0, 0.0, 0.0, 0.0],
            [90.0, 90.0, 90.0, 0.0, -90.0],
        ],
        requires_grad=True,
    )
    y = torch.tensor([2, 4, 3, 0, 1])
    weight = torch.tensor([1.0, 2.0, 3.0, 40.0, 5.0])
    eager, compiled = EVERY[name](), EVERY[name]()
    eager.weight = compiled.weight = weight
    eager.reduction = compiled.reduction = "sum"
    step = torch.compile(compiled, fullgraph=True, backend="aot_eager")
    expected, ours = eager(logits, y), step(logits, y)
    assert_close(ours, expected)
    (gradient,) = torch.autograd.grad(ours, logits)
    assert gradient.isfinite().all()
    assert_close(gradient, torch.autograd.grad(expected, logits)[0])


def test_compiled_nan_and_impossible_labels_are_as_in_eager() -> None:
    logits = torch.randn(4, 5)
    logits[0, 1] = torch.nan
    logits[1, 3] = torch.inf
    logits[2, 2] = -torch.inf
    y = torch.tensor([0, 1, 2, 3])
    for label in (y, torch.tensor([-100, -100, 2, 3])):
        eager = proselflc.ProSelfLC(10, reduction="none")
        step = torch.compile(
            proselflc.ProSelfLC(10, reduction="none"), fullgraph=True, backend="aot_eager"
        )
        expected = eager(logits, label)
        assert_close(step(logits, label), expected, equal_nan=True)
        assert expected[2] == torch.inf
