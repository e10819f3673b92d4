"""The small networks: layers, sizes from 8×8 to 64×64, what they compute."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing import assert_close

from proselflc.models.small import convnet, embedding_bag, mlp


def parameters(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(
    ("height", "width", "places"),
    [
        (8, 8, 1),
        (9, 16, 2 * 2),
        (28, 28, 4 * 4),
        (32, 32, 4 * 4),
        (33, 8, 3 * 1),
        (40, 48, 3 * 3),
        (64, 64, 4 * 4),
        (224, 224, 4 * 4),
    ],
)
def test_convnet_by_size(channels: int, height: int, width: int, places: int) -> None:
    """`places` is how many the linear layer sees: an eighth, rounded up, pooled to at most 4."""
    model = convnet(channels, height, width, 10)
    convolutions = 9 * (channels * 32 + 32 * 64 + 64 * 128) + 2 * (32 + 64 + 128)
    assert parameters(model) == convolutions + 128 * places * 256 + 2 * 256 + 256 * 10 + 10
    assert model(torch.zeros(2, channels, height, width)).shape == (2, 10)


def test_convnet_is_three_convolutions_and_two_linear_layers() -> None:
    torch.manual_seed(0)
    model = convnet(3, 40, 24, 5).eval()
    x = torch.randn(2, 3, 40, 24)
    state = model.state_dict()
    y = x
    for i in (1, 2, 3):
        y = F.conv2d(y, state[f"conv{i}.weight"], stride=2, padding=1).relu()
        y = y / (1 + 1e-5) ** 0.5  # the running statistics of batch norm are still 0 and 1
    assert y.shape == (2, 128, 5, 3)
    rows = torch.stack([y[:, :, :2].mean(2), y[:, :, 2:4].mean(2), y[:, :, 4]], 2)
    hidden = F.linear(rows.flatten(1), state["hidden.weight"]).relu() / (1 + 1e-5) ** 0.5
    expected = F.linear(hidden, state["fc.weight"], state["fc.bias"])
    with torch.no_grad():
        assert_close(model(x), expected)


def test_dropout_is_off_unless_asked_for() -> None:
    x = torch.randn(4, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    without, some = convnet(1, 8, 8, 3), convnet(1, 8, 8, 3, dropout=0.5)
    assert torch.equal(without(x), without(x))
    assert not torch.equal(some(x), some(x))


def test_mlp_is_linear_relu_linear() -> None:
    torch.manual_seed(0)
    model = mlp(12, 3)
    assert parameters(model) == 12 * 128 + 128 + 128 * 3 + 3
    x = torch.randn(5, 12)
    state = model.state_dict()
    hidden = (x @ state["hidden1.weight"].T + state["hidden1.bias"]).clamp_min(0)
    assert_close(model(x).detach(), hidden @ state["fc.weight"].T + state["fc.bias"])
    assert torch.equal(model(x), model(x.reshape(5, 3, 2, 2)))  # images are laid flat


def test_mlp_of_any_depth() -> None:
    assert parameters(mlp(4, 2, hidden=(8, 6))) == 4 * 8 + 8 + 8 * 6 + 6 + 6 * 2 + 2
    assert parameters(mlp(4, 2, hidden=())) == 4 * 2 + 2


def test_logits_are_linear_in_the_mean_of_the_embeddings() -> None:
    torch.manual_seed(0)
    model = embedding_bag(50, 4)
    assert sum(p.numel() for p in model.parameters()) == 50 * 64 + 64 * 4 + 4
    bags = [[3, 7, 7], [49], [1, 2, 3, 4]]
    padded = torch.tensor([bag + [0] * (4 - len(bag)) for bag in bags])
    state = model.state_dict()
    means = torch.stack([state["embedding.weight"][bag].mean(0) for bag in bags])
    expected = means @ state["fc.weight"].T + state["fc.bias"]
    assert_close(model(padded).detach(), expected)
    assert_close(model(nn.functional.pad(padded, (0, 5))).detach(), expected)


def test_an_empty_text_gives_the_bias_and_teaches_no_embedding() -> None:
    torch.manual_seed(0)
    model = embedding_bag(10, 3)
    logits = model(torch.tensor([[0, 0], [4, 0]]))
    bias = model.state_dict()["fc.bias"]
    assert torch.equal(logits[0].detach(), bias)
    logits[0].square().sum().backward()
    gradients = {name: p.grad for name, p in model.named_parameters()}
    embedding, offset = gradients["embedding.weight"], gradients["fc.bias"]
    assert embedding is not None
    assert not embedding.any()
    assert offset is not None
    assert_close(offset, 2 * bias)


def test_filling_up_is_never_learned() -> None:
    model = embedding_bag(10, 3)
    model(torch.tensor([[4, 0, 0]])).sum().backward()
    gradient = dict(model.named_parameters())["embedding.weight"].grad
    assert gradient is not None
    assert gradient[4].any()
    assert not gradient[0].any()
