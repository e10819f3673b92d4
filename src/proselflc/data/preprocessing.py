"""How inputs become tensors: fitted on the training part, saved with the run, used to predict.

Images are scaled by the mean and deviation of every channel, texts become bags of hashed n-grams,
the columns of a table are standardised. Each is a frozen dataclass, saved as plain JSON and read
back with every value checked, as any file from outside.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, ClassVar, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from proselflc.data.inputs import Bools, Features, Floats, Inputs, Ints, Texts
from proselflc.errors import InputError
from proselflc.models.shape import BagShape, FeatureShape, Shape
from proselflc.pretrained.ngrams import Ngrams

Json: TypeAlias = dict[str, object]
Finite: TypeAlias = Annotated[float, msgspec.Meta(gt=-1e300, lt=1e300)]
Numbers: TypeAlias = Annotated[tuple[Finite, ...], msgspec.Meta(min_length=1)]
_Length: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=16)]
_Range: TypeAlias = tuple[_Length, _Length]


class Preprocessing(ABC):
    """Turns inputs of one kind into the tensors that a model takes.

    Attributes:
        kind: its name in `model.json`.
    """

    kind: ClassVar[str]

    @property
    @abstractmethod
    def shape(self) -> Shape:
        """Return the shape of one example of a model's input."""

    @abstractmethod
    def check(self, inputs: Inputs) -> None:
        """Refuse inputs of another kind or shape than were fitted."""

    @abstractmethod
    def __call__(self, inputs: Inputs) -> Tensor:
        """Return the tensor [N, …] of N inputs."""

    @abstractmethod
    def validate(self) -> None:
        """Refuse values, read from a file, that do not go together."""

    def to_json(self) -> Json:
        """Return the preprocessing as plain values, which `serving.from_json` reads."""
        fields = msgspec.to_builtins(self, enc_hook=lambda value: value.item())  # numpy's numbers
        return {
            "kind": self.kind,
            **{key: list(v) if isinstance(v, tuple) else v for key, v in fields.items()},
        }

    @property
    def identity(self) -> Json:
        """Return what decides the tensors of inputs without gaps, to compare two of a kind."""
        return {key: value for key, value in self.to_json().items() if key != "median"}


@dataclass(frozen=True)
class Standardization(Preprocessing):
    """The columns of a table, or of embeddings, each with mean 0 and deviation 1.

    A column that is constant in the training part becomes 0 everywhere, whatever it holds later:
    nothing was learned about it. Values are limited to a million deviations.

    Attributes:
        mean: D numbers.
        std: D numbers, 0 for a constant column.
        columns: D names if the table has them, by which later tables are matched.
        median: D numbers, which stand for missing cells of later tables; only with columns.
    """

    mean: Numbers
    std: Numbers
    columns: tuple[str, ...] | None = None
    median: Numbers | None = None
    kind = "features"

    @classmethod
    def fit(cls, train: Features, *, chunk: int = 65_536) -> Standardization:
        """Measure the training part: n ≥ 1 rows of finite numbers, `chunk` rows at a time."""
        values = train.values
        if len(values) == 0:
            raise InputError("no training rows to measure")
        starts = range(0, len(values), chunk)
        mean = sum(values[i : i + chunk].sum(axis=0, dtype=np.float64) for i in starts)
        mean = np.asarray(mean / len(values))
        squares = sum(np.square(values[i : i + chunk] - mean).sum(axis=0) for i in starts)
        std = np.sqrt(np.asarray(squares / len(values)))
        constant = (values.max(axis=0) == values.min(axis=0)) | (std == 0)
        std[constant] = 0.0
        median = None
        if train.columns is not None:
            median = tuple(float(np.median(values[:, k])) for k in range(values.shape[1]))
        return cls(tuple(map(float, mean)), tuple(map(float, std)), train.columns, median)

    @property
    def optional(self) -> frozenset[str]:
        """Return the columns that were constant in training, which later tables may lack."""
        return frozenset(c for c, std in zip(self.columns or (), self.std, strict=False) if not std)

    @property
    def fill(self) -> Numbers:
        """Return D numbers that stand for missing cells: the medians, or in old runs the means."""
        return self.mean if self.median is None else self.median

    def to_json(self) -> Json:
        fields = super().to_json()
        if self.median is None:
            fields.pop("median", None)
        return fields

    @property
    def shape(self) -> FeatureShape:
        return FeatureShape(len(self.mean))

    def check(self, inputs: Inputs) -> None:
        """Refuse inputs that are not a table with the columns that were fitted."""
        self.select(inputs)

    def __call__(self, inputs: Inputs) -> Tensor:
        """Return [N, D] float32 for N rows of numbers."""
        values = self.select(inputs)
        mean, std = np.asarray(self.mean), np.asarray(self.std)
        scale = np.divide(1.0, std, out=np.zeros_like(std), where=std > 0)
        standard = np.clip((values - mean) * scale, -1e6, 1e6)
        return torch.from_numpy(standard.astype(np.float32))

    def select(self, inputs: Inputs) -> Floats:
        """Return [N, D] the values of the fitted columns in their order."""
        values = inputs.numbers
        if inputs.medium != "table" or values is None:
            raise InputError(f"this model was made for numeric features, got {inputs.kind}")
        if self.columns is None or inputs.columns is None or inputs.columns == self.columns:
            if values.shape[1] != len(self.mean):
                raise InputError(
                    f"this model was made for {len(self.mean)} features per example, got "
                    f"{values.shape[1]}"
                )
            return values
        place = {name: i for i, name in enumerate(inputs.columns)}
        for name in self.columns:
            if name not in place and name not in self.optional:
                raise InputError(
                    f'the column "{name}" that this model was made for is missing; columns here: '
                    f"{', '.join(inputs.columns)}"
                )
        found = np.empty((len(values), len(self.columns)), values.dtype)
        for k, name in enumerate(self.columns):
            found[:, k] = values[:, place[name]] if name in place else self.mean[k]
        return found

    def validate(self) -> None:
        if len(self.mean) != len(self.std) or min(self.std) < 0:
            raise ValueError("mean and std must hold as many numbers, std none below 0")
        columns = self.columns
        if columns is not None and not len(columns) == len(set(columns)) == len(self.mean):
            raise ValueError("columns must name every column once")
        if self.median is not None and len(self.median) != len(self.mean):
            raise ValueError("median must hold as many numbers as mean")


@dataclass(frozen=True)
class Bags:
    """A bag of bucket numbers for each of n texts."""

    numbers: npt.NDArray[np.int32]  # [total] ≥ 1, the bags one after the other
    bounds: Ints  # [n + 1]: the bag of text i is numbers[bounds[i] : bounds[i + 1]]

    def padded(self, index: Ints) -> Tensor:
        """Return [N, L] int64 the bags of the texts at index [N], padded with 0 to the longest."""
        starts = self.bounds[index]
        lengths = self.bounds[index + 1] - starts
        columns = np.arange(max(1, int(lengths.max(initial=0))))
        inside = columns < lengths[:, None]
        places = np.where(inside, starts[:, None] + columns, 0)
        if len(self.numbers) == 0:
            return torch.zeros(places.shape, dtype=torch.int64)
        return torch.from_numpy(np.where(inside, self.numbers[places], 0).astype(np.int64))


@dataclass(frozen=True)
class TextHashing(Preprocessing):
    """Texts as bags of hashed n-grams, for an `nn.EmbeddingBag`.

    A text is normalised (NFKC, lower case, white space folded) and split into runs of words and
    runs of characters inside a word and its two borders. A run is hashed into one of `buckets`
    buckets; buckets that training texts hardly ever used are left out, because their embeddings
    would be noise, and the others are numbered from 1. Number 0 is padding: `padding_idx=0`. Every
    run counts once per text. Words come first, so that they are kept of an overlong text.

    Attributes:
        buckets: the number of buckets, a power of two.
        words: shortest and longest run of words; (1, 0) for none.
        characters: shortest and longest run of characters; (1, 0) for none.
        longest: the largest number of n-grams per text.
        letters: the number of characters read of each text.
        seen: a bit per bucket, least significant first: whether training texts use it.
    """

    buckets: Annotated[int, msgspec.Meta(ge=8, le=2**24)]
    words: _Range
    characters: _Range
    longest: Annotated[int, msgspec.Meta(ge=1, le=2**20)]
    letters: Annotated[int, msgspec.Meta(ge=1, le=2**24)]
    seen: bytes
    kind = "texts"

    def __post_init__(self) -> None:
        if self.buckets < 8 or self.buckets & (self.buckets - 1):
            raise InputError(f"buckets must be a power of two from 8 on, got {self.buckets}")
        if min(self.words[0], self.characters[0], self.longest, self.letters) < 1:
            raise InputError("words, characters, longest and letters begin at 1")

    @classmethod
    def fit(
        cls,
        train: Texts,
        *,
        buckets: int = 2**18,
        words: tuple[int, int] = (1, 2),
        characters: tuple[int, int] = (3, 5),
        longest: int = 1024,
        letters: int = 20_000,
        min_examples: int = 2,
    ) -> TextHashing:
        """Find the buckets that at least `min_examples` of the training texts use.

        An n-gram of a single text says nothing about other texts and helps to memorise a wrong
        label.
        """
        hashing = cls(buckets, words, characters, longest, letters, b"\xff" * (buckets // 8))
        used = np.zeros(buckets, np.int64)
        for chunk in hashing._ngrams.chunks(train.texts):
            used += np.bincount(hashing._ngrams.buckets(chunk, buckets)[1], minlength=buckets)
        seen = used >= min_examples
        if not seen.any():
            raise InputError(
                f"no run of words or letters occurs in {min_examples} of the {len(train)} training "
                "texts: is this the text column?"
            )
        bits = np.packbits(seen, bitorder="little").tobytes()
        return cls(buckets, words, characters, longest, letters, bits)

    @property
    def num_embeddings(self) -> int:
        """Return the rows of the embedding: the numbers a bag may hold, 0 included."""
        return 1 + int(self._seen.sum())

    @property
    def shape(self) -> BagShape:
        return BagShape(self.num_embeddings)

    @cached_property
    def _seen(self) -> Bools:
        bits = np.frombuffer(self.seen, np.uint8)
        return np.unpackbits(bits, bitorder="little").astype(np.bool_)

    def check(self, inputs: Inputs) -> None:
        """Refuse inputs that are not texts."""
        if inputs.medium != "text":
            raise InputError(f"this model was made for texts, got {inputs.kind}")

    def __call__(self, inputs: Inputs) -> Tensor:
        """Return [N, L] int64 the bags of N texts, padded with 0 to the longest, L ≥ 1."""
        return self.bags(inputs).padded(np.arange(len(inputs)))

    def bags(self, inputs: Inputs) -> Bags:
        """Return the bags of all n texts."""
        self.check(inputs)
        assert inputs.strings is not None
        number = np.where(self._seen, np.cumsum(self._seen), 0).astype(np.int32)  # [buckets]
        numbers = [np.zeros(0, np.int32)]
        lengths = [np.zeros(1, np.int64)]
        for chunk in self._ngrams.chunks(inputs.strings[1]):
            owner, bucket = self._ngrams.buckets(chunk, self.buckets)
            known = number[bucket] > 0
            owner, bucket = owner[known], bucket[known]
            many = np.bincount(owner, minlength=len(chunk))
            place = np.arange(len(owner)) - np.repeat(np.cumsum(many) - many, many)
            numbers.append(number[bucket[place < self.longest]])
            lengths.append(np.minimum(many, self.longest))
        return Bags(np.concatenate(numbers), np.cumsum(np.concatenate(lengths)))

    @property
    def _ngrams(self) -> Ngrams:
        return Ngrams(self.words, self.characters, self.letters)

    def validate(self) -> None:
        if len(self.seen) * 8 != self.buckets:
            raise ValueError("seen must hold a bit for each bucket")
