"""Q4_0: 32 four-bit codes around 8 share one half-precision scale."""

from __future__ import annotations

from typing import TYPE_CHECKING

from minfer.gguf.blocks.format import BlockFormat, Field
from minfer.gguf.blocks.packing import nibbles
from minfer.gguf.types import QuantType

if TYPE_CHECKING:
    from minfer.gguf.blocks.format import Blocks, Floats


def _decode(blocks: Blocks) -> Floats:
    import numpy as np

    scale = blocks["scale"].astype(np.float32)[:, None]
    codes = nibbles(blocks["codes"]).astype(np.float32)
    codes -= np.float32(8)
    codes *= scale
    return codes


FORMAT = BlockFormat(QuantType.Q4_0, 32, (Field("scale", "f2"), Field("codes", "u1", 16)), _decode)
