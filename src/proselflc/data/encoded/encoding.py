"""The features of images or texts by one or more pretrained models, computed once.

Files are decoded by threads while the model computes, so that two cores are used. Features that
were computed before, by any run, come from the cache.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from proselflc.data.encoded.cache import FeatureCache, key_of
from proselflc.data.encoded.inputs import Encoded, Halves
from proselflc.data.image import MAX_BYTES, QUIET, unreadable
from proselflc.data.image_scaling import warped
from proselflc.data.inputs import Bytes, Floats, ImageFiles, Inputs, Ints
from proselflc.data.memory_budget import require
from proselflc.data.sources.cifar import default_cache
from proselflc.errors import InputError
from proselflc.files.regular import open_regular
from proselflc.pretrained import catalogue
from proselflc.pretrained.encoder import Encoder
from proselflc.wording import option

Progress: TypeAlias = Callable[[int, int], None]  # is given the number done and the number of all

LOCAL = ("hf", "timm", "sentence-transformers")  # libraries whose models lie on the disk
_CHUNK = 64  # inputs that are encoded and kept together
_PIXELS = _CHUNK * 224 * 224  # of images that are decoded together
_BLOCK = 4096  # features that are looked up together
_BYTES = 1 << 20  # of a file that are hashed together


@dataclass(frozen=True)
class Encoding:
    """How inputs become features.

    Attributes:
        names: of the pretrained models, joined by "+".
        side: height and width at which images are encoded; 0 for texts.
    """

    names: str
    side: int = 0

    def __post_init__(self) -> None:
        # The name may come from a run, which is not trusted to name code.
        for name in self.names.split("+"):
            kind, colon, _ = name.partition(":")
            if (kind if colon else "") not in ("", *LOCAL):
                raise InputError(
                    f'"{name}" is not a pretrained model that a run can name',
                    field="backbone",
                    fix=f"choose one of {', '.join((*catalogue.BACKBONES, catalogue.HASHED))}, or "
                    f"{', '.join(f'{one}:NAME' for one in LOCAL)}; embeddings by your own function "
                    f"are given with {option('features')}",
                )

    @cached_property
    def encoders(self) -> tuple[Encoder, ...]:
        """Return the pretrained models; they are loaded when first asked for."""
        return tuple(catalogue.encoder(name) for name in self.names.split("+"))

    @property
    def usual_side(self) -> int:
        """Return the height and width at which the models see images; 0 for models of texts."""
        return max(encoder.side for encoder in self.encoders)

    @property
    def digest(self) -> str:
        """Return what identifies the weights of all models."""
        return "+".join(encoder.digest for encoder in self.encoders)

    @property
    def width(self) -> int:
        """Return the number of features, D."""
        return sum(encoder.width for encoder in self.encoders)

    def __call__(
        self,
        inputs: Inputs,
        *,
        cache: Path | None = None,
        threads: int = 2,
        progress: Progress | None = None,
    ) -> Encoded:
        """Return inputs with their features; those of each model have length 1.

        Args:
            inputs: n images or texts.
            cache: folder that features are kept in; None for the user's cache directory.
            threads: that read and decode files.
            progress: is called when some inputs are done.
        """
        if isinstance(inputs, Encoded):
            if inputs.how == self:
                return inputs
            inputs = inputs.raw
        total, parts = len(inputs) * len(self.encoders), []
        for k, encoder in enumerate(self.encoders):
            done = k * len(inputs)

            def report(now: int, before: int = done) -> None:
                if progress is not None:
                    progress(before + now, total)

            parts.append(_encoded(inputs, encoder, self.side, cache, threads, report))
        values = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)
        return Encoded(inputs, values, self)


def _encoded(
    inputs: Inputs,
    encoder: Encoder,
    side: int,
    folder: Path | None,
    threads: int,
    report: Callable[[int], None],
) -> Halves:
    """Return [n, D] the features of n inputs by one model."""
    if inputs.medium != encoder.medium:
        raise InputError(
            f"{encoder.name} is for {encoder.medium}s, but these are {inputs.kind}",
            field="backbone",
            fix=f"choose one for {inputs.medium}s, or none",
        )
    n = len(inputs)
    require(
        2 * n * encoder.width,
        f"{encoder.width:,} features of {n:,} inputs",
        f"use fewer examples, or learn them from scratch with {option('backbone', 'none')}",
    )
    values: Halves = np.empty((n, encoder.width), np.float16)
    if encoder.is_kept:
        folder = folder or default_cache()
    cache = FeatureCache(
        folder if encoder.is_kept else None, f"{encoder.digest}/{side}", encoder.width
    )
    try:
        with ThreadPoolExecutor(max(1, threads)) as pool:
            contents = _Contents(inputs, side, pool)
            places: dict[bytes, list[int]] = {}  # of the inputs with the same content
            for i, key in enumerate(contents.keys()):
                places.setdefault(key, []).append(i)
            missing = []
            for some in _pieces(list(places), _BLOCK):
                known = cache.get(some)
                for key in some:
                    if key in known:
                        values[places[key]] = known[key]
                    else:
                        missing.append(key)
            done = n - len(missing)
            report(done)
            if inputs.medium == "text" and inputs.strings is not None:
                texts = inputs.strings[1]  # sorted by length, so that there is little padding
                missing.sort(key=lambda key: len(texts[places[key][0]]))
            pieces = _pieces(
                missing, _CHUNK if side == 0 else max(1, min(_CHUNK, _PIXELS // side**2))
            )
            rows = [np.array([places[key][0] for key in piece], np.int64) for piece in pieces]
            for piece, index, batch in zip(pieces, rows, contents.batches(rows), strict=True):
                found = _unit(encoder, batch, len(piece))
                for key, row in zip(piece, found, strict=True):
                    values[places[key]] = row
                kept = [k for k, i in enumerate(index) if contents.is_still(piece[k], int(i))]
                cache.put([piece[k] for k in kept], found[kept])
                report(done := done + len(piece))
    finally:
        cache.close()
    return values


def _pieces(keys: list[bytes], size: int) -> list[list[bytes]]:
    return [keys[start : start + size] for start in range(0, len(keys), size)]


def _unit(encoder: Encoder, batch: Any, count: int) -> Halves:
    """Return [N, D] the features of a batch, each row of length 1; 0 stays 0."""
    with torch.inference_mode():
        found = encoder.encode(batch).float()
    if found.shape != (count, encoder.width) or not bool(torch.isfinite(found).all()):
        raise InputError(
            f"{encoder.name} returned features of shape {list(found.shape)} or infinite ones for "
            f"{count} inputs",
            field="backbone",
            fix="check its weights",
        )
    unit: Floats = F.normalize(found, dim=1).numpy()
    return unit.astype(np.float16)


@dataclass(frozen=True)
class _Contents:
    """What identifies each of n inputs, and the inputs as a model takes them."""

    inputs: Inputs
    side: int
    pool: ThreadPoolExecutor

    def keys(self) -> list[bytes]:
        """Return a key for the content of each input."""
        inputs = self.inputs
        if isinstance(inputs, ImageFiles):
            return list(self.pool.map(_key_of_file, inputs.paths))
        if inputs.strings is not None:
            texts = inputs.strings[1]
            return [key_of(text.encode("utf-8", "surrogatepass")) for text in texts]
        assert inputs.numbers is not None
        shape = str(inputs.numbers.shape[1:]).encode()
        return [key_of(shape + np.ascontiguousarray(one).tobytes()) for one in inputs.numbers]

    def is_still(self, key: bytes, i: int) -> bool:
        """Return whether an input has not changed since its key was taken, as a file may."""
        inputs = self.inputs
        return not isinstance(inputs, ImageFiles) or _key_of_file(inputs.paths[i]) == key

    def batches(self, pieces: Sequence[Ints]) -> Iterator[Any]:
        """Yield [N, 3, side, side] uint8 images or N texts; files are read a batch ahead."""
        inputs = self.inputs
        if inputs.strings is not None and inputs.medium == "text":
            for piece in pieces:
                yield [inputs.strings[1][i] for i in piece]
        elif isinstance(inputs, ImageFiles):
            ahead = [self._decoding(inputs, piece) for piece in pieces[:1]]
            for k in range(len(pieces)):
                here = ahead.pop()
                if k + 1 < len(pieces):
                    ahead.append(self._decoding(inputs, pieces[k + 1]))
                yield torch.from_numpy(np.stack([_pixels(*one) for one in here]))
        else:
            assert inputs.numbers is not None
            for piece in pieces:
                yield _resized(np.asarray(inputs.numbers[piece]), self.side)

    def _decoding(self, inputs: ImageFiles, piece: Ints) -> list[tuple[Path, Future[Bytes]]]:
        paths = [inputs.paths[i] for i in piece]
        return [(path, self.pool.submit(_decoded, path, self.side)) for path in paths]


def _key_of_file(path: Path) -> bytes:
    """Return the key of a file's content; of a file that cannot be read, that of its name."""
    digest = hashlib.blake2b(digest_size=16)
    try:
        with open_regular(path) as file:
            for _ in range(MAX_BYTES // _BYTES):
                block = file.read(_BYTES)
                if not block:
                    break
                digest.update(block)
    except OSError:
        return key_of(f"unreadable {path}".encode("utf-8", "surrogatepass"))
    return digest.digest()


def _decoded(path: Path, side: int) -> Bytes:
    """Return [3, side, side] an image file."""
    with QUIET:
        return warped(path, (side, side))


def _pixels(path: Path, decoded: Future[Bytes]) -> Bytes:
    """Return a decoded image; its error is worded here, as threads do not know how options look."""
    try:
        return decoded.result()
    except ValueError as error:
        raise unreadable(f'"{path}"', str(error)) from None


def _resized(pixels: Bytes, side: int) -> Tensor:
    """Return [N, 3, side, side] uint8 of images [N, h, w, channels]."""
    x = torch.from_numpy(np.ascontiguousarray(pixels)).permute(0, 3, 1, 2)
    if x.shape[2:] != (side, side):
        x = F.interpolate(x.float(), (side, side), mode="bilinear", antialias=True)
        x = x.round_().clamp_(0, 255).to(torch.uint8)
    return x.expand(-1, 3, -1, -1)
