"""`proselflc report`: where the page goes, what is said, what is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from proselflc.errors import InputError
from proselflc.reporting import command as reporting
from proselflc.run.reader import load_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, program: Any) -> Path:
    """A run of two epochs on a small table."""
    folder = tmp_path_factory.mktemp("reporting")
    rng = np.random.default_rng(0)
    lines = ["name,length,width,label"]
    for k in range(80):
        label = k % 2
        length, width = rng.normal(5 * label, 1), rng.normal(2 - label, 1)
        lines.append(f"row-{k},{length:.3f},{width:.3f},{('short', 'long')[label]}")
    (folder / "table.csv").write_text("\n".join(lines) + "\n")
    program(
        *("train", "--data", folder / "table.csv", "--id-column", "name"),
        *("--noise", "symmetric:0.2", "--epochs", 8, "--batch-size", 16, "--quiet"),
        *("--out", folder / "run"),
    )
    return folder / "run"


def copy(run: Path, folder: Path, name: str = "copy") -> Path:
    shutil.copytree(run, folder / name)
    return folder / name


def test_one_run_has_its_page_in_its_directory(run: Path, program: Any, tmp_path: Path) -> None:
    path = copy(run, tmp_path)
    done = program("report", path)
    assert done.stdout == f"{path / 'report.html'}\n"
    assert done.stderr == ""
    html = (path / "report.html").read_text()
    assert "<!doctype html>" in html
    assert "row-" in html
    assert "(" in html.split('class="deviations"')[1]
    program("report", path)  # our own old page is replaced
    assert (path / "report.html").read_text() == html


def test_several_runs_have_theirs_where_one_is(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    again = copy(run, tmp_path)
    written = reporting.write([run, again], None)
    assert written.path == Path("report.html")
    assert "2 runs on" in written.path.read_text()
    assert not (again / "report.html").exists()


def test_figures_are_files_too_and_json_names_them(run: Path, program: Any, tmp_path: Path) -> None:
    out, folder = tmp_path / "page.html", tmp_path / "figures"
    done = program("report", run, "--out", out, "--figures", folder, "--json")
    result = json.loads(done.stdout)
    assert result["report"] == str(out)
    assert result["runs"] == [str(run)]
    assert result["notes"] == []
    assert result["suspects_shown"] == int(load_run(run).examples["is_suspect"].to_numpy().sum())
    assert {Path(one).suffix for one in result["figures"]} == {".svg", ".png"}
    assert all(Path(one).is_file() for one in result["figures"])


def test_what_is_not_ours_is_kept(run: Path, tmp_path: Path) -> None:
    mine = tmp_path / "report.html"
    mine.write_text("my own page")
    with pytest.raises(InputError, match="is not a report") as error:
        reporting.write([run], mine)
    assert error.value.field == "out"
    assert mine.read_text() == "my own page"
    reporting.write([run], mine, overwrite=True)
    assert "ProSelfLC" in mine.read_text()


def test_what_cannot_be_written_is_refused_before_anything_is_computed(
    run: Path, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="does not exist"):
        reporting.write([run], tmp_path / "gone" / "report.html")
    with pytest.raises(InputError, match="is a folder"):
        reporting.write([run], tmp_path)


def test_data_that_moved_costs_the_examples_alone_and_can_be_named(
    run: Path, program: Any, tmp_path: Path, resealed: Any
) -> None:
    path = copy(run, tmp_path)
    config = (path / "config.toml").read_text()
    moved = config.replace(str(run.parent / "table.csv"), "/gone/table.csv")
    assert moved != config
    (path / "config.toml").write_text(moved)
    resealed(path)
    done = program("report", path)
    assert done.stderr.startswith("note: the examples are not shown: ")
    assert len(done.stderr.splitlines()) == 1
    html = (path / "report.html").read_text()
    assert "The examples themselves are not shown." in html
    assert "deviations" not in html.split("</style>")[1]
    assert f"proselflc report {path} --data PATH" in html
    done = program("report", path, "--data", run.parent / "table.csv")
    assert done.stderr == ""
    assert "deviations" in (path / "report.html").read_text().split("</style>")[1]


def test_a_page_with_examples_is_not_replaced_by_one_without(
    run: Path, program: Any, tmp_path: Path, resealed: Any
) -> None:
    path = copy(run, tmp_path)
    program("report", path)
    html = (path / "report.html").read_text()
    config = path / "config.toml"
    config.write_text(config.read_text().replace(str(run.parent / "table.csv"), "/gone/table.csv"))
    resealed(path)
    done = program("report", path, "--figures", tmp_path / "figures", code=2)
    assert done.stderr.startswith(
        f"{path / 'report.html'} shows the examples, and a new page could"
    )
    assert "choose another --out, or pass --overwrite" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert (path / "report.html").read_text() == html
    assert not (tmp_path / "figures").exists()
    program("report", path, "--overwrite")
    without = (path / "report.html").read_text()
    assert "The examples themselves are not shown." in without
    program("report", path)  # it has none to lose any more
    assert (path / "report.html").read_text() == without


def test_runs_that_are_none_are_named(run: Path, program: Any, tmp_path: Path) -> None:
    done = program("report", tmp_path / "gone", code=2)
    assert done.stderr == f"there is no run {tmp_path / 'gone'}: proselflc train makes one\n"
    path = copy(run, tmp_path)
    done = program("report", tmp_path / "gone", code=2)
    assert done.stderr == f"there is no run {tmp_path / 'gone'}: the runs beside it are {path}\n"
    (path / "summary.json").unlink()
    done = program("report", run, path, code=2)
    assert done.stderr.startswith(f"the run {path} is not finished")
    assert len(done.stderr.splitlines()) == 1


def test_from_python_with_the_examples_at_hand(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "page.html"
    texts = [f"text number {k}" for k in range(80)]
    assert reporting.report(load_run(run), out, inputs=texts) == out
    assert "text number" in out.read_text()
    assert capsys.readouterr().err == ""
    with pytest.raises(InputError, match="there are 3 inputs"):
        reporting.report(run, out, inputs=texts[:3])
    assert reporting.report([run, str(run)], out, inputs=np.zeros((80, 8, 8), np.uint8)) == out
    assert "data:image/png" in out.read_text()


def test_from_python_what_is_missing_is_told_once(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = copy(run, tmp_path)
    (path / "audit.json").unlink()
    reporting.report(path)
    said = capsys.readouterr().err
    assert said.startswith("note: ")
    assert f"proselflc audit {path}" in said
    reporting.report(path, quiet=True)
    assert capsys.readouterr().err == ""
