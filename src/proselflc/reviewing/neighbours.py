"""Confidently labelled examples of a class that are similar to a suspect.

A run does not store what its model computes inside, so features are computed again for the few
examples that are compared.
"""

from __future__ import annotations

from functools import lru_cache
from threading import Lock

import numpy as np
import torch
from torch import Tensor, nn

from proselflc.data.batches import Order
from proselflc.data.dataset import Part
from proselflc.data.inputs import Floats, Inputs, Ints
from proselflc.data.serving import loader
from proselflc.errors import InputError
from proselflc.run.reader import Run
from proselflc.training.inference import predict_batches

POOL = 64  # examples of a class that are compared
_CACHED = 64  # classes whose features are kept


class Neighbours:
    """Finds confidently labelled examples of a class that are similar to another example.

    Similarity is the cosine between the inputs of the model's last linear layer, or between
    logits if the model has no such layer; for trees it is that between standardised rows. Of each
    class, the `POOL` examples with the highest quality are compared; suspects are left out. The
    inputs are the training examples of the run, row for row.
    """

    def __init__(self, run: Run, inputs: Inputs) -> None:
        self._run, self._inputs = run, inputs
        table = run.examples
        quality = np.nan_to_num(table["quality"].to_numpy().astype(np.float32), nan=-1.0)
        quality[table["is_suspect"].to_numpy()] = -1
        self._quality: Floats = quality
        self._given: Ints = run.labels.with_rest(run.labels.given)
        self._features = lru_cache(_CACHED)(self._class_features)
        self._lock = Lock()  # the model is not safe to use from two threads

    def nearest(self, index: int, label: int, count: int) -> Ints:
        """Return the positions of the `count` most similar examples of a class, nearest first."""
        with self._lock:
            rows, features = self._features(label)
            if not len(rows):
                return rows
            own = self._features_of(np.array([index], np.int64))[0]
        order = rows[np.argsort(-(features @ own), kind="stable")]
        nearest: Ints = order[order != index][:count]
        return nearest

    def surest(self, index: int, label: int, count: int) -> Ints:
        """Return the positions of the `count` examples of a class with the highest quality."""
        rows = self._pool(label)
        surest: Ints = rows[rows != index][:count]
        return surest

    def _class_features(self, label: int) -> tuple[Ints, Floats]:
        """Return the positions and the features [pool, D] of the compared examples of a class."""
        rows = self._pool(label)
        return rows, self._features_of(rows) if len(rows) else np.zeros((0, 1), np.float32)

    def _pool(self, label: int) -> Ints:
        rows = np.flatnonzero((self._given == label) & (self._quality >= 0)).astype(np.int64)
        return rows[np.argsort(-self._quality[rows], kind="stable")][:POOL]

    def _features_of(self, rows: Ints) -> Floats:
        """Return the features [rows, D] of examples, normalised to length 1."""
        run, n = self._run, len(rows)
        inputs = self._inputs.take(rows)
        run.preprocessing.check(inputs)
        layers = [module for module in run.model.modules() if isinstance(module, nn.Linear)]
        if not layers and inputs.medium == "table":  # trees, whose predictions say little
            return _of_length_1(run.preprocessing(inputs))
        part = Part(inputs, np.zeros(n, np.int64), tuple(str(k) for k in range(n)))
        captured: list[Tensor] = []
        hooks = [
            last.register_forward_pre_hook(lambda _, args: captured.append(args[0].detach()))
            for last in layers[-1:]
        ]
        try:
            batches = loader(part, run.preprocessing, Order(32, shuffle=False), workers=0)
            device = next((p.device for p in run.model.parameters()), torch.device("cpu"))
            stacked: Tensor | None = None
            for batch, logits in predict_batches(run.model, batches, device):
                features = captured.pop().flatten(1).float() if captured else logits
                if len(features) != len(batch.index):  # it sees pieces of an example
                    features = logits
                captured.clear()
                if stacked is None:
                    stacked = torch.zeros(n, features.size(1))
                stacked[batch.index] = features.cpu()
        except RuntimeError as error:
            reason = " ".join(str(error).split())[:200]
            raise InputError(f"the model of {run.path} fails on its data: {reason}") from None
        finally:
            for hook in hooks:
                hook.remove()
        assert stacked is not None
        return _of_length_1(stacked)


def _of_length_1(features: Tensor) -> Floats:
    normalised: Floats = nn.functional.normalize(features, dim=1).numpy()
    return normalised
