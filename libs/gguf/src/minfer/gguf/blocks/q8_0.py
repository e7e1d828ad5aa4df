"""Q8_0: 32 signed bytes share one half-precision scale."""

from __future__ import annotations

from typing import TYPE_CHECKING

from minfer.gguf.blocks.format import BlockFormat, Field
from minfer.gguf.types import QuantType

if TYPE_CHECKING:
    from minfer.gguf.blocks.format import Blocks, Floats


def _decode(blocks: Blocks) -> Floats:
    import numpy as np

    scale = blocks["scale"].astype(np.float32)[:, None]
    codes: Floats = blocks["codes"].astype(np.float32)
    codes *= scale
    return codes


FORMAT = BlockFormat(QuantType.Q8_0, 32, (Field("scale", "f2"), Field("codes", "i1", 32)), _decode)
