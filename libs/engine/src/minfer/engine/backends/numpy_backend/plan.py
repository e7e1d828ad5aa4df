"""How much memory a program will take, computed from its graph."""

from __future__ import annotations

from collections.abc import Iterator

from minfer.engine.backends.numpy_backend.attention import SCORES_AT_ONCE
from minfer.engine.backends.step import CompileOptions
from minfer.engine.graph import ops
from minfer.engine.graph.liveness import peak_value_bytes
from minfer.engine.graph.ops import Graph, Weight

_PANELS_BYTES = 8 << 20  # decoded panels and their temporaries, for each thread


def program_bytes(graph: Graph, options: CompileOptions) -> int:
    """Bytes of weights and buffers for the largest step the options allow."""
    weights = sum(4 * n for n in _decoded(graph).values()) if options.weights == "resident" else 0
    values = peak_value_bytes(graph, options.max_tokens, options.max_logit_rows)
    scores = 3 * 4 * SCORES_AT_ONCE
    return weights + 2 * values + options.n_threads * (scores + _PANELS_BYTES)


def _decoded(graph: Graph) -> dict[Weight, int]:
    """The numbers in every distinct weight that becomes float32; a table only if the head shares it."""
    return {
        weight: weight.n_rows * weight.n_columns * max(1, weight.n_experts)
        for node in graph
        for weight in _weights(node.op)
    }


def _weights(op: ops.Op) -> Iterator[Weight]:
    if isinstance(op, ops.Embed):
        return
    for name in ("weight", "bias", "sinks"):
        weight = getattr(op, name, None)
        if weight is not None:
            yield weight
