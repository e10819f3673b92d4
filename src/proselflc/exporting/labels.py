"""The corrected labels of a run as tables, arrays and values in Python."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from proselflc.auditing.examples import check_examples
from proselflc.data.corrections import Corrections
from proselflc.data.dataset import NO_LABEL
from proselflc.data.decisions import Decisions
from proselflc.data.inputs import Bools, Floats, Ints
from proselflc.data.labels import CorrectedLabels, Returned, returned
from proselflc.errors import InputError
from proselflc.files.regular import is_regular
from proselflc.run.corrections import (
    check_corrections,
    correction_notes,
    filled,
    followed,
    has_actions,
    rest_in_words,
)
from proselflc.run.reader import Run, load_run
from proselflc.terminal import Display
from proselflc.training.observations import TOP_CLASSES

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]
    import pyarrow as pa


@dataclass(frozen=True)
class LabelExport:
    """The labels of a run: a person's decision, else the suggestion if it is followed.

    By default a suggestion is followed if its action is "change".

    Attributes:
        run: the run.
        min_confidence: follow the suspects whose suggested label has at least this confidence
            (`p_suggested`).
        only_suspects: omit the other examples.
        reviewed: without `min_confidence`, follow no suggestions.
        suspects: follow all suspects.
        force: use the labels of a run whose audit corrects none.
        fill: use the suggested labels of examples without a label; with `min_confidence`, those
            that have at least this confidence.
    """

    run: Run
    min_confidence: float | None = None
    only_suspects: bool = False
    reviewed: bool = False
    suspects: bool = False
    force: bool = False
    fill: bool = False

    def __post_init__(self) -> None:
        _ = self.wanted  # making it checks the options

    @property
    def wanted(self) -> Corrections:
        """Return which suggestions are followed."""
        return Corrections(self.suspects, self.min_confidence, self.reviewed, self.force, self.fill)

    def check(self) -> None:
        """Refuse a run whose audit corrects no label."""
        check_corrections(self.run, self.wanted, is_reviewed=bool(self._decisions.standing))

    def table(self, *, soft: bool = False) -> pa.Table:
        """Return a row per example, in the order of training.

        | column | holds |
        |---|---|
        | `id` | the example's name |
        | `label` | corrected label; null if there is none |
        | `given_label` | original label; null for an example without one |
        | `is_suspect` | whether the given label is probably wrong, whatever the confidence |
        | `action` | what the audit would do: `keep` the label, ask for a `review`, or `change` \
it; null if an older version made the audit |
        | `quality` | of the given label, in [0, 1]; **low means probably mislabelled** |
        | `confidence` | estimated chance that the suggested label is right, in [0, 1] |
        | `reviewed` | a person's decision, "kept", "corrected" or "unsure"; null if there is none |

        Args:
            soft: add the corrected distribution, a column `p(NAME)` per class; for more than 100
                classes the five likeliest, as `label_1`, `p_1` to `label_5`, `p_5`. Labels that a
                person has decided, and given labels that are kept, have probability 1.
        """
        import pyarrow as pa

        examples = self.examples
        columns = {
            "id": examples["id"],
            "label": self._labels(),
            "given_label": examples["given_label"],
            "is_suspect": examples["is_suspect"],
            "action": self._actions,
            "quality": examples["quality"],
            "confidence": examples["p_suggested"],
            "reviewed": self._reviews,
        }
        if soft:
            names = self.run.labels.names
            probabilities, classes = self._distribution()
            if classes is None:
                for k, name in enumerate(names):
                    columns[f"p({name})"] = pa.array(np.ascontiguousarray(probabilities[:, k]))
            else:
                texts = pa.array(names, pa.string())
                for k in range(classes.shape[1]):
                    columns[f"label_{k + 1}"] = texts.take(pa.array(classes[:, k]))
                    columns[f"p_{k + 1}"] = pa.array(np.ascontiguousarray(probabilities[:, k]))
        return pa.table(columns)

    def issues(self) -> pa.Table:
        """Return a row per example with cleanlab's `CleanLearning.get_label_issues()` columns.

        `is_label_issue`, `label_quality`, `given_label` and `predicted_label`, followed by
        `corrected_label` (`label` of `table`), `id` and `action`.
        """
        import pyarrow as pa

        examples = self.examples
        return pa.table(
            {
                "is_label_issue": examples["is_suspect"],
                "label_quality": examples["quality"],
                "given_label": examples["given_label"],
                "predicted_label": examples["suggested_label"],
                "corrected_label": self._labels(),
                "id": examples["id"],
                "action": self._actions,
            }
        )

    def class_ids_of_issues(self) -> dict[str, Ints]:
        """Return [n] class ids for each column of `issues` that holds labels."""
        examples = self.examples
        return {
            "given_label": self._class_ids(examples["given_label"]),
            "predicted_label": self._class_ids(examples["suggested_label"]),
            "corrected_label": self.labels,
        }

    def write_npz(self, file: IO[bytes], *, soft: bool = False) -> None:
        """Write the arrays `ids`, `labels`, `given`, `names`, `is_suspect`, `quality`, `reviewed`.

        Also `action`, unless an older version made the audit.

        Args:
            file: file to write to; training can read it again.
            soft: add `probabilities` [n, C]; for more than 100 classes `classes` and
                `probabilities`, both [n, 5].
        """
        examples = self.examples
        probabilities, classes = self._distribution() if soft else (None, None)
        CorrectedLabels(
            ids=tuple(examples["id"].to_pylist()),
            labels=self.labels,
            given=self._class_ids(examples["given_label"]),
            names=self.run.labels.names,
        ).save(
            file,
            is_suspect=examples["is_suspect"].to_numpy(),
            quality=_floats(examples["quality"]),
            reviewed=self._decided >= 0,
            action=None if self._is_older else self._actions.to_numpy(),
            probabilities=probabilities,
            classes=classes,
        )

    @cached_property
    def examples(self) -> pa.Table:
        """Return the exported rows of `examples.parquet`."""
        if not is_regular(self.run.directory.examples):
            raise InputError(
                f"the run {self.run.path} has no {self.run.directory.examples.name}, so its labels "
                "were not audited",
                fix="train it again",
            )
        table = self.run.examples
        check_examples(table, self.run.labels, self.run.directory.examples)
        return table.filter(table["is_suspect"]) if self.only_suspects else table

    @cached_property
    def labels(self) -> Ints:
        """Return [n] class ids of the corrected labels."""
        examples = self.examples
        suggested = self._class_ids(examples["suggested_label"])
        given = self._class_ids(examples["given_label"])
        labels: Ints = np.where(self._followed | self._filled, suggested, given)
        return np.where(self._decided >= 0, self._decided, labels)

    @property
    def corrections(self) -> int:
        """Return the number of labels that differ from the given ones, which there must be."""
        given = self._class_ids(self.examples["given_label"])
        return int(((self.labels != given) & (given != NO_LABEL)).sum())

    @property
    def unlabelled(self) -> tuple[int, int]:
        """Return the number of examples without a given label, and how many of these have one."""
        rest = ~self.examples["given_label"].is_valid().to_numpy()
        return int(rest.sum()), int((self.labels[rest] != NO_LABEL).sum())

    @property
    def left(self) -> int:
        """Return the number of suspects that are neither changed nor decided by a person."""
        suspect = self.examples["is_suspect"].to_numpy()
        return int((suspect & ~self._followed & (self._decided < 0)).sum())

    @property
    def decided(self) -> int:
        """Return the number of labels that a person has decided."""
        return int((self._decided >= 0).sum())

    @cached_property
    def _decisions(self) -> Decisions:
        return self.run.decisions

    @property
    def notes(self) -> tuple[str, ...]:
        """Return sentences about decisions that were not used, and the cost of suggestions."""
        many = int(self._followed.sum())
        found = [*self._decisions.notes, *correction_notes(self.run, self.wanted, many)]
        rest = ~self.examples["given_label"].is_valid().to_numpy() & (self._decided < 0)
        if rest.any():
            found.append(rest_in_words(int(rest.sum()), int((self._filled & rest).sum())))
        return tuple(found)

    @cached_property
    def _decided(self) -> Ints:
        """Return [n] the class that a person decided on; −1 for no decision, −2 for "unsure"."""
        standing = self._decisions.standing
        place = {name: k for k, name in enumerate(self.run.labels.names)}
        found = np.full(len(self.examples), -1, np.int64)
        if standing:
            for row, name in enumerate(self.examples["id"].to_pylist()):
                if (decision := standing.get(name)) is not None:
                    found[row] = -2 if decision.label is None else place[decision.label]
        return found

    @property
    def _reviews(self) -> pa.Array:
        """Return [n] what a person decided, in a word."""
        import pyarrow as pa

        is_kept = self._decided == self._class_ids(self.examples["given_label"])
        which = np.select([self._decided == -1, self._decided == -2, is_kept], [-1, 0, 1], 2)
        words = pa.array(["unsure", "kept", "corrected"])
        return words.take(pa.array(which, mask=which < 0))

    def _labels(self) -> pa.Array:
        import pyarrow as pa

        names = pa.array(self.run.labels.names, pa.string())
        return names.take(pa.array(self.labels, mask=self.labels == NO_LABEL))

    @cached_property
    def _followed(self) -> Bools:
        """Return [n] whether the suggestion is followed; an unknown confidence is too low."""
        return followed(self.examples, self.wanted) & (self._decided < 0)

    @cached_property
    def _filled(self) -> Bools:
        """Return [n] whether an example without a label gets the suggested one."""
        return filled(self.examples, self.wanted) & (self._decided < 0)

    @property
    def _is_older(self) -> bool:
        """Return whether an older version made the audit, which knows no actions."""
        return not has_actions(self.examples)

    @property
    def _actions(self) -> pa.ChunkedArray | pa.Array:
        """Return [n] what the audit would do with each label."""
        import pyarrow as pa

        examples = self.examples
        return pa.nulls(len(examples), pa.string()) if self._is_older else examples["action"]

    def _class_ids(self, labels: pa.ChunkedArray) -> Ints:
        import pyarrow as pa
        import pyarrow.compute as pc

        found = pc.index_in(labels, pa.array(self.run.labels.names, pa.string()))
        if found.null_count > labels.null_count:
            raise InputError(
                f"{self.run.directory.examples} has classes that are not in "
                f"{self.run.directory.labels}: they belong to different runs"
            )
        return np.asarray(found.fill_null(NO_LABEL).to_numpy()).astype(np.int64)

    def _distribution(self) -> tuple[Floats, Ints | None]:
        """Return [n, C] soft labels and None, or [n, 5] those of the likeliest and their ids."""
        import pyarrow as pa
        import pyarrow.compute as pc

        examples = self.examples
        n, C = len(examples), len(self.run.labels.names)
        column = examples["corrected_distribution"]
        cells = pc.list_flatten(column)
        # Decisions, and suggestions that are not followed, have a single label.
        alone = (examples["is_suspect"].to_numpy() & ~self._followed) | (self._decided >= 0)
        labels = self.labels
        many = pa.types.is_struct(cells.type)
        width = len(cells) // n if n else TOP_CLASSES if many else C
        lengths = pc.list_value_length(column).to_numpy()
        if not (lengths == width).all() or (not many and width != C):
            raise InputError(
                f"{self.run.directory.examples} is damaged: a corrected distribution does not have "
                f"{C} classes"
            )
        values = pc.struct_field(cells, "p") if many else cells
        probabilities: Floats = _floats(values).reshape(n, width)
        if alone.any():
            probabilities = probabilities.copy()  # Arrow's memory is read-only
            probabilities[alone] = 0
            probabilities[alone, 0 if many else labels[alone]] = 1
        if not many:
            return probabilities, None
        classes = self._class_ids(pc.struct_field(cells, "label")).reshape(n, width)
        # That label comes first; if it was among the five, the former first takes its place.
        again = (classes == labels[:, None]) & alone[:, None]
        classes = np.where(again, classes[:, :1], classes)
        classes[alone, 0] = labels[alone]
        return probabilities, classes


def corrected_labels(
    run: Run | str | Path,
    *,
    min_confidence: float | None = None,
    reviewed: bool = False,
    suspects: bool = False,
    force: bool = False,
    fill: bool = False,
    notes: bool = True,
) -> Returned:
    """Return the corrected labels of a run's training examples, in the order of training.

    They have the type of the labels that `fit` or `record` was given, so that they can be compared:
    a list for lists; an array of the same dtype for arrays and for columns of data frames; a tensor
    for tensors. If the run has its labels from files, they are a list of class names.

    Only the labels are changed that the audit would `change` without asking a person. A person's
    decision in the review takes precedence over the suggestion of the run.

    Args:
        run: a finished run, or its directory.
        min_confidence: change the suspects whose suggested label has at least this confidence
            instead.
        reviewed: without `min_confidence`, follow no suggestions.
        suspects: change all suspects instead; more of these changes are wrong.
        force: return the given labels if the audit corrects none, instead of an error.
        fill: return the suggested labels for examples without a label, with `min_confidence` those
            that have this confidence; the others are None, or NaN among floating-point numbers.
        notes: report on stderr what following the suggestions is expected to cost.

    Raises:
        InputError: the audit corrects no label, because the run is too short or its predictions
            are too weak; or the options contradict each other.
    """
    corrected = LabelExport(_loaded(run), min_confidence, False, reviewed, suspects, force, fill)
    corrected.check()
    if notes:
        display = Display()
        for note in corrected.notes:
            display.note(note)
    labels = corrected.run.labels
    return returned(corrected.labels, labels.names, labels.values)


def find_label_issues(run: Run | str | Path, *, suspects: bool = False) -> pd.DataFrame:
    """Return which labels of a run's training examples are probably wrong, in cleanlab's format.

    Args:
        run: a finished run, or its directory.
        suspects: whether `corrected_label` is the suggested label of all suspects, instead of
            those that the audit would change without asking a person.

    Returns:
        A pandas data frame with a row per training example, in their order, and the columns of
        cleanlab's `CleanLearning.get_label_issues()`: `is_label_issue`, `label_quality` (low =
        probably mislabelled), `given_label`, `predicted_label`; then `corrected_label`, `id` and
        `action`, which is `keep`, `review` or `change`.
        Labels have the type that `fit` was given, or are class names if they came from files.
    """
    _pandas()
    corrected = LabelExport(_loaded(run), suspects=suspects)
    frame = corrected.issues().to_pandas()
    values = corrected.run.labels.values
    if values is not None:
        for name, classes in corrected.class_ids_of_issues().items():
            frame[name] = values.column(classes)
    return frame


def issues_frame(
    given: npt.NDArray[Any], suggested: npt.NDArray[Any], quality: npt.NDArray[np.floating]
) -> pd.DataFrame:
    """Return the four columns of cleanlab's `CleanLearning.get_label_issues()`.

    Args:
        given: [n] labels.
        suggested: [n] what they should be; the given label unless it is an issue.
        quality: [n] in [0, 1]; **low means probably mislabelled**.
    """
    return _pandas().DataFrame(
        {
            "is_label_issue": suggested != given,
            "label_quality": quality,
            "given_label": given,
            "predicted_label": suggested,
        }
    )


def _floats(column: pa.ChunkedArray) -> Floats:
    """Return [n] numbers, NaN for null."""
    import pyarrow as pa

    return np.asarray(column.cast(pa.float32()).to_numpy(), dtype=np.float32)


def _pandas() -> Any:
    try:
        import pandas
    except ImportError:
        raise InputError(
            "a data frame of label issues needs pandas",
            fix='pip install "proselflc[cleanlab]"',
        ) from None
    return pandas


def _loaded(run: Run | str | Path) -> Run:
    return run if isinstance(run, Run) else load_run(run)
