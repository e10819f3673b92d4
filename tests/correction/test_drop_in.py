"""Every criterion takes what `F.cross_entropy` takes and, with ε = 0, gives what it gives."""

import copy
import pickle
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F
from torch.testing import assert_close

import proselflc
from proselflc import Criterion, functional

C = 5
T = torch.full((C, C), 0.05) + 0.75 * torch.eye(C)

EVERY: dict[str, Callable[..., Criterion]] = {
    "CrossEntropy": proselflc.CrossEntropy,
    "LabelSmoothing": lambda **k: proselflc.LabelSmoothing(0.2, **k),
    "ConfidencePenalty": lambda **k: proselflc.ConfidencePenalty(0.2, **k),
    "BootSoft": lambda **k: proselflc.BootSoft(0.3, **k),
    "BootHard": lambda **k: proselflc.BootHard(0.3, **k),
    "Distillation": lambda **k: proselflc.Distillation(0.3, 2.0, **k),
    "ProSelfLC": lambda **k: proselflc.ProSelfLC(10, **k),
    "LowTemperatureProSelfLC": lambda **k: proselflc.LowTemperatureProSelfLC(10, **k),
    "GeneralizedCrossEntropy": proselflc.GeneralizedCrossEntropy,
    "SymmetricCrossEntropy": proselflc.SymmetricCrossEntropy,
    "ForwardCorrection": lambda **k: proselflc.ForwardCorrection(T, **k),
    "BackwardCorrection": lambda **k: proselflc.BackwardCorrection(T, **k),
}

NEUTRAL: dict[str, Callable[..., Criterion]] = {
    "CrossEntropy": proselflc.CrossEntropy,
    "LabelSmoothing": lambda **k: proselflc.LabelSmoothing(0.0, **k),
    "ConfidencePenalty": lambda **k: proselflc.ConfidencePenalty(0.0, **k),
    "BootSoft": lambda **k: proselflc.BootSoft(0.0, **k),
    "BootSoft, not fused": lambda **k: proselflc.BootSoft(0.0, fused=False, **k),
    "BootHard": lambda **k: proselflc.BootHard(0.0, **k),
    "Distillation": lambda **k: proselflc.Distillation(0.0, 3.0, **k),
    "ProSelfLC": lambda **k: proselflc.ProSelfLC(10, trust=proselflc.Fixed(0.0), **k),
    "LowTemperatureProSelfLC": lambda **k: proselflc.LowTemperatureProSelfLC(
        10, trust=proselflc.Fixed(0.0), **k
    ),
    "ForwardCorrection": lambda **k: proselflc.ForwardCorrection(torch.eye(C), **k),
    "BackwardCorrection": lambda **k: proselflc.BackwardCorrection(torch.eye(C), **k),
}

SHAPES = {"batch": (7, C), "one": (C,), "image": (3, C, 2, 4), "sequence": (2, C, 6)}


def batch(
    shape: tuple[int, ...], *, probabilities: bool, ignore: int | None, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(sum(shape))
    logits = (3 * torch.randn(shape, generator=g, dtype=torch.float64)).to(dtype)
    if probabilities:
        dim = 0 if len(shape) == 1 else 1
        return logits, torch.randn(shape, generator=g, dtype=torch.float64).softmax(dim).to(dtype)
    ids = torch.randint(C, () if len(shape) == 1 else (shape[0], *shape[2:]), generator=g)
    if ignore is not None and ids.dim():
        ids.view(-1)[::3] = ignore
    return logits, ids


def value_and_gradient(f: Callable[[Tensor], Tensor], logits: Tensor) -> tuple[Tensor, Tensor]:
    logits = logits.clone().requires_grad_()
    loss = f(logits)
    outer = torch.linspace(0.5, 1.5, loss.numel(), dtype=loss.dtype).reshape(loss.shape)
    (gradient,) = torch.autograd.grad(loss, logits, outer)
    return loss.detach(), gradient


@pytest.mark.parametrize("name", NEUTRAL)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", ["ids", "ids, some ignored", "ids, 2 ignored", "probabilities"])
def test_neutral_criterion_is_f_cross_entropy(name: str, shape: str, kind: str) -> None:
    ignore = {"ids, some ignored": -100, "ids, 2 ignored": 2}.get(kind)
    for weighted, reduction, dtype in product(
        (False, True), ("mean", "sum", "none"), (torch.float64, torch.float32)
    ):
        logits, target = batch(
            SHAPES[shape], probabilities=kind == "probabilities", ignore=ignore, dtype=dtype
        )
        weight = torch.tensor([0.2, 1.0, 3.0, 0.7, 1.3], dtype=dtype) if weighted else None
        options: dict[str, Any] = {"weight": weight, "reduction": reduction}
        options["ignore_index"] = -100 if ignore is None else ignore
        criterion = NEUTRAL[name](**options)
        teacher = {"teacher_logits": logits.flip(0)} if name == "Distillation" else {}

        def reference(
            z: Tensor, target: Tensor = target, options: dict[str, Any] = options
        ) -> Tensor:
            return F.cross_entropy(z, target, **options)

        def ours(
            z: Tensor,
            criterion: Criterion = criterion,
            target: Tensor = target,
            teacher: dict[str, Tensor] = teacher,
        ) -> Tensor:
            return criterion(z, target, **teacher)  # type: ignore[no-any-return]

        expected = value_and_gradient(reference, logits)
        assert_close(value_and_gradient(ours, logits), expected, equal_nan=True)


@pytest.mark.parametrize("probabilities", [False, True])
def test_label_smoothing_is_that_of_f_cross_entropy(probabilities: bool) -> None:
    for weighted, reduction, shape in product((False, True), ("mean", "sum", "none"), SHAPES):
        logits, target = batch(
            SHAPES[shape],
            probabilities=probabilities,
            ignore=None if probabilities else -100,
            dtype=torch.float64,
        )
        weight = torch.rand(C, dtype=torch.float64) if weighted else None
        expected = F.cross_entropy(
            logits, target, weight=weight, reduction=reduction, label_smoothing=0.3
        )
        ours = proselflc.LabelSmoothing(0.3, weight=weight, reduction=reduction)(logits, target)
        assert_close(ours, expected)


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("shape", SHAPES)
def test_reductions_agree_with_none(name: str, shape: str) -> None:
    logits, target = batch(SHAPES[shape], probabilities=False, ignore=-100, dtype=torch.float64)
    weight = torch.tensor([0.2, 1.0, 3.0, 0.7, 1.3], dtype=torch.float64)
    kwargs = {"teacher_logits": logits.flip(0)} if name == "Distillation" else {}
    make = EVERY[name]
    each = make(weight=weight, reduction="none")(logits, target, progress=0.7, **kwargs)
    assert each.shape == target.shape
    assert_close(each[target == -100], torch.zeros_like(each[target == -100]))
    total = make(weight=weight, reduction="sum")(logits, target, progress=0.7, **kwargs)
    assert_close(total, each.sum())
    mean = make(weight=weight)(logits, target, progress=0.7, **kwargs)
    assert_close(mean, each.sum() / weight[target[target != -100]].sum())


@pytest.mark.parametrize("name", EVERY)
def test_one_hot_probabilities_are_class_ids(name: str) -> None:
    logits, ids = batch((6, C), probabilities=False, ignore=None, dtype=torch.float64)
    kwargs = {"teacher_logits": logits.flip(0)} if name == "Distillation" else {}
    q = F.one_hot(ids, C).double()
    for weight in (None, torch.rand(C, dtype=torch.float64)):
        criterion = EVERY[name](reduction="none", weight=weight)
        assert_close(
            criterion(logits, q, progress=0.8, **kwargs),
            criterion(logits, ids, progress=0.8, **kwargs),
        )


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(name: str, dtype: torch.dtype) -> None:
    logits, ids = batch((6, C), probabilities=False, ignore=None, dtype=torch.float64)
    half = logits.to(dtype).requires_grad_()
    kwargs = {"teacher_logits": logits.flip(0).to(dtype)} if name == "Distillation" else {}
    loss = EVERY[name]()(half, ids, progress=0.8, **kwargs)
    loss.backward()
    assert half.grad is not None
    same = half.detach().float().requires_grad_()
    kwargs = {k: v.float() for k, v in kwargs.items()}
    expected = EVERY[name]()(same, ids, progress=0.8, **kwargs)
    expected.backward()
    assert same.grad is not None
    assert loss.dtype is torch.float32
    assert_close(loss, expected)
    assert half.grad.dtype is dtype
    assert_close(half.grad, same.grad.to(dtype))


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("probabilities", [False, True])
def test_autocast_does_not_lower_the_precision(name: str, probabilities: bool) -> None:
    logits, ids = batch((6, C), probabilities=probabilities, ignore=None, dtype=torch.float32)
    kwargs = {"teacher_logits": logits.flip(0)} if name == "Distillation" else {}
    plain = value_and_gradient(lambda z: EVERY[name]()(z, ids, progress=0.8, **kwargs), logits)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = value_and_gradient(lambda z: EVERY[name]()(z, ids, progress=0.8, **kwargs), logits)
    assert_close(cast, plain)


@pytest.mark.parametrize("name", EVERY)
def test_extreme_logits_give_finite_losses_and_gradients(name: str) -> None:
    logits = torch.tensor([[1e4, -1e4, 0.0, 3.0, -3.0], [0.0, 0.0, 0.0, 0.0, -1e4]])
    kwargs = {"teacher_logits": logits} if name == "Distillation" else {}
    ids = torch.tensor([2, 4])
    value, gradient = value_and_gradient(
        lambda z: EVERY[name]()(z, ids, progress=0.9, **kwargs), logits
    )
    assert value.isfinite()
    assert gradient.isfinite().all()
    # A bounded loss and one that mixes classes are flat out there; the others must still pull.
    flat = gradient.abs().sum() == 0
    assert not flat or name in ("GeneralizedCrossEntropy", "ForwardCorrection")


@pytest.mark.parametrize(
    "name", ["CrossEntropy", "ConfidencePenalty", "BootSoft", "BootHard", "ProSelfLC"]
)
def test_a_class_masked_by_minus_infinity_is_harmless(name: str) -> None:
    logits, ids = batch((6, C), probabilities=False, ignore=None, dtype=torch.float64)
    ids = ids.clamp(max=C - 2)
    masked = logits.clone()
    masked[:, -1] = -torch.inf
    make = EVERY[name]
    kwargs = {"trust": "global*max_p"} if name == "ProSelfLC" else {}  # log C differs otherwise
    value, gradient = value_and_gradient(lambda z: make(**kwargs)(z, ids, progress=0.9), masked)
    without = value_and_gradient(lambda z: make(**kwargs)(z, ids, progress=0.9), logits[:, :-1])
    assert_close(value, without[0])
    assert_close(gradient[:, :-1], without[1])
    assert_close(gradient[:, -1], torch.zeros_like(gradient[:, -1]))


@pytest.mark.parametrize("name", NEUTRAL)
def test_a_neutral_criterion_with_a_masked_class_is_f_cross_entropy(name: str) -> None:
    logits, ids = batch((6, C), probabilities=False, ignore=None, dtype=torch.float64)
    ids = ids.clamp(max=C - 2)
    kwargs = {"teacher_logits": logits.flip(0)} if name == "Distillation" else {}
    logits[:, -1] = -torch.inf
    assert_close(NEUTRAL[name]()(logits, ids, **kwargs), F.cross_entropy(logits, ids))


@pytest.mark.parametrize("name", EVERY)
def test_an_ignored_example_teaches_nothing_even_if_nan(name: str) -> None:
    logits, ids = batch((6, C), probabilities=False, ignore=None, dtype=torch.float32)
    logits[1] = torch.nan
    ids[1] = -100
    kwargs = {"teacher_logits": torch.zeros_like(logits)} if name == "Distillation" else {}
    for part in EVERY[name]().correct(logits, ids, progress=0.9, **kwargs):
        assert (part[1] == 0).all()


@pytest.mark.parametrize("name", EVERY)
def test_nan_logits_behave_as_in_f_cross_entropy(name: str) -> None:
    logits, ids = batch((6, C), probabilities=False, ignore=None, dtype=torch.float32)
    logits[1, 2] = torch.nan
    kwargs = {"teacher_logits": torch.zeros_like(logits)} if name == "Distillation" else {}
    each = EVERY[name](reduction="none")(logits, ids, progress=0.9, **kwargs)
    assert_close(each.isnan(), F.cross_entropy(logits, ids, reduction="none").isnan())
    ids[1] = -100
    each = EVERY[name](reduction="none")(logits, ids, progress=0.9, **kwargs)
    assert not each.isnan().any()
    assert each[1] == 0


@pytest.mark.parametrize("name", EVERY)
def test_empty_batch(name: str) -> None:
    logits = torch.zeros(0, C, requires_grad=True)
    kwargs = {"teacher_logits": torch.zeros(0, C)} if name == "Distillation" else {}
    ids = torch.zeros(0, dtype=torch.int64)
    assert EVERY[name](reduction="sum")(logits, ids, progress=0.5, **kwargs) == 0
    loss = EVERY[name]()(logits, ids, progress=0.5, **kwargs)
    assert loss.isnan()  # as F.cross_entropy
    loss.backward()
    assert logits.grad is not None
    assert logits.grad.shape == (0, C)


@pytest.mark.parametrize("name", EVERY)
def test_class_ids_may_be_bytes(name: str) -> None:
    """As in `F.cross_entropy`, which takes int64 and uint8 and no other integers."""
    logits, ids = batch((6, C), probabilities=False, ignore=None, dtype=torch.float64)
    kwargs = {"teacher_logits": logits.flip(0)} if name == "Distillation" else {}
    ids[1] = 255
    criterion = EVERY[name](ignore_index=255)
    expected = criterion(logits, ids, progress=0.5, **kwargs)
    assert_close(criterion(logits, ids.byte(), progress=0.5, **kwargs), expected)
    assert_close(
        F.cross_entropy(logits, ids.byte(), ignore_index=255),
        F.cross_entropy(logits, ids, ignore_index=255),
    )
    with pytest.raises(ValueError, match=r"class id 255 at position 1"):
        EVERY[name]()(logits, ids.byte(), progress=0.5, **kwargs)
    for dtype in (torch.int32, torch.int16, torch.int8):
        with pytest.raises(RuntimeError, match="target dtype"):
            F.cross_entropy(logits, ids.to(dtype))
        with pytest.raises(TypeError, match=r"got torch\.int\d+: use target\.long\(\)"):
            criterion(logits, ids.to(dtype), progress=0.5, **kwargs)


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("wrong", [-1, -101, C, C + 1, 2**40, -(2**40)])
@pytest.mark.parametrize("N", [1, 2, 300])
def test_an_id_out_of_range_is_named_and_changes_nothing(name: str, wrong: int, N: int) -> None:
    logits = torch.randn(N, C, requires_grad=True)
    kwargs = {"teacher_logits": torch.zeros(N, C)} if name == "Distillation" else {}
    ids = torch.randint(C, (N,))
    ids[N // 2] = wrong
    criterion = EVERY[name]()
    for call in (criterion, criterion.correct):
        with pytest.raises(ValueError, match=f"class id {wrong} at position {N // 2}") as caught:
            call(logits, ids, **kwargs)
        assert caught.value.__cause__ is None
        assert caught.value.__suppress_context__ or caught.value.__context__ is None
    assert criterion.t == 0
    ids[N // 2] = -100
    if N > 1:
        assert_close(
            criterion(logits, ids, **kwargs),
            EVERY[name](reduction="none")(logits, ids, **kwargs).sum() / (N - 1),
        )
        assert criterion.t == 1


@pytest.mark.parametrize("name", EVERY)
def test_is_a_cross_entropy_loss_for_others(name: str) -> None:
    criterion = EVERY[name]()
    assert isinstance(criterion, nn.CrossEntropyLoss)
    assert type(criterion).__name__ in repr(criterion)
    logits, ids = batch((6, C), probabilities=False, ignore=None, dtype=torch.float32)
    kwargs = {"teacher_logits": logits.flip(0)} if name == "Distillation" else {}
    expected = criterion(logits, ids, **kwargs)
    for twin in (copy.deepcopy(criterion), pickle.loads(pickle.dumps(criterion))):
        assert twin.t == 1
        twin.set_progress(0)
        assert_close(twin(logits, ids, **kwargs), expected)


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("shape", SHAPES)
def test_correct_says_what_is_taught(name: str, shape: str) -> None:
    logits, target = batch(SHAPES[shape], probabilities=False, ignore=-100, dtype=torch.float64)
    kwargs = {"teacher_logits": logits.flip(0)} if name == "Distillation" else {}
    criterion = EVERY[name]()
    loss, q_tilde, trust = criterion.correct(logits, target, progress=0.8, **kwargs)
    each = EVERY[name](reduction="none")(logits, target, progress=0.8, **kwargs)
    assert criterion.t == 0
    assert_close(loss, each)
    assert loss.shape == trust.shape == target.shape
    assert q_tilde.shape == logits.shape
    assert ((trust >= 0) & (trust <= 1)).all()
    classes_last = q_tilde if q_tilde.dim() == 1 else q_tilde.movedim(1, -1)
    ignored = target == -100
    assert (classes_last[ignored] == 0).all()
    assert (trust[ignored] == 0).all()
    mass = classes_last.sum(-1)[~ignored]
    expected = 1 - 2 * trust[~ignored] if name == "ConfidencePenalty" else torch.ones_like(mass)
    assert_close(mass, expected)
    if name not in ("Distillation", "GeneralizedCrossEntropy", "SymmetricCrossEntropy",
                    "ForwardCorrection", "BackwardCorrection"):  # fmt: skip
        log_p = logits.log_softmax(0 if logits.dim() == 1 else 1)
        log_p = log_p if log_p.dim() == 1 else log_p.movedim(1, -1)
        assert_close(loss, -(classes_last * log_p).sum(-1))


STATELESS = {
    "CrossEntropy": lambda *a: functional.cross_entropy(*a),
    "LabelSmoothing": lambda *a: functional.label_smoothing(*a, epsilon=0.2),
    "ConfidencePenalty": lambda *a: functional.confidence_penalty(*a, epsilon=0.2),
    "BootSoft": lambda *a: functional.boot_soft(*a, epsilon=0.3),
    "BootHard": lambda *a: functional.boot_hard(*a, epsilon=0.3),
    "Distillation": lambda z, y: functional.distillation(
        z, y, teacher_logits=z.flip(0), epsilon=0.3, temperature=2.0
    ),
    "ProSelfLC": lambda *a: functional.proselflc(*a, progress=0.4),
    "LowTemperatureProSelfLC": lambda *a: functional.low_temperature_proselflc(*a, progress=0.4),
    "GeneralizedCrossEntropy": lambda *a: functional.generalized_cross_entropy(*a),
    "SymmetricCrossEntropy": lambda *a: functional.symmetric_cross_entropy(*a),
    "ForwardCorrection": lambda *a: functional.forward_correction(*a, transition=T),
    "BackwardCorrection": lambda *a: functional.backward_correction(*a, transition=T),
}


@pytest.mark.parametrize("name", EVERY)
def test_functional_twin_gives_the_same_loss(name: str) -> None:
    logits, ids = batch((6, C), probabilities=False, ignore=-100, dtype=torch.float64)
    kwargs = {"teacher_logits": logits.flip(0)} if name == "Distillation" else {}
    expected = EVERY[name]()(logits, ids, progress=0.4, **kwargs)
    assert_close(STATELESS[name](logits, ids), expected)


@settings(deadline=None, max_examples=60)
@given(
    shape=st.tuples(st.integers(1, 6), st.integers(1, 9)),
    seed=st.integers(0, 2**31),
    progress=st.floats(0, 1),
    name=st.sampled_from(sorted(EVERY)),
)
def test_any_shape_gives_a_finite_loss(
    shape: tuple[int, int], seed: int, progress: float, name: str
) -> None:
    g = torch.Generator().manual_seed(seed)
    N, classes = shape
    logits = torch.randn(N, classes, generator=g)
    ids = torch.randint(classes, (N,), generator=g)
    matrix = torch.full((classes, classes), 0.1 / classes) + 0.9 * torch.eye(classes)
    criterion = getattr(proselflc, name)(matrix) if name.endswith("Correction") else EVERY[name]()
    kwargs = {"teacher_logits": logits.flip(0)} if name == "Distillation" else {}
    assert criterion(logits, ids, progress=progress, **kwargs).isfinite()


def test_star_import_gives_the_losses_and_nothing_else() -> None:
    names: dict[str, object] = {}
    exec("from proselflc.functional import *", names)
    names.pop("__builtins__")
    assert sorted(names) == sorted(functional.__all__)
    own = [
        name
        for name, value in vars(functional).items()
        if getattr(value, "__module__", None) == functional.__name__
    ]
    assert sorted(own) == sorted(functional.__all__)
    assert len(own) == len(EVERY) + 2  # and loss, correct
