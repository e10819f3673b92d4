"""A table from standard input, `-`, wherever a command takes data."""

import io
import json
from pathlib import Path

import pytest

from proselflc.cli import app as cli
from proselflc.cli.options import with_data

TABLE = b"v,label\n" + b"".join(b"%d.5,%c\n" % (k, b"ab"[k % 2]) for k in range(30))


@pytest.fixture
def stdin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, and a table on standard input."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(TABLE)))
    return tmp_path


@pytest.mark.parametrize(
    "words",
    [
        ["columns", "-"],
        ["columns", "--data", "-"],
        ["columns", "--label", "label", "--data=-"],
        ["noise", "-"],
        ["predict", "runs/a", "-"],
        ["predict", "runs/a", "--out", "p.csv", "--data", "-"],
        ["train", "-"],
        ["search", "--data", "-"],
    ],
)
def test_a_table_from_standard_input_is_a_file_as_long_as_it_is_needed(
    words: list[str], stdin: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The run of a training names it; of other commands nothing stays."""
    with with_data(words) as found:
        path = stdin / found[found.index("--data") + 1]
        assert path.read_bytes() == TABLE
    assert "-" not in found
    rest = [word for word in words if word not in ("-", "--data", "--data=-")]
    assert [
        word for word in found if word not in ("--data", found[found.index("--data") + 1])
    ] == rest
    stays = words[0] in ("train", "search")
    assert path.exists() is stays
    assert [one.name for one in stdin.iterdir()] == ["runs"] * stays
    assert ("standard input is saved as runs/" in capsys.readouterr().err) is stays


def test_the_columns_of_standard_input(stdin: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["columns", "-", "--json"]) == 0
    out = capsys.readouterr()
    found = json.loads(out.out)
    assert [one["column"] for one in found["columns"]] == ["v", "label"]
    assert found["data"] == "standard input"
    assert out.err == ""
    assert list(stdin.iterdir()) == []


def test_a_command_that_fails_leaves_nothing(
    stdin: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["columns", "-", "--label", "lable"]) == 2
    assert "lable" in capsys.readouterr().err
    assert list(stdin.iterdir()) == []
