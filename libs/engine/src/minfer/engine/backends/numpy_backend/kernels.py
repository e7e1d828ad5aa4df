"""From a node to a closure that computes it: one function for each operation, and the table of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from minfer.engine.backends.numpy_backend import operations
from minfer.engine.backends.numpy_backend.attention import Layout, attend, write
from minfer.engine.backends.numpy_backend.cache import NumpyCache
from minfer.engine.backends.numpy_backend.operations import Floats
from minfer.engine.backends.numpy_backend.weights import Matrix, WeightStore
from minfer.engine.backends.step import StepBatch
from minfer.engine.graph import ops
from minfer.engine.graph.ops import CacheSpec, Node

_Turns = npt.NDArray[np.complex64]


@dataclass(slots=True)
class Step:
    """One step's data, as arrays, and what its layers share."""

    batch: StepBatch
    cache: NumpyCache
    layouts: tuple[Layout, ...]  # for each cache slot; slots of a group share one
    ids: npt.NDArray[np.intp]
    positions: npt.NDArray[np.int32]
    logit_rows: npt.NDArray[np.intp]
    probabilities: dict[str, tuple[Floats, ...]] = field(default_factory=dict)
    turns: dict[tuple[object, ...], _Turns] = field(default_factory=dict)


Kernel = Callable[[Step, Sequence[Any]], Any]


@dataclass(frozen=True, slots=True)
class Context:
    """What factories need beside the node."""

    weights: WeightStore
    slots: tuple[CacheSpec, ...]
    taps: frozenset[str]


def probabilities_tap(name: str) -> str:
    """The name that taps an Attend node's probabilities instead of its output."""
    return f"{name}.probabilities"


def _embed(op: ops.Embed, _node: Node, context: Context) -> Kernel:
    table = context.weights.table(op.table)
    n_rows = op.table.n_rows

    def run(step: Step, _inputs: Sequence[Any]) -> Floats:
        if op.index == "token" and step.batch.rows is not None:
            return np.array(step.batch.rows, np.float32)
        if op.index == "constant":
            return np.repeat(table.rows(np.zeros(1, np.intp)), len(step.positions), axis=0)
        ids = step.ids if op.index == "token" else step.positions.astype(np.intp)
        if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < n_rows:
            raise ValueError(f"an id lies outside the table of {n_rows} rows")
        return table.rows(ids)

    return run


def linear_kernel(matrix: Matrix, bias: Floats | None, factor: Floats | np.float32 | None) -> Kernel:
    """x · Wᵀ · factor + bias; the factor is one number or one for each output."""

    def plain(_step: Step, inputs: Sequence[Any]) -> Floats:
        return matrix.product(inputs[0])

    def full(_step: Step, inputs: Sequence[Any]) -> Floats:
        y = matrix.product(inputs[0])
        if factor is not None:
            y *= factor
        if bias is not None:
            y += bias
        return y

    return plain if bias is None and factor is None else full


def _linear(op: ops.Linear, _node: Node, context: Context) -> Kernel:
    bias = None if op.bias is None else context.weights.vector(op.bias)
    factor = None if op.product_scale == 1.0 else np.float32(op.product_scale)
    return linear_kernel(context.weights.matrix(op.weight), bias, factor)


def _head(op: ops.Head, _node: Node, context: Context) -> Kernel:
    bias = None if op.bias is None else context.weights.vector(op.bias)
    return linear_kernel(context.weights.matrix(op.weight), bias, None)


def _head_linear(op: ops.HeadLinear, node: Node, context: Context) -> Kernel:
    heads = context.weights.experts(op.weight)

    def run(_step: Step, inputs: Sequence[Any]) -> Floats:
        parts = inputs[0].reshape(len(inputs[0]), op.n_heads, -1)
        products = [matrix.product(np.ascontiguousarray(parts[:, h])) for h, matrix in enumerate(heads)]
        return np.concatenate(products, axis=1).reshape(-1, node.features)

    return run


def _norm(op: ops.Norm, _node: Node, context: Context) -> Kernel:
    weight = None if op.weight is None else context.weights.vector(op.weight)
    bias = None if op.bias is None else context.weights.vector(op.bias)
    return lambda _step, inputs: operations.norm(inputs[0], op, weight, bias)


def _rope(op: ops.Rope, _node: Node, _context: Context) -> Kernel:
    key = (op.frequencies, op.magnitude)

    def run(step: Step, inputs: Sequence[Any]) -> Floats:
        turns = step.turns.get(key)
        if turns is None:
            turns = step.turns[key] = operations.rotations(op, step.positions)
        return operations.rope(inputs[0], op, turns)

    return run


def _cache_write(op: ops.CacheWrite, _node: Node, context: Context) -> Kernel:
    spec = context.slots[op.slot]
    return lambda step, inputs: write(step.cache, op.slot, spec, step.layouts[op.slot].targets, inputs)


def _attend(op: ops.Attend, node: Node, context: Context) -> Kernel:
    sinks = None if op.sinks is None else context.weights.vector(op.sinks)
    tap = probabilities_tap(node.name)
    keeps = tap in context.taps

    def run(step: Step, inputs: Sequence[Any]) -> Floats:
        where = (step.layouts[op.slot], step.cache, context.weights.workers)
        out, kept = attend(inputs[0], op, where, sinks, keeps=keeps)
        if keeps:
            step.probabilities[tap] = tuple(kept)
        return out

    return run


def _activation(op: ops.Activation, _node: Node, _context: Context) -> Kernel:
    function = operations.ACTIVATIONS[op.kind]
    return lambda _step, inputs: function(inputs[0])


def _glu(op: ops.Glu, _node: Node, _context: Context) -> Kernel:
    return lambda _step, inputs: operations.glu(inputs[0], inputs[1], op)


def _add(_op: ops.Add, _node: Node, _context: Context) -> Kernel:
    return lambda _step, inputs: inputs[0] + inputs[1]


def _mul(_op: ops.Mul, _node: Node, _context: Context) -> Kernel:
    return lambda _step, inputs: inputs[0] * inputs[1]


def _scale(op: ops.Scale, _node: Node, _context: Context) -> Kernel:
    factor = np.float32(op.factor)
    return lambda _step, inputs: inputs[0] * factor


def _softcap(op: ops.Softcap, _node: Node, _context: Context) -> Kernel:
    return lambda _step, inputs: operations.softcap(inputs[0], op.cap)


def _slice(op: ops.Slice, _node: Node, _context: Context) -> Kernel:
    return lambda _step, inputs: inputs[0][:, op.start : op.stop]


def _concat(_op: ops.Concat, _node: Node, _context: Context) -> Kernel:
    return lambda _step, inputs: np.concatenate(inputs, axis=1)


def _route(op: ops.Route, _node: Node, context: Context) -> Kernel:
    bias = None if op.bias is None else context.weights.vector(op.bias)
    return lambda _step, inputs: operations.route(inputs[0], op, bias)


def _expert_linear(op: ops.ExpertLinear, node: Node, context: Context) -> Kernel:
    matrices = context.weights.experts(op.weight)
    bias = None if op.bias is None else context.weights.vector(op.bias)
    factors = op.product_scales or (1.0,) * len(matrices)

    def run(_step: Step, inputs: Sequence[Any]) -> Floats:
        x, (ids, _) = inputs
        flat = ids.ravel()
        y = np.empty((len(flat), node.features), np.float32)
        for_tokens = len(x) != len(flat)
        for expert in np.unique(flat).tolist():
            pairs = np.flatnonzero(flat == expert)
            sources = pairs // ids.shape[1] if for_tokens else pairs
            product = matrices[expert].product(x[sources])
            if factors[expert] != 1.0:
                product *= np.float32(factors[expert])
            if bias is not None:
                product += bias[expert]
            y[pairs] = product
        return y

    return run


def _combine(_op: ops.Combine, _node: Node, _context: Context) -> Kernel:
    return lambda _step, inputs: operations.combine(inputs[0], inputs[1][1])


def _select_rows(_op: ops.SelectRows, _node: Node, _context: Context) -> Kernel:
    return lambda step, inputs: inputs[0][step.logit_rows]


def _pool(op: ops.Pool, node: Node, _context: Context) -> Kernel:
    def run(step: Step, inputs: Sequence[Any]) -> Floats:
        y = np.zeros((len(step.batch.sequences), node.features), np.float32)
        for i, sequence in enumerate(step.batch.sequences):
            rows = inputs[0][sequence.first_row : sequence.first_row + sequence.n_rows]
            if op.kind == "mean":
                y[i] = rows.mean(axis=0)
            else:
                y[i] = rows[0 if op.kind == "cls" else -1]
        return y

    return run


def _l2_norm(_op: ops.L2Norm, _node: Node, _context: Context) -> Kernel:
    return lambda _step, inputs: operations.l2_norm(inputs[0])


KERNELS: dict[type, Callable[[Any, Node, Context], Kernel]] = {
    ops.Embed: _embed,
    ops.Linear: _linear,
    ops.HeadLinear: _head_linear,
    ops.Norm: _norm,
    ops.Rope: _rope,
    ops.CacheWrite: _cache_write,
    ops.Attend: _attend,
    ops.Activation: _activation,
    ops.Glu: _glu,
    ops.Add: _add,
    ops.Mul: _mul,
    ops.Scale: _scale,
    ops.Softcap: _softcap,
    ops.Slice: _slice,
    ops.Concat: _concat,
    ops.Route: _route,
    ops.ExpertLinear: _expert_linear,
    ops.Combine: _combine,
    ops.SelectRows: _select_rows,
    ops.Head: _head,
    ops.Pool: _pool,
    ops.L2Norm: _l2_norm,
}
