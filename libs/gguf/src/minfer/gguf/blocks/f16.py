"""F16: IEEE half precision, one number a block."""

from __future__ import annotations

from typing import TYPE_CHECKING

from minfer.gguf.blocks.format import BlockFormat, Field
from minfer.gguf.types import QuantType

if TYPE_CHECKING:
    from minfer.gguf.blocks.format import Blocks, Floats


def _decode(blocks: Blocks) -> Floats:
    import numpy as np

    return blocks["value"].astype(np.float32)[:, None]


FORMAT = BlockFormat(QuantType.F16, 1, (Field("value", "f2"),), _decode)
