"""Weights as float32 matrices: decoded once and kept, or decoded panel by panel at each use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Protocol

import numpy as np

from minfer.engine.backends.numpy_backend.operations import Floats, Integers
from minfer.gguf.blocks import FORMATS

if TYPE_CHECKING:
    from minfer.engine.graph.ops import Weight
    from minfer.gguf import GGUFFile

_PANEL_WEIGHTS = 1 << 18  # weights decoded at a time: 1 MiB of float32 stays near the core


class Matrix(Protocol):
    """A matrix [n_out, n_in] that rows can be multiplied by."""

    n_bytes: int

    def product(self, x: Floats) -> Floats:
        """x · Wᵀ, a fresh array."""

    def rows(self, ids: Integers) -> Floats:
        """Rows of W by number."""


class ResidentMatrix:
    """All of it in memory, as float32."""

    def __init__(self, data: Floats) -> None:
        self.data = data
        self.n_bytes = data.nbytes
        self._transposed = data.T

    def product(self, x: Floats) -> Floats:
        """x · Wᵀ through BLAS."""
        y: Floats = np.matmul(x, self._transposed)
        return y

    def rows(self, ids: Integers) -> Floats:
        """Rows of W by number."""
        return self.data[ids]


class StoredMatrix:
    """Left as the file stores it; a few rows at a time become float32 while they are needed."""

    n_bytes = 0

    def __init__(self, file: GGUFFile, parts: Sequence[Weight]) -> None:
        """Keeps a view of the file's mapping, which outlives the file's own use of it."""
        self._parts = [Stored(file, part) for part in parts]
        self._n_out = sum(part.n_rows for part in parts)

    def product(self, x: Floats) -> Floats:
        """x · Wᵀ, one panel of W after another."""
        y = np.empty((len(x), self._n_out), np.float32)
        at = 0
        for part in self._parts:
            for panel in part.panels():
                np.matmul(x, panel.T, out=y[:, at : at + len(panel)])
                at += len(panel)
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
        self._n_rows = weight.n_rows * max(1, weight.n_experts)
        self._data = file.data(weight.name)[first : first + self._n_rows * self._row_bytes]

    def panels(self) -> Iterator[Floats]:
        """All rows as float32, a panel (rows, columns) at a time."""
        step = max(1, _PANEL_WEIGHTS // self._n_columns)
        for first in range(0, self._n_rows, step):
            last = min(first + step, self._n_rows)
            data = self._data[first * self._row_bytes : last * self._row_bytes]
            yield self._form.decode(data).reshape(-1, self._n_columns)

    def rows(self, ids: Integers) -> Floats:
        """Some rows as float32, by number."""
        stored = np.frombuffer(self._data, np.uint8).reshape(-1, self._row_bytes)
        return self._form.decode(stored[ids].tobytes()).reshape(-1, self._n_columns)


class WeightStore:
    """Hands out the matrices of a graph; equal requests share one.

    resident: decode everything into float32 when `load` is called. Otherwise only vectors are kept.
    """

    def __init__(self, file: GGUFFile, *, resident: bool) -> None:
        self.resident = resident
        self.n_bytes = 0
        self._file = file
        self._matrices: dict[tuple[Weight, ...], Matrix] = {}
        self._vectors: dict[Weight, Floats] = {}
        self._experts: dict[Weight, tuple[Matrix, ...]] = {}
        self._pending: list[tuple[Weight, Floats]] = []

    def vector(self, weight: Weight) -> Floats:
        """A stored vector, or one row for each expert [n_experts, n_columns], decoded at once."""
        if weight not in self._vectors:
            data = np.concatenate(list(Stored(self._file, weight).panels()))
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
        return self._matrices.get((weight,)) or StoredMatrix(self._file, (weight,))

    def load(self, n_threads: int) -> None:
        """Decode what was asked for, in parallel, and let go of the file's pages."""
        with ThreadPoolExecutor(n_threads) as pool:
            for _ in pool.map(self._fill, self._pending):
                pass
        for name in {weight.name for weight, _ in self._pending}:
            self._file.release(name)
        self._pending.clear()

    def clear(self) -> None:
        """Forget every matrix."""
        self._matrices.clear()
        self._vectors.clear()
        self._experts.clear()
        self.n_bytes = 0

    def _new(self, parts: tuple[Weight, ...]) -> Matrix:
        if not self.resident:
            return StoredMatrix(self._file, parts)
        data = np.empty((sum(part.n_rows for part in parts), parts[0].n_columns), np.float32)
        at = 0
        for part in parts:
            self._pending += _in_pieces(part, data[at : at + part.n_rows])
            at += part.n_rows
        self.n_bytes += data.nbytes
        return ResidentMatrix(data)

    def _fill(self, task: tuple[Weight, Floats]) -> None:
        weight, out = task
        at = 0
        for panel in Stored(self._file, weight).panels():
            out[at : at + len(panel)] = panel
            at += len(panel)


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


def _rows_of(weight: Weight, first_row: int, n_rows: int) -> Weight:
    return type(weight)(weight.name, n_rows, weight.n_columns, first_row)
