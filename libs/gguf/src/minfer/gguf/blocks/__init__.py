"""The block formats minfer can read: one file each, one row each."""

from __future__ import annotations

from typing import Final

from minfer.gguf.blocks import (
    bf16,
    f16,
    f32,
    iq4_nl,
    iq4_xs,
    q2_k,
    q3_k,
    q4_0,
    q4_1,
    q4_k,
    q5_0,
    q5_1,
    q5_k,
    q6_k,
    q8_0,
    q8_k,
)
from minfer.gguf.blocks.format import BlockFormat, Field
from minfer.gguf.types import QuantType

_ROWS: Final[tuple[BlockFormat, ...]] = (
    f32.FORMAT,
    f16.FORMAT,
    bf16.FORMAT,
    q4_0.FORMAT,
    q4_1.FORMAT,
    q5_0.FORMAT,
    q5_1.FORMAT,
    q8_0.FORMAT,
    q2_k.FORMAT,
    q3_k.FORMAT,
    q4_k.FORMAT,
    q5_k.FORMAT,
    q6_k.FORMAT,
    q8_k.FORMAT,
    iq4_nl.FORMAT,
    iq4_xs.FORMAT,
)
FORMATS: Final[dict[QuantType, BlockFormat]] = {row.quant: row for row in _ROWS}

__all__ = ["FORMATS", "BlockFormat", "Field"]
