"""What a review of 30 or 100 randomly drawn labels is worth, by simulated reviewers who know them.

In every cell below, with every seed, one ProSelfLC run is audited. Then 200 reviews are simulated:
each draws labels as `review --sample` does and decides them by the true labels. "Rate" is the share
of wrong labels; its interval should contain the true one in 95 % of the reviews, and so should the
interval of the precision at each of three budgets. The chances, the suspects and their F1 are those
that `audit RUN` has after the review. For six reviews of 30 labels the whole audit is done, and the
labels that it changes without a person are counted; decisions themselves are not.

Two judges are spoilt on purpose: "shuffled" gives every label the log-odds of another one, and
"inverted" gives them the wrong sign.

The sizes of the groups, the two priors and the interval were chosen with seed 100. The seeds of
`cells.py` are reported, and nothing was chosen by them. Log-odds are kept in --work.

    python benchmarks/reviewed_sample.py [--data-root ../shared/data] [--work benchmarks/.work]
"""

from __future__ import annotations

import argparse
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import result_file
import torch
from cells import CELLS, SEEDS, available
from scipy.special import expit
from settings import DATA_ROOT

import proselflc
from proselflc.auditing import noise_estimate
from proselflc.auditing.measured import Reviewed, draw
from proselflc.auditing.suspects import LabelOdds, shift_of
from proselflc.auditing.verdict import assess
from proselflc.data.inputs import Bools, Ints

NAMES = (
    "digits",
    "digits-symmetric-0.2",
    "digits-pairflip-0.4",
    "breast-cancer-symmetric-0.1",
    "wine-symmetric-0.2",
    "fashion",
    "fashion-symmetric-0.1",
    "cifar-human",
    "hausa",
    "hausa-rules",
)
SPOILT = ("digits-symmetric-0.2", "cifar-human")
SIZES = (30, 100)
REVIEWS, AUDITS = 200, 6
BUDGETS = ("top_1_percent", "estimated_rate", "suspects")
HEADING = (
    *("labels", "wrong", "estimated", "decisions", "error of the measured rate"),
    *("95 % interval contains the rate", "its width", "precision of suspects: error before"),
    *("after", "intervals contain the precision: top 1 %", "estimated rate", "suspects"),
    *("F1 before", "after"),
)


class Case(NamedTuple):
    """A judge of n labels.

    Attributes:
        x: [n] log-odds of being wrong, without a shift.
        wrong: [n] whether a label is wrong.
        low, rate, high: the audit's own range.
        right: shares of right labels: as given, after the audit's changes, and after those of
            audits with 30 reviewed labels, the mean and the worst of six.
    """

    x: npt.NDArray[np.float64]
    wrong: Bools
    low: float
    rate: float
    high: float
    right: npt.NDArray[np.float64]


def case_of(name: str, seed: int, root: Path, work: Path) -> Case:
    """Train a cell and audit it, or read what is kept of that."""
    path = work / "reviewed_sample" / f"{name}-{seed}.npz"
    if not path.is_file():
        found = _trained(name, seed, root)
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(path, **found._asdict())
    with np.load(path) as kept:
        low, rate, high = (float(kept[name]) for name in ("low", "rate", "high"))
        return Case(kept["x"], kept["wrong"], low, rate, high, kept["right"])


def _trained(name: str, seed: int, root: Path) -> Case:
    dataset = CELLS[name].labelled(root, seed)
    assert dataset.clean is not None
    run = CELLS[name].fit(dataset, method="proselflc", seed=seed)
    labels, records, clean = run.labels, run.records, dataset.clean
    odds = LabelOdds(
        records, labels.given, noise_estimate.joint(records, labels.given, len(labels.names))
    )

    def audited(reviewed: Reviewed | None) -> tuple[Any, float]:
        found = assess(records, labels.given, labels.names, None, (), reviewed)
        after = np.where(found.scores.change, found.scores.suggested, labels.given)
        return found, float((after == clean).mean())

    before, unreviewed = audited(None)
    wrong = labels.given != clean
    quality, suspect = before.scores.quality, before.scores.suggested != labels.given
    generator = np.random.default_rng([seed, 7])
    after = [
        audited(reviewed_of(1 - quality, suspect, wrong, SIZES[0], generator))[1]
        for _ in range(AUDITS)
    ]
    right = np.array([1 - wrong.mean(), unreviewed, np.mean(after), np.min(after)])
    noise = before.noise
    return Case(odds.scaled, wrong, noise.low, noise.rate, noise.high, right)


def reviewed_of(
    chances: npt.NDArray[np.floating], suspect: Bools, wrong: Bools, size: int, generator: Any
) -> Reviewed:
    """Draw a sample and decide all of it by the truth."""
    every: Ints = np.arange(len(wrong))
    rows, groups, sizes = draw(chances.astype(np.float32), suspect, every, size, generator)
    index = np.array(groups)
    drawn = np.bincount(index, minlength=len(sizes))[index] / np.array(sizes)[index]
    return Reviewed(rows, wrong[rows], 1 / drawn / len(wrong), index, drawn)


def simulated(case: Case, size: int, seed: int) -> dict[str, float]:
    """Return means over many reviews."""
    x, wrong, n = case.x, case.wrong, len(case.wrong)
    shift = shift_of(x, max(case.rate, 0.5 / n))
    chances = expit(x + shift)
    suspect = chances > 0.5
    order = np.argsort(-chances, kind="stable")
    rows = []
    for k in range(REVIEWS):
        generator = np.random.default_rng([seed, size, k])
        reviewed = reviewed_of(chances, suspect, wrong, size, generator)
        slope, moved = reviewed.calibration(x, shift)
        after = expit(slope * x + moved)
        found = reviewed.measured(after.astype(np.float32), now := after > 0.5)
        low, rate, high = found.noise_rate
        row = {
            "error": abs(rate - wrong.mean()),
            "covered": low <= wrong.mean() <= high,
            "width": high - low,
            "f1": _f1(now, wrong),
        }
        budgets = (order[: int(np.ceil(0.01 * n))], order[: int(np.ceil(rate * n))], now)
        for name, some in zip(BUDGETS, budgets, strict=True):
            share = getattr(found.precision, name)
            if share is not None and len(wrong[some]):
                row[name] = share[0] - 1e-9 <= wrong[some].mean() <= share[2] + 1e-9
                row[f"{name}_error"] = abs(share[1] - wrong[some].mean())
        rows.append(row)
    names = {name for row in rows for name in row}
    # A number that few reviews have says nothing about reviews.
    means = {
        name: float(np.mean(values))
        for name in sorted(names)
        if len(values := [row[name] for row in rows if name in row]) >= REVIEWS / 10
    }
    means["f1_before"] = _f1(suspect, wrong)
    if suspect.any():
        means["precision_before_error"] = abs(chances[suspect].mean() - wrong[suspect].mean())
    return means


def _f1(suspect: Bools, wrong: Bools) -> float:
    return 2 * float((suspect & wrong).sum()) / max(int(suspect.sum() + wrong.sum()), 1)


def judges(name: str, case: Case, seed: int) -> Iterator[tuple[str, Case]]:
    """Yield the judge of a cell, and spoilt ones."""
    yield name, case
    if name in SPOILT:
        x = np.random.default_rng(seed).permutation(case.x)
        yield f"{name}, shuffled", case._replace(x=x)
        yield f"{name}, inverted", case._replace(x=-case.x)


def in_markdown(found: dict[str, dict[str, Any]]) -> str:
    """Return two tables, each number the mean of the seeds."""
    lines = ["| " + " | ".join(HEADING) + " |", "|" + " --- |" * len(HEADING)]
    for name, one in found.items():
        for size in SIZES:
            numbers = one["reviews"].get(str(size))
            if numbers is None:
                continue
            is_first = size == SIZES[0]
            cells = [name if is_first else "", f"{one['wrong']:.3f}" if is_first else ""]
            cells += [f"{one['rate']:.3f}" if is_first else "", str(size)]
            cells += [_cell(numbers, key) for key in ("error", "covered", "width")]
            cells += [_cell(numbers, "precision_before_error"), _cell(numbers, "suspects_error")]
            cells += [_cell(numbers, key) for key in (*BUDGETS, "f1_before", "f1")]
            lines.append("| " + " | ".join(cells) + " |")
    lines += [
        "",
        "| labels | right as given | after the audit's changes | after 30 decisions | worst |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name, one in found.items():
        if "right" in one:
            lines.append(f"| {name} | " + " | ".join(f"{x:.3f}" for x in one["right"]) + " |")
    return "\n".join(lines)


def _cell(numbers: dict[str, float], name: str) -> str:
    return f"{numbers[name]:.3f}" if name in numbers else "–"


def _mean(many: list[dict[str, float]]) -> dict[str, float]:
    names = sorted({name for one in many for name in one})
    return {name: float(np.mean([one[name] for one in many if name in one])) for name in names}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-root", type=Path, default=DATA_ROOT)
    parser.add_argument("--work", type=Path, default=Path(__file__).parent / ".work")
    options = parser.parse_args()
    torch.set_num_threads(1)
    collected: dict[str, list[tuple[Case, dict[str, dict[str, float]]]]] = {}
    for name in NAMES:
        if not available(CELLS[name], options.data_root):
            continue
        for seed in SEEDS:
            trained = case_of(name, seed, options.data_root, options.work)
            for judge, case in judges(name, trained, seed):
                sizes = [size for size in SIZES if size <= len(case.wrong)]
                reviews = {str(size): simulated(case, size, seed) for size in sizes}
                collected.setdefault(judge, []).append((case, reviews))
            print(name, seed, trained.rate, trained.wrong.mean(), trained.right, flush=True)
    found: dict[str, dict[str, Any]] = {}
    for judge, many in collected.items():
        found[judge] = {
            "wrong": float(np.mean([case.wrong.mean() for case, _ in many])),
            "rate": float(np.mean([case.rate for case, _ in many])),
            "reviews": {size: _mean([reviews[size] for _, reviews in many]) for size in many[0][1]},
        }
        if "," not in judge:
            found[judge]["right"] = np.mean([case.right for case, _ in many], axis=0).tolist()
            found[judge]["right"][3] = float(np.min([case.right[3] for case, _ in many]))
    result_file.write(
        "reviewed_sample",
        found,
        in_markdown(found),
        config={"reviews": REVIEWS, "audits": AUDITS, "sizes": SIZES},
        seeds=SEEDS,
        made_with=f"proselflc {proselflc.__version__}, torch {torch.__version__}, "
        f"numpy {np.__version__}, {platform.machine()}",
    )


if __name__ == "__main__":
    main()
