"""A compiled graph: its weights in the arena, its steps in C."""

from __future__ import annotations

import threading
from array import array
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from minfer.engine.backends.native import _native
from minfer.engine.backends.native.buffers import group, place
from minfer.engine.backends.native.cache import NativeCache, pack_groups, slot_places
from minfer.engine.backends.native.errors import ProgramMemoryError, StepRefusedError
from minfer.engine.backends.native.loading import load
from minfer.engine.backends.native.lowering import Lowered, Tap, lower
from minfer.engine.backends.native.operations import Domain
from minfer.engine.backends.native.weights import WeightPlan
from minfer.engine.backends.step import Cancelled, StepResult

if TYPE_CHECKING:
    from minfer.engine.backends.step import (
        CacheStore,
        Cancel,
        CompileOptions,
        HeadQuery,
        StepBatch,
    )
    from minfer.engine.graph.ops import Graph
    from minfer.gguf import GGUFFile

Floats: TypeAlias = "memoryview[float]"

CANCEL_INTERVAL: Final = 5_000_000
"""Nanoseconds between two questions whether to stop: asking takes the GIL, which others may hold."""

_SCRATCH_BYTES = 1 << 18  # of a thread, beside what follows from the widths of heads


class Plan:
    """A graph lowered and laid out: everything about a program but the numbers of its weights."""

    def __init__(self, graph: Graph, file: GGUFFile, options: CompileOptions) -> None:
        self.weights = WeightPlan(file)
        most = max(options.max_tokens, options.max_logit_rows)
        self.lowered: Lowered = lower(graph, self.weights, options.taps, most)
        group(self.lowered.operations)
        kept = {tap.value for tap in self.lowered.taps.values()}
        kept |= {tap.order for tap in self.lowered.taps.values() if tap.order >= 0}
        kept |= {self.lowered.pooled} if self.lowered.pooled >= 0 else set()
        n_used = self.lowered.n_used
        rows = {
            Domain.TOKENS: options.max_tokens,
            Domain.LOGITS: options.max_logit_rows,
            Domain.SEQUENCES: options.max_tokens,
            Domain.PAIRS: options.max_tokens * n_used,
            Domain.LOGIT_PAIRS: options.max_logit_rows * n_used,
            Domain.ONCE: 1,
        }
        self.buffer_bytes = place(self.lowered.operations, self.lowered.values, rows, kept)
        tile = max((spec.dk + 2 * spec.dv + 32 for spec in graph.cache_slots), default=0)
        room = max(((spec.dk + spec.dv) // 2 + 16 for spec in graph.cache_slots), default=0)
        floats = tile * _native.TILE_ROWS + room * _native.CHUNK_POSITIONS
        self.scratch_bytes = options.n_threads * (_SCRATCH_BYTES + 4 * floats)

    @property
    def n_bytes(self) -> int:
        """Weights, buffers and scratch."""
        return self.weights.n_bytes + self.buffer_bytes + self.scratch_bytes


class NativeProgram:
    """Runs steps in C without the GIL. One step at a time; further callers wait."""

    def __init__(self, graph: Graph, file: GGUFFile, options: CompileOptions, isa: str) -> None:
        """Raises UnsupportedGraphError, ProgramMemoryError and what the file's reader raises."""
        plan = Plan(graph, file, options)
        self._graph = graph
        self._options = options
        self._lowered = plan.lowered
        self._width = next((n.features for n in graph if n.rows == "T"), 0)
        self._n_groups = len(graph.cache_groups)
        self._running = threading.Lock()
        try:
            self._native: _native.Program | None = _native.Program(options.n_threads, isa)
        except MemoryError:
            raise _no_memory(plan.n_bytes) from None
        self.notices: tuple[str, ...] = load(self._native, plan.weights, file, isa)
        self._finish(plan, graph)
        self.n_bytes = plan.n_bytes

    def _finish(self, plan: Plan, graph: Graph) -> None:
        assert self._native is not None  # just made
        status = self._native.finish(
            b"".join(op.pack() for op in plan.lowered.operations),
            b"".join(value.pack() for value in plan.lowered.values),
            plan.buffer_bytes,
            (
                self._options.max_tokens,
                self._options.max_logit_rows,
                self._options.max_tokens,
                plan.lowered.n_used,
            ),
            pack_groups(graph),
            slot_places(graph.cache_slots, graph.cache_groups),
        )
        if status != _native.OK:
            raise _no_memory(plan.n_bytes)

    def new_cache(self, n_blocks: tuple[int, ...]) -> NativeCache:
        """Cache bytes for that many blocks of each group."""
        return NativeCache(self._graph, n_blocks)

    def close(self) -> None:
        """Give the memory back."""
        with self._running:
            self._native = None
        self.n_bytes = 0

    def run(
        self, batch: StepBatch, cache: CacheStore, query: HeadQuery, cancel: Cancel | None = None
    ) -> StepResult:
        """Run one step. `cancel` is asked before it and, a few times a second at most, between layers."""
        if not isinstance(cache, NativeCache):
            raise TypeError("the cache belongs to another backend")
        if cancel is not None and cancel():
            raise Cancelled
        answer = _Answer(query, len(batch.logit_rows), self._lowered.n_vocab)
        question: list[Any] | None = None if cancel is None else [cancel]
        with self._running:
            if self._native is None:
                raise ValueError("the program is closed")
            held = _native.Batch(batch, self._n_groups, self._width)
            status = self._native.run(
                held, cache.native, answer.top, answer.listed, answer.outputs, question, CANCEL_INTERVAL
            )
            if status == _native.OK:
                taps = {name: self._tap(tap, batch, held, cache) for name, tap in self._lowered.taps.items()}
                pooled = None if self._lowered.pooled < 0 else self._value(self._lowered.pooled, -1, batch)
        if status == _native.CANCELLED:
            if question is not None and len(question) > 1:
                raise question[1]
            raise Cancelled
        if status != _native.OK:
            raise self._failure(status, batch)
        return answer.result(pooled, taps)

    def _failure(self, status: int, batch: StepBatch) -> Exception:
        if status == _native.NO_MEMORY:
            return _no_memory(self.n_bytes)
        return StepRefusedError(
            f"a step of {len(batch.cache_pos)} rows in {len(batch.sequences)} sequences "
            "contradicts its block tables, its ids or the program's limits",
            hint=f"at most {self._options.max_tokens} rows and {self._options.max_logit_rows} logit rows",
        )

    def _tap(self, tap: Tap, batch: StepBatch, held: _native.Batch, cache: NativeCache) -> object:
        if tap.attend >= 0:
            return tuple(
                self._probabilities(tap.attend, i, batch, held, cache) for i in range(len(batch.sequences))
            )
        value = self._value(tap.value, tap.order, batch)
        return _route(value, self._lowered.values[tap.value].features // 2) if tap.is_route else value

    def _value(self, value: int, order: int, batch: StepBatch) -> Floats:
        """A value of the step just run, float32 [rows, features]."""
        what = self._lowered.values[value]
        n_rows = {
            Domain.TOKENS: len(batch.cache_pos),
            Domain.LOGITS: len(batch.logit_rows),
            Domain.SEQUENCES: len(batch.sequences),
            Domain.PAIRS: len(batch.cache_pos) * self._lowered.n_used,
            Domain.LOGIT_PAIRS: len(batch.logit_rows) * self._lowered.n_used,
            Domain.ONCE: 1,
        }[what.rows]
        data = bytearray(4 * n_rows * what.features)
        assert self._native is not None  # the caller holds the lock and has looked
        self._native.value(value, order, data)
        return _floats(data, n_rows, what.features)

    def _probabilities(
        self, attend: int, index: int, batch: StepBatch, held: _native.Batch, cache: NativeCache
    ) -> Floats:
        """Of one sequence: float32 [n_q, rows, positions]."""
        sequence = batch.sequences[index]
        n_positions = sequence.length_before + sequence.n_rows
        n_q = self._lowered.operations[attend].p[1]
        data = bytearray(4 * n_q * sequence.n_rows * n_positions)
        assert self._native is not None  # the caller holds the lock and has looked
        self._native.probabilities(attend, index, held, cache.native, data, n_positions)
        return memoryview(data).cast("f", (n_q, sequence.n_rows, n_positions))


class _Answer:
    """The buffers a HeadQuery needs, and what they say afterwards."""

    def __init__(self, query: HeadQuery, n_rows: int, n_vocab: int) -> None:
        self.top = min(query.top, n_vocab)
        self._shape = (n_rows, n_vocab)
        self.peak, self.total = _zeros(n_rows), _zeros(n_rows)
        if self.top:
            self.ids = array("i", bytes(4 * n_rows * self.top))
            self.logits = _zeros(n_rows * self.top)
            self.outputs: tuple[Any, ...] = (self.ids, self.logits, self.peak, self.total)
        else:
            self.full = bytearray(4 * n_rows * n_vocab)
            self.outputs = (self.full, None, self.peak, self.total)
        self.listed: tuple[array[int], array[int], array[float]] | None = None
        if query.listed:
            ids = array("i", chain.from_iterable(query.listed))
            if len(query.listed) != n_rows or (ids and not 0 <= min(ids) <= max(ids) < n_vocab):
                raise StepRefusedError(
                    f"listed ids for {len(query.listed)} of {n_rows} rows, or outside the vocabulary"
                )
            offsets = array("i", [0])
            for row in query.listed:
                offsets.append(offsets[-1] + len(row))
            self.listed = (offsets, ids, _zeros(len(ids)))

    def result(self, pooled: Floats | None, taps: dict[str, object]) -> StepResult:
        """As the contract wants it."""
        k, n_rows = self.top, self._shape[0]
        rows = range(n_rows if k else 0)
        listed: list[list[float]] = []
        if self.listed is not None:
            listed = [self.listed[2][a:b].tolist() for a, b in pairwise(self.listed[0])]
        return StepResult(
            logits=None if k or not n_rows else _floats(self.full, *self._shape),
            top_ids=[self.ids[r * k : r * k + k].tolist() for r in rows],
            top_logits=[self.logits[r * k : r * k + k].tolist() for r in rows],
            listed_logits=listed,
            max_logit=self.peak.tolist(),
            log_sum_exp=self.total.tolist(),
            pooled=pooled,
            taps=taps,
        )


def _route(value: Floats, n_used: int) -> tuple[memoryview, Floats]:
    """Rows of ids and weights taken apart: int32 and float32 [rows, n_used]."""
    data, step = value.tobytes(), 4 * n_used
    parts = [data[i : i + step] for i in range(0, len(data), step)]
    ids, weights = bytearray(b"".join(parts[::2])), bytearray(b"".join(parts[1::2]))
    n_rows = len(ids) // step
    return memoryview(ids).cast("i", (n_rows, n_used)), _floats(weights, n_rows, n_used)


def _zeros(n: int) -> array[float]:
    return array("f", bytes(4 * n))


def _floats(data: bytearray, n_rows: int, n_columns: int) -> Floats:
    """float32 [n_rows, n_columns] over bytes; a memoryview cannot have an empty dimension."""
    view = memoryview(data)
    return view.cast("f", (n_rows, n_columns)) if n_rows and n_columns else view.cast("f")


def _no_memory(n_bytes: int) -> ProgramMemoryError:
    return ProgramMemoryError(
        f"no memory for a program of {n_bytes} bytes", hint="use a smaller model or a smaller batch"
    )
