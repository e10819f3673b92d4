"""Tables and figures made of runs: what chooses, what is compared, what is marked."""

from __future__ import annotations

import csv
import io
import math
from pathlib import Path
from typing import Any

import pytest

from proselflc.pages.sheet import Sheet
from proselflc.paper import printed, tables
from proselflc.paper.command import Reproduction, find_artefact
from proselflc.paper.output import (
    MISSING,
    Output,
    difference,
    interval,
    mean_std,
)
from proselflc.paper.plan import SCALES, RunPlan
from proselflc.paper.records import RecordStore
from proselflc.run.config import Config

CPU = SCALES["cpu"]


def facts(accuracy: float | None = 0.5, validation: float | None = None) -> dict[str, Any]:
    line = {"step": 1, "epoch": 1.0, "test_accuracy": accuracy, "wrong_fitting": 0.25}
    return {
        "summary": {"test_accuracy": accuracy, "wrong_fitting": 0.25},
        "validation_accuracy": validation,
        "test": {"calibration": []},
        "history": [line, {**line, "step": 2, "epoch": 2.0}],
    }


def test_the_trusted_examples_choose_and_the_test_set_does_not(tmp_path: Path) -> None:
    store = RecordStore(tmp_path)
    plan = RunPlan(store, CPU, (0, 1))
    assert plan.chosen_parameters("cifar100", "pair:0.4", "label_smoothing") is None
    trials = list(plan.pending.values())
    assert [run.config.parameters["epsilon"] for run in trials] == [0.125, 0.25, 0.5]
    assert all(run.config.trusted == "0.2" for run in trials)
    for run, validation in zip(trials, (0.5, 0.7, 0.7), strict=True):
        # The best on the trusted examples is the worst on the test set.
        store.add(run.config, facts(accuracy=1 - validation, validation=validation))
    found = RunPlan(store, CPU, (0, 1))
    assert found.chosen_parameters("cifar100", "pair:0.4", "label_smoothing") == {"epsilon": 0.25}
    assert found.chosen_parameters("cifar100", "pair:0.4", "cce") == {}
    assert not found.pending


def test_table_4_marks_what_is_not_run_and_compares_pair_by_pair(tmp_path: Path) -> None:
    store = RecordStore(tmp_path)
    one = Reproduction(find_artefact("table4"), CPU, (0, 1), tmp_path)
    for _ in range(2):  # first the trials, then what they have chosen
        _, plan = one.evaluate()
        for run in plan.pending.values():
            config = run.config
            if config.noise == "sym_exclusive_bernoulli:0.6" and config.method == "cce":
                continue
            best = config.method == "proselflc"
            value = 0.5 + 0.1 * best + 0.01 * config.recipe.seed
            store.add(config, facts(value, validation=0.5))
    output, plan = one.evaluate()
    assert len(plan.pending) == 2
    ours = {row[0]: row[1:] for row in output.tables["ours"].rows}
    assert ours["ProSelfLC"][0] == "60.5 ± 0.7"
    assert ours["Cross entropy"][-1] == MISSING
    assert ours["Cross entropy"][0] == "50.5 ± 0.7"
    less = {row[0]: row[1:] for row in output.tables["difference"].rows}
    assert less["Cross entropy"][0] == "+10.0 ± 0.0"
    assert less.keys() == ours.keys() - {"ProSelfLC"}
    learned = {row[0]: row[1:] for row in output.tables["learned"].rows}
    assert learned["Cross entropy"] == (*5 * ("25.0 ± 0.0",), MISSING)
    assert "above 0 in 23," in " ".join(output.words)
    assert "1 are not run yet" in " ".join(output.words)
    theirs = {row[0]: row[1:] for row in output.tables["printed"].rows}
    assert theirs["ProSelfLC"] == ("68.7", "68.5", "67.9", "64.8", "59.3", "47.7")
    assert theirs["D2L ¹"][0] == "62.4"
    paths = output.write(tmp_path / "out", "table4")
    written = csv.reader(io.StringIO((tmp_path / "out" / "table4-ours.csv").read_text()))
    assert next(written)[1] == "asymmetric 0.2"
    assert paths[0].name == "table4.md"


def test_a_method_with_fewer_seeds_is_compared_over_those(tmp_path: Path) -> None:
    one = Reproduction(find_artefact("table4"), CPU, (0, 1, 2), tmp_path, quoted=2)
    for _ in range(2):
        for run in one.evaluate()[1].pending.values():
            gain = 0.1 * (run.config.method == "proselflc") * (1 + (run.config.recipe.seed == 2))
            one.store.add(run.config, facts(0.5 + gain, validation=0.5))
    output, plan = one.evaluate()
    assert not plan.pending
    less = {row[0]: row[1] for row in output.tables["difference"].rows}
    assert less["D2L ¹"] == "+10.0 ± 0.0"
    assert less["Cross entropy"] == "+13.3 ± 14.3"
    assert "with the first 2 seeds" in " ".join(output.words)


def test_dynamics_are_means_over_the_seeds(tmp_path: Path) -> None:
    store = RecordStore(tmp_path)
    one = Reproduction(find_artefact("figure3"), CPU, (0, 1), tmp_path)
    for _ in range(2):
        for run in one.evaluate()[1].pending.values():
            store.add(run.config, facts(0.5 + 0.1 * run.config.recipe.seed, validation=0.5))
    output, plan = one.evaluate()
    assert not plan.pending
    rows = {row[0]: row[1:] for row in output.tables[""].rows}
    assert rows["ProSelfLC"][-1] == "0.550 ± 0.071"
    less = {row[0]: row[1:] for row in output.tables["difference"].rows}
    assert less.keys() == set(printed.OWN[:-1])
    assert less["Cross entropy"][-1] == "+0.000 ± 0.000"
    (picture,) = output.figures
    assert isinstance(picture.drawing, Sheet)
    panels = picture.drawing.panels
    assert [panel.title for panel in panels] == ["Wrong fitting", "Generalisation"]
    assert [end.text for end in panels[0].ends] == ["CCE", "LS", "CP", "Boot-soft", "ProSelfLC"]
    assert {end.y for end in panels[1].ends} == {0.55}
    said = " ".join(output.words)
    assert "order in 0 of 4 pairs" in said
    assert "contains 0 in 4" in said


def test_the_order_of_the_ends_is_compared_with_the_papers(tmp_path: Path) -> None:
    """The entropies are those of the paper but for Boot-soft, which is above label smoothing."""
    entropy = dict(cce=1.0, label_smoothing=2.0, confidence_penalty=2.5, boot_soft=2.1)

    def made_up(config: Config) -> dict[str, Any]:
        known = facts(0.5 + 0.01 * config.recipe.seed, validation=0.5)
        value = entropy.get(config.method, 0.5) + 0.01 * config.recipe.seed
        lines = [{**line, "entropy_clean": value} for line in known["history"]]
        return {**known, "history": lines}

    output = filled("figure3", tmp_path, (0, 1, 2), made_up)
    (sentence,) = (word for word in output.words if word.startswith("Entropy of the clean"))
    assert "order in 7 of 8 pairs" in sentence
    assert "confirms it in 7, contradicts it in 1 and contains 0 in 0." in sentence


def test_figure_2_has_the_fixed_trust_that_the_trusted_examples_choose(tmp_path: Path) -> None:
    def made_up(config: Config) -> dict[str, Any]:
        is_best = config.parameters.get("epsilon") == 0.25
        # The best on the trusted examples is the worst on the test set.
        return facts(0.5 - 0.1 * is_best, validation=0.5 + 0.1 * is_best)

    output = filled("figure2", tmp_path, (0, 1), made_up)
    rows = {row[0]: row for row in output.tables[""].rows}
    assert rows.keys() == {"fixed ε = 0.25", "global trust alone", "global and local trust"}
    assert rows["fixed ε = 0.25"][-1] == "0.400 ± 0.000"


def test_a_run_that_diverged_is_called_so(tmp_path: Path) -> None:
    store = RecordStore(tmp_path)
    plan = RunPlan(store, CPU, (0,))
    plan.final_runs("cifar100", None, "cce", {})
    (run,) = plan.pending.values()
    store.add(run.config, {**facts(None), "diverged": "the loss is nan", "history": []})
    plan = RunPlan(store, CPU, (0,))
    found = plan.final_runs("cifar100", None, "cce", {})
    assert not plan.pending
    assert mean_std(tables.accuracies(found)) == "diverged"


def test_intervals_are_students() -> None:
    from scipy.stats import ttest_rel

    ours, others = [61.0, 63.5, 60.2, 62.0], [58.0, 61.0, 60.0, 59.5]
    found = interval([a - b for a, b in zip(ours, others, strict=True)])
    expected = ttest_rel(ours, others).confidence_interval(0.95)
    assert found is not None
    assert found[0] - found[1] == pytest.approx(expected.low)
    assert found[0] + found[1] == pytest.approx(expected.high)
    assert interval([1.0]) is None
    assert interval([1.0, None]) is None
    assert difference([1.0, 2.0], [None, 2.0]) == MISSING
    assert mean_std([50.0, 52.0]) == "51.0 ± 1.4"
    assert mean_std([50.0, None]) == MISSING
    assert mean_std([50.0]) == "50.0"
    assert mean_std([50.0, math.nan]) == "diverged"


def test_printed_numbers_agree_between_tables() -> None:
    """Table 4 shows the best of Table 5, as the paper says."""
    for method in printed.OWN:
        columns = list(zip(*printed.HYPERPARAMETERS[method].values(), strict=True))
        assert tuple(max(column) for column in columns)[:6] == printed.SYNTHETIC[method]
        clean = printed.STANDARD["cifar100"][method]
        for value, accuracy in clean.items():
            assert printed.HYPERPARAMETERS[method][value][-1] == accuracy


def test_clothing1m_is_chosen_by_its_own_validation_part(tmp_path: Path) -> None:
    one = Reproduction(find_artefact("table6"), SCALES["paper"], (0, 1), tmp_path)
    for run in one.evaluate()[1].pending.values():
        is_best = run.config.parameters in ({"epsilon": 0.25}, {"sharpness": 14.0})
        one.store.add(run.config, facts(0.7, validation=0.8 if is_best else 0.6))
    output, plan = one.evaluate()
    assert {run.config.trusted for run in plan.requested.values()} == {None}
    chosen = {row[0]: row[1] for row in output.tables[""].rows}
    assert chosen["Boot-soft"] == "ε = 0.25"
    assert chosen["ProSelfLC"] == "B = 14"
    assert chosen["Cross entropy"] == chosen["D2L ¹"] == "default"
    assert all("clean" not in run.title for run in plan.requested.values())
    assert {run.config.parameters.get("sharpness") for run in plan.pending.values()} >= {14.0}


def filled(name: str, folder: Path, seeds: tuple[int, ...], value: Any) -> Output:
    """A table all of whose runs are there, their facts made up by a function of their options."""
    one = Reproduction(find_artefact(name), CPU, seeds, folder)
    for _ in range(2):
        for run in one.evaluate()[1].pending.values():
            one.store.add(run.config, value(run.config))
    output, plan = one.evaluate()
    assert not plan.pending
    return output


def test_table_3_compares_every_setting_with_cross_entropy(tmp_path: Path) -> None:
    gain = {"cce": 0.0, "proselflc": 0.02, "label_smoothing": -0.01}

    def made_up(config: Config) -> dict[str, Any]:
        k = config.recipe.seed
        swing = 0.03 * (k - 1) if config.method == "boot_soft" else 0.0
        return facts(0.5 + 0.1 * k + gain.get(config.method, 0.0) + swing)

    output = filled("table3", tmp_path, (0, 1, 2), made_up)
    less = {row[1]: row[3] for row in output.tables[""].rows}
    assert less["Cross entropy"] == ""  # it is compared with itself
    assert less["ProSelfLC, B = 8"] == "+2.0 ± 0.0"
    assert less["Label smoothing, ε = 0.5"] == "-1.0 ± 0.0"
    # Differences of −3, 0 and 3 points: t of two degrees of freedom, 4.303 · 3 / √3.
    assert less["Boot-soft, ε = 0.25"] == "+0.0 ± 7.5"
    said = " ".join(output.words)
    # Confidence penalty and Boot-soft are as good as cross entropy.
    assert "for 9 of 12 settings" in said
    assert "above 0 in 3, below 0 in 3, and contains 0 in 6" in said


def test_table_5_says_how_much_a_hyper_parameter_matters(tmp_path: Path) -> None:
    def made_up(config: Config) -> dict[str, Any]:
        B = config.parameters.get("sharpness")
        return facts(0.5 if B is None else 0.6 + 0.01 * B)

    output = filled("table5", tmp_path, (0,), made_up)
    spread = {row[0]: row[1:] for row in output.tables["spread"].rows}
    assert spread["ProSelfLC, ours"] == ("8.0",) * 7
    assert spread["Label smoothing, ours"] == ("0.0",) * 7
    assert spread["ProSelfLC, printed"][5] == "15.4"
    assert "no interval" in " ".join(output.words)


def test_table_7_compares_both_readings_pair_by_pair(tmp_path: Path) -> None:
    def made_up(config: Config) -> dict[str, Any]:
        ece = {"proselflc": 0.1, "cce": 0.3}.get(config.method, 0.0) + 0.01 * config.recipe.seed
        points = [
            {"T": T, "reading": reading, "measure": measure, "ece": ece * T}
            for T in tables.TEMPERATURES.values()
            for reading in tables.READINGS
            for measure in tables.MEASURES
        ]
        return {**facts(0.5, validation=0.5), "test": {"calibration": points}}

    output = filled("table7", tmp_path, (0, 1), made_up)
    cells, less = output.tables["divide"].rows[:2]
    assert cells[1] == "10.5 ± 0.7 (30.5 ± 0.7)"
    assert less[1] == "-20.0 ± 0.0"
    assert less[3] == "-2.5 ± 0.0"
