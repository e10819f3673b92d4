"""WordLlama's features are the means of its token embeddings, for any text."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

from proselflc.errors import InputError
from proselflc.pretrained import wordllama
from proselflc.pretrained.encoder import Encoder


@pytest.fixture(scope="module")
def encoder(weights_of: Callable[[str], Path]) -> Encoder:
    return wordllama.load(weights_of("wordllama"))


def test_features_are_the_mean_of_the_embeddings_of_the_tokens(
    encoder: Encoder, sentences: list[str], weights_of: Callable[[str], Path]
) -> None:
    from safetensors import safe_open
    from tokenizers import Tokenizer

    path = weights_of("wordllama")
    tokenizer = Tokenizer.from_file(
        str(path.parents[1] / "tokenizers" / "l2_supercat_tokenizer_config.json")
    )
    with safe_open(path, "pt") as file:
        embedding = file.get_tensor("embedding.weight").double()
    found = encoder.encode(sentences)
    assert found.dtype == torch.float32
    for text, row in zip(sentences, found, strict=True):
        tokens = tokenizer.encode(text, add_special_tokens=False).ids
        assert_close(row.double(), embedding[tokens].mean(0), atol=1e-6, rtol=0)


def test_features_do_not_depend_on_the_other_texts(encoder: Encoder, sentences: list[str]) -> None:
    texts = [f"{sentence} {i}" for i in range(300) for sentence in sentences]  # two batches
    together = encoder.encode(texts)
    assert_close(encoder.encode(texts[::-1]).flip(0), together, atol=0, rtol=0)
    assert_close(encoder.encode(texts[1023:1026]), together[1023:1026], atol=0, rtol=0)


def test_blank_texts_become_zeros(encoder: Encoder) -> None:
    assert encoder.encode(["", " ", "\n\t"]).abs().max() == 0
    assert encoder.encode([]).shape == (0, 256)


def test_odd_texts_have_finite_features(encoder: Encoder, odd_text: str) -> None:
    features = encoder.encode([odd_text, "a plain one"])
    assert features.isfinite().all()
    assert_close(features[1], encoder.encode(["a plain one"])[0], atol=0, rtol=0)


def test_what_comes_after_20000_letters_is_not_read(encoder: Encoder) -> None:
    text = "long text " * 2000
    assert_close(encoder.encode([text + "unread"]), encoder.encode([text]), atol=0, rtol=0)


def test_a_damaged_tokenizer_is_refused(copy_of: Callable[[str], Path]) -> None:
    path = copy_of("wordllama")
    tokenizer = path.parents[1] / "tokenizers" / "l2_supercat_tokenizer_config.json"
    tokenizer.write_bytes(tokenizer.read_bytes()[:-1] + b" ")
    with pytest.raises(InputError, match=r"is damaged or of another version: sha256 \w{12}… inst"):
        wordllama.load(path)
    tokenizer.unlink()
    with pytest.raises(InputError, match=r"there is no tokenizer .*: install its package again"):
        wordllama.load(path)


def test_damaged_weights_are_refused(copy_of: Callable[[str], Path]) -> None:
    path = copy_of("wordllama")
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(InputError, match=r"has the sha256 \w{12}…, expected"):
        wordllama.load(path)
