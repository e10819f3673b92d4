"""Opens the data of a request: a named set, a folder, a table or an `.npz`, and other labels.

Names map to sources here and nowhere else. Only the standard library is imported before a data set
is opened, so that the command line can list names at once.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from proselflc.data.label_files import read_label_file, refuse_choice
from proselflc.data.request import (
    EXCEL,
    FROM_PYTHON,
    KINDS_ASKED,
    SPREADSHEETS,
    Request,
    is_table,
    table_suffix,
)
from proselflc.errors import InputError, invalid_option, unknown
from proselflc.files.regular import is_regular, must_be_file
from proselflc.wording import command, option

if TYPE_CHECKING:
    from proselflc.data.dataset import Contents, Dataset, ModelNeeds, SplitChoice
    from proselflc.data.tables.kinds import ColumnKind


@dataclass(frozen=True)
class Named:
    """A data set with a name."""

    title: str
    classes: int
    train: int  # number of training examples
    test: int
    where: str  # where the paper uses it, or what it is for
    open: Callable[[Request], Dataset]


def open_data(request: Request, kinds: tuple[ColumnKind, ...] | None = None) -> Dataset:
    """Open the data to learn from, with other labels or inputs if the request names some.

    Training examples without a label are set apart. The columns of a table are read as `kinds`
    says, if they are those of another table.
    """
    from proselflc.data.dataset import separated

    return separated(open_all(request, kinds))


def open_all(request: Request, kinds: tuple[ColumnKind, ...] | None = None) -> Dataset:
    """Open the same data with all of its training examples together.

    Those without a label have the class id `NO_LABEL`.
    """
    from proselflc.data.dataset import checked
    from proselflc.data.labels import LabelValues

    _must_be_no_spreadsheet(request)
    _check_columns(request)
    _must_name_data(request)
    _must_not_be_run(request)
    if request.data in DATASETS:
        dataset = DATASETS[request.data].open(request)
    else:
        dataset = _open_path(without_labels(request), kinds)
    if request.labels is None:
        refuse_choice(request)
    else:
        dataset = dataset.with_labels(*read_label_file(dataset, request.labels, request))
        if (dataset.train.labels < 0).any():
            checked(dataset)
    if request.features is not None:
        from proselflc.data.sources import npz

        dataset = npz.with_features(dataset, request.features)
    return replace(dataset, label_values=LabelValues(dataset.names))  # in files labels are texts


def without_labels(request: Request) -> Request:
    """Return the request for the data with its own labels.

    A column of labels or ids that only the table of the other labels has is left out.
    """
    plain = request.with_own_labels
    if request.labels is None or not is_table(request.labels):
        return plain
    path = Path(request.data)
    if table_suffix(path) not in EXCEL and table_suffix(request.labels) in EXCEL:
        plain = replace(plain, sheet=None)
    if not is_table(path):
        plain = replace(plain, label_column=None, id_column=None, ignore_column=())
        return replace(plain, text_column=None, path_column=None)
    named = (request.label_column, request.id_column)
    if not any(named) or not path.is_file():
        return plain
    from proselflc.data.tables import table

    there = {name.lower() for name in table.column_names(path, plain.sheet)}
    label, ids = (c if c is not None and c.strip().lower() in there else None for c in named)
    return replace(plain, label_column=label, id_column=ids)


def for_other_table(request: Request, data: str) -> Request:
    """Return the request for a similar table, which need not have the ignored columns."""
    path = Path(data)
    if not request.ignore_column or not is_table(path) or not path.is_file():
        return replace(request, data=data)
    from proselflc.data.tables import table

    there = table.columns_there(path, request.ignore_column, request.sheet)
    return replace(request, data=data, ignore_column=there)


def open_inputs(
    request: Request,
    names: tuple[str, ...],
    *,
    split: SplitChoice = None,
    columns: tuple[str, ...] | None = None,
    kinds: tuple[ColumnKind, ...] | None = None,
    fill: tuple[float, ...] | None = None,
    optional: frozenset[str] = frozenset(),
) -> Contents:
    """Open what a model is to judge: all that `open_data` opens, and the same without labels.

    So a table needs no label column, an `.npz` only `x`, an image folder no class folders, and an
    `.npy` file is read too. Labels that are there must be classes of the model, matched by name.
    With `features` and an empty `data` the features are all there is. See `ModelNeeds` for the
    rest.
    """
    from proselflc.data.dataset import ModelNeeds, choose_splits

    if request.labels is not None:
        raise InputError(
            "labels other than the data's own make no difference to predictions",
            field="labels",
            fix=f"leave {option('labels')} out",
        )
    _must_be_no_spreadsheet(request)
    _check_columns(request)
    needs = ModelNeeds(names, split, columns, kinds, fill, optional)
    if request.features is None:
        found = _contents(request, needs)
    elif not request.data:
        from proselflc.data.sources import npz

        must_be_file(request.features, "embeddings")
        found = npz.read(request.features, needs)
    else:
        from proselflc.data.sources import npz

        found = _contents(request, replace(needs, split="all", columns=None, kinds=None, fill=None))
        parts = npz.attach(found.parts, request.features, found.name)
        found = replace(found, parts=parts)
    chosen = choose_splits(found.parts, split, found.name)
    skipped = tuple(one for one in found.skipped if one.split is None or one.split in chosen)
    return replace(found, parts={split: found.parts[split] for split in chosen}, skipped=skipped)


def _contents(request: Request, needs: ModelNeeds) -> Contents:
    """Return the splits that are needed, or more of them where reading them costs nothing."""
    _must_name_data(request)
    _must_not_be_run(request, is_predicted=True)
    path = Path(request.data)
    is_read = path.is_file() and (is_table(path) or path.suffix.lower() in (".npz", ".npy"))
    if request.data not in DATASETS and (is_read or (path.is_dir() and _published(path) is None)):
        return _read_path(path, request, needs)
    from proselflc.data.dataset import contents_of

    return contents_of(open_data(replace(request, features=None)), needs.names)


def _read_path(
    path: Path,
    request: Request,
    needs: ModelNeeds | None = None,
    kinds: tuple[ColumnKind, ...] | None = None,
) -> Contents:
    """Return the contents of an image folder, a table, or an .npz or .npy file."""
    if path.is_dir():
        from proselflc.data.sources import image_folder

        return image_folder.read(
            path,
            on_bad_image=request.on_bad_image,
            needs=needs,
            unlabelled=request.unlabelled or None,
        )
    if is_table(path):
        from proselflc.data.tables import table

        return table.read(path, request, needs, kinds)
    from proselflc.data.sources import npz

    return npz.read(path, needs)


def _must_name_data(request: Request) -> None:
    if not request.data:  # which as a path would be the working directory
        raise invalid_option("data", "is empty", fix="give a name, a folder or a file")


def _must_not_be_run(request: Request, *, is_predicted: bool = False) -> None:
    """Refuse a run in the place of data, with what was probably meant."""
    path = Path(request.data)
    if request.data in DATASETS or not path.is_dir():
        return
    from proselflc.files.manifest import run_config

    try:
        config = run_config(path)
    except InputError:  # a file of that name that is not a run's
        return
    if config is None:
        return
    source = config.get("data")
    known = isinstance(source, str) and source not in ("", FROM_PYTHON)
    own, labels = option("data", source if known else None), option("labels", str(path))
    if is_predicted or request.labels is not None:
        fix = f"pass data, such as that of the run: {own}" if known else f"pass data with {own}"
    else:
        data = f"{own} and" if known else f"its data with {own}, and"
        fix = f"to train on its corrected labels, pass {data} {labels}"
    raise InputError(f"{path} is a run, not data", field="data", fix=fix)


def _must_be_no_spreadsheet(request: Request) -> None:
    for path in (Path(request.data), request.labels):
        if path is not None and path.suffix.lower() in SPREADSHEETS and not path.is_dir():
            raise InputError(
                f"{path} is a spreadsheet in a format that is not read",
                fix="save it as .xlsx, or the sheet as CSV UTF-8, and give that file",
            )


def _check_columns(request: Request) -> None:
    """Refuse options that name a column where the data is not a table."""
    path = Path(request.data)
    if request.unlabelled is not None and (request.data in DATASETS or path.suffix == ".npz"):
        raise InputError(
            f"{option('unlabelled', request.unlabelled)} is about tables and image folders, but "
            f"{request.data} is neither",
            field="unlabelled",
            fix="leave it out; in an .npz file, -1 in y means no label",
        )
    tables = [Path(request.data), *([request.labels] if request.labels else [])]
    if any(is_table(path) for path in tables):
        return
    named = ("label", "text", "path", "id", "ignore")
    for field in (*(f"{name}_column" for name in named), *KINDS_ASKED, "sheet"):
        column = getattr(request, field)
        if column:
            column = column if isinstance(column, str) else column[0]
            raise InputError(
                f"{option(field, column)} names a column, but {request.data or request.features} "
                "is not a table",
                field=field,
                fix="leave it out, or give a .csv, .tsv or .parquet file",
            )


def _meant(path: Path) -> str:
    """Return a hint on what a missing path probably meant: a neighbour, or a named data set."""
    try:
        beside = os.listdir(path.parent)
    except OSError:  # missing too, or not readable
        beside = []
    close = get_close_matches(path.name, beside, n=1, cutoff=0.75)
    if close:
        return f'; did you mean "{path.with_name(close[0])}"?'
    if is_table(path):
        return f", seen from {Path.cwd()}: check the path"
    return ", and as a name it is an " + unknown("data set", str(path), DATASETS)


def _open_path(request: Request, kinds: tuple[ColumnKind, ...] | None = None) -> Dataset:
    path = Path(request.data)
    if path.is_dir():
        published = _published(path)
        if published is not None:
            return published(replace(request, data_root=path))
    elif not is_regular(path):
        raise InputError(f"there is no file or folder {path}" + _meant(path), field="data")
    elif not is_table(path) and path.suffix.lower() != ".npz":
        if path.name.startswith("cifar-10-"):
            return _open_cifar10(replace(request, data_root=path))
        if path.name.startswith("cifar-100-"):
            return _open_cifar100(replace(request, data_root=path))
        from proselflc.data.image import SUFFIXES  # imports numpy

        if path.suffix.lower() in SUFFIXES:
            raise InputError(
                f"{path} is one image, where a folder of images was expected",
                field="data",
                fix="put it into a folder and give the folder",
            )
        raise InputError(
            f"{path} is not a table (.csv, .tsv, .parquet, .feather, .jsonl or .xlsx), an .npz "
            "file, a folder of images, a CIFAR archive or the name of a data set",
            field="data",
            fix=f"see {command('datasets')} for the names",
        )
    return _read_path(path, request, kinds=kinds).dataset()


def _published(path: Path) -> Callable[[Request], Dataset] | None:
    """Return what opens a folder in the published layout of a named set; None for other folders."""
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
    from proselflc.data.sources import small_images

    return small_images.load_digits()


def _open_idx(request: Request) -> Dataset:
    from proselflc.data.sources import small_images

    path = small_images.find(request.data, root(request), fetch=True)
    return small_images.load(path, request.data)


def _open_idx_folder(request: Request) -> Dataset:
    from proselflc.data.sources import small_images

    path = root(request)
    return small_images.load(path, "fashion-mnist" if "fashion" in path.name.lower() else "mnist")


def _open_cifar(name: Literal["cifar10", "cifar100"], request: Request) -> Dataset:
    from proselflc.data.sources import cifar

    path = cifar.find(name, root(request), fetch=True)
    return cifar.load(path, name, cache=request.cache)


_open_cifar10 = partial(_open_cifar, "cifar10")
_open_cifar100 = partial(_open_cifar, "cifar100")


def _shrink_cifar100(size: Literal["small", "tiny"], request: Request) -> Dataset:
    from proselflc.data.sources import cifar

    return cifar.shrink(_open_cifar100(request), size)


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
    """Return where named sets live: the folder of the request, else one in the user's cache."""
    if request.data_root is not None:
        return request.data_root

    from proselflc.data.sources.cifar import default_cache

    return default_cache()


def _folder_of(request: Request, name: str) -> Path:
    """Return the folder of a set that cannot be downloaded: below the root, or the root itself."""
    if request.data_root is None:
        raise InputError(
            f"{name} cannot be downloaded for you",
            field="data_root",
            fix=f"get it from its official page and name the folder it is in, or the folder of "
            f"{name}/, with {option('data_root')}",
        )
    below = request.data_root / name
    return below if below.is_dir() else request.data_root


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
        "20 classes of CIFAR-100 at 16×16, for a CPU",
        20,
        10000,
        2000,
        "–",
        partial(_shrink_cifar100, "small"),
    ),
    "cifar100-tiny": Named(
        "10 classes of CIFAR-100 at 16×16, for a CPU",
        10,
        5000,
        1000,
        "–",
        partial(_shrink_cifar100, "tiny"),
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
