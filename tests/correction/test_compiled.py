"""Under torch.compile nothing breaks the graph, and nothing compiles anew as training goes on."""

from collections.abc import Callable, Iterator

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend
from torch.testing import assert_close

import proselflc
from proselflc import Criterion

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
