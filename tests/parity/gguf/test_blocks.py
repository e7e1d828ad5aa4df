"""Decoding against the `gguf` package, bit for bit, on blocks of every kind of bytes."""

from __future__ import annotations

import gguf
import numpy as np
import numpy.typing as npt
import pytest

from minfer.gguf import FORMATS, BlockFormat, QuantType
from minfer.gguf.types import UNDECODED
from minfer.gguf.types import QuantType as Quant

pytestmark = pytest.mark.parity

_N_BLOCKS = 200
_WITHOUT_ORACLE = {Quant.Q8_K}  # the package cannot decode it
_EXTREMES = {
    2: (0x7C00, 0xFC00, 0x7E01, 0xFE00, 0x7D23, 0x0001, 0x8001, 0x7BFF, 0x8000, 0x0000),
    4: (0x7F800000, 0xFF800000, 0x7FC00001, 0xFFC00000, 0x00000001, 0x7F7FFFFF, 0x80000000, 0),
}


def _random_blocks(form: BlockFormat, seed: int) -> npt.NDArray[np.uint8]:
    """(n, block_bytes): random bytes; most scales then are huge or tiny, some NaN."""
    random = np.random.default_rng(seed)
    return random.integers(0, 256, (_N_BLOCKS, form.block_bytes), dtype=np.uint8)


def _extreme_blocks(form: BlockFormat) -> npt.NDArray[np.uint8]:
    """Random codes under every pair of extreme scales; all-zero and all-one codes too."""
    raw = _random_blocks(form, 7)
    raw[::3] = 0
    raw[1::3] = 255
    blocks = raw.reshape(-1).view(form.dtype)
    floats = [field for field in form.layout if field.code[0] == "f" and not field.count]
    for i in range(len(blocks)):
        for field in floats:
            size = form.dtype[field.name].itemsize
            choices = _EXTREMES[size]
            pick = i if field is floats[0] else i // len(choices)
            bits = np.array(choices[pick % len(choices)], f"<u{size}")
            blocks[field.name][i] = bits.view(f"<{field.code}")
    return raw


def _bits(values: npt.NDArray[np.float32]) -> npt.NDArray[np.uint32]:
    return np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)


@pytest.mark.parametrize("quant", sorted(set(FORMATS) - _WITHOUT_ORACLE), ids=lambda q: q.name)
@pytest.mark.parametrize("kind", ["random", "extreme"])
def test_decoding_is_bit_equal_to_the_gguf_package(quant: QuantType, kind: str) -> None:
    form = FORMATS[quant]
    raw = _random_blocks(form, 3) if kind == "random" else _extreme_blocks(form)
    with np.errstate(all="ignore"):
        expected = gguf.quants.dequantize(raw, gguf.GGMLQuantizationType(int(quant)))
    decoded = form.decode(raw.tobytes())
    assert decoded.shape == (_N_BLOCKS, form.block_weights)
    np.testing.assert_array_equal(_bits(decoded), _bits(expected).reshape(decoded.shape))


def test_every_type_id_is_the_packages() -> None:
    ids = {kind.name: int(kind) for kind in gguf.GGMLQuantizationType}
    assert {kind.name: int(kind) for kind in QuantType}.items() <= ids.items()


@pytest.mark.parametrize("quant", sorted(FORMATS), ids=lambda q: q.name)
def test_sizes_are_the_packages(quant: QuantType) -> None:
    weights, n_bytes = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType(int(quant))]
    assert (FORMATS[quant].block_weights, FORMATS[quant].block_bytes) == (weights, n_bytes)


@pytest.mark.parametrize("quant", sorted(UNDECODED), ids=lambda q: q.name)
def test_sizes_of_types_that_are_only_listed_are_the_packages(quant: QuantType) -> None:
    assert UNDECODED[quant] == gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType(int(quant))]


def test_every_type_of_the_package_is_known_but_one() -> None:
    """Q8_1 is a type of computations; files hold none, and the package counts other bytes than C does."""
    known = {kind.name for kind in (*FORMATS, *UNDECODED)}
    assert {kind.name for kind in gguf.GGMLQuantizationType} - known == {"Q8_1"}
