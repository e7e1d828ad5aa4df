"""Qwen3, dense and with experts: Llama's skeleton with a norm on each query and key head.

Rotated features are paired as halves; the head width does not follow from the model's width.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

from minfer.engine.architectures.rope import RopeConfig
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
    """Qwen3's hyperparameters; `experts` is None in a dense model."""

    sizes: Sizes
    rope: RopeConfig
    experts: Experts | None

    @classmethod
    def read(cls, metadata: Metadata) -> Self:
        """From the metadata under the architecture's name. Raises ModelFileError."""
        prefix = metadata.string("general.architecture")
        sizes = Sizes.read(metadata, prefix)
        mixture = Experts.read(metadata, prefix, sizes.feed_forward)
        if mixture is not None:
            n_hidden = metadata.integer(f"{prefix}.expert_feed_forward_length", 0)
            mixture = replace(mixture, n_hidden=n_hidden or sizes.feed_forward // mixture.n_used)
        return cls(sizes, RopeConfig.read(metadata, prefix, sizes.head_dim, sizes.n_context), mixture)


def build(config: Config, file: TensorSource, options: BuildOptions) -> Graph:
    """The graph. Raises ModelFileError when the file's tensors do not match the config."""
    sizes = config.sizes
    g = GraphBuilder(file)
    how = Attention(config.rope, "halves", 1.0 / math.sqrt(sizes.head_dim), options.kv_type, qk_norm=True)
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
