"""The section about duplicates, leakage and outliers, from the neighbours that a run keeps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from proselflc.auditing.neighbours import Examination
from proselflc.data.inputs import Ints
from proselflc.pages.html_page import Cell
from proselflc.pages.thumbnails import Thumbnail
from proselflc.pages.values import ID, TITLE, format_chance, shorten, shorten_middle
from proselflc.reporting.gallery import ExampleView, format_deviations

if TYPE_CHECKING:
    import pyarrow as pa

GROUPS = 12  # groups with different labels on the page
MEMBERS = 6  # examples of a group
MOST = 12  # examples of another list
MANY = 0.2  # share of conflicting examples that points at the inputs rather than the labels


@dataclass(frozen=True)
class Member:
    """An example of a list."""

    id: Cell
    label: Cell
    remark: str
    picture: Thumbnail | None
    text: str | None
    deviations: list[tuple[str, str, str]]


@dataclass(frozen=True)
class Group:
    """Examples with the same content and different labels."""

    members: tuple[Member, ...]
    size: int  # with those that are not listed

    @property
    def labels(self) -> tuple[str, ...]:
        """Return the labels of the listed examples."""
        return tuple(dict.fromkeys(one.label.text for one in self.members))


@dataclass(frozen=True)
class Duplicates:
    """What the section shows; lists are cut, and counts are of all examples."""

    sentences: tuple[str, ...]
    groups: tuple[Group, ...]
    num_groups: int
    leaked: tuple[Member, ...]
    num_leaked: int
    unusual: tuple[Member, ...]


def section(
    found: Examination, table: pa.Table, views: Callable[[Ints], list[ExampleView]]
) -> Duplicates:
    """Return the section about a run.

    Args:
        found: what the neighbours of its n examples tell.
        table: its examples.
        views: returns views of the examples at the positions [k].
    """
    groups = _conflicts(found, table)
    leaked = np.flatnonzero(found.in_test)
    unusual = np.flatnonzero(found.is_outlier)
    unusual = unusual[np.argsort(-found.outlier[unusual], kind="stable")]
    lists = [*(group[:MEMBERS] for group in groups[:GROUPS]), leaked[:MOST], unusual[:MOST]]
    rows = np.concatenate(lists).astype(np.int64)
    members = iter(_members(table, rows, views(rows) if len(rows) else []))
    *shown, of_test, far = [tuple(next(members) for _ in one) for one in lists]
    far = tuple(
        replace(one, remark=f"{found.outlier[i]:.1f} times the usual distance")
        for one, i in zip(far, lists[-1], strict=True)
    )
    return Duplicates(
        sentences=tuple(_sentences(found, len(groups))),
        groups=tuple(Group(own, len(all_)) for own, all_ in zip(shown, groups, strict=False)),
        num_groups=len(groups),
        leaked=of_test,
        num_leaked=len(leaked),
        unusual=far,
    )


def _conflicts(found: Examination, table: pa.Table) -> list[Ints]:
    """Return the positions of each group with different labels, the lowest quality first."""
    quality = np.nan_to_num(table["quality"].to_numpy().astype(np.float64), nan=1.0)
    rows = np.flatnonzero(found.conflicting)
    rows = rows[np.argsort(found.duplicate_group[rows], kind="stable")]
    number = found.duplicate_group[rows]
    groups = np.split(rows, np.flatnonzero(np.diff(number)) + 1) if len(rows) else []
    return sorted(groups, key=lambda group: float(quality[group].min()))


def _members(table: pa.Table, rows: Ints, views: list[ExampleView]) -> Iterator[Member]:
    chosen = table.select(["id", "given_label", "quality"]).take(rows).to_pylist()
    for row, view in zip(chosen, views, strict=True):
        name, label = row["id"], row["given_label"] or "no label"
        quality = format_chance(row["quality"])
        yield Member(
            id=Cell(shorten_middle(name, ID), shorten_middle(name, TITLE)),
            label=Cell(shorten(label), shorten(label, TITLE)),
            remark=f"quality {quality}" if quality else "",
            picture=view.picture,
            text=view.text,
            deviations=format_deviations(view),
        )


def _sentences(found: Examination, conflicts: int) -> list[str]:
    n = len(found.duplicate_group)
    some, groups = int((found.duplicate_group >= 0).sum()), int(found.duplicate_group.max()) + 1
    lines = ["No two examples have the same content."]
    if groups:
        lines = [
            f"{some:,} of {n:,} examples have the same content as another one, exactly or nearly "
            f"({_count(groups, 'group')})."
        ]
    if conflicts:
        wrong = int(found.conflicting.sum())
        lines.append(
            f"{wrong:,} of them, in {_count(conflicts, 'group')}, have different labels; at least "
            "one label of each group is wrong."
        )
        if wrong > MANY * n:
            lines.append(
                "With this many, the inputs may not determine the class: look for a column "
                "or a detail of the inputs that is missing."
            )
    elif groups:
        lines.append("No duplicates have different labels.")
    if (found.neighbours.test_index >= 0).any():
        leaked = int(found.in_test.sum())
        lines.append(
            f"{_count(leaked, 'training example')} {'is' if leaked == 1 else 'are'} also in the "
            "test set, so the test accuracy is too high."
            if leaked
            else "No training example is also in the test set."
        )
    far = int(found.is_outlier.sum())
    lines.append(
        f"{_count(far, 'example')} {'is' if far == 1 else 'are'} far from all others."
        if far
        else "No example is far from all others."
    )
    return lines


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
