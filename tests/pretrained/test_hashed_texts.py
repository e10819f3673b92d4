"""Hashed n-grams compare any texts by the runs that they share."""

import numpy as np
import pytest
import torch
from sklearn.feature_extraction.text import CountVectorizer
from torch.testing import assert_close

from proselflc.pretrained import hashed_texts
from proselflc.pretrained.encoder import Encoder


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return hashed_texts.load()


def test_inner_products_are_about_the_shared_runs(encoder: Encoder, sentences: list[str]) -> None:
    """scikit-learn counts them; a column that several runs share makes an error of √(1/D)."""
    texts = [*sentences, *(f"{a} {b}" for a in sentences for b in sentences)]
    folded = [" ".join(text.lower().split()) for text in texts]
    words = CountVectorizer(binary=True, ngram_range=(1, 2), token_pattern=r"\S+")
    letters = CountVectorizer(binary=True, ngram_range=(3, 5), analyzer="char_wb")
    runs = np.hstack([v.fit_transform(folded).toarray() for v in (words, letters)]).astype(float)
    runs /= np.linalg.norm(runs, axis=1, keepdims=True)
    features = encoder.encode(texts).double().numpy()
    error = features @ features.T - runs @ runs.T
    assert np.abs(error).max() < 5 / np.sqrt(hashed_texts.WIDTH)
    assert np.abs(error).mean() < 1 / np.sqrt(hashed_texts.WIDTH)


def test_features_stay_the_same(encoder: Encoder) -> None:
    """Models are saved that were trained on them; if they change, so must the digest."""
    signs = encoder.encode(["ƙasa"])[0].sign()
    columns = signs.nonzero()[:, 0]
    assert columns.tolist() == [37, 1416, 1884, 2007, 2096, 2326, 3536, 3615, 3952, 4095]
    assert signs[columns].tolist() == [1, -1, -1, -1, -1, 1, 1, -1, 1, -1]
    assert encoder.digest[:16] == "fed70fe2427f0855"


def test_features_do_not_depend_on_the_other_texts(encoder: Encoder) -> None:
    texts = [f"text {i} {'long ' * (i % 700)}" for i in range(1500)]
    together = encoder.encode(texts)
    assert_close(encoder.encode(texts[::-1]).flip(0), together, atol=0, rtol=0)
    assert_close(encoder.encode(texts[1022:1027]), together[1022:1027], atol=0, rtol=0)
    assert_close(together.norm(dim=1), torch.ones(1500))


def test_blank_texts_become_zeros(encoder: Encoder) -> None:
    features = encoder.encode(["", " ", "\n\t", "a"])
    assert features[:3].abs().max() == 0
    assert features[3].norm() == pytest.approx(1)
    assert encoder.encode([]).shape == (0, hashed_texts.WIDTH)
    assert encoder.encode([]).dtype == features.dtype == torch.float32


def test_odd_texts_have_finite_features(encoder: Encoder, odd_text: str) -> None:
    features = encoder.encode([odd_text, "a plain one"])
    assert features.isfinite().all()
    assert_close(features[1], encoder.encode(["a plain one"])[0], atol=0, rtol=0)


def test_what_comes_after_20000_letters_is_not_read(encoder: Encoder) -> None:
    text = "long text " * 2000
    assert_close(encoder.encode([text + "unread"]), encoder.encode([text]), atol=0, rtol=0)
