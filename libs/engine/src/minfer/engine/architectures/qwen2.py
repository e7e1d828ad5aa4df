"""Qwen2 and Qwen2.5: Llama's skeleton with biases on q, k and v; rotated features are paired as halves."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from minfer.engine.architectures.rope import RopeConfig
from minfer.engine.architectures.transformer import (
    Attention,
    BuildOptions,
    Sizes,
    attention,
    feed_forward,
    narrow,
)
from minfer.engine.graph.builder import GraphBuilder, TensorSource

if TYPE_CHECKING:
    from minfer.engine.graph.ops import Graph
    from minfer.gguf import Metadata


@dataclass(frozen=True, slots=True)
class Config:
    """Qwen2's hyperparameters."""

    sizes: Sizes
    rope: RopeConfig

    @classmethod
    def read(cls, metadata: Metadata) -> Self:
        """From the metadata under the architecture's name. Raises ModelFileError."""
        prefix = metadata.string("general.architecture")
        sizes = Sizes.read(metadata, prefix)
        return cls(sizes, RopeConfig.read(metadata, prefix, sizes.head_dim, sizes.n_context))


def build(config: Config, file: TensorSource, options: BuildOptions) -> Graph:
    """The graph. Raises ModelFileError when the file's tensors do not match the config."""
    sizes = config.sizes
    g = GraphBuilder(file)
    how = Attention(config.rope, "halves", 1.0 / math.sqrt(sizes.head_dim), options.kv_type)
    x = g.embed("token_embd", sizes.width)
    for i in range(sizes.n_layers):
        layer = g.layer(i)
        attended = attention(layer, layer.rms_norm(x, "attn_norm", sizes.eps), sizes, how)
        if i == sizes.n_layers - 1:
            attended, x = narrow(layer, attended, x)
        x = layer.add(x, layer.linear(attended, "attn_output", sizes.width), "attn_residual")
        h = layer.rms_norm(x, "ffn_norm", sizes.eps)
        # llama.cpp reads no `.scale` of this family's feed-forward tensors.
        x = layer.add(x, feed_forward(layer, h, sizes.feed_forward, "silu", "ignored"), "ffn_residual")
    return g.finish(g.head(g.rms_norm(x, "output_norm", sizes.eps), "token_embd"))
