"""Weights as float32 matrices: decoded once and kept, or decoded panel by panel at each use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from minfer.engine.backends.numpy_backend.operations import Floats, Integers
from minfer.engine.backends.numpy_backend.workers import Workers
from minfer.gguf.blocks import FORMATS

if TYPE_CHECKING:
    from minfer.engine.graph.ops import Weight
    from minfer.gguf import GGUFFile

_PANEL_WEIGHTS = 1 << 18  # weights decoded at a time: 1 MiB of float32 stays near the core

_PIECE_WEIGHTS = 1 << 17  # of a product that threads share: half a MiB, some 40 µs for one row
_MOST_PIECES = 32
_WORTH_SHARING = 1 << 20  # multiplications; a smaller product is done before a thread has woken


class Matrix(Protocol):
    """A matrix [n_out, n_in] that rows can be multiplied by."""

    n_bytes: int

    def product(self, x: Floats) -> Floats:
        """x · Wᵀ, a fresh array."""

    def rows(self, ids: Integers) -> Floats:
        """Rows of W by number."""


class ResidentMatrix:
    """All of it in memory, as float32."""

    def __init__(self, data: Floats, workers: Workers) -> None:
        self.data = data
        self.n_bytes = data.nbytes
        self._workers = workers
        n_pieces = max(1, min(_MOST_PIECES, data.size // _PIECE_WEIGHTS))
        self._spans = _spans(len(data), -(-len(data) // n_pieces))

    def product(self, x: Floats) -> Floats:
        """x · Wᵀ through BLAS, in pieces of W when that is worth waking threads for."""
        if len(x) * self.data.size < _WORTH_SHARING:
            return np.asarray(np.matmul(x, self.data.T))
        y = np.empty((len(x), len(self.data)), np.float32)

        def fill(piece: int) -> None:
            span = self._spans[piece]
            np.matmul(x, self.data[span].T, out=y[:, span])

        self._workers.run(fill, len(self._spans))
        return y

    def rows(self, ids: Integers) -> Floats:
        """Rows of W by number."""
        return self.data[ids]


class StoredMatrix:
    """Left as the file stores it; panels of rows become float32 while they are needed."""

    n_bytes = 0

    def __init__(self, file: GGUFFile, parts: Sequence[Weight], workers: Workers) -> None:
        """Keeps a view of the file's mapping, which outlives the file's own use of it."""
        self._parts = [Stored(file, part) for part in parts]
        self._workers = workers

    def product(self, x: Floats) -> Floats:
        """x · Wᵀ; each thread decodes a panel of W and multiplies by it."""
        y = np.empty((len(x), sum(part.n_rows for part in self._parts)), np.float32)
        first = 0
        panels: list[tuple[Stored, slice, slice]] = []
        for part in self._parts:
            panels += [(part, span, slice(first + span.start, first + span.stop)) for span in part.spans]
            first += part.n_rows

        def fill(piece: int) -> None:
            part, rows, columns = panels[piece]
            np.matmul(x, part.decoded(rows).T, out=y[:, columns])

        self._workers.run(fill, len(panels))
        return y

    def rows(self, ids: Integers) -> Floats:
        """Rows of W by number; each row is decoded by itself."""
        (part,) = self._parts
        return part.rows(ids)


class Stored:
    """Rows of a stored tensor, ready to be decoded."""

    def __init__(self, file: GGUFFile, weight: Weight) -> None:
        self._form = FORMATS[file.tensors[weight.name].quant]
        self._n_columns = weight.n_columns
        self._row_bytes = self._form.n_bytes(weight.n_columns)
        first = weight.first_row * self._row_bytes
        self.n_rows = weight.n_rows * max(1, weight.n_experts)
        self._data = file.data(weight.name)[first : first + self.n_rows * self._row_bytes]
        self.spans = _spans(self.n_rows, max(1, _PANEL_WEIGHTS // self._n_columns))

    def decoded(self, rows: slice) -> Floats:
        """Neighbouring rows as float32 (rows, columns)."""
        data = self._data[rows.start * self._row_bytes : rows.stop * self._row_bytes]
        return self._form.decode(data).reshape(-1, self._n_columns)

    def rows(self, ids: Integers) -> Floats:
        """Some rows as float32, by number."""
        stored = np.frombuffer(self._data, np.uint8).reshape(-1, self._row_bytes)
        return self._form.decode(stored[ids].tobytes()).reshape(-1, self._n_columns)


class WeightStore:
    """Hands out the matrices of a graph; equal requests share one.

    resident: decode everything into float32 when `load` is called. Otherwise only vectors are kept.
    n_threads decode together.
    """

    def __init__(self, file: GGUFFile, *, resident: bool, n_threads: int) -> None:
        self.resident = resident
        self.n_bytes = 0
        self.workers = Workers(n_threads)
        self._file = file
        self._matrices: dict[tuple[Weight, ...], Matrix] = {}
        self._vectors: dict[Weight, Floats] = {}
        self._experts: dict[Weight, tuple[Matrix, ...]] = {}
        self._pending: list[tuple[Weight, Floats]] = []

    def vector(self, weight: Weight) -> Floats:
        """A stored vector, or one row for each expert [n_experts, n_columns], decoded at once."""
        if weight not in self._vectors:
            stored = Stored(self._file, weight)
            data = np.array(stored.decoded(slice(0, stored.n_rows)))
            self._vectors[weight] = data if weight.n_experts else data[0]
            self.n_bytes += data.nbytes
        return self._vectors[weight]

    def matrix(self, *parts: Weight) -> Matrix:
        """One matrix of the rows of all parts; its numbers are there after `load`."""
        if parts not in self._matrices:
            self._matrices[parts] = self._new(parts)
        return self._matrices[parts]

    def experts(self, weight: Weight) -> tuple[Matrix, ...]:
        """The matrices of a weight with experts."""
        if weight not in self._experts:
            self._experts[weight] = tuple(self._new((part,)) for part in expert_parts(weight))
        return self._experts[weight]

    def table(self, weight: Weight) -> Matrix:
        """An embedding table: the matrix if the head needs it too, else rows decoded when looked up."""
        return self._matrices.get((weight,)) or StoredMatrix(self._file, (weight,), self.workers)

    def load(self) -> None:
        """Decode what was asked for, in parallel, and let go of the file's pages."""
        self.workers.run(lambda piece: self._fill(*self._pending[piece]), len(self._pending))
        for name in {weight.name for weight, _ in self._pending}:
            self._file.release(name)
        self._pending.clear()

    def clear(self) -> None:
        """Forget every matrix and end the threads."""
        self.workers.close()
        self._matrices.clear()
        self._vectors.clear()
        self._experts.clear()
        self.n_bytes = 0

    def _new(self, parts: tuple[Weight, ...]) -> Matrix:
        if not self.resident:
            return StoredMatrix(self._file, parts, self.workers)
        data = np.empty((sum(part.n_rows for part in parts), parts[0].n_columns), np.float32)
        at = 0
        for part in parts:
            self._pending += _in_pieces(part, data[at : at + part.n_rows])
            at += part.n_rows
        self.n_bytes += data.nbytes
        return ResidentMatrix(data, self.workers)

    def _fill(self, weight: Weight, out: Floats) -> None:
        stored = Stored(self._file, weight)
        for span in stored.spans:
            out[span] = stored.decoded(span)


def expert_parts(weight: Weight) -> Iterator[Weight]:
    """Each expert's matrix as a slice of the stored tensor."""
    for expert in range(weight.n_experts):
        yield _rows_of(weight, weight.first_row + expert * weight.n_rows, weight.n_rows)


def _in_pieces(part: Weight, out: Floats) -> list[tuple[Weight, Floats]]:
    """A large matrix as several tasks, so that threads share it evenly."""
    step = max(1, 16 * _PANEL_WEIGHTS // part.n_columns)
    return [
        (_rows_of(part, part.first_row + at, min(step, part.n_rows - at)), out[at : at + step])
        for at in range(0, part.n_rows, step)
    ]


def _spans(n: int, step: int) -> tuple[slice, ...]:
    return tuple(slice(first, min(first + step, n)) for first in range(0, n, step))


def _rows_of(weight: Weight, first_row: int, n_rows: int) -> Weight:
    return type(weight)(weight.name, n_rows, weight.n_columns, first_row)
