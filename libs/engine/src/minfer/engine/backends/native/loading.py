"""Weights from the file into the arena: repacked in parallel, source pages let go of."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

from minfer.engine.backends.native import _native
from minfer.engine.backends.native.errors import ProgramMemoryError

if TYPE_CHECKING:
    from minfer.engine.backends.native.weights import Matrix, Vector, WeightPlan
    from minfer.gguf import GGUFFile

REPACK_CACHE: Final = "MINFER_REPACK_CACHE"
"""The variable that names a folder for files of repacked weights; without it there are none."""

_F32, _F16 = 0, 1


def load(program: _native.Program, plan: WeightPlan, file: GGUFFile, isa: str) -> tuple[str, ...]:
    """Fill the program's arena. Notices about tensors that had to change their type, and about the file
    that keeps repacked weights when there shall be one.
    """
    if program.reserve(plan.n_bytes, len(plan.matrices), len(plan.vectors)) != _native.OK:
        raise ProgramMemoryError(
            f"no memory for {plan.n_bytes} bytes of weights", hint="use a model with fewer bits"
        )
    changed = Counter((one.stored, one.quant) for one in plan.matrices if one.stored != one.quant)
    notices = tuple(_notice(stored, kept, n) for (stored, kept), n in changed.items())
    if not os.environ.get(REPACK_CACHE):
        _repack(program, plan, file)
        return notices
    return notices + _load_kept(program, plan, file, isa)


def _load_kept(program: _native.Program, plan: WeightPlan, file: GGUFFile, isa: str) -> tuple[str, ...]:
    """Map the file of repacked weights, or repack and leave one; what to say about it."""
    from minfer.engine.backends.native.repacked import repacked_file

    kept = repacked_file(Path(os.environ[REPACK_CACHE]), plan, file, isa)
    if kept is None:
        _repack(program, plan, file)
        return ()
    is_mapped, why_not = kept.map_into(program)
    if not is_mapped:
        _repack(program, plan, file)
        return (*filter(None, [why_not]), kept.save(program))
    for index, matrix in enumerate(plan.matrices):
        _place_matrix(program, index, matrix)
    for index, vector in enumerate(plan.vectors):
        _done(program.vector(index, _F32, vector.n, None, vector.offset, 0), vector.name)
    return ()


def _repack(program: _native.Program, plan: WeightPlan, file: GGUFFile) -> None:
    # In the order of the file: it is read forwards, once.
    for index in sorted(range(len(plan.matrices)), key=lambda i: _position(plan.matrices[i], file)):
        _load_matrix(program, index, plan.matrices[index], file)
    for index, vector in enumerate(plan.vectors):
        _load_vector(program, index, vector, file)


def _notice(stored: int, kept: int, n: int) -> str:
    from minfer.gguf import QuantType

    return (
        f"{n} matrices of type {QuantType(stored).name} have no native kernel and are kept as "
        f"{QuantType(kept).name}"
    )


def _position(matrix: Matrix, file: GGUFFile) -> tuple[int, int, int]:
    info = file.tensors[matrix.name]
    return info.part, info.offset, matrix.first_row


def _place_matrix(program: _native.Program, index: int, matrix: Matrix) -> None:
    _done(program.matrix(index, matrix.quant, matrix.n_rows, matrix.n_columns, matrix.offset), matrix.name)


def _load_matrix(program: _native.Program, index: int, matrix: Matrix, file: GGUFFile) -> None:
    _place_matrix(program, index, matrix)
    rows, row_bytes = _rows(file, matrix.name, matrix.stored, matrix.n_columns)
    source = rows[matrix.first_row * row_bytes : (matrix.first_row + matrix.n_rows) * row_bytes]
    is_kept = matrix.stored == matrix.quant
    data = source if is_kept else _converted(source, matrix)
    # Pages that no file stands behind would come back as zeros.
    may_drop = is_kept and file.is_mapped(matrix.name)
    _done(program.load_matrix(index, data, len(data), may_drop), matrix.name)


def _load_vector(program: _native.Program, index: int, vector: Vector, file: GGUFFile) -> None:
    if vector.numbers:
        data, quant = memoryview(vector.numbers), _F32
    else:
        rows, row_bytes = _rows(file, vector.name, vector.quant, vector.n)
        data, quant = rows[vector.first_row * row_bytes : (vector.first_row + 1) * row_bytes], vector.quant
        if _native.weight_bytes(quant, 1, vector.n) <= 0:
            data, quant = memoryview(_decoded(data, quant)), _F32
    _done(program.vector(index, quant, vector.n, data, vector.offset, len(data)), vector.name)


def _rows(file: GGUFFile, name: str, quant: int, n_columns: int) -> tuple[memoryview, int]:
    """A tensor's bytes and the bytes of a row of n_columns."""
    from minfer.gguf import FORMATS, QuantType

    form = FORMATS[QuantType(quant)]
    return file.data(name), form.n_bytes(n_columns)


def _decoded(data: memoryview, quant: int) -> bytes:
    from minfer.gguf import FORMATS, QuantType

    return FORMATS[QuantType(quant)].decode(data).tobytes()


def _converted(source: memoryview, matrix: Matrix) -> bytes:
    """Stored blocks decoded, then rounded to what the matrix is kept as. numpy is imported here."""
    import numpy as np

    values = np.frombuffer(_decoded(source, matrix.stored), np.float32)
    if matrix.quant == _F16:
        return values.astype(np.float16).tobytes()
    blocks = values.reshape(-1, 32)
    scales = (np.abs(blocks).max(axis=1) / np.float32(127)).astype(np.float16)
    steps = scales.astype(np.float32)
    steps[steps == 0] = 1
    out = np.zeros(len(blocks), np.dtype([("d", "<f2"), ("q", "i1", 32)]))
    out["d"] = scales
    out["q"] = np.clip(np.rint(blocks / steps[:, None]), -127, 127)
    return out.tobytes()


def _done(status: int, name: str) -> None:
    if status == _native.NO_MEMORY:
        raise ProgramMemoryError(f"no memory while loading {name!r}")
    if status != _native.OK:
        raise AssertionError(f"the plan of {name!r} contradicts the kernels' sizes")
