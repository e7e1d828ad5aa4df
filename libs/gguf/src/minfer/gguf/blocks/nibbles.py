"""Four-bit codes two to a byte, as the block formats of 32 keep them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


def split_nibbles(packed: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """(n, b) bytes to (n, 2b) codes of 0..15: the low halves of all bytes, then the high halves."""
    import numpy as np

    codes: npt.NDArray[Any] = np.concatenate((packed & np.uint8(0x0F), packed >> np.uint8(4)), axis=1)
    return codes


def fifth_bits(packed: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint8]:
    """(n,) words to (n, 32) values of 0 or 16: bit i of a word is the fifth bit of code i."""
    import numpy as np

    bits = (packed[:, None] >> np.arange(32, dtype=np.uint32)) & np.uint32(1)
    return bits.astype(np.uint8) << np.uint8(4)
