"""Runs of words and characters of many texts, hashed all at once."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Ints: TypeAlias = npt.NDArray[np.int64]
Hashes: TypeAlias = npt.NDArray[np.uint64]
_Bools: TypeAlias = npt.NDArray[np.bool_]

_PRIME = np.uint64(0x100000001B3)  # FNV-1a with 64 bits, over code points instead of bytes
_BASIS = 0xCBF29CE484222325
_SPACE = 0x20
_LONGEST_WORD = 64  # code points of a word that count; bounds the work on hostile text


@dataclass(frozen=True)
class Ngrams:
    """Which runs of a text are hashed, words before characters.

    A text is normalised (NFKC, lower case, white space folded) and split into runs of words and
    runs of characters inside a word and its two borders.

    Attributes:
        words: shortest and longest run of words; (1, 0) for none.
        characters: shortest and longest run of characters; (1, 0) for none.
        letters: the number of characters read of each text.
    """

    words: tuple[int, int]
    characters: tuple[int, int]
    letters: int

    def chunks(self, texts: Sequence[str]) -> Iterator[list[str]]:
        """Yield normalised texts, about a million letters at a time."""
        chunk: list[str] = []
        letters = 0
        for text in texts:
            folded = unicodedata.normalize("NFKC", text[: self.letters]).lower()
            chunk.append(f" {' '.join(folded.split())} ")
            letters += len(chunk[-1])
            if letters >= 1_000_000:
                yield chunk
                chunk, letters = [], 0
        if chunk:
            yield chunk

    def buckets(self, chunk: list[str], buckets: int) -> tuple[Ints, Ints]:
        """Return the distinct buckets of every text, words first, as pairs (text, bucket).

        Args:
            chunk: normalised texts.
            buckets: their number, a power of two.
        """
        joined = "".join(chunk).encode("utf-32-le", "surrogatepass")
        letters = np.frombuffer(joined, "<u4").astype(np.uint64)
        owner = np.repeat(np.arange(len(chunk)), [len(text) for text in chunk])
        space = letters == _SPACE
        starts = np.flatnonzero(space[:-1] & ~space[1:]) + 1
        ends = np.flatnonzero(~space[:-1] & space[1:]) + 1
        word = _hashed_words(letters, starts, np.minimum(ends - starts, _LONGEST_WORD))

        owners, hashes = [], []
        for n in range(self.words[0], self.words[1] + 1):
            if len(word) >= n:
                first, last = starts[: len(word) - n + 1], starts[n - 1 :]
                inside = owner[first] == owner[last]
                owners.append(owner[first][inside])
                hashes.append(_hashed_runs(word, n, salt=n)[inside])
        for n in range(self.characters[0], self.characters[1] + 1):
            if len(letters) >= n:
                inside = _within_a_word(space, n)
                inside &= owner[: len(owner) - n + 1] == owner[n - 1 :]
                owners.append(owner[: len(inside)][inside])
                hashes.append(_hashed_runs(letters, n, salt=256 + n)[inside])
        if not owners:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        text = np.concatenate(owners).astype(np.int64)
        bucket = (np.concatenate(hashes) & np.uint64(buckets - 1)).astype(np.int64)
        first = np.sort(np.unique(text * buckets + bucket, return_index=True)[1])
        first = first[np.argsort(text[first], kind="stable")]
        return text[first], bucket[first]


def _hashed_words(letters: Hashes, starts: Ints, lengths: Ints) -> Hashes:
    """Return [words] the hash of every word, letter by letter for all words at once."""
    word = np.full(len(starts), _BASIS, np.uint64)
    for k in range(int(lengths.max(initial=0))):
        still = np.flatnonzero(lengths > k)
        word[still] = (word[still] ^ letters[starts[still] + k]) * _PRIME
    return word


def _hashed_runs(units: Hashes, n: int, *, salt: int) -> Hashes:
    """Return [m − n + 1] the hash of every run of n of m units; the salt keeps kinds apart."""
    run = np.full(len(units) - n + 1, _BASIS ^ salt, np.uint64)
    for k in range(n):
        run = (run ^ units[k : len(units) - n + 1 + k]) * _PRIME
    run = (run ^ (run >> np.uint64(32))) * _PRIME
    return run ^ (run >> np.uint64(29))  # FNV mixes upwards only; the bucket is the low bits


def _within_a_word(space: _Bools, n: int) -> _Bools:
    """Return [m − n + 1] whether a run of n letters is in one word and its two borders."""
    windows = np.lib.stride_tricks.sliding_window_view(space, n)
    return np.asarray(~windows[:, 1:-1].any(axis=1) & ~windows.all(axis=1))
