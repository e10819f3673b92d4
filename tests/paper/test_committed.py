"""What is committed is what the committed records say."""

from __future__ import annotations

from pathlib import Path

import pytest
from matplotlib.figure import Figure as Canvas

from proselflc.pages.sheet import Sheet
from proselflc.paper import command
from proselflc.paper.output import Output
from proselflc.paper.records import RecordStore, resolved_table
from proselflc.queue.run_store import key
from proselflc.run.config import Config

WIDE = "cpu-wide"
COMMITTED = Path(__file__).parents[2] / "benchmarks" / "results" / "paper"


def committed(name: str) -> Output:
    return command.committed(name, WIDE, COMMITTED).evaluate()[0]


def test_committed_records_are_named_by_their_options() -> None:
    """But for those of an earlier store (`carried_over`), which docs/paper.md tells of."""
    store = RecordStore(COMMITTED)
    assert not (COMMITTED / "records").exists()  # benchmarks/pack_records.py packs them
    records = list(store.records())
    assert len(records) > 500
    for record in records:
        found = record.facts
        if found["config"]["method"]["name"] == "distillation":
            continue  # its teacher is a directory, which records do not name
        config = Config.from_table(found["config"], store.archive)
        assert found["config"]["method"].items() <= resolved_table(config)["method"].items()
        assert "carried_over" in found or key(config) == found["key"]


@pytest.mark.parametrize(
    "name", ["table3", "table4", "table5", "table7", "figure2", "figure3", "figure4", "figure5"]
)
def test_committed_results_are_what_the_committed_records_say(name: str) -> None:
    text = (COMMITTED / WIDE / f"{name}.md").read_text(encoding="utf-8")
    assert committed(name).markdown(pictures=True) == text


@pytest.mark.parametrize(
    ("name", "panels"),
    [
        ("figure2", ["Correct fitting", "Semantic correction", "Generalisation"]),
        (
            "figure4",
            [f"{m}, r = 0.{k}" for m in ("Generalisation", "Wrong fitting") for k in (2, 3, 4)],
        ),
        (
            "figure5",
            [f"{m}, asymmetric 0.{k}" for m in ("Entropy H(p)", "Trust ε") for k in (2, 4)],
        ),
    ],
)
def test_a_figure_is_one_picture_with_the_panels_of_the_paper(name: str, panels: list[str]) -> None:
    (picture,) = committed(name).figures
    assert isinstance(picture.drawing, Sheet)
    assert picture.name == name
    assert [panel.title for panel in picture.drawing.panels] == panels
    assert all(f"{title} at the end: " in picture.alt for title in panels)


def test_figure_4_shows_the_second_half_but_for_the_lowest_rate() -> None:
    (picture,) = committed("figure4").figures
    assert isinstance(picture.drawing, Sheet)
    starts = []
    for panel in picture.drawing.panels:
        axes = Canvas().add_subplot()
        panel.plot(axes)
        starts.append(axes.get_xlim()[0])
        assert axes.get_xlim()[1] == 60.0
    assert starts == [0.0, 30.0, 30.0, 0.0, 30.0, 30.0]
