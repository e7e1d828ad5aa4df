"""Q3_K: 16 groups of 16 three-bit codes around 4, six-bit scales around 32, one scale over all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from minfer.gguf.blocks.format import BlockFormat, Field
from minfer.gguf.blocks.packing import planes
from minfer.gguf.types import QuantType

if TYPE_CHECKING:
    from minfer.gguf.blocks.format import Blocks, Floats


def _decode(blocks: Blocks) -> Floats:
    import numpy as np

    n = len(blocks)
    packed = blocks["group_scales"]
    low = planes(packed[:, :8], 4).reshape(n, 16)  # low four bits: bytes 0..7
    high = planes(packed[:, 8:], 2).reshape(n, 16)  # upper two bits: bytes 8..11
    scales = (low | high << np.uint8(4)).astype(np.float32) - np.float32(32)
    scales *= blocks["scale"].astype(np.float32)[:, None]
    third = planes(blocks["high_bits"], 1).reshape(n, 16, 16)
    codes = planes(blocks["codes"].reshape(n, 2, 32), 2).reshape(n, 16, 16)
    values = (codes | third << np.uint8(2)).astype(np.float32) - np.float32(4)
    values *= scales[:, :, None]
    return values.reshape(n, 256)


FORMAT = BlockFormat(
    QuantType.Q3_K,
    256,
    (
        Field("high_bits", "u1", 32),
        Field("codes", "u1", 64),
        Field("group_scales", "u1", 12),
        Field("scale", "f2"),
    ),
    _decode,
)
