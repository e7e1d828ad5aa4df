"""Q5_0: 32 five-bit codes around 16 share one half-precision scale; the fifth bits stand apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

from minfer.gguf.blocks.format import BlockFormat, Field
from minfer.gguf.blocks.packing import fifth_bits, nibbles
from minfer.gguf.types import QuantType

if TYPE_CHECKING:
    from minfer.gguf.blocks.format import Blocks, Floats


def _decode(blocks: Blocks) -> Floats:
    import numpy as np

    codes = (nibbles(blocks["codes"]) | fifth_bits(blocks["high_bits"])).astype(np.float32)
    codes -= np.float32(16)
    codes *= blocks["scale"].astype(np.float32)[:, None]
    return codes


FORMAT = BlockFormat(
    QuantType.Q5_0, 32, (Field("scale", "f2"), Field("high_bits", "u4"), Field("codes", "u1", 16)), _decode
)
