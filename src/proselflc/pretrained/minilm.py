"""all-MiniLM-L6-v2: a small transformer that was trained to tell sentences apart.

The network is the encoder of BERT (Devlin et al. 2019) with 6 layers of 384 features (Wang et al.
2020), written here from its description, with the weights of sentence-transformers (Reimers and
Gurevych 2019). It knows English; the weights and the tokenizer are two files in a package that is
not imported.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from proselflc.models.weights import load_strictly, read_state
from proselflc.pretrained.encoder import Encoder
from proselflc.pretrained.tokens import read_tokenizer, readable

if TYPE_CHECKING:
    from tokenizers import Tokenizer

WIDTH = 384
TOKENS = 256  # of a text that are read, the first and the last mark included
WEIGHTS = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"  # sha256
TOKENIZER = "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"

_VOCABULARY = 30522
_POSITIONS = 512
_LAYERS = 6
_HEADS = 12
_INNER = 1536
_EPSILON = 1e-12
_UNUSED = ("pooler.dense.weight", "pooler.dense.bias", "embeddings.position_ids")
_TOGETHER = 8192  # tokens that are encoded together, padding included


def load(path: Path) -> Encoder:
    """Return the model from its weights; the tokenizer lies beside them."""
    state = {
        name: value
        for name, value in read_state(path, sha256=WEIGHTS).items()
        if name not in _UNUSED
    }
    tokenizer = read_tokenizer(path.parent / "tokenizer.json", sha256=TOKENIZER)
    tokenizer.enable_truncation(TOKENS)
    with torch.device("meta"):  # nothing is drawn from the global generator
        network = MiniLM()
    network.to_empty(device="cpu")
    load_strictly(network, {_renamed(name): value for name, value in state.items()}, path)
    network.eval().requires_grad_(False)
    digest = hashlib.sha256(f"minilm 1 {WEIGHTS} {TOKENIZER}".encode()).hexdigest()
    return Encoder("minilm", "text", WIDTH, digest, _Sentences(network, tokenizer))


class Layer(nn.Module):
    """Self-attention and two linear layers, each added to its input and then normalised."""

    def __init__(self) -> None:
        super().__init__()
        self.query = nn.Linear(WIDTH, WIDTH)
        self.key = nn.Linear(WIDTH, WIDTH)
        self.value = nn.Linear(WIDTH, WIDTH)
        self.attended = nn.Linear(WIDTH, WIDTH)
        self.attended_norm = nn.LayerNorm(WIDTH, eps=_EPSILON)
        self.inner = nn.Linear(WIDTH, _INNER)
        self.outer = nn.Linear(_INNER, WIDTH)
        self.outer_norm = nn.LayerNorm(WIDTH, eps=_EPSILON)

    def forward(self, h: Tensor, mask: Tensor) -> Tensor:
        """Return [N, L, D] from h [N, L, D] and which tokens are no padding [N, L]."""
        q, k, v = (
            layer(h).unflatten(-1, (_HEADS, -1)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        a = F.scaled_dot_product_attention(q, k, v, mask[:, None, None])
        h = self.attended_norm(h + self.attended(a.transpose(1, 2).flatten(2)))
        normed: Tensor = self.outer_norm(h + self.outer(F.gelu(self.inner(h))))
        return normed


class MiniLM(nn.Module):
    """The encoder of BERT, and the mean of its tokens with length 1."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(_VOCABULARY, WIDTH)
        self.positions = nn.Embedding(_POSITIONS, WIDTH)
        self.segments = nn.Embedding(2, WIDTH)
        self.norm = nn.LayerNorm(WIDTH, eps=_EPSILON)
        self.layers = nn.ModuleList(Layer() for _ in range(_LAYERS))

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Return [N, D] from tokens [N, L] and which of them are no padding [N, L]."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        h = self.words(tokens) + self.positions(places) + self.segments.weight[0]
        h = self.norm(h)
        for layer in self.layers:
            h = layer(h, mask)
        mean = (h * mask[:, :, None]).sum(1) / mask.sum(1, keepdim=True)
        return F.normalize(mean, dim=1)


@dataclass(frozen=True)
class _Sentences:
    """Texts of similar length are encoded together, so that there is little padding."""

    network: MiniLM
    tokenizer: Tokenizer

    @torch.no_grad()
    def __call__(self, texts: Sequence[str]) -> Tensor:
        """Return [N, D] the features of N texts, zeros for a text without tokens."""
        tokens = [self.tokenizer.encode(readable(text)).ids for text in texts]
        features = torch.zeros(len(texts), WIDTH)
        waiting = [i for i, found in enumerate(tokens) if len(found) > 2]  # more than the two marks
        waiting.sort(key=lambda i: len(tokens[i]))
        while waiting:
            longest = len(tokens[waiting[-1]])
            batch = waiting[-max(1, _TOGETHER // longest) :]
            del waiting[-len(batch) :]
            padded = torch.zeros(len(batch), longest, dtype=torch.int64)
            mask = torch.zeros(len(batch), longest, dtype=torch.bool)
            for row, i in enumerate(batch):
                padded[row, : len(tokens[i])] = torch.tensor(tokens[i])
                mask[row, : len(tokens[i])] = True
            features[batch] = self.network(padded, mask)
        return features


_NAMES = {  # of the published weights, beside ours
    "embeddings.word_embeddings.": "words.",
    "embeddings.position_embeddings.": "positions.",
    "embeddings.token_type_embeddings.": "segments.",
    "embeddings.LayerNorm.": "norm.",
    "encoder.layer.": "layers.",
    "attention.self.": "",
    "attention.output.dense.": "attended.",
    "attention.output.LayerNorm.": "attended_norm.",
    "intermediate.dense.": "inner.",
    "output.dense.": "outer.",
    "output.LayerNorm.": "outer_norm.",
}


def _renamed(name: str) -> str:
    for theirs, ours in _NAMES.items():
        name = name.replace(theirs, ours)
    return name
