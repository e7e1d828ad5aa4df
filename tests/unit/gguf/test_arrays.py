"""Tensors as arrays."""

from __future__ import annotations

import io

import numpy as np
import pytest

import gguf_bytes as build
from minfer.gguf import FORMATS, GGUFFile, QuantType, arrays, open_bytes
from minfer.gguf.arrays import read_rows, read_tensor
from minfer.gguf.errors import TensorMissingError
from minfer.gguf.writer import StoredTensor, write_stream


def _file(*tensors: StoredTensor) -> GGUFFile:
    stream = io.BytesIO()
    write_stream(stream, {}, tensors)
    return open_bytes(stream.getvalue())


def test_a_whole_file() -> None:
    file = open_bytes(build.whole_file().build())
    a, b = read_tensor(file, "a"), read_tensor(file, "b")
    assert a.dtype == b.dtype == np.float32
    assert a.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert b.tolist() == [0.5 * code for code in range(-16, 16)]
    assert not a.flags.writeable
    with pytest.raises(TensorMissingError):
        read_tensor(file, "c")


def test_a_scalar_has_no_dimensions() -> None:
    file = _file(StoredTensor("s", (), QuantType.F16, np.float16(0.25).tobytes()))
    assert read_tensor(file, "s").shape == ()
    assert read_tensor(file, "s") == 0.25
    assert read_rows(file, "s", [0]).tolist() == [[0.25]]


@pytest.mark.parametrize("quant", FORMATS, ids=lambda quant: quant.name)
def test_large_tensors_decode_in_pieces(quant: QuantType, monkeypatch: pytest.MonkeyPatch) -> None:
    form = FORMATS[quant]
    data = np.random.default_rng(1).integers(0, 60, 14 * form.block_bytes, dtype=np.uint8).tobytes()
    file = _file(StoredTensor("t", (7, 2 * form.block_weights), quant, data))
    whole = form.decode(data).reshape(7, -1)
    monkeypatch.setattr(arrays, "_CHUNK_WEIGHTS", 3 * form.block_weights)
    np.testing.assert_array_equal(read_tensor(file, "t"), whole)


@pytest.mark.parametrize("quant", FORMATS, ids=lambda quant: quant.name)
def test_rows_are_read_alone(quant: QuantType) -> None:
    form = FORMATS[quant]
    data = np.random.default_rng(2).integers(0, 60, 10 * form.block_bytes, dtype=np.uint8).tobytes()
    file = _file(StoredTensor("t", (5, 2 * form.block_weights), quant, data))
    np.testing.assert_array_equal(read_rows(file, "t", [4, 0, 4]), read_tensor(file, "t")[[4, 0, 4]])
    assert read_rows(file, "t", []).shape == (0, 2 * form.block_weights)
    with pytest.raises(IndexError):
        read_rows(file, "t", [5])
