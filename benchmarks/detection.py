"""How well wrong labels are found: one run of ours beside 4-fold confident learning.

In every setting of `settings.py`, with every seed, the same network learns the same labels by the
same recipe:

- once with ProSelfLC and once with cross entropy; our audit looks at what each run recorded;
- with cross entropy on three quarters of the examples, four times; cleanlab looks at what the
  four models say about the quarter that they have not seen, and so does our audit.

Beside them, from the same two runs: the class with the largest mean p in the last epochs where it
is not the given one, ranked by the given one's mean p; and the mean over all epochs of p of the
given class less the largest other, where that is negative.

cleanlab by default is `find_label_issues` and `get_label_quality_scores` as they come. cleanlab at
best is the filter with the largest F1, and the largest AUROC, average precision and share of right
labels of any filter and score, chosen for every seed by the true labels: an advantage that no other
method has here. A flagged label becomes the class that its p is largest for.

Time is of one thread's processor, around `fit` with no evaluation before the end. Four folds learn
from three quarters of the examples each, so they take three times as many steps as one run; and
when they are done there is no model yet that has seen all examples, which takes one more run.

Trainings are kept in --work, their measures in results/detection.json, each with a hash of all
that it depends on. What is there is not done again; what is not there is shown as "–". Raise
SCORING where our audit changes, and what it says is measured anew, without training.

    python benchmarks/detection.py                          # what is not there yet, then the tables
    python benchmarks/detection.py --setting hausa --seed 0 # may run beside another setting
    python benchmarks/detection.py --report                 # only the tables, from the cache
    python benchmarks/detection.py --quick                  # digits, few epochs, no result files
"""

from __future__ import annotations

import argparse
import platform
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import result_file
import torch
from detection_table import (
    BEST,
    DEFAULT,
    OURS,
    OURS_CCE,
    OURS_FOLDS,
    Measured,
    in_markdown,
    in_words,
    summary,
)
from filelock import FileLock
from settings import DATA_ROOT, SETTINGS, Setting
from trainings import FOLDS, WORK, Case, Cost

from proselflc.auditing import suspects
from proselflc.auditing.detection import detection
from proselflc.auditing.records import HeldOut, Records
from proselflc.data.inputs import Bools, Ints
from proselflc.data.labels import Labels
from proselflc.errors import InputError
from proselflc.queue.run_store import hash_options
from proselflc.run.reader import Run
from proselflc.training.observations import ROW

SCORING = 2
SEEDS = (1, 2)  # with seed 0 the rule was made; see docs/decisions/0003
QUICK = ("digits-symmetric", "digits-pair")
QUICK_EPOCHS = 10
FACTS: dict[str, Any] = {"config": {"scoring": SCORING, "folds": FOLDS}, "seeds": SEEDS}

# cleanlab's default is the first, here and below.
FILTERS = (
    "prune_by_noise_rate",
    "prune_by_class",
    "both",
    "confident_learning",
    "predicted_neq_given",
    "low_normalized_margin",
    "low_self_confidence",
)
# The score's method, and whether p is compared with its class's mean first.
SCORES = {
    "self_confidence": ("self_confidence", False),
    "normalized_margin": ("normalized_margin", False),
    "confidence_weighted_entropy": ("confidence_weighted_entropy", False),
    "self_confidence, adjusted": ("self_confidence", True),
    "normalized_margin, adjusted": ("normalized_margin", True),
}

Scores: TypeAlias = npt.NDArray[np.floating[Any]]  # [n], low = probably mislabelled
Row: TypeAlias = dict[str, float | None]
Found: TypeAlias = tuple[Labels, dict[str, Row], Cost]  # of what, the rows, what it took to train


def audit_of_run(case: Case, method: str, row: str) -> Found:
    """Our audit on what a run recorded."""
    run, cost = case.run(method)
    return run.labels, {row: _audited(run.labels, run.records)}, cost


def audit_of_folds(case: Case) -> Found:
    """Our audit on what the folds say; of the run it takes how fast was learned."""
    run, cost = case.run("cce")
    labels, p, more = case.folds()
    assert labels.fingerprint == run.labels.fingerprint
    records = replace(run.records, held_out=HeldOut(FOLDS, p.astype(np.float16)))
    return labels, {OURS_FOLDS: _audited(labels, records)}, cost + more


def plain_scores(case: Case, method: str) -> Found:
    """Return simple scores of a run: the largest mean p at the end, and the mean margin."""
    run, cost = case.run(method)
    labels = run.labels
    p = run.recent("p").astype(np.float32)
    likeliest: Ints = p.argmax(1)
    p_given = p[np.arange(len(p)), labels.given]
    margin = mean_margin(run)
    rows = {
        f"argmax {method}": measured(labels, likeliest != labels.given, p_given, likeliest),
        f"margin {method}": measured(labels, margin < 0, margin, likeliest),
    }
    return labels, rows, cost


def mean_margin(run: Run) -> npt.NDArray[np.float64]:
    """[n] mean over the epochs of p of the given class less the largest p of another."""
    n = len(run.labels.given)
    total, count = np.zeros(n), np.zeros(n)
    for epoch in run.dynamics:
        margin = epoch["p_given"].astype(np.float64) - epoch["p_other"]
        seen = ~np.isnan(margin)
        total[seen] += margin[seen]
        count += seen
    total[count == 0] = np.nan
    mean: npt.NDArray[np.float64] = total / np.maximum(count, 1)
    return mean


def cleanlab_scores(case: Case) -> Found:
    """All of cleanlab's filters and scores, its default and its best."""
    from cleanlab.filter import find_label_issues  # type: ignore[import-untyped]
    from cleanlab.rank import get_label_quality_scores  # type: ignore[import-untyped]

    labels, held_out, cost = case.folds()
    p = held_out.astype(np.float64)
    p /= p.sum(1, keepdims=True)
    flags = {
        name: np.asarray(find_label_issues(labels.given, p, filter_by=name, n_jobs=1))
        for name in FILTERS
    }
    scores = {
        name: np.asarray(
            get_label_quality_scores(labels.given, p, method=method, adjust_pred_probs=adjusted)
        )
        for name, (method, adjusted) in SCORES.items()
    }
    return labels, cleanlab_rows(labels, flags, scores, p.argmax(1)), cost


def cleanlab_rows(
    labels: Labels, flags: Mapping[str, Bools], scores: Mapping[str, Scores], likeliest: Ints
) -> dict[str, Row]:
    """The default, the best, and every filter and score by its name.

    Args:
        labels: of n examples.
        flags: [n] by filter, the default first.
        scores: [n] by name, the default first.
        likeliest: [n] what flagged labels become.
    """
    ranking = ("auroc", "average_precision")
    filters = {name: measured(labels, flag, None, likeliest) for name, flag in flags.items()}
    no_suspects = np.zeros(len(labels.given), np.bool_)
    ranks: dict[str, Row] = {}
    for name, score in scores.items():
        row = measured(labels, no_suspects, score, likeliest)
        ranks[name] = {measure: row[measure] for measure in ranking}
    default = {**next(iter(filters.values())), **next(iter(ranks.values()))}
    best = {**max(filters.values(), key=lambda row: row["f1"] or 0)}
    best["labels_after"] = max(row["labels_after"] or 0 for row in filters.values())
    for measure in ranking:
        best[measure] = max(row[measure] or 0 for row in ranks.values())
    return {
        DEFAULT: default,
        BEST: best,
        **{f"cleanlab filter {name}": row for name, row in filters.items()},
        **{f"cleanlab score {name}": row for name, row in ranks.items()},
    }


def measured(labels: Labels, flagged: Bools, quality: Scores | None, suggested: Ints) -> Row:
    """How well wrong labels were found and corrected.

    Args:
        labels: of n examples, the truth known.
        flagged: [n].
        quality: [n]; None where there is no ranking.
        suggested: [n] what a flagged label becomes.
    """
    nothing = np.full(len(flagged), np.nan)
    found = detection(flagged, nothing if quality is None else quality, labels.flipped)
    after = np.where(flagged, suggested, labels.given)
    return {
        **asdict(found),
        "labels_after": float((after == labels.clean).mean()),
        "flagged": float(flagged.mean()),
    }


def _audited(labels: Labels, records: Records) -> Row:
    """From the records: what lies in the run's directory may be of an older audit."""
    table, audit = suspects.audit_labels(labels, records)
    number = {name: k for k, name in enumerate(labels.names)}
    suggested = np.array([number[name] for name in table["suggested_label"].to_pylist()])
    return {
        **measured(labels, table["is_suspect"].to_numpy(), table["quality"].to_numpy(), suggested),
        "estimated_noise_rate": audit.estimated_noise_rate,
        "expected_precision": audit.expected_precision,
    }


@dataclass(frozen=True)
class Measurement:
    """Something that is measured of a case, and kept by itself.

    Attributes:
        take: does it.
        depends: what it depends on besides what all trainings of the case do.
    """

    take: Callable[[Case], Found]
    depends: Mapping[str, object]


RECORDED = {"records": ROW.descr}
AUDITED = {**RECORDED, "scoring": SCORING}
FOLDED = {"folds": FOLDS}
MEASUREMENTS = {
    OURS: Measurement(lambda case: audit_of_run(case, "proselflc", OURS), AUDITED),
    OURS_CCE: Measurement(lambda case: audit_of_run(case, "cce", OURS_CCE), AUDITED),
    "cleanlab": Measurement(cleanlab_scores, FOLDED),
    OURS_FOLDS: Measurement(audit_of_folds, {**AUDITED, **FOLDED}),
    "plain proselflc": Measurement(lambda case: plain_scores(case, "proselflc"), RECORDED),
    "plain cce": Measurement(lambda case: plain_scores(case, "cce"), RECORDED),
}


@dataclass(frozen=True)
class Cache:
    """The measurements in the result, each with a hash of all that it depends on."""

    folder: Path

    def all(self) -> dict[str, dict[str, Any]]:
        """Return every measurement, by case."""
        before = result_file.read("detection", self.folder)
        return {} if before is None else dict(before["found"]["measurements"])

    def read(self, case: Case) -> dict[str, Any]:
        """The measurements that are there, without those of another configuration."""
        kept = self.all().get(self._name(case), {})
        return {name: kept[name] for name in MEASUREMENTS if self._is_valid(case, name, kept)}

    def measured(self, case: Case) -> Measured | None:
        """What the tables are made of; None where there is nothing."""
        kept = list(self.read(case).values())
        if not kept:
            return None
        rows = {
            row: {**numbers, **one["cost"]} for one in kept for row, numbers in one["rows"].items()
        }
        return Measured(kept[0]["labels"], rows)

    def complete(self, case: Case) -> None:
        """Take every measurement that is not there; each is written when it is taken."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for name, measurement in MEASUREMENTS.items():
            if name in self.read(case):
                continue
            labels, rows, cost = measurement.take(case)
            one = {
                "key": _key(case, name),
                "labels": {
                    "examples": len(labels.given),
                    "classes": len(labels.names),
                    "noise_rate": float(labels.flipped.mean()),
                    "fingerprint": labels.fingerprint,
                },
                "cost": asdict(cost),
                "rows": rows,
                "made_with": _versions(),
            }
            with FileLock(case.work / "detection.lock"):
                both = {**self.all(), self._name(case): {**self.read(case), name: one}}
                found = {"settings": {}, "measurements": dict(sorted(both.items()))}
                result_file.save("detection", found, folder=self.folder, **FACTS, made_with=[])
            auroc, f1 = (max(row.get(m) or 0 for row in rows.values()) for m in ("auroc", "f1"))
            print(
                f"{case.setting.name}, seed {case.seed}, {name}: AUROC {auroc:.3f}, F1 {f1:.3f}, "
                f"{cost.seconds:.1f} s of training",
                flush=True,
            )

    def _name(self, case: Case) -> str:
        return f"{case.setting.name}-{case.seed}"

    def _is_valid(self, case: Case, name: str, kept: Mapping[str, Any]) -> bool:
        return name in kept and kept[name]["key"] == _key(case, name)


def _key(case: Case, name: str) -> str:
    """A hash of all that a measurement depends on."""
    return hash_options({**case.depends, **MEASUREMENTS[name].depends, "name": name})


def _versions() -> str:
    import cleanlab  # type: ignore[import-untyped]

    return (
        f"python {platform.python_version()}, torch {torch.__version__}, "
        f"numpy {np.__version__}, cleanlab {cleanlab.__version__}, {platform.machine()}"
    )


def report(cases: Sequence[Case], cache: Cache) -> tuple[dict[str, Any], list[str], str]:
    """Everything that is measured: the tables, the versions, and in words."""
    tables, made_with = {}, set()
    for setting in dict.fromkeys(case.setting for case in cases):
        by_seed = {}
        for case in cases:
            if case.setting is setting and (found := cache.measured(case)) is not None:
                by_seed[case.seed] = found
                made_with |= {one["made_with"] for one in cache.read(case).values()}
        tables[setting.name] = summary(setting, by_seed)
    seeds = sorted({case.seed for case in cases})
    words = in_words(list(tables.values()), seeds, sorted(made_with))
    return tables, sorted(made_with), words


def _complete(case: Case, cache: Cache) -> None:
    try:
        cache.complete(case)
    except InputError as error:
        print(f"{case.setting.name}, seed {case.seed}, is left out: {error}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--setting", action="append", choices=SETTINGS, help="only this one")
    parser.add_argument("--seed", action="append", type=int, choices=SEEDS, help="only this one")
    parser.add_argument("--quick", action="store_true", help="digits, one seed, no result files")
    parser.add_argument("--report", action="store_true", help="measure nothing, only show")
    parser.add_argument("--data-root", type=Path, default=DATA_ROOT, help="where the data is")
    parser.add_argument("--work", type=Path, default=WORK, help="where trainings are kept")
    parser.add_argument("--out", type=Path, default=result_file.RESULTS, help="where results go")
    given = parser.parse_args()
    torch.set_num_threads(1)  # what a step takes should not depend on who else is there

    def cases(
        settings: Sequence[Setting], seeds: Sequence[int], work: Path = given.work
    ) -> list[Case]:
        return [
            Case(setting, seed, given.data_root, work) for setting in settings for seed in seeds
        ]

    if given.quick:
        names, seeds = given.setting or QUICK, given.seed or SEEDS[:1]
        quick = [replace(SETTINGS[name], epochs=QUICK_EPOCHS) for name in names]
        with tempfile.TemporaryDirectory() as folder:
            cache = Cache(Path(folder, "cache"))
            few = cases(quick, seeds, Path(folder))
            for case in few:
                _complete(case, cache)
            print("\n" + report(few, cache)[-1], end="")
        return
    cache = Cache(given.out)
    if not given.report:
        given.work.mkdir(parents=True, exist_ok=True)
        wanted = [SETTINGS[name] for name in given.setting or SETTINGS]
        for case in cases(wanted, given.seed or SEEDS):
            _complete(case, cache)
    tables, made_with, words = report(cases(list(SETTINGS.values()), SEEDS), cache)
    print("\n" + words, end="")
    result_file.write(
        "detection",
        {"settings": tables, "measurements": cache.all()},
        in_markdown(list(tables.values())),
        **FACTS,
        made_with=made_with,
        folder=given.out,
    )


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit("stopped; the same command goes on with what is not there yet") from None
