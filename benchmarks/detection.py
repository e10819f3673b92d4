"""How well an audit finds wrong labels, what it says about itself, and whether its changes help.

Every cell of `cells.py` is a data set with a known share of wrong labels. For each cell and seed
the same network learns the same labels by the same recipe:

- once with ProSelfLC, which our audit judges together with a second opinion, as `train` does;
- with cross entropy on three quarters of the examples, four times; cleanlab's default judges what
  the models say about the quarter that they have not seen, and so does our audit (`audit --folds`).

Beside them, cleanlab's default judges scikit-learn's logistic regression and random forest on the
same columns (pixels, numbers, words) by four folds, and histogram boosting on 50 principal
components of these; these are run where labels are clean or the rate is 0.1 or 0.4.

The rules of the audit were chosen with seeds 100, 1, 2 and 3 on the data sets that
`cells.HELD_BACK` does not name. The reported seeds, and these data sets, chose nothing. Time is
that of one thread.

Trainings are kept in --work, measures in results/detection.json, each with a hash of what it
depends on. Raise SCORING where the audit changes.

    python benchmarks/detection.py                 # what is not there yet, then the tables
    python benchmarks/detection.py --data hausa    # may run beside another
    python benchmarks/detection.py --report        # only the tables
    python benchmarks/detection.py --quick         # wine, one seed, few epochs, no result files
"""

from __future__ import annotations

import argparse
import platform
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import result_file
import torch
from cells import CELLS, DATA, SEEDS, Cell, available
from detection_table import BOOSTING, FOLDED, FOREST, LOGISTIC, NETWORK, OURS, in_markdown, in_words
from filelock import FileLock
from settings import DATA_ROOT
from trainings import FOLDS, WORK, Case

from proselflc.auditing import noise_estimate, verdict, witness
from proselflc.auditing.detection import detection
from proselflc.auditing.plain_features import plain_features
from proselflc.auditing.records import HeldOut, Records
from proselflc.auditing.suspects import LabelOdds
from proselflc.data import labels as labels_of
from proselflc.data.inputs import Bools, Features, Floats, Images, Ints
from proselflc.data.labels import Labels
from proselflc.queue.run_store import hash_options

SCORING = 4
COMPONENTS = 50  # of the columns that boosting learns from
CLASSICAL_RATES = ("0.1", "0.4")
FACTS: dict[str, Any] = {"config": {"scoring": SCORING, "folds": FOLDS}, "seeds": SEEDS}

Row: TypeAlias = dict[str, Any]
Scores: TypeAlias = npt.NDArray[np.floating[Any]]  # [n], low = probably mislabelled


def audit_of_run(case: Case) -> Row:
    """Our audit of one ProSelfLC run, with a second opinion."""
    run, cost = case.run("proselflc")
    return {**_audited(case, Records(run.records_of_training.observed)), "trained": cost.seconds}


def audit_of_folds(case: Case) -> Row:
    """Our audit of the same run with the predictions of folds."""
    run, cost = case.run("proselflc")
    _, p, more = case.folds()
    records = Records(run.records_of_training.observed, HeldOut(FOLDS, p.astype(np.float16)))
    return {**_audited(case, records), "trained": cost.seconds + more.seconds}


def _audited(case: Case, records: Records) -> Row:
    labels = case.run("proselflc")[0].labels
    given, clean, C = labels.given, labels.clean, len(labels.names)
    assert clean is not None
    begin = time.process_time()
    second = witness.of_inputs(case.dataset.train.inputs, given, C)
    records = replace(records, witness=second)
    found = verdict.assess(records, given, labels.names)
    seconds = time.process_time() - begin
    scores, suspect = found.scores, found.scores.suggested != given
    # What following the suspects would give if the rate of wrong labels were known.
    odds = LabelOdds(records, given, noise_estimate.joint(records, given, C))
    sure = odds.wrong(float(labels.flipped.mean())) > 0.5
    return {
        **_measured(labels, suspect, scores.quality),
        "rate": found.noise.rate,
        "low": found.noise.low,
        "high": found.noise.high,
        "stated_precision": found.expected_precision,
        "accuracy": found.judge.accuracy,
        "is_weak": found.judge.is_weak,
        "changed": float(scores.change.mean()),
        "right_by_change": _right(np.where(scores.change, scores.suggested, given), clean),
        "right_by_suspects": _right(scores.suggested, clean),
        "right_by_known_rate": _right(np.where(sure, odds.other, given), clean),
        "warnings": [warning.code for warning in found.warnings],
        "audited": seconds,
    }


def cleanlab_with_network(case: Case) -> Row:
    """cleanlab's default with the same network by folds."""
    labels, p, cost = case.folds()
    return {**_cleanlab(labels, p), "trained": cost.seconds}


def cleanlab_with(make: Callable[[], Any], components: int | None) -> Callable[[Case], Row]:
    """Return cleanlab's default with a classifier of scikit-learn by folds."""

    def take(case: Case) -> Row:
        from sklearn.decomposition import PCA
        from sklearn.model_selection import StratifiedKFold

        labels = labels_of.from_dataset(case.dataset, None)
        given, C = labels.given, len(labels.names)
        columns = _columns(case)
        begin = time.process_time()
        if components is not None and columns.shape[1] > components:
            columns = PCA(components, random_state=0).fit_transform(columns)
        p = np.zeros((len(given), C))
        split = StratifiedKFold(FOLDS, shuffle=True, random_state=case.seed)
        for seen, held_out in split.split(given, given):
            model = make().fit(columns[seen], given[seen])
            p[np.ix_(held_out, model.classes_)] = model.predict_proba(columns[held_out])
        return {**_cleanlab(labels, p), "trained": time.process_time() - begin}

    return take


def _columns(case: Case) -> Floats:
    """Return [n, D] the inputs as columns: pixels, numbers, or word features."""
    inputs = case.dataset.train.inputs
    if isinstance(inputs, Images):
        pixels: Floats = (inputs.pixels.reshape(len(inputs), -1) / 255).astype(np.float32)
        return pixels
    if isinstance(inputs, Features):
        return inputs.values
    features = plain_features(inputs)
    assert features is not None
    return features.values


def _cleanlab(labels: Labels, p: npt.NDArray[np.floating]) -> Row:
    """Return what cleanlab's defaults find; a flagged label becomes the likeliest class."""
    from cleanlab.filter import find_label_issues  # type: ignore[import-untyped]
    from cleanlab.rank import get_label_quality_scores  # type: ignore[import-untyped]

    p = np.asarray(p, np.float64)
    p = p / p.sum(1, keepdims=True)
    flags = np.asarray(find_label_issues(labels.given, p, n_jobs=1))
    assert labels.clean is not None
    return {
        **_measured(labels, flags, np.asarray(get_label_quality_scores(labels.given, p))),
        "right_by_suspects": _right(np.where(flags, p.argmax(1), labels.given), labels.clean),
        "audited": 0.0,
    }


def _measured(labels: Labels, flagged: Bools, quality: Scores) -> Row:
    return {
        **asdict(detection(flagged, quality, labels.flipped)),
        "flagged": float(flagged.mean()),
        "truth": float(labels.flipped.mean()),
        "examples": len(labels.given),
    }


def _right(labels: Ints, clean: Ints) -> float:
    return float((labels == clean).mean())


def _logistic() -> Any:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=200))


def _forest() -> Any:
    from sklearn.ensemble import RandomForestClassifier

    return RandomForestClassifier(random_state=0)


def _boosting() -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier

    return HistGradientBoostingClassifier(random_state=0)


@dataclass(frozen=True)
class Measurement:
    """Something that is measured of a case, and kept by itself."""

    take: Callable[[Case], Row]
    depends: Mapping[str, object]
    classical: bool = False


MEASUREMENTS = {
    OURS: Measurement(audit_of_run, {"scoring": SCORING}),
    FOLDED: Measurement(audit_of_folds, {"scoring": SCORING}),
    NETWORK: Measurement(cleanlab_with_network, {}),
    LOGISTIC: Measurement(cleanlab_with(_logistic, None), {}, classical=True),
    FOREST: Measurement(cleanlab_with(_forest, None), {}, classical=True),
    BOOSTING: Measurement(cleanlab_with(_boosting, COMPONENTS), {}, classical=True),
}


def _is_wanted(name: str, cell: Cell) -> bool:
    if not MEASUREMENTS[name].classical or cell.noise is None:
        return True
    return cell.noise.split(":")[-1] in CLASSICAL_RATES


@dataclass(frozen=True)
class Cache:
    """The measurements in the result, each with a hash of all that it depends on."""

    folder: Path

    def all(self) -> dict[str, dict[str, Any]]:
        """Return every measurement, by case."""
        before = result_file.read("detection", self.folder)
        return {} if before is None else dict(before["found"])

    def rows(self, case: Case) -> dict[str, Row]:
        """Return the measurements of a case that are valid."""
        kept = self.all().get(_name(case), {})
        return {
            name: kept[name]
            for name in MEASUREMENTS
            if name in kept and kept[name]["key"] == _key(case, name)
        }

    def complete(self, case: Case, names: Sequence[str]) -> None:
        """Take every measurement that is not there; each is written when it is taken."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for name in names:
            if name in self.rows(case) or not _is_wanted(name, case.setting):
                continue
            row = {"key": _key(case, name), **MEASUREMENTS[name].take(case)}
            with FileLock(case.work / "detection.lock"):
                both = {**self.all(), _name(case): {**self.rows(case), name: row}}
                found = dict(sorted(both.items()))
                result_file.save(
                    "detection", found, folder=self.folder, **FACTS, made_with=_versions()
                )
            print(f"{_name(case)}, {name}: F1 {row['f1'] or 0:.3f}", flush=True)


def _name(case: Case) -> str:
    return f"{case.setting.name}-{case.seed}"


def _key(case: Case, name: str) -> str:
    return hash_options({**case.depends, **MEASUREMENTS[name].depends, "name": name})


def _versions() -> str:
    import cleanlab  # type: ignore[import-untyped]
    import sklearn

    return (
        f"python {platform.python_version()}, torch {torch.__version__}, numpy {np.__version__}, "
        f"scikit-learn {sklearn.__version__}, cleanlab {cleanlab.__version__}, "
        f"{platform.machine()}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", action="append", choices=DATA, help="only this one")
    parser.add_argument("--seed", action="append", type=int, choices=SEEDS, help="only this one")
    parser.add_argument("--only", action="append", choices=MEASUREMENTS, help="only this one")
    parser.add_argument("--quick", action="store_true", help="wine, one seed, no result files")
    parser.add_argument("--report", action="store_true", help="measure nothing, only show")
    parser.add_argument("--data-root", type=Path, default=DATA_ROOT, help="where the data is")
    parser.add_argument("--work", type=Path, default=WORK, help="where trainings are kept")
    parser.add_argument("--out", type=Path, default=result_file.RESULTS, help="where results go")
    given = parser.parse_args()
    torch.set_num_threads(1)  # what a step takes should not depend on who else is there
    names = given.only or list(MEASUREMENTS)
    if given.quick:
        cell = replace(CELLS["wine-symmetric-0.1"], epochs=5)
        with tempfile.TemporaryDirectory() as folder:
            case = Case(cell, SEEDS[0], given.data_root, Path(folder))
            cache = Cache(Path(folder, "cache"))
            cache.complete(case, names)
            print("\n" + in_words([(cell, SEEDS[0], cache.rows(case))]), end="")
        return
    cache = Cache(given.out)
    every = [
        Case(cell, seed, given.data_root, given.work) for cell in CELLS.values() for seed in SEEDS
    ]
    if not given.report:
        given.work.mkdir(parents=True, exist_ok=True)
        for case in every:
            is_wanted = case.setting.data in (given.data or DATA)
            is_wanted &= case.seed in (given.seed or SEEDS)
            if is_wanted and available(case.setting, given.data_root):
                cache.complete(case, names)
    found = cache.all()
    measured = [(c.setting, c.seed, found[_name(c)]) for c in every if _name(c) in found]
    print("\n" + in_words(measured), end="")
    result_file.write(
        "detection",
        found,
        in_markdown(measured),
        **FACTS,
        made_with=_versions(),
        folder=given.out,
    )


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit("stopped; the same command goes on with what is not there yet") from None
