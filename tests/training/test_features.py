"""What a layer sees can be looked at, for a while, whatever was done to the model."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from proselflc.errors import InputError
from proselflc.training.features import Seen, Who, last_linear, watched

WHO = Who("a test", "do not")


class Network(nn.Module):
    """Ends in a linear layer, whose features it can also give by itself."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(nn.Linear(4, 8), nn.ReLU())
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.body(x))
        return logits


def test_what_the_last_layer_sees_are_the_features() -> None:
    model, x = Network(), torch.randn(5, 4)
    layer = last_linear(model, 3, WHO)
    assert layer is model.head
    with watched(layer, WHO) as seen:
        model(x)
        assert_close(seen.taken(5), model.body(x))
        with pytest.raises(InputError, match="does not see a batch: do not, or a model"):
            seen.taken(5)  # once
        model(x)
        with pytest.raises(InputError, match=r"each of 4 examples, and that layer sees \[5, 8\]"):
            seen.taken(4)
        model(x[None])
        with pytest.raises(InputError, match=r"that layer sees \[1, 5, 8\]"):
            seen.taken(1)


def test_nobody_looks_any_more_afterwards() -> None:
    model = Network()
    with pytest.raises(KeyError), watched(model.head, WHO) as seen:
        raise KeyError
    assert not model.head._forward_pre_hooks
    model(torch.randn(5, 4))
    with pytest.raises(InputError):
        seen.taken(5)


def test_a_model_that_is_watched_can_be_copied_and_pickled() -> None:
    model, x = Network(), torch.randn(5, 4)
    with watched(model.head, WHO):
        for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
            assert_close(other(x), model(x))
            (hook,) = other.head._forward_pre_hooks.values()
            assert isinstance(hook, Seen)
            assert_close(hook.taken(5), model.body(x))


@pytest.mark.parametrize("before", [False, True])
def test_a_compiled_model_is_seen_every_time(before: bool) -> None:
    """What was compiled before a hook came does not know it, nor a hook that came later."""
    torch._dynamo.reset()
    model = Network().eval()
    model.compile(backend="eager")
    if before:
        with torch.inference_mode():
            model(torch.randn(5, 4))
    for _ in range(3):
        x = torch.randn(5, 4)
        with watched(model.head, WHO) as seen:
            with torch.inference_mode():
                model(x)
            assert_close(seen.taken(5), model.body(x))
        with torch.inference_mode():
            model(x)
    torch._dynamo.reset()


@pytest.mark.parametrize(
    "model",
    [nn.Conv2d(1, 3, 1), nn.Linear(4, 5), nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 7))],
    ids=["no linear layer", "other classes", "not the last"],
)
def test_a_model_that_does_not_end_so_is_a_sentence(model: nn.Module) -> None:
    with pytest.raises(InputError) as caught:
        last_linear(model, 3, WHO)
    assert str(caught.value) == (
        "a test looks at the features that the model's last linear layer sees, and "
        f"{type(model).__name__} does not end in one: do not, or a model whose last module is "
        "nn.Linear"
    )
