"""Training examples without a label: their predictions, and their rows of `examples.parquet`.

They are predicted once, by the trained model, which never saw them. The predictions are kept in
the run, so that an audit can write the rows again without the data.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from proselflc.auditing import held_out
from proselflc.auditing.examples import distribution_lists, top_lists
from proselflc.auditing.held_out import Stored
from proselflc.auditing.records import slices
from proselflc.data.dataset import Dataset, Part
from proselflc.data.labels import Labels
from proselflc.data.request import Request, is_table
from proselflc.data.tables import table
from proselflc.training.inference import Logits, logits_of_all
from proselflc.training.loop import Training
from proselflc.training.observations import TOP, TOP_CLASSES
from proselflc.training.run_directory import RunDirectory
from proselflc.wording import option

if TYPE_CHECKING:
    import pyarrow as pa

    from proselflc.run.prepare import PreparedRun


def notes(request: Request, dataset: Dataset) -> Iterator[str]:
    """Yield how many rows have no label, and which texts of a table were read as none."""
    if dataset.unlabelled is None:
        return
    many = len(dataset.unlabelled.part)
    rows, they = ("1 row has", "it is") if many == 1 else (f"{many:,} rows have", "they are")
    yield f"{rows} no label: {they} predicted at the end, but neither learned nor judged"
    path = request.labels or Path(request.data)
    if is_table(path):
        own = request
        if request.labels is not None:
            sheet = table.label_sheet(path, request)
            own = Request(label_column=request.label_column, sheet=sheet)
        for word in table.words_for_no_label(path, own):
            yield (
                f'"{word}" in the label column of {path} is read as no label; if it is a class, '
                f"say what means no label with {option('unlabelled', '')}"
            )


def predict(directory: RunDirectory, prepared: PreparedRun, training: Training) -> None:
    """Write the predictions for the examples without a label, if there are any.

    All processes compute them, and the main one alone writes.
    """
    apart, C = prepared.dataset.unlabelled, prepared.dataset.num_classes
    if apart is None:
        return
    m = len(apart.part)
    part = Part(apart.part.inputs, np.zeros(m, np.int64), apart.part.ids)
    batches, accelerator = prepared.for_evaluation(part), training.accelerator
    z = logits_of_all(training.evaluated, batches, m, C, accelerator, directory.path)
    if accelerator.is_main_process:
        write(directory, z)


def write(directory: RunDirectory, z: Logits) -> None:
    """Write the predictions of logits [m, C] for the examples without a label."""
    m, C = z.shape

    def pieces() -> Iterator[Stored]:
        for rows in slices(m, C):
            p = torch.softmax(z[rows], 1).numpy()
            yield held_out.kept(p, p.argmax(1))

    held_out.write(directory.unlabelled, (m, C), pieces())


def with_unlabelled(table: pa.Table, labels: Labels, directory: RunDirectory) -> pa.Table:
    """Return a table of the examples with a label together with the others, in their order.

    An example without a label has no `given_label` and no quality, is never suspect, and is to be
    reviewed: the suggested label is the predicted class.
    """
    if not labels.rest:
        return table
    import pyarrow as pa

    path = directory.checked(directory.unlabelled)
    names = pa.array(labels.names, pa.string())
    n, m, C = len(labels.ids), len(labels.rest), len(labels.names)
    stored = held_out.read(path, (m, C))
    suggested, confidence = np.zeros(m, np.int64), np.zeros(m, np.float32)
    lists = []
    for rows in slices(m, C):
        if stored.dtype == TOP:
            found = stored[rows, :TOP_CLASSES]
            classes, p = found["class"].astype(np.int64), found["value"].astype(np.float32)
            suggested[rows], confidence[rows] = classes[:, 0], p[:, 0]
            lists.append(top_lists(classes, p, names))
        else:
            p = np.asarray(stored[rows], np.float32)
            suggested[rows], confidence[rows] = p.argmax(1), p.max(1)
            lists.append(distribution_lists(p, names))
    known = {
        "index": pa.array(np.arange(n, n + m)),
        "id": pa.array(labels.rest, pa.string()),
        "suggested_label": names.take(pa.array(suggested)),
        "is_suspect": pa.array(np.zeros(m, np.bool_)),
        "action": pa.array(["review"] * m, pa.string()),
        "p_suggested": pa.array(confidence),
        "flips": pa.array(np.zeros(m, np.int32)),
        "corrected_distribution": pa.chunked_array(lists),
        "conflicting": pa.array(np.zeros(m, np.bool_)),
        "in_test": pa.array(np.zeros(m, np.bool_)),
    }
    columns = [
        known.get(field.name, pa.nulls(m, field.type)).cast(field.type) for field in table.schema
    ]
    both = pa.concat_tables([table, pa.table(columns, schema=table.schema)])
    found = both.take(pa.array(labels.order))
    k = found.column_names.index("index")
    return found.set_column(k, "index", pa.array(np.arange(n + m)))
