"""What a layer sees can be looked at, for a while, whatever was done to the model."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from proselflc.errors import InputError
from proselflc.training.inference import Caller, FeatureHook, capture_features, last_linear


def instead() -> str:
    return "do not"


CALLER = Caller("a test", instead)


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
    layer = last_linear(model, 3, CALLER)
    assert layer is model.head
    with capture_features(layer, CALLER) as hook:
        model(x)
        assert_close(hook.take(5), model.body(x))
        with pytest.raises(InputError, match="receives no batch: do not, or use a model"):
            hook.take(5)  # once
        model(x)
        with pytest.raises(InputError, match=r"for 4 examples that layer receives \[5, 8\]"):
            hook.take(4)
        model(x[None])
        with pytest.raises(InputError, match=r"that layer receives \[1, 5, 8\]"):
            hook.take(1)


def test_nobody_looks_any_more_afterwards() -> None:
    model = Network()
    with pytest.raises(KeyError), capture_features(model.head, CALLER) as hook:
        raise KeyError
    assert not model.head._forward_pre_hooks
    model(torch.randn(5, 4))
    with pytest.raises(InputError):
        hook.take(5)


def test_a_model_that_is_watched_can_be_copied_and_pickled() -> None:
    model, x = Network(), torch.randn(5, 4)
    with capture_features(model.head, CALLER):
        for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
            assert_close(other(x), model(x))
            (hook,) = other.head._forward_pre_hooks.values()
            assert isinstance(hook, FeatureHook)
            assert_close(hook.take(5), model.body(x))


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
        with capture_features(model.head, CALLER) as hook:
            with torch.inference_mode():
                model(x)
            assert_close(hook.take(5), model.body(x))
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
        last_linear(model, 3, CALLER)
    assert caught.value.reason.endswith(f"{type(model).__name__} does not end in one")
    assert caught.value.fix == "do not, or use a model whose last module is nn.Linear"
