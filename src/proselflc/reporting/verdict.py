"""What a run has shown, in two sentences made from its numbers, and when not to trust it."""

from __future__ import annotations

from collections.abc import Sequence

from proselflc.auditing.doubts import doubts
from proselflc.pages.names import in_ten, on_page, percent
from proselflc.pages.values import number, share, text
from proselflc.reporting.reading import Reading

LARGEST_ERROR = 0.1  # of the estimated share of wrong labels, where the truth is known
MOST_NOTES, NOTE = 5, 300  # of a method, and characters of one
NEVER_SEEN = 0.05  # of the examples, above which the audit is of too few of them

_NOISE = {
    "pairflip": "pair",
    "asym_cifar100_pair": "pair",
    "asym_cifar100_pair_legacy": "pair",
    "sym_exclusive_exact": "symmetric",
    "sym_exclusive_exact_per_class": "symmetric",
    "sym_exclusive_bernoulli": "symmetric",
    "sym_inclusive": "symmetric",
}


def of_one(reading: Reading, suspects: int | None) -> tuple[str, str]:
    """What one run has shown.

    Args:
        reading: the run.
        suspects: how many labels are marked, or None where that cannot be read.
    """
    return _learned(reading), _found(reading, suspects)


def of_several(readings: Sequence[Reading]) -> tuple[str, str]:
    """What several runs have shown beside each other; the test set chooses nothing."""
    first = readings[0]
    same_data = len({reading.data for reading in readings}) == 1
    same_noise = len({text(reading.summary, "noise") for reading in readings}) == 1
    what = first.data if same_data else "different data"
    noise = _noise(first) if same_noise else " with different noise"
    methods = len({reading.method for reading in readings})
    using = f" of {methods} methods" if methods > 1 else f" of {first.method}"
    opening = f"{len(readings)} runs{using} learned {what}{noise}."
    winners = []
    corrected = _best(readings, "label_accuracy_after")
    if corrected is not None:
        before = share(corrected.summary, "label_accuracy_before")
        winners.append(
            f"the labels are best as {corrected.name} suggests them, with "
            f"{percent(share(corrected.summary, 'label_accuracy_after'))} right "
            f"({percent(before)} before)"
        )
    else:
        trusted = max(
            (one for one in readings if share(one.validation, "accuracy") is not None),
            key=lambda one: share(one.validation, "accuracy") or 0.0,
            default=None,
        )
        if trusted is not None:
            accuracy = percent(share(trusted.validation, "accuracy"))
            winners.append(
                f"the validation set is predicted best by {trusted.name}, with {accuracy} right"
            )
    tested = _best(readings, "test_accuracy")
    if tested is not None:
        best = "it also predicts the test set best"
        if tested is not corrected:
            best = f"the test set is predicted best by {tested.name}"
        winners.append(f"{best}, with {percent(tested.accuracy)} right")
    if not winners:
        return opening, "Neither true labels nor a test set say which of them is better."
    return opening, _sentence(", and ".join(winners))


def warnings(reading: Reading, unseen: float | None) -> list[str]:
    """Sentences on why what a run says may not be trusted; none is good.

    Args:
        reading: the run.
        unseen: the share of examples about which nothing is known, or None.
    """
    classes = 2 if reading.audit is None else len(reading.audit.names)
    found = [_sentence(one) for one in doubts(reading.history, classes, reading.config)]
    if unseen is not None and unseen > NEVER_SEEN:
        found.append(
            f"{percent(unseen)} of the examples were never seen, so nothing is said about "
            "their labels. Train for more epochs."
        )
    after, before = (
        share(reading.summary, f"label_accuracy_{when}") for when in ("after", "before")
    )
    if after is not None and before is not None and after < before:
        found.append(
            f"The suggestions do harm: with all of them taken over, {percent(after)} of the labels "
            f"would be right, and {percent(before)} are now."
        )
    found += [one for one in _noted(reading) if one not in found]
    audit = reading.audit
    if audit is None:
        return found
    estimated, realised = audit.estimated_noise_rate, audit.realised_noise_rate
    if audit.expected_precision is not None and audit.expected_precision < 0.5:
        found.append(
            "Fewer than half of the suspects are expected to be really wrong: look at them before "
            "you change a label."
        )
    if estimated > 0.5:
        found.append(
            "More than half of the labels look wrong: either they are, or the model has learned "
            "too little to judge them."
        )
    if realised is not None and abs(estimated - realised) > LARGEST_ERROR:
        found.append(
            f"The audit is off: it takes {percent(estimated)} of the labels for wrong, and "
            f"{percent(realised)} are."
        )
    return found


def _noted(reading: Reading) -> list[str]:
    """What the method has noted, such as an estimate that failed, in sentences."""
    notes = reading.summary.get("notes")
    if not isinstance(notes, list):
        return []
    said = [on_page(one, NOTE) for one in notes if isinstance(one, str) and one.strip()]
    more = len(said) - MOST_NOTES
    last = [f"the method has noted {more:,} more, see summary.json"] if more > 0 else []
    return [_sentence(one) for one in (*said[:MOST_NOTES], *last)]


def _learned(reading: Reading) -> str:
    sentence = f"{reading.method} learned {reading.data}{_noise(reading)}{_duration(reading)}"
    if reading.accuracy is not None:
        return f"{sentence}; it gets {percent(reading.accuracy)} of the test set right."
    accuracy = share(reading.validation, "accuracy")
    if accuracy is not None:
        return f"{sentence}; it gets {percent(accuracy)} of the validation set right."
    return f"{sentence}; there is no test set to measure it on."


def _found(reading: Reading, suspects: int | None) -> str:
    audit = reading.audit
    sentence = ""
    if audit is not None:
        sentence = (
            f"About {percent(audit.estimated_noise_rate, 0)} of the {audit.num_examples:,} labels "
            "look wrong"
        )
        if audit.realised_noise_rate is not None:
            sentence += f" ({percent(audit.realised_noise_rate)} are)"
        sentence += "; "
        suspects = audit.suspects if suspects is None else suspects
    if suspects is None:
        return "Which labels look wrong is not known."
    if suspects == 0:
        return _sentence(sentence + "none is marked as a suspect")
    sentence += (
        "1 is marked as a suspect" if suspects == 1 else f"{suspects:,} are marked as suspects"
    )
    precision = None if audit is None else audit.expected_precision
    if precision is not None and suspects > 1:
        sentence += f", of which {in_ten(precision)} should really be wrong"
    after = share(reading.summary, "label_accuracy_after")
    before = share(reading.summary, "label_accuracy_before")
    if after is not None and before is not None:
        sentence += (
            f", and with the suggested labels {percent(after)} of all are right "
            f"({percent(before)} before)"
        )
    return _sentence(sentence)


def _sentence(words: str) -> str:
    return words[0].upper() + words[1:] + "."


def _noise(reading: Reading) -> str:
    kind, _, rate = text(reading.summary, "noise").partition(":")
    if kind in ("", "none"):
        return ""
    words = _NOISE.get(kind, on_page(kind.replace("_", " ")))
    try:
        return f" with {percent(float(rate), 0)} {words} noise" if rate else f" with {words} noise"
    except ValueError:
        return f" with {words} noise"


def _duration(reading: Reading) -> str:
    for unit in ("epoch", "step"):
        many = number(reading.config, f"{unit}s")
        if many is not None and many > 0:
            return f" for {many:,.0f} {unit}{'' if many == 1 else 's'}"
    return ""


def _best(readings: Sequence[Reading], name: str) -> Reading | None:
    """The run with the largest share of that name, the first of equals."""
    known = [one for one in readings if share(one.summary, name) is not None]
    return max(known, key=lambda one: share(one.summary, name) or 0.0, default=None)
