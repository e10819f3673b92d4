"""What an audit found, in sentences that the pages share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from proselflc.auditing import measured
from proselflc.auditing.audit import Audit
from proselflc.errors import printable
from proselflc.pages.values import percent, share_in_words, shorten, shorten_middle
from proselflc.terminal import aligned

if TYPE_CHECKING:
    import pyarrow as pa

PAIRS = 5  # of given and suggested label that are listed
LONGEST_ID, LONGEST_NAME = 44, 24  # characters of an id and of a class name that are shown


def short_id(name: object) -> str:
    """Return an untrusted id, shortened in its middle to fit into a line."""
    return shorten_middle(printable(str(name)), LONGEST_ID)


def short_name(name: object) -> str:
    """Return an untrusted class name, shortened to fit into a line."""
    return shorten(printable(str(name)), LONGEST_NAME)


def given_to_suggested(given: object, suggested: object) -> str:
    """Return a change of label, such as "cat → dog"."""
    return f"{short_name(given)} → {short_name(suggested)}"


def indented(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the indented lines of a table of aligned columns."""
    return [f"  {line}" for line in aligned(rows)]


def noise_range(audit: Audit, to: str = " to ") -> str:
    """Return the share of wrong labels as a range, such as "4.4 to 14.1%".

    Args:
        audit: the audit; one of an older version has only one number.
        to: what is between the ends of the range.
    """
    if audit.noise_low is None or audit.noise_high is None:
        return percent(audit.estimated_noise_rate)
    low, high = percent(audit.noise_low), percent(audit.noise_high)
    return low if low == high else f"{low.removesuffix('%')}{to}{high}"


def actions(audit: Audit, table: pa.Table | None = None) -> dict[str, int] | None:
    """Return the number of labels by action; None if an older version made the audit.

    Args:
        audit: the audit.
        table: its labelled examples. Only they tell which labels are to be reviewed because a
            duplicate has another one; without them the suspects are counted.
    """
    if audit.changes is None:
        return None
    if table is not None and "action" in table.column_names:
        named = table["action"].to_pylist()
        return {action: named.count(action) for action in ("keep", "review", "change")}
    kept = audit.num_examples - audit.suspects
    return {"keep": kept, "review": audit.suspects - audit.changes, "change": audit.changes}


def sentences(audit: Audit) -> Iterator[str]:
    """Yield how many labels are wrong, how many are suspect and what to do with them."""
    if audit.measured is not None:
        yield measured.in_words(audit.measured)
    elif audit.abstains:
        really = audit.realised_noise_rate
        known = "" if really is None else f" ({percent(really)} are)"
        yield f"How many of the {audit.num_examples:,} labels are wrong{known} is not known."
    else:
        wrong = f"An estimated {noise_range(audit)} of the {audit.num_examples:,} labels are wrong"
        if audit.realised_noise_rate is not None:
            wrong += f" ({percent(audit.realised_noise_rate)} are)"
        yield f"{wrong}."
    if audit.unlabelled:
        yield unlabelled(audit.unlabelled)
    if audit.abstains:
        yield "The labels are ranked by quality, but none is called suspect."
        return
    counts = actions(audit)
    if not audit.suspects or counts is None:
        yield "No label is suspect." if not audit.suspects else f"{audit.suspects:,} are suspect."
        return
    change, review = counts["change"], counts["review"]
    todo = [
        f"{change:,} can be changed without a person" if change else "",
        f"{review:,} should be reviewed" if review else "",
    ]
    many = "1 label is" if audit.suspects == 1 else f"{audit.suspects:,} labels are"
    yield f"{many} suspect: {' and '.join(filter(None, todo))}."
    if audit.measured is not None:
        return
    if audit.suspects > 1 and audit.expected_precision is not None:
        words = share_in_words(audit.expected_precision).capitalize()
        yield f"{words} suspects are expected to be wrong."
    elif audit.suspects > 1:
        yield "How many of the suspects are wrong is not known; a review of 30 measures it."


def unlabelled(many: int) -> str:
    """Return what happened to rows without a label."""
    if many == 1:
        return "1 row has no label; it was predicted, not judged."
    return f"{many:,} rows have no label; they were predicted, not judged."


def measured_on(audit: Audit) -> str:
    """Return what the numbers were measured on; empty if they are estimates."""
    found = audit.measured
    return "" if found is None else f"measured on {found.reviewed:,} reviewed labels"


def judge(audit: Audit) -> str:
    """Return how good the predictions are that judge the labels; empty if that is not known."""
    found = audit.judge
    if found is None:
        return ""
    if found.kind is None:
        return (
            "The labels were judged by the early epochs of training alone, which are right for "
            f"about {found.accuracy:.0%} of the examples."
        )
    return (
        f"The labels were judged by a second opinion that did not see them ({found.kind}). It is "
        f"right for about {found.accuracy:.0%} of the examples and agrees with the trained model "
        f"on {found.agreement:.0%} of them."
    )
