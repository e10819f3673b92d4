"""What a person sees: a bar on a terminal, lines elsewhere, nothing if they want it quiet."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import select
from pathlib import Path
from typing import Any

import pytest

from proselflc.terminal import Lines, Silent, Terminal, chosen, describe_line, showing

DIGITS = ("train", "--data", "digits", "--noise", "pair:0.4", "--model", "mlp")
LINE = {
    "step": 22,
    "epoch": 2.0,
    "train_loss": 1.23456,
    "train_accuracy": 0.5,
    "test_accuracy": 0.875,
    "val_accuracy": None,
    "g": 0.5,
    "epsilon": 0.0625,
    "images_per_second": 12345.6,
}


def test_a_point_describe_line() -> None:
    assert describe_line(LINE) == (
        "epoch 2  step 22  loss 1.235  fits given 50.0%  test 87.5%  g 0.500  ε 0.062  "
        "examples/s 12,346"
    )


def test_lines_go_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    with showing(Lines()) as display:
        display.begin(("digits", "with \x1b[31mmlp"), 3, 9)
        display.step(4, {"loss": 1.0})
        display.point(LINE)
        display.note("a\nb")
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "digits",
        "with \\x1b[31mmlp",
        "resuming after step 3 of 9",
        describe_line(LINE),
        "note: a\\nb",
    ]


def test_a_stage_is_named_when_it_begins(capsys: pytest.CaptureFixture[str]) -> None:
    stream = io.StringIO()
    for display in (Lines(), Terminal(stream)):
        with showing(display):
            display.begin(("digits",), 0, 9)
            for stage in (None, "labels", "labels", "weights\x1b[2J", "weights\x1b[2J"):
                display.point({**LINE, "stage": stage})
    expected = [
        describe_line(LINE),
        *(describe_line({**LINE, "stage": "labels"}), describe_line(LINE)),
        *(describe_line({**LINE, "stage": "weights\x1b[2J"}), describe_line(LINE)),
    ]
    assert expected[1].startswith("epoch 2  step 22  stage labels  loss 1.235")
    assert capsys.readouterr().err.splitlines()[1:] == expected
    assert "\x1b[2J" not in stream.getvalue()
    said = [line.strip() for line in stream.getvalue().splitlines()]
    assert [line for line in said if "step 22" in line] == expected


def test_silence(capsys: pytest.CaptureFixture[str]) -> None:
    Silent().note("something")
    for display in (Silent(), chosen(quiet=True)):
        display.begin(("title",), 0, 9)
        display.step(1, {"loss": 1.0})
        display.point(LINE)
        display.end()
    assert capsys.readouterr() == ("", "")
    chosen(quiet=True).note("something")
    assert capsys.readouterr().err == "note: something\n"


def test_away_from_a_terminal_there_are_lines() -> None:
    assert type(chosen(quiet=False)) is Lines


def test_a_terminal_that_is_ended_before_it_began() -> None:
    stream = io.StringIO()
    with pytest.raises(ZeroDivisionError), showing(Terminal(stream)):
        _ = 1 / 0


def test_a_stranger_s_text_is_not_obeyed() -> None:
    stream = io.StringIO()
    display = Terminal(stream)
    display.note("[red]x[/red] \x1b[2J")
    assert "note: [red]x[/red] \\x1b[2J" in stream.getvalue()


def test_lines_in_a_pipe_and_the_result_on_stdout(program: Any, tmp_path: Path) -> None:
    done = program(*DIGITS, "--epochs", 2, "--out", tmp_path / "run")
    assert done.stdout == f"{tmp_path / 'run'}\n"
    lines = done.stderr.splitlines()
    assert re.fullmatch(r"digits: 1,297 examples of 10 classes, \d\d\.\d% of .* wrong", lines[0])
    assert lines[1] == f"proselflc with mlp, 22 steps, into {tmp_path / 'run'}"
    assert lines[4] == ""
    assert re.match(r"No label is called suspect; how many are wrong is not known, ", lines[5])
    assert any("examples.parquet" in line for line in lines[6:])
    for line, step in zip(lines[2:4], (11, 22), strict=True):
        assert re.match(rf"epoch \d  step {step}  loss \d\.\d+  fits given ", line)
        assert all(f"  {name} " in line for name in ("test", "g", "ε", "examples/s"))


def test_json_is_alone_on_stdout(program: Any, tmp_path: Path) -> None:
    done = program(*DIGITS, "--epochs", 1, "--out", tmp_path / "run", "--json")
    found = json.loads(done.stdout)
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert found == {"run": str(tmp_path / "run"), **summary}
    assert "epoch 1  step 11" in done.stderr


def test_quiet_is_quiet(program: Any, tmp_path: Path) -> None:
    done = program(*DIGITS, "--epochs", 3, "--out", tmp_path / "run", "--quiet")
    assert (done.stdout, done.stderr) == ("", "")


def test_a_terminal_shows_a_bar(program: Any, tmp_path: Path) -> None:
    reader, writer = pty.openpty()
    terminal = Path(os.ttyname(writer))
    running = program.start(
        *(*DIGITS, "--epochs", 90, "--eval-epochs", 45, "--out", tmp_path / "run"),
        environment={"TERM": "xterm-256color"},
        stderr=terminal,
    )
    seen = b""
    while (ready := select.select([reader], [], [], 0.05)[0]) or not running.ended():
        seen += os.read(reader, 65536) if ready else b""
    assert running.wait().code == 0
    os.close(writer)
    os.close(reader)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen.decode(errors="ignore"))
    assert "\x1b[" in seen.decode(errors="ignore")
    bar = r"training .* \d+% epoch \d+  loss \d\.\d{3}  fits given \d+\.\d%  g \d\.\d{3}  "
    assert re.search(bar + r"ε \d\.\d{3}  examples/s [\d,]+ \d\d:\d\d", text)
    assert "epoch 90  step 990  loss " in text
    assert "proselflc with mlp, 990 steps, into " in text


def test_one_training_after_the_other_has_one_bar() -> None:
    display = Terminal(io.StringIO())
    for total in (9, 5):
        display.begin(("title",), 0, total)
        assert [task.total for task in display._progress.tasks] == [total]
        display.end()
