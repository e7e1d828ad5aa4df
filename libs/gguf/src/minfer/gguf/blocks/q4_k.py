"""Q4_K: 8 groups of 32 four-bit codes; six-bit scale and minimum each, over a scale of both."""

from __future__ import annotations

from typing import TYPE_CHECKING

from minfer.gguf.blocks.format import BlockFormat, Field
from minfer.gguf.blocks.packing import planes, six_bit_pairs
from minfer.gguf.types import QuantType

if TYPE_CHECKING:
    from minfer.gguf.blocks.format import Blocks, Floats


def _decode(blocks: Blocks) -> Floats:
    import numpy as np

    n = len(blocks)
    scales, minima = six_bit_pairs(blocks["group_scales"])
    scale = blocks["scale"].astype(np.float32)[:, None] * scales.astype(np.float32)
    minimum = blocks["minimum"].astype(np.float32)[:, None] * minima.astype(np.float32)
    codes = planes(blocks["codes"].reshape(n, 4, 32), 4).reshape(n, 8, 32).astype(np.float32)
    codes *= scale[:, :, None]
    codes -= minimum[:, :, None]
    return codes.reshape(n, 256)


FORMAT = BlockFormat(
    QuantType.Q4_K,
    256,
    (
        Field("scale", "f2"),
        Field("minimum", "f2"),
        Field("group_scales", "u1", 12),
        Field("codes", "u1", 128),
    ),
    _decode,
)
