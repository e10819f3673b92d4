"""The one formula: the annotation, corrected towards a reference as far as it is trusted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from proselflc.correction.evidence import Evidence
from proselflc.correction.reference import Reference
from proselflc.correction.trust import Fixed, Trust

NO_TRUST = Fixed(0.0)


@dataclass(frozen=True)
class Target:
    """q̃ = (1 − ε) q ± ε r, where r is the reference: u, p, argmax p, p_t, …; without one, q̃ = q."""

    reference: Reference | None = None
    trust: Trust = NO_TRUST
    sign: Literal[1, -1] = 1

    @property
    def formula(self) -> str:
        """Return the target in the paper's letters.

        >>> from proselflc.correction.reference import Prediction
        >>> Target(Prediction(), Fixed(0.2), sign=-1).formula
        '(1 − ε) q − ε p'
        """
        if self.reference is None:
            return "q"
        return f"(1 − ε) q {'+' if self.sign > 0 else '−'} ε {self.reference.symbol}"

    @property
    def is_neutral(self) -> bool:
        """Return whether nothing is ever mixed in, so that this is cross entropy."""
        return self.reference is None or self.trust == NO_TRUST

    def __call__(self, e: Evidence) -> tuple[Tensor, Tensor]:
        """Return the corrected distribution q̃ [N, C] and the trust ε [N]."""
        trust = self._trust(e)
        if self.reference is None:
            return e.q, trust
        eps = trust[:, None]
        q_tilde = (1 - eps) * e.q + self.sign * eps * self.reference(e)
        return q_tilde if e.is_complete else torch.where(e.valid[:, None], q_tilde, 0.0), trust

    def losses(self, e: Evidence) -> Tensor:
        """Return [N] (1 − ε) H(q, p) ± ε H(r, p), which is H(q̃, p) by Proposition 1.

        With class weights w the annotation's part is Σ_j w_j q_j (−log p_j) and the reference's is
        scaled by ω = Σ_j w_j q_j. A teacher's part is a KL divergence, lower by a constant.
        """
        annotation = e.expect(lambda log_p: -log_p)
        if self.reference is None or self.is_neutral:
            return annotation
        eps = self._trust(e)
        return (1 - eps) * annotation + self.sign * eps * self.reference.term(e)

    def _trust(self, e: Evidence) -> Tensor:
        # A constant. Not no_grad(), which would leave a detached p in the evidence for the target.
        trust = torch.as_tensor(self.trust(e), dtype=e.logits.dtype, device=e.logits.device)
        trust = trust.detach().expand(len(e.logits))
        return trust if e.is_complete else torch.where(e.valid, trust, 0.0)
