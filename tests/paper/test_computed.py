"""Tables 1 and 2 and Figure 1: what is computed, against the formulas and the paper."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from proselflc.paper import command, printed, tables
from proselflc.paper.plan import SCALES, RunPlan
from proselflc.paper.records import RecordStore

CPU = SCALES["cpu"]


def test_table_2_is_the_papers() -> None:
    output = tables.table2(RunPlan(RecordStore(Path("nowhere")), CPU, (0,)))
    numbers = [[cell.split()[0] for cell in row[1:]] for row in output.tables[""].rows]
    assert numbers == [["0.01", "0.09", "0.09"], ["0.09", "0.81", "0.81"]]
    changes = [["changes" in cell for cell in row[1:]] for row in output.tables[""].rows]
    assert changes == [[False, False, False], [False, False, True]]
    theirs = [[float(cell) for cell in row[1:]] for row in output.tables["printed"].rows]
    assert theirs == [[float(cell) for cell in row] for row in numbers]


def test_table_1_says_of_each_method_what_the_paper_says() -> None:
    table = tables.table1(RunPlan(RecordStore(Path("x")), CPU, (0,))).tables[""]
    rows = {row[0]: row for row in table.rows}
    known = {"Cross entropy": "CCE", "Label smoothing": "LS", "Confidence penalty": "CP"}
    for ours, theirs in (known | {"Boot-soft": "LC", "ProSelfLC": "LC"}).items():
        target, divergence, entropy, *others = printed.SUMMARY[theirs]
        entropy = {"penalise": "penalises", "reward": "rewards"}.get(entropy, entropy)
        _, formula, _, _, *facts = rows[ours]
        assert (formula, facts) == (target, [divergence, entropy, *others])
    assert rows["ProSelfLC"][2:4] == ("g(t)·l(p)", "(1 − ε) H(q, p) + ε H(p)")
    assert [row[2] for row in rows.values()] == ["–", "ε", "ε", "ε", "g(t)·l(p)"]


def test_figure_1_is_the_formula(tmp_path: Path) -> None:
    output = command.find_artefact("figure1").make(RunPlan(RecordStore(tmp_path), CPU, (0,)))
    rows = {row[0]: [float(cell) for cell in row[1:]] for row in output.tables[""].rows}
    q, p, u = (np.array(rows[name]) for name in ("q", "p", "u"))
    np.testing.assert_allclose(rows["LS"], 0.5 * q + 0.5 * u, atol=1e-3)
    np.testing.assert_allclose(rows["CP"], 0.5 * q - 0.5 * p, atol=1e-3)
    np.testing.assert_allclose(rows["CP ≥ 0"], np.maximum(0.5 * q - 0.5 * p, 0), atol=1e-3)
    np.testing.assert_allclose(rows["LC"], 0.5 * q + 0.5 * p, atol=1e-3)
    files = {path.name for path in output.write(tmp_path, "figure1")}
    assert files == {"figure1.md", "figure1.csv", "figure1.svg", "figure1.png", "figure1.pdf"}
