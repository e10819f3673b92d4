"""The trials of one stage of a search: their values, proposals for the next, and pruning.

Everything is computed from the entries of the queue in their order, which Optuna's sampler, pruner
and evaluator see as a study in memory. So nothing depends on when a worker was killed.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from proselflc.queue.run_queue import Claim, Entry, Queue
from proselflc.searching import search_space
from proselflc.searching.search_space import Candidates, Chosen, Values

if TYPE_CHECKING:
    import optuna
    from optuna.distributions import BaseDistribution
    from optuna.trial import TrialState

DECILES = 10  # points at which a trial is compared with the others
FIRST_DECILE = 5  # the first at which it may be pruned: Γ/2
STARTUP = 4  # complete trials before any is pruned
ENOUGH = 8  # complete trials before importance is computed


@dataclass(frozen=True)
class TrialRecord:
    """The current state of a trial."""

    number: int  # its place in the queue, from 0
    state: str  # "waiting", "running", "complete", "pruned" or "diverged"
    values: Chosen  # as far as they are fixed yet
    accuracy: float | None = None  # validation accuracy at the end of training, if it is complete
    seconds: float | None = None  # from its first claim to its end
    run: str = ""

    @property
    def is_over(self) -> bool:
        """Return whether it is complete, pruned or diverged."""
        return self.state not in ("waiting", "running")


def best(records: Sequence[TrialRecord]) -> TrialRecord | None:
    """Return the trial with the highest validation accuracy; ties go to the first."""
    done = [trial for trial in records if trial.state == "complete" and trial.accuracy is not None]
    return max(done, key=lambda trial: (trial.accuracy or 0.0, -trial.number), default=None)


@dataclass(frozen=True)
class Trials:
    """The trials of one stage."""

    queue: Queue
    candidates: Mapping[str, Candidates]
    count: int  # of trials, if there is a range among the candidates
    seed: int
    prune: bool  # whether a trial that is behind is ended early

    @property
    def size(self) -> int:
        """Return the number of trials."""
        return len(self._planned)

    def records(self) -> list[TrialRecord]:
        """Return all trials, in their order."""
        entries = self.queue.entries()
        planned = enumerate(self._planned)
        return [_record(k, entries.get(k, Entry()), values) for k, values in planned]

    def claim(self) -> Claim | None:
        """Claim the next trial and fix its values; return None if there is none at the moment."""
        claim = self.queue.claim(range(self.size))
        if claim is not None:
            ranges = {name: _distribution(found) for name, found in self.candidates.items()}
            known = {**claim.values, **self._planned[int(claim.name)]}
            if known.keys() != ranges.keys():
                known = self._proposed(int(claim.name), ranges, known)
            if claim.values != known:
                claim.fix(known, ranges)
        return claim

    def is_behind(self, claim: Claim, progress: float, accuracy: float) -> bool:
        """Return whether to prune a trial: it is past Γ/2 and behind the median of the others.

        `progress` is t/Γ, and `accuracy` the validation accuracy at that point.
        """
        import optuna

        decile = min(int(progress * DECILES + 1e-9), DECILES)
        if not self.prune or decile in claim.reports:
            return False
        claim.report(decile, accuracy)
        if decile < FIRST_DECILE:
            return False
        pruner = optuna.pruners.MedianPruner(n_startup_trials=STARTUP, n_warmup_steps=FIRST_DECILE)
        trial = optuna.trial.create_trial(
            state=optuna.trial.TrialState.RUNNING, intermediate_values=claim.reports
        )
        return pruner.prune(self._study(optuna.trial.TrialState.COMPLETE), trial)

    def importance(self) -> dict[str, float]:
        """Return the share of the variance between trials that each parameter explains.

        The shares sum to 1; without enough trials or parameters there are none.
        """
        import optuna

        study = self._study(optuna.trial.TrialState.COMPLETE)
        done = study.get_trials(deepcopy=False)
        if len(self.candidates) < 2 or len(done) < ENOUGH or len({t.value for t in done}) < 2:
            return {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            evaluator = optuna.importance.FanovaImportanceEvaluator(seed=self.seed)
            found = optuna.importance.get_param_importances(study, evaluator=evaluator)
        return {name: float(share) for name, share in found.items()}

    @property
    def _planned(self) -> Sequence[Chosen]:
        """Return the values of every trial; empty for trials whose values will be proposed."""
        if search_space.is_grid(self.candidates):
            return list(search_space.grid(self.candidates))
        return [{}] * self.count

    def _proposed(
        self, number: int, ranges: dict[str, BaseDistribution], known: Chosen
    ) -> dict[str, Any]:
        """Return values by TPE, which depend on the seed, the number and the other trials."""
        import optuna
        from optuna.trial import TrialState

        states = (TrialState.RUNNING, TrialState.COMPLETE, TrialState.PRUNED)
        study = self._study(*states, exclude=number)
        text = f"{self.seed} {number}".encode()
        seed = int.from_bytes(hashlib.sha256(text).digest()[:4], "big")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            study.sampler = optuna.samplers.TPESampler(
                seed=seed, multivariate=True, constant_liar=True
            )
        return {**study.ask(ranges).params, **known}

    def _study(self, *states: TrialState, exclude: int | None = None) -> optuna.Study:
        """Return a study in memory of the trials in these states, in their order."""
        import optuna

        study = optuna.create_study(direction="maximize")
        entries = self.queue.entries()
        for number in range(self.size):
            current = entries.get(number, Entry()).current
            if current is not None and current.state in states and number != exclude:
                study.add_trial(current)
        return study


def _distribution(candidates: Candidates) -> BaseDistribution:
    from optuna import distributions

    if isinstance(candidates, Values):
        return distributions.CategoricalDistribution(list(candidates.values))
    if candidates.is_whole:
        return distributions.IntDistribution(
            int(candidates.low), int(candidates.high), log=candidates.is_log
        )
    return distributions.FloatDistribution(candidates.low, candidates.high, log=candidates.is_log)


def _record(number: int, entry: Entry, planned: Chosen) -> TrialRecord:
    from optuna.trial import TrialState

    trial = entry.current
    values = {**planned, **entry.values}
    if trial is None:
        return TrialRecord(number, "waiting", values)
    state = "diverged" if trial.state == TrialState.FAIL else trial.state.name.lower()
    began = next((one.datetime_start for one in entry.attempts if one.datetime_start), None)
    ended = trial.datetime_complete
    return TrialRecord(
        number,
        state,
        values,
        trial.value if trial.state == TrialState.COMPLETE else None,
        None if began is None or ended is None else (ended - began).total_seconds(),
        str(trial.user_attrs.get("run", "")),
    )
