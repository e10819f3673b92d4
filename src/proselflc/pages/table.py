"""A table of a page: its cells and its heading."""

from __future__ import annotations

from dataclasses import dataclass

from proselflc.pages.names import NAME, TITLE, on_page


@dataclass(frozen=True)
class Cell:
    """One cell.

    Attributes:
        text: as it is read.
        title: all of it, where the text is shortened.
        order: the number that it is sorted by; None for text, and for what is not known.
        is_best: whether no other of its column is better.
    """

    text: str
    title: str = ""
    order: float | None = None
    is_best: bool = False


@dataclass(frozen=True)
class Table:
    """A table with a heading.

    Attributes:
        label: what it is, for those who do not see it.
        heading: a title for every column.
        numeric: whether a column holds numbers.
        rows: of cells.
        is_sortable: whether another order may be asked for.
    """

    label: str
    heading: tuple[str, ...]
    numeric: tuple[bool, ...]
    rows: tuple[tuple[Cell, ...], ...]
    is_sortable: bool = False


def name(words: str, limit: int = NAME) -> Cell:
    """Return a cell with a name, whose title is all of it where the text is shortened."""
    short = on_page(words, limit)
    return Cell(short, on_page(words, TITLE) if short.endswith("…") else "")
