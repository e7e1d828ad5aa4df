"""Tensors as numpy arrays. The only way into numpy besides decoding a block."""

from __future__ import annotations

from math import prod

import numpy as np
import numpy.typing as npt

from minfer.gguf.blocks import FORMATS
from minfer.gguf.file import GGUFFile
from minfer.gguf.types import QuantType

_CHUNK_WEIGHTS = 1 << 20  # bounds the temporaries of decoding


def read_tensor(file: GGUFFile, name: str) -> npt.NDArray[np.float32]:
    """Tensor `name` decoded: float32 of its shape. F32 tensors are read-only views of the file.

    Raises TensorMissingError.
    """
    info = file.tensor(name)
    return decode(file.data(name), info.quant, info.shape)


def read_rows(file: GGUFFile, name: str, rows: npt.ArrayLike) -> npt.NDArray[np.float32]:
    """The rows (along the last dimension) of tensor `name` that `rows` (n,) numbers: float32 (n, columns).

    Decodes nothing else. Raises TensorMissingError; IndexError for a row that is not there.
    """
    info = file.tensor(name)
    columns = info.shape[-1] if info.shape else 1
    form = FORMATS[info.quant]
    stored = np.frombuffer(file.data(name), dtype=np.uint8).reshape(-1, form.n_bytes(columns))
    picked = stored[np.asarray(rows, dtype=np.intp)]
    return form.decode(picked.data).reshape(-1, columns)


def decode(data: memoryview, quant: QuantType, shape: tuple[int, ...]) -> npt.NDArray[np.float32]:
    """Stored bytes of a tensor of `shape` decoded to float32; F32 is a view of `data`."""
    form = FORMATS[quant]
    if quant is QuantType.F32:
        return form.decode(data).reshape(shape)
    step = _CHUNK_WEIGHTS // form.block_weights
    n_blocks = prod(shape) // form.block_weights
    out = np.empty((n_blocks, form.block_weights), np.float32)
    for first in range(0, n_blocks, step):
        last = min(first + step, n_blocks)
        out[first:last] = form.decode(data[first * form.block_bytes : last * form.block_bytes])
    return out.reshape(shape)
