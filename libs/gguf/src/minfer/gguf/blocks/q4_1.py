"""Q4_1: 32 four-bit codes share a half-precision scale and a half-precision minimum."""

from __future__ import annotations

from typing import TYPE_CHECKING

from minfer.gguf.blocks.format import BlockFormat, Field
from minfer.gguf.blocks.packing import nibbles
from minfer.gguf.types import QuantType

if TYPE_CHECKING:
    from minfer.gguf.blocks.format import Blocks, Floats


def _decode(blocks: Blocks) -> Floats:
    import numpy as np

    codes = nibbles(blocks["codes"]).astype(np.float32)
    codes *= blocks["scale"].astype(np.float32)[:, None]
    codes += blocks["minimum"].astype(np.float32)[:, None]
    return codes


FORMAT = BlockFormat(
    QuantType.Q4_1, 32, (Field("scale", "f2"), Field("minimum", "f2"), Field("codes", "u1", 16)), _decode
)
