"""F32: IEEE single precision, one number a block."""

from __future__ import annotations

from typing import TYPE_CHECKING

from minfer.gguf.blocks.format import BlockFormat, Field
from minfer.gguf.types import QuantType

if TYPE_CHECKING:
    from minfer.gguf.blocks.format import Blocks, Floats


def _decode(blocks: Blocks) -> Floats:
    values: Floats = blocks["value"][:, None]
    return values


FORMAT = BlockFormat(QuantType.F32, 1, (Field("value", "f4"),), _decode)
