"""Every table and figure of the paper, by its number."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from proselflc.app.reproduction import figures, tables
from proselflc.app.reproduction.output import Output
from proselflc.app.reproduction.plan import Study
from proselflc.errors import InputError, unknown


@dataclass(frozen=True)
class Artefact:
    """A table or figure.

    Attributes:
        title: what it shows.
        make: asks for its runs, and makes what there is of it.
        data: the paper's data sets that it needs runs on.
        seeds: that it has in the committed results.
    """

    title: str
    make: Callable[[Study], Output]
    data: tuple[str, ...] = ("cifar100",)
    seeds: tuple[int, ...] = (0, 1, 2)


ARTEFACTS: dict[str, Artefact] = {
    "table1": Artefact("summary of the methods", tables.table1, ()),
    "table2": Artefact("case analysis of the trust", tables.table2, ()),
    "table3": Artefact("the standard setting, clean labels", tables.table3),
    "table4": Artefact("asymmetric and symmetric noise, all methods", tables.table4),
    "table5": Artefact("hyper-parameters ε and B", tables.table5, seeds=(0,)),
    "table6": Artefact("Clothing1M", tables.table6, ("clothing1m",)),
    "table7": Artefact("calibration: ECE by temperature and confidence", tables.table7),
    "figure1": Artefact("illustration of the targets", figures.figure1, ()),
    "figure2": Artefact("ablation of the trust", figures.figure2),
    "figure3": Artefact("learning dynamics, six panels", figures.figure3),
    "figure4": Artefact("learning dynamics by noise rate", figures.figure4),
    "figure5": Artefact("entropy and ε during training", figures.figure5),
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
