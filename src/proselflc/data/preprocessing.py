"""How inputs become tensors: fitted on the training part, saved with the run, used to predict.

Images are scaled by the mean and deviation of every channel, texts become bags of hashed n-grams,
the columns of a table are standardised. Each is a frozen record that `to_json` writes as plain
JSON and `from_json` reads back, checking it as it would any file from outside.
"""

from __future__ import annotations

import base64
import binascii
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from proselflc.data import augment, image
from proselflc.data.dataset import Bools, Bytes, Features, ImageFiles, Images, Inputs, Ints, Texts
from proselflc.errors import InputError, unknown

Json: TypeAlias = dict[str, object]
Window: TypeAlias = tuple[int, int, int, int]  # top, left, height, width
_Hashes: TypeAlias = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class ImageScaling:
    """Images as a model sees them: of one size, every channel with mean 0 and deviation 1.

    Files are warped to `warp` whatever their shape, and the middle `size` of that is used; the
    paper's ImageNet recipe is 256×256 and 224×224. Images in memory must have `size` already.

    Attributes:
        mean, std: of pixels / 255, one number per channel; 1 channel means grey.
        size: height and width the model sees.
        warp: height and width that files are warped to, at least `size`.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]
    size: tuple[int, int]
    warp: tuple[int, int]

    @property
    def channels(self) -> int:
        return len(self.mean)

    @classmethod
    def fit(
        cls,
        train: Images | ImageFiles,
        *,
        size: tuple[int, int] = (224, 224),
        warp: tuple[int, int] = (256, 256),
        sample: int = 2000,
    ) -> ImageScaling:
        """Measure the training images.

        Args:
            train: n ≥ 1 images. Images in memory keep their size; for these the rest is unused.
            size: what the model is to see of image files.
            warp: what image files are warped to before.
            sample: at most so many image files are looked at, evenly spread over the list.
        """
        if len(train) == 0:
            raise InputError("no training images to measure")
        if isinstance(train, Images):
            height, width = train.pixels.shape[1:3]
            mean, std = augment.channel_statistics(train.pixels)
            size = warp = (int(height), int(width))
        else:
            if warp[0] < size[0] or warp[1] < size[1]:
                raise InputError(
                    f"images are warped to {_by(warp)} and then cropped to {_by(size)}, which is "
                    "larger: warp to at least the size of the crop"
                )
            chosen = np.linspace(0, len(train) - 1, min(sample, len(train))).astype(np.int64)
            counts = np.zeros((3, 256), np.int64)
            for i in np.unique(chosen):
                pixels = _read(train.paths[i], warp)
                counts += [np.bincount(channel.ravel(), minlength=256) for channel in pixels]
            mean, std = augment.statistics_of_counts(counts)
        # A channel that never changes carries nothing; dividing by 1 leaves it at 0.
        return cls(mean, tuple(s if s > 0 else 1.0 for s in std), size, warp)

    @property
    def middle(self) -> Window:
        """What is cut out of a warped file when nothing is left to chance."""
        (height, width), (h, w) = self.warp, self.size
        return (height - h) // 2, (width - w) // 2, h, w

    def check(self, inputs: Inputs) -> None:
        """Refuse inputs of another kind or shape than were fitted."""
        if isinstance(inputs, ImageFiles):
            return
        if not isinstance(inputs, Images):
            raise InputError(f"this model was made for images, got {_kind(inputs)}")
        height, width, channels = inputs.pixels.shape[1:]
        if (height, width) != self.size or channels != self.channels:
            raise InputError(
                f"this model was made for images of {_by(self.size)} with {self.channels} "
                f"channels, got {_by((height, width))} with {channels}"
            )

    def __call__(self, inputs: Inputs) -> Tensor:
        """[N, channels, h, w] float32 for N images; files are read here and now."""
        self.check(inputs)
        if isinstance(inputs, ImageFiles):
            pixels = np.empty((len(inputs), self.channels, *self.size), np.uint8)
            for path, out in zip(inputs.paths, pixels, strict=True):
                _read(path, self.warp, channels=self.channels, window=self.middle, out=out)
            return self.normalized(torch.from_numpy(pixels))
        assert isinstance(inputs, Images)
        return self.normalized(torch.from_numpy(np.array(inputs.pixels)).permute(0, 3, 1, 2))

    def normalized(
        self, pixels: Tensor, *, channels_last: bool = False, out: Tensor | None = None
    ) -> Tensor:
        """[N, channels, h, w] float32 from bytes of that shape, in the memory order asked for.

        Where `out` is given, a contiguous tensor of that shape, it is used on the way.
        """
        # Channel by channel first, whatever is asked for: that is twice as fast.
        mean, std = torch.tensor(self.mean), torch.tensor(self.std)
        x = augment.normalize(pixels.contiguous(), mean, std, out=out)
        return x.contiguous(memory_format=torch.channels_last) if channels_last else x

    def to_json(self) -> Json:
        return {
            "kind": "images",
            "mean": list(self.mean),
            "std": list(self.std),
            "size": list(self.size),
            "warp": list(self.warp),
        }

    @classmethod
    def from_json(cls, value: object) -> ImageScaling:
        fields = _fields(value, "images", ("mean", "std", "size", "warp"))
        mean, std = _numbers(fields, "mean"), _numbers(fields, "std")
        size, warp = _pair(fields, "size", 1, 16384), _pair(fields, "warp", 1, 16384)
        if len(mean) != len(std) or len(mean) not in (1, 3):
            raise _broken("mean and std must hold 1 or 3 numbers each")
        if not all(0 <= m <= 1 for m in mean) or not all(1e-12 <= s <= 1e3 for s in std):
            raise _broken("mean must lie in 0 … 1, and std be positive")
        if warp[0] < size[0] or warp[1] < size[1]:
            raise _broken("warp must be at least size")
        return cls(mean, std, size, warp)


def warped(
    source: Path | bytes,
    size: tuple[int, int],
    *,
    channels: int = 3,
    window: Window | None = None,
    flip: bool = False,
    out: Bytes | None = None,
) -> Bytes:
    """[channels, h, w] an image warped to a size without its aspect, or a window of that.

    Bilinear, over all pixels that an output pixel covers. Pixels outside the window are never
    computed, and a JPEG much larger than needed is decoded at a half, a quarter or an eighth of
    its size; both save more time than all that follows takes.

    Args:
        source: an image file, or the bytes of one.
        size: height and width to warp the whole image to.
        channels: 3, or 1 for grey.
        window: the part of the warped image that is wanted; the whole if None.
        flip: mirror that part left to right.
        out: [channels, h, w] where to write it; something new if None.

    Raises:
        ValueError: why it cannot be read; it is for the caller to say which image it is.
    """
    from PIL import Image

    top, left, height, width = window or (0, 0, *size)
    result = np.empty((channels, height, width), np.uint8) if out is None else out
    try:
        with image.opened(source) as file:
            longer = max(size)  # it may lie on its side
            file.draft("RGB", (longer, longer))
            upright = image.rgb(file)
            if channels == 1:
                upright = upright.convert("L")
            y, x = upright.height / size[0], upright.width / size[1]
            box = (left * x, top * y, (left + width) * x, (top + height) * y)
            part = upright.resize((width, height), Image.Resampling.BILINEAR, box=box)
    except Exception as error:  # decoders raise nearly anything on hostile bytes
        raise ValueError(image.reason(error)) from None
    for plane, channel in zip(result, part.split(), strict=True):
        values = np.asarray(channel)
        plane[:] = values[:, ::-1] if flip else values
    return result


def _read(
    path: Path,
    size: tuple[int, int],
    *,
    channels: int = 3,
    window: Window | None = None,
    out: Bytes | None = None,
) -> Bytes:
    try:
        return warped(path, size, channels=channels, window=window, out=out)
    except ValueError as error:
        raise InputError(f"cannot read the image {path}: {error}; replace or remove it") from None


_PRIME = np.uint64(0x100000001B3)  # FNV-1a with 64 bits, over code points instead of bytes
_BASIS = 0xCBF29CE484222325
_SPACE = 0x20
_LONGEST_WORD = 64  # code points of a word that count; bounds the work on hostile text


@dataclass(frozen=True)
class Bags:
    """A bag of bucket numbers for each of n texts.

    Attributes:
        numbers: [total] int32 ≥ 1, the bags one after the other.
        bounds: [n + 1] int64: the bag of text i is numbers[bounds[i] : bounds[i + 1]].
    """

    numbers: npt.NDArray[np.int32]
    bounds: Ints

    def padded(self, index: Ints) -> Tensor:
        """[N, L] int64 the bags of the texts at index [N], filled up with 0 to the longest."""
        starts = self.bounds[index]
        lengths = self.bounds[index + 1] - starts
        columns = np.arange(max(1, int(lengths.max(initial=0))))
        inside = columns < lengths[:, None]
        places = np.where(inside, starts[:, None] + columns, 0)
        if len(self.numbers) == 0:
            return torch.zeros(places.shape, dtype=torch.int64)
        return torch.from_numpy(np.where(inside, self.numbers[places], 0).astype(np.int64))


@dataclass(frozen=True)
class TextHashing:
    """Texts as bags of n-grams, each named by a number: what an `nn.EmbeddingBag` takes.

    A text is normalised (NFKC, lower case, white space folded) and taken apart into runs of words
    and runs of characters inside a word and its two borders. A run is hashed into one of `buckets`
    buckets; buckets that training texts hardly ever used are left out, for their embeddings would
    be noise, and the others are numbered from 1. Number 0 fills up: `padding_idx=0`. Every run
    counts once per text. Words come first, so that of an overlong text these are kept.

    Attributes:
        buckets: how many buckets there are, a power of two.
        words: shortest and longest run of words; (1, 0) for none.
        characters: shortest and longest run of characters; (1, 0) for none.
        longest: at most so many numbers per text.
        letters: at most so many characters are read of each text.
        seen: a bit per bucket, least significant first: whether training texts use it.
    """

    buckets: int
    words: tuple[int, int]
    characters: tuple[int, int]
    longest: int
    letters: int
    seen: bytes

    def __post_init__(self) -> None:
        if self.buckets < 8 or self.buckets & (self.buckets - 1):
            raise InputError(f"buckets must be a power of two from 8 on, got {self.buckets}")
        if min(self.words[0], self.characters[0], self.longest, self.letters) < 1:
            raise InputError("runs of words and characters, longest and letters begin at 1")
        assert len(self.seen) * 8 == self.buckets

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

        What occurs in one text only says nothing about any other, and helps to memorise a wrong
        label.
        """
        hashing = cls(buckets, words, characters, longest, letters, b"\xff" * (buckets // 8))
        used = np.zeros(buckets, np.int64)
        for chunk in hashing._chunks(train.texts):
            used += np.bincount(hashing._runs(chunk)[1], minlength=buckets)
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
        """Numbers a bag may hold, 0 included: rows of the embedding."""
        return 1 + int(self._seen.sum())

    @cached_property
    def _seen(self) -> Bools:
        bits = np.frombuffer(self.seen, np.uint8)
        return np.unpackbits(bits, bitorder="little").astype(np.bool_)

    def check(self, inputs: Inputs) -> None:
        """Refuse inputs that are not texts."""
        if not isinstance(inputs, Texts):
            raise InputError(f"this model was made for texts, got {_kind(inputs)}")

    def __call__(self, inputs: Inputs) -> Tensor:
        """[N, L] int64 numbers of N texts, 0 for none; L is that of the longest, at least 1."""
        self.check(inputs)
        assert isinstance(inputs, Texts)
        return self.bags(inputs).padded(np.arange(len(inputs)))

    def bags(self, inputs: Texts) -> Bags:
        """The bags of all n texts."""
        number = np.where(self._seen, np.cumsum(self._seen), 0).astype(np.int32)  # [buckets]
        numbers = [np.zeros(0, np.int32)]
        lengths = [np.zeros(1, np.int64)]
        for chunk in self._chunks(inputs.texts):
            owner, bucket = self._runs(chunk)
            known = number[bucket] > 0
            owner, bucket = owner[known], bucket[known]
            many = np.bincount(owner, minlength=len(chunk))
            place = np.arange(len(owner)) - np.repeat(np.cumsum(many) - many, many)
            numbers.append(number[bucket[place < self.longest]])
            lengths.append(np.minimum(many, self.longest))
        return Bags(np.concatenate(numbers), np.cumsum(np.concatenate(lengths)))

    def _chunks(self, texts: Sequence[str]) -> Iterator[list[str]]:
        """Normalised texts, about a million letters at a time."""
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

    def _runs(self, chunk: list[str]) -> tuple[Ints, Ints]:
        """The distinct buckets of every normalised text, words first, as pairs (text, bucket)."""
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
        bucket = (np.concatenate(hashes) & np.uint64(self.buckets - 1)).astype(np.int64)
        first = np.sort(np.unique(text * self.buckets + bucket, return_index=True)[1])
        first = first[np.argsort(text[first], kind="stable")]
        return text[first], bucket[first]

    def to_json(self) -> Json:
        return {
            "kind": "texts",
            "buckets": self.buckets,
            "words": list(self.words),
            "characters": list(self.characters),
            "longest": self.longest,
            "letters": self.letters,
            "seen": base64.b64encode(self.seen).decode("ascii"),
        }

    @classmethod
    def from_json(cls, value: object) -> TextHashing:
        names = ("buckets", "words", "characters", "longest", "letters", "seen")
        fields = _fields(value, "texts", names)
        buckets = _integer(fields["buckets"], "buckets", 8, 2**24)
        seen = fields["seen"]
        try:
            bits = base64.b64decode(seen if isinstance(seen, str) else "?", validate=True)
        except (binascii.Error, ValueError):
            raise _broken("seen must be base64 text") from None
        if len(bits) * 8 != buckets:
            raise _broken("seen must hold a bit for each bucket")
        return cls(
            buckets,
            _pair(fields, "words", 0, 16),
            _pair(fields, "characters", 0, 16),
            _integer(fields["longest"], "longest", 1, 2**20),
            _integer(fields["letters"], "letters", 1, 2**24),
            bits,
        )


def _hashed_words(letters: _Hashes, starts: Ints, lengths: Ints) -> _Hashes:
    """[words] the hash of every word, letter by letter for all words at once."""
    word = np.full(len(starts), _BASIS, np.uint64)
    for k in range(int(lengths.max(initial=0))):
        still = np.flatnonzero(lengths > k)
        word[still] = (word[still] ^ letters[starts[still] + k]) * _PRIME
    return word


def _hashed_runs(units: _Hashes, n: int, *, salt: int) -> _Hashes:
    """[m − n + 1] the hash of every run of n of the m units; the salt keeps kinds apart."""
    run = np.full(len(units) - n + 1, _BASIS ^ salt, np.uint64)
    for k in range(n):
        run = (run ^ units[k : len(units) - n + 1 + k]) * _PRIME
    run = (run ^ (run >> np.uint64(32))) * _PRIME
    return run ^ (run >> np.uint64(29))  # FNV mixes upwards only; the bucket is the low bits


def _within_a_word(space: Bools, n: int) -> Bools:
    """[m − n + 1] whether a run of n letters lies in one word and its two borders."""
    windows = np.lib.stride_tricks.sliding_window_view(space, n)
    return np.asarray(~windows[:, 1:-1].any(axis=1) & ~windows.all(axis=1))


@dataclass(frozen=True)
class Standardization:
    """The columns of a table, or of embeddings, each with mean 0 and deviation 1.

    A column that is constant in the training part becomes 0 everywhere, whatever it holds later:
    nothing was learned about it. Nothing lies more than a million deviations out.

    Attributes:
        mean: D numbers.
        std: D numbers, 0 for a constant column.
        columns: D names where the table has them; later tables are matched by them.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]
    columns: tuple[str, ...] | None = None

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
        return cls(tuple(map(float, mean)), tuple(map(float, std)), train.columns)

    def check(self, inputs: Inputs) -> None:
        """Refuse inputs that are not a table with the columns that were fitted."""
        if not isinstance(inputs, Features):
            raise InputError(f"this model was made for numeric features, got {_kind(inputs)}")
        self._positions(inputs)

    def __call__(self, inputs: Inputs) -> Tensor:
        """[N, D] float32 for N rows of numbers."""
        self.check(inputs)
        assert isinstance(inputs, Features)
        positions = self._positions(inputs)
        values = inputs.values if positions is None else inputs.values[:, positions]
        mean, std = np.asarray(self.mean), np.asarray(self.std)
        scale = np.divide(1.0, std, out=np.zeros_like(std), where=std > 0)
        standard = np.clip((values - mean) * scale, -1e6, 1e6)
        return torch.from_numpy(standard.astype(np.float32))

    def _positions(self, inputs: Features) -> list[int] | None:
        """Where the fitted columns are in this table; None where they are where they were."""
        if self.columns is None or inputs.columns is None or inputs.columns == self.columns:
            if inputs.values.shape[1] != len(self.mean):
                raise InputError(
                    f"this model was made for {len(self.mean)} features per example, got "
                    f"{inputs.values.shape[1]}"
                )
            return None
        place = {name: i for i, name in enumerate(inputs.columns)}
        for name in self.columns:
            if name not in place:
                raise InputError(
                    f'the column "{name}" that this model was made for is missing; columns here: '
                    f"{', '.join(inputs.columns)}"
                )
        return [place[name] for name in self.columns]

    def to_json(self) -> Json:
        return {
            "kind": "features",
            "mean": list(self.mean),
            "std": list(self.std),
            "columns": None if self.columns is None else list(self.columns),
        }

    @classmethod
    def from_json(cls, value: object) -> Standardization:
        fields = _fields(value, "features", ("mean", "std", "columns"))
        mean, std = _numbers(fields, "mean"), _numbers(fields, "std")
        columns = fields["columns"]
        if len(mean) != len(std) or min(std) < 0:
            raise _broken("mean and std must hold as many numbers, std none below 0")
        if columns is None:
            return cls(mean, std)
        if not isinstance(columns, list) or not all(isinstance(c, str) for c in columns):
            raise _broken("columns must be a list of names, or null")
        if len(columns) != len(mean) or len(set(columns)) != len(columns):
            raise _broken("columns must name every column once")
        return cls(mean, std, tuple(columns))


Preprocessing: TypeAlias = ImageScaling | TextHashing | Standardization

_KINDS: dict[str, type[Preprocessing]] = {
    "images": ImageScaling,
    "texts": TextHashing,
    "features": Standardization,
}


def fit(train: Inputs) -> Preprocessing:
    """The preprocessing that suits these training inputs, fitted on them."""
    if isinstance(train, Texts):
        return TextHashing.fit(train)
    if isinstance(train, Features):
        return Standardization.fit(train)
    return ImageScaling.fit(train)


def from_json(value: object) -> Preprocessing:
    """What `to_json` gave, after it was written and read; every value is checked."""
    kind = value.get("kind") if isinstance(value, dict) else None
    if not isinstance(kind, str):
        raise _broken("it must be an object with a kind")
    if kind not in _KINDS:
        raise InputError(unknown("preprocessing", kind, _KINDS))
    preprocessing: Preprocessing = _KINDS[kind].from_json(value)
    return preprocessing


def _kind(inputs: Inputs) -> str:
    names = {Images: "images", ImageFiles: "image files", Texts: "texts", Features: "features"}
    return names[type(inputs)]


def _by(size: tuple[int, int]) -> str:
    return f"{size[0]}×{size[1]}"


def _broken(why: str) -> InputError:
    return InputError(f"the saved preprocessing is not what proselflc writes: {why}")


def _fields(value: object, kind: str, names: tuple[str, ...]) -> Json:
    """The object itself, if it is of this kind and has exactly these fields."""
    if not isinstance(value, dict) or value.get("kind") != kind:
        raise _broken(f'it must be an object of kind "{kind}"')
    if set(value) != {"kind", *names}:
        raise _broken(f"it must have the fields {', '.join(names)}")
    return value


def _integer(value: object, what: str, low: int, high: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise _broken(f"{what} must be a whole number from {low} to {high}")
    return value


def _pair(fields: Json, name: str, low: int, high: int) -> tuple[int, int]:
    value = fields[name]
    if not isinstance(value, list) or len(value) != 2:
        raise _broken(f"{name} must be two whole numbers")
    return _integer(value[0], name, low, high), _integer(value[1], name, low, high)


def _numbers(fields: Json, name: str) -> tuple[float, ...]:
    value = fields[name]
    if not isinstance(value, list) or not value:
        raise _broken(f"{name} must be a list of numbers")
    if not all(type(v) in (int, float) and abs(v) < 1e300 for v in value):
        raise _broken(f"{name} must hold finite numbers only")
    return tuple(map(float, value))
