"""The clock where a step has several calls: it follows the optimiser, or says what is wrong."""

import copy
import pickle
import warnings

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch.testing import assert_close

from proselflc import ProSelfLC, functional
from proselflc.correction import clock

X = torch.linspace(-1, 1, 24).reshape(8, 3)
Y = torch.tensor([0, 1, 2, 3, 3, 2, 1, 0])
STEPS, PARTS = 6, 4


def model_of() -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(3, 4)


def trained(criterion: ProSelfLC, parts: int, *, follow: bool) -> tuple[Tensor, list[float]]:
    """Weights after `STEPS` steps on all examples in so many parts, and the time of every call."""
    model, times = model_of(), []
    optimizer = torch.optim.SGD(model.parameters(), 0.5)
    if follow:
        criterion.step_with(optimizer)
    for _ in range(STEPS):
        optimizer.zero_grad()
        for x, y in zip(X.chunk(parts), Y.chunk(parts), strict=True):
            (criterion(model(x), y) / parts).backward()
            times.append(round((int(criterion.t) + int(follow)) / STEPS, 6))
        optimizer.step()
    return model.weight.detach(), times


def test_accumulated_parts_learn_as_one_batch_when_the_clock_follows_the_optimiser() -> None:
    whole, _ = trained(ProSelfLC(STEPS), 1, follow=False)
    criterion = ProSelfLC(STEPS)
    parts, times = trained(criterion, PARTS, follow=True)
    assert times == [round(k / STEPS, 6) for k in range(1, STEPS + 1) for _ in range(PARTS)]
    assert criterion.t == STEPS
    assert_close(parts, whole)
    with pytest.warns(UserWarning, match="total_steps=6") as said:
        too_fast, _ = trained(ProSelfLC(STEPS), PARTS, follow=False)
    assert len(said) == 2
    assert (too_fast - whole).abs().max() > 1e-3


def test_every_call_of_a_step_has_the_time_of_the_step_and_evaluation_the_one_before() -> None:
    criterion, z, y = ProSelfLC(4, trust="global"), torch.zeros(2, 4), Y[:2]
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], 0.1)
    criterion.step_with(optimizer)
    for step in (1, 2):
        for _ in range(3):
            expected = functional.proselflc(z, y, progress=step / 4, trust="global")
            assert_close(criterion(z, y), expected)
        assert criterion.progress == (step - 1) / 4
        optimizer.step()
        assert criterion.progress == step / 4


def test_a_closure_that_is_called_several_times_is_one_step() -> None:
    model, criterion = model_of(), ProSelfLC(5)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=4)
    criterion.step_with(optimizer)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss: Tensor = criterion(model(X), Y)
        torch.autograd.backward(loss)
        return loss

    for _ in range(2):
        optimizer.step(closure)  # type: ignore[no-untyped-call]
    assert criterion.t == 2


def test_an_optimiser_that_accelerate_has_prepared_counts_the_steps_that_it_takes() -> None:
    accelerate = pytest.importorskip("accelerate")
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2)
    model, criterion = model_of(), ProSelfLC(5)
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), 0.1))
    criterion.step_with(optimizer)
    for _ in range(6):
        with accelerator.accumulate(model):
            accelerator.backward(criterion(model(X), Y))
            optimizer.step()
            optimizer.zero_grad()
    assert criterion.t == 3


def test_it_follows_another_optimiser_or_none() -> None:
    criterion, z = ProSelfLC(10), torch.zeros(2, 4)
    first, second = (torch.optim.SGD([nn.Parameter(torch.zeros(1))], 0.1) for _ in range(2))
    criterion.step_with(first)
    criterion.step_with(second)
    first.step()
    assert criterion.t == 0
    second.step()
    assert criterion.t == 1
    criterion.step_with(None)
    second.step()
    criterion(z, Y[:2])
    assert criterion.t == 2
    with pytest.raises(TypeError, match="step_with needs an optimiser of torch, got Linear"):
        criterion.step_with(model_of())  # type: ignore[arg-type]


def test_a_copy_counts_calls_and_leaves_the_original_alone() -> None:
    criterion, z = ProSelfLC(10), torch.zeros(2, 4)
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], 0.1)
    criterion.step_with(optimizer)
    for copied in (copy.deepcopy(criterion), pickle.loads(pickle.dumps(criterion))):
        copied(z, Y[:2])
        assert (int(copied.t), int(criterion.t)) == (1, 0)
    optimizer.step()
    assert (int(copied.t), int(criterion.t)) == (1, 1)
    state = criterion.state_dict()
    criterion.load_state_dict({**state, "t": torch.tensor(7)})
    optimizer.step()
    assert criterion.t == 8


def test_a_compiled_call_follows_the_optimiser_with_one_graph() -> None:
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("aot_eager")
    criterion, z = ProSelfLC(4, trust="global"), torch.zeros(8, 4, requires_grad=True)
    optimizer = torch.optim.SGD([z], 0.5)
    criterion.step_with(optimizer)
    step = torch.compile(criterion, fullgraph=True, backend=counter)
    for k in (1, 2, 3):
        for _ in range(2):
            loss = step(z, Y)
            assert_close(loss, functional.proselflc(z, Y, progress=k / 4, trust="global"))
            loss.backward()
        optimizer.step()
    assert counter.frame_count == 1
    assert criterion.t == 3
    torch._dynamo.reset()


def test_a_schedule_that_ended_long_ago_is_told_again_with_the_count_and_the_cause() -> None:
    criterion, z = ProSelfLC(20), torch.zeros(2, 4)
    criterion.set_progress(20)
    with pytest.warns(UserWarning, match=r"beyond total_steps=20.*step_with\(optimizer\)"):
        criterion(z, Y[:2])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(8):
            criterion(z, Y[:2])
    with pytest.warns(UserWarning, match=r"long before training.*call 30.*total_steps=20"):
        criterion(z, Y[:2])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(40):
            criterion(z, Y[:2])


def test_an_optimiser_that_never_steps_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "MOST_CALLS", 5)
    criterion, z = ProSelfLC(4), torch.zeros(2, 4)
    criterion.step_with(torch.optim.SGD([nn.Parameter(torch.zeros(1))], 0.1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(5):
            criterion(z, Y[:2])
    with pytest.warns(UserWarning, match="has taken no step in 6 training calls"):
        criterion(z, Y[:2])
