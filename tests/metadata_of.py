"""Metadata out of a dictionary, by way of the bytes of a GGUF header."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

from minfer.gguf import Metadata
from minfer.gguf.header import parse_header

Scalar = bool | int | float | str
_BOOL, _STRING, _ARRAY, _INT32, _FLOAT32 = 7, 8, 9, 5, 6


def metadata_of(values: Mapping[str, Scalar | Sequence[Scalar]]) -> Metadata:
    """Each value as BOOL, INT32, FLOAT32 or STRING, or an array of the type of its first element."""
    pairs = b"".join(_string(key) + _typed(value) for key, value in values.items())
    data = b"GGUF" + struct.pack("<IQQ", 3, 0, len(values)) + pairs
    return Metadata(data, parse_header(data, "test.gguf").entries, "test.gguf")


def _typed(value: Scalar | Sequence[Scalar]) -> bytes:
    if isinstance(value, bool | int | float | str):
        return struct.pack("<I", _type(value)) + _bytes(value)
    kind = _type(value[0]) if value else _STRING
    return struct.pack("<IIQ", _ARRAY, kind, len(value)) + b"".join(map(_bytes, value))


def _type(value: Scalar) -> int:
    kinds = ((bool, _BOOL), (int, _INT32), (float, _FLOAT32), (str, _STRING))
    return next(number for kind, number in kinds if isinstance(value, kind))


def _bytes(value: Scalar) -> bytes:
    if isinstance(value, str):
        return _string(value)
    return struct.pack({_BOOL: "<?", _INT32: "<i", _FLOAT32: "<f"}[_type(value)], value)


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data
