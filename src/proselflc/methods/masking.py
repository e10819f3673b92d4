"""Masking (Han et al. 2018): a generator of transitions, restricted to possible ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor, nn

from proselflc.correction.criteria import CrossEntropy
from proselflc.data.batches import Batch, generator_for
from proselflc.data.class_matrix import check_room_for_transition, read_mask
from proselflc.errors import InputError
from proselflc.methods.loss_correction import percentile
from proselflc.training import method
from proselflc.training.method import Method
from proselflc.training.strategy import (
    RunContext,
    Snapshot,
    Stage,
    Strategy,
    all_probabilities,
    check_probabilities,
)
from proselflc.wording import option

FIRST = 0.25  # of all epochs; later, the estimate would show memorised labels
NOISE = 10  # numbers from which the generator makes a matrix
HIDDEN = 50
JUDGE = 20  # hidden units of the discriminator
ROUNDS = 5  # of the discriminator per step
CLIP = (-0.01, 0.005)  # its weights
# Within that clip D rises by at most 0.025 per unit of S, and R by about 1, so that without a
# weight the mask changes nothing. (The published code has the clip but never runs it.)
STRUCTURE = 40.0
EDGE, WIDTH = 0.05, 0.005  # of the structure map
MOST_CLASSES = 256  # a step makes N matrices of C²

# The publication pre-trains the generator for 10,000 steps at 1e-4 and trains it for 150,000 at
# 1e-5. A step of RMSProp is as long as its learning rate, so rate times steps is kept: 1 and 1.5.
PRETRAINING, PRETRAINING_RATE = 2000, 5e-4
DISTANCE, LARGEST_RATE = 1.5, 1e-3
DECAY, TINY = 0.9, 1e-10  # of RMSProp
DRAWN = 64  # matrices per step of pre-training
SHOWN = 512  # matrices whose mean the run reports


@dataclass(frozen=True)
class Parameters(method.Parameters):
    """The parameters of Masking.

    Attributes:
        mask: a .npy, .npz or .csv file of 0 and 1, row = true class, 1 where a
            transition is possible; by default those within a coarse class are.
    """

    mask: Path | None = None


class Masking(Strategy):
    """First cross entropy, then network, generator and discriminator learn together.

    The generator makes a matrix S of noise, a new one for every example; f(S) = σ((S − 0.05)/0.005)
    is its structure. The losses are

        network        R = −log (Sᵀp)_y
        generator      R − 40 D(f(S))
        discriminator  D(f(S)) − D(M), its weights clipped to [−0.01, 0.005]

    with M the mask of possible transitions. The generator is pre-trained on an estimate of T by the
    percentile rule. Per step the network and the generator learn once, the discriminator five
    times. The publication continues with the network of the first stage. Here it is re-initialised,
    as with a forward correction: one that has begun to memorise labels pulls S to the identity.

    Each of several processes teaches generator and discriminator with the whole batch, so that they
    are equal in all.

    The mask is [C, C] bool, row = true class; without one, transitions within coarse classes are
    possible. A class can always keep its label.
    """

    stages = (
        Stage("cross entropy", FIRST),
        Stage("with the generator", 1 - FIRST, fresh=True),
    )
    mask: Tensor
    turn: Tensor

    def __init__(self, context: RunContext, *, mask: Tensor | None = None) -> None:
        super().__init__(CrossEntropy())
        C = context.num_classes
        if C > MOST_CLASSES:
            raise InputError(
                f"masking makes a matrix per example and supports at most {MOST_CLASSES} classes, "
                f"got {C}",
                field="method",
                fix="use forward",
            )
        check_probabilities(context.num_examples, C, 20)
        if mask is None:
            if context.coarse is None:
                raise InputError(
                    "masking needs to know which transitions are possible, and the data has no "
                    "coarse classes",
                    field="method.mask",
                    fix=f"give {option('method.mask')}, a file [C, C] of 0 and 1, row = true class",
                )
            coarse = torch.from_numpy(context.coarse)
            mask = coarse[:, None] == coarse
        self.names, self.seed = context.names, context.seed
        self.stage = 0
        steps = max(1, round((1 - FIRST) * context.total_steps))
        self.rate = min(DISTANCE / steps, LARGEST_RATE)
        self.register_buffer("mask", (mask | torch.eye(C, dtype=torch.bool)).float())
        self.register_buffer("turn", torch.zeros((), dtype=torch.int64))
        generator = generator_for("masking", "weights", self.seed)
        self.generator = _Learner((NOISE, HIDDEN, HIDDEN, C * C), nn.ReLU(), generator=generator)
        self.judge = _Learner((C * C, JUDGE, 1), nn.Sigmoid(), generator=generator)
        self.judge.clip(*CLIP)

    def arrange(self, stage: int, model: nn.Module) -> None:
        self.stage = stage

    def enter(self, stage: int, snapshot: Snapshot) -> None:
        if stage == 0:
            return
        given = torch.from_numpy(snapshot.given)
        T, notes = percentile(all_probabilities(snapshot), given, self.names)
        for note in notes:
            snapshot.note(note)
        self._pretrain(T.to(self.mask))

    def _pretrain(self, T: Tensor) -> None:
        """Train the generator to make T [C, C] from any noise, by −Σ_ij T_ij log S_ij."""
        for step in range(PRETRAINING):
            z = self._noise(DRAWN, "pre-training", step)

            def loss(z: Tensor = z) -> Tensor:
                return -(T * self._log_matrices(z)).sum((1, 2)).mean()

            self.generator.improve(loss, PRETRAINING_RATE)

    def loss(self, logits: Tensor, batch: Batch, progress: float) -> Tensor:
        if self.stage == 0:
            return super().loss(logits, batch, progress)
        own, number = self.group.place(len(batch.y))
        # The first index distinguishes the micro-batches of a step.
        first = int(self.group.of_first(batch.index[:1]))
        z = self._noise(number, "network", first)[own]
        return _reconstruction(logits, batch.y, self._log_matrices(z))

    def after_step(self, logits: Tensor, batch: Batch) -> None:
        if self.stage == 0:
            return
        logits, y = self.group.rows(logits, batch.y.to(logits.device))
        N = len(y)

        def of_generator() -> Tensor:
            log_S = self._log_matrices(self._noise(N, "generator"))
            judged: Tensor = self.judge(structure(log_S)).mean()
            return _reconstruction(logits, y, log_S) - STRUCTURE * judged

        self.generator.improve(of_generator, self.rate)
        for k in range(ROUNDS):
            made = structure(self._log_matrices(self._noise(N, "discriminator", k)))

            def of_judge(made: Tensor = made) -> Tensor:
                difference: Tensor = self.judge(made) - self.judge(self.mask.reshape(1, -1))
                return difference.mean()

            self.judge.improve(of_judge, self.rate)
            self.judge.clip(*CLIP)
        self.turn += 1

    def transition(self) -> Tensor | None:
        """Return [C, C] the mean of generated matrices."""
        generator = generator_for("masking", "shown", self.seed)
        z = torch.randn(SHOWN, NOISE, generator=generator).to(self.mask)
        return torch.stack([self._log_matrices(part).exp().mean(0) for part in z.chunk(32)]).mean(0)

    def facts(self) -> dict[str, object]:
        return {"transition": "learned within a mask"}

    def _noise(self, number: int, *key: int | str) -> Tensor:
        """Return [number, 10] noise, a function of the run's seed, the step and the key."""
        generator = generator_for("masking", self.seed, int(self.turn), *key)
        return torch.randn(number, NOISE, generator=generator).to(self.mask)

    def _log_matrices(self, z: Tensor) -> Tensor:
        """Return [N, C, C] log S of noise [N, 10]."""
        C = len(self.mask)
        made: Tensor = self.generator(z)
        return torch.log_softmax(made.reshape(-1, C, C), 2)


def structure(log_S: Tensor) -> Tensor:
    """Return [N, C²] f(S) = σ((S − 0.05)/0.005): about 1 where S_ij > 0.05, else 0."""
    return torch.sigmoid((log_S.exp() - EDGE) / WIDTH).flatten(1)


def _reconstruction(logits: Tensor, y: Tensor, log_S: Tensor) -> Tensor:
    """Return R, the mean of −log Σ_i p_i S_iy with a matrix per example."""
    column = log_S.gather(2, y[:, None, None].expand(-1, log_S.size(1), 1))[:, :, 0]
    return -torch.logsumexp(torch.log_softmax(logits.float(), 1) + column, 1).mean()


class _Learner(nn.Module):
    """A small network with its own RMSProp, whose state is in buffers."""

    def __init__(
        self, widths: tuple[int, ...], activation: nn.Module, *, generator: torch.Generator
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for before, after in pairwise(widths):
            layer = nn.utils.skip_init(nn.Linear, before, after)  # type: ignore[no-untyped-call]
            nn.init.xavier_uniform_(layer.weight, generator=generator)
            nn.init.zeros_(layer.bias)
            layers += [layer, activation]
        # Frozen, so that the optimiser of the loop leaves them alone.
        self.layers = nn.Sequential(*layers[:-1]).requires_grad_(False)
        for k, weight in enumerate(self.layers.parameters()):
            self.register_buffer(f"square{k}", torch.zeros_like(weight))

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layers(x)
        return y

    def improve(self, loss: Callable[[], Tensor], rate: float) -> None:
        """Take one step: v ← 0.9 v + 0.1 g², weight ← weight − rate·g/√(v + 1e-10)."""
        weights = list(self.layers.parameters())
        self.layers.requires_grad_(True)
        with torch.enable_grad():
            gradients = torch.autograd.grad(loss(), weights)
        self.layers.requires_grad_(False)
        for k, (weight, gradient) in enumerate(zip(weights, gradients, strict=True)):
            square = self.get_buffer(f"square{k}")
            square.lerp_(gradient.square(), 1 - DECAY)
            weight.sub_(rate * gradient / (square + TINY).sqrt())

    def clip(self, low: float, high: float) -> None:
        """Clip the weights to the bounds."""
        for weight in self.layers.parameters():
            weight.clamp_(low, high)


def _strategy(context: RunContext, *, mask: Path | None) -> Strategy:
    if mask is None:
        return Masking(context)
    check_room_for_transition(context.num_classes)  # a mask is as large as one
    return Masking(context, mask=torch.from_numpy(read_mask(mask, context.num_classes)).bool())


METHOD = Method(
    title="Masking",
    loss="H(q, p), then −log (Sᵀp)_y with S generated",
    where="Table 6",
    needs="a mask, or coarse classes",
    when="Use it if you know which classes can be confused at all; this helped much on "
    "digits and not at all on photos.",
    parameters=Parameters,
    strategy=_strategy,
    criterion="CrossEntropy",
)
