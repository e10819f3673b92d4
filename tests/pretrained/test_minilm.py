"""Our MiniLM computes what that of transformers computes, for any text."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.testing import assert_close

from proselflc.errors import InputError
from proselflc.pretrained import minilm
from proselflc.pretrained.encoder import Encoder

ROUNDING = 1e-6  # how far features may differ in other company; their length is 1


@pytest.fixture(scope="module")
def encoder(weights_of: Callable[[str], Path]) -> Encoder:
    return minilm.load(weights_of("minilm"))


def test_features_are_those_of_transformers(
    encoder: Encoder, sentences: list[str], weights_of: Callable[[str], Path]
) -> None:
    transformers = pytest.importorskip("transformers")
    from tokenizers import Tokenizer

    folder = weights_of("minilm").parent
    config = transformers.BertConfig.from_json_file(folder / "config.json")
    model = transformers.BertModel(config, add_pooling_layer=False).eval()
    state = load_file(folder / "model.safetensors")
    model.load_state_dict({k: v for k, v in state.items() if k in model.state_dict()})
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(256)
    texts = [*sentences, "more than 256 tokens " * 100]
    found = encoder.encode(texts)
    assert found.dtype == torch.float32
    for text, row in zip(texts, found, strict=True):
        with torch.no_grad():
            h = model(torch.tensor([tokenizer.encode(text).ids])).last_hidden_state
        assert_close(row, torch.nn.functional.normalize(h[0].mean(0), dim=0), atol=1e-5, rtol=0)


def test_features_do_not_depend_on_the_other_texts(encoder: Encoder, sentences: list[str]) -> None:
    texts = [f"{'on and ' * (i % 50)}{sentences[i % 5]}" for i in range(200)]
    together = encoder.encode(texts)
    assert_close(encoder.encode(texts[::-1]).flip(0), together, atol=ROUNDING, rtol=0)
    assert_close(encoder.encode(texts[42:43]), together[42:43], atol=ROUNDING, rtol=0)
    assert_close(encoder.encode(texts), together, atol=0, rtol=0)


def test_blank_texts_become_zeros(encoder: Encoder) -> None:
    assert encoder.encode(["", " ", "\n\t", "\u200b"]).abs().max() == 0
    assert encoder.encode([]).shape == (0, 384)


def test_odd_texts_have_finite_features(encoder: Encoder, odd_text: str) -> None:
    features = encoder.encode([odd_text, "a plain one"])
    assert features.isfinite().all()
    assert_close(features[1], encoder.encode(["a plain one"])[0], atol=ROUNDING, rtol=0)


def test_loading_draws_no_random_numbers(weights_of: Callable[[str], Path]) -> None:
    before = torch.get_rng_state()
    minilm.load(weights_of("minilm"))
    assert torch.equal(torch.get_rng_state(), before)


def test_a_damaged_tokenizer_is_refused(copy_of: Callable[[str], Path]) -> None:
    path = copy_of("minilm")
    tokenizer = path.parent / "tokenizer.json"
    tokenizer.write_bytes(tokenizer.read_bytes()[:-1])
    with pytest.raises(InputError, match=r"is damaged or of another version: sha256 \w{12}… inst"):
        minilm.load(path)
    tokenizer.unlink()
    with pytest.raises(InputError, match=r"there is no tokenizer .*: install its package again"):
        minilm.load(path)


def test_damaged_weights_are_refused(copy_of: Callable[[str], Path]) -> None:
    path = copy_of("minilm")
    state = load_file(path)
    del state["embeddings.LayerNorm.bias"]
    save_file(state, path)
    with pytest.raises(InputError, match=r"has the sha256 \w{12}…, expected 53aa51172d14…"):
        minilm.load(path)
