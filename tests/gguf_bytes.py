"""GGUF files put together by hand, so that the reader is not tested with the writer's idea of them."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

UINT8, INT8, UINT16, INT16, UINT32, INT32, FLOAT32, BOOL, STRING, ARRAY, UINT64, INT64, FLOAT64 = range(13)
F32, F16, Q4_0, Q8_0 = 0, 1, 2, 8


def u32(value: int) -> bytes:
    """Four bytes, little-endian."""
    return struct.pack("<I", value)


def u64(value: int) -> bytes:
    """Eight bytes, little-endian."""
    return struct.pack("<Q", value)


def text(value: str | bytes) -> bytes:
    """A string with its length before it."""
    data = value.encode() if isinstance(value, str) else value
    return u64(len(data)) + data


def pair(key: str, kind: int, value: bytes) -> bytes:
    """A metadata pair whose value is given as bytes."""
    return text(key) + u32(kind) + value


def array(element: int, n: int, values: bytes) -> bytes:
    """The value of an array pair."""
    return u32(element) + u64(n) + values


def texts(values: Sequence[str | bytes]) -> bytes:
    """The value of a pair that is an array of strings."""
    return array(STRING, len(values), b"".join(text(value) for value in values))


@dataclass(frozen=True)
class Tensor:
    """A row of the tensor table; `dimensions` fastest first, as in files."""

    name: str
    dimensions: tuple[int, ...]
    kind: int
    offset: int

    @property
    def row(self) -> bytes:
        """Its bytes in the table."""
        dimensions = b"".join(u64(n) for n in self.dimensions)
        return text(self.name) + u32(len(self.dimensions)) + dimensions + u32(self.kind) + u64(self.offset)


@dataclass
class File:
    """A file to be; every part can be made to lie."""

    pairs: list[bytes] = field(default_factory=list)
    tensors: list[Tensor] = field(default_factory=list)
    data: bytes = b""
    version: int = 3
    magic: bytes = b"GGUF"
    n_pairs: int | None = None
    n_tensors: int | None = None
    alignment: int = 32

    def build(self) -> bytes:
        """The bytes."""
        n_tensors = len(self.tensors) if self.n_tensors is None else self.n_tensors
        n_pairs = len(self.pairs) if self.n_pairs is None else self.n_pairs
        head = self.magic + u32(self.version) + u64(n_tensors) + u64(n_pairs)
        head += b"".join(self.pairs) + b"".join(tensor.row for tensor in self.tensors)
        return head + bytes(-len(head) % self.alignment) + self.data


EVERY_TYPE: dict[str, bytes] = {
    "uint8": pair("uint8", UINT8, b"\xff"),
    "int8": pair("int8", INT8, b"\xff"),
    "uint16": pair("uint16", UINT16, b"\xff\xff"),
    "int16": pair("int16", INT16, b"\xfe\xff"),
    "uint32": pair("uint32", UINT32, u32(4_000_000_000)),
    "int32": pair("int32", INT32, struct.pack("<i", -5)),
    "float32": pair("float32", FLOAT32, struct.pack("<f", 1.5)),
    "true": pair("true", BOOL, b"\x01"),
    "false": pair("false", BOOL, b"\x00"),
    "string": pair("string", STRING, text("naïve")),
    "uint64": pair("uint64", UINT64, u64(1 << 63)),
    "int64": pair("int64", INT64, struct.pack("<q", -(1 << 62))),
    "float64": pair("float64", FLOAT64, struct.pack("<d", 0.1)),
    "strings": pair("strings", ARRAY, texts(["a", "", "bc", "é"])),
    "integers": pair("integers", ARRAY, array(INT32, 3, struct.pack("<3i", 1, -2, 3))),
    "floats": pair("floats", ARRAY, array(FLOAT32, 2, struct.pack("<2f", 0.5, -0.25))),
    "booleans": pair("booleans", ARRAY, array(BOOL, 2, b"\x00\x01")),
    "nested": pair(
        "nested",
        ARRAY,
        array(ARRAY, 2, texts(["x", "yz"]) + array(ARRAY, 1, array(UINT8, 2, b"\x07\x08"))),
    ),
}


def whole_file() -> File:
    """A right file with every value type and two tensors: `a` F32 (2, 3) and `b` Q8_0 (32,)."""
    a = struct.pack("<6f", 0, 1, 2, 3, 4, 5)
    b = struct.pack("<e32b", 0.5, *range(-16, 16))
    return File(
        pairs=list(EVERY_TYPE.values()),
        tensors=[Tensor("a", (3, 2), F32, 0), Tensor("b", (32,), Q8_0, 32)],
        data=a + bytes(8) + b,
    )
