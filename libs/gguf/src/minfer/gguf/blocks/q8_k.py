"""Q8_K: 256 signed bytes share one single-precision scale; sums of each 16 ride along for kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from minfer.gguf.blocks.format import BlockFormat, Field
from minfer.gguf.types import QuantType

if TYPE_CHECKING:
    from minfer.gguf.blocks.format import Blocks, Floats


def _decode(blocks: Blocks) -> Floats:
    import numpy as np

    codes: Floats = blocks["codes"].astype(np.float32)
    codes *= blocks["scale"][:, None]
    return codes


FORMAT = BlockFormat(
    QuantType.Q8_K,
    256,
    (
        Field("scale", "f4"),
        Field("codes", "i1", 256),
        Field("sums", "i2", 16),
    ),
    _decode,
)
