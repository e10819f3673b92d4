"""What `--data` takes: a name, a folder, a table or an `.npz`, and what goes with it.

Names map to sources here and nowhere else. Only the standard library is imported before a data set
is opened, so that the command line can show `Request` as options at once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from proselflc.errors import InputError, unknown

if TYPE_CHECKING:
    from proselflc.data.dataset import Dataset, Ints
    from proselflc.data.examples import Examples
    from proselflc.data.noise import Matrix


FROM_PYTHON = "given in Python"  # what config.toml says of data that no --data names
PARQUET = (".parquet", ".pq")
TABLES = (".csv", ".tsv", ".tab", *PARQUET)
# Which labels of a CIFAR-N file stand for it: all there are, or the hardest.
CIFAR_N_COLUMNS = {"CIFAR-10_human": "worse_label", "CIFAR-100_human": "noisy_label"}


@dataclass(frozen=True)
class Request:
    """Which data to open, and how to read it.

    Attributes:
        data: a name (see `proselflc datasets`), an image folder, a .csv, .tsv or .parquet table,
            or an .npz file.
        data_root: where named data sets live.
        labels: a file of labels to use instead of the data's own, or a run, whose corrected labels
            are meant; what a person has decided comes before what the run suggests.
        reviewed: of the labels of a run, follow what a person has decided and, unless
            --min-confidence says how sure they must be, no suggestions.
        min_confidence: of the labels of a run, follow a suggestion only if the run is at least so
            sure of it, from 0 to 1.
        label_column: the table's column of labels.
        text_column: the table's column of texts.
        path_column: the table's column of image paths.
        id_column: the table's column of ids.
        features: precomputed embeddings (.npy or .npz) to use instead of the inputs, row for row.
        on_bad_image: what to do with an image that cannot be read.
        cache: a folder for faster copies of archives.
    """

    data: str = "digits"
    data_root: Path | None = None
    labels: Path | None = None
    reviewed: bool | None = None  # not False: a run that was begun without it can be resumed
    min_confidence: float | None = None
    label_column: str | None = None
    text_column: str | None = None
    path_column: str | None = None
    id_column: str | None = None
    features: Path | None = None
    on_bad_image: Literal["error", "skip"] = "error"
    cache: Path | None = None

    def __post_init__(self) -> None:
        # From Python, a path is often a string and --data often a Path.
        object.__setattr__(self, "data", str(self.data))
        for name in ("data_root", "labels", "features", "cache"):
            value = getattr(self, name)
            object.__setattr__(self, name, None if value is None else Path(value))


@dataclass(frozen=True)
class InputsRequest(Request):
    """Which data to ask a model about: there is no default, and features may stand alone."""

    data: str = ""


@dataclass(frozen=True)
class Named:
    """One line about a data set with a name.

    Attributes:
        title: what it is.
        classes: C.
        train: how many training examples.
        test: how many test examples.
        where: where the paper uses it, or what it is there for.
        open: reads it.
    """

    title: str
    classes: int
    train: int
    test: int
    where: str
    open: Callable[[Request], Dataset]


def open_data(request: Request) -> Dataset:
    """Open what the user asked for, with other labels or inputs if they asked for those."""
    _check_columns(request)
    _must_name_data(request)
    if request.data in DATASETS:
        dataset = DATASETS[request.data].open(request)
    else:
        dataset = _open_path(without_labels(request))
    if request.labels is None:
        _must_not_choose(request)
    else:
        dataset = dataset.with_labels(*read_label_file(dataset, request.labels, request))
    if request.features is not None:
        from proselflc.data.sources import features

        dataset = features.attach(dataset, request.features)
    return dataset


def without_labels(request: Request) -> Request:
    """The request for the data with its own labels.

    A column of labels or ids that only the table of the other labels has is not the data's.
    """
    plain = replace(request, labels=None, reviewed=None, min_confidence=None)
    if request.labels is None or request.labels.suffix.lower() not in TABLES:
        return plain
    path = Path(request.data)
    if path.suffix.lower() not in TABLES:
        return replace(plain, label_column=None, text_column=None, path_column=None, id_column=None)
    named = (request.label_column, request.id_column)
    if not any(named) or not path.is_file():
        return plain
    from proselflc.data.sources import table

    there = {name.lower() for name in table.column_names(path)}
    label, ids = (c if c is not None and c.strip().lower() in there else None for c in named)
    return replace(plain, label_column=label, id_column=ids)


def open_inputs(
    request: Request,
    names: tuple[str, ...],
    *,
    split: Literal["test", "train", "all"] | None = None,
) -> Examples:
    """Open what a model is to judge: all that `open_data` opens, and the same without labels.

    So a table needs no label column, an `.npz` only `x`, an image folder no class folders, and an
    `.npy` file is welcome. Labels that are there must be classes of the model, matched by name.

    Args:
        request: which data. With `features` and an empty `data` the features are all there is.
        names: the model's C class names.
        split: which part; None for the test part where there is one, else for everything.
    """
    from proselflc.data import examples

    if request.labels is not None:
        raise InputError(
            "other labels than the data's own make no difference to predictions: leave --labels out"
        )
    _check_columns(request)
    if request.features is None:
        parts = _open_parts(request, names, split)
    elif not request.data:
        from proselflc.data.sources import npz

        _must_be_file(request.features, "embeddings")
        parts = npz.examples(request.features, names, split=split)
    else:
        from proselflc.data.sources import features

        parts = features.attach_to_examples(_open_parts(request, names, "all"), request.features)
    what = next(iter(parts.values())).name
    return examples.joined([parts[one] for one in examples.chosen(parts, split, what)])


def _open_parts(
    request: Request, names: tuple[str, ...], split: Literal["test", "train", "all"] | None
) -> dict[str, Examples]:
    """The splits that are wanted, or more of them where reading them costs nothing."""
    _must_name_data(request)
    path = Path(request.data)
    suffix = path.suffix.lower()
    if request.data not in DATASETS:
        if path.is_dir() and _published(path) is None:
            from proselflc.data.sources import image_folder

            return image_folder.examples(
                path, names, split=split, on_bad_image=request.on_bad_image
            )
        if path.is_file() and suffix in TABLES:
            from proselflc.data.sources import table

            return table.examples(
                path,
                names,
                split=split,
                label_column=request.label_column,
                path_column=request.path_column,
                text_column=request.text_column,
                id_column=request.id_column,
                on_bad_image=request.on_bad_image,
                inputs_elsewhere=request.features is not None,
            )
        if path.is_file() and suffix in (".npz", ".npy"):
            from proselflc.data.sources import npz

            return npz.examples(path, names, split=split)

    from proselflc.data import examples

    return examples.of_dataset(open_data(replace(request, features=None)), names)


def read_label_file(dataset: Dataset, path: Path, request: Request) -> tuple[Ints, Ints | None]:
    """Labels [n] for the data set's training examples from a file, and the true ones if known.

    A folder is a run: see `_read_run`. Rows of a file belong to examples by their id if the file
    has the data set's ids, else by their place; labels are class names, or class ids where those
    are no names. A `labels.npz` of ours brings its true labels along; with a table, and with what
    `export` has written, the data set keeps what it knew about the truth. Of a table of cleanlab's
    it is the given labels that are read. The label files of CIFAR-10N and CIFAR-100N, by their
    published names, go with CIFAR.
    """
    from proselflc.data import examples

    if path.is_dir():
        return _read_run(dataset, path, least_confidence(request.reviewed, request.min_confidence))
    _must_not_choose(request)
    _must_be_file(path, "labels")
    if path.stem in CIFAR_N_COLUMNS:
        from proselflc.data.sources import cifar_n

        human = cifar_n.with_human_labels(dataset, path, CIFAR_N_COLUMNS[path.stem], path.stem)
        return human.train.labels, human.clean
    if path.suffix.lower() == ".npz":
        from proselflc.data import exported
        from proselflc.data.labels import Labels

        if exported.is_exported(path):
            corrected = exported.load(path)
            row = _rows(path, corrected.ids, len(corrected.ids), dataset)
            class_ids = examples.class_ids(corrected.names, dataset.names, str(path))
            return class_ids[corrected.labels[row]], dataset.clean
        labels = Labels.load(path)
        row = _rows(path, labels.ids, len(labels.ids), dataset)
        class_ids = examples.class_ids(labels.names, dataset.names, str(path), or_numbers=True)
        clean = None if labels.clean is None else class_ids[labels.clean[row]]
        return class_ids[labels.given[row]], clean

    row, labels_there = read_label_table(dataset, path, request)
    return labels_there[row], dataset.clean


def read_label_table(dataset: Dataset, path: Path, request: Request) -> tuple[Ints, Ints]:
    """The labels of a table beside a data set.

    Returns:
        [n] the row of each training example, and as many class ids as there are rows.
    """
    import numpy as np

    from proselflc.data import examples
    from proselflc.data.sources import table

    ids, given = table.read_labels(
        path, label_column=request.label_column, id_column=request.id_column
    )
    names, which = np.unique(np.array(given, dtype=np.str_), return_inverse=True)
    own: Sequence[str] = names.tolist()
    if path.suffix.lower() not in PARQUET:
        own = _as_known(own, dataset.names, path)
        ids = None if ids is None else _as_known(ids, set(dataset.train.ids), path)
    row = _rows(path, ids, len(given), dataset)
    return row, examples.class_ids(own, dataset.names, str(path), or_numbers=True)[which]


def _as_known(cells: Sequence[str], known: Collection[str], path: Path) -> tuple[str, ...]:
    """Cells with those as they are known that were neutralised for a spreadsheet."""
    from proselflc.data import spreadsheet

    found = []
    for cell in cells:
        plain = spreadsheet.original(cell)
        if plain != cell and plain in known:
            if cell in known:
                raise InputError(
                    f'"{cell}" in {path} could be "{plain}" as it is written for spreadsheets, and '
                    "both are known: give the labels as a .parquet or .npz file"
                )
            cell = plain
        found.append(cell)
    return tuple(found)


def least_confidence(reviewed: bool | None, min_confidence: float | None) -> float:
    """How sure a run must be of a suggestion for that to be followed; infinity for never.

    Raises:
        InputError: it is no probability.
    """
    if min_confidence is None:
        return float("inf") if reviewed else 0.0
    if not 0 <= min_confidence <= 1:
        raise InputError(f"--min-confidence must be from 0 to 1, got {min_confidence}")
    return min_confidence


def _must_not_choose(request: Request) -> None:
    """Refuse to choose among the labels of a file, which says nothing about them."""
    chosen = {
        "--reviewed": bool(request.reviewed),
        "--min-confidence": request.min_confidence is not None,
    }
    for flag, is_set in chosen.items():
        if is_set:
            raise InputError(
                f"{flag} chooses among the labels of a run: say with --labels RUN which one"
            )


def _read_run(dataset: Dataset, run: Path, least: float) -> tuple[Ints, Ints | None]:
    """Labels [n] as people decided or else a finished run suggests, and the true ones if known.

    Examples that the run set aside for validation keep their labels. What the data set knows about
    the truth stays; otherwise it is what the run knew, with the labels that were kept.

    Args:
        dataset: whose labels are replaced.
        run: its directory.
        least: a suggestion that the run is less sure of is not followed.
    """
    import numpy as np

    from proselflc.data.decisions import NAME, read_decisions
    from proselflc.data.examples import class_ids
    from proselflc.data.labels import Labels
    from proselflc.data.sources import table

    path = run / "examples.parquet"
    if not path.is_file():
        raise InputError(
            f"{run} is not a finished run: it holds no {path.name}; finish it with --resume, or "
            "give a file of labels"
        )
    place = {name: i for i, name in enumerate(dataset.train.ids)}

    def column(name: str) -> tuple[list[str], list[str]]:
        """The ids and the labels of a column."""
        ids, names = table.read_labels(path, label_column=name, id_column="id")
        lost = next((name for name in ids or () if name not in place), None)
        if lost is not None:
            raise InputError(
                f'{run} is a run on other data: it has labels for "{lost}", which {dataset.name} '
                "does not hold; give the data that it was made from"
            )
        return list(ids or ()), list(names)

    def replaced(ids: Sequence[str], names: Sequence[str]) -> Ints:
        labels = dataset.train.labels.copy()
        known, which = np.unique(np.array(names, dtype=np.str_), return_inverse=True)
        rows = [place[name] for name in ids]
        labels[rows] = class_ids(known.tolist(), dataset.names, str(path))[which]
        return labels

    ids, labels = column("suggested_label")
    if least > 0:
        _, as_given = column("given_label")
        sure = table.open_parquet(path).numbers(["p_suggested"])[:, 0].astype(np.float32) >= least
        labels = [
            one if enough else other
            for one, other, enough in zip(labels, as_given, sure, strict=True)
        ]
    if (run / NAME).is_file():
        own = Labels.load(run / "labels.npz")
        decided = read_decisions(run / NAME, own.fingerprint)
        decided.check(set(own.ids), own.names)
        standing = decided.standing
        labels = [
            other if (one := standing.get(name)) is None or one.label is None else one.label
            for name, other in zip(ids, labels, strict=True)
        ]
    given = replaced(ids, labels)
    if dataset.clean is None and "clean_label" in table.column_names(path):
        return given, replaced(*column("clean_label"))
    return given, dataset.clean


def read_transition(path: Path) -> Matrix:
    """A matrix from an .npy, .npz or .csv file; its rows are checked where it is used.

    An .npz holds it as `transition` or `T`; a .csv has one row per line and no heading.
    """
    return _read_matrix(path, "transition matrix", ("transition", "T"))


def read_mask(path: Path, num_classes: int) -> Matrix:
    """A [C, C] matrix of 0 and 1 from an .npy, .npz or .csv file; an .npz holds it as `mask`.

    Raises:
        InputError: it is no such file, or is of other classes or values.
    """
    mask, C = _read_matrix(path, "mask", ("mask",)), num_classes
    if mask.shape != (C, C):
        raise InputError(
            f"the mask in {path} has shape {mask.shape}, but there are {C} classes: it must be "
            f"[{C}, {C}], row = true class"
        )
    if not ((mask == 0) | (mask == 1)).all():
        raise InputError(f"the mask in {path} must hold nothing but 0 and 1")
    return mask


def _read_matrix(path: Path, what: str, names: tuple[str, ...]) -> Matrix:
    import numpy as np

    from proselflc.data.sources import npz

    _must_be_file(path, f"a {what}")
    suffix = path.suffix.lower()
    if suffix == ".npz":
        matrix = next(iter(npz.arrays(path, names).values()))
    elif suffix == ".npy":
        matrix = npz.array(path)
    elif suffix == ".csv":
        matrix = _read_numbers(path)
    else:
        raise InputError(f"a {what} is an .npy, .npz or .csv file, got {path}")
    if matrix.dtype.kind not in "fiub":
        raise InputError(f"{path} holds {matrix.dtype} values: expected a matrix of numbers")
    return matrix.astype(np.float64)


def _read_numbers(path: Path) -> Matrix:
    """[rows, columns] from a text file with commas."""
    import numpy as np

    try:
        rows = [line.split(",") for line in path.read_text("utf-8").splitlines() if line.strip()]
        return np.array([[float(cell) for cell in row] for row in rows], dtype=np.float64)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None
    except ValueError as error:  # text, other encodings, rows of different lengths
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"{path} does not hold a matrix of numbers: {reason}") from None


def _must_name_data(request: Request) -> None:
    if not request.data:  # which as a path would be the working directory
        raise InputError("--data is empty: give a name, a folder or a file")


def _check_columns(request: Request) -> None:
    """Columns are of a table: naming one where there is none is a mistake worth a word."""
    tables = [Path(request.data), *([request.labels] if request.labels else [])]
    if any(path.suffix.lower() in TABLES for path in tables):
        return
    for name in ("label", "text", "path", "id"):
        column = getattr(request, f"{name}_column")
        if column is not None:
            raise InputError(
                f'--{name}-column "{column}" names a column, but '
                f"{request.data or request.features} is no table: leave it out, or give a .csv, "
                ".tsv or .parquet file"
            )


def _meant(path: Path) -> str:
    """What was probably meant by a path that is not there: its neighbour, or a set with a name."""
    try:
        beside = os.listdir(path.parent)
    except OSError:  # not there either, or not ours to look into
        beside = []
    close = get_close_matches(path.name, beside, n=1, cutoff=0.75)
    if close:
        return f'; did you mean "{path.with_name(close[0])}"?'
    if path.suffix.lower() in TABLES:
        return f", seen from {Path.cwd()}: check the path"
    return ", and as a name it is an " + unknown("data set", str(path), DATASETS)


def _open_path(request: Request) -> Dataset:
    path = Path(request.data)
    if path.is_dir():
        return _open_folder(path, request)
    if not path.is_file():
        raise InputError(f"there is no file or folder {path}" + _meant(path))
    suffix = path.suffix.lower()
    if suffix in TABLES:
        from proselflc.data.sources import table

        return table.load(
            path,
            label_column=request.label_column,
            path_column=request.path_column,
            text_column=request.text_column,
            id_column=request.id_column,
            on_bad_image=request.on_bad_image,
            inputs_elsewhere=request.features is not None,
        )
    if suffix == ".npz":
        from proselflc.data.sources import npz

        return npz.load(path)
    if path.name.startswith(("cifar-10-", "cifar-100-")):
        name: Literal["cifar10", "cifar100"] = (
            "cifar10" if path.name.startswith("cifar-10-") else "cifar100"
        )
        return _open_cifar(name, replace(request, data_root=path))
    raise InputError(
        f"{path} is none of what --data takes: a .csv, .tsv or .parquet table, an .npz file, a "
        "folder of images, a CIFAR archive, or a name that `proselflc datasets` lists"
    )


def _open_folder(path: Path, request: Request) -> Dataset:
    """A folder by what lies in it: a named set in its published layout, else images."""
    published = _published(path)
    if published is not None:
        return published(replace(request, data_root=path))
    from proselflc.data.sources import image_folder

    return image_folder.load(path, on_bad_image=request.on_bad_image)


def _published(path: Path) -> Callable[[Request], Dataset] | None:
    """What opens a folder in the published layout of a named set; None if it is no such folder."""
    if (path / "batches.meta").is_file():
        return _open_cifar10
    if (path / "meta").is_file() and (path / "train").is_file():
        return _open_cifar100
    if any(path.glob("train-images?idx3-ubyte*")):
        return _open_idx_folder
    if any((path / below / "noisy_label_kv.txt").is_file() for below in ("", "annotations")):
        return _open_clothing1m
    if (path / "ILSVRC").is_dir() or (path / "train" / "n01440764").is_dir():
        return _open_imagenet
    return None


def _open_digits(request: Request) -> Dataset:
    from proselflc.data.sources import digits

    return digits.load()


def _open_idx(request: Request) -> Dataset:
    from proselflc.data.sources import idx

    return idx.load(idx.find(request.data, root(request), fetch=True), request.data)


def _open_idx_folder(request: Request) -> Dataset:
    from proselflc.data.sources import idx

    path = root(request)
    return idx.load(path, "fashion-mnist" if "fashion" in path.name.lower() else "mnist")


def _open_cifar10(request: Request) -> Dataset:
    return _open_cifar("cifar10", request)


def _open_cifar100(request: Request) -> Dataset:
    return _open_cifar("cifar100", request)


def _open_cifar(name: Literal["cifar10", "cifar100"], request: Request) -> Dataset:
    from proselflc.data.sources import cifar

    path = cifar.find(name, root(request), fetch=True)
    return cifar.load(path, name, cache=request.cache)


def _open_cifar100_small(request: Request) -> Dataset:
    from proselflc.data.sources import cifar_small

    return cifar_small.made_small(_open_cifar100(request))


def _open_cifar_n(request: Request) -> Dataset:
    from proselflc.data.sources import cifar_n

    return cifar_n.load(request.data, root(request), cache=request.cache, fetch=True)


def _open_imagenet(request: Request) -> Dataset:
    from proselflc.data.sources import imagenet

    return imagenet.load(_folder_of(request, "imagenet"), on_bad_image=request.on_bad_image)


def _open_clothing1m(request: Request) -> Dataset:
    from proselflc.data.sources import clothing1m

    return clothing1m.load(_folder_of(request, "clothing1m"), on_bad_image=request.on_bad_image)


def root(request: Request) -> Path:
    """Where named sets live: what the user says, else a folder of ours in the user's cache."""
    if request.data_root is not None:
        return request.data_root

    from proselflc.data.sources.cifar import default_cache

    return default_cache()


def _folder_of(request: Request, name: str) -> Path:
    """A set that nobody may hand on: its folder below the root, or the root itself."""
    if request.data_root is None:
        raise InputError(
            f"{name} cannot be downloaded for you: get it from its official page and say with "
            f"--data-root DIR that it is in DIR or DIR/{name}"
        )
    below = request.data_root / name
    return below if below.is_dir() else request.data_root


def _must_be_file(path: Path, what: str) -> None:
    if not path.is_file():
        came = "is not a file" if path.exists() else "does not exist"
        raise InputError(f"{path} {came}: expected a file with {what}")


def _rows(path: Path, ids: tuple[str, ...] | None, count: int, dataset: Dataset) -> Ints:
    """[n] which row of the file belongs to each training example."""
    import numpy as np

    n = len(dataset.train)
    if count != n:
        raise InputError(
            f"{path} has {count} labels, but {dataset.name} has {n} training examples: "
            "there must be one for each"
        )
    where = {name: i for i, name in enumerate(ids or ())}
    found = [name in where for name in dataset.train.ids]
    if not any(found):
        return np.arange(n)
    if not all(found):
        lost = dataset.train.ids[found.index(False)]
        raise InputError(
            f'{path} knows {sum(found)} of the {n} ids of {dataset.name}, but not "{lost}": '
            "give a label for each of its examples"
        )
    return np.array([where[name] for name in dataset.train.ids], dtype=np.int64)


DATASETS: dict[str, Named] = {
    "digits": Named(
        "scikit-learn's 8×8 digits, embedded", 10, 1297, 500, "–, the demo", _open_digits
    ),
    "mnist": Named("handwritten digits", 10, 60000, 10000, "–", _open_idx),
    "fashion-mnist": Named("clothes in 28×28 grey pixels", 10, 60000, 10000, "–", _open_idx),
    "cifar10": Named("32×32 photos", 10, 50000, 10000, "–", _open_cifar10),
    "cifar100": Named(
        "32×32 photos, 20 coarse classes", 100, 50000, 10000, "Sections 5.1, 5.2", _open_cifar100
    ),
    "cifar100-small": Named(
        "20 classes of CIFAR-100 at 16×16, for a CPU", 20, 10000, 2000, "–", _open_cifar100_small
    ),
    **{
        f"cifar10n:{who}": Named(
            f"CIFAR-10 as people labelled it, {what}", 10, 50000, 10000, "–", _open_cifar_n
        )
        for who, what in {
            "aggre": "the majority of three (9 % wrong)",
            "random1": "the first answer (17 % wrong)",
            "random2": "the second answer (18 % wrong)",
            "random3": "the third answer (18 % wrong)",
            "worse": "a wrong answer if there is one (40 % wrong)",
        }.items()
    },
    "cifar100n": Named(
        "CIFAR-100 as people labelled it (40 % wrong)", 100, 50000, 10000, "–", _open_cifar_n
    ),
    "imagenet": Named(
        "ImageNet 2012, from your own folder", 1000, 1281167, 50000, "Section 5.1", _open_imagenet
    ),
    "clothing1m": Named(
        "shop photos with labels from the words around them, from your own folder",
        14,
        1000000,
        10526,
        "Section 5.3",
        _open_clothing1m,
    ),
}
