"""Attention over a paged cache, one sequence at a time, in bounded pieces of queries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from minfer.engine.backends.numpy_backend.cache import NumpyCache, Store
from minfer.engine.backends.numpy_backend.operations import Floats, softcap
from minfer.engine.backends.numpy_backend.workers import Workers
from minfer.engine.backends.step import BLOCK_POSITIONS, Ints, StepBatch
from minfer.engine.graph import ops

Where = slice | npt.NDArray[np.intp]
SCORES_AT_ONCE = 1 << 20
"""Attention logits that a thread holds at a time: 4 MiB."""
_QUERIES_AT_ONCE = 64  # enough for BLAS, and few keys are looked at for nothing
_WORTH_SHARING = 1 << 18  # attention logits; fewer are done before a thread has woken


@dataclass(frozen=True, slots=True)
class Span:
    """Queries [first, last) of the batch's rows and the positions [start, stop) that they can see.

    mask: float32 (queries, positions), zero or minus infinity; None when everything is visible.
    """

    first: int
    last: int
    start: int
    stop: int
    where: Where
    mask: Floats | None


class Layout:
    """Where in the cache each row of a step goes and what it looks at; shared by all layers of a group."""

    def __init__(self, batch: StepBatch, group: int, spec: ops.CacheSpec) -> None:
        self._batch = batch
        self._group = group
        self._spec = spec
        self.positions = np.frombuffer(batch.cache_pos, np.int32).astype(np.intp)
        self.targets = self._targets()
        self._spans: dict[tuple[int, bool], list[list[Span]]] = {}

    def _targets(self) -> Where:
        """The flat cache row of each row of the batch."""
        flat = np.empty(len(self.positions), np.intp)
        for sequence in self._batch.sequences:
            rows = slice(sequence.first_row, sequence.first_row + sequence.n_rows)
            table = _table(sequence.block_tables[self._group])
            at = self.positions[rows]
            flat[rows] = table[at // BLOCK_POSITIONS] * BLOCK_POSITIONS + at % BLOCK_POSITIONS
        return _as_slice(flat)

    def spans(self, n_q: int, *, causal: bool) -> list[list[Span]]:
        """For each sequence its spans; the same list for all layers that ask alike."""
        key = (n_q, causal)
        if key not in self._spans:
            self._spans[key] = [
                self._sequence_spans(i, n_q, causal) for i in range(len(self._batch.sequences))
            ]
        return self._spans[key]

    def _sequence_spans(self, index: int, n_q: int, causal: bool) -> list[Span]:
        sequence = self._batch.sequences[index]
        table = _table(sequence.block_tables[self._group])
        end = sequence.first_row + sequence.n_rows
        longest = int(self.positions[end - 1]) + 1 if sequence.n_rows else 0
        step = max(1, min(_QUERIES_AT_ONCE, SCORES_AT_ONCE // max(1, n_q * longest)))
        return [
            self._span(table, first, min(first + step, end), longest, causal)
            for first in range(sequence.first_row, end, step)
        ]

    def _span(self, table: npt.NDArray[np.intp], first: int, last: int, longest: int, causal: bool) -> Span:
        at = self.positions[first:last]
        stop = int(at[-1]) + 1 if causal else longest
        window = self._spec.window
        start = max(0, int(at[0]) + 1 - window) if window is not None else 0
        blocks = table[start // BLOCK_POSITIONS : -(-stop // BLOCK_POSITIONS)]
        flat = (blocks[:, None] * BLOCK_POSITIONS + np.arange(BLOCK_POSITIONS)).ravel()
        skip = start % BLOCK_POSITIONS
        where = _as_slice(flat[skip : skip + stop - start])
        return Span(first, last, start, stop, where, self._mask(at, start, stop, causal))

    def _mask(self, at: npt.NDArray[np.intp], start: int, stop: int, causal: bool) -> Floats | None:
        if len(at) == 1:
            return None  # the range of positions is exact
        distance = at[:, None] - np.arange(start, stop)
        hidden = distance < 0 if causal else np.zeros(distance.shape, bool)
        if self._spec.window is not None:
            hidden |= distance >= self._spec.window
        return np.where(hidden, np.float32(-np.inf), np.float32(0))


def write(cache: NumpyCache, slot: int, spec: ops.CacheSpec, where: Where, values: Sequence[Floats]) -> None:
    """Store the step's keys (and values) of one slot; F16 caches round them here."""
    stores = (cache.keys[slot], cache.values[slot])
    for store, x in zip(stores, values, strict=False):
        rows = x.reshape(len(x), *store.shape[1:])
        store[where] = rows.astype(np.float16) if spec.dtype == "f16" else rows


def attend(
    q: Floats, op: ops.Attend, where: tuple[Layout, NumpyCache, Workers], sinks: Floats | None, *, keeps: bool
) -> tuple[Floats, list[Floats]]:
    """The output (T, n_q·dv) and, if `keeps`, each sequence's probabilities (n_q, rows, positions)."""
    layout, cache, workers = where
    return _Attention(op, layout, cache, sinks, keeps=keeps).over(q, workers)


class _Attention:
    """One Attend of one step."""

    def __init__(
        self, op: ops.Attend, layout: Layout, cache: NumpyCache, sinks: Floats | None, *, keeps: bool
    ) -> None:
        self._op = op
        self._layout = layout
        self._keys, self._values = cache.keys[op.slot], cache.values[op.slot]
        self._n_kv = self._keys.shape[1]
        self._n_shared = op.n_q // self._n_kv
        self._sinks = None if sinks is None else sinks.reshape(self._n_kv, self._n_shared, 1, 1)
        self._keeps = keeps

    def over(self, q: Floats, workers: Workers) -> tuple[Floats, list[Floats]]:
        out = np.empty((len(q), self._op.n_q * self._values.shape[2]), np.float32)
        sequences = self._layout.spans(self._op.n_q, causal=self._op.causal)
        spans = [span for of_sequence in sequences for span in of_sequence]
        pieces: list[Floats | None] = [None] * len(spans)

        def fill(piece: int) -> None:
            pieces[piece] = self._piece(q, spans[piece], out)

        n_scores = sum((span.last - span.first) * (span.stop - span.start) for span in spans)
        if n_scores * self._op.n_q < _WORTH_SHARING:
            for piece in range(len(spans)):
                fill(piece)
        else:
            workers.run(fill, len(spans))
        if not self._keeps:
            return out, []
        made = iter(pieces)
        return out, [_assembled(s, [next(made) for _ in s], self._op.n_q) for s in sequences if s]

    def _piece(self, q: Floats, span: Span, out: Floats) -> Floats | None:
        """Fill out[first:last]; the probabilities (n_q, rows, positions seen) if they are kept."""
        n, n_kv, shared = span.last - span.first, self._n_kv, self._n_shared
        queries: Floats = q[span.first : span.last].reshape(n, n_kv, shared, -1).transpose(1, 2, 0, 3)
        queries = (queries * np.float32(self._op.scale)).reshape(n_kv, shared * n, -1)
        keys = _floats(self._keys[span.where]).transpose(1, 2, 0)  # (n_kv, dk, positions)
        logits: Floats = np.matmul(queries, keys)
        scores = self._shaped(logits.reshape(n_kv, shared, n, -1), span)
        total = self._exponentials(scores)
        flat = scores.reshape(n_kv, shared * n, -1)
        values = _floats(self._values[span.where]).transpose(1, 0, 2)
        mixed: Floats = np.matmul(flat, values).reshape(n_kv, shared, n, -1)
        mixed /= total
        out[span.first : span.last].reshape(n, n_kv, shared, -1)[...] = mixed.transpose(2, 0, 1, 3)
        return (scores / total).reshape(n_kv * shared, n, -1) if self._keeps else None

    def _shaped(self, scores: Floats, span: Span) -> Floats:
        if self._op.softcap:
            scores = softcap(scores, self._op.softcap)
        if self._op.alibi_max_bias > 0.0:
            scores = scores + self._alibi(span)
        if span.mask is not None:
            scores += span.mask
        return scores

    def _exponentials(self, scores: Floats) -> Floats:
        """Turn scores into exponentials in place; return their sums, a sink's share included."""
        most = scores.max(axis=-1, keepdims=True)
        if self._sinks is not None:
            most = np.maximum(most, self._sinks)
        scores -= most
        np.exp(scores, out=scores)
        total: Floats = scores.sum(axis=-1, keepdims=True)
        return total if self._sinks is None else total + np.exp(self._sinks - most)

    def _alibi(self, span: Span) -> Floats:
        """Minus slope times distance, (n_kv, shared, rows, positions). Press et al., arXiv:2108.12409."""
        n_q = self._op.n_q
        power = 1 << (n_q.bit_length() - 1)
        base = 2.0 ** (-self._op.alibi_max_bias / power)
        between = 2.0 ** (-self._op.alibi_max_bias / (2 * power))
        slopes = [base ** (h + 1) if h < power else between ** (2 * (h - power) + 1) for h in range(n_q)]
        at = self._layout.positions[span.first : span.last]
        distance = np.abs(at[:, None] - np.arange(span.start, span.stop)).astype(np.float32)
        bias: Floats = -np.asarray(slopes, np.float32).reshape(self._n_kv, self._n_shared, 1, 1) * distance
        return bias


def _floats(store: Store) -> Floats:
    return store.astype(np.float32) if store.dtype == np.float16 else store  # type: ignore[return-value]


def _assembled(spans: Sequence[Span], pieces: Sequence[Floats | None], n_q: int) -> Floats:
    """Pieces put into one array over all positions of the sequence; unseen positions have probability 0."""
    first = spans[0].first
    whole = np.zeros((n_q, spans[-1].last - first, max(span.stop for span in spans)), np.float32)
    for span, piece in zip(spans, pieces, strict=True):
        if piece is not None:
            whole[:, span.first - first : span.last - first, span.start : span.stop] = piece
    return whole


def _table(blocks: Ints) -> npt.NDArray[np.intp]:
    return np.frombuffer(blocks, np.int32).astype(np.intp)


def _as_slice(flat: npt.NDArray[np.intp]) -> Where:
    """A slice when the indices count up by one: views instead of copies."""
    if len(flat) and (len(flat) == 1 or bool((np.diff(flat) == 1).all())):
        return slice(int(flat[0]), int(flat[-1]) + 1)
    return flat
