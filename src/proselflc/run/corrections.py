"""Whether the corrections of a run may be followed, and what that is expected to cost."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from proselflc.auditing.audit import Audit
from proselflc.auditing.caveats import REVIEWED
from proselflc.data.corrections import CHANGE, Corrections
from proselflc.data.dataset import Dataset
from proselflc.data.inputs import Bools
from proselflc.data.request import Request
from proselflc.errors import InputError
from proselflc.files.regular import is_regular
from proselflc.run import audit_words
from proselflc.run.reader import Run
from proselflc.wording import command, option

if TYPE_CHECKING:
    import pyarrow as pa


def audit_of(run: Run) -> Audit | None:
    """Return the audit of a run, or None if there is no such file."""
    return run.audit if is_regular(run.directory.checked(run.directory.audit)) else None


def followed(table: pa.Table, wanted: Corrections) -> Bools:
    """Return [n] whether the suggestion for each row of `examples.parquet` is followed."""
    is_suspect: Bools = table["is_suspect"].to_numpy()
    confidence = np.asarray(table["p_suggested"].to_numpy(), np.float32)
    is_change = np.asarray(table["action"].to_numpy()) == CHANGE if has_actions(table) else None
    return wanted.followed(is_suspect, confidence, is_change)


def filled(table: pa.Table, wanted: Corrections) -> Bools:
    """Return [n] whether each row has no label and gets the suggested one."""
    confidence = np.asarray(table["p_suggested"].to_numpy(), np.float32)
    return wanted.filled(~table["given_label"].is_valid().to_numpy(), confidence)


def has_actions(table: pa.Table) -> bool:
    """Return whether the audit says what to do; one of an older version does not."""
    return "action" in table.column_names


def check_corrections(
    run: Run, wanted: Corrections, *, is_reviewed: bool, field: str | None = None
) -> None:
    """Refuse to correct labels with an audit that corrects none.

    Args:
        run: the run.
        wanted: the suggestions to follow.
        is_reviewed: whether people have decided about labels of the run.
        field: the option that names the run.
    """
    audit = audit_of(run)
    if audit is None or not audit.abstains or wanted.force or (wanted.reviewed and is_reviewed):
        return
    reason = next(warning.message for warning in audit.warnings if warning.abstains)
    only = f"pass {option('reviewed', True)} to use the decisions about it alone, or "
    raise InputError(
        f"the audit of {run.path} corrects no label, because {reason}",
        field=field,
        fix=f"{only if is_reviewed else ''}pass {option('force', True)} to use its labels as given",
    )


def correction_notes(run: Run, wanted: Corrections, many: int) -> Iterator[str]:
    """Yield sentences about what following suggestions is expected to cost.

    Args:
        run: the run.
        wanted: the suggestions to follow.
        many: how many are followed.
    """
    if wanted.is_default and not has_actions(run.examples):
        yield (
            f"an older version of proselflc audited {run.path}, so all suspects are followed; run "
            f"{command('audit', run.path)} to change only the labels that are surely wrong"
        )
    elif wanted.suspects and many:
        yield _cost(run, many)


def check_label_run(request: Request) -> None:
    """Refuse the labels of a run whose audit corrects none."""
    run = _label_run(request)
    if run is None or not is_regular(run.directory.examples):
        return
    is_reviewed = os.path.lexists(run.directory.review) and bool(run.decisions.standing)
    check_corrections(run, request.corrections, is_reviewed=is_reviewed, field="labels")


def label_run_notes(request: Request, dataset: Dataset) -> Iterator[str]:
    """Yield how many labels come from a run and how many from people's decisions."""
    run = _label_run(request)
    if run is None:
        return
    review, wanted, table = run.directory.review, request.corrections, run.examples
    decided: dict[str, str | None] = {}
    if os.path.lexists(review):
        found = run.decisions
        yield from found.notes
        decided = {one.example: one.label for one in found.standing.values()}
        many = sum(label is not None for label in decided.values())
        if many:
            labels = "1 label is" if many == 1 else f"{many:,} labels are"
            yield f"{labels} from the decisions in {review}"
    elif wanted.reviewed:
        yield f"{run.path} has not been reviewed yet, so no label is changed"
    ids: list[str] = table["id"].to_pylist()
    is_open = np.array([decided.get(name) is None for name in ids], np.bool_)
    changed = followed(table, wanted) & is_open
    left = int((table["is_suspect"].to_numpy() & ~changed & is_open).sum())
    many = int(changed.sum())
    if not wanted.reviewed:
        one = f"{many:,} label is" if many == 1 else f"{many:,} labels are"
        changed_as = f"{one} changed as {run.path} suggests"
        none = f"no label is changed, because {run.path} suggests none that is sure enough"
        rest = (
            f"; {left:,} suspect{'s were' if left > 1 else ' was'} left for review" if left else ""
        )
        yield f"{changed_as if many else none}{rest}"
    yield from correction_notes(run, wanted, many)
    rest = ~table["given_label"].is_valid().to_numpy() & is_open
    if rest.any():
        yield rest_in_words(int(rest.sum()), int((filled(table, wanted) & rest).sum()))
    own = set(ids)
    known, n = sum(name in own for name in dataset.train.ids), len(dataset.train)
    if known < n:
        yield f"{known:,} of {n:,} labels are from {run.path}, the others are unchanged"


def rest_in_words(many: int, labelled: int) -> str:
    """Return how many rows without a label, which no person has decided, get the suggested one."""
    rows = "1 row has" if many == 1 else f"{many:,} rows have"
    if not labelled:
        return f"{rows} no label; {option('fill', True)} would use the suggested ones"
    if labelled == many:
        return f"{rows} the suggested label, in place of none"
    left = many - labelled
    rows = f"{labelled:,} rows have" if labelled > 1 else "1 row has"
    return f"{rows} the suggested label, in place of none, and {left:,} still {_have(left)} none"


def _have(many: int) -> str:
    return "has" if many == 1 else "have"


def _label_run(request: Request) -> Run | None:
    """Return the run whose labels are requested, or None."""
    path = request.labels
    return None if path is None or not path.is_dir() else Run(path)


def _cost(run: Run, many: int) -> str:
    audit = audit_of(run)
    precision = None if audit is None else audit.expected_precision
    measured = "" if audit is None else audit_words.measured_on(audit)
    labels = f"the {many:,} changed labels" if many > 1 else "the changed label"
    if precision is None:
        return (
            f"all suspects are followed, and it is not known how many of {labels} are right as "
            f"given; {command('review', run.path, sample=REVIEWED)} measures it"
        )
    wrong = f"about {round((1 - precision) * many):,}"
    if audit is not None and audit.measured and (shares := audit.measured.precision.suspects):
        low, _, high = shares
        wrong += f" ({round((1 - high) * many):,} to {round((1 - low) * many):,})"
    sentence = f"all suspects are followed: {wrong} of {labels} are right as given"
    return f"{sentence}, {measured}" if measured else sentence
