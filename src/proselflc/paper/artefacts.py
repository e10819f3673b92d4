"""Every table and figure of the paper, by its number."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from proselflc.errors import InputError, unknown
from proselflc.paper import computed, figures, tables
from proselflc.paper.output import Output
from proselflc.paper.plan import Study


@dataclass(frozen=True)
class Artefact:
    """A table or figure.

    Attributes:
        name: as the command line takes it.
        title: what it shows.
        make: asks for its runs, and makes what there is of it.
        data: the paper's data sets that it needs runs on.
        seeds: that it has in the committed results.
    """

    name: str
    title: str
    make: Callable[[Study], Output]
    data: tuple[str, ...] = ("cifar100",)
    seeds: tuple[int, ...] = (0, 1, 2)


ARTEFACTS: dict[str, Artefact] = {
    one.name: one
    for one in (
        Artefact("table1", "summary of the methods", computed.table1, ()),
        Artefact("table2", "case analysis of the trust", computed.table2, ()),
        Artefact("table3", "the standard setting, clean labels", tables.table3),
        Artefact("table4", "asymmetric and symmetric noise, all methods", tables.table4),
        Artefact("table5", "hyper-parameters ε and B", tables.table5, seeds=(0,)),
        Artefact("table6", "Clothing1M", tables.table6, ("clothing1m",)),
        Artefact("table7", "calibration: ECE by temperature and confidence", tables.table7),
        Artefact("figure1", "illustration of the targets", computed.figure1, ()),
        Artefact("figure2", "ablation of the trust", figures.figure2),
        Artefact("figure3", "learning dynamics, six panels", figures.figure3),
        Artefact("figure4", "learning dynamics by noise rate", figures.figure4),
        Artefact("figure5", "entropy and ε during training", figures.figure5),
    )
}


def artefact(name: str) -> Artefact:
    """A table or figure by its name; "Table 4", "table 4" and "table4" are the same.

    Raises:
        InputError: the paper has none of this name.
    """
    plain = "".join(name.lower().split())
    if plain not in ARTEFACTS:
        raise InputError(unknown("table or figure", name, ARTEFACTS))
    return ARTEFACTS[plain]
