"""Llama and what shares its skeleton (Mistral, Mixtral, SmolLM2, …): dense or with experts.

Rotated features are paired as neighbours: converters permute the rows of q and k for it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from minfer.engine.architectures.rope import RopeConfig, file_divisors
from minfer.engine.architectures.transformer import (
    Attention,
    BuildOptions,
    Experts,
    Sizes,
    attention,
    experts,
    feed_forward,
    narrow,
)
from minfer.engine.graph.builder import GraphBuilder, TensorSource

if TYPE_CHECKING:
    from minfer.engine.graph.ops import Graph
    from minfer.gguf import Metadata


@dataclass(frozen=True, slots=True)
class Config:
    """Llama's hyperparameters; `experts` is None in a dense model."""

    sizes: Sizes
    rope: RopeConfig
    experts: Experts | None

    @classmethod
    def read(cls, metadata: Metadata) -> Self:
        """From the metadata under the architecture's name. Raises ModelFileError."""
        prefix = metadata.string("general.architecture")
        sizes = Sizes.read(metadata, prefix)
        return cls(
            sizes,
            RopeConfig.read(metadata, prefix, sizes.head_dim, sizes.n_context),
            Experts.read(metadata, prefix, sizes.feed_forward),
        )


def build(config: Config, file: TensorSource, options: BuildOptions) -> Graph:
    """The graph. Raises ModelFileError when the file's tensors do not match the config."""
    sizes = config.sizes
    g = GraphBuilder(file)
    how = Attention(
        config.rope,
        "neighbours",
        1.0 / math.sqrt(sizes.head_dim),
        options.kv_type,
        file_divisors(g, config.rope, options.n_context or sizes.n_context),
    )
    x = g.embed("token_embd", sizes.width)
    for i in range(sizes.n_layers):
        layer = g.layer(i)
        attended = attention(layer, layer.rms_norm(x, "attn_norm", sizes.eps), sizes, how)
        if i == sizes.n_layers - 1:
            attended, x = narrow(layer, attended, x)
        x = layer.add(x, layer.linear(attended, "attn_output", sizes.width), "attn_residual")
        h = layer.rms_norm(x, "ffn_norm", sizes.eps)
        if config.experts is None:
            h = feed_forward(layer, h, sizes.feed_forward, "silu")
        else:
            h = experts(layer, h, config.experts, "silu")
        x = layer.add(x, h, "ffn_residual")
    return g.finish(g.head(g.rms_norm(x, "output_norm", sizes.eps), "token_embd"))
