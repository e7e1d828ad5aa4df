"""The grammar of a GGUF header, read from bytes without copying or allocating what it claims.

    file     = "GGUF" version:u32 n_tensors:u64 n_pairs:u64 pair* tensor* padding data
    pair     = key:string type:u32 value
    string   = n_bytes:u64 byte*
    array    = type:u32 n:u64 value*
    tensor   = name:string n_dimensions:u32 dimension:u64* type:u32 offset:u64

All little-endian (versions 2 and 3). Tensor offsets count from the start of `data`, which is the first
multiple of `general.alignment` (32 if absent) after the tensor table. Source: the GGUF specification in
ggml's docs/gguf.md.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from struct import Struct
from typing import TypeAlias

from minfer.gguf.errors import (
    DOWNLOAD_AGAIN,
    BigEndianError,
    CorruptFileError,
    GGUFVersionError,
    NotGGUFError,
    TruncatedFileError,
)
from minfer.gguf.types import SCALAR_CODES, ValueType

MAGIC = b"GGUF"
VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32

_PREFIX = Struct("<4sIQQ")
_U32 = Struct("<I")
_U64 = Struct("<Q")
MIN_BYTES = _PREFIX.size
MAX_SANE_BYTES = 1 << 44  # a length past this is a lie, not a download that stopped early

# Limits far above what models have; they bound the time that a lying file can cost.
_MAX_PAIRS = 1 << 16
_MAX_TENSORS = 1 << 17
_MAX_STEPS = 1 << 22  # strings of the whole file, each stepped over by itself
_ARRAY_STEPS = 64  # what an inner array costs, in strings
_MAX_NAME_BYTES = (1 << 16) - 1
_MAX_DIMENSIONS = 4
_MAX_SHOWN = 80
_MAX_NESTING = 4

Data: TypeAlias = bytes | memoryview
Span: TypeAlias = tuple[int, int]
"""Where something lies in the file: start and end in bytes."""

SCALARS = {kind: Struct(f"<{code}") for kind, code in SCALAR_CODES.items()}


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a metadata value lies. For arrays: `element`, `n` and the span of the elements."""

    kind: ValueType
    start: int
    end: int
    element: ValueType | None = None
    n: int = 1


@dataclass(frozen=True, slots=True)
class RawTensor:
    """A row of the tensor table as it stands: `dimensions` fastest first, `offset` from the data's start."""

    name: str
    dimensions: tuple[int, ...]
    type_id: int
    offset: int


@dataclass(frozen=True, slots=True)
class Header:
    """All that stands before the tensor data. `pairs` is the span of the metadata section."""

    version: int
    entries: dict[str, Entry]
    tensors: tuple[RawTensor, ...]
    pairs: Span
    alignment: int
    data_start: int


class _Cursor:
    """A position in the header; every step is checked against the end of the data."""

    def __init__(self, data: Data, name: str) -> None:
        self.data = data
        self.name = name
        self.end = len(data)
        self.position = 0
        self.steps_left = _MAX_STEPS

    def require(self, n_bytes: int, what: str) -> int:
        """The present position, after checking that `n_bytes` follow it."""
        needed = self.position + n_bytes
        if needed <= self.end:
            return self.position
        if needed > MAX_SANE_BYTES:
            raise CorruptFileError(
                f"{self.name} is corrupt: at byte {self.position} it claims {n_bytes} bytes for {what}, "
                f"and the file has {self.end}"
            )
        raise TruncatedFileError(
            f"{self.name} is cut off: {what} needs at least {needed} bytes, and the file has {self.end}",
            needed_bytes=needed,
        )

    def u32(self, what: str) -> int:
        at = self.require(4, what)
        self.position += 4
        value: int = _U32.unpack_from(self.data, at)[0]
        return value

    def u64(self, what: str) -> int:
        at = self.require(8, what)
        self.position += 8
        value: int = _U64.unpack_from(self.data, at)[0]
        return value

    def name_of(self, what: str) -> str:
        n_bytes = self.u64(what)
        if n_bytes > _MAX_NAME_BYTES:
            raise CorruptFileError(
                f"{self.name} is corrupt: {what} has a name of {n_bytes} bytes; {_MAX_NAME_BYTES} are allowed"
            )
        at = self.require(n_bytes, what)
        self.position += n_bytes
        return str(self.data[at : at + n_bytes], "utf-8", "replace")

    def skip(self, n_bytes: int, what: str) -> None:
        self.require(n_bytes, what)
        self.position += n_bytes

    def value_type(self, key: str) -> ValueType:
        number = self.u32(f"the type of {shown(key)}")
        try:
            return ValueType(number)
        except ValueError:
            raise CorruptFileError(
                f"{self.name} is corrupt: metadata key {shown(key)} has value type {number}, "
                "which the format does not define"
            ) from None

    def spend(self, n: int, key: str) -> None:
        """Count the steps over `n` strings against the limit of the file."""
        self.steps_left -= n
        if self.steps_left < 0:
            raise CorruptFileError(
                f"{self.name} is corrupt: up to metadata key {shown(key)} it claims more than "
                f"{_MAX_STEPS} strings, which no vocabulary has"
            )


def shown(name: str) -> str:
    """A name from a file, quoted, escaped and short enough for a message."""
    return repr(name if len(name) <= _MAX_SHOWN else f"{name[:_MAX_SHOWN]}…")


def parse_header(data: Data, name: str) -> Header:
    """Read the header that `data` (a whole file, or its beginning) starts with.

    `name` stands for the file in errors. Nothing is decoded but keys, names and numbers.
    Raises NotGGUFError, GGUFVersionError, BigEndianError, CorruptFileError, and TruncatedFileError when
    `data` ends before the header does.
    """
    cursor = _Cursor(data, name)
    version, n_tensors, n_pairs = _prefix(cursor)
    pairs_start = cursor.position
    entries = _entries(cursor, n_pairs)
    pairs = (pairs_start, cursor.position)
    tensors = _tensors(cursor, n_tensors)
    alignment = _alignment(cursor, entries)
    data_start = -(-cursor.position // alignment) * alignment
    return Header(version, entries, tensors, pairs, alignment, data_start)


def _prefix(cursor: _Cursor) -> tuple[int, int, int]:
    """Check magic and version; return version and the two counts."""
    magic = bytes(cursor.data[:4])
    if not MAGIC.startswith(magic):
        raise NotGGUFError(f"{cursor.name} is not a GGUF file: it begins with {magic!r}", hint=DOWNLOAD_AGAIN)
    cursor.require(8, "the magic number and the version")
    version = _U32.unpack_from(cursor.data, 4)[0]
    if version not in VERSIONS:
        _refuse_version(cursor.name, version)
    cursor.require(_PREFIX.size, "the counts of metadata and tensors")
    _, _, n_tensors, n_pairs = _PREFIX.unpack_from(cursor.data, 0)
    cursor.position = _PREFIX.size
    return version, n_tensors, n_pairs


def _refuse_version(name: str, version: int) -> None:
    swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
    if swapped in VERSIONS:
        raise BigEndianError(
            f"{name} is a big-endian GGUF file (version {swapped})",
            hint="use the little-endian file of this model",
        )
    hint = DOWNLOAD_AGAIN if version > 100 else "use a file of version 3, which llama.cpp writes since 2023"
    raise GGUFVersionError(f"{name} has GGUF version {version}; versions 2 and 3 can be read", hint=hint)


def _entries(cursor: _Cursor, n_pairs: int) -> dict[str, Entry]:
    _check_count(cursor, n_pairs, _MAX_PAIRS, "metadata pairs")
    cursor.require(n_pairs * 13, f"{n_pairs} metadata pairs")  # a length, a type and one byte each
    entries: dict[str, Entry] = {}
    for i in range(n_pairs):
        key = cursor.name_of(f"metadata pair {i + 1} of {n_pairs}")
        if key in entries:
            raise CorruptFileError(f"{cursor.name} is corrupt: metadata key {shown(key)} is there twice")
        entries[key] = _entry(cursor, key)
    return entries


def _check_count(cursor: _Cursor, n: int, limit: int, what: str) -> None:
    if n > limit:
        raise CorruptFileError(f"{cursor.name} is corrupt: it claims {n} {what}; no model has over {limit}")


def _entry(cursor: _Cursor, key: str) -> Entry:
    kind = cursor.value_type(key)
    what = f"the value of {shown(key)}"
    if kind is ValueType.ARRAY:
        return _array_entry(cursor, key)
    start = cursor.position
    if kind is ValueType.STRING:
        cursor.skip(cursor.u64(what), what)
        start += 8
    else:
        cursor.skip(SCALARS[kind].size, what)
    return Entry(kind, start, cursor.position)


def _array_entry(cursor: _Cursor, key: str, depth: int = 1) -> Entry:
    element = cursor.value_type(key)
    what = f"the values of {shown(key)}"
    n = cursor.u64(what)
    start = cursor.position
    if element is ValueType.STRING:
        _skip_strings(cursor, n, key)
    elif element is ValueType.ARRAY:
        if depth == _MAX_NESTING:
            raise CorruptFileError(
                f"{cursor.name} is corrupt: metadata key {shown(key)} nests arrays deeper than {_MAX_NESTING}"
            )
        cursor.require(n * 12, what)
        cursor.spend(n * _ARRAY_STEPS, key)
        for _ in range(n):
            _array_entry(cursor, key, depth + 1)
    else:
        cursor.skip(n * SCALARS[element].size, what)
    return Entry(ValueType.ARRAY, start, cursor.position, element, n)


def _skip_strings(cursor: _Cursor, n: int, key: str) -> None:
    """Step over `n` strings. Vocabularies have hundreds of thousands: the loop does nothing else."""
    what = f"the {n} strings of {shown(key)}"
    cursor.require(n * 8, what)
    cursor.spend(n, key)
    unpack, data, position = _U64.unpack_from, cursor.data, cursor.position
    try:
        for _ in range(n):
            position += unpack(data, position)[0] + 8
    except (struct.error, OverflowError):
        # The last length, or the one read now, points past the end.
        cursor.require(position + 8 - cursor.position, what)
    cursor.skip(position - cursor.position, what)


def _tensors(cursor: _Cursor, n_tensors: int) -> tuple[RawTensor, ...]:
    _check_count(cursor, n_tensors, _MAX_TENSORS, "tensors")
    cursor.require(n_tensors * 24, f"the table of {n_tensors} tensors")
    tensors: dict[str, RawTensor] = {}
    for i in range(n_tensors):
        what = f"row {i + 1} of {n_tensors} of the tensor table"
        name = cursor.name_of(what)
        if name in tensors:
            raise CorruptFileError(f"{cursor.name} is corrupt: tensor {shown(name)} is there twice")
        n_dimensions = cursor.u32(what)
        if n_dimensions > _MAX_DIMENSIONS:
            raise CorruptFileError(
                f"{cursor.name} is corrupt: tensor {shown(name)} has {n_dimensions} dimensions, "
                f"and the format allows {_MAX_DIMENSIONS}"
            )
        dimensions = tuple(cursor.u64(what) for _ in range(n_dimensions))
        tensors[name] = RawTensor(name, dimensions, cursor.u32(what), cursor.u64(what))
    return tuple(tensors.values())


def _alignment(cursor: _Cursor, entries: dict[str, Entry]) -> int:
    entry = entries.get("general.alignment")
    if entry is None:
        return DEFAULT_ALIGNMENT
    if entry.kind is not ValueType.UINT32:
        raise CorruptFileError(f"{cursor.name} is corrupt: general.alignment is a {entry.kind.name}")
    alignment: int = _U32.unpack_from(cursor.data, entry.start)[0]
    if alignment == 0 or alignment & (alignment - 1):
        raise CorruptFileError(
            f"{cursor.name} is corrupt: general.alignment is {alignment}, which is no power of two"
        )
    return alignment
