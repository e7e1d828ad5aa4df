"""Q6_K: 16 groups of 16 six-bit codes around 32, byte scales, one scale over all."""

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
    scales = blocks["scale"].astype(np.float32)[:, None] * blocks["group_scales"].astype(np.float32)
    codes = planes(blocks["low_bits"].reshape(n, 2, 64), 4).reshape(n, 2, 4, 32)
    codes |= planes(blocks["high_bits"].reshape(n, 2, 32), 2) << np.uint8(4)
    values = codes.reshape(n, 16, 16).astype(np.float32)
    values -= np.float32(32)
    values *= scales[:, :, None]
    return values.reshape(n, 256)


FORMAT = BlockFormat(
    QuantType.Q6_K,
    256,
    (
        Field("low_bits", "u1", 128),
        Field("high_bits", "u1", 64),
        Field("group_scales", "i1", 16),
        Field("scale", "f2"),
    ),
    _decode,
)
