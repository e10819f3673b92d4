"""S-adaptation (Goldberger & Ben-Reuven 2017): a noise layer behind the network learns T."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from proselflc.correction.criteria import CrossEntropy
from proselflc.correction.parameter import one_of
from proselflc.data.batches import Batch
from proselflc.data.memory_budget import keeps_all
from proselflc.errors import InputError
from proselflc.training import method
from proselflc.training.inference import Caller, FeatureHook, last_linear
from proselflc.training.method import Method, checked
from proselflc.training.strategy import (
    RunContext,
    Snapshot,
    Stage,
    Strategy,
    all_probabilities,
    check_probabilities,
)
from proselflc.wording import option

LAYERS = ("simple", "complex")
FIRST = 0.25  # of all epochs; later, the confusion would show memorised labels
LARGEST = 10**8  # numbers in w
KEPT = 0.99  # share of earlier steps in the mean T(x)
FEWEST = 0.5  # predictions of a class, in sum, below which its confusion is not estimated


def _instead() -> str:
    return f"use {option('method.layer', 'simple')}"


CALLER = Caller("the complex noise layer", _instead)


@dataclass(frozen=True)
class Parameters(method.Parameters):
    """The parameters of S-adaptation.

    Attributes:
        layer: the noise layer: "simple", or "complex", which depends on features.
    """

    layer: str = checked("simple", one_of(LAYERS))


class NoiseLayer(Strategy):
    """First cross entropy, then network and noise layer learn together the loss

        −log Σ_i p_i T_iy        T = row-softmax(b)                          simple
                                 T_ij(x) = softmax_j(w_ij·h(x) + b_ij)       complex

    with b_ij = log(P(y = j | prediction = i) + 1e-8) of the first stage's predictions (soft counts)
    and w = 0 at first; h is the input of the model's last linear layer. The model predicts
    without the layer. A class that is never predicted starts as one that keeps its label.

    Nothing prevents T from becoming the identity: a network that can memorise the labels does, and
    the method ends as cross entropy. A complex layer can also make the predictions itself.
    """

    stages = (
        Stage("cross entropy", FIRST),
        Stage("with the noise layer", 1 - FIRST),
    )
    flow: Tensor

    def __init__(self, context: RunContext, *, layer: str = "simple") -> None:
        super().__init__(CrossEntropy())
        C = context.num_classes
        # b, its gradient, the optimiser's state, the flow, and copies for a checkpoint.
        check_probabilities(0, C, 64)
        self.layer, self.names = layer, context.names
        self.stage = 0
        self.b = nn.Parameter(torch.zeros(C, C))
        self.w: nn.Parameter | None = None
        self.features = FeatureHook(CALLER)
        # [C, C] Σ_n p_ni T_ij(x_n) of the last steps, for the mean of T(x).
        self.register_buffer("flow", torch.eye(C))

    def arrange(self, stage: int, model: nn.Module) -> None:
        self.stage = stage
        if self.layer == "complex" and self.w is None:
            last = last_linear(model, len(self.b), CALLER)
            C, width = len(self.b), last.in_features
            if C * C * width > LARGEST:
                raise InputError(
                    f"the complex noise layer of {C} classes and {width} features would have "
                    f"{C * C * width:,} weights, at most {LARGEST:,} are possible",
                    field="method.layer",
                    fix=f"use {option('method.layer', 'simple')}",
                )
            self.w = nn.Parameter(torch.zeros(C, C, width))
            last.register_forward_pre_hook(self.features)

    def enter(self, stage: int, snapshot: Snapshot) -> None:
        if stage == 0:
            return
        counts = _soft_counts(snapshot)
        total = counts.sum(1, keepdim=True)
        never = total[:, 0] < FEWEST
        counts[never] = 0
        counts[never, never] = 1
        for k in never.nonzero()[:, 0].tolist():
            snapshot.note(
                f"class {self.names[k]} is never predicted: it is assumed to keep its label"
            )
        confusion = counts / counts.sum(1, keepdim=True)
        with torch.no_grad():
            self.b.copy_((confusion + 1e-8).log())
        self.flow.copy_(confusion)

    def loss(self, logits: Tensor, batch: Batch, progress: float) -> Tensor:
        h = None if self.w is None else self.features.take(len(batch.y))
        if self.stage == 0:
            return super().loss(logits, batch, progress)
        log_p = torch.log_softmax(logits.float(), 1)
        if self.w is None or h is None:
            log_T = torch.log_softmax(self.b, 1)
            return -torch.logsumexp(log_p + log_T.T[batch.y], 1).mean()
        with torch.autocast(h.device.type, enabled=False):
            z = torch.einsum("nf,ijf->nij", h.float(), self.w) + self.b  # [N, C, C]
        log_T = torch.log_softmax(z, 2)
        with torch.no_grad():
            flow = torch.einsum("ni,nij->ij", log_p.exp(), log_T.exp())
            self.flow.mul_(KEPT).add_(self.group.total(flow))
        y = batch.y[:, None, None].expand(-1, len(self.b), 1)
        return -torch.logsumexp(log_p + log_T.gather(2, y)[:, :, 0], 1).mean()

    def transition(self) -> Tensor | None:
        """Return T [C, C], for the complex layer its mean over the examples of the last steps."""
        if self.w is None:
            return torch.softmax(self.b.detach(), 1)
        return self.flow / self.flow.sum(1, keepdim=True)

    def facts(self) -> dict[str, object]:
        return {"transition": f"learned by a {self.layer} noise layer"}


@torch.no_grad()
def _soft_counts(snapshot: Snapshot) -> Tensor:
    """Return the sums of p (row) over the examples with each label (column), [C, C]."""
    C, given = snapshot.num_classes, torch.from_numpy(snapshot.given)
    if keeps_all(len(given), C):
        q = nn.functional.one_hot(given, C).double()
        return all_probabilities(snapshot).double().T @ q
    sums = torch.zeros(C, C, dtype=torch.float64)  # row = label
    for index, logits in snapshot.predict():
        p = torch.softmax(logits.float(), 1).double().cpu()
        sums.index_add_(0, given[index.cpu()], p)
    return sums.T


METHOD = Method(
    title="S-adaptation",
    loss="H(q, p), then −log (Tᵀp)_y with T learned",
    where="Table 6",
    when="Use it to compare with the paper's Table 6. It starts from a network that has "
    "already learned wrong labels.",
    parameters=Parameters,
    grid={"layer": LAYERS},
    strategy=NoiseLayer,
    criterion="CrossEntropy",
)
