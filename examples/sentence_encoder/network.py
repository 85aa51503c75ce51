"""BERT's encoder (Devlin et al. 2018) in plain torch, with the names that its checkpoints have.

Post-norm blocks, exact GELU, mean pooling over the tokens that count, and a result of length 1, as
sentence-transformers has it. There is no dropout: this only runs.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812  # as everybody calls it


@dataclass(frozen=True, kw_only=True, slots=True)
class Sizes:
    """What a config.json says of the network, under the names that it has there."""

    vocab_size: int
    max_position_embeddings: int
    type_vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_attention_heads: int
    num_hidden_layers: int
    layer_norm_eps: float

    @classmethod
    def of(cls, config: Path) -> Sizes:
        told = json.loads(config.read_text())
        return cls(**{name: told[name] for name in cls.__dataclass_fields__})


class Encoder(nn.Module):
    """Token ids [B, T] and their mask to embeddings [B, hidden_size] of length 1."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.embeddings = Embeddings(sizes)
        layers = nn.ModuleList(Layer(sizes) for _ in range(sizes.num_hidden_layers))
        self.encoder = nn.ModuleDict({"layer": layers})

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        x = self.embeddings(ids)
        for layer in self.encoder["layer"]:
            x = layer(x, mask)
        counts = mask[..., None].to(x.dtype)
        return F.normalize((x * counts).sum(1) / counts.sum(1), dim=-1)


class Embeddings(nn.Module):
    """The sum of what a token, its position and its segment (always the first) stand for."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        width = sizes.hidden_size
        self.word_embeddings = nn.Embedding(sizes.vocab_size, width)
        self.position_embeddings = nn.Embedding(sizes.max_position_embeddings, width)
        self.token_type_embeddings = nn.Embedding(sizes.type_vocab_size, width)
        self.LayerNorm = nn.LayerNorm(width, sizes.layer_norm_eps)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        positions = self.position_embeddings.weight[: ids.shape[1]]
        segment = self.token_type_embeddings.weight[0]
        return self.LayerNorm(self.word_embeddings(ids) + positions + segment)


class Layer(nn.Module):
    """Attention and a feed-forward network, each added to its input and normalised."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        width, inner = sizes.hidden_size, sizes.intermediate_size
        self.attention = nn.ModuleDict(
            {"self": Attention(sizes), "output": Added(width, width, sizes.layer_norm_eps)}
        )
        self.intermediate = nn.ModuleDict({"dense": nn.Linear(width, inner)})
        self.output = Added(inner, width, sizes.layer_norm_eps)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        x = self.attention["output"](self.attention["self"](x, mask), x)
        return self.output(F.gelu(self.intermediate["dense"](x)), x)


class Attention(nn.Module):
    """Every token looks at all tokens that count."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        width = sizes.hidden_size
        self.heads = sizes.num_attention_heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        query, key, value = (
            one(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)  # [B, heads, T, width / heads]
            for one in (self.query, self.key, self.value)
        )
        seen = F.scaled_dot_product_attention(query, key, value, mask[:, None, None])
        return seen.transpose(1, 2).flatten(-2)


class Added(nn.Module):
    """A linear map, added to what went in before, normalised."""

    def __init__(self, width_in: int, width: int, eps: float) -> None:
        super().__init__()
        self.dense = nn.Linear(width_in, width)
        self.LayerNorm = nn.LayerNorm(width, eps)

    def forward(self, x: torch.Tensor, before: torch.Tensor) -> torch.Tensor:
        return self.LayerNorm(self.dense(x) + before)
