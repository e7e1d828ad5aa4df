"""Q2_K: 16 groups of 16 two-bit codes; four-bit scale and minimum each, over a scale of both."""

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
    scale = blocks["scale"].astype(np.float32)[:, None]
    minimum = blocks["minimum"].astype(np.float32)[:, None]
    packed = blocks["group_scales"]  # scale in the low half, minimum in the high half
    scales = scale * (packed & np.uint8(0x0F)).astype(np.float32)
    minima = minimum * (packed >> np.uint8(4)).astype(np.float32)
    codes = planes(blocks["codes"].reshape(n, 2, 32), 2).reshape(n, 16, 16).astype(np.float32)
    codes *= scales[:, :, None]
    codes -= minima[:, :, None]
    return codes.reshape(n, 256)


FORMAT = BlockFormat(
    QuantType.Q2_K,
    256,
    (
        Field("group_scales", "u1", 16),
        Field("codes", "u1", 64),
        Field("scale", "f2"),
        Field("minimum", "f2"),
    ),
    _decode,
)
