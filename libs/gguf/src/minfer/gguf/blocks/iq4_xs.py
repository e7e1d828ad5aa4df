"""IQ4_XS: 8 groups of 32 codes into IQ4_NL's levels, six-bit scales around 32, one scale over all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from minfer.gguf.blocks.format import BlockFormat, Field
from minfer.gguf.blocks.iq4_nl import LEVELS
from minfer.gguf.blocks.packing import planes
from minfer.gguf.types import QuantType

if TYPE_CHECKING:
    from minfer.gguf.blocks.format import Blocks, Floats


def _decode(blocks: Blocks) -> Floats:
    import numpy as np

    n = len(blocks)
    low = blocks["scales_low"][:, :, None] >> np.array([0, 4], np.uint8) & np.uint8(0x0F)
    high = blocks["scales_high"][:, None] >> np.arange(0, 16, 2, dtype=np.uint16) & np.uint16(3)
    scales = (low.reshape(n, 8) | high.astype(np.uint8) << np.uint8(4)).astype(np.float32) - np.float32(32)
    scales *= blocks["scale"].astype(np.float32)[:, None]
    codes = planes(blocks["codes"].reshape(n, 8, 16), 4).reshape(n, 8, 32)
    values = np.array(LEVELS, dtype=np.float32)[codes]
    values *= scales[:, :, None]
    return values.reshape(n, 256)


FORMAT = BlockFormat(
    QuantType.IQ4_XS,
    256,
    (
        Field("scale", "f2"),
        Field("scales_high", "u2"),
        Field("scales_low", "u1", 4),
        Field("codes", "u1", 128),
    ),
    _decode,
)
