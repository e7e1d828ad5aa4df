"""How long values live and what they take together."""

from __future__ import annotations

from minfer.engine.graph.liveness import last_uses, peak_value_bytes
from minfer.engine.graph.ops import Add, Graph, Node, Op, Rows, Scale, SelectRows


def _node(name: str, op: Op, inputs: tuple[int, ...], rows: Rows = Rows.TOKENS) -> Node:
    return Node(name, op, inputs, rows, 10)


_GRAPH = Graph(
    (
        _node("a", Scale(1.0), ()),
        _node("b", Scale(2.0), (0,)),
        _node("c", Add(), (0, 1)),
        _node("d", SelectRows(), (2,), Rows.LOGITS),
    ),
    (),
    logits=3,
)


def test_values_live_until_their_last_reader() -> None:
    assert last_uses(_GRAPH) == [2, 2, 3, 4]


def test_the_peak_is_where_most_live_together() -> None:
    # a, b and c at once, 5 rows of 10 float32 each; then c and d.
    assert peak_value_bytes(_GRAPH, n_tokens=5, n_logit_rows=2) == 3 * 5 * 10 * 4
    assert peak_value_bytes(_GRAPH, n_tokens=1, n_logit_rows=9) == (1 + 9) * 10 * 4
