"""Read, write and decode GGUF files.

with open_gguf("model.gguf") as file:
    file.metadata.string("general.architecture")
    file.data("token_embd.weight")                      # read-only bytes, nothing copied
    arrays.read_tensor(file, "token_embd.weight")       # float32; the only part that needs numpy
"""

from __future__ import annotations

from minfer.gguf.blocks import FORMATS
from minfer.gguf.blocks.format import BlockFormat, Field
from minfer.gguf.file import GGUFFile, open_bytes, open_gguf, read_beginning
from minfer.gguf.metadata import Metadata
from minfer.gguf.part import TensorInfo
from minfer.gguf.types import QuantType, ValueType

__all__ = [
    "FORMATS",
    "BlockFormat",
    "Field",
    "GGUFFile",
    "Metadata",
    "QuantType",
    "TensorInfo",
    "ValueType",
    "open_bytes",
    "open_gguf",
    "read_beginning",
]
