"""Data corrupted by a named noise generator, written to a file that can be read back as data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from proselflc.data import noise
from proselflc.data.class_matrix import check_room_for_transition, read_transition
from proselflc.data.dataset import Dataset, checked, in_order
from proselflc.data.inputs import Inputs, Ints
from proselflc.data.label_files import read_label_file
from proselflc.data.labels import from_dataset
from proselflc.data.noise import Noise, NoiseSpec
from proselflc.data.noise_generators import CLASSES_MEANT, Matrix, Pairs
from proselflc.data.opening import open_data
from proselflc.data.request import Request
from proselflc.data.tables.cells import format_row, neutralize
from proselflc.data.tables.mixed import MixedColumns
from proselflc.errors import InputError, invalid_option, printable
from proselflc.files.regular import whole_file
from proselflc.wording import option

LABEL, CLEAN, ID, SPLIT = "label", "clean_label", "id", "split"


@dataclass(frozen=True)
class Corruption:
    """A kind of noise and the file to write."""

    kind: str  # name of a generator, or KIND:RATE
    out: Path  # see `write`
    rate: str | None = None  # unless `kind` has it
    seed: int = 0
    transition: Path | None = None  # a matrix, for `transition`
    human: Path | None = None  # labels, for `human`
    pairs: str | None = None  # class names as in "cat:dog,truck:car", for `confusable_pairs`
    overwrite: bool = False


@dataclass(frozen=True)
class CorruptionResult:
    """The result of a corruption."""

    data: str
    out: str
    kind: str  # full name of the generator
    noise: str  # full name and requested rate, as KIND:RATE
    seed: int
    examples: int
    classes: int
    flips: int
    realised_rate: float
    fingerprint: str
    skipped: int  # examples that could not be read
    notes: tuple[str, ...]  # on what the file cannot hold, and on unexpected noise

    def __str__(self) -> str:
        return (
            f"{self.noise} with seed {self.seed}: {self.flips:,} of {self.examples:,} labels of "
            f"{printable(self.data)} flipped, realised rate {self.realised_rate:.6g}\n"
            f"fingerprint {self.fingerprint}\n"
            f"written to {printable(self.out)}\n"
        )


def corrupt_data(request: Request, what: Corruption) -> CorruptionResult:
    """Corrupt the training labels of the requested data and write the file.

    Noise starts from the true labels if the data has them.
    """
    if what.rate is None and noise.takes_rate(what.kind):
        raise InputError(
            f'noise "{what.kind}" needs a rate between 0 and 1',
            field="rate",
            fix=f"add {option('rate', 0.4)}, or write {option('kind', f'{what.kind}:0.4')}",
        )
    if what.rate is not None and ":" in what.kind:
        raise InputError(
            f"the rate is given twice, in {option('kind', what.kind)} and "
            f"{option('rate', what.rate)}",
            field="rate",
            fix="give it once",
        )
    spec = noise.parse(what.kind if what.rate is None else f"{what.kind}:{what.rate}")
    _check_needs(what, spec.kind)
    noise.stream(what.seed)  # refuse a bad seed before anything is read
    _check_out(what)
    dataset = open_data(request)
    if dataset.unlabelled is not None:
        raise InputError(
            f"{len(dataset.unlabelled.part):,} rows of {dataset.name} have no label, which noise "
            "could change",
            field="data",
            fix="fill them in or drop them",
        )
    if what.transition is not None:
        check_room_for_transition(dataset.num_classes)
    result = corrupt_labels(
        dataset,
        spec,
        seed=what.seed,
        transition=None if what.transition is None else read_transition(what.transition),
        human=None if what.human is None else read_label_file(dataset, what.human, request)[0],
        pairs=None if what.pairs is None else noise.parse_pairs(what.pairs, dataset.names),
    )
    notes = write(dataset, result, what.out) + unexpected_effects(dataset, result)
    return CorruptionResult(
        data=dataset.name,
        out=str(what.out),
        kind=result.kind,
        noise=result.spec,
        seed=what.seed,
        examples=len(result.given),
        classes=dataset.num_classes,
        flips=int(result.flipped.sum()),
        realised_rate=result.rate,
        fingerprint=result.fingerprint,
        skipped=len(dataset.skipped),
        notes=tuple(notes),
    )


def corrupt_labels(
    dataset: Dataset,
    spec: NoiseSpec,
    *,
    seed: int,
    transition: Matrix | None = None,
    human: Ints | None = None,
    pairs: Pairs | None = None,
) -> Noise:
    """Return noise on the training labels of a data set, from the true labels if it has them."""
    result = noise.corrupt(
        _true_labels(dataset),
        dataset.num_classes,
        kind=spec.kind,
        rate=spec.rate,
        generator=noise.stream(seed),
        coarse=dataset.coarse,
        features=_numbers(dataset.train.inputs),
        transition=transition,
        human=human,
        pairs=pairs,
    )
    left = np.unique(result.given)
    if len(left) < 2:
        raise InputError(
            f'after {result.spec} all {len(result.given)} labels are "{dataset.names[left[0]]}": '
            "there are too few examples for this noise",
            field="seed",
            fix=f"try another {option('seed')} or a lower rate",
        )
    return result


def _numbers(inputs: Inputs) -> npt.NDArray[Any] | None:
    """Return [n, …] the inputs as numbers, for noise that depends on them."""
    if not isinstance(inputs, MixedColumns):
        return inputs.numbers
    from proselflc.data.tables.encoding import TableEncoding

    return TableEncoding.fit(inputs).dense(inputs)


def unexpected_effects(dataset: Dataset, result: Noise) -> list[str]:
    """Return notes about effects of the noise that users may not expect."""
    notes = []
    counts = np.bincount(_true_labels(dataset), minlength=dataset.num_classes)
    absent = np.flatnonzero(counts == 0)
    missing = [dataset.names[c] for c in absent]
    if missing:
        notes.append(
            f"no example has the true class {', '.join(missing[:5])}"
            f"{' or another' if len(missing) > 5 else ''}, but labels may be flipped to it"
        )
    meant = CLASSES_MEANT.get(result.kind)
    numbers = tuple(str(c) for c in range(dataset.num_classes))
    if meant is not None and dataset.names not in (meant, numbers):
        notes.append(
            f"{result.kind} is defined for the classes {', '.join(meant)}, but the data has "
            f"{', '.join(dataset.names)}"
        )
    if not result.flipped.any():
        notes.append("no label was flipped")
    if dataset.clean is not None and (wrong := int((dataset.train.labels != dataset.clean).sum())):
        notes.append(
            f"noise starts from the true labels, so the {wrong:,} wrong labels of {dataset.name} "
            "are not kept"
        )
    return notes


def write(dataset: Dataset, result: Noise, out: Path) -> list[str]:
    """Write the data set with its corrupted labels; return notes on what the file cannot hold.

    A name ending in `labels.npz` gets only the labels. An `.npz` gets images or features with
    labels, true labels, ids, names and the test part. A `.csv` or `.tsv` gets a row per example
    with id, image path, text or features, label, true label and split.
    """
    corrupted = checked(dataset.with_labels(result.given, _true_labels(dataset)))
    if out.name.endswith("labels.npz"):
        from_dataset(dataset, result).save(out)
        return []
    if out.suffix == ".npz":
        return _write_npz(corrupted, out)
    return _write_table(corrupted, out)


def _true_labels(dataset: Dataset) -> Ints:
    return dataset.train.labels if dataset.clean is None else dataset.clean


def _check_needs(what: Corruption, kind: str) -> None:
    """Refuse missing options and options of other kinds, before any data is read."""
    owners = {"transition": "transition", "human": "human", "pairs": "confusable_pairs"}
    for field, owner in owners.items():
        if getattr(what, field) is not None and owner != kind:
            raise invalid_option(
                field,
                f"needs {option('kind', owner)}, but the kind is {kind}",
                fix="leave it out or change the kind",
            )
    contents = {"transition": "a matrix", "human": "labels given by people"}
    if kind in contents and getattr(what, kind) is None:
        raise InputError(
            f"noise {kind} needs {contents[kind]}", field=kind, fix=f"add {option(kind, 'FILE')}"
        )


def _check_out(what: Corruption) -> None:
    if what.out.suffix not in (".npz", ".csv", ".tsv"):
        raise invalid_option(
            "out", f'must end in .npz, .csv, .tsv or labels.npz, got "{what.out.name}"'
        )
    if not what.out.parent.is_dir():
        raise InputError(f"there is no folder {what.out.parent}", field="out", fix="create it")
    if what.out.exists() and not what.overwrite:
        raise InputError(
            f"{what.out} exists",
            field="overwrite",
            fix=f"choose another name or pass {option('overwrite', True)}",
        )


def _write_npz(dataset: Dataset, out: Path) -> list[str]:
    assert dataset.clean is not None
    inputs = dataset.train.inputs
    if inputs.numbers is None:
        raise InputError(
            f"an .npz file holds arrays, but the data are {inputs.kind}",
            field="out",
            fix=f"write {out.stem}.csv, or {_labels_alone(out)}",
        )
    arrays: dict[str, npt.NDArray[Any]] = {
        "x": inputs.numbers,
        "y": dataset.train.labels,
        "clean": dataset.clean,
        "ids": np.array(dataset.train.ids, dtype=np.str_),
        "names": np.array(dataset.names, dtype=np.str_),
    }
    notes = []
    if dataset.test is not None:
        assert dataset.test.inputs.numbers is not None  # all parts are of one kind
        arrays |= {"x_test": dataset.test.inputs.numbers, "y_test": dataset.test.labels}
    if dataset.validation is not None:
        notes.append("an .npz file cannot hold the validation part, which is left out")
    if dataset.coarse is not None:
        notes.append("an .npz file cannot hold coarse classes, which are left out")
    with whole_file(out) as file:
        np.savez(file, allow_pickle=False, **arrays)
    return notes


def _write_table(dataset: Dataset, out: Path) -> list[str]:
    assert dataset.clean is not None
    columns = _columns(dataset.train.inputs, out)
    taken = {LABEL, CLEAN, ID, SPLIT} & {name.strip().lower() for name in columns}
    if taken:
        raise InputError(
            f'the data has a column "{min(taken)}", which the table needs for another purpose',
            field="out",
            fix=f"write {_labels_alone(out)}",
        )
    delimiter = "\t" if out.suffix == ".tsv" else ","
    lines = [format_row((ID, *columns, LABEL, CLEAN, SPLIT), delimiter)]
    changed = 0
    for split, part in dataset.parts.items():
        clean = dataset.clean if split == "train" else part.labels
        for name, cells, label, true in zip(
            part.ids, _cells(part.inputs, out), part.labels, clean, strict=True
        ):
            row = (name, *cells, dataset.names[label], dataset.names[true], split)
            changed += sum(neutralize(cell) != cell for cell in row)
            lines.append(format_row(row, delimiter))
    try:
        content = "".join(lines).encode("utf-8")
    except UnicodeEncodeError as error:
        raise InputError(
            f"a table is UTF-8 text, which cannot hold {error.object[error.start]!r} of a path or "
            "text",
            field="out",
            fix=f"rename it, or write {_labels_alone(out)}",
        ) from None
    with whole_file(out) as file:
        file.write(content)
    notes = []
    if changed:
        cells_are = "1 cell begins" if changed == 1 else f"{changed:,} cells begin"
        notes.append(
            f"{cells_are} like a spreadsheet formula and {'gets' if changed == 1 else 'get'} an "
            f"apostrophe in front; {out.stem}-labels.npz would keep names as they are"
        )
    used = {*dataset.train.labels.tolist(), *dataset.clean.tolist()}
    if in_order(dataset.names[c] for c in used) != dataset.names:
        notes.append(
            "a table lists classes by name, so their ids and the fingerprint will differ when it "
            "is read back; labels.npz keeps them"
        )
    return notes


def _labels_alone(out: Path) -> str:
    return f"{out.stem}-labels.npz for the labels alone"


def _columns(inputs: Inputs, out: Path) -> tuple[str, ...]:
    if inputs.strings is not None:
        return (inputs.strings[0],)
    if isinstance(inputs, MixedColumns):
        return tuple(kind.name for kind in inputs.kinds)
    if inputs.medium != "table" or inputs.numbers is None:
        raise InputError(
            f"a table cannot hold {inputs.kind}",
            field="out",
            fix=f"write {out.stem}.npz, or {_labels_alone(out)}",
        )
    return inputs.columns or tuple(f"x{k}" for k in range(inputs.numbers.shape[1]))


def _cells(inputs: Inputs, out: Path) -> Iterator[tuple[str, ...]]:
    if isinstance(inputs, MixedColumns):
        for k in range(len(inputs)):
            yield tuple(column.cell(k) for column in inputs.cells)
        return
    if inputs.strings is None:
        assert inputs.numbers is not None
        for row in inputs.numbers:
            yield tuple(str(value) for value in row)  # float32's shortest text is exact
        return
    kind, cells = inputs.strings
    for cell in cells:
        yield (cell if kind == "text" else _path(Path(cell).resolve(), out),)


def _path(path: Path, out: Path) -> str:
    """Return the path of an image as a cell, relative to the folder of the table if below it."""
    if "\n" in str(path) or "\r" in str(path):
        raise InputError(
            f'a table cannot hold the path "{path}", which has a line break',
            field="out",
            fix=f"rename it, or write {_labels_alone(out)}",
        )
    folder = out.parent.resolve()
    cell = path.relative_to(folder).as_posix() if path.is_relative_to(folder) else str(path)
    # A path that begins like a formula is the same path with ./ in front.
    return cell if neutralize(cell) == cell else f"./{cell}"
