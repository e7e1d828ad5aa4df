"""How block formats pack codes of fewer than eight bits into bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Bytes = npt.NDArray[np.uint8]


def planes(packed: Bytes, width: int) -> Bytes:
    """(…, b) bytes to (…, 8 / width, b) codes: plane p holds bits p·width and up of every byte.

    Formats keep the codes of one plane as neighbours, so flattening the result gives their order.
    """
    import numpy as np

    n_planes = 8 // width
    mask = np.uint8((1 << width) - 1)
    codes = np.empty((*packed.shape[:-1], n_planes, packed.shape[-1]), np.uint8)
    for plane in range(n_planes):
        np.right_shift(packed, np.uint8(plane * width), out=codes[..., plane, :])
    codes &= mask
    return codes


def nibbles(packed: Bytes) -> Bytes:
    """(n, b) bytes to (n, 2b) codes of 0..15: the low halves of all bytes, then the high halves."""
    return planes(packed, 4).reshape(len(packed), 2 * packed.shape[1])


def fifth_bits(words: npt.NDArray[np.uint32]) -> Bytes:
    """(n,) words to (n, 32) values of 0 or 16: bit i of a word is the fifth bit of code i."""
    import numpy as np

    bits = (words[:, None] >> np.arange(32, dtype=np.uint32)) & np.uint32(1)
    return bits.astype(np.uint8) << np.uint8(4)


def six_bit_pairs(packed: Bytes) -> tuple[Bytes, Bytes]:
    """(n, 12) bytes to the eight scales and the eight minima, (n, 8) each, of 0..63.

    The first four of each stand in the low six bits of bytes 0..3 and 4..7. The last four have their
    low halves in bytes 8..11 (scale low, minimum high) and their upper two bits atop the first four.
    """
    import numpy as np

    scales, minima, halves = packed[:, 0:4], packed[:, 4:8], packed[:, 8:12]
    low, upper = np.uint8(0x3F), np.uint8(0x30)
    late_scales = (halves & np.uint8(0x0F)) | (scales >> np.uint8(2) & upper)
    late_minima = (halves >> np.uint8(4)) | (minima >> np.uint8(2) & upper)
    return (
        np.concatenate((scales & low, late_scales), axis=1),
        np.concatenate((minima & low, late_minima), axis=1),
    )
