"""Symmetric cross entropy (Wang et al. 2019): SL."""

from dataclasses import dataclass

from proselflc.correction import parameter
from proselflc.correction.parameter import log_of_zero, loss_weight
from proselflc.training import method
from proselflc.training.method import Method, checked


@dataclass(frozen=True)
class Parameters(method.Parameters):
    """The parameters of symmetric cross entropy.

    Attributes:
        alpha: α, the weight of H(q, p).
        beta: β, the weight of H(p, q).
        A: what stands for log 0: -4 in the paper, -9.21 in its code.
    """

    alpha: float = checked(parameter.ALPHA, loss_weight("H(q, p)"))
    beta: float = checked(parameter.BETA, loss_weight("H(p, q)"))
    A: float = checked(parameter.LOG_ZERO, log_of_zero)


METHOD = Method(
    title="Symmetric cross entropy",
    loss="α H(q, p) + β H(p, q), log 0 := A",
    where="Table 4",
    when="Use it to compare with the paper's Table 4. Its defaults gained nothing on photos "
    "and, under symmetric noise, lost on digits.",
    parameters=Parameters,
    grid={"alpha": (0.1, 1.0, 6.0), "beta": (0.1, 1.0)},
    criterion="SymmetricCrossEntropy",
)
