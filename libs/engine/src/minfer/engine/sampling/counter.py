"""Random numbers out of a counter: a draw depends on where it happens and on nothing before it."""

from __future__ import annotations

import struct
from hashlib import blake2b

_SCALE = 2.0**-53


def uniform(seed: int, choice: int, position: int, purpose: bytes) -> float:
    """A float64 in [0, 1) with 53 random bits for (seed, choice, position, purpose).

    seed, choice, position: 0 to 2**63 - 1. purpose: up to 16 bytes that keep the draws of one position
    apart.
    """
    counter = struct.pack("<QQQ", seed, choice, position)
    digest = blake2b(counter, digest_size=8, person=purpose).digest()
    return (int.from_bytes(digest, "little") >> 11) * _SCALE
