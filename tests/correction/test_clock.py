"""The k-th training call uses k/Γ; nothing else moves the clock."""

import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.testing import assert_close

from proselflc import BootSoft, CrossEntropy, ProSelfLC, functional
from proselflc.correction.trust import Growth

Z = torch.tensor([[2.0, 0.0, -1.0], [0.0, 3.0, 0.0]])
Y = torch.tensor([0, 2])


def trusted(progress: float) -> torch.Tensor:
    return functional.correct(ProSelfLC(4, trust="global").method, Z, Y, progress=progress).trust


def test_the_kth_call_uses_k_over_total() -> None:
    criterion = ProSelfLC(total_steps=4)
    for k in (1, 2, 3, 4):
        loss = criterion(Z, Y)
        assert_close(loss, functional.proselflc(Z, Y, progress=k / 4))
        assert criterion.t == k


def test_evaluation_looks_and_changes_nothing() -> None:
    criterion = ProSelfLC(total_steps=4, trust="global")
    criterion(Z, Y)
    at_quarter = functional.proselflc(Z, Y, progress=0.25, trust="global")
    with torch.no_grad():
        assert_close(criterion(Z, Y), at_quarter)
    criterion.eval()
    assert_close(criterion(Z, Y), at_quarter)
    assert_close(criterion.correct(Z, Y).trust, trusted(0.25))
    assert criterion.t == 1
    criterion.train()
    assert_close(criterion(Z, Y), functional.proselflc(Z, Y, progress=0.5, trust="global"))
    assert criterion.t == 2


def test_given_progress_leaves_the_clock_alone() -> None:
    criterion = ProSelfLC(total_steps=4)
    for progress in (0.9, torch.tensor(0.9), 1, 0):
        expected = functional.proselflc(Z, Y, progress=float(progress))
        assert_close(criterion(Z, Y, progress=progress), expected)
    assert criterion.t == 0


def test_state_dict_resumes_the_clock() -> None:
    first = ProSelfLC(total_steps=10)
    for _ in range(3):
        first(Z, Y)
    state = first.state_dict()
    assert state["t"].dtype is torch.int64
    assert state["t"].shape == ()
    second = ProSelfLC(total_steps=10)
    second(Z, Y)
    second.load_state_dict(state)
    assert second.t == 3
    assert_close(second(Z, Y), functional.proselflc(Z, Y, progress=0.4))


def test_the_buffer_is_the_truth_whoever_writes_it() -> None:
    criterion = ProSelfLC(total_steps=10)
    criterion(Z, Y)
    criterion.t.fill_(6)
    assert_close(criterion(Z, Y), functional.proselflc(Z, Y, progress=0.7))
    criterion.t = torch.tensor(1)
    assert_close(criterion(Z, Y), functional.proselflc(Z, Y, progress=0.2))
    criterion.set_progress(8)
    assert criterion.t == 8
    assert_close(criterion(Z, Y), functional.proselflc(Z, Y, progress=0.9))
    criterion.set_progress(1, total=2)
    assert criterion.total_steps == 2
    assert_close(criterion(Z, Y), functional.proselflc(Z, Y, progress=1.0))


def test_beyond_the_end_progress_stays_one_with_one_warning() -> None:
    criterion = ProSelfLC(total_steps=2)
    criterion(Z, Y)
    criterion(Z, Y)
    with pytest.warns(UserWarning, match="beyond total_steps=2"):
        late = criterion(Z, Y)
    assert_close(late, functional.proselflc(Z, Y, progress=1.0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        criterion(Z, Y)
    assert criterion.t == 4


def test_a_refused_call_does_not_count() -> None:
    criterion = ProSelfLC(total_steps=2)
    with pytest.raises(ValueError, match="class id 3"):
        criterion(Z, torch.tensor([0, 3]))
    assert criterion.t == 0


def test_every_criterion_counts_its_training_calls() -> None:
    for criterion in (CrossEntropy(), BootSoft(0.2)):
        criterion(Z, Y)
        with torch.no_grad():
            criterion(Z, Y)
        assert criterion.t == 1


def test_inside_a_model_the_clock_is_saved_and_follows_its_mode() -> None:
    model = nn.ModuleDict({"body": nn.Linear(3, 3), "criterion": ProSelfLC(8)})
    model["criterion"](model["body"](Z), Y)
    assert model.state_dict()["criterion.t"] == 1
    model.eval()
    model["criterion"](model["body"](Z), Y)
    model.double()
    assert model["criterion"].t.dtype is torch.int64
    assert model["criterion"].t == 1


@pytest.mark.parametrize(
    ("sharpness", "expected"),
    [(8, [0.018, 0.119, 0.5, 0.881, 0.982]), (16, [0.0003, 0.018, 0.5, 0.982, 0.9997])],
)
def test_global_trust_has_the_published_values(sharpness: float, expected: list[float]) -> None:
    values = [Growth(sharpness).at(x) for x in (0, 0.25, 0.5, 0.75, 1)]
    assert values == pytest.approx(expected, abs=5e-4)


def test_global_trust_of_enormous_sharpness_is_a_step() -> None:
    assert Growth(1e9).at(0.4999) == 0
    assert Growth(1e9).at(0.5001) == 1
    assert Growth(0).at(0) == Growth(0).at(1) == 0.5


def test_numbers_of_numpy_count_too() -> None:
    criterion = ProSelfLC(np.int64(4))  # type: ignore[arg-type]
    criterion.set_progress(np.int32(2))  # type: ignore[arg-type]
    assert criterion.t == 2
    given = criterion(Z, Y, progress=np.float32(0.5))
    assert_close(given, functional.proselflc(Z, Y, progress=0.5))


def test_a_criterion_made_in_inference_mode_looks_at_its_clock() -> None:
    with torch.inference_mode():
        criterion = ProSelfLC(4, trust="global")
        assert_close(criterion(Z, Y), functional.proselflc(Z, Y, progress=0, trust="global"))
