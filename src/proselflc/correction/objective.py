"""What a criterion minimises: a target of the algebra, or a loss outside it."""

from typing import NamedTuple, Protocol, runtime_checkable

from torch import Size, Tensor, nn
from torch.nn import functional as F

from proselflc.correction import boundary, fused
from proselflc.correction.evidence import Evidence
from proselflc.correction.target import Target


@runtime_checkable
class Objective(Protocol):
    """A `Target` of the algebra, or a loss outside it."""

    def __call__(self, e: Evidence) -> tuple[Tensor, Tensor]:
        """Return what is taught, q̃ [N, C] and ε [N]; outside the algebra the annotation and 0."""

    def losses(self, e: Evidence) -> Tensor:
        """Return the [N] losses of the examples, class weight included."""


class Correction(NamedTuple):
    """What a method teaches about each example.

    Attributes:
        loss: [N] its loss, class weight included, 0 where ignored.
        target: [N, C] the signed q̃; zeros where ignored.
        trust: [N] ε; 0 where ignored.
    """

    loss: Tensor
    target: Tensor
    trust: Tensor


def checked_objective(method: Objective) -> Objective:
    """Return the objective; refuse anything else, such as the name of a method."""
    if isinstance(method, Target):
        return method
    if isinstance(method, type) or not isinstance(method, Objective):
        got = type(method).__name__ if isinstance(method, nn.Module) else repr(method)
        raise TypeError(
            f"method must be a Target, or an Objective with a method losses(evidence), got {got}: "
            "give a Target, or use a criterion by its name, such as proselflc.ProSelfLC"
        )
    return method


def reduced_loss(method: Objective, e: Evidence, reduction: str, allow_fused: bool) -> Tensor:
    """Return the loss, from the fast twin where there is one and it is allowed; [N] for "none"."""
    try:
        return _reduced_loss(method, e, reduction, allow_fused)
    except (IndexError, RuntimeError):
        if not e.is_presumed:
            raise
    # Not all class ids are 0 … C−1, as was presumed: some are ignored, or an error says which.
    return _reduced_loss(method, boundary.read(e), reduction, allow_fused)


def _reduced_loss(method: Objective, e: Evidence, reduction: str, allow_fused: bool) -> Tensor:
    if isinstance(method, Target):
        if method.is_neutral and not e.log_offset:
            # Cross entropy is not worth writing again.
            return F.cross_entropy(
                e.logits,
                e.target,
                weight=e.weight,
                ignore_index=e.ignore_index,
                reduction=reduction,
            )
        if allow_fused and fused.applies(method, e):
            return fused.loss(method, e, reduction)
    e = boundary.read(e)
    return boundary.reduce(method.losses(e), e, reduction)


def correction(method: Objective, e: Evidence, shape: Size) -> Correction:
    """Return what the method teaches, in the shape of the logits that the evidence came from."""
    losses = boundary.reduce(method.losses(e), e, "none")
    q_tilde, trust = method(e)
    batch = boundary.without_classes(shape)
    if len(shape) > 2:
        q_tilde = q_tilde.reshape(*batch, shape[1]).movedim(-1, 1)
    return Correction(losses.reshape(batch), q_tilde.reshape(shape), trust.reshape(batch))
