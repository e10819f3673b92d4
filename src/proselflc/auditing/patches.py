"""Features of small images from their patches, learned without labels.

After Coates, Lee & Ng (AISTATS 2011): patches are normalised and whitened, k-means finds typical
ones, and an image is described by how near its patches are to these, averaged over its quadrants.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from proselflc.data.inputs import Floats

CENTROIDS = 128
SAMPLED = 20_000  # patches that k-means learns from
_CONTRAST = 10 / 255  # added to a patch's deviation, so that flat patches stay small
_WHITENING = 0.1  # added to the eigenvalues, so that noise is not amplified
_PASSES = 10  # of k-means over the sampled patches
_NUMBERS = 2**22  # of distances computed at once, 16 MB


def patch_side(height: int, width: int) -> int:
    """Return the side of a patch in pixels: 3 for images of up to 8 pixels, 5 up to 16, then 6."""
    shorter = min(height, width)
    side = 3 if shorter <= 8 else 5 if shorter <= 16 else 6
    return min(side, shorter)


@dataclass(frozen=True)
class Patches:
    """The typical patches of some images, and what is done to a patch before it is compared.

    Attributes:
        side: of a patch in pixels.
        mean: [P] the mean of normalised patches, P = side² · channels.
        whitening: [P, P] symmetric.
        centroids: [K, P] typical patches, whitened.
    """

    side: int
    mean: Tensor
    whitening: Tensor
    centroids: Tensor

    @classmethod
    def fit(cls, images: Tensor, *, generator: np.random.Generator, seed: int) -> Patches:
        """Learn from images [N, channels, H, W] of values 0 … 1, with patches drawn at random."""
        from sklearn.cluster import MiniBatchKMeans

        side = patch_side(*images.shape[2:])
        every = _cut(images, side)  # a view
        count, rows, columns = every.shape[:3]
        total = count * rows * columns
        chosen = torch.from_numpy(
            np.sort(generator.choice(total, min(total, SAMPLED), replace=False))
        )
        which, place = chosen // (rows * columns), chosen % (rows * columns)
        patches = _normalized(every[which, place // columns, place % columns].flatten(1))
        mean = patches.mean(0)
        centred = (patches - mean).double()
        spread, directions = torch.linalg.eigh(centred.T @ centred / len(centred))
        scale = 1 / (spread.clamp(min=0) + _WHITENING).sqrt()
        whitening = (directions * scale @ directions.T).float()
        white = (patches - mean) @ whitening
        # It stops after a fixed number of steps: how the threads of a sum are added up would
        # otherwise decide when, and the features would not be the same in every run.
        means = MiniBatchKMeans(
            min(CENTROIDS, len(white)),
            n_init=1,
            random_state=seed,
            batch_size=2048,
            max_iter=_PASSES,
            max_no_improvement=None,
            tol=0.0,
            compute_labels=False,
        ).fit(white.numpy())
        return cls(side, mean, whitening, torch.from_numpy(means.cluster_centers_).float())

    def __call__(self, images: Tensor) -> Floats:
        """Return [N, 4·K] float32, how near the patches of each quadrant are to the typical ones.

        The activation of a patch x at distance z_k(x) to centroid k is max(0, mean_j z_j − z_k).
        """
        every = _cut(images, self.side)
        _, rows, columns = every.shape[:3]
        K = len(self.centroids)
        found = np.empty((len(images), 4 * K), np.float32)
        squares = self.centroids.square().sum(1)
        step = max(1, _NUMBERS // (rows * columns * K))
        for start in range(0, len(images), step):
            some = every[start : start + step]
            white = (_normalized(some.reshape(-1, self.mean.numel())) - self.mean) @ self.whitening
            distance = torch.addmm(squares, white, self.centroids.T, alpha=-2)
            distance.add_(white.square().sum(1, keepdim=True)).clamp_(min=0).sqrt_()
            near = distance.neg_().sub_(distance.mean(1, keepdim=True)).clamp_(min=0)
            grid = near.view(len(some), rows, columns, K).permute(0, 3, 1, 2)
            found[start : start + step] = F.adaptive_avg_pool2d(grid, 2).flatten(1).numpy()
        return found


def _cut(images: Tensor, side: int) -> Tensor:
    """Return [N, H − side + 1, W − side + 1, channels, side, side], a view of all patches."""
    return images.unfold(2, side, 1).unfold(3, side, 1).permute(0, 2, 3, 1, 4, 5)


def _normalized(patches: Tensor) -> Tensor:
    """Return patches [M, P], each minus its mean and divided by its deviation."""
    std, mean = torch.std_mean(patches, 1, correction=0, keepdim=True)
    return (patches - mean) / (std + _CONTRAST)
