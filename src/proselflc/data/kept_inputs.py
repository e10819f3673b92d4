"""Examples that were given in Python and are kept in a run, so that its pages can show them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from proselflc.data.dataset import check_unicode
from proselflc.data.inputs import Features, ImageFiles, Images, Inputs, Texts
from proselflc.data.labels.labels import strings_of
from proselflc.data.sources import npz
from proselflc.data.tables.parquet import open_parquet
from proselflc.errors import InputError
from proselflc.files.regular import is_regular, whole_file


def check(inputs: Inputs) -> None:
    """Refuse inputs that cannot be kept: texts and paths that are not valid Unicode."""
    if inputs.strings is not None:
        check_unicode("inputs", *inputs.strings)


def write(inputs: Inputs, table_file: Path, arrays_file: Path) -> None:
    """Keep n inputs: texts and paths in a Parquet file, images and numbers in an .npz file."""
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


def read(table: Path, arrays: Path, rows: int | None = None) -> Inputs | None:
    """Return the inputs that `write` kept in either file, row for row; None if nothing was kept."""
    if is_regular(table):
        file = open_parquet(table)
        if rows is not None and len(file) != rows:
            raise InputError(
                f"{table} keeps {len(file):,} inputs of {rows:,} examples: they are of another run"
            )
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
