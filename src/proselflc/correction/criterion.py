"""Every method as a drop-in for `nn.CrossEntropyLoss`.

A criterion is a method plus a clock. The method is a `Target` of the algebra or a loss outside it;
the clock says how far training is, for those that ask. The named criteria below only choose the
method: all behaviour is in `Criterion`.
"""

from __future__ import annotations

import operator
import warnings

import torch
from torch import Tensor, nn

from proselflc.correction import boundary, catalogue, robust
from proselflc.correction import transition as _transition
from proselflc.correction.evidence import Evidence
from proselflc.correction.memory import Memory
from proselflc.correction.method import Method, correction, reduced_loss
from proselflc.correction.target import Correction
from proselflc.correction.trust import Trust


class Criterion(nn.CrossEntropyLoss):
    """Any method as a criterion, called as `criterion(logits, target)` like `nn.CrossEntropyLoss`.

    Takes whatever `F.cross_entropy` takes. Computes in float32 for half precision and in float64
    for double; the loss has that dtype.

    The clock: a call in training mode with gradients enabled is the (t+1)-th of `total_steps` and
    advances `t`; any other call looks at t/Γ and leaves it alone. `progress=` overrules it.

    Args:
        method: a `Target`, or a loss outside the algebra.
        total_steps: Γ, the number of training calls to come in all; None where time is no matter.
        memory: where a `RememberedPrediction` is kept; calls then need `index=`.
        log_offset: δ in log(p + δ). 0 is the paper; 1e-6 is what its published code computes.
        fused: use the closed-form gradient where there is one; only slower without.
        weight: [C] class weights, as in `F.cross_entropy`.
        ignore_index: class id of examples to leave out.
        reduction: "mean", "sum" or "none".

    Attributes:
        t: 0-d int64 buffer, the number of completed training calls; in `state_dict()`.

    Example:
        >>> import torch
        >>> from proselflc import Growth, Memory, Target
        >>> from proselflc.correction.reference import RememberedPrediction
        >>> criterion = Criterion(
        ...     Target(RememberedPrediction(), Growth(sharpness=10)),
        ...     total_steps=100,
        ...     memory=Memory(num_examples=1000, num_classes=3),
        ... )
        >>> loss = criterion(torch.zeros(2, 3), torch.tensor([0, 2]), index=torch.tensor([7, 42]))
        >>> round(loss.item(), 4), criterion.t.item()
        (1.0986, 1)
    """

    t: Tensor

    def __init__(
        self,
        method: Method,
        *,
        total_steps: int | None = None,
        memory: Memory | None = None,
        log_offset: float = 0.0,
        fused: bool = True,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
    ) -> None:
        boundary.check_reduction(reduction)
        if weight is not None and not (isinstance(weight, Tensor) and weight.dim() == 1):
            raise ValueError("weight must be a 1-d tensor, one number per class")
        if not 0 <= log_offset < 1:
            raise ValueError(
                f"log_offset must be at least 0 and below 1, got {log_offset}: it is δ in "
                "log(p + δ), 0 in the paper and 1e-6 in its published code"
            )
        super().__init__(weight=weight, ignore_index=ignore_index, reduction=reduction)
        self.method = method
        self.total_steps = None if total_steps is None else _checked_total(total_steps)
        self.memory = memory
        self.log_offset = log_offset
        self.fused = fused
        self.register_buffer("t", torch.zeros((), dtype=torch.int64))
        self._last = _Reading()
        self._warned = False
        self._looked = False

    def extra_repr(self) -> str:
        parts = [] if isinstance(self.method, nn.Module) else [str(self.method)]
        if self.total_steps is not None:
            parts.append(f"total_steps={self.total_steps}")
        return ", ".join(parts)

    def forward(
        self,
        logits: Tensor,
        target: Tensor,
        *,
        index: Tensor | None = None,
        progress: float | Tensor | None = None,
        teacher_logits: Tensor | None = None,
    ) -> Tensor:
        """The loss, reduced.

        Args:
            logits: [N, C], [N, C, d1, …] or [C], raw.
            target: int64 class ids, or probabilities shaped like logits.
            index: [N] positions of the examples in the training set, for methods with a memory.
            progress: t/Γ in [0, 1]; the clock is then neither read nor advanced.
            teacher_logits: shaped like logits, for distillation; a constant.
        """
        learning = self.training and torch.is_grad_enabled()
        counter = self.t if learning and progress is None else None
        if progress is None and self.total_steps is not None:
            progress = self._progress(ahead=counter is not None)
        e = self._observe(logits, target, progress, teacher_logits)
        if self.memory is not None:
            self._recall(e, index, learning)
        loss = reduced_loss(self.method, e, self.reduction, self.fused)
        if counter is not None:
            counter.add_(1)
            if not torch.compiler.is_compiling():
                self._last.moved_on(counter)
        if self.reduction == "none":
            return loss.reshape(boundary.without_classes(logits.shape))
        return loss

    def correct(
        self,
        logits: Tensor,
        target: Tensor,
        *,
        index: Tensor | None = None,
        progress: float | Tensor | None = None,
        teacher_logits: Tensor | None = None,
    ) -> Correction:
        """What the method would teach now: `Correction(loss [N], target [N, C], trust [N])`.

        Changes nothing. Shapes follow the input: a dense batch gives loss and trust [N, d1, …] and
        a target like logits. An ignored example has zeros in all three.
        """
        if progress is None:
            progress = self._progress(ahead=False)
        e = self._observe(logits, target, progress, teacher_logits)
        self._recall(e, index, learning=False)
        return correction(self.method, e, logits.shape)

    def set_progress(self, t: int, total: int | None = None) -> None:
        """Put the clock at t completed calls, out of `total` if given."""
        t = _whole(t, "t", "it counts completed training calls", least=0)
        if total is not None:
            self.total_steps = _checked_total(total)
        self.t.fill_(t)
        self._last.keep(self.t, t)

    def _observe(
        self,
        logits: Tensor,
        target: Tensor,
        progress: float | Tensor | None,
        teacher_logits: Tensor | None,
    ) -> Evidence:
        # Compiling is asked first: a compiled step must not depend on an eager one before it.
        first = not torch.compiler.is_compiling() and not self._looked
        if first:
            self._looked = True
        return boundary.observe(
            logits,
            target,
            progress=progress,
            weight=self.weight,
            ignore_index=self.ignore_index,
            teacher_logits=teacher_logits,
            log_offset=self.log_offset,
            look_at_values=first,
        )

    def _recall(self, e: Evidence, index: Tensor | None, learning: bool) -> None:
        if self.memory is not None:
            index = self.memory.check(index, len(e.logits))
            if learning:
                self.memory.update(index, e.p)
            e.remembered = self.memory.recall(index, e.p)

    def _progress(self, ahead: bool) -> float | Tensor | None:
        """t/Γ, or (t+1)/Γ for the call that is under way, at most 1; None without Γ."""
        total = self.total_steps
        if total is None:
            return None
        if torch.compiler.is_compiling():
            return ((self.t + int(ahead)).to(torch.float32) / total).clamp(max=1)
        t = self._last.of(self.t) + ahead
        if t <= total:
            return t / total
        if not self._warned:
            self._warned = True
            warnings.warn(
                f"training goes on beyond total_steps={total}: progress stays at 1; "
                "total_steps counts training calls, len(loader) * epochs of them",
                stacklevel=5,
            )
        return 1.0


class _Reading:
    """The last known value of a counter.

    Reading a buffer waits for its device, so that is done only when somebody else has written it
    (a checkpoint, `.to()`, a compiled step): its version tells.
    """

    __slots__ = ("counter", "value", "version")

    def __init__(self) -> None:
        self.counter: Tensor | None = None
        self.version = -1
        self.value = 0

    def of(self, counter: Tensor) -> int:
        """The counter's value."""
        if counter.is_inference():  # they have no version
            return int(counter)
        if self.counter is not counter or self.version != counter._version:
            self.keep(counter, int(counter))
        return self.value

    def keep(self, counter: Tensor, value: int) -> None:
        """Know that the counter holds this value now."""
        if not counter.is_inference():
            self.counter, self.version, self.value = counter, counter._version, value

    def moved_on(self, counter: Tensor) -> None:
        """Know that the counter was just raised by one, if it was known before."""
        if self.counter is counter and self.version + 1 == counter._version:
            self.version += 1
            self.value += 1

    def __reduce__(self) -> tuple[type[_Reading], tuple[()]]:
        return _Reading, ()  # a copy knows nothing


class CrossEntropy(Criterion):
    """H(q, p): the loss everybody knows, with the same face as the others."""

    def __init__(
        self,
        *,
        log_offset: float = 0.0,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
    ) -> None:
        super().__init__(
            catalogue.cce(),
            log_offset=log_offset,
            weight=weight,
            ignore_index=ignore_index,
            reduction=reduction,
        )


class LabelSmoothing(Criterion):
    """q̃ = (1 − ε) q + ε u, as `F.cross_entropy(label_smoothing=ε)`. The paper tries up to 0.5."""

    def __init__(
        self,
        epsilon: float,
        *,
        log_offset: float = 0.0,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
    ) -> None:
        super().__init__(
            catalogue.label_smoothing(epsilon),
            log_offset=log_offset,
            weight=weight,
            ignore_index=ignore_index,
            reduction=reduction,
        )


class ConfidencePenalty(Criterion):
    """q̃ = (1 − ε) q − ε p: penalises low entropy. Not a distribution: it sums to 1 − 2ε."""

    def __init__(
        self,
        epsilon: float,
        *,
        log_offset: float = 0.0,
        fused: bool = True,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
    ) -> None:
        super().__init__(
            catalogue.confidence_penalty(epsilon),
            log_offset=log_offset,
            fused=fused,
            weight=weight,
            ignore_index=ignore_index,
            reduction=reduction,
        )


class BootSoft(Criterion):
    """q̃ = (1 − ε) q + ε p, p attached. Reed et al. use ε = 0.05; the paper tries up to 0.5."""

    def __init__(
        self,
        epsilon: float,
        *,
        log_offset: float = 0.0,
        fused: bool = True,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
    ) -> None:
        super().__init__(
            catalogue.boot_soft(epsilon),
            log_offset=log_offset,
            fused=fused,
            weight=weight,
            ignore_index=ignore_index,
            reduction=reduction,
        )


class BootHard(Criterion):
    """q̃ = (1 − ε) q + ε onehot(argmax p), a constant. Reed et al. use ε = 0.2."""

    def __init__(
        self,
        epsilon: float,
        *,
        log_offset: float = 0.0,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
    ) -> None:
        super().__init__(
            catalogue.boot_hard(epsilon),
            log_offset=log_offset,
            weight=weight,
            ignore_index=ignore_index,
            reduction=reduction,
        )


class Distillation(Criterion):
    """(1 − ε) H(q, p) + ε τ² KL(softmax(z_t/τ) ‖ softmax(z/τ)): q̃ = (1 − ε) q + ε p_t.

    The KL is summed over classes and averaged over the batch. Calls need `teacher_logits=`; put
    the teacher in evaluation mode.

    Args:
        epsilon: ε, the share of the teacher.
        temperature: τ; 1 is the paper's form.
    """

    def __init__(
        self,
        epsilon: float,
        temperature: float = 1.0,
        *,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
    ) -> None:
        super().__init__(
            catalogue.distillation(epsilon, temperature),
            weight=weight,
            ignore_index=ignore_index,
            reduction=reduction,
        )


class ProSelfLC(Criterion):
    """Progressive self label correction: q̃ = (1 − ε) q + ε p with ε = g(t)·l(p).

    g(t) = 1/(1 + exp(−B (t/Γ − m))) trusts the learner as training goes on, l(p) = 1 − H(p)/H(u)
    trusts confident predictions. ε is a constant for backprop; p is not.

    Args:
        total_steps: Γ, how many training calls there will be: `len(loader) * epochs`.
        sharpness: B. The paper searches 8, 10, 12, 14, 16; smaller is better at higher noise.
        midpoint: m, 0.5 in the paper.
        trust: "global*local", or "global", "local", "global*max_p" for ablations, or a `Trust`.
        log_offset, fused, weight, ignore_index, reduction: see `Criterion`.

    Example:
        >>> import torch
        >>> criterion = ProSelfLC(total_steps=100)
        >>> logits = torch.tensor([[4.0, 0.0, 0.0]], requires_grad=True)
        >>> criterion(logits, torch.tensor([2])).backward()
        >>> criterion.set_progress(100)
        >>> late = criterion.correct(logits, torch.tensor([2]))
        >>> late.target.argmax(-1).item(), round(late.trust.item(), 2)
        (0, 0.83)
    """

    def __init__(
        self,
        total_steps: int,
        sharpness: float = 10.0,
        midpoint: float = 0.5,
        trust: str | Trust = "global*local",
        *,
        log_offset: float = 0.0,
        fused: bool = True,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
    ) -> None:
        super().__init__(
            catalogue.proselflc(sharpness, midpoint, trust),
            total_steps=_checked_total(total_steps),
            log_offset=log_offset,
            fused=fused,
            weight=weight,
            ignore_index=ignore_index,
            reduction=reduction,
        )


class LowTemperatureProSelfLC(Criterion):
    """ProSelfLC's successor: q̃ = (1 − ε) q + ε p_T, all constant, p_T = softmax(z/T), T < 1.

    ε looks at p_T too. With T = 1 this is ProSelfLC with a detached p, which corrects nothing: see
    docs/decisions/0001.

    Args:
        total_steps: Γ, how many training calls there will be.
        sharpness: B.
        midpoint: m.
        temperature: T; the authors' logs have 0.2 to 0.6.
        trust: as in `ProSelfLC`.
        weight, ignore_index, reduction: see `Criterion`.
    """

    def __init__(
        self,
        total_steps: int,
        sharpness: float = 12.0,
        midpoint: float = 0.5,
        temperature: float = 0.5,
        trust: str | Trust = "global*max_p",
        *,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
    ) -> None:
        super().__init__(
            catalogue.low_temperature_proselflc(sharpness, midpoint, temperature, trust),
            total_steps=_checked_total(total_steps),
            weight=weight,
            ignore_index=ignore_index,
            reduction=reduction,
        )


class GeneralizedCrossEntropy(Criterion):
    """(1 − p_y^q)/q; for probabilities Σ_j q_j (1 − p_j^q)/q.

    Args:
        q: from 0 (cross entropy, in the limit) to 1 (mean absolute error).
    """

    def __init__(
        self,
        q: float = 0.7,
        *,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
    ) -> None:
        super().__init__(
            robust.Generalized(q), weight=weight, ignore_index=ignore_index, reduction=reduction
        )


class SymmetricCrossEntropy(Criterion):
    """α H(q, p) + β H(p, q) with log 0 := A.

    Args:
        alpha: 6 for CIFAR-100; the authors use 0.1 for CIFAR-10 and 0.01 for MNIST.
        beta: 0.1 for CIFAR-100; 1 for CIFAR-10 and MNIST.
        A: −4 as the paper says. The authors' code clips q at 1e-4 and takes the natural logarithm,
            which is A = log(1e-4) = −9.21; −4 is that in base 10.
    """

    def __init__(
        self,
        alpha: float = 6.0,
        beta: float = 0.1,
        A: float = -4.0,
        *,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
    ) -> None:
        super().__init__(
            robust.Symmetric(alpha, beta, A),
            weight=weight,
            ignore_index=ignore_index,
            reduction=reduction,
        )


class ForwardCorrection(Criterion):
    """−log (Tᵀp)_y. With the true T its minimiser is that of the clean data; predict with p.

    Args:
        transition: [C, C] T, row = clean class, column = given class, rows sum to 1.
    """

    def __init__(
        self,
        transition: Tensor,
        *,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
    ) -> None:
        super().__init__(
            _transition.Forward(transition),
            weight=weight,
            ignore_index=ignore_index,
            reduction=reduction,
        )


class BackwardCorrection(Criterion):
    """Σ_j (T⁻¹)_yj (−log p_j). With the true T it is unbiased for the clean loss; may be negative.

    Args:
        transition: [C, C] T, row = clean class, column = given class, rows sum to 1; invertible.
    """

    def __init__(
        self,
        transition: Tensor,
        *,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
    ) -> None:
        super().__init__(
            _transition.Backward(transition),
            weight=weight,
            ignore_index=ignore_index,
            reduction=reduction,
        )


def _checked_total(total_steps: int) -> int:
    what = "how many training calls there will be, len(loader) * epochs"
    return _whole(total_steps, "total_steps", what, least=1)


def _whole(value: int, name: str, what: str, *, least: int) -> int:
    try:
        number = operator.index(value)  # numpy's integers too
    except TypeError:
        number = least - 1
    if number < least or isinstance(value, bool):
        raise ValueError(f"{name} must be a whole number ≥ {least}, got {value!r}: {what}")
    return number
