"""IQ4_NL: 32 four-bit codes that pick from a table of 16 uneven levels, one half-precision scale."""

from __future__ import annotations

from typing import TYPE_CHECKING

from minfer.gguf.blocks.format import BlockFormat, Field
from minfer.gguf.blocks.packing import nibbles
from minfer.gguf.types import QuantType

if TYPE_CHECKING:
    from minfer.gguf.blocks.format import Blocks, Floats

LEVELS = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
"""What the 16 codes stand for, before scaling (ggml's table for non-linear four-bit types)."""


def _decode(blocks: Blocks) -> Floats:
    import numpy as np

    levels = np.array(LEVELS, dtype=np.float32)
    values = levels[nibbles(blocks["codes"])]
    values *= blocks["scale"].astype(np.float32)[:, None]
    return values


FORMAT = BlockFormat(
    QuantType.IQ4_NL,
    32,
    (
        Field("scale", "f2"),
        Field("codes", "u1", 16),
    ),
    _decode,
)
