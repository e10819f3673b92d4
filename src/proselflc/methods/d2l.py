"""Dimensionality-driven learning (Ma et al. 2018): D2L."""

from __future__ import annotations

import math
from copy import deepcopy
from dataclasses import dataclass
from statistics import fmean, pstdev

import torch
from torch import Tensor, nn

from proselflc.correction.criterion import Criterion
from proselflc.correction.evidence import Evidence
from proselflc.correction.parameter import share_of_training, whole_number
from proselflc.correction.target import HardPrediction, Target
from proselflc.correction.trust import Trust
from proselflc.data.batches import generator_for
from proselflc.errors import InputError
from proselflc.training import method
from proselflc.training.inference import Caller, capture_features, last_linear
from proselflc.training.method import Method, checked
from proselflc.training.strategy import RunContext, Snapshot, Strategy
from proselflc.wording import option

NEIGHBOURS = 20  # k
GROUP = 128  # examples among which neighbours are searched
SAMPLE = 10 * GROUP  # examples per epoch
TINY = 1e-8


def _instead() -> str:
    return f"use another {option('method')} or {option('model')}"


CALLER = Caller("method d2l", _instead)


def local_dimension(features: Tensor, neighbours: int = NEIGHBOURS) -> Tensor:
    """Return [N] local intrinsic dimensionality, by maximum likelihood from neighbour distances.

        LID = −k / Σ_{m=1..k} log(r_m/r_k + 1e-8)

    with r_1 ≤ … ≤ r_k the distances to the k nearest of the other N − 1. It is near 0 where all of
    these are 0, and negative where all are equal, which is meaningless.
    """
    x = features.flatten(1).double()
    distances = torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist")
    distances.fill_diagonal_(math.inf)
    r = distances.topk(neighbours, largest=False).values
    farthest = r[:, -1:].clamp_min(torch.finfo(r.dtype).tiny)
    logs = torch.log(r / farthest + TINY)
    return -neighbours / logs.sum(1)


class FallingTrust(Trust, nn.Module):
    """ε = 1 − α, with α the weight of the label in this epoch, which checkpoints keep."""

    symbol = "1 − α"
    value: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("value", torch.ones(()))

    def __call__(self, e: Evidence) -> float:
        return 1 - float(self.value)


def _window(value: int, name: str) -> int:
    return whole_number(value, name, "a new epoch is compared with that many earlier ones", least=2)


@dataclass(frozen=True)
class Parameters(method.Parameters):
    """The parameters of D2L.

    Attributes:
        begin: the share of training before the turning point is searched.
        window: the number of earlier epochs that a new epoch's dimension is compared with.
    """

    begin: float = checked(0.3, share_of_training)
    window: int = checked(5, _window)


class DimensionalityDriven(Strategy):
    """Cross entropy until the features need more dimensions; then labels are trusted less.

    At the beginning of every epoch e of E the mean local dimension LID_e of 1,280 training examples
    is estimated, each among 128, from what the last linear layer sees. Once there are more than
    `begin` · E + w of them and

        LID_e − mean(previous w) > 2 std(previous w)

    the network has begun to memorise labels: it returns to its weights of one epoch earlier, and
    from then on the target is

        α q + (1 − α) onehot(argmax p)        α_e = exp(−(e/E) · LID_e / min LID so far)

    A dimension that is not positive is replaced by the one before. A training of no more than
    `begin` · E + w epochs is cross entropy throughout. When the weights are reset, the optimiser
    keeps its momentum and an average of the weights starts again.
    """

    dimensions: Tensor
    turned: Tensor

    def __init__(self, context: RunContext, *, begin: float, window: int) -> None:
        alpha = FallingTrust()
        super().__init__(Criterion(Target(HardPrediction(), alpha)))
        n = context.num_examples
        if n <= NEIGHBOURS:
            raise InputError(
                f"method d2l needs the {NEIGHBOURS} nearest neighbours of an example, but there "
                f"are only {n} examples",
                field="method",
                fix=f"add examples, or choose another {option('method')}",
            )
        self.alpha, self.window = alpha, window
        self.begin = round(begin * context.epochs)
        self.epochs, self.num_examples = context.epochs, n
        self.num_classes, self.seed = context.num_classes, context.seed
        self.previous: nn.Module | None = None  # the model as it was an epoch ago
        self._models: tuple[nn.Module, ...] = ()  # the one that learns, not a submodule
        # One dimension per beginning of an epoch; later ones are not measured yet.
        self.register_buffer("dimensions", torch.zeros(self.epochs))
        self.register_buffer("turned", torch.tensor(-1))  # the epoch whose weights were restored

    def arrange(self, stage: int, model: nn.Module) -> None:
        last_linear(model, self.num_classes, CALLER)
        if self.previous is None:
            self.previous = deepcopy(model).requires_grad_(False)
            self._models = (model,)

    def enter(self, stage: int, snapshot: Snapshot) -> None:
        self._begin_epoch(0, snapshot)

    def after_epoch(self, stage: int, epoch: int, snapshot: Snapshot) -> None:
        if epoch + 1 < self.epochs:
            self._begin_epoch(epoch + 1, snapshot)

    def _begin_epoch(self, epoch: int, snapshot: Snapshot) -> None:
        dimension = self._dimension(epoch, snapshot)
        if not (math.isfinite(dimension) and dimension > 0):
            dimension = float(self.dimensions[epoch - 1]) if epoch else 1.0
        self.dimensions[epoch] = dimension
        so_far = self.dimensions[: epoch + 1].tolist()
        if self.turned < 0 and epoch + 1 > self.begin + self.window:
            before = so_far[-1 - self.window : -1]
            if so_far[-1] - fmean(before) > 2 * pstdev(before):
                self.turned.fill_(epoch - 1)
                assert self.previous is not None
                for model in (*self._models, snapshot.model):  # the average of weights too
                    model.load_state_dict(self.previous.state_dict())
                snapshot.note(
                    f"after epoch {epoch} the dimension of the features rose to {dimension:.2f}: "
                    "the weights of one epoch earlier are restored, and labels are trusted less"
                )
        if self.turned >= 0:
            expansion = so_far[-1] / min(so_far)
            self.alpha.value.fill_(math.exp(-(epoch / self.epochs) * expansion))
        else:
            assert self.previous is not None
            self.previous.load_state_dict(self._models[0].state_dict())

    def _dimension(self, epoch: int, snapshot: Snapshot) -> float:
        generator = generator_for("d2l", self.seed, epoch)
        rows = torch.randperm(self.num_examples, generator=generator)[:SAMPLE]
        layer = last_linear(snapshot.model, self.num_classes, CALLER)
        with capture_features(layer, CALLER) as hook:
            features = [
                hook.take_together(len(index), layer, self.group).float().cpu()
                for index, _ in snapshot.predict(rows.numpy())
            ]
        groups = torch.cat(features).split(GROUP)  # type: ignore[no-untyped-call]
        found = [local_dimension(group) for group in groups if len(group) > NEIGHBOURS]
        return float(torch.cat(found).mean())

    def facts(self) -> dict[str, object]:
        turned = int(self.turned)
        return {"turned_at_epoch": None if turned < 0 else turned}


METHOD = Method(
    title="D2L",
    loss="α H(q, p) − (1 − α) log max p",
    where="Table 4",
    entropy="rewards",
    semantic_class="annotated and learned",
    when="Use it to compare with the paper's Table 4. It acts only if the dimension of the "
    "features rises.",
    parameters=Parameters,
    grid={"begin": (0.15, 0.3, 0.5)},
    strategy=DimensionalityDriven,
    criterion="Criterion",
    target=lambda p: Target(HardPrediction(), FallingTrust()),
)
