"""The methods by name, each a drop-in for `nn.CrossEntropyLoss`; `Criterion` does the work."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from proselflc.correction import parameter
from proselflc.correction import target as targets
from proselflc.correction.clock import checked_total
from proselflc.correction.criterion import Criterion
from proselflc.correction.parameter import Options, TargetOptions, takes
from proselflc.correction.robust import Backward, Forward, Generalized, Symmetric
from proselflc.correction.trust import Trust

if TYPE_CHECKING:
    from typing_extensions import Unpack


class CrossEntropy(Criterion):
    """H(q, p): `nn.CrossEntropyLoss` with the interface of the other criteria.

    Args:
        options: see `Criterion`.
    """

    @takes(TargetOptions)
    def __init__(self, **options: Unpack[TargetOptions]) -> None:
        super().__init__(targets.cce(), **options)


class LabelSmoothing(Criterion):
    """q̃ = (1 − ε) q + ε u, as `F.cross_entropy(label_smoothing=ε)`.

    Args:
        epsilon: ε; the paper tries up to 0.5.
        options: see `Criterion`.
    """

    @takes(TargetOptions)
    def __init__(self, epsilon: float, **options: Unpack[TargetOptions]) -> None:
        super().__init__(targets.label_smoothing(epsilon), **options)


class ConfidencePenalty(Criterion):
    """q̃ = (1 − ε) q − ε p: penalises low entropy. Not a distribution: it sums to 1 − 2ε.

    Args:
        epsilon: ε; the paper tries up to 0.5.
        options: see `Criterion`.
    """

    @takes(TargetOptions)
    def __init__(self, epsilon: float, **options: Unpack[TargetOptions]) -> None:
        super().__init__(targets.confidence_penalty(epsilon), **options)


class BootSoft(Criterion):
    """q̃ = (1 − ε) q + ε p, p attached.

    Args:
        epsilon: ε; Reed et al. use 0.05, the paper tries up to 0.5.
        options: see `Criterion`.
    """

    @takes(TargetOptions)
    def __init__(self, epsilon: float, **options: Unpack[TargetOptions]) -> None:
        super().__init__(targets.boot_soft(epsilon), **options)


class BootHard(Criterion):
    """q̃ = (1 − ε) q + ε onehot(argmax p), a constant.

    Args:
        epsilon: ε; Reed et al. use 0.2.
        options: see `Criterion`.
    """

    @takes(TargetOptions)
    def __init__(self, epsilon: float, **options: Unpack[TargetOptions]) -> None:
        super().__init__(targets.boot_hard(epsilon), **options)


class Distillation(Criterion):
    """(1 − ε) H(q, p) + ε τ² KL(softmax(z_t/τ) ‖ softmax(z/τ)): q̃ = (1 − ε) q + ε p_t.

    The KL is summed over classes and averaged over the batch. Calls need `teacher_logits=`; put
    the teacher in evaluation mode.

    Args:
        epsilon: ε, the share of the teacher.
        temperature: τ; 1 is the paper's form.
        options: `weight`, `ignore_index` and `reduction`, see `Criterion`.
    """

    @takes(Options)
    def __init__(
        self,
        epsilon: float,
        temperature: float = parameter.TEMPERATURE,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(targets.distillation(epsilon, temperature), **options)


class ProSelfLC(Criterion):
    """Progressive self label correction: q̃ = (1 − ε) q + ε p with ε = g(t)·l(p).

    g(t) = 1/(1 + exp(−B (t/Γ − m))) trusts the learner as training goes on, l(p) = 1 − H(p)/H(u)
    trusts confident predictions. ε is a constant for backprop; p is not.

    Args:
        total_steps: Γ, how many training calls there will be: `len(loader) * epochs`.
        sharpness: B. The paper searches 8, 10, 12, 14, 16; smaller is better at higher noise.
        midpoint: m, 0.5 in the paper.
        trust: "global*local", or "global", "local", "global*max_p" for ablations, or a `Trust`.
        options: see `Criterion`.

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

    @takes(TargetOptions)
    def __init__(
        self,
        total_steps: int,
        sharpness: float = parameter.SHARPNESS,
        midpoint: float = parameter.MIDPOINT,
        trust: str | Trust = parameter.TRUST,
        **options: Unpack[TargetOptions],
    ) -> None:
        target = targets.proselflc(sharpness, midpoint, trust)
        super().__init__(target, total_steps=checked_total(total_steps), **options)


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
        options: `weight`, `ignore_index` and `reduction`, see `Criterion`.
    """

    @takes(Options)
    def __init__(
        self,
        total_steps: int,
        sharpness: float = parameter.LOW_TEMPERATURE_SHARPNESS,
        midpoint: float = parameter.MIDPOINT,
        temperature: float = parameter.LOW_TEMPERATURE,
        trust: str | Trust = parameter.LOW_TEMPERATURE_TRUST,
        **options: Unpack[Options],
    ) -> None:
        target = targets.low_temperature_proselflc(sharpness, midpoint, temperature, trust)
        super().__init__(target, total_steps=checked_total(total_steps), **options)


class GeneralizedCrossEntropy(Criterion):
    """(1 − p_y^q)/q; for probabilities Σ_j q_j (1 − p_j^q)/q.

    Args:
        q: from 0 (cross entropy, in the limit) to 1 (mean absolute error).
        options: `weight`, `ignore_index` and `reduction`, see `Criterion`.
    """

    @takes(Options)
    def __init__(self, q: float = parameter.POWER, **options: Unpack[Options]) -> None:
        super().__init__(Generalized(q), **options)


class SymmetricCrossEntropy(Criterion):
    """α H(q, p) + β H(p, q) with log 0 := A.

    Args:
        alpha: α, 6 for CIFAR-100; the authors use 0.1 for CIFAR-10 and 0.01 for MNIST.
        beta: β, 0.1 for CIFAR-100; 1 for CIFAR-10 and MNIST.
        A: −4 as the paper says. The authors' code clips q at 1e-4 and takes the natural logarithm,
            which is A = log(1e-4) = −9.21; −4 is that in base 10.
        options: `weight`, `ignore_index` and `reduction`, see `Criterion`.
    """

    @takes(Options)
    def __init__(
        self,
        alpha: float = parameter.ALPHA,
        beta: float = parameter.BETA,
        A: float = parameter.LOG_ZERO,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(Symmetric(alpha, beta, A), **options)


class ForwardCorrection(Criterion):
    """−log (Tᵀp)_y. With the true T its minimiser is that of the clean data; predict with p.

    Args:
        transition: [C, C] T, row = clean class, column = given class, rows sum to 1.
        options: `weight`, `ignore_index` and `reduction`, see `Criterion`.
    """

    @takes(Options)
    def __init__(self, transition: Tensor, **options: Unpack[Options]) -> None:
        super().__init__(Forward(transition), **options)


class BackwardCorrection(Criterion):
    """Σ_j (T⁻¹)_yj (−log p_j). With the true T it is unbiased for the clean loss; may be negative.

    Args:
        transition: [C, C] T, row = clean class, column = given class, rows sum to 1; invertible.
        options: `weight`, `ignore_index` and `reduction`, see `Criterion`.
    """

    @takes(Options)
    def __init__(self, transition: Tensor, **options: Unpack[Options]) -> None:
        super().__init__(Backward(transition), **options)
