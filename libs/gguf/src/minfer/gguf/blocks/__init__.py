"""The block formats minfer can read: one file each, one row each."""

from __future__ import annotations

from typing import Final

from minfer.gguf.blocks import bf16, f16, f32, q4_0, q4_1, q5_0, q5_1, q8_0
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
)
FORMATS: Final[dict[QuantType, BlockFormat]] = {row.quant: row for row in _ROWS}

__all__ = ["FORMATS", "BlockFormat", "Field"]
