"""The vocabulary of the graph: every operation a network may be made of, as values.

A graph value is `[rows, features]` float32, token-major. `features` is a static integer; `rows` is one
of the counts in `Rows`, known only when a step runs. Operations are semantic: there is no view, reshape
or transpose, and heads are attributes. The numpy backend defines what each operation means.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal


class Rows(StrEnum):
    """What the rows of a value are; the count of each is data of the step."""

    TOKENS = "T"
    LOGITS = "L"
    SEQUENCES = "S"
    PAIRS = "R"  # token-expert pairs: n_used rows for each token, in rank order


@dataclass(frozen=True, slots=True)
class Weight:
    """Rows `[first_row, first_row + n_rows)` of a stored tensor, each of `n_columns` values.

    A vector is one row. With experts, `n_experts` matrices of `n_rows` follow one another.
    """

    name: str
    n_rows: int
    n_columns: int
    first_row: int = 0
    n_experts: int = 0


@dataclass(frozen=True, slots=True)
class CacheSpec:
    """What one cache slot holds for each position; slots with equal specs form a group.

    kind: `kv` (keys and values), `latent` (keys whose prefix is the value), `state` (fixed size).
    window: positions a query looks back (itself included), or None for all.
    """

    kind: Literal["kv", "latent", "state"]
    n_kv: int
    dk: int
    dv: int
    window: int | None
    dtype: Literal["f16", "f32"]


@dataclass(frozen=True, slots=True)
class Embed:
    """Rows of `table` picked by token id, by position, or one constant row. No inputs.

    A step may bring float rows instead of ids; then a token Embed passes them through.
    """

    table: Weight
    index: Literal["token", "position", "constant"] = "token"


@dataclass(frozen=True, slots=True)
class Linear:
    """x · Wᵀ · product_scale + bias. Inputs: x."""

    weight: Weight
    bias: Weight | None = None
    product_scale: float = 1.0


@dataclass(frozen=True, slots=True)
class HeadLinear:
    """One matrix for each head: `weight` is n_heads matrices [b, a] (its n_experts is n_heads); x is
    [n_heads·a]. Inputs: x."""

    weight: Weight
    n_heads: int


@dataclass(frozen=True, slots=True)
class Norm:
    """RMS or layer norm over each of `groups` equal parts of the features.

    `weight` and `bias` have the length of one group (shared by all) or of all features. Inputs: x.
    """

    kind: Literal["rms", "layer"]
    eps: float
    weight: Weight | None = None
    bias: Weight | None = None
    groups: int = 1


@dataclass(frozen=True, slots=True)
class Rope:
    """Rotate features [offset, offset + 2·len(frequencies)) of each head by position · frequency.

    pairing: `halves` pairs (i, i + n/2) of the rotated part (GPT-NeoX), `neighbours` pairs (2i, 2i + 1).
    magnitude multiplies cosine and sine (YaRN). Inputs: x.
    """

    n_heads: int
    head_dim: int
    frequencies: tuple[float, ...]
    pairing: Literal["halves", "neighbours"]
    offset: int = 0
    magnitude: float = 1.0


@dataclass(frozen=True, slots=True)
class CacheWrite:
    """Store keys and values of the step's tokens in cache `slot`. Inputs: k, v (`latent`: k alone)."""

    slot: int


@dataclass(frozen=True, slots=True)
class Attend:
    """Attention of q over what cache `slot` holds, the step's own tokens included. Inputs: q, write.

    Query head h reads key head h // (n_q // n_kv). logits = softcap(scale · q·k); `sinks` adds one
    logit for each head that takes probability and gives nothing; `alibi_max_bias` > 0 adds ALiBi.
    The CacheWrite node is an input so that the order is in the graph.
    """

    slot: int
    n_q: int
    scale: float
    softcap: float = 0.0
    sinks: Weight | None = None
    causal: bool = True
    alibi_max_bias: float = 0.0


ActivationKind = Literal["silu", "gelu", "gelu_tanh", "relu", "relu_squared"]


@dataclass(frozen=True, slots=True)
class Activation:
    """An elementwise function. Inputs: x."""

    kind: ActivationKind


@dataclass(frozen=True, slots=True)
class Glu:
    """activation(gate) · up; `clamp` > 0 is the limited variant of gpt-oss. Inputs: gate, up."""

    kind: ActivationKind
    clamp: float = 0.0


@dataclass(frozen=True, slots=True)
class Add:
    """a + b. Inputs: a, b."""


@dataclass(frozen=True, slots=True)
class Mul:
    """a · b. Inputs: a, b."""


@dataclass(frozen=True, slots=True)
class Scale:
    """x · factor. Inputs: x."""

    factor: float


@dataclass(frozen=True, slots=True)
class Softcap:
    """cap · tanh(x / cap). Inputs: x."""

    cap: float


@dataclass(frozen=True, slots=True)
class Slice:
    """Features [start, stop). Inputs: x."""

    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Concat:
    """Features of all inputs side by side."""


@dataclass(frozen=True, slots=True)
class Route:
    """Choose `n_used` experts a row from router logits; the value is (ids, weights), rank order.

    Ties go to the lower id. `bias` shifts the choice, not the weights. Inputs: router logits.
    """

    kind: Literal["softmax", "sigmoid", "softmax_of_chosen"]
    n_used: int
    bias: Weight | None = None
    n_groups: int = 1
    n_groups_used: int = 1
    renormalise: bool = False
    scale: float = 1.0


@dataclass(frozen=True, slots=True)
class ExpertLinear:
    """Linear with the expert of each pair; rows become PAIRS. Inputs: x (TOKENS or PAIRS), route.

    `product_scales`, when given, is one factor for each expert.
    """

    weight: Weight
    bias: Weight | None = None
    product_scales: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Combine:
    """Sum of each token's pairs times their weights, in rank order. Inputs: x (PAIRS), route."""


@dataclass(frozen=True, slots=True)
class SelectRows:
    """The rows that want logits. Inputs: x."""


@dataclass(frozen=True, slots=True)
class Head:
    """Logits x · Wᵀ + bias, over the vocabulary. Inputs: x (LOGITS)."""

    weight: Weight
    bias: Weight | None = None


@dataclass(frozen=True, slots=True)
class Pool:
    """One row for each sequence of its rows in this step. Inputs: x (TOKENS)."""

    kind: Literal["mean", "cls", "last"]


@dataclass(frozen=True, slots=True)
class L2Norm:
    """Each row divided by its Euclidean length. Inputs: x."""


Op = (
    Embed | Linear | HeadLinear | Norm | Rope | CacheWrite | Attend | Activation | Glu | Add | Mul
    | Scale | Softcap | Slice | Concat | Route | ExpertLinear | Combine | SelectRows | Head | Pool | L2Norm
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Node:
    """One operation applied to earlier nodes. `name` is stable: it is what taps and drawings use."""

    name: str
    op: Op
    inputs: tuple[int, ...]
    rows: Rows
    features: int


@dataclass(frozen=True, slots=True)
class Graph:
    """A network. Nodes are in an order that can be executed; inputs point backwards.

    logits: index of the node whose value is the logits `[L, vocabulary]`.
    pooled: index of the node whose value is the embedding `[S, D]`, or None.
    """

    nodes: tuple[Node, ...]
    cache_slots: tuple[CacheSpec, ...]
    logits: int
    pooled: int | None = None

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes)

    @property
    def cache_groups(self) -> tuple[CacheSpec, ...]:
        """The distinct cache specs, in order of first appearance; a block table exists for each."""
        return tuple(dict.fromkeys(self.cache_slots))
