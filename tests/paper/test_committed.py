"""What is committed is what the committed records say."""

from __future__ import annotations

from pathlib import Path

import pytest

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


def test_every_panel_says_the_noise_rate_that_it_is_of() -> None:
    figures = {name: committed(name).figures for name in ("figure4", "figure5")}
    assert [one.name for one in figures["figure4"]] == [
        f"figure4-0{rate}-{panel}"
        for rate in (2, 3, 4)
        for panel in ("generalisation", "wrong_fitting")
    ]
    assert [one.name for one in figures["figure5"]] == [
        f"figure5-0{rate}-{panel}"
        for rate in (2, 4)
        for panel in ("entropy_clean", "entropy_noisy", "trust")
    ]
    for one in (*figures["figure4"], *figures["figure5"]):
        rate = f"asymmetric 0.{one.name[9]}"
        assert one.title.endswith(f", {rate}")
        assert one.alt.startswith(f"{one.title} over 60 epochs: ")
