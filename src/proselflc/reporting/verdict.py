"""The result of a run in two sentences, and warnings about it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from proselflc.auditing.audit import Audit
from proselflc.pages.values import number, percent, share, share_in_words, shorten, text
from proselflc.reporting.run_facts import RunFacts
from proselflc.run import audit_words

LARGEST_ERROR = 0.1  # of an estimated noise rate without a range and without a warning
OUTSIDE = 0.02  # distance of the true noise rate from the range without a warning
MOST_NOTES, NOTE = 5, 300  # notes of a method, and characters of a note
NEVER_SEEN = 0.05  # share of examples without a warning

_NOISE = {
    "pairflip": "pair",
    "asym_cifar100_pair": "pair",
    "asym_cifar100_pair_legacy": "pair",
    "sym_exclusive_exact": "symmetric",
    "sym_exclusive_exact_per_class": "symmetric",
    "sym_exclusive_bernoulli": "symmetric",
    "sym_inclusive": "symmetric",
}


def of_one(facts: RunFacts, suspects: int | None) -> tuple[str, ...]:
    """Return the result of one run; the number of suspects is None if it cannot be read."""
    judge = "" if facts.audit is None else audit_words.judge(facts.audit)
    return (_learned(facts), _found(facts, suspects), *([judge] if judge else []))


def of_several(reported: Sequence[RunFacts]) -> tuple[str, str]:
    """Return the result of several runs; the test set is not used to choose one."""
    first = reported[0]
    same_data = len({facts.data for facts in reported}) == 1
    same_noise = len({text(facts.summary, "noise") for facts in reported}) == 1
    what = first.data if same_data else "different data"
    noise = _noise(first) if same_noise else " with different noise"
    methods = len({facts.method for facts in reported})
    using = f" of {methods} methods" if methods > 1 else f" of {first.method}"
    opening = f"{len(reported)} runs{using} trained on {what}{noise}."
    winners = []
    corrected = _best(reported, "label_accuracy_after")
    if corrected is not None:
        before = share(corrected.summary, "label_accuracy_before")
        winners.append(
            f"the corrections of {corrected.name} are best, with "
            f"{percent(share(corrected.summary, 'label_accuracy_after'))} of the labels right "
            f"({percent(before)} before)"
        )
    else:
        trusted = max(
            (one for one in reported if share(one.validation, "accuracy") is not None),
            key=lambda one: share(one.validation, "accuracy") or 0.0,
            default=None,
        )
        if trusted is not None:
            accuracy = percent(share(trusted.validation, "accuracy"))
            winners.append(
                f"{trusted.name} has the highest accuracy on the validation set, {accuracy}"
            )
    tested = _best(reported, "test_accuracy")
    if tested is not None:
        best = "it also has the highest accuracy on the test set"
        if tested is not corrected:
            best = f"{tested.name} has the highest accuracy on the test set"
        winners.append(f"{best}, {percent(tested.accuracy)}")
    if not winners:
        return opening, "Without true labels or a test set they cannot be ranked."
    return opening, _sentence(", and ".join(winners))


def warnings(facts: RunFacts, unseen: float | None) -> list[str]:
    """Return sentences about why the results of a run may not be trustworthy.

    `unseen` is the share of examples that were never seen, if known.
    """
    of_audit = facts.audit.warnings if facts.audit else ()
    found = [_sentence(one.about(facts.run.path)) for one in of_audit]
    if unseen is not None and unseen > NEVER_SEEN:
        found.append(
            f"{percent(unseen)} of the examples were never seen, so their labels were not audited. "
            "Train for more epochs."
        )
    before = share(facts.summary, "label_accuracy_before")
    everyone = share(facts.summary, "label_accuracy_after_suspects")
    after = share(facts.summary, "label_accuracy_after")
    everyone = after if everyone is None else everyone  # of an older version, which had no other
    if everyone is not None and before is not None and everyone < before:
        found.append(
            f"The suggestions make the labels worse: {percent(everyone)} would be right if all "
            f"suggestions were followed, and {percent(before)} are right now."
        )
    known = {_gist(sentence) for sentence in found}
    found += [note for note in _noted(facts) if _gist(note) not in known]
    audit = facts.audit
    if audit is None:
        return found
    realised = audit.realised_noise_rate
    if audit.expected_precision is not None and audit.expected_precision < 0.5:
        found.append(
            "Fewer than half of the suspects are expected to be wrong. Check them before you "
            "change a label."
        )
    if audit.estimated_noise_rate > 0.5 and not audit.abstains:
        found.append(
            "More than half of the labels look wrong. Either they are, or the model has learned "
            "too little to assess them."
        )
    if realised is not None and _is_off(audit, realised):
        found.append(
            f"The estimate of the audit is inaccurate: it takes {audit_words.noise_range(audit)} "
            f"of the labels to be wrong, but {percent(realised)} are."
        )
    return found


def _is_off(audit: Audit, realised: float) -> bool:
    """Return whether the true share of wrong labels is far from what the audit states."""
    low, high = audit.noise_low, audit.noise_high
    if low is None or high is None:
        return abs(audit.estimated_noise_rate - realised) > LARGEST_ERROR
    return not low - OUTSIDE <= realised <= high + OUTSIDE


def _gist(sentence: str) -> str:
    """Return the beginning of a sentence, which all versions and ways of calling word alike."""
    return re.split("[,:;]", sentence, maxsplit=1)[0]


def _noted(facts: RunFacts) -> list[str]:
    """Return the notes of the method, such as a failed estimate, as sentences."""
    notes = facts.summary.get("notes")
    if not isinstance(notes, list):
        return []
    kept = [shorten(note, NOTE) for note in notes if isinstance(note, str) and note.strip()]
    more = len(kept) - MOST_NOTES
    last = [f"the method has {more:,} more notes in summary.json"] if more > 0 else []
    return [_sentence(note) for note in (*kept[:MOST_NOTES], *last)]


def _learned(facts: RunFacts) -> str:
    sentence = f"{facts.method} was trained on {facts.data}{_noise(facts)}{_duration(facts)}"
    if facts.accuracy is not None:
        return f"{sentence}; its test accuracy is {percent(facts.accuracy)}."
    accuracy = share(facts.validation, "accuracy")
    if accuracy is not None:
        return f"{sentence}; its validation accuracy is {percent(accuracy)}."
    return f"{sentence}; there is no test set."


def _found(facts: RunFacts, suspects: int | None) -> str:
    audit = facts.audit
    sentence = ""
    if audit is not None and audit.changes is not None:
        return " ".join([*audit_words.sentences(audit), *_gain(facts)])
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
        return "The labels were not audited."
    if suspects == 0:
        return _sentence(sentence + "there are no suspects")
    sentence += "there is 1 suspect" if suspects == 1 else f"there are {suspects:,} suspects"
    precision = None if audit is None else audit.expected_precision
    if precision is not None and suspects > 1:
        sentence += f", of which {share_in_words(precision)} are expected to be wrong"
    after = share(facts.summary, "label_accuracy_after")
    before = share(facts.summary, "label_accuracy_before")
    if after is not None and before is not None:
        sentence += (
            f". With the suggested labels {percent(after)} of all labels are right "
            f"({percent(before)} before)"
        )
    return _sentence(sentence)


def _gain(facts: RunFacts) -> Iterator[str]:
    """Yield how many labels are right after the changes, if the true ones are known."""
    before, after, everyone = (
        share(facts.summary, f"label_accuracy_{when}")
        for when in ("before", "after", "after_suspects")
    )
    if before is not None and after is not None and facts.audit is not None and facts.audit.changes:
        more = "" if everyone is None else f", {percent(everyone)} if all suspects were changed"
        words = f"{percent(after)} of all labels are right ({percent(before)} before{more})"
        yield f"After the changes {words}."


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:] + "."


def _noise(facts: RunFacts) -> str:
    kind, _, rate = text(facts.summary, "noise").partition(":")
    if kind in ("", "none"):
        return ""
    words = _NOISE.get(kind, shorten(kind.replace("_", " ")))
    try:
        return f" with {percent(float(rate), 0)} {words} noise" if rate else f" with {words} noise"
    except ValueError:
        return f" with {words} noise"


def _duration(facts: RunFacts) -> str:
    for unit in ("epoch", "step"):
        many = number(facts.config, f"{unit}s")
        if many is not None and many > 0:
            return f" for {many:,.0f} {unit}{'' if many == 1 else 's'}"
    return ""


def _best(reported: Sequence[RunFacts], name: str) -> RunFacts | None:
    """Return the run with the largest share of that name, the first in case of a tie."""
    known = [one for one in reported if share(one.summary, name) is not None]
    return max(known, key=lambda one: share(one.summary, name) or 0.0, default=None)
