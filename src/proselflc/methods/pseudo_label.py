"""Pseudo-Label (Lee 2013): trusted examples teach, and the others learn their own prediction.

Without trusted examples there is the ramped variant, our adaptation: one target whose trust in
argmax p rises with time.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from proselflc.correction.criterion import Criterion
from proselflc.correction.evidence import Evidence
from proselflc.correction.parameter import loss_weight, share_of_target, share_of_training
from proselflc.correction.target import HardPrediction, Target, pseudo_label_ramped
from proselflc.correction.trust import Ramp, Trust
from proselflc.data.batches import Batch
from proselflc.errors import InputError
from proselflc.training import method
from proselflc.training.method import Method, checked
from proselflc.training.strategy import RunContext, Strategy
from proselflc.wording import option


@dataclass(frozen=True)
class Parameters(method.Parameters):
    """The parameters of Pseudo-Label.

    Attributes:
        alpha: α_f, the weight at the end of examples that are not trusted.
        begin: the share of training at which predictions begin to count.
        end: the share of training from which they count fully.
    """

    alpha: float = checked(3.0, loss_weight("examples without a trusted label"))
    begin: float = checked(0.1, share_of_training)
    end: float = checked(0.6, share_of_training)

    def __post_init__(self) -> None:
        super().__post_init__()
        Ramp(1.0, self.begin, self.end)


@dataclass(frozen=True)
class RampedParameters(method.Parameters):
    """The parameters of the ramped variant.

    Attributes:
        epsilon: ε_f, how much the predicted class is trusted at the end.
        begin: the share of training at which predictions begin to count.
        end: the share of training from which they count fully.
    """

    epsilon: float = checked(0.75, share_of_target)
    begin: float = checked(Parameters.begin, share_of_training)
    end: float = checked(Parameters.end, share_of_training)

    def __post_init__(self) -> None:
        super().__post_init__()
        Ramp(self.epsilon, self.begin, self.end)


@dataclass(frozen=True)
class Unlabelled(Trust):
    """ε = 1 where the annotation names no class, and 0 where it names one for certain."""

    symbol = "1 if unlabelled"

    def __call__(self, e: Evidence) -> Tensor:
        return (e.q.amax(-1) < 1).to(e.logits.dtype)


class PseudoLabel(Strategy):
    """Trusted examples are labelled; the labels of all others are ignored.

    The loss is the mean over trusted examples of H(q, p), and α(t) times the mean over the others
    of −log max_j p_j, whose target onehot(argmax p) is a constant. α rises linearly from 0 at T1 to
    α_f at T2. The publication draws labelled and unlabelled batches separately; here a batch has
    both, and each example is weighted by the share of its kind, so that the expectation of

        (n/n_l) Σ_{labelled} H(q, p)/N + α(t) (n/n_u) Σ_{unlabelled} −log max_j p_j / N

    is that loss, however the batch is split.

    The publication has T1 = 100 and T2 = 600 epochs without saying of how many; they are taken as
    shares of 1,000.
    """

    trusted: Tensor

    def __init__(self, context: RunContext, *, alpha: float, begin: float, end: float) -> None:
        super().__init__(Criterion(Target(HardPrediction(), Unlabelled()), reduction="none"))
        trusted = context.trusted
        if trusted is None:
            raise InputError(
                "method pseudo_label learns from the labels of trusted examples alone, and there "
                "are none",
                field="trusted",
                fix=f"give {option('trusted')}, a share such as 0.1, a folder or a file, or use "
                f"{option('method', 'pseudo_label_ramped')}, which needs none",
            )
        n, labelled = len(trusted), int(trusted.sum())
        if labelled == n:
            raise InputError(
                "method pseudo_label needs untrusted examples too, but all are trusted",
                field="trusted",
                fix=f"lower {option('trusted')}",
            )
        self.alpha = alpha
        self.ramp = Ramp(1.0, begin, end)
        self.shares = n / labelled, n / (n - labelled)
        self.num_classes = context.num_classes
        self.register_buffer("trusted", torch.from_numpy(trusted))

    def targets(self, batch: Batch) -> Tensor:
        """Return one-hot targets where the label is trusted, and uniform ones elsewhere."""
        q = F.one_hot(batch.y, self.num_classes).float()
        return torch.where(self.trusted[batch.index, None], q, 1 / self.num_classes)

    def loss(self, logits: Tensor, batch: Batch, progress: float) -> Tensor:
        labelled, unlabelled = self.shares
        alpha = self.alpha * self.ramp.at(progress)
        weights = torch.where(self.trusted[batch.index], labelled, alpha * unlabelled)
        return (weights * super().loss(logits, batch, progress)).mean()


METHOD = Method(
    title="Pseudo-Label",
    loss="H(q, p) if trusted, else −α(t) log max p",
    where="Section 1",
    entropy="rewards",
    semantic_class="trusted or learned",
    needs="a trusted part",
    when="Use it if a part of the labels is known to be right and the rest is worth little.",
    parameters=Parameters,
    strategy=PseudoLabel,
    criterion="Criterion",
    learns_trusted=True,
)
RAMPED = Method(
    title="Pseudo-Label, ramped (our adaptation)",
    loss="(1 − ε(t)) H(q, p) − ε(t) log max p",
    where="beside Pseudo-Label",
    entropy="rewards",
    semantic_class="annotated and learned",
    when="Use it if you want Boot-hard with a rising trust. It was close behind ProSelfLC on "
    "photos.",
    parameters=RampedParameters,
    grid={"epsilon": (0.25, 0.5, 0.75)},
    criterion="Criterion",
    target=lambda p: pseudo_label_ramped(p.epsilon, p.begin, p.end),
)
