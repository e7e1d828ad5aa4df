"""Whole files against the `gguf` package: what it reads, what it writes."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from pathlib import Path

import gguf
import numpy as np
import pytest

from minfer.gguf import ValueType, open_gguf
from minfer.gguf.arrays import read_tensor
from minfer.gguf.encode import Encoded, Plain, encode_array, encode_scalar
from minfer.gguf.types import QuantType
from minfer.gguf.writer import StoredTensor, write_gguf
from paths import shared

pytestmark = pytest.mark.parity

_FILES = [
    *(f"architectures/{name}.gguf" for name in ("llama-dense", "llama-moe", "qwen2-dense", "gemma3-dense")),
    *(f"vocab/ggml-vocab-{name}.gguf" for name in ("llama-spm", "bert-bge")),
]


def _plain(value: object) -> object:
    """Arrays as lists, as the package gives them."""
    return list(value) if isinstance(value, Sequence | array) and not isinstance(value, str) else value


@pytest.mark.parametrize("name", _FILES)
def test_metadata_and_tensors_are_what_the_package_reads(name: str) -> None:
    path = shared(f"data/{name}")
    reader = gguf.GGUFReader(path)
    expected = {key: field.contents() for key, field in reader.fields.items() if key[:5] != "GGUF."}
    with open_gguf(path) as file:
        assert {key: _plain(value) for key, value in file.metadata.items()} == expected
        assert [
            (info.name, info.shape[::-1], int(info.quant), info.n_bytes, info.offset)
            for info in file.tensors.values()
        ] == [
            (tensor.name, tuple(tensor.shape), tensor.tensor_type, tensor.n_bytes, tensor.data_offset)
            for tensor in reader.tensors
        ]
        for tensor in reader.tensors:
            np.testing.assert_array_equal(read_tensor(file, tensor.name), tensor.data)


def _oracle_file(path: Path) -> None:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint32("llama.block_count", 2)
    writer.add_uint16("short", 3)
    writer.add_int8("byte", -3)
    writer.add_uint64("large", 1 << 40)
    writer.add_float32("number", 0.5)
    writer.add_float64("double", 0.1)
    writer.add_bool("truth", True)
    writer.add_string("text", "naïve")
    writer.add_array("tokens", ["a", "", "é"])
    writer.add_array("types", [1, -1])
    writer.add_array("scores", [0.5, -1.0])
    writer.add_tensor("a", np.arange(6, dtype=np.float32).reshape(2, 3))
    writer.add_tensor("b", np.arange(5, dtype=np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_written_files_are_the_packages_byte_for_byte(tmp_path: Path) -> None:
    _oracle_file(tmp_path / "oracle.gguf")
    pairs: dict[str, Plain | Encoded] = {
        "general.architecture": "llama",
        "llama.block_count": 2,
        "short": encode_scalar(3, ValueType.UINT16),
        "byte": encode_scalar(-3, ValueType.INT8),
        "large": 1 << 40,
        "number": 0.5,
        "double": encode_scalar(0.1, ValueType.FLOAT64),
        "truth": True,
        "text": "naïve",
        "tokens": ["a", "", "é"],
        "types": encode_array([1, -1], ValueType.INT32),
        "scores": [0.5, -1.0],
    }
    tensors = [
        StoredTensor("a", (2, 3), QuantType.F32, np.arange(6, dtype=np.float32).tobytes()),
        StoredTensor("b", (5,), QuantType.F16, np.arange(5, dtype=np.float16).tobytes()),
    ]
    write_gguf(tmp_path / "ours.gguf", pairs, tensors)
    assert (tmp_path / "ours.gguf").read_bytes() == (tmp_path / "oracle.gguf").read_bytes()
