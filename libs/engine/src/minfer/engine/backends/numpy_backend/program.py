"""A graph made runnable: a list of instructions, each a closure over its weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from minfer.engine.backends.numpy_backend.attention import Layout
from minfer.engine.backends.numpy_backend.blas import use_one_thread
from minfer.engine.backends.numpy_backend.cache import NumpyCache
from minfer.engine.backends.numpy_backend.head import LOGITS_AT_ONCE, Answers
from minfer.engine.backends.numpy_backend.kernels import (
    KERNELS,
    Context,
    Kernel,
    Step,
    linear_kernel,
)
from minfer.engine.backends.numpy_backend.weights import WeightStore
from minfer.engine.backends.step import CacheStore, Cancel, Cancelled, HeadQuery, StepBatch, StepResult
from minfer.engine.graph import ops
from minfer.engine.graph.liveness import last_uses

if TYPE_CHECKING:
    from minfer.engine.backends.step import CompileOptions
    from minfer.engine.graph.ops import Graph
    from minfer.gguf import GGUFFile


@dataclass(frozen=True, slots=True)
class Instruction:
    """Compute values `outputs` (feature ranges of one result when several) and forget values `dead`."""

    kernel: Kernel
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    ranges: tuple[slice, ...]
    dead: tuple[int, ...]
    starts_layer: bool


class NumpyProgram:
    """A compiled graph with its weights. Use NumpyBackend.compile."""

    notices: tuple[str, ...] = ()

    def __init__(self, graph: Graph, file: GGUFFile, options: CompileOptions) -> None:
        self._graph = graph
        self._options = options
        self._compact = options.weights == "blockwise"
        self._weights = WeightStore(file, resident=not self._compact, n_threads=options.n_threads)
        self._tapped = frozenset(options.taps)
        head = next((i for i, node in enumerate(graph) if isinstance(node.op, ops.Head)), len(graph.nodes))
        instructions = _instructions(graph, Context(self._weights, graph.cache_slots, self._tapped))
        self._body = [step for step in instructions if step.outputs[0] < head]
        self._tail = [step for step in instructions if step.outputs[0] >= head]
        self._weights.load()
        self.n_bytes = self._weights.n_bytes

    def new_cache(self, n_blocks: tuple[int, ...]) -> NumpyCache:
        """Cache bytes for that many blocks of each group."""
        return NumpyCache(self._graph, n_blocks, compact=self._compact)

    def close(self) -> None:
        """Give the memory back."""
        self._body, self._tail = [], []
        self._weights.clear()
        self.n_bytes = 0

    def run(
        self, batch: StepBatch, cache: CacheStore, query: HeadQuery, cancel: Cancel | None = None
    ) -> StepResult:
        """Run one step. Raises Cancelled between layers."""
        if not isinstance(cache, NumpyCache):
            raise TypeError("the cache belongs to another backend")
        use_one_thread()
        with np.errstate(all="ignore"):
            step = self._step(batch, cache)
            values: list[Any] = [None] * len(self._graph.nodes)
            taps: dict[str, Any] = {}
            self._execute(self._body, step, values, taps, cancel)
            pooled = None if self._graph.pooled is None else values[self._graph.pooled]
            answers = self._answers(step, values, taps, query)
        taps.update(step.probabilities)
        return StepResult(
            answers.logits,
            answers.top_ids,
            answers.top_logits,
            answers.listed,
            answers.max_logit,
            answers.log_sum_exp,
            pooled,
            taps,
        )

    def _step(self, batch: StepBatch, cache: NumpyCache) -> Step:
        groups = [Layout(batch, i, spec) for i, spec in enumerate(self._graph.cache_groups)]
        return Step(
            batch,
            cache,
            tuple(groups[group] for group in cache.slot_group),
            np.frombuffer(batch.ids, np.int32).astype(np.intp) if len(batch.ids) else np.empty(0, np.intp),
            np.frombuffer(batch.rope_pos, np.int32),
            np.frombuffer(batch.logit_rows, np.int32).astype(np.intp)
            if len(batch.logit_rows)
            else np.empty(0, np.intp),
        )

    def _execute(
        self,
        instructions: Sequence[Instruction],
        step: Step,
        values: list[Any],
        taps: dict[str, Any],
        cancel: Cancel | None,
    ) -> None:
        for instruction in instructions:
            if instruction.starts_layer and cancel is not None and cancel():
                raise Cancelled
            result = instruction.kernel(step, [values[i] for i in instruction.inputs])
            if instruction.ranges:
                for output, span in zip(instruction.outputs, instruction.ranges, strict=True):
                    values[output] = result[:, span]
            else:
                values[instruction.outputs[0]] = result
            if self._tapped:
                self._keep(instruction.outputs, values, taps)
            for index in instruction.dead:
                values[index] = None

    def _keep(self, outputs: tuple[int, ...], values: list[Any], taps: dict[str, Any]) -> None:
        for output in outputs:
            name = self._graph.nodes[output].name
            if name in self._tapped:
                value = values[output]
                taps[name] = value if isinstance(value, tuple) else np.array(value)

    def _answers(self, step: Step, values: list[Any], taps: dict[str, Any], query: HeadQuery) -> Answers:
        """Run the head and what follows it, a few rows at a time unless all logits are wanted."""
        answers = Answers()
        n_rows = len(step.logit_rows)
        if not self._tail or n_rows == 0:
            return answers
        source = self._tail[0].inputs[0]
        hidden = values[source]
        n_vocab = self._graph.nodes[self._graph.logits].features
        whole = query.top == 0 or bool(self._tapped)
        at_once = n_rows if whole else max(1, LOGITS_AT_ONCE // n_vocab)
        for first in range(0, n_rows, at_once):
            values[source] = hidden[first : first + at_once]
            self._execute(self._tail, step, values, taps, None)
            answers.take(values[self._graph.logits], query)
        return answers


def _instructions(graph: Graph, context: Context) -> list[Instruction]:
    """One instruction for each node, but one for all linears that share their input."""
    last_use = last_uses(graph)
    groups = _sibling_linears(graph) if context.weights.resident else {}
    # The head is asked for first: an embedding table that it shares is then found resident.
    order = sorted(range(len(graph.nodes)), key=lambda i: not isinstance(graph.nodes[i].op, ops.Head))
    made: dict[int, Instruction] = {}
    for index in order:
        node = graph.nodes[index]
        members = groups.get(index, (index,))
        if members[0] != index:
            continue
        kernel, ranges = (
            (KERNELS[type(node.op)](node.op, node, context), ())
            if len(members) == 1
            else _joined(graph, members, context)
        )
        inputs = node.inputs
        dead = tuple(i for i in inputs if last_use[i] <= members[-1] and i not in members)
        starts_layer = isinstance(node.op, ops.Attend)
        made[index] = Instruction(kernel, inputs, members, ranges, dead, starts_layer)
    return [made[index] for index in sorted(made)]


def _sibling_linears(graph: Graph) -> dict[int, tuple[int, ...]]:
    """Runs of consecutive Linear nodes with one input: their rows make one product."""
    groups: dict[int, tuple[int, ...]] = {}
    run: list[int] = []
    for index, node in enumerate(graph):
        if not (isinstance(node.op, ops.Linear) and run and graph.nodes[run[0]].inputs == node.inputs):
            run = [index] if isinstance(node.op, ops.Linear) else []
        else:
            run.append(index)
            groups.update(dict.fromkeys(run, tuple(run)))
    return groups


def _joined(graph: Graph, members: tuple[int, ...], context: Context) -> tuple[Kernel, tuple[slice, ...]]:
    """One product for several linears, and the features of each."""
    linears = [graph.nodes[i].op for i in members]
    weights, factors, biases, ranges = [], [], [], []
    at = 0
    for op in linears:
        assert isinstance(op, ops.Linear)  # by construction of the group
        n = op.weight.n_rows
        weights.append(op.weight)
        factors.append(np.full(n, op.product_scale, np.float32))
        biases.append(np.zeros(n, np.float32) if op.bias is None else context.weights.vector(op.bias))
        ranges.append(slice(at, at + n))
        at += n
    bias = np.concatenate(biases) if any(b.any() for b in biases) else None
    scale = np.concatenate(factors) if any((f != 1).any() for f in factors) else None
    return linear_kernel(context.weights.matrix(*weights), bias, scale), tuple(ranges)
