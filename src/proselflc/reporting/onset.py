"""When a method began to trust the network's predictions, why, and how sure it was, in words.

A run may come from an untrusted source, so that a summary with wrong types has no onset.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from proselflc.correction.onset import EARLIEST, SETTLED
from proselflc.pages.values import finite, number, percent

MOST_EPOCHS, MOST_EXAMPLES = 10**6, 10**12
LARGEST_LOSS = 100.0


@dataclass(frozen=True)
class Onset:
    """The onset of a finished run, as `summary.json` holds it."""

    epoch: int | None  # the number of epochs after which trust began; None if it never did
    latest: int  # after which it would have begun at the latest; 0 if training was too short
    guess_loss: float  # of a guess among all classes
    fall: float  # of the held-out loss, from that of a guess to its lowest
    recent_fall: float  # in the last third of the epochs until then
    losses: tuple[float, ...]  # on held-out labels, of these epochs
    surest: int  # number of the surest predictions
    contradicted: int  # how many of them are not of the given class


def read(summary: Mapping[str, Any]) -> Onset | None:
    """Return the onset of a summary, or None if the method has none."""
    found = summary.get("onset")
    if not isinstance(found, dict):
        return None
    listed = found.get("held_out_losses")
    if not isinstance(listed, list) or len(listed) > MOST_EPOCHS:
        return None
    losses = [_loss(one) for one in listed]
    guess, fall, recent = (number(found, name) for name in ("guess_loss", "fall", "recent_fall"))
    surest, contradicted, latest = (
        _count(found.get(name)) for name in ("surest", "contradicted", "latest")
    )
    epoch = found.get("epoch")
    if None in losses or None in (_loss(guess), fall, recent, surest, contradicted, latest):
        return None
    if epoch is not None and (_count(epoch) != len(losses)):
        return None
    return Onset(
        epoch=epoch,
        latest=latest or 0,
        guess_loss=guess or 0.0,
        fall=fall or 0.0,
        recent_fall=recent or 0.0,
        losses=tuple(one or 0.0 for one in losses),
        surest=surest or 0,
        contradicted=min(contradicted or 0, surest or 0),
    )


def _loss(value: object) -> float | None:
    """Return a loss that can be drawn, or None."""
    found = finite(value)
    return found if found is not None and 0 <= found <= LARGEST_LOSS else None


def _count(value: object) -> int | None:
    """Return a number of things, or None."""
    found = finite(value)
    return int(found) if found is not None and 0 <= found <= MOST_EXAMPLES else None


def sentences(onset: Onset) -> list[str]:
    """Return when trust began, why, and how sure that is."""
    part = onset.recent_fall / onset.fall if onset.fall > 0 else 0.0
    fell = f"The loss on held-out labels fell from {onset.guess_loss:.2f} (a guess) to "
    fell += f"{min(onset.losses, default=onset.guess_loss):.2f}"
    share = f"; the last third of these epochs had {percent(part)} of this fall"
    if onset.epoch is None:
        never = "It never trusted its own predictions more than ProSelfLC does, because"
        if not onset.latest:
            return [f"{never} training had fewer than {2 * EARLIEST} epochs."]
        if onset.fall <= 0:
            return [f"{never} it predicted held-out labels no better than a guess would."]
        return [
            f"{never} it was still learning what labels share at half of training.",
            f"{fell}{share}; less than {SETTLED:.0%}, with its standard error, would count as "
            "settled. With more epochs, trust may begin.",
        ]
    rose = ", and rose again in the last third of these epochs"
    found = [
        f"It began to trust its own predictions after epoch {onset.epoch:,}, when it had stopped "
        "learning what labels share.",
        f"{fell}{rose if part < 0 else share}.",
    ]
    if onset.surest:
        rate = percent(onset.contradicted / onset.surest)
        found.append(
            f"At the end, {onset.contradicted:,} of its {onset.surest:,} surest predictions "
            f"contradicted the label; that is {rate}, its estimate of the share of wrong labels."
        )
    return found
