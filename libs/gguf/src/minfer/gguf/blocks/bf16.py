"""BF16: the upper half of IEEE single precision, one number a block."""

from __future__ import annotations

from typing import TYPE_CHECKING

from minfer.gguf.blocks.format import BlockFormat, Field
from minfer.gguf.types import QuantType

if TYPE_CHECKING:
    from minfer.gguf.blocks.format import Blocks, Floats


def _decode(blocks: Blocks) -> Floats:
    import numpy as np

    bits = blocks["upper_bits"].astype(np.uint32) << np.uint32(16)
    return bits.view(np.float32)[:, None]


FORMAT = BlockFormat(QuantType.BF16, 1, (Field("upper_bits", "u2"),), _decode)
