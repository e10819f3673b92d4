"""The trials of one stage of a search: their values, what is proposed next, and which to prune.

All of it is computed from the entries of the queue in their order, which Optuna's sampler, pruner
and evaluator see as a study in memory. So nothing depends on which worker died when.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from proselflc.queue.run_queue import Claim, Entry, Queue
from proselflc.searching import search_space
from proselflc.searching.search_space import Choice, Chosen, Values

if TYPE_CHECKING:
    import optuna
    from optuna.distributions import BaseDistribution
    from optuna.trial import TrialState

DECILES = 10  # points of a trial at which it is compared with others
FIRST_DECILE = 5  # of them that may end it: Γ/2
STARTUP = 4  # trials that come to their end before any is ended
ENOUGH = 8  # trials for saying which parameters matter

State = Literal["waiting", "running", "complete", "pruned", "diverged"]


@dataclass(frozen=True)
class Record:
    """A trial as it stands.

    Attributes:
        number: its place in the queue, from 0.
        state: what became of it.
        values: that were tried, as far as they are known yet.
        accuracy: on the validation examples at the end of its training; None without one.
        seconds: from when it was first claimed to its end.
        run: the name of its run.
    """

    number: int
    state: State
    values: Chosen
    accuracy: float | None = None
    seconds: float | None = None
    run: str = ""

    @property
    def is_over(self) -> bool:
        return self.state not in ("waiting", "running")


def best(records: Sequence[Record]) -> Record | None:
    """The trial with the highest validation accuracy, of equal ones the first; None without one."""
    done = [one for one in records if one.state == "complete" and one.accuracy is not None]
    return max(done, key=lambda one: (one.accuracy or 0.0, -one.number), default=None)


@dataclass(frozen=True)
class Trials:
    """The trials of one stage.

    Attributes:
        queue: where workers claim them.
        choices: what may be chosen.
        count: how many there are, where not all choices can be tried.
        seed: of what is proposed.
        prune: whether a trial that is behind is ended early.
    """

    queue: Queue
    choices: Mapping[str, Choice]
    count: int
    seed: int
    prune: bool

    @property
    def size(self) -> int:
        """Return how many trials there are."""
        return len(self._planned)

    def records(self) -> list[Record]:
        """Return all trials, in their order."""
        entries = self.queue.entries()
        planned = enumerate(self._planned)
        return [_record(k, entries.get(k, Entry()), values) for k, values in planned]

    def claim(self) -> Claim | None:
        """Claim the next trial and fix its values; return None if there is none at the moment."""
        claim = self.queue.claim(range(self.size))
        if claim is not None:
            ranges = {name: _distribution(one) for name, one in self.choices.items()}
            known = {**claim.values, **self._planned[int(claim.name)]}
            if known.keys() != ranges.keys():
                known = self._proposed(int(claim.name), ranges, known)
            if claim.values != known:
                claim.fix(known, ranges)
        return claim

    def is_behind(self, claim: Claim, progress: float, accuracy: float) -> bool:
        """Return whether a trial may end: it is past Γ/2 and behind the median of the others.

        Args:
            claim: of the trial.
            progress: t/Γ.
            accuracy: on the validation examples.
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
        """Return how much of the difference between trials each parameter makes; the sum is 1.

        Empty where there are too few trials, or parameters, to say so.
        """
        import optuna

        study = self._study(optuna.trial.TrialState.COMPLETE)
        done = study.get_trials(deepcopy=False)
        if len(self.choices) < 2 or len(done) < ENOUGH or len({t.value for t in done}) < 2:
            return {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            evaluator = optuna.importance.FanovaImportanceEvaluator(seed=self.seed)
            found = optuna.importance.get_param_importances(study, evaluator=evaluator)
        return {name: float(share) for name, share in found.items()}

    @property
    def _planned(self) -> Sequence[Chosen]:
        """Return the values of every trial; of those that are to be proposed, none."""
        if search_space.is_grid(self.choices):
            return list(search_space.grid(self.choices))
        return [{}] * self.count

    def _proposed(
        self, number: int, ranges: dict[str, BaseDistribution], known: Chosen
    ) -> dict[str, Any]:
        """Return values by TPE: a function of the seed, the number and the other trials."""
        import optuna
        from optuna.trial import TrialState

        states = (TrialState.RUNNING, TrialState.COMPLETE, TrialState.PRUNED)
        study = self._study(*states, but=number)
        text = f"{self.seed} {number}".encode()
        seed = int.from_bytes(hashlib.sha256(text).digest()[:4], "big")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            study.sampler = optuna.samplers.TPESampler(
                seed=seed, multivariate=True, constant_liar=True
            )
        return {**study.ask(ranges).params, **known}

    def _study(self, *states: TrialState, but: int | None = None) -> optuna.Study:
        """Return a study in memory of the trials in these states, in their order."""
        import optuna

        study = optuna.create_study(direction="maximize")
        entries = self.queue.entries()
        for number in range(self.size):
            current = entries.get(number, Entry()).current
            if current is not None and current.state in states and number != but:
                study.add_trial(current)
        return study


def _distribution(choice: Choice) -> BaseDistribution:
    from optuna import distributions

    if isinstance(choice, Values):
        return distributions.CategoricalDistribution(list(choice.values))
    if choice.is_whole:
        return distributions.IntDistribution(int(choice.low), int(choice.high), log=choice.is_log)
    return distributions.FloatDistribution(choice.low, choice.high, log=choice.is_log)


def _record(number: int, entry: Entry, planned: Chosen) -> Record:
    from optuna.trial import TrialState

    states: dict[TrialState, State] = {
        TrialState.WAITING: "waiting",
        TrialState.RUNNING: "running",
        TrialState.COMPLETE: "complete",
        TrialState.PRUNED: "pruned",
        TrialState.FAIL: "diverged",
    }
    trial = entry.current
    values = {**planned, **entry.values}
    if trial is None:
        return Record(number, "waiting", values)
    began = next((one.datetime_start for one in entry.attempts if one.datetime_start), None)
    ended = trial.datetime_complete
    return Record(
        number,
        states[trial.state],
        values,
        trial.value if trial.state == TrialState.COMPLETE else None,
        None if began is None or ended is None else (ended - began).total_seconds(),
        str(trial.user_attrs.get("run", "")),
    )
