"""What a class looks like near an example: those of it that the run is sure of and that are alike.

Nothing that a model computes inside is kept in a run, so it is computed anew, for the few examples
that are compared.
"""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock

import numpy as np
import torch
from torch import Tensor, nn

from proselflc.data.batches import Order
from proselflc.data.dataset import Floats, Inputs, Ints, Part
from proselflc.errors import InputError
from proselflc.run.reader import Run
from proselflc.training.inference import predict_batches
from proselflc.training.serving import loader

POOL = 64  # examples of a class that are compared, those of the highest quality
_KEPT = 64  # classes whose features are kept


class Neighbours:
    """Finds confidently labelled examples of a class that are like another example.

    Two examples are alike by the cosine of what the model's last linear layer gets to see of them,
    or of the model's logits where it has no such layer. Of a class the `POOL` examples that were
    given it with the highest quality and are no suspects are looked at.

    Args:
        run: finished.
        inputs: its training examples, row for row.
    """

    def __init__(self, run: Run, inputs: Inputs) -> None:
        self._run, self._inputs = run, inputs
        table = run.examples
        quality = np.nan_to_num(table["quality"].to_numpy().astype(np.float32), nan=-1.0)
        quality[table["is_suspect"].to_numpy()] = -1
        self._quality: Floats = quality
        self._given: Ints = run.labels.given
        self._features: OrderedDict[int, tuple[Ints, Floats]] = OrderedDict()
        self._lock = Lock()  # a model serves one at a time

    def of(self, index: int, label: int, many: int) -> Ints:
        """[≤ many] positions of the examples of a class that are most like one, the nearest first.

        Args:
            index: of the one.
            label: class id.
            many: how many.

        Raises:
            InputError: the model cannot be read, or does not take these inputs.
        """
        with self._lock:
            rows, features = self._of_class(label)
            if not len(rows):
                return rows
            own = self._computed(np.array([index], np.int64))[0]
        alike = features @ own
        alike[rows == index] = -np.inf  # it is no neighbour of itself
        nearest = rows[np.argsort(-alike, kind="stable")]
        found: Ints = nearest[nearest != index][:many]
        return found

    def surest(self, index: int, label: int, many: int) -> Ints:
        """[≤ many] positions of the surest examples of a class, whether they are like it or not."""
        rows = self._pool(label)
        found: Ints = rows[rows != index][:many]
        return found

    def _of_class(self, label: int) -> tuple[Ints, Floats]:
        """The examples of a class that are looked at, and their features [pool, D]."""
        if label in self._features:
            self._features.move_to_end(label)
            return self._features[label]
        rows = self._pool(label)
        found = rows, self._computed(rows) if len(rows) else np.zeros((0, 1), np.float32)
        self._features[label] = found
        while len(self._features) > _KEPT:
            self._features.popitem(last=False)
        return found

    def _pool(self, label: int) -> Ints:
        rows = np.flatnonzero((self._given == label) & (self._quality >= 0)).astype(np.int64)
        return rows[np.argsort(-self._quality[rows], kind="stable")][:POOL]

    def _computed(self, rows: Ints) -> Floats:
        """[rows, D] of length 1."""
        run, n = self._run, len(rows)
        inputs = self._inputs.take(rows)
        run.preprocessing.check(inputs)
        part = Part(inputs, np.zeros(n, np.int64), tuple(str(k) for k in range(n)))
        seen: list[Tensor] = []
        last = _last_linear(run.model)
        hook = None
        if last is not None:
            hook = last.register_forward_pre_hook(lambda _, args: seen.append(args[0].detach()))
        try:
            batches = loader(part, run.preprocessing, Order(32, shuffle=False), workers=0)
            device = next((p.device for p in run.model.parameters()), torch.device("cpu"))
            found: Tensor | None = None
            for batch, logits in predict_batches(run.model, batches, device):
                inside = seen.pop().flatten(1).float() if seen else logits
                if len(inside) != len(batch.index):  # a layer that is applied to pieces
                    inside = logits
                seen.clear()
                if found is None:
                    found = torch.zeros(n, inside.size(1))
                found[batch.index] = inside.cpu()
        except RuntimeError as error:
            words = " ".join(str(error).split())[:200]
            raise InputError(f"the model of {run.path} cannot look at its data: {words}") from None
        finally:
            if hook is not None:
                hook.remove()
        assert found is not None
        features: Floats = nn.functional.normalize(found, dim=1).numpy()
        return features


def _last_linear(model: nn.Module) -> nn.Linear | None:
    layers = [one for one in model.modules() if isinstance(one, nn.Linear)]
    return layers[-1] if layers else None
