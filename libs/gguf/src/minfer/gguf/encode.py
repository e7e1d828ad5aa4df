"""Metadata values as the bytes that stand for them in a file.

Types that Python does not distinguish are picked as llama.cpp's tools expect them: UINT32 for an
integer that fits, INT32 for a negative one and for lists of integers, FLOAT32 for floats.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from minfer.gguf.types import SCALAR_CODES, ValueType

Element: TypeAlias = int | float | bool | str | bytes
Plain: TypeAlias = Element | Sequence[Element]

_ARRAY_TYPES = {
    ("i", 1): ValueType.INT8,
    ("i", 2): ValueType.INT16,
    ("i", 4): ValueType.INT32,
    ("i", 8): ValueType.INT64,
    ("u", 1): ValueType.UINT8,
    ("u", 2): ValueType.UINT16,
    ("u", 4): ValueType.UINT32,
    ("u", 8): ValueType.UINT64,
    ("f", 4): ValueType.FLOAT32,
    ("f", 8): ValueType.FLOAT64,
}


@dataclass(frozen=True, slots=True)
class Encoded:
    """A value with its type, as bytes: a scalar, a string's text, or the `n` elements of an array."""

    kind: ValueType
    raw: bytes
    element: ValueType | None = None
    n: int = 1


def encode_scalar(value: Element, kind: ValueType | None = None) -> Encoded:
    """`value` as a `kind` (None: the usual one of its Python type).

    Raises TypeError for a value of another Python type, ValueError for one out of range.
    """
    kind = _usual(value) if kind is None else kind
    if kind is ValueType.STRING:
        return Encoded(kind, _text(value))
    return Encoded(kind, _pack(kind, [value]))


def encode_array(values: Sequence[Element], element: ValueType | None = None) -> Encoded:
    """`values` as an array of `element` (None: the usual one; an empty list then is one of INT32)."""
    if element is None:
        element = _usual_element(values)
    if element is ValueType.STRING:
        texts = [_text(value) for value in values]
        raw = b"".join(b"".join((struct.pack("<Q", len(text)), text)) for text in texts)
    else:
        raw = _pack(element, values)
    return Encoded(ValueType.ARRAY, raw, element, len(values))


def encode_pairs(values: Mapping[str, Plain | Encoded]) -> bytes:
    """The metadata section of a file: every pair in order."""
    return b"".join(_pair(key, value) for key, value in values.items())


def string_bytes(text: str) -> bytes:
    """A string as headers have it: its length in bytes, then its bytes."""
    encoded = text.encode()
    return struct.pack("<Q", len(encoded)) + encoded


def _pair(key: str, value: Plain | Encoded) -> bytes:
    if not isinstance(value, Encoded):
        scalar = isinstance(value, Element)
        value = encode_scalar(value) if scalar else encode_array(value)  # type: ignore[arg-type]
    start = string_bytes(key) + struct.pack("<I", value.kind)
    if value.kind is ValueType.STRING:
        return start + struct.pack("<Q", len(value.raw)) + value.raw
    if value.element is not None:
        return start + struct.pack("<IQ", value.element, value.n) + value.raw
    return start + value.raw


def _usual(value: Element) -> ValueType:
    if isinstance(value, bool):
        return ValueType.BOOL
    if isinstance(value, str | bytes):
        return ValueType.STRING
    if isinstance(value, float):
        return ValueType.FLOAT32
    if value >= 0:
        return ValueType.UINT32 if value < 1 << 32 else ValueType.UINT64
    return ValueType.INT32 if value >= -(1 << 31) else ValueType.INT64


def _usual_element(values: Sequence[Element]) -> ValueType:
    if isinstance(values, array):
        kind = "f" if values.typecode in "fd" else "u" if values.typecode.isupper() else "i"
        return _ARRAY_TYPES[kind, values.itemsize]
    if any(isinstance(value, float) for value in values):
        return ValueType.FLOAT32
    usual = _usual(values[0]) if values else ValueType.INT32
    return ValueType.INT32 if usual is ValueType.UINT32 else usual


def _text(value: Element) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes):
        return value
    raise TypeError(f"{value!r} is no text")


def _pack(kind: ValueType, values: Sequence[Element]) -> bytes:
    if kind not in SCALAR_CODES:
        raise TypeError(f"{kind.name} is not the type of a number")
    try:
        return struct.pack(f"<{len(values)}{SCALAR_CODES[kind]}", *values)
    except (struct.error, OverflowError) as error:
        raise ValueError(f"{kind.name} cannot hold {str(values)[:80]}: {error}") from error
