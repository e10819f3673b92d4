"""The text model: a mean over what is there, and nothing where nothing is."""

import torch
from torch import nn
from torch.testing import assert_close

from proselflc.models.text import embedding_bag


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
