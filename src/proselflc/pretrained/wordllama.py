"""WordLlama: token embeddings of large language models, averaged over a text.

The weights and the tokenizer are two files in the package `wordllama` (Miller 2024), which is not
imported. Its features are those of `WordLlama.embed`, but for blank texts, which become zeros.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from proselflc.models.weights import read_state
from proselflc.pretrained.encoder import Encoder
from proselflc.pretrained.tokens import read_tokenizer, readable

if TYPE_CHECKING:
    from tokenizers import Tokenizer

WIDTH = 256
WEIGHTS = "64b47a2dc493cb8e85944076601189739852d7b64e0e1eedcb1937a251cd9fd5"  # sha256
TOKENIZER = "93248f2a9ec36c7b35f700a033d5f36228aae48db61aee31007fa49062cdeb68"

_TEXTS = 1024  # encoded together; they hold no more than 80 million tokens


def load(path: Path) -> Encoder:
    """Return WordLlama from its weights; the tokenizer lies in the folder beside theirs."""
    embedding = read_state(path, sha256=WEIGHTS)["embedding.weight"]
    file = path.parents[1] / "tokenizers" / "l2_supercat_tokenizer_config.json"
    tokenizer = read_tokenizer(file, sha256=TOKENIZER)
    digest = hashlib.sha256(f"wordllama 1 {WEIGHTS} {TOKENIZER}".encode()).hexdigest()
    encode = _MeanOfTokens(embedding.float(), tokenizer)
    return Encoder("wordllama", "text", WIDTH, digest, encode)


@dataclass(frozen=True)
class _MeanOfTokens:
    """The mean of the embeddings of a text's tokens."""

    embedding: Tensor  # [V, D] float32
    tokenizer: Tokenizer

    def __call__(self, texts: Sequence[str]) -> Tensor:
        """Return [N, D] the features of N texts, zeros for a text without tokens."""
        parts = [self._some(texts[i : i + _TEXTS]) for i in range(0, len(texts), _TEXTS)]
        return torch.cat(parts) if parts else torch.zeros(0, WIDTH)

    @torch.no_grad()
    def _some(self, texts: Sequence[str]) -> Tensor:
        tokens = [
            self.tokenizer.encode(readable(text), add_special_tokens=False).ids for text in texts
        ]
        ends = torch.tensor([0, *map(len, tokens)]).cumsum(0)
        flat = torch.tensor([token for text in tokens for token in text], dtype=torch.int64)
        return F.embedding_bag(flat, self.embedding, ends[:-1], mode="mean")
