"""Write GGUF files: one, or a split set.

Tensors stand in the order given, each padded to the alignment, so that a file read and written again
has the same bytes. A file appears under its name only when it is complete.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Protocol, TypeAlias

from minfer.core.split_names import SplitName
from minfer.gguf.blocks import FORMATS
from minfer.gguf.encode import Encoded, Plain, encode_pairs, encode_scalar, string_bytes
from minfer.gguf.file import GGUFFile
from minfer.gguf.header import DEFAULT_ALIGNMENT, MAGIC
from minfer.gguf.metadata import Metadata
from minfer.gguf.split import COUNT, NUMBER, TENSORS
from minfer.gguf.types import QuantType, ValueType

Pairs: TypeAlias = Mapping[str, Plain | Encoded] | Metadata
Buffer: TypeAlias = bytes | bytearray | memoryview

_LAST_VERSION = 3


class Sink(Protocol):
    """Anything that bytes can be written to, front to back."""

    def write(self, data: Buffer, /) -> object:
        """Take all of `data`."""


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor to write: `shape` slowest dimension first, `data` the bytes of its blocks."""

    name: str
    shape: tuple[int, ...]
    quant: QuantType
    data: Buffer

    def __post_init__(self) -> None:
        """Raise ValueError unless `data` has exactly the bytes that shape and type need."""
        form = FORMATS[self.quant]
        needed = form.n_bytes(prod(self.shape))
        whole = (self.shape[-1] if self.shape else 1) % form.block_weights == 0
        if not whole or memoryview(self.data).nbytes != needed:
            raise ValueError(
                f"tensor {self.name!r} of shape {self.shape} takes {needed} bytes in whole rows of "
                f"{form.block_weights} as {self.quant.name}, not {memoryview(self.data).nbytes}"
            )


def tensors_of(file: GGUFFile) -> list[StoredTensor]:
    """The tensors of an open file, ready to be written again; their data stays in the file."""
    return [
        StoredTensor(info.name, info.shape, info.quant, file.data(info.name))
        for info in file.tensors.values()
    ]


def write_gguf(
    path: str | os.PathLike[str],
    metadata: Pairs,
    tensors: Iterable[StoredTensor] = (),
    *,
    version: int = _LAST_VERSION,
) -> None:
    """Write a file. `metadata`: plain values or `Encoded` ones; a `Metadata` is copied byte for byte.

    `general.alignment` is heeded. Replaces what is at `path`, which may be a file that is open.
    """
    target = Path(path)
    partial = target.with_name(f"{target.name}.partial-{os.getpid()}")
    try:
        with partial.open("wb") as stream:
            write_stream(stream, metadata, tensors, version=version)
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def write_stream(
    stream: Sink,
    metadata: Pairs,
    tensors: Iterable[StoredTensor] = (),
    *,
    version: int = _LAST_VERSION,
) -> None:
    """Write a file into an open binary stream, front to back."""
    stored = tuple(tensors)
    if len({tensor.name for tensor in stored}) != len(stored):
        raise ValueError("two tensors have one name")
    alignment = _alignment(metadata)
    pairs = encode_pairs(encoded(metadata) if isinstance(metadata, Metadata) else metadata)
    table = _table(stored, alignment)
    head = MAGIC + struct.pack("<IQQ", version, len(stored), len(metadata)) + pairs + table
    stream.write(head)
    if stored:
        stream.write(bytes(-len(head) % alignment))
    for tensor in stored:
        stream.write(tensor.data)
        stream.write(bytes(-memoryview(tensor.data).nbytes % alignment))


def encoded(metadata: Metadata) -> dict[str, Plain | Encoded]:
    """Every pair of `metadata` with its type and bytes; change or add pairs, then write them."""
    pairs: dict[str, Plain | Encoded] = {}
    for key in metadata:
        kind, element, n = metadata.kind(key)
        pairs[key] = Encoded(kind, bytes(metadata.raw(key)), element, n)
    return pairs


def write_split(
    directory: str | os.PathLike[str],
    base: str,
    metadata: Pairs,
    tensors: Iterable[StoredTensor],
    *,
    max_part_bytes: int,
) -> tuple[Path, ...]:
    """Write a split set `BASE-0000X-of-0000Y.gguf` whose parts hold up to `max_part_bytes` of tensors.

    A tensor larger than that gets a part of its own. Returns the paths, in order.
    """
    groups = _groups(tensors, max_part_bytes)
    n_tensors = sum(len(group) for group in groups)
    common = encoded(metadata) if isinstance(metadata, Metadata) else dict(metadata)
    paths = []
    for i, group in enumerate(groups):
        pairs = common if i == 0 else {}
        pairs = pairs | {
            NUMBER: encode_scalar(i, ValueType.UINT16),
            COUNT: encode_scalar(len(groups), ValueType.UINT16),
            TENSORS: encode_scalar(n_tensors, ValueType.INT32),
        }
        paths.append(Path(directory) / str(SplitName(base, i + 1, len(groups))))
        write_gguf(paths[-1], pairs, group)
    return tuple(paths)


def _groups(tensors: Iterable[StoredTensor], max_part_bytes: int) -> list[list[StoredTensor]]:
    groups: list[list[StoredTensor]] = [[]]
    size = 0
    for tensor in tensors:
        n_bytes = memoryview(tensor.data).nbytes
        if groups[-1] and size + n_bytes > max_part_bytes:
            groups.append([])
            size = 0
        groups[-1].append(tensor)
        size += n_bytes
    return groups


def _table(tensors: Sequence[StoredTensor], alignment: int) -> bytes:
    rows = []
    offset = 0
    for tensor in tensors:
        dimensions = tensor.shape[::-1]
        rows.append(
            string_bytes(tensor.name)
            + struct.pack(f"<I{len(dimensions)}QIQ", len(dimensions), *dimensions, tensor.quant, offset)
        )
        offset += -(-memoryview(tensor.data).nbytes // alignment) * alignment
    return b"".join(rows)


def _alignment(metadata: Pairs) -> int:
    value = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    alignment = int.from_bytes(value.raw, "little") if isinstance(value, Encoded) else value
    if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
        raise ValueError(f"general.alignment is {alignment!r}, which is no power of two")
    return alignment
