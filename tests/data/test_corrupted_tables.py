"""`proselflc noise` on tables with columns of several kinds."""

from __future__ import annotations

from pathlib import Path

import pytest

from proselflc.data.corruption import Corruption, corrupt_data
from proselflc.data.opening import open_data
from proselflc.data.request import Request
from proselflc.data.tables.mixed import MixedColumns


@pytest.mark.parametrize("kind", ["symmetric:0.3", "instance_dependent:0.3"])
def test_a_table_of_several_kinds_is_written_and_read_back(tmp_path: Path, kind: str) -> None:
    rows = [
        f"{'' if k % 9 == 4 else 1.5 * k},{('red', 'blue', 'NA')[k % 3]},2021-03-{k % 28 + 1:02d},"
        f"{'ab'[k % 2]}"
        for k in range(60)
    ]
    data = tmp_path / "a.csv"
    data.write_text("\n".join(["size,colour,since,label", *rows]) + "\n")
    out = tmp_path / "noisy.csv"
    result = corrupt_data(Request(str(data)), Corruption(kind, out, seed=1))
    assert 0 < result.flips < 60
    before, after = open_data(Request(str(data))), open_data(Request(str(out)))
    assert after.clean is not None
    assert after.clean.tolist() == before.train.labels.tolist()
    assert int((after.train.labels != after.clean).sum()) == result.flips
    assert isinstance(before.train.inputs, MixedColumns)
    assert isinstance(after.train.inputs, MixedColumns)
    for one, other in zip(before.train.inputs.cells, after.train.inputs.cells, strict=True):
        assert (one.kind.name, one.kind.kind) == (other.kind.name, other.kind.kind)
        assert [one.cell(k) for k in range(60)] == [other.cell(k) for k in range(60)]
    labels = tmp_path / "labels.npz"
    corrupt_data(Request(str(data)), Corruption(kind, labels, seed=1))
    again = open_data(Request(str(data), labels=labels))
    assert again.train.labels.tolist() == after.train.labels.tolist()
