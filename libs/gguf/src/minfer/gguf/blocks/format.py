"""What a block format is: a layout stated once as a value, and how its blocks become numbers.

Sizes derive from the layout without numpy; the numpy dtype and the C structure derive from it too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

from minfer.gguf.types import QuantType

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Blocks: TypeAlias = npt.NDArray[Any]
    """Structured array (n_blocks,) of a format's dtype."""
    Floats: TypeAlias = npt.NDArray[np.float32]

_C_TYPES = {
    "u1": ("uint8_t", 1),
    "i1": ("int8_t", 1),
    "u2": ("uint16_t", 2),
    "i2": ("int16_t", 2),
    "f2": ("uint16_t", 2),  # C11 has no half type; kernels convert the bits
    "u4": ("uint32_t", 4),
    "i4": ("int32_t", 4),
    "f4": ("float", 4),
    "i8": ("int64_t", 8),
    "f8": ("double", 8),
}


@dataclass(frozen=True, slots=True)
class Field:
    """One member of a block: `count` little-endian numbers of numpy kind `code` (0: a single one)."""

    name: str
    code: str
    count: int = 0

    @property
    def n_bytes(self) -> int:
        """Bytes in the file."""
        return _C_TYPES[self.code][1] * (self.count or 1)


@dataclass(frozen=True)
class BlockFormat:
    """A tensor type: blocks of `block_weights` numbers, laid out as `layout`, packed, as in the file.

    `decoder` maps a structured array (n,) to float32 (n, block_weights).
    """

    quant: QuantType
    block_weights: int
    layout: tuple[Field, ...]
    decoder: Callable[[Blocks], Floats]

    @cached_property
    def block_bytes(self) -> int:
        """Bytes of one block in the file."""
        return sum(field.n_bytes for field in self.layout)

    def n_bytes(self, n_weights: int) -> int:
        """Bytes of `n_weights` numbers, which must be whole blocks."""
        return n_weights // self.block_weights * self.block_bytes

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """The numpy structured dtype of one block; its itemsize is `block_bytes`."""
        import numpy as np

        members: list[Any] = [
            (field.name, f"<{field.code}", (field.count,)) if field.count else (field.name, f"<{field.code}")
            for field in self.layout
        ]
        return np.dtype(members)

    @property
    def c_struct(self) -> str:
        """C11 text of the packed structure `block_<type>` with an assertion of its size."""
        name = f"block_{self.quant.name.lower()}"
        members = "".join(
            f"    {_C_TYPES[field.code][0]} {field.name}{f'[{field.count}]' if field.count else ''};\n"
            for field in self.layout
        )
        return (
            f"typedef struct __attribute__((packed)) {{\n{members}}} {name};\n"
            f'_Static_assert(sizeof({name}) == {self.block_bytes}, "{name}");\n'
        )

    def decode(self, data: bytes | bytearray | memoryview) -> Floats:
        """The numbers of whole blocks: float32 (n_blocks, block_weights).

        F32 gives a read-only view of `data`, every other type a fresh array. Infinite and NaN scales
        decode to what IEEE arithmetic makes of them, silently.
        """
        import numpy as np

        blocks = np.frombuffer(data, dtype=self.dtype)
        with np.errstate(all="ignore"):
            return self.decoder(blocks)
