"""From the graph to the flat program: one method for each operation, found in a table.

A value of the graph becomes a buffer, a product becomes a quantization of its input (shared by all that
read it) and a matmul. Fused forms, each with the bits of the unfused one:

- a product whose only reader adds it to a value nobody needs afterwards accumulates into that value;
- an elementwise operation writes over an input that nobody needs afterwards;
- row operations that follow one another run row by row (buffers.group).

A tap on a node keeps its value and with it the unfused form at that node.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from minfer.engine.backends.native import _native
from minfer.engine.backends.native.errors import UnsupportedGraphError
from minfer.engine.backends.native.operations import (
    DOMAIN_OF_ROWS,
    FUNCTIONS,
    IN_PLACE,
    Domain,
    Kind,
    Operation,
    Value,
)
from minfer.engine.graph import ops
from minfer.engine.graph.liveness import last_uses

if TYPE_CHECKING:
    from collections.abc import Collection

    from minfer.engine.backends.native.weights import WeightPlan
    from minfer.engine.graph.ops import Graph, Node


@dataclass(frozen=True, slots=True)
class Tap:
    """Where a tapped node's value is after the step. order: value of the pairs' order, or -1.

    attend: index of the operation whose probabilities are wanted, or -1. is_route: ids and weights.
    """

    value: int
    order: int = -1
    attend: int = -1
    is_route: bool = False


@dataclass(slots=True)
class Lowered:
    """A program before it has addresses."""

    operations: list[Operation] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    taps: dict[str, Tap] = field(default_factory=dict)
    pooled: int = -1
    n_vocab: int = 0
    n_used: int = 0


def lower(graph: Graph, weights: WeightPlan, taps: Collection[str], most_rows: int) -> Lowered:
    """The operations and values of a graph, for at most so many rows. Raises UnsupportedGraphError."""
    return _Lowering(graph, weights, frozenset(taps), most_rows).run()


class _Lowering:
    def __init__(self, graph: Graph, weights: WeightPlan, taps: frozenset[str], most_rows: int) -> None:
        self.graph = graph
        self.weights = weights
        self.taps = taps
        self.most_rows = most_rows
        self.out = Lowered()
        self.last = last_uses(graph)
        self.readers: list[list[int]] = [[] for _ in graph.nodes]
        for index, node in enumerate(graph):
            for source in node.inputs:
                self.readers[source].append(index)
        self.value_of: dict[int, int] = {}
        self.domain_of: dict[int, Domain] = {}
        self.order_of: dict[int, int] = {}
        self.quantized: dict[tuple[int, int, int, int], int] = {}
        self.tables: dict[tuple[object, ...], int] = {}
        self.done: set[int] = set()
        self.orders: list[int] = []

    def run(self) -> Lowered:
        for node in self.graph:
            if isinstance(node.op, ops.Rope):
                self._rope_table(node.op)
        for index, node in enumerate(self.graph):
            if index not in self.done:
                self.domain_of[index] = self._domain(node)
                _TABLE[type(node.op)](self, index, node, node.op)
            self._tap(index, node)
        if self.graph.pooled is not None:
            self.out.pooled = self.value_of[self.graph.pooled]
        for order in self.orders:  # four lists, see mf_order
            n_pairs = self.out.n_used * self.most_rows
            self.out.values[order].row_bytes = 4 * (self.out.values[order].features + 1 + 3 * n_pairs)
        self.out.n_vocab = self.graph.nodes[self.graph.logits].features
        return self.out

    # What the methods for operations are made of.

    def emit(self, operation: Operation) -> int:
        self.out.operations.append(operation)
        return operation.out

    def value(self, rows: Domain, features: int, row_bytes: int = 0) -> int:
        self.out.values.append(Value(rows, features, row_bytes or 4 * features))
        return len(self.out.values) - 1

    def input(self, node: Node, i: int = 0) -> int:
        return self.value_of[node.inputs[i]]

    def is_tapped(self, index: int) -> bool:
        return self.graph.nodes[index].name in self.taps

    def row_operation(self, index: int, node: Node, kind: Kind, **fields: object) -> None:
        """An operation on the node's inputs, over the first of them where that is possible."""
        first = node.inputs[0]
        rows = self.domain_of[index]
        reusable = (
            kind in IN_PLACE
            and self.last[first] == index
            and not self.is_tapped(first)
            and node.inputs.count(first) == 1
            and self.graph.nodes[first].features == node.features
            and self.domain_of[first] == rows
        )
        out = self.value_of[first] if reusable else self.value(rows, node.features)
        if first in self.order_of and rows in (Domain.PAIRS, Domain.LOGIT_PAIRS):
            self.order_of[index] = self.order_of[first]
        b = self.input(node, 1) if len(node.inputs) > 1 else -1
        self.value_of[index] = self.emit(Operation(kind, rows, self.input(node), b, out))
        for name, field_value in fields.items():
            setattr(self.out.operations[-1], name, field_value)

    def activations(self, source: int, kind: int, first: int, n: int) -> int:
        """Features [first, first + n) of a node's value in the form that products of a kind want."""
        key = (source, kind, first, n)  # by node: the value's memory may hold another node's later
        if key not in self.quantized:
            rows = self.domain_of[source]
            out = self.value(rows, n, _native.activation_bytes(kind, n))
            self.emit(Operation(Kind.QUANTIZE, rows, self.value_of[source], -1, out, p=(first, n, kind)))
            self.quantized[key] = out
        return self.quantized[key]

    def matrix_activations(self, source: int, matrix: int) -> int:
        """The input of a product; at its first use, the forms that all products of this value want."""
        for reader in self.readers[source]:
            op = self.graph.nodes[reader].op
            if isinstance(op, ops.Linear):
                kind = self.weights.activation(self.weights.matrix(op.weight))
                self.activations(source, kind, 0, op.weight.n_columns)
        kind = self.weights.activation(matrix)
        return self.activations(source, kind, 0, self.weights.matrices[matrix].n_columns)

    def _domain(self, node: Node) -> Domain:
        if node.rows is ops.Rows.PAIRS:
            route = node.inputs[-1]
            if isinstance(self.graph.nodes[route].op, ops.Route):
                tokens = self.domain_of[route] is Domain.TOKENS
                return Domain.PAIRS if tokens else Domain.LOGIT_PAIRS
            return self.domain_of[node.inputs[0]]
        return DOMAIN_OF_ROWS[node.rows]

    def _tap(self, index: int, node: Node) -> None:
        if node.name in self.taps and index in self.value_of:
            order = -1
            if self.domain_of[index] in (Domain.PAIRS, Domain.LOGIT_PAIRS):
                order = self.order_of[index]
            is_route = isinstance(node.op, ops.Route)
            self.out.taps[node.name] = Tap(self.value_of[index], order, is_route=is_route)

    def _rope_table(self, op: ops.Rope) -> int:
        key = (op.frequencies, op.magnitude)
        if key not in self.tables:
            n = len(op.frequencies)
            pairs = []
            for frequency in op.frequencies:
                high = struct.unpack("f", struct.pack("f", frequency))[0]
                pairs += [high, frequency - high]
            vector = self.weights.numbers(struct.pack(f"={2 * n}f", *pairs))
            out = self.value(Domain.TOKENS, 2 * n)
            self.emit(
                Operation(Kind.ROPE_TABLE, Domain.TOKENS, out=out, weight=vector, p=(n,), f=(op.magnitude,))
            )
            self.tables[key] = out
        return self.tables[key]

    # One method for each operation.

    def embed(self, index: int, node: Node, op: ops.Embed) -> None:
        table = self.weights.matrix(op.table)
        mode = {"token": 0, "position": 1, "constant": 2}[op.index]
        out = self.value(Domain.TOKENS, node.features)
        self.value_of[index] = self.emit(
            Operation(Kind.EMBED, Domain.TOKENS, out=out, weight=table, p=(mode,))
        )

    def linear(self, index: int, node: Node, op: ops.Linear) -> None:
        source = node.inputs[0]
        matrix = self.weights.matrix(op.weight)
        a = self.matrix_activations(source, matrix)
        bias = -1 if op.bias is None else self.weights.vector(op.bias)
        rows = self.domain_of[index]
        residual = self._residual(index) if op.product_scale == 1.0 else None
        if residual is not None:
            (add,) = self.readers[index]
            out = self.value_of[residual]
            self.emit(Operation(Kind.MATMUL, rows, a, -1, out, matrix, bias, p=(0, 1)))
            self.value_of[add] = out
            self.domain_of[add] = rows
            self.done.add(add)
            return
        out = self.value(rows, node.features)
        first_bias = bias if op.product_scale == 1.0 else -1
        self.value_of[index] = self.emit(
            Operation(Kind.MATMUL, rows, a, -1, out, matrix, first_bias, p=(0, 0))
        )
        if op.product_scale != 1.0:
            self.emit(Operation(Kind.SCALE, rows, out, -1, out, f=(op.product_scale,)))
            if bias >= 0:
                self.emit(Operation(Kind.ADD_VECTOR, rows, out, -1, out, weight=bias))

    def _residual(self, index: int) -> int | None:
        """The node whose value this product may add itself to, or None."""
        readers = self.readers[index]
        if len(readers) != 1 or self.is_tapped(index) or index == self.graph.pooled:
            return None
        add = self.graph.nodes[readers[0]]
        if not isinstance(add.op, ops.Add) or add.inputs[0] == add.inputs[1]:
            return None
        (other,) = (i for i in add.inputs if i != index)
        if other >= index or self.is_tapped(other) or self.domain_of[other] != self.domain_of[index]:
            return None
        if other not in self.value_of or self.last[other] != readers[0]:
            return None
        earlier = all(reader < index or reader == readers[0] for reader in self.readers[other])
        return other if earlier else None

    def head_linear(self, index: int, node: Node, op: ops.HeadLinear) -> None:
        first = self.weights.experts(op.weight)
        n_in, n_out = op.weight.n_columns, op.weight.n_rows
        kind = self.weights.activation(first)
        rows = self.domain_of[index]
        parts = [self.activations(node.inputs[0], kind, h * n_in, n_in) for h in range(op.n_heads)]
        out = self.value_of[index] = self.value(rows, node.features)
        for h, part in enumerate(parts):
            self.emit(Operation(Kind.MATMUL, rows, part, -1, out, first + h, p=(h * n_out, 0)))

    def norm(self, index: int, node: Node, op: ops.Norm) -> None:
        weight = -1 if op.weight is None else self.weights.vector(op.weight)
        bias = -1 if op.bias is None else self.weights.vector(op.bias)
        lengths = {w.n_columns for w in (op.weight, op.bias) if w is not None}
        if len(lengths) > 1:
            raise UnsupportedGraphError(node.name, "a weight and a bias of different lengths")
        spans_all = op.groups > 1 and lengths == {node.features}
        p = (int(op.kind == "layer"), op.groups, int(spans_all))
        self.row_operation(index, node, Kind.NORM, weight=weight, bias=bias, p=p, f=(op.eps,))

    def rope(self, index: int, node: Node, op: ops.Rope) -> None:
        p = (op.n_heads, op.head_dim, len(op.frequencies), int(op.pairing == "neighbours"), op.offset)
        self.row_operation(index, node, Kind.ROPE, b=self._rope_table(op), p=p)

    def cache_write(self, index: int, node: Node, op: ops.CacheWrite) -> None:
        if self.graph.cache_slots[op.slot].kind == "state":
            raise UnsupportedGraphError(node.name, "a cache of kind 'state'")
        v = self.input(node, 1) if len(node.inputs) > 1 else -1
        self.emit(Operation(Kind.CACHE_WRITE, Domain.TOKENS, self.input(node), v, p=(op.slot,)))

    def attend(self, index: int, node: Node, op: ops.Attend) -> None:
        sinks = -1 if op.sinks is None else self.weights.vector(op.sinks)
        out = self.value_of[index] = self.value(Domain.TOKENS, node.features)
        q = self.input(node)
        if f"{node.name}.probabilities" in self.taps:
            self.out.taps[f"{node.name}.probabilities"] = Tap(q, attend=len(self.out.operations))
        p = (op.slot, op.n_q, int(op.causal))
        f = (op.scale, op.softcap, op.alibi_max_bias)
        self.emit(Operation(Kind.ATTEND, Domain.TOKENS, q, -1, out, -1, sinks, p=p, f=f))

    def activation(self, index: int, node: Node, op: ops.Activation) -> None:
        self.row_operation(index, node, Kind.ACTIVATE, p=(FUNCTIONS[op.kind],))

    def glu(self, index: int, node: Node, op: ops.Glu) -> None:
        self.row_operation(index, node, Kind.GLU, p=(FUNCTIONS[op.kind],), f=(op.clamp,))

    def add(self, index: int, node: Node, op: ops.Add) -> None:
        self.row_operation(index, node, Kind.ADD)

    def mul(self, index: int, node: Node, op: ops.Mul) -> None:
        self.row_operation(index, node, Kind.MUL)

    def scale(self, index: int, node: Node, op: ops.Scale) -> None:
        self.row_operation(index, node, Kind.SCALE, f=(op.factor,))

    def softcap(self, index: int, node: Node, op: ops.Softcap) -> None:
        self.row_operation(index, node, Kind.SOFTCAP, f=(op.cap,))

    def slice(self, index: int, node: Node, op: ops.Slice) -> None:
        rows = self.domain_of[index]
        out = self.value_of[index] = self.value(rows, node.features)
        self.emit(Operation(Kind.COPY, rows, self.input(node), -1, out, p=(op.start, 0, node.features)))

    def concat(self, index: int, node: Node, op: ops.Concat) -> None:
        rows = self.domain_of[index]
        out = self.value_of[index] = self.value(rows, node.features)
        at = 0
        for i, source in enumerate(node.inputs):
            n = self.graph.nodes[source].features
            self.emit(Operation(Kind.COPY, rows, self.input(node, i), -1, out, p=(0, at, n)))
            at += n

    def route(self, index: int, node: Node, op: ops.Route) -> None:
        rows = self.domain_of[index]
        bias = -1 if op.bias is None else self.weights.vector(op.bias)
        n_experts = self.graph.nodes[node.inputs[0]].features
        if n_experts > _native.MOST_EXPERTS or op.n_groups > _native.MOST_GROUPS:
            raise UnsupportedGraphError(node.name, f"{n_experts} experts in {op.n_groups} groups")
        self.out.n_used = max(self.out.n_used, op.n_used)
        kind = ("softmax", "sigmoid", "softmax_of_chosen").index(op.kind)
        out = self.value_of[index] = self.value(rows, 2 * op.n_used)
        p = (kind, op.n_used, 0, op.n_groups, n_experts, int(op.renormalise), op.n_groups_used)
        self.emit(Operation(Kind.ROUTE, rows, self.input(node), -1, out, weight=bias, p=p, f=(op.scale,)))
        order = self.value(Domain.ONCE, n_experts)
        self.orders.append(order)
        self.emit(
            Operation(Kind.SORT_PAIRS, Domain.ONCE, out, -1, order, p=(rows, op.n_used, 0, 0, n_experts))
        )
        self.order_of[index] = order

    def expert_linear(self, index: int, node: Node, op: ops.ExpertLinear) -> None:
        source, route = node.inputs
        rows, order = self.domain_of[index], self.order_of[route]
        n_used = self.out.values[self.value_of[route]].features // 2
        first, n_experts = self.weights.experts(op.weight), op.weight.n_experts
        kind, n = self.weights.activation(first), op.weight.n_columns
        spread = n_used if self.domain_of[source] != rows else 0
        key = (source, kind, -1 - order, n)
        if key not in self.quantized:
            a = self.value(rows, n, _native.activation_bytes(kind, n))
            p = (0, n, kind, spread, n_experts)
            self.emit(Operation(Kind.QUANTIZE, rows, self.value_of[source], order, a, p=p))
            self.quantized[key] = a
        out = self.value_of[index] = self.value(rows, node.features)
        p = (0, 0, 0, 0, n_experts)
        self.emit(Operation(Kind.EXPERT_MATMUL, rows, self.quantized[key], order, out, weight=first, p=p))
        if op.product_scales:
            factors = self.weights.numbers(struct.pack(f"={n_experts}f", *op.product_scales))
            self.emit(Operation(Kind.SCALE_EXPERT, rows, out, order, out, weight=factors, p=p))
        if op.bias is not None:
            bias = self.weights.vector(op.bias)
            self.emit(Operation(Kind.ADD_VECTOR, rows, out, order, out, weight=bias, p=p))
        self.order_of[index] = order

    def combine(self, index: int, node: Node, op: ops.Combine) -> None:
        route = node.inputs[1]
        rows, order = self.domain_of[index], self.order_of[route]
        n_experts = self.out.values[order].features
        out = self.value_of[index] = self.value(rows, node.features)
        p = (self.out.values[self.value_of[route]].features // 2, 0, 0, 0, n_experts)
        self.emit(
            Operation(Kind.COMBINE, rows, self.input(node), self.value_of[route], out, weight=order, p=p)
        )

    def select_rows(self, index: int, node: Node, op: ops.SelectRows) -> None:
        out = self.value_of[index] = self.value(Domain.LOGITS, node.features)
        self.emit(Operation(Kind.SELECT, Domain.LOGITS, self.input(node), -1, out))

    def pool(self, index: int, node: Node, op: ops.Pool) -> None:
        kind = ("mean", "cls", "last").index(op.kind)
        out = self.value_of[index] = self.value(Domain.SEQUENCES, node.features)
        self.emit(Operation(Kind.POOL, Domain.SEQUENCES, self.input(node), -1, out, p=(kind,)))

    def l2_norm(self, index: int, node: Node, op: ops.L2Norm) -> None:
        self.row_operation(index, node, Kind.NORM_L2)

    def head(self, index: int, node: Node, op: ops.Head) -> None:
        """The head and the scalings after it, as one; when one of them is tapped, once more as values."""
        matrix = self.weights.matrix(op.weight)
        bias = -1 if op.bias is None else self.weights.vector(op.bias)
        chain = self._after_head(index)
        a = self.activations(node.inputs[0], self.weights.activation(matrix), 0, op.weight.n_columns)
        if any(self.is_tapped(i) for i in (index, *chain)):
            out = self.value_of[index] = self.value(Domain.LOGITS, node.features)
            self.emit(Operation(Kind.MATMUL, Domain.LOGITS, a, -1, out, matrix, bias, p=(0, 0)))
        self.done.update(() if index in self.value_of else chain)
        kinds = [1 if isinstance(self.graph.nodes[i].op, ops.Scale) else 2 for i in chain]
        factors = [_factor(self.graph.nodes[i].op) for i in chain]
        self.emit(
            Operation(Kind.HEAD, Domain.LOGITS, a, -1, -1, matrix, bias, p=tuple(kinds), f=tuple(factors))
        )

    def _after_head(self, index: int) -> list[int]:
        """The nodes between the head and the logits; each must scale or cap the one before."""
        chain = []
        at = self.graph.logits
        while at != index:
            node = self.graph.nodes[at]
            if not isinstance(node.op, ops.Scale | ops.Softcap):
                raise UnsupportedGraphError(node.name, f"{type(node.op).__name__} after the head")
            chain.append(at)
            at = node.inputs[0]
        if len(chain) > 2:
            name = self.graph.nodes[index].name
            raise UnsupportedGraphError(name, "more than two operations after the head")
        return chain[::-1]


def _factor(op: ops.Op) -> float:
    return op.factor if isinstance(op, ops.Scale) else op.cap if isinstance(op, ops.Softcap) else 0.0


_TABLE: Final[Mapping[type, Callable[[_Lowering, int, Node, Any], None]]] = {
    ops.Embed: _Lowering.embed,
    ops.Linear: _Lowering.linear,
    ops.HeadLinear: _Lowering.head_linear,
    ops.Norm: _Lowering.norm,
    ops.Rope: _Lowering.rope,
    ops.CacheWrite: _Lowering.cache_write,
    ops.Attend: _Lowering.attend,
    ops.Activation: _Lowering.activation,
    ops.Glu: _Lowering.glu,
    ops.Add: _Lowering.add,
    ops.Mul: _Lowering.mul,
    ops.Scale: _Lowering.scale,
    ops.Softcap: _Lowering.softcap,
    ops.Slice: _Lowering.slice,
    ops.Concat: _Lowering.concat,
    ops.Route: _Lowering.route,
    ops.ExpertLinear: _Lowering.expert_linear,
    ops.Combine: _Lowering.combine,
    ops.SelectRows: _Lowering.select_rows,
    ops.Head: _Lowering.head,
    ops.Pool: _Lowering.pool,
    ops.L2Norm: _Lowering.l2_norm,
}
