"""Texts: hashing against a plain reading of its definition."""

import unicodedata

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from proselflc.data.inputs import Texts
from proselflc.data.preprocessing import (
    TextHashing,
)
from proselflc.errors import InputError

FNV_PRIME, FNV_BASIS, MASK = 0x100000001B3, 0xCBF29CE484222325, 2**64 - 1


def fnv(units: list[int], basis: int = FNV_BASIS) -> int:
    value = basis
    for unit in units:
        value = ((value ^ unit) * FNV_PRIME) & MASK
    return value


def mixed(value: int) -> int:
    value = ((value ^ (value >> 32)) * FNV_PRIME) & MASK
    return value ^ (value >> 29)


def plain_buckets(text: str, hashing: TextHashing) -> list[int]:
    """The definition, one run at a time with Python's integers."""
    words = unicodedata.normalize("NFKC", text[: hashing.letters]).lower().split()
    found: list[int] = []
    for n in range(hashing.words[0], hashing.words[1] + 1):
        for i in range(len(words) - n + 1):
            units = [fnv([ord(c) for c in word[:64]]) for word in words[i : i + n]]
            found.append(mixed(fnv(units, FNV_BASIS ^ n)) % hashing.buckets)
    for n in range(hashing.characters[0], hashing.characters[1] + 1):
        for word in words:
            edged = f" {word} "
            for i in range(len(edged) - n + 1):
                if run := edged[i : i + n].strip(" "):
                    units = [ord(c) for c in edged[i : i + n]]
                    assert run
                    found.append(mixed(fnv(units, FNV_BASIS ^ (256 + n))) % hashing.buckets)
    return list(dict.fromkeys(found))


def everything(buckets: int = 2**12, **changes: object) -> TextHashing:
    options: dict[str, object] = {
        "words": (1, 2),
        "characters": (3, 5),
        "longest": 10_000,
        "letters": 1000,
        **changes,
    }
    return TextHashing(buckets, seen=b"\xff" * (buckets // 8), **options)  # type: ignore[arg-type]


@settings(max_examples=200, deadline=None)
@given(
    texts=st.lists(st.text(max_size=40) | st.text("ab \t\nÄß", max_size=30), max_size=5),
    words=st.sampled_from([(1, 2), (1, 3), (2, 2), (1, 0)]),
    characters=st.sampled_from([(3, 5), (1, 2), (2, 4), (1, 0)]),
)
def test_hashing_is_its_definition(
    texts: list[str], words: tuple[int, int], characters: tuple[int, int]
) -> None:
    hashing = everything(words=words, characters=characters)
    x = hashing(Texts(tuple(texts)))
    assert x.dtype is torch.int64
    assert x.shape[0] == len(texts)
    for row, text in zip(x.tolist(), texts, strict=True):
        # With every bucket in use, bucket b has number b + 1.
        expected = [bucket + 1 for bucket in plain_buckets(text, hashing)]
        assert sorted(row[: len(expected)]) == sorted(expected)
        assert not any(row[len(expected) :])
        many = min(len(expected), len(text.split()))
        if words == (1, 2) and characters == (3, 5):
            assert row[:many] == expected[:many]


def test_hashes_are_pinned() -> None:
    hashing = everything(2**18, characters=(1, 0))
    pinned = [208279, 43389, 189840, 244573, 108362]
    assert [number - 1 for number in hashing(Texts(("Barka da zuwa",)))[0].tolist()] == pinned
    assert plain_buckets("Barka da zuwa", hashing) == pinned


def test_case_width_and_space_do_not_matter() -> None:
    x = everything()(Texts(("Hello  World", "hello\nworld", "ＨＥＬＬＯ　ｗｏｒｌｄ ")))
    assert torch.equal(x[0], x[1])
    assert torch.equal(x[0], x[2])


def test_texts_of_a_chunk_do_not_touch_each_other() -> None:
    many = tuple(f"word{i} next{i % 7}" for i in range(500))
    together = everything()(Texts(many))
    for i in (0, 1, 250, 499):
        alone = everything()(Texts((many[i],)))[0]
        assert torch.equal(together[i, : len(alone)], alone)


def test_chunks_do_not_change_bags() -> None:
    long = " ".join(f"w{i}" for i in range(150))
    texts = Texts(tuple(f"{long} {i}" for i in range(1500)))  # over a million letters
    bags = everything().bags(texts)
    assert len(bags.bounds) == 1501
    last = bags.padded(np.array([1499]))
    assert torch.equal(last, everything()(Texts((texts.texts[-1],))))


def test_only_what_several_training_texts_share_is_numbered() -> None:
    train = Texts(("red apple", "red pear", "blue sky"))
    hashing = TextHashing.fit(train, characters=(1, 0))
    assert hashing.num_embeddings == 2  # "red", and 0
    assert hashing(Texts(("a red car", "green", "")))[:, 0].tolist() == [1, 0, 0]
    everything_seen = TextHashing.fit(train, characters=(1, 0), min_examples=1)
    assert everything_seen.num_embeddings == 1 + 5 + 3  # words and pairs
    x = everything_seen(train)
    assert x.shape == (3, 3)
    assert sorted(set(x.flatten().tolist())) == list(range(1, 9))


def test_numbers_fit_an_embedding_bag() -> None:
    train = Texts(("red apple", "red pear", "blue apple sky", ""))
    hashing = TextHashing.fit(train)
    bag = torch.nn.EmbeddingBag(hashing.num_embeddings, 3, padding_idx=0)
    out = bag(hashing(train))
    assert out.shape == (4, 3)
    assert not out[3].any()
    assert bool(torch.isfinite(out).all())


def test_an_overlong_text_keeps_its_words() -> None:
    hashing = everything(longest=4)
    x = hashing(Texts(("one two three four five", "six")))
    assert x.shape == (2, 4)
    alone = everything(characters=(1, 0), words=(1, 1))(Texts(("one two three four five",)))
    assert torch.equal(x[0], alone[0, :4])
    cut = everything(letters=3)(Texts(("one two",)))
    assert torch.equal(cut, everything()(Texts(("one",))))


def test_a_word_of_a_million_letters_is_no_trouble() -> None:
    hashing = everything(letters=20_000)
    x = hashing(Texts(("x" * 1_000_000, "\ufdfa" * 1000, "\ud800 lone")))
    assert x.shape[0] == 3


def test_texts_without_anything_in_common_are_refused() -> None:
    with pytest.raises(InputError, match="is this the text column"):
        TextHashing.fit(Texts(("abc", "xyz")))
    with pytest.raises(InputError, match="power of two"):
        TextHashing.fit(Texts(("abc", "abc")), buckets=100)
