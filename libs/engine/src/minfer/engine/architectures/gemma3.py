"""Gemma 3 (text): norms before and after each part, normed query and key heads, sliding-window layers.

Five layers of six look back over a window and rotate with a base of their own, unscaled; the sixth sees
everything. Embeddings are multiplied by the square root of the width; the head is usually the table.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

from minfer.engine.architectures.errors import HyperparameterError
from minfer.engine.architectures.rope import RopeConfig
from minfer.engine.architectures.transformer import (
    Attention,
    BuildOptions,
    Sizes,
    attention,
    feed_forward,
    narrow,
)
from minfer.engine.graph.builder import GraphBuilder, TensorSource, Value

if TYPE_CHECKING:
    from minfer.engine.graph.ops import Graph
    from minfer.gguf import Metadata

_WINDOWED_BASE = 10000.0
_PERIOD = 6  # one layer in so many sees everything
_LAYERS_27B = 62  # the one size whose attention scale follows width / heads


@dataclass(frozen=True, slots=True)
class Config:
    """Gemma 3's hyperparameters. window: positions a sliding layer sees, the query's own included."""

    sizes: Sizes
    rope: RopeConfig
    windowed_rope: RopeConfig
    window: int
    is_windowed: tuple[bool, ...]
    final_softcap: float

    @classmethod
    def read(cls, metadata: Metadata) -> Self:
        """From the metadata under the architecture's name. Raises ModelFileError."""
        prefix = metadata.string("general.architecture")
        sizes = Sizes.read(metadata, prefix)
        rope = RopeConfig.read(metadata, prefix, sizes.head_dim, sizes.n_context)
        base = metadata.number(f"{prefix}.rope.freq_base_swa", _WINDOWED_BASE)
        if not (math.isfinite(base) and base > 1.0):
            raise HyperparameterError(f"{prefix}.rope.freq_base_swa", base, "a number above 1")
        return cls(
            sizes,
            rope,
            replace(rope, base=base, kind="none", factor=1.0),
            min(metadata.integer(f"{prefix}.attention.sliding_window", 0), sizes.n_context),
            _windowed_layers(metadata, prefix, sizes.n_layers),
            metadata.number(f"{prefix}.final_logit_softcapping", 0.0),
        )

    @property
    def attention_scale(self) -> float:
        """The factor on q·k."""
        per_head = self.sizes.width // self.sizes.n_heads
        return 1.0 / math.sqrt(per_head if self.sizes.n_layers == _LAYERS_27B else self.sizes.head_dim)


def _windowed_layers(metadata: Metadata, prefix: str, n_layers: int) -> tuple[bool, ...]:
    """For each layer whether it looks back over the window alone: a period, or one entry a layer."""
    if metadata.integer(f"{prefix}.attention.sliding_window", 0) <= 0:
        return (False,) * n_layers
    key = f"{prefix}.attention.sliding_window_pattern"
    pattern = metadata.get(key, _PERIOD)
    if isinstance(pattern, int):
        return tuple(pattern == 0 or i % pattern < pattern - 1 for i in range(n_layers))
    if isinstance(pattern, str | float) or len(pattern) != n_layers:
        raise HyperparameterError(key, pattern, f"a number or {n_layers} of them")
    return tuple(bool(entry) for entry in pattern)


def build(config: Config, file: TensorSource, options: BuildOptions) -> Graph:
    """The graph. Raises ModelFileError when the file's tensors do not match the config."""
    sizes = config.sizes
    g = GraphBuilder(file)
    x = g.scale(g.embed("token_embd", sizes.width), math.sqrt(sizes.width), "embd_scaled")
    for i in range(sizes.n_layers):
        windowed = config.is_windowed[i]
        how = Attention(
            config.windowed_rope if windowed else config.rope,
            "halves",
            config.attention_scale,
            options.kv_type,
            window=config.window if windowed else None,
            qk_norm=True,
        )
        x = _layer(g.layer(i), x, sizes, how, is_last=i == sizes.n_layers - 1)
    logits = g.head(g.rms_norm(x, "output_norm", sizes.eps), "token_embd")
    return g.finish(g.softcap(logits, config.final_softcap, "logits_capped"))


def _layer(g: GraphBuilder, x: Value, sizes: Sizes, how: Attention, *, is_last: bool) -> Value:
    attended = attention(g, g.rms_norm(x, "attn_norm", sizes.eps), sizes, how)
    if is_last:
        attended, x = narrow(g, attended, x)
    h = g.linear(attended, "attn_output", sizes.width)
    x = g.add(x, g.rms_norm(h, "post_attention_norm", sizes.eps), "attn_residual")
    h = g.rms_norm(x, "ffn_norm", sizes.eps)
    # llama.cpp reads no `.scale` of this family's feed-forward tensors.
    h = feed_forward(g, h, sizes.feed_forward, "gelu_tanh", "ignored")
    return g.add(x, g.rms_norm(h, "post_ffw_norm", sizes.eps), "ffn_residual")
