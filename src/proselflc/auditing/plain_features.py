"""Features of inputs that never saw the labels, so that neighbours in them are a second opinion.

Nothing here takes labels. Time and memory are linear in the number of inputs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from proselflc.auditing.patches import Patches
from proselflc.data.batches import Order, random_stream
from proselflc.data.dataset import Part
from proselflc.data.encoded.inputs import Encoded
from proselflc.data.encoded.preprocessing import PretrainedFeatures
from proselflc.data.image import usual_length
from proselflc.data.image_scaling import ImageScaling
from proselflc.data.inputs import Features, Floats, ImageFiles, Images, Inputs, Ints, Texts
from proselflc.data.preprocessing import Preprocessing, TextHashing
from proselflc.data.serving import FileLoader
from proselflc.data.tables.encoding import TableEncoding
from proselflc.data.tables.mixed import MixedColumns
from proselflc.errors import InputError

LARGEST = 32  # pixels on the longer side of an image that is looked at
OUTLIER = 8.0  # deviations at which a column is clipped
TEXT_COLUMNS = 256

_COARSE = 4  # pixels on the side of the coarse image beside the patches
_COARSE_SHARE = 0.16  # of the coarse image's variance to that of the patches
_LEARNED_FROM = 2000  # images whose patches are sampled
_TEXTS_LEARNED_FROM = 10_000  # texts whose singular vectors are computed
_BATCH = 256  # images
_NUMBERS = 2**22  # numbers of a table that are looked at together, 32 MB
_MEASUREMENTS = 8  # most times that a column is measured, without the outliers of the time before


@dataclass(frozen=True)
class PlainFeatures:
    """What n inputs look like, as numbers that can be compared by their Euclidean distance.

    Attributes:
        values: [n, D], finite.
        kind: what the columns are, for a sentence.
    """

    values: Floats
    kind: str


def plain_features(
    inputs: Inputs, preprocessing: Preprocessing | None = None, *, seed: int = 0
) -> PlainFeatures | None:
    """Return features of n ≥ 1 inputs, or None for a kind of input that cannot be compared.

    Args:
        inputs: columns of a table, embeddings, images or texts, with pretrained features or not.
        preprocessing: of the run, if there is one: it is reused for texts, and says whether image
            files are grey. One of another kind, as of a run that was trained on embeddings of these
            inputs, is not used.
        seed: of the patches that are sampled, of k-means and of the singular vectors.
    """
    if len(inputs) == 0:
        raise InputError("there are no inputs to compare", fix="give at least one")
    if isinstance(preprocessing, PretrainedFeatures) and inputs.medium == preprocessing.medium:
        inputs = preprocessing.encoded(inputs)
    if isinstance(inputs, Encoded):
        return PlainFeatures(inputs.values.astype(np.float32), "pretrained features")
    if isinstance(inputs, Features):
        return PlainFeatures(_columns(inputs.values), "standardised columns")
    if isinstance(inputs, MixedColumns):
        return PlainFeatures(_mixed_columns(inputs, preprocessing), "standardised columns")
    if isinstance(inputs, Images):
        return PlainFeatures(_image_columns(_InMemory(inputs), seed), "image patches")
    if isinstance(inputs, ImageFiles):
        grey = isinstance(preprocessing, ImageScaling) and preprocessing.channels == 1
        return PlainFeatures(_image_columns(_OnDisk(inputs, grey), seed), "image patches")
    if isinstance(inputs, Texts):
        hashing = preprocessing if isinstance(preprocessing, TextHashing) else None
        return PlainFeatures(_text_columns(inputs, hashing, seed), "words and letters")
    return None


def _columns(values: Floats) -> Floats:
    """Return [n, D] each column with mean 0 and deviation 1, at most `OUTLIER` deviations out.

    A column with outliers is measured again without them, so that a single huge number does not
    make all others equal. A constant column becomes 0.
    """
    finite = np.isfinite(values).all(axis=1)
    if not finite.all():
        raise InputError(
            f"features are compared with their neighbours and must be finite, but "
            f"{int((~finite).sum()):,} of {len(values):,} rows have NaN or infinity, the first is "
            f"row {int(np.flatnonzero(~finite)[0])}",
            fix="fill them in or drop those rows",
        )
    result = np.empty(values.shape, np.float32)
    step = max(1, _NUMBERS // len(values))
    for start in range(0, values.shape[1], step):
        block = np.asarray(values[:, start : start + step], np.float64)
        result[:, start : start + step] = _standardized(block)
    return result


def _mixed_columns(inputs: MixedColumns, preprocessing: Preprocessing | None) -> Floats:
    """Return [n, D] the dense columns; measurements as `_columns` has them.

    Two different categories are as far apart as two numbers on average: their squares differ by 2.
    """
    known = preprocessing if isinstance(preprocessing, TableEncoding) else TableEncoding.fit(inputs)
    values = known.dense(inputs)
    measured = np.flatnonzero(known.is_measured)
    values[:, measured] = _columns(values[:, measured])
    return values


def _standardized(block: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    result = np.zeros_like(block)
    here = np.flatnonzero(block.max(axis=0) > block.min(axis=0))  # columns still to be measured
    inside = np.ones((len(block), len(here)), np.bool_)
    for _ in range(_MEASUREMENTS):
        values = block[:, here]
        count = inside.sum(axis=0)
        mean = np.where(inside, values, 0).sum(axis=0) / count
        values -= mean
        std = np.sqrt(np.square(np.where(inside, values, 0)).sum(axis=0) / count)
        some = std > 0  # the rest is constant but for the outliers: what was measured before stays
        here, inside, values = here[some], inside[:, some], values[:, some] / std[some]
        result[:, here] = np.clip(values, -OUTLIER, OUTLIER)
        new = np.abs(values) <= OUTLIER
        changed = (new != inside).any(axis=0)
        here, inside = here[changed], new[:, changed]
        if not len(here):
            break
    return result


@dataclass(frozen=True)
class _InMemory:
    """Images in memory, or in a memory map."""

    inputs: Images

    def sample(self, index: Ints) -> Tensor:
        """Return [N, channels, h, w] the images at increasing positions, of values 0 … 1."""
        return self._small(self.inputs.pixels[index])

    def batches(self) -> Iterator[Tensor]:
        """Yield all images in their order, as `sample` returns them."""
        for start in range(0, len(self.inputs), _BATCH):
            yield self._small(self.inputs.pixels[start : start + _BATCH])

    @staticmethod
    def _small(pixels: npt.NDArray[np.uint8]) -> Tensor:
        images = torch.from_numpy(np.array(pixels)).permute(0, 3, 1, 2).float().div_(255)
        height, width = images.shape[2:]
        scale = max(1.0, max(height, width) / LARGEST)
        if scale == 1:
            return images.contiguous()
        size = max(1, round(height / scale)), max(1, round(width / scale))
        return F.adaptive_avg_pool2d(images, size)


@dataclass(frozen=True)
class _OnDisk:
    """Image files, decoded to one small size; a file that cannot be read is an InputError."""

    inputs: ImageFiles
    grey: bool

    def sample(self, index: Ints) -> Tensor:
        """Return [N, channels, h, w] the images at increasing positions, of values 0 … 1."""
        return torch.cat(list(_OnDisk(self.inputs.take(index), self.grey)._read(self._side)))

    def batches(self) -> Iterator[Tensor]:
        """Yield all images in their order, as `sample` returns them."""
        yield from self._read(self._side)

    @property
    def _side(self) -> int:
        return min(LARGEST, usual_length(self.inputs.paths))

    def _read(self, side: int) -> Iterator[Tensor]:
        channels, n = (1 if self.grey else 3), len(self.inputs)
        scaling = ImageScaling((0.0,) * channels, (1.0,) * channels, (side, side), (side, side))
        ids = tuple(str(path) for path in self.inputs.paths)
        part = Part(self.inputs, np.zeros(n, np.int64), ids)
        workers = 2 if n > 4 * _BATCH else 0  # they take a second to start
        order = Order(_BATCH, shuffle=False)
        for batch in FileLoader(part, scaling, order, workers=workers).batches():
            yield batch.x


def _image_columns(images: _InMemory | _OnDisk, seed: int) -> Floats:
    """Return [n, D] the patches of images, and the images themselves in a few pixels.

    Patches are blind to how bright a flat image is, which the pixels tell.
    """
    n = len(images.inputs)
    generator = random_stream(seed, "patches")
    chosen = np.sort(generator.choice(n, min(n, _LEARNED_FROM), replace=False)).astype(np.int64)
    patches = Patches.fit(images.sample(chosen), generator=generator, seed=seed)
    near, coarse = [], []
    for batch in images.batches():
        size = min(_COARSE, batch.shape[2]), min(_COARSE, batch.shape[3])
        near.append(patches(batch))
        coarse.append(F.adaptive_avg_pool2d(batch, size).flatten(1).numpy())
    width = near[0].shape[1]
    result = np.empty((n, width + coarse[0].shape[1]), np.float32)
    np.concatenate(near, out=result[:, :width])
    np.concatenate(coarse, out=result[:, width:])
    near.clear()
    result[:, :width] = _columns(result[:, :width])
    pixels = result[:, width:]
    pixels -= pixels.mean(axis=0, dtype=np.float64)
    variance = float(np.square(pixels, dtype=np.float64).sum()) / n
    if variance > 0:
        pixels *= (_COARSE_SHARE * width / variance) ** 0.5
    return result


def _text_columns(texts: Texts, hashing: TextHashing | None, seed: int) -> Floats:
    """Return [n, D] rows of length 1: the singular vectors of the texts' weighted n-grams.

    An n-gram that occurs in d of n texts weighs 1 + log((1 + n) / (1 + d)). A text without any
    n-gram of another text has a direction of its own, which is a function of its letters.
    """
    from scipy.sparse import csr_array
    from sklearn.decomposition import TruncatedSVD

    n = len(texts)
    try:
        hashing = hashing or TextHashing.fit(texts)
        bags, width = hashing.bags(texts), hashing.num_embeddings
        numbers, bounds = bags.numbers - 1, bags.bounds
    except InputError:  # no two texts have anything in common
        numbers, bounds, width = np.zeros(0, np.int32), np.zeros(n + 1, np.int64), 1
    used = np.bincount(numbers, minlength=width)
    weight = (1 + np.log((1 + n) / (1 + used))).astype(np.float32)
    data = weight[numbers]
    lengths = np.sqrt(np.add.reduceat(np.append(data**2, 0), bounds[:-1]) * (np.diff(bounds) > 0))
    data /= np.repeat(np.maximum(lengths, 1e-12), np.diff(bounds)).astype(np.float32)
    matrix = csr_array((data, numbers, bounds), shape=(n, width))
    columns = min(TEXT_COLUMNS, n - 1, int((used > 0).sum()) - 1)
    if columns >= 1:
        generator = random_stream(seed, "texts")
        chosen = np.sort(generator.choice(n, min(n, _TEXTS_LEARNED_FROM), replace=False))
        with np.errstate(all="ignore"):  # it divides by the variance, which equal texts do not have
            vectors = TruncatedSVD(columns, n_iter=2, random_state=seed).fit(matrix[chosen])
        found = vectors.transform(matrix)
    else:
        found = np.zeros((n, TEXT_COLUMNS))
    values = np.ascontiguousarray(found, dtype=np.float32)
    lengths = np.linalg.norm(values, axis=1)
    for i in np.flatnonzero(lengths < 1e-6):
        folded = " ".join(texts.texts[i].lower().split()).encode("utf-8", "surrogatepass")
        values[i] = random_stream(seed, "text", folded.hex()).standard_normal(values.shape[1])
        lengths[i] = np.linalg.norm(values[i])
    values /= lengths[:, None]
    return values
