"""Write a network down: each method appends one operation, checks its tensors and names its node.

    g = GraphBuilder(file)
    x = g.embed("token_embd", width)
    layer = g.layer(0)                            # names and tensors under "blk.0."
    h = layer.rms_norm(x, "attn_norm", eps)
    q = layer.linear(h, "attn_q", n_heads * head_dim)
    ...
    graph = g.finish(g.head(g.select_rows(x), "output"))

A node that has a tensor is called like it, without `.weight`. Biases and `.scale` factors that the file
has beside a weight are used; tensors nobody asks for are left alone.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

from minfer.engine.graph import ops
from minfer.engine.graph.errors import ConstantTensorError, TensorShapeError
from minfer.engine.graph.ops import CacheSpec, Graph, Node, Op, Rows, Weight
from minfer.gguf.errors import TensorMissingError


class TensorFacts(Protocol):
    """What is known of a stored tensor: shape slowest dimension first, and how it is stored."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def quant(self) -> int: ...


class TensorSource(Protocol):
    """The tensors of a model file; `minfer.gguf.GGUFFile` is one."""

    @property
    def tensors(self) -> Mapping[str, TensorFacts]: ...

    def data(self, name: str) -> memoryview: ...


@dataclass(frozen=True, slots=True)
class Value:
    """The result of a node, for use as an input."""

    index: int
    rows: Rows
    features: int


@dataclass(slots=True)
class _Draft:
    """What all scopes of one builder write into."""

    nodes: list[Node] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    slots: list[CacheSpec] = field(default_factory=list)


ScaleOrder = Literal["before_bias", "after_bias", "ignored"]


class GraphBuilder:
    """Appends operations to a graph; `layer(i)` gives a view whose names start with `blk.i.`."""

    def __init__(self, file: TensorSource) -> None:
        self.file = file
        self._prefix = ""
        self._draft = _Draft()

    def layer(self, index: int) -> GraphBuilder:
        """The same builder, for the tensors and nodes of one layer."""
        scoped = GraphBuilder(self.file)
        scoped._prefix = f"blk.{index}."
        scoped._draft = self._draft
        return scoped

    def has(self, tensor: str) -> bool:
        """Whether the file has the tensor (full name within this scope, such as `attn_q.bias`)."""
        return self._prefix + tensor in self.file.tensors

    def constants(self, tensor: str, n: int) -> tuple[float, ...] | None:
        """The n numbers of a small F32 or F16 tensor, or None when the file lacks it."""
        if not self.has(tensor):
            return None
        name = self._prefix + tensor
        facts = self._checked(name, (n,))
        if int(facts.quant) not in (0, 1):
            raise ConstantTensorError(name, getattr(facts.quant, "name", str(facts.quant)))
        return struct.unpack(f"<{n}{'f' if int(facts.quant) == 0 else 'e'}", self.file.data(name))

    def embed(self, tensor: str, width: int) -> Value:
        """Rows of a table [vocabulary, width], picked by token id."""
        name = f"{self._prefix}{tensor}.weight"
        table = Weight(name, self._rows_of(name), width)
        self._checked(name, (table.n_rows, width))
        return self._append(tensor, ops.Embed(table), (), Rows.TOKENS, width)

    def linear(
        self, x: Value, tensor: str, n_out: int, *, scale: ScaleOrder = "before_bias", bias: bool = True
    ) -> Value:
        """x · Wᵀ with W [n_out, features of x]; the file's bias is added if it has one and `bias` is true.

        scale: where a one-number `.scale` tensor multiplies, in relation to the bias.
        """
        weight = self._matrix(tensor, n_out, x.features)
        offsets = self._vector(f"{tensor}.bias", n_out) if bias else None
        factor = self._scale(tensor) if scale != "ignored" else 1.0
        if scale == "after_bias" and offsets is not None and factor != 1.0:
            y = self._append(tensor, ops.Linear(weight, offsets), (x,), x.rows, n_out)
            return self.scale(y, factor, f"{tensor}_scaled")
        return self._append(tensor, ops.Linear(weight, offsets, factor), (x,), x.rows, n_out)

    def rms_norm(self, x: Value, tensor: str, eps: float, *, groups: int = 1) -> Value:
        """Root-mean-square norm of each of `groups` parts; the weight has one part's length or all of x's."""
        return self._norm("rms", x, tensor, eps, groups)

    def layer_norm(self, x: Value, tensor: str, eps: float, *, groups: int = 1) -> Value:
        """Mean and variance norm, with the file's bias if it has one."""
        return self._norm("layer", x, tensor, eps, groups)

    def rope(self, x: Value, rotation: ops.Rope, name: str) -> Value:
        """Rotate x by position."""
        return self._append(name, rotation, (x,), x.rows, x.features)

    def attention(self, q: Value, k: Value, v: Value | None, spec: CacheSpec, attend: ops.Attend) -> Value:
        """Store k and v in a fresh cache slot and attend to it; `attend.slot` is filled in here."""
        slot = len(self._draft.slots)
        self._draft.slots.append(spec)
        stored = (k,) if v is None else (k, v)
        write = self._append("cache_write", ops.CacheWrite(slot), stored, k.rows, k.features)
        op = replace(attend, slot=slot)
        return self._append("attention", op, (q, write), q.rows, attend.n_q * spec.dv)

    def activation(self, x: Value, kind: ops.ActivationKind, name: str) -> Value:
        """An elementwise function."""
        return self._append(name, ops.Activation(kind), (x,), x.rows, x.features)

    def glu(self, gate: Value, up: Value, kind: ops.ActivationKind, name: str, clamp: float = 0.0) -> Value:
        """activation(gate) · up."""
        return self._append(name, ops.Glu(kind, clamp), (gate, up), up.rows, up.features)

    def add(self, a: Value, b: Value, name: str) -> Value:
        """a + b."""
        return self._append(name, ops.Add(), (a, b), a.rows, a.features)

    def mul(self, a: Value, b: Value, name: str) -> Value:
        """a · b."""
        return self._append(name, ops.Mul(), (a, b), a.rows, a.features)

    def scale(self, x: Value, factor: float, name: str) -> Value:
        """x · factor; x itself when the factor is one."""
        return x if factor == 1.0 else self._append(name, ops.Scale(factor), (x,), x.rows, x.features)

    def softcap(self, x: Value, cap: float, name: str) -> Value:
        """cap · tanh(x / cap); x itself when the cap is zero."""
        return x if cap == 0.0 else self._append(name, ops.Softcap(cap), (x,), x.rows, x.features)

    def slice(self, x: Value, start: int, stop: int, name: str) -> Value:
        """Features [start, stop)."""
        return self._append(name, ops.Slice(start, stop), (x,), x.rows, stop - start)

    def route(self, logits: Value, op: ops.Route, name: str) -> Value:
        """Choose experts from router logits; for use in expert_linear and combine alone."""
        return self._append(name, op, (logits,), logits.rows, op.n_used)

    def expert_linear(self, x: Value, route: Value, tensor: str, n_experts: int, n_out: int) -> Value:
        """The linear of each token-expert pair; W is [n_experts, n_out, features of x]."""
        name = f"{self._prefix}{tensor}.weight"
        self._checked(name, (n_experts, n_out, x.features))
        weight = Weight(name, n_out, x.features, n_experts=n_experts)
        bias_name = f"{self._prefix}{tensor}.bias"
        bias = None
        if bias_name in self.file.tensors:
            self._checked(bias_name, (n_experts, n_out))
            bias = Weight(bias_name, 1, n_out, n_experts=n_experts)
        factors = self.constants(f"{tensor}.scale", n_experts) or ()
        op = ops.ExpertLinear(weight, bias, factors)
        return self._append(tensor, op, (x, route), Rows.PAIRS, n_out)

    def combine(self, x: Value, route: Value, name: str) -> Value:
        """Sum of each token's pairs times their weights."""
        return self._append(name, ops.Combine(), (x, route), route.rows, x.features)

    def select_rows(self, x: Value, name: str) -> Value:
        """The rows that want logits."""
        return self._append(name, ops.SelectRows(), (x,), Rows.LOGITS, x.features)

    def head(self, x: Value, table: str) -> Value:
        """Logits through `output.weight`, or through the token table when the file has no such tensor."""
        n_vocab = self._rows_of(f"{table}.weight")
        weight = self._matrix("output" if self.has("output.weight") else table, n_vocab, x.features)
        bias = self._vector("output.bias", n_vocab)
        # A factor before the product equals one after it and before the bias.
        scaled = self.scale(x, self._scale("output"), "output_scaled")
        return self._append("logits", ops.Head(weight, bias), (scaled,), x.rows, n_vocab)

    def finish(self, logits: Value, pooled: Value | None = None) -> Graph:
        """The finished graph."""
        draft = self._draft
        return Graph(
            tuple(draft.nodes), tuple(draft.slots), logits.index, None if pooled is None else pooled.index
        )

    def _append(self, name: str, op: Op, inputs: tuple[Value, ...], rows: Rows, features: int) -> Value:
        name = self._prefix + name
        if name in self._draft.names:
            raise ValueError(f"two nodes are called {name!r}")
        self._draft.names.add(name)
        self._draft.nodes.append(Node(name, op, tuple(value.index for value in inputs), rows, features))
        return Value(len(self._draft.nodes) - 1, rows, features)

    def _norm(self, kind: Literal["rms", "layer"], x: Value, tensor: str, eps: float, groups: int) -> Value:
        name = f"{self._prefix}{tensor}.weight"
        n = x.features if self._rows_of(name) == x.features else x.features // groups
        weight = self._vector(f"{tensor}.weight", n, required=True)
        bias = self._vector(f"{tensor}.bias", n) if kind == "layer" else None
        return self._append(tensor, ops.Norm(kind, eps, weight, bias, groups), (x,), x.rows, x.features)

    def _matrix(self, tensor: str, n_rows: int, n_columns: int) -> Weight:
        name = f"{self._prefix}{tensor}.weight"
        self._checked(name, (n_rows, n_columns))
        return Weight(name, n_rows, n_columns)

    def _vector(self, tensor: str, n: int, *, required: bool = False) -> Weight | None:
        name = self._prefix + tensor
        if not required and name not in self.file.tensors:
            return None
        self._checked(name, (n,))
        return Weight(name, 1, n)

    def _scale(self, tensor: str) -> float:
        factors = self.constants(f"{tensor}.scale", 1)
        return factors[0] if factors else 1.0

    def _rows_of(self, name: str) -> int:
        """The slowest dimension of a tensor that must be there."""
        facts = self.file.tensors.get(name)
        if facts is None:
            raise TensorMissingError(
                f"the file has no tensor {name!r}, which its architecture needs",
                hint="the file was converted wrongly; look for another conversion of the model",
            )
        return facts.shape[0] if facts.shape else 1

    def _checked(self, name: str, expected: tuple[int, ...]) -> TensorFacts:
        self._rows_of(name)
        facts = self.file.tensors[name]
        if _significant(facts.shape) != _significant(expected):
            raise TensorShapeError(name, expected, facts.shape)
        return facts


def _significant(shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape without leading ones, which files may leave out or write."""
    first = next((i for i, n in enumerate(shape) if n != 1), len(shape))
    return shape[first:]
