"""The footer of a Parquet file is read as Arrow reads it, and damage in it is one sentence."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from proselflc.data.tables import table
from proselflc.data.tables.parquet import claimed_values, codec
from proselflc.errors import InputError


def written(path: Path, compression: str = "zstd", statistics: bool = True) -> Path:
    columns = {
        "text": [f"t{i}" for i in range(70)],
        "lists": [list(range(i % 4)) for i in range(70)],
        "number": np.arange(70) / 7,
        "label": ["a", "b"] * 35,
    }
    pq.write_table(
        pa.table(columns),
        path,
        row_group_size=30,
        compression=compression,
        write_statistics=statistics,
    )
    return path


@pytest.mark.parametrize("statistics", [True, False])
def test_values_are_those_that_arrow_counts(tmp_path: Path, statistics: bool) -> None:
    path = written(tmp_path / "a.parquet", statistics=statistics)
    about = pq.read_metadata(path)
    groups = [about.row_group(k) for k in range(about.num_row_groups)]
    assert len(groups) == 3
    assert claimed_values(path) == [
        [max(one.column(k).num_values, one.num_rows) for k in range(about.num_columns)]
        for one in groups
    ]


@pytest.mark.parametrize("compression", ["none", "snappy", "gzip", "brotli", "lz4", "zstd"])
def test_the_codec_is_the_one_that_it_was_written_with(tmp_path: Path, compression: str) -> None:
    assert codec(written(tmp_path / "a.parquet", compression)) == compression.upper()


def refusal(read: Callable[[Path], object], path: Path) -> str:
    """Return why a file is refused; nothing where it is read."""
    try:
        read(path)
    except InputError as error:
        return str(error)
    return ""


def test_a_histogram_that_aborts_arrow_is_read_or_refused(tmp_path: Path) -> None:
    """Arrow ends the process for sizes of columns whose histogram has another length."""
    valid = written(tmp_path / "a.parquet").read_bytes()
    draw = random.Random(5)
    path = tmp_path / "damaged.parquet"
    messages = []
    for _ in range(400):
        data = bytearray(valid)
        for _ in range(draw.randint(1, 4)):
            data[draw.randrange(len(data) * 2 // 3, len(data))] = draw.randrange(256)
        path.write_bytes(data)
        messages += [refusal(read, path) for read in (claimed_values, codec, table.read)]
    assert sum(map(bool, messages)) > 100
    assert not any("\n" in one for one in messages)


def test_damaged_files_are_refused_by_the_reader_of_tables(tmp_path: Path) -> None:
    path = tmp_path / "damaged.parquet"
    valid = bytearray(written(tmp_path / "a.parquet").read_bytes())
    for content in (b"", b"PAR1", bytes(valid[:-1]), b"PAR1" + b"\xff" * 4 + b"PAR1"):
        path.write_bytes(content)
        with pytest.raises(InputError):
            claimed_values(path)
        with pytest.raises(InputError):
            table.read(path).dataset()
