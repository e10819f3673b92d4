"""What a criterion minimises, whichever it is."""

from typing import Protocol, runtime_checkable

from torch import Size, Tensor, nn
from torch.nn import functional as F

from proselflc.correction import boundary, fused
from proselflc.correction.evidence import Evidence
from proselflc.correction.target import Correction, Target


@runtime_checkable
class Method(Protocol):
    """A `Target` of the algebra, or a loss outside it."""

    def __call__(self, e: Evidence) -> tuple[Tensor, Tensor]:
        """q̃ [N, C] and ε [N], what is taught; the annotation and 0 outside the algebra."""

    def losses(self, e: Evidence) -> Tensor:
        """[N] the loss of every example, class weight included."""


def check_method(method: Method) -> None:
    """Refuse what is no method, such as the name of one."""
    if isinstance(method, Target):
        return
    if isinstance(method, type) or not isinstance(method, Method):
        what = type(method).__name__ if isinstance(method, nn.Module) else repr(method)
        raise TypeError(
            f"method must be a Target or a loss with the methods of a Method, got {what}: "
            "give a Target, or use a criterion by its name, such as proselflc.ProSelfLC"
        )


def reduced_loss(method: Method, e: Evidence, reduction: str, allow_fused: bool) -> Tensor:
    """The method's loss, by its fast twin where there is one and it is allowed; [N] for "none"."""
    try:
        return _reduced_loss(method, e, reduction, allow_fused)
    except (IndexError, RuntimeError):
        if not e.is_presumed:
            raise
    # Not all class ids are 0 … C−1, as was presumed: some are ignored, or an error says which.
    return _reduced_loss(method, boundary.read(e), reduction, allow_fused)


def _reduced_loss(method: Method, e: Evidence, reduction: str, allow_fused: bool) -> Tensor:
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


def correction(method: Method, e: Evidence, shape: Size) -> Correction:
    """What the method teaches, in the shape of the logits it came from."""
    losses = boundary.reduce(method.losses(e), e, "none")
    q_tilde, trust = method(e)
    batch = boundary.without_classes(shape)
    if len(shape) > 2:
        q_tilde = q_tilde.reshape(*batch, shape[1]).movedim(-1, 1)
    return Correction(losses.reshape(batch), q_tilde.reshape(shape), trust.reshape(batch))
