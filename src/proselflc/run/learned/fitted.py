"""A run whose labels are learned by trees or by an estimator, not by a network in the loop.

It has the same directory as a network's: every round is recorded as an epoch. Trees memorise the
labels that they are grown from, so the rows are also divided into folds, and each row is predicted
by a model that did not see it. The audit judges the labels by the mean of these predictions over
the rounds, and by a forest (`judges`). The saved model is then fitted again, with each doubtful row
weighted between its given and its suggested label.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from proselflc import methods
from proselflc.auditing import verdict
from proselflc.auditing.caveats import label_warnings
from proselflc.auditing.fitting import Fitting
from proselflc.auditing.records import Records
from proselflc.auditing.verdict import Compared
from proselflc.data.batches import Batch
from proselflc.data.dataset import Dataset, Part
from proselflc.data.inputs import Floats, Inputs
from proselflc.data.labels import Labels
from proselflc.data.memory_budget import require
from proselflc.data.preprocessing import Preprocessing
from proselflc.data.serving import fit as fit_preprocessing
from proselflc.data.tables.encoding import for_trees
from proselflc.files.manifest import Written
from proselflc.learners import learner as learners
from proselflc.learners.catalogue import make
from proselflc.learners.learner import Doubles, Fitted, LabelledTable, Learner
from proselflc.learners.rows import columns_for_trees
from proselflc.run import neighbours, resumption, unlabelled
from proselflc.run.config import Config
from proselflc.run.fold_splits import split_examples
from proselflc.run.learned import judges, options
from proselflc.run.learned import state as state_of
from proselflc.run.learned.judges import FOLDS
from proselflc.run.observers import History
from proselflc.run.prepare import LabelledData, noise_seed
from proselflc.run.summary import history_line, measures_of, write_model, write_results
from proselflc.terminal import Display, Interrupted, stopping_on_signals
from proselflc.training import checkpoint
from proselflc.training.checkpoint import State
from proselflc.training.loop import Observer
from proselflc.training.observations import Epochs, Recorder, observe
from proselflc.training.run_directory import Json, RunDirectory
from proselflc.training.strategy import CorrectedBatch, RunContext, Strategy
from proselflc.wording import option

MOST_RECORDS = 30  # rounds that are recorded, evenly spaced
_ROWS = 1 << 16  # recorded at once
# Of memory per number of the rows and the predictions, beside the data. Trees took 2.25 GB more
# than the network for 5,000,000 rows of 20 columns (benchmarks/results/large_table.md).
_BYTES = 24
_LEAST = 1e-12  # probability whose logarithm is recorded


@dataclass(frozen=True)
class PreparedTable:
    """Everything that learning a table needs and that never changes."""

    config: Config  # with every default filled in
    dataset: Dataset
    labels: Labels
    preprocessing: Preprocessing
    learner: Learner
    strategy: Strategy  # computes what a round would teach, for the records
    leaking: tuple[str, ...] = ()  # columns that predict every label perfectly

    def rows(self, inputs: Inputs) -> Floats:
        """Return [n, D] inputs as the learner takes them."""
        if self.learner.takes_codes:
            return for_trees(self.preprocessing, inputs)[0]
        dense: Floats = self.preprocessing(inputs).numpy()
        return dense

    @cached_property
    def table(self) -> LabelledTable:
        """Return the training part as the learner takes it."""
        inputs, weight = self.dataset.train.inputs, self.dataset.sample_weight
        weights = None if weight is None else np.maximum(weight.astype(np.float64), 1e-12)
        categorical = None
        if self.learner.takes_codes:
            x, categorical = for_trees(self.preprocessing, inputs)
        else:
            x = self.rows(inputs)
        return LabelledTable(x, self.labels.given, len(self.labels.names), categorical, weights)


def prepare_table(
    data: LabelledData, preprocessing: Preprocessing | None, learner: Learner | None = None
) -> PreparedTable:
    """Return a run whose config names a learner of tables, ready to begin."""
    config, dataset, labels = data.config, data.dataset, data.labels
    name, recipe = config.model or "", config.recipe
    options.check(config, dataset)
    n, C = len(dataset.train), dataset.num_classes
    if preprocessing is not None:
        preprocessing.check(dataset.train.inputs)
    else:
        preprocessing = fit_preprocessing(dataset.train.inputs)
    learner = learner or make(name, recipe.epochs, recipe.lr, recipe.seed)
    D = columns_for_trees(preprocessing) or 0
    require(
        _BYTES * n * (C + D),
        f"learning {n:,} rows of {D:,} columns and {C:,} classes by {name}",
        f"use fewer rows, or a network with {option('model', 'mlp')}",
    )
    rate: float | None = getattr(learner, "learning_rate", None)  # an estimator has none
    parameters = methods.resolved(config.method, config.parameters)
    resolved = replace(
        config,
        parameters=parameters.given(),
        augment="none",
        recipe=replace(recipe, epochs=learner.rounds, lr=rate),
        noise=None if config.noise is None else labels.generator,
        noise_seed=noise_seed(config) if config.noise is not None else None,
    )
    context = RunContext(
        total_steps=learner.rounds,
        batches=1,
        given=labels.given,
        names=dataset.names,
        preprocessing=preprocessing,
        model=name,
        seed=recipe.seed,
    )
    strategy = methods.strategy(config.method, parameters, context)
    return PreparedTable(resolved, dataset, labels, preprocessing, learner, strategy, data.leaking)


class FittedRun:
    """A run of a learner of tables, with the methods of `TrainingRun`."""

    def __init__(
        self,
        prepared: PreparedTable,
        directory: RunDirectory,
        display: Display,
        *,
        is_audited: bool = True,
    ) -> None:
        self.prepared = prepared
        self.directory = directory
        self.display = display
        self.is_audited = is_audited
        n, C = len(prepared.labels.given), len(prepared.labels.names)
        self.stride = -(-prepared.learner.rounds // MOST_RECORDS)
        records = -(-prepared.learner.rounds // self.stride)
        self.recorder = Recorder(directory.dynamics, n, C, records)
        self.written = Written(directory.path)
        self.history = History(directory)
        self.notes: list[str] = []
        self.done = 0  # models that have been fitted: all rows first, then without each fold
        self.seconds = 0.0
        self.p = torch.full((n, C), torch.nan, dtype=torch.float16)  # while held out
        self._saved_at, self._saved = time.monotonic(), -1
        folds = min(FOLDS, n // 2) if is_audited else 0
        seed = prepared.config.recipe.seed
        self.splits = split_examples(prepared.labels, folds, seed) if folds >= 2 else ()

    @cached_property
    def fitted(self) -> Fitted:
        """The learner after it has learned all rows."""
        return self.prepared.learner.fit(self.prepared.table)

    def begin(self, resume: bool) -> None:
        """Restore the last checkpoint, or write what a new run begins with."""
        prepared, directory = self.prepared, self.directory
        state = state_of.last(directory, prepared, self.display) if resume else None
        if state is not None:
            self._restore(state)
            directory.sweep()
            return
        if resume and directory.is_begun:
            self.display.note(f"{directory.path} holds no checkpoint yet: the run begins")
        directory.clear()
        prepared.config.write(directory.config, prepared.labels.fingerprint)
        prepared.labels.save(directory.labels)
        for path in directory.listed():
            self.written.add(path)

    def learn(self, observers: Sequence[Observer] = ()) -> bool:
        """Fit all models; return True, since they are always all fitted."""
        self.display.begin(self._titles(), 0, self.prepared.learner.rounds)
        self._saved_at = time.monotonic()
        if self.done == 0:
            self._record((self.history, *observers))
            self._complete(1)
        for k, split in enumerate(self.splits, 2):
            if self.done < k:
                start = time.monotonic()
                table = self.prepared.table
                fitted = self.prepared.learner.fit(table.take(split.train))
                p = learners.mean_over_rounds(fitted, table.x[split.validation])
                self.p[torch.from_numpy(split.validation)] = torch.from_numpy(p).half()
                self.seconds += time.monotonic() - start
                self._complete(k)
        self._save()
        return True

    def finish(self) -> None:
        """Write the model, the neighbours, the audit and the summary."""
        prepared, directory, labels = self.prepared, self.directory, self.prepared.labels
        self.recorder.end()
        held, seed = None, prepared.config.recipe.seed
        compared = self._compared() if self.is_audited else Compared()
        if self.splits:
            held = judges.judged(self.p.float().numpy(), len(self.splits), compared)
            judges.write(directory, labels, held, seed)
        fitted, corrected = self.fitted, 0
        if self.is_audited and prepared.config.method != "cce" and fitted.module() is not None:
            records = Records(
                Epochs(directory.dynamics, self.written.checked), held, compared.witness
            )
            found = verdict.assess(records, labels.given, labels.names, labels.trusted).scores
            corrected = int((found.suggested != labels.given).sum())
            if corrected:
                table = prepared.table.corrected(found.suggested, found.quality)
                fitted = prepared.learner.fit(table)
        apart = prepared.dataset.unlabelled
        if apart is not None:
            unlabelled.write(directory, self._logits(fitted, apart.part.inputs))
        write_model(directory, prepared, fitted.module())
        write_results(
            directory,
            self.written,
            labels,
            self.history.lines,
            method=prepared.config.method,
            data=prepared.dataset.name,
            seed=seed,
            steps=prepared.learner.rounds,
            seconds=round(self.seconds, 3),
            measured=self._measures(fitted),
            facts={"corrected_rows": corrected} if corrected else {},
            notes=self.notes,
            warnings=tuple(label_warnings(prepared.config.table(), prepared.leaking)),
            compared=compared,
            held_out=held,
        )

    def stop_signals(self) -> AbstractContextManager[None]:
        """Let signals stop the run at once; the models that are fitted are kept."""
        return stopping_on_signals()

    @contextmanager
    def resumable(self) -> Iterator[None]:
        """Save the state if a signal stops the run, and say how to continue."""
        try:
            yield
        except KeyboardInterrupt:
            self._save()
            total, again = len(self.splits) + 1, resumption.command(self.prepared, self.directory)
            if self._saved < 1:
                advice = f"nothing is saved yet; begin again with: {again}"
            else:
                advice = f"the state is saved; resume with: {again}"
            raise Interrupted(f"stopped after {self.done} of {total} models", advice) from None

    def _record(self, observers: Sequence[Observer]) -> None:
        """Learn all rows, and record every round as an epoch."""
        prepared = self.prepared
        start = time.monotonic()
        rounds = prepared.learner.rounds
        parts = {"test": prepared.dataset.test, "val": prepared.dataset.validation}
        staged = {
            name: self.fitted.staged(prepared.rows(part.inputs))
            for name, part in parts.items()
            if part is not None
        }
        record = 0
        for k, p in enumerate(self.fitted.staged(prepared.table.x), 1):
            others = {name: next(stages) for name, stages in staged.items()}
            self.display.step(k, {"round": float(k)})
            if k % self.stride and k < rounds:
                continue
            fitting = self._observe(p, k / rounds, record)
            self.written.add(self.recorder.end_epoch(record))
            record += 1
            seconds = self.seconds + time.monotonic() - start
            line = history_line(
                fitting.result(),
                step=k,
                epoch=record,
                progress=k / rounds,
                test_accuracy=_accuracy(others.get("test"), prepared.dataset.test),
                val_accuracy=_accuracy(others.get("val"), prepared.dataset.validation),
                lr=prepared.config.recipe.lr,
                g=prepared.strategy.global_trust(k / rounds),
                seconds=seconds,
                images_per_second=len(p) * k / max(seconds, 1e-9),
            )
            self.display.point(line)
            for observer in observers:
                observer.after_evaluation(line)
        self.seconds += time.monotonic() - start

    def _observe(self, p: Doubles, progress: float, record: int) -> Fitting:
        """Record the predictions [n, C] of a round, and return what is measured of them."""
        labels, recorder = self.prepared.labels, self.recorder
        measures = Fitting(p.shape[1], labels.clean is not None)
        for index in torch.split(torch.arange(len(p)), _ROWS):
            z = torch.from_numpy(np.log(np.maximum(p[index.numpy()], _LEAST))).float()
            given = torch.from_numpy(labels.given[index.numpy()])
            clean = None
            if labels.clean is not None:
                clean = torch.from_numpy(labels.clean[index.numpy()])
            batch = Batch(z, given, index)
            corrected = CorrectedBatch(self.prepared.strategy, z, batch, progress)
            recorder.add(record, observe(corrected, means=recorder.wants_means(record)))
            predicted = corrected.evidence.log_p.argmax(-1)
            measures.add_measured(predicted, corrected.entropy, given, clean, corrected.trust)
        return measures

    def _measures(self, fitted: Fitted) -> Json:
        """Return what `evaluation.json` holds."""
        dataset, result = self.prepared.dataset, {}
        for name, part in (("validation", dataset.validation), ("test", dataset.test)):
            if part is not None:
                z = self._logits(fitted, part.inputs)
                y = torch.from_numpy(part.labels)
                result[name] = measures_of(name, z, y, dataset.num_classes)
        return dict(result)

    def _logits(self, fitted: Fitted, inputs: Inputs) -> Tensor:
        """Return [m, C] the logarithms of the last predictions for m rows."""
        p = learners.predictions(fitted, self.prepared.rows(inputs))
        return torch.from_numpy(np.log(np.maximum(p, _LEAST))).float()

    def _compared(self) -> Compared:
        """Return what the inputs say about the labels, and write the neighbours."""
        prepared = self.prepared
        given, preprocessing = prepared.labels.given, prepared.preprocessing
        return neighbours.compare_parts(
            self.directory, prepared.dataset, given, preprocessing, self._note
        )

    def _complete(self, done: int) -> None:
        """Note that a model has been fitted, and save the state every few seconds."""
        self.done = done
        if time.monotonic() - self._saved_at >= self.prepared.config.checkpoint_seconds:
            self._save()

    def _save(self) -> None:
        if self.done == self._saved or self.done == 0:
            return
        tensors: dict[str, Tensor] = {"held_out": self.p}
        for name, value in self.recorder.tensors().items():
            tensors[f"recorder.{name}"] = value
        facts: Json = {
            **state_of.facts(self.prepared),
            "seconds": self.seconds,
            **resumption.files(self.written, self.history.content()),
        }
        checkpoint.write(self.directory.checkpoints, State(self.done, tensors, facts))
        self._saved, self._saved_at = self.done, time.monotonic()

    def _restore(self, state: State) -> None:
        """Continue from a checkpoint, which must be one of this run."""
        held, seconds = state.tensors.get("held_out"), state.facts.get("seconds")
        fits = held is not None and (held.shape, held.dtype) == (self.p.shape, self.p.dtype)
        fits &= isinstance(seconds, float) and 1 <= state.step <= len(self.splits) + 1
        if not fits or held is None:
            raise state_of.another_run(self.directory)
        self.history.read(self.prepared.learner.rounds)
        content = self.history.content()
        self.written = resumption.check_files(state, self.directory, content)
        records = len(self.history.lines)
        self.recorder.restore(checkpoint.part(state.tensors, "recorder"), records)
        self.directory.reopen()
        self.p.copy_(held)
        self.seconds = float(str(seconds))
        self.done = self._saved = state.step

    def _note(self, sentence: str) -> None:
        self.display.note(sentence)
        self.notes.append(sentence)

    def _titles(self) -> tuple[str, str]:
        """Return two lines that describe the data and the learning."""
        config, labels = self.prepared.config, self.prepared.labels
        n, C = len(labels.given), len(labels.names)
        data = f"{self.prepared.dataset.name}: {n:,} examples of {C} classes"
        if labels.clean is not None:
            data += f", {labels.flipped.mean():.1%} of the labels wrong"
        rounds = self.prepared.learner.rounds
        return data, (
            f"{config.method} with {config.model}, {rounds:,} round{'s' * (rounds != 1)}, into "
            f"{self.directory.path}"
        )


def _accuracy(p: Doubles | None, part: Part | None) -> float | None:
    """Return the accuracy of probabilities [n, C] on a part, or None if there is no such part."""
    if p is None or part is None:
        return None
    return float((p.argmax(1) == part.labels).mean())
