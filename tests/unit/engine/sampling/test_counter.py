"""Counter-based numbers: repeatable, apart for every coordinate, evenly spread."""

from __future__ import annotations

import math
import struct
from hashlib import blake2b
from itertools import pairwise, product

from minfer.engine.sampling.counter import uniform


def test_the_definition() -> None:
    """The first 8 bytes of BLAKE2b over three 64-bit numbers, as a fraction: files of old runs rely on it."""
    digest = blake2b(struct.pack("<QQQ", 42, 1, 7), digest_size=8, person=b"draw").digest()
    assert uniform(42, 1, 7, b"draw") == (struct.unpack("<Q", digest)[0] >> 11) / 2**53


def test_every_coordinate_counts() -> None:
    places = product((0, 1), (0, 1), (0, 1), (b"draw", b"xtc"))
    numbers = {uniform(seed, choice, position, purpose) for seed, choice, position, purpose in places}
    assert len(numbers) == 16


def test_even_spread() -> None:
    numbers = [uniform(42, 0, position, b"draw") for position in range(4000)]
    assert all(0 <= number < 1 for number in numbers)
    bins = [sum(1 for number in numbers if int(number * 10) == i) for i in range(10)]
    chi_squared = sum((count - 400) ** 2 / 400 for count in bins)
    assert chi_squared < 27.9  # 99.9 % of random sequences, 9 degrees of freedom
    lag = sum((a - 0.5) * (b - 0.5) for a, b in pairwise(numbers)) * 12 / len(numbers)
    assert abs(lag) < 4 / math.sqrt(len(numbers))
