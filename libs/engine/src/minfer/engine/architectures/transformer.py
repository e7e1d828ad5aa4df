"""The parts that decoder families share: sizes read from metadata, attention, feed-forward, experts.

Everything here is told what to do by a family's own file; nothing asks which family it is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Self

from minfer.engine.architectures.errors import HyperparameterError
from minfer.engine.architectures.rope import RopeConfig, rotation
from minfer.engine.graph import ops
from minfer.engine.graph.ops import CacheSpec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from minfer.engine.graph.builder import GraphBuilder, ScaleOrder, Value
    from minfer.gguf import Metadata

KVType = Literal["f16", "f32"]
_MOST_LAYERS = 4096
_MOST_FEATURES = 1 << 24


@dataclass(frozen=True, slots=True)
class BuildOptions:
    """What a caller chooses about a graph: the type of the KV cache and the context it is opened with.

    n_context: 0 means the model's own length; only longrope looks at it.
    """

    kv_type: KVType = "f16"
    n_context: int = 0


@dataclass(frozen=True, slots=True)
class Sizes:
    """The numbers every decoder has. head_dim is of queries and keys, value_dim of values."""

    n_layers: int
    n_context: int
    width: int
    feed_forward: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    value_dim: int
    eps: float

    @classmethod
    def read(cls, metadata: Metadata, prefix: str) -> Self:
        """The keys under `prefix`, each checked. Raises HyperparameterError."""
        count = _Counts(metadata, prefix)
        n_heads = count.read("attention.head_count")
        width = count.read("embedding_length")
        head_dim = count.read("attention.key_length", width // n_heads)
        n_kv_heads = count.read("attention.head_count_kv", n_heads)
        if n_heads % n_kv_heads:
            raise HyperparameterError(
                f"{prefix}.attention.head_count_kv", n_kv_heads, f"a divisor of {n_heads}"
            )
        eps = metadata.number(f"{prefix}.attention.layer_norm_rms_epsilon")
        if not (math.isfinite(eps) and eps >= 0.0):
            raise HyperparameterError(f"{prefix}.attention.layer_norm_rms_epsilon", eps, "zero or more")
        return cls(
            count.read("block_count", most=_MOST_LAYERS),
            count.read("context_length", most=1 << 31),
            width,
            count.read("feed_forward_length"),
            n_heads,
            n_kv_heads,
            head_dim,
            count.read("attention.value_length", width // n_heads),
            eps,
        )


@dataclass(frozen=True, slots=True)
class Attention:
    """How a layer attends. qk_norm: the width of the norm's weight is one head."""

    rope: RopeConfig
    pairing: Literal["halves", "neighbours"]
    scale: float
    kv_type: KVType
    divisors: Sequence[float] | None = None
    window: int | None = None
    qk_norm: bool = False
    softcap: float = 0.0


def attention(g: GraphBuilder, x: Value, sizes: Sizes, how: Attention) -> Value:
    """Projections, optional norm of each head, rotation and attention; [T, n_heads · value_dim]."""
    q, k, v = _projections(g, x, sizes)
    if how.qk_norm:
        q = g.rms_norm(q, "attn_q_norm", sizes.eps, groups=sizes.n_heads)
        k = g.rms_norm(k, "attn_k_norm", sizes.eps, groups=sizes.n_kv_heads)
    for_heads = rotation(how.rope, sizes.n_heads, sizes.head_dim, how.pairing, how.divisors)
    for_kv_heads = rotation(how.rope, sizes.n_kv_heads, sizes.head_dim, how.pairing, how.divisors)
    q = g.rope(q, for_heads, "attn_q_rope")
    k = g.rope(k, for_kv_heads, "attn_k_rope")
    spec = CacheSpec("kv", sizes.n_kv_heads, sizes.head_dim, sizes.value_dim, how.window, how.kv_type)
    return g.attention(q, k, v, spec, ops.Attend(0, sizes.n_heads, how.scale, how.softcap))


def _projections(g: GraphBuilder, x: Value, sizes: Sizes) -> tuple[Value, Value, Value]:
    """q, k and v, from three tensors or from one that holds them in this order."""
    n_q, n_k = sizes.n_heads * sizes.head_dim, sizes.n_kv_heads * sizes.head_dim
    n_v = sizes.n_kv_heads * sizes.value_dim
    if not g.has("attn_qkv.weight"):
        return g.linear(x, "attn_q", n_q), g.linear(x, "attn_k", n_k), g.linear(x, "attn_v", n_v)
    qkv = g.linear(x, "attn_qkv", n_q + n_k + n_v)
    return (
        g.slice(qkv, 0, n_q, "attn_q"),
        g.slice(qkv, n_q, n_q + n_k, "attn_k"),
        g.slice(qkv, n_q + n_k, n_q + n_k + n_v, "attn_v"),
    )


def narrow(g: GraphBuilder, attended: Value, residual: Value) -> tuple[Value, Value]:
    """Go on with the rows that want logits: after the last attention no other row is looked at again."""
    return (
        g.select_rows(attended, "attention_selected"),
        g.select_rows(residual, "residual_selected"),
    )


def feed_forward(
    g: GraphBuilder, x: Value, n_hidden: int, kind: ops.ActivationKind, scale: ScaleOrder = "after_bias"
) -> Value:
    """The gated feed-forward network: down(activation(gate(x)) · up(x))."""
    gate = g.linear(x, "ffn_gate", n_hidden, scale=scale)
    up = g.linear(x, "ffn_up", n_hidden, scale=scale)
    return g.linear(g.glu(gate, up, kind, "ffn_glu"), "ffn_down", x.features, scale=scale)


@dataclass(frozen=True, slots=True)
class Experts:
    """A mixture of experts: n_used of n_experts networks of n_hidden for each token."""

    n_experts: int
    n_used: int
    n_hidden: int

    @classmethod
    def read(cls, metadata: Metadata, prefix: str, n_hidden: int) -> Self | None:
        """The counts under `prefix`; None when the model has no experts."""
        count = _Counts(metadata, prefix)
        if metadata.integer(f"{prefix}.expert_count", 0) == 0:
            return None
        n_experts = count.read("expert_count", most=1 << 16)
        return cls(n_experts, count.read("expert_used_count", most=n_experts), n_hidden)


def experts(g: GraphBuilder, x: Value, how: Experts, kind: ops.ActivationKind) -> Value:
    """The gated feed-forward network of the experts that a softmax over all chooses, weights summing to 1."""
    logits = g.linear(x, "ffn_gate_inp", how.n_experts)
    route = g.route(logits, ops.Route("softmax", how.n_used, renormalise=True), "ffn_route")
    gate = g.expert_linear(x, route, "ffn_gate_exps", how.n_experts, how.n_hidden)
    up = g.expert_linear(x, route, "ffn_up_exps", how.n_experts, how.n_hidden)
    hidden = g.glu(gate, up, kind, "ffn_glu")
    down = g.expert_linear(hidden, route, "ffn_down_exps", how.n_experts, x.features)
    return g.combine(down, route, "ffn_experts")


@dataclass(frozen=True, slots=True)
class _Counts:
    """Reads of counts that must be positive and bounded."""

    metadata: Metadata
    prefix: str

    def read(self, key: str, default: int | None = None, most: int = _MOST_FEATURES) -> int:
        name = f"{self.prefix}.{key}"
        value = self.metadata.integer(name) if default is None else self.metadata.integer(name, default)
        if not 1 <= value <= most:
            raise HyperparameterError(name, value, f"between 1 and {most}")
        return value
