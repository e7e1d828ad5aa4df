"""When values of a graph are needed, and how much memory that takes at once."""

from __future__ import annotations

from minfer.engine.graph.ops import Graph, Node, Route, Rows


def last_uses(graph: Graph) -> list[int]:
    """For each node the last node that reads it (itself when none does); results outlive all nodes."""
    last = list(range(len(graph.nodes)))
    for index, node in enumerate(graph):
        for source in node.inputs:
            last[source] = index
    for kept in (graph.logits, graph.pooled):
        if kept is not None:
            last[kept] = len(graph.nodes)
    return last


def peak_value_bytes(graph: Graph, n_tokens: int, n_logit_rows: int) -> int:
    """The most bytes of float32 values alive together in a step of that size."""
    last = last_uses(graph)
    alive, most = 0, 0
    ending: dict[int, int] = {}
    for index, node in enumerate(graph):
        n_bytes = 4 * node.features * _n_rows(graph, node, n_tokens, n_logit_rows)
        alive += n_bytes
        ending[last[index]] = ending.get(last[index], 0) + n_bytes
        most = max(most, alive)
        alive -= ending.pop(index, 0)
    return most


def _n_rows(graph: Graph, node: Node, n_tokens: int, n_logit_rows: int) -> int:
    if node.rows is Rows.LOGITS:
        return n_logit_rows
    if node.rows is Rows.PAIRS:
        return n_tokens * max(other.op.n_used for other in graph if isinstance(other.op, Route))
    return n_tokens
