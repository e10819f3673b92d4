"""The kinds of input: each describes itself, takes and joins rows, and previews an example.

A new kind is a class here, a preprocessing that turns it into tensors, and a source that reads it.
Inputs that were given in Python are kept in a run, so that its pages can show them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from proselflc.errors import InputError
from proselflc.files.regular import is_regular, whole_file

if TYPE_CHECKING:
    from PIL.Image import Image
    from typing_extensions import Self

Ints: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float32]
Bytes: TypeAlias = npt.NDArray[np.uint8]
Bools: TypeAlias = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Preview:
    """An example to show to a person; empty if its file is missing or damaged.

    Attributes:
        picture: a decoded image, or None.
        text: a text, or None.
        numbers: [D] the values of a row of numbers, or None.
    """

    picture: Image | None = None
    text: str | None = None
    numbers: Floats | None = None


class Inputs(ABC):
    """n inputs of one kind.

    Attributes:
        kind: plural noun for messages.
        medium: how a page shows them.
        in_memory: whether they are held in memory rather than read from files.
        columns: names of the columns of a table, or None.
    """

    kind: ClassVar[str]
    medium: ClassVar[Literal["image", "text", "table"]]
    in_memory: ClassVar[bool] = True
    columns: tuple[str, ...] | None = None

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def take(self, index: Ints) -> Self:
        """Return the inputs at these positions, in this order."""

    @abstractmethod
    def concat(self, others: Sequence[Self]) -> Self:
        """Return these inputs followed by others that `describe` themselves alike."""

    @abstractmethod
    def preview(self, row: int, side: int) -> Preview:
        """Return one input to look at; a picture need not be larger than twice `side` pixels."""

    def describe(self) -> str:
        """Return the kind and the shape that all inputs of a data set share."""
        return self.kind

    def check(self, what: str, ids: Sequence[str]) -> None:  # noqa: B027 - most kinds accept all
        """Refuse inputs that cannot be learned from; `what` and the n ids name them."""

    @property
    def numbers(self) -> npt.NDArray[Any] | None:
        """Return the array [n, …] that holds the inputs; None where they are not numbers."""
        return None

    @property
    def strings(self) -> tuple[Literal["text", "path"], tuple[str, ...]] | None:
        """Return the n strings that hold the inputs and what they are; None for numbers."""
        return None


@dataclass(frozen=True)
class Images(Inputs):
    """Decoded images of one size, kept as bytes."""

    pixels: Bytes  # [n, H, W, channels], channels 1 or 3
    kind = "images"
    medium = "image"

    def __len__(self) -> int:
        return len(self.pixels)

    def take(self, index: Ints) -> Images:
        return Images(self.pixels[index])

    def concat(self, others: Sequence[Images]) -> Images:
        return Images(np.concatenate([self.pixels, *(other.pixels for other in others)]))

    def preview(self, row: int, side: int) -> Preview:
        from PIL import Image

        pixels = self.pixels[row]
        return Preview(Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels))

    def describe(self) -> str:
        height, width, channels = self.pixels.shape[1:]
        return describe_images(height, width, channels)

    @property
    def numbers(self) -> Bytes:
        return self.pixels


@dataclass(frozen=True)
class ImageFiles(Inputs):
    """Images that stay on disk until a batch needs them."""

    paths: tuple[Path, ...]
    kind = "image files"
    medium = "image"
    in_memory = False

    def __len__(self) -> int:
        return len(self.paths)

    def take(self, index: Ints) -> ImageFiles:
        return ImageFiles(tuple(self.paths[i] for i in index))

    def concat(self, others: Sequence[ImageFiles]) -> ImageFiles:
        return ImageFiles((*self.paths, *(path for other in others for path in other.paths)))

    def preview(self, row: int, side: int) -> Preview:
        from proselflc.data import image

        try:
            with image.opened(self.paths[row]) as opened:
                opened.draft("RGB", (2 * side, 2 * side))  # a JPEG is not decoded in full
                return Preview(image.rgb(opened))
        except Exception:  # decoders raise nearly anything on hostile bytes
            return Preview()

    @property
    def strings(self) -> tuple[Literal["path"], tuple[str, ...]]:
        return "path", tuple(str(path.absolute()) for path in self.paths)


@dataclass(frozen=True)
class Texts(Inputs):
    """One text per example."""

    texts: tuple[str, ...]
    kind = "texts"
    medium = "text"

    def __len__(self) -> int:
        return len(self.texts)

    def take(self, index: Ints) -> Texts:
        return Texts(tuple(self.texts[i] for i in index))

    def concat(self, others: Sequence[Texts]) -> Texts:
        return Texts((*self.texts, *(text for other in others for text in other.texts)))

    def preview(self, row: int, side: int) -> Preview:
        return Preview(text=self.texts[row])

    @property
    def strings(self) -> tuple[Literal["text"], tuple[str, ...]]:
        return "text", self.texts


@dataclass(frozen=True)
class Features(Inputs):
    """Finite numbers: a table's columns, or precomputed embeddings."""

    values: Floats  # [n, D]
    columns: tuple[str, ...] | None = None  # D names, where the source has them
    kind = "features"
    medium = "table"

    def __len__(self) -> int:
        return len(self.values)

    def take(self, index: Ints) -> Features:
        return Features(self.values[index], self.columns)

    def concat(self, others: Sequence[Features]) -> Features:
        values = np.concatenate([self.values, *(other.values for other in others)])
        return Features(values, self.columns)

    def preview(self, row: int, side: int) -> Preview:
        return Preview(numbers=self.values[row])

    def describe(self) -> str:
        return f"{self.values.shape[1]} features"

    def check(self, what: str, ids: Sequence[str]) -> None:
        finite = np.isfinite(self.values).all(axis=1)
        if not finite.all():
            row = int(np.flatnonzero(~finite)[0])
            raise InputError(
                f"{what} has NaN or infinite features in {int((~finite).sum())} rows, the first "
                f'with id "{ids[row]}"',
                fix="fill them in or drop those rows",
            )

    @property
    def numbers(self) -> Floats:
        return self.values


def describe_images(height: int, width: int, channels: int) -> str:
    """Return the words for images of one size.

    >>> describe_images(28, 28, 1)
    'images of 28×28 with 1 channel'
    """
    return f"images of {height}×{width} with {channels} channel{'' if channels == 1 else 's'}"


def concat(inputs: Sequence[Inputs], what: str) -> Inputs:
    """Return one or more inputs of the same kind and shape, one after the other."""
    kinds = list(dict.fromkeys(each.describe() for each in inputs))
    if len(kinds) > 1:
        raise InputError(
            f"the {what} hold {' and '.join(kinds)}, which cannot be joined",
            fix="choose one of them",
        )
    return inputs[0] if len(inputs) == 1 else inputs[0].concat(inputs[1:])


def write_kept(inputs: Inputs, table_file: Path, arrays_file: Path) -> None:
    """Keep n inputs: texts, paths and columns in a Parquet file, arrays in an .npz file."""
    from proselflc.data.tables import mixed

    if isinstance(inputs, mixed.MixedColumns):
        mixed.write(inputs, table_file)
        return
    if inputs.strings is not None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        name, cells = inputs.strings
        with whole_file(table_file) as file:
            table = pa.table({name: pa.array(cells, pa.string())})
            pq.write_table(table, file, compression="zstd")
        return
    assert inputs.numbers is not None
    arrays = {"x": inputs.numbers}
    if inputs.columns is not None:
        arrays["columns"] = np.array(inputs.columns, dtype=np.str_)
    with whole_file(arrays_file) as file:
        np.savez(file, allow_pickle=False, **arrays)


def read_kept(table: Path, arrays: Path, rows: int | None = None) -> Inputs | None:
    """Return the inputs that were kept in either file; None if there are none."""
    from proselflc.data.labels import strings_of
    from proselflc.data.sources import npz
    from proselflc.data.tables import mixed
    from proselflc.data.tables.parquet import open_parquet

    if is_regular(table):
        file = open_parquet(table)
        if rows is not None and len(file) != rows:
            raise InputError(
                f"{table} keeps {len(file):,} inputs of {rows:,} examples: they are of another run"
            )
        kept = mixed.read(file.read(file.columns), table)
        if kept is not None:
            return kept
        name = next((name for name in ("text", "path") if name in file.columns), None)
        column = None if name is None else file.read([name])[name]
        if column is None or str(column.type) != "string" or column.null_count:
            raise InputError(f"{table} holds neither texts nor paths: it is damaged")
        cells = column.to_pylist()
        return Texts(tuple(cells)) if name == "text" else ImageFiles(tuple(map(Path, cells)))
    if not is_regular(arrays):
        return None
    found = npz.arrays(arrays, ("x", "columns"))
    x = found.get("x")
    if x is not None and x.dtype == np.uint8 and x.ndim == 4:
        return Images(npz.images(x, str(arrays)))
    if x is None or x.dtype != np.float32 or x.ndim != 2:
        raise InputError(f"{arrays} holds neither images nor numbers: it is damaged")
    columns = None
    if "columns" in found:
        columns = strings_of(arrays, "columns", found["columns"])
        if len(columns) != x.shape[1]:
            raise InputError(f"{arrays} has {len(columns)} names for {x.shape[1]} columns")
    return Features(x, columns)
