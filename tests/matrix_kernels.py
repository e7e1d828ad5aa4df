"""The matrix kernels of csrc built alone, called through ctypes without an extension module."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from paths import ROOT

CSRC = ROOT / "libs/engine/csrc"
FLAGS = ("-std=c11", "-Wall", "-Wextra", "-Werror", "-ffp-contract=off", f"-I{CSRC}")

Floats = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]


def sources() -> list[str]:
    """The C files of the matrix kernels."""
    return [str(path) for path in sorted(CSRC.glob("matmul_*.c"))]


def compile_c(target: Path, arguments: Sequence[str], compiler: str = "cc") -> Path:
    """Compile the kernels and what `arguments` name into `target`; a failing build shows why."""
    command = [compiler, *FLAGS, *arguments, *sources(), "-lm", "-o", str(target)]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    return target


class _Weight(ctypes.Structure):
    _fields_ = (
        ("panels", ctypes.c_void_p),
        ("rows", ctypes.c_int64),
        ("k", ctypes.c_int64),
        ("panel_bytes", ctypes.c_int64),
        ("type", ctypes.c_int32),
        ("activation", ctypes.c_int32),
    )


class _Output(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("stride", ctypes.c_int64),
        ("bias", ctypes.c_void_p),
        ("accumulate", ctypes.c_int32),
    )


_I64 = ctypes.c_int64
_P = ctypes.c_void_p


class _Kernels(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("tile_columns", ctypes.c_int32),
        ("repack", ctypes.CFUNCTYPE(None, _P, _P, _P, _I64, _I64)),
        ("quantize", ctypes.CFUNCTYPE(None, ctypes.c_int, _I64, _P, _P)),
        ("matmul", ctypes.CFUNCTYPE(None, _P, _P, _I64, _I64, _I64, _I64, _P)),
        ("gather", ctypes.CFUNCTYPE(None, _P, _I64, _P)),
    )


def _aligned(n_bytes: int) -> Bytes:
    whole = np.zeros(n_bytes + 64, np.uint8)
    return whole[-whole.ctypes.data % 64 :][:n_bytes]


class Matrix:
    """A repacked weight matrix [rows, k]; owns its panels."""

    def __init__(self, library: Library, quant: int, source: Bytes, shape: tuple[int, int]) -> None:
        rows, k = shape
        self.library, self.shape = library, shape
        self.panels = _aligned(library.c.mf_weight_bytes(quant, rows, k))
        self.weight = _Weight()
        address = ctypes.byref(self.weight)
        assert library.c.mf_weight_init(address, quant, _I64(rows), _I64(k), _P(self.panels.ctypes.data)) == 0
        self.panel_count = (rows + 7) // 8
        library.kernels.repack(address, source.ctypes.data, None, 0, self.panel_count)

    def quantize(self, x: Floats) -> Bytes:
        """Columns of activations, uint8 [n, bytes], of float rows [n, k]."""
        kind, k = self.weight.activation, self.shape[1]
        stride = self.library.c.mf_activation_bytes(kind, _I64(k))
        columns = _aligned(len(x) * stride).reshape(len(x), stride)
        for row, column in zip(np.ascontiguousarray(x), columns, strict=True):
            self.library.kernels.quantize(kind, k, row.ctypes.data, column.ctypes.data)
        return columns

    def times(self, columns: Bytes) -> Floats:
        """Results [n, rows] for quantized columns."""
        result = np.zeros((len(columns), self.shape[0]), np.float32)
        out = _Output(result.ctypes.data, self.shape[0], None, 0)
        address = ctypes.addressof(out)
        self.library.kernels.matmul(
            ctypes.addressof(self.weight), columns.ctypes.data, 0, self.panel_count, 0, len(columns), address
        )
        return result

    def row(self, index: int) -> Floats:
        """One row as floats [k]."""
        x = np.empty(self.shape[1], np.float32)
        self.library.kernels.gather(ctypes.addressof(self.weight), index, x.ctypes.data)
        return x


class Library:
    """The shared library with one instruction set selected."""

    def __init__(self, path: Path, name: str) -> None:
        self.c: Any = ctypes.CDLL(str(path))
        self.c.mf_weight_bytes.restype = self.c.mf_activation_bytes.restype = _I64
        self.c.mf_weight_bytes.argtypes = (ctypes.c_int, _I64, _I64)
        self.c.mf_kernels_named.restype = ctypes.POINTER(_Kernels)
        table = self.c.mf_kernels_named(name.encode())
        self.available = bool(table)
        self.kernels: Any = table.contents if self.available else None

    def matrix(self, quant: int, source: Bytes, shape: tuple[int, int]) -> Matrix:
        """Repack GGUF rows, uint8, of `shape` [rows, k]."""
        return Matrix(self, quant, source, shape)
