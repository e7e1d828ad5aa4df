"""One file of a model: mapped, its header read, its tensors placed and checked against its size."""

from __future__ import annotations

import mmap
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path

from minfer.gguf.blocks import FORMATS
from minfer.gguf.errors import CorruptFileError, TensorTypeError, TruncatedFileError
from minfer.gguf.header import MAX_SANE_BYTES, Header, RawTensor, parse_header, shown
from minfer.gguf.identify import SNIFF_BYTES, check_kind, check_magic, unreadable
from minfer.gguf.types import UNDECODED, QuantType


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """A stored tensor. `shape` is in numpy's order (slowest dimension first: the file's, reversed);
    `offset` is its first byte in the file `parts[part]`, which holds `n_bytes` of it (0 for a type whose
    layout is not known)."""

    name: str
    shape: tuple[int, ...]
    quant: QuantType
    n_bytes: int
    part: int
    offset: int

    @property
    def n_weights(self) -> int:
        """How many numbers it holds."""
        return prod(self.shape)


@dataclass(frozen=True, slots=True)
class Part:
    """A file with its header. `view` is read-only and as long as the file; `map` is None in memory.

    identity: as of GGUFFile.
    """

    path: Path
    map: mmap.mmap | None
    view: memoryview
    header: Header
    identity: tuple[int, ...] = ()

    def tensors(self, part: int) -> dict[str, TensorInfo]:
        """The tensors of this file, placed; `part` is its index in its set."""
        return place_tensors(self.header, len(self.view), str(self.path), part)


def open_part(path: Path) -> Part:
    """Map the file at `path` and read its header. Raises the ModelFileError that fits what is there.

    Raises NotEnoughMemoryError when the process's address space has no room for the file.
    """
    check_kind(path)
    try:
        with path.open("rb") as stream:
            check_magic(path, stream.read(SNIFF_BYTES))
            facts = os.fstat(stream.fileno())
            mapped = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise unreadable(path, error) from error
    view = memoryview(mapped)
    identity = (facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns, facts.st_ino)
    return Part(path, mapped, view, parse_header(view, str(path)), identity)


def place_tensors(header: Header, n_bytes: int, name: str, part: int = 0) -> dict[str, TensorInfo]:
    """The tensors of a file of `n_bytes`, placed. `name` stands for the file in errors.

    Raises CorruptFileError for shapes and offsets that cannot be, TruncatedFileError when the file ends
    before its tensors do.
    """
    tensors = {raw.name: _place(raw, header, name, part) for raw in header.tensors}
    last = max(tensors.values(), key=lambda info: info.offset + info.n_bytes, default=None)
    if last is None or last.offset + last.n_bytes <= n_bytes:
        return tensors
    needed = last.offset + last.n_bytes
    if needed > MAX_SANE_BYTES:
        raise CorruptFileError(
            f"{name} is corrupt: tensor {shown(last.name)} would end at byte {needed} of {n_bytes}"
        )
    raise TruncatedFileError(
        f"{name} is cut off: it has {n_bytes} bytes and its tensors need {needed}", needed_bytes=needed
    )


def _place(raw: RawTensor, header: Header, name: str, part: int) -> TensorInfo:
    quant = QuantType(raw.type_id)
    block_weights, block_bytes = _block(quant)
    columns = raw.dimensions[0] if raw.dimensions else 1
    if 0 in raw.dimensions:
        raise CorruptFileError(f"{name} is corrupt: tensor {shown(raw.name)} has a dimension of 0")
    if columns % block_weights:
        raise CorruptFileError(
            f"{name} is corrupt: rows of tensor {shown(raw.name)} have {columns} numbers, "
            f"and {quant.name} stores {block_weights} at a time"
        )
    if raw.offset % header.alignment:
        raise CorruptFileError(
            f"{name} is corrupt: tensor {shown(raw.name)} is at offset {raw.offset}, "
            f"which is no multiple of {header.alignment}"
        )
    shape = raw.dimensions[::-1]
    n_bytes = prod(shape) // block_weights * block_bytes
    return TensorInfo(raw.name, shape, quant, n_bytes, part, header.data_start + raw.offset)


def _block(quant: QuantType) -> tuple[int, int]:
    """Numbers and bytes of one block; no bytes for a type that nobody here knows."""
    form = FORMATS.get(quant)
    return (form.block_weights, form.block_bytes) if form else UNDECODED.get(quant, (1, 0))


def require_decoders(tensors: Mapping[str, TensorInfo], names: Sequence[str]) -> None:
    """Raise TensorTypeError for the first tensor that cannot be decoded; `names`: the files, by part."""
    for info in tensors.values():
        if info.quant not in FORMATS:
            readable = ", ".join(row.name for row in FORMATS)
            raise TensorTypeError(
                f"{names[info.part]} stores tensor {shown(info.name)} as {info.quant.name}, which minfer "
                "cannot read",
                hint=f"use a file in one of {readable}",
            )
