"""Examples that were given in Python and are kept in a run, so that its pages can show them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from proselflc.data.dataset import Features, ImageFiles, Images, Inputs, Texts, check_unicode
from proselflc.data.labels.labels import strings_of
from proselflc.data.sources import npz
from proselflc.data.tables.table_file import open_parquet
from proselflc.errors import InputError
from proselflc.files.regular import is_regular
from proselflc.files.whole import whole_file

_TEXT, _PATH = "text", "path"


def check(inputs: Inputs) -> None:
    """Refuse inputs that cannot be kept.

    Raises:
        InputError: a text or a path is no Unicode.
    """
    if isinstance(inputs, Texts | ImageFiles):
        name, cells = _cells(inputs)
        check_unicode("inputs", name, cells)


def write(inputs: Inputs, table_file: Path, arrays_file: Path) -> None:
    """Keep n inputs: texts and paths in a Parquet file, images and numbers in an .npz file."""
    if isinstance(inputs, Texts | ImageFiles):
        import pyarrow as pa
        import pyarrow.parquet as pq

        name, cells = _cells(inputs)
        with whole_file(table_file) as file:
            table = pa.table({name: pa.array(cells, pa.string())})
            pq.write_table(table, file, compression="zstd")
        return
    arrays: dict[str, npt.NDArray[Any]] = {
        "x": inputs.pixels if isinstance(inputs, Images) else inputs.values
    }
    if isinstance(inputs, Features) and inputs.columns is not None:
        arrays["columns"] = np.array(inputs.columns, dtype=np.str_)
    with whole_file(arrays_file) as file:
        np.savez(file, allow_pickle=False, **arrays)


def read(table: Path, arrays: Path, rows: int | None = None) -> Inputs | None:
    """What `write` kept in either file, row for row; None where nothing was.

    Args:
        table, arrays: the two files.
        rows: how many there should be, which is looked at before they are read.

    Raises:
        InputError: it is damaged, or holds another number of rows.
    """
    if is_regular(table):
        file = open_parquet(table)
        if rows is not None and len(file) != rows:
            raise InputError(
                f"{table} keeps {len(file):,} inputs of {rows:,} examples: they are of another run"
            )
        name = next((one for one in (_TEXT, _PATH) if one in file.columns), None)
        column = None if name is None else file.read([name])[name]
        if column is None or str(column.type) != "string" or column.null_count:
            raise InputError(f"{table} holds neither texts nor paths: it is damaged")
        cells = column.to_pylist()
        return Texts(tuple(cells)) if name == _TEXT else ImageFiles(tuple(map(Path, cells)))
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


def _cells(inputs: Texts | ImageFiles) -> tuple[str, tuple[str, ...]]:
    """The column of a table that holds them, and its name."""
    if isinstance(inputs, Texts):
        return _TEXT, inputs.texts
    return _PATH, tuple(str(path.absolute()) for path in inputs.paths)
