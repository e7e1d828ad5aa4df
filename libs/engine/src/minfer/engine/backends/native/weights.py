"""Which weights a graph needs, in which stored type, and where each lies in the arena."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from minfer.engine.backends.native import _native

if TYPE_CHECKING:
    from minfer.engine.graph.ops import Weight
    from minfer.gguf import GGUFFile

ALIGNMENT = 64
_F16, _Q8_0 = 1, 8


@dataclass(frozen=True, slots=True)
class Matrix:
    """Rows of a stored tensor as panels of `quant` at `offset`; stored: the file's own type."""

    name: str
    first_row: int
    n_rows: int
    n_columns: int
    stored: int
    quant: int
    offset: int


@dataclass(frozen=True, slots=True)
class Vector:
    """Float32 numbers at `offset`, out of rows of a tensor or given outright."""

    name: str
    first_row: int
    n: int
    quant: int
    offset: int
    numbers: bytes = b""


@dataclass(slots=True)
class WeightPlan:
    """Hands out numbers of matrices and vectors; equal requests share one. Nothing is read here."""

    file: GGUFFile
    matrices: list[Matrix] = field(default_factory=list)
    vectors: list[Vector] = field(default_factory=list)
    n_bytes: int = 0
    _matrix_index: dict[tuple[str, int, int], int] = field(default_factory=dict)
    _vector_index: dict[tuple[str, int, int], int] = field(default_factory=dict)

    def matrix(self, weight: Weight) -> int:
        """The matrix of a weight without experts."""
        return self._matrix(weight, weight.first_row)

    def experts(self, weight: Weight) -> int:
        """The first of n_experts matrices that follow one another."""
        starts = range(weight.first_row, weight.first_row + weight.n_experts * weight.n_rows, weight.n_rows)
        return min([self._matrix(weight, start) for start in starts])

    def activation(self, matrix: int) -> int:
        """The kind of activation a matrix multiplies."""
        return _native.activation_of(self.matrices[matrix].quant)

    def vector(self, weight: Weight) -> int:
        """A stored vector; with experts, one row for each, in order."""
        n = weight.n_columns * max(1, weight.n_experts)
        key = (weight.name, weight.first_row, n)
        if key not in self._vector_index:
            quant = int(self.file.tensors[weight.name].quant)
            self._vector_index[key] = self._add_vector(Vector(weight.name, weight.first_row, n, quant, 0))
        return self._vector_index[key]

    def numbers(self, data: bytes) -> int:
        """A vector of float32 that no file holds."""
        return self._add_vector(Vector("", 0, len(data) // 4, 0, 0, data))

    def _add_vector(self, vector: Vector) -> int:
        offset = self._reserve(4 * vector.n)
        self.vectors.append(
            Vector(vector.name, vector.first_row, vector.n, vector.quant, offset, vector.numbers)
        )
        return len(self.vectors) - 1

    def _matrix(self, weight: Weight, first_row: int) -> int:
        key = (weight.name, first_row, weight.n_rows)
        if key not in self._matrix_index:
            stored = int(self.file.tensors[weight.name].quant)
            quant = kept_type(stored, weight.n_columns)
            offset = self._reserve(_native.weight_bytes(quant, weight.n_rows, weight.n_columns))
            self.matrices.append(
                Matrix(weight.name, first_row, weight.n_rows, weight.n_columns, stored, quant, offset)
            )
            self._matrix_index[key] = len(self.matrices) - 1
        return self._matrix_index[key]

    def _reserve(self, n_bytes: int) -> int:
        offset = self.n_bytes
        self.n_bytes += -(-n_bytes // ALIGNMENT) * ALIGNMENT
        return offset


def kept_type(stored: int, n_columns: int) -> int:
    """The type a tensor is kept in: its own where there are kernels, else one that holds it well.

    Types without kernels have at most 6 bits; 8 bits with a scale for 32 lose less than activations do.
    """
    if _native.weight_bytes(stored, 8, n_columns) > 0:
        return stored
    return _Q8_0 if n_columns % 32 == 0 else _F16
