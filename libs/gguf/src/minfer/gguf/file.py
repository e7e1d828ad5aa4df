"""An open model: one file or a whole split set, mapped read-only."""

from __future__ import annotations

import mmap
import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Self

from minfer.gguf.errors import TensorMissingError
from minfer.gguf.header import parse_header
from minfer.gguf.metadata import Metadata
from minfer.gguf.part import Part, TensorInfo, place_tensors, require_decoders
from minfer.gguf.split import open_parts


class GGUFFile:
    """A model file, or a split set seen as one: metadata, tensor table, bytes of tensors.

    Nothing of the tensors is read before it is asked for. A context manager: leaving it gives up the
    mappings; views handed out before stay valid until they are dropped themselves.
    """

    def __init__(self, parts: tuple[Part, ...], tensors: dict[str, TensorInfo]) -> None:
        """Use `open_gguf`."""
        self._parts = parts
        self.parts: tuple[Path, ...] = tuple(part.path for part in parts)
        self.path: Path = self.parts[0]
        self.version: int = parts[0].header.version
        self.alignment: int = parts[0].header.alignment
        # Of each part: size, mtime_ns, ctime_ns (which nobody can set back), inode; () in memory.
        self.identity: tuple[tuple[int, ...], ...] = tuple(part.identity for part in parts)
        self.n_bytes: int = sum(len(part.view) for part in parts)
        self.metadata = Metadata(parts[0].view, parts[0].header.entries, str(self.path))
        self.tensors: Mapping[str, TensorInfo] = MappingProxyType(tensors)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give up the mappings. Tensor data cannot be asked for afterwards; metadata can."""
        self._parts = ()

    def tensor(self, name: str) -> TensorInfo:
        """The tensor `name`, or TensorMissingError."""
        info = self.tensors.get(name)
        if info is None:
            raise TensorMissingError(
                f"{self.path} has no tensor {name!r}",
                hint="the file may be of an adapter, a projector or a vocabulary only",
            )
        return info

    def data(self, name: str) -> memoryview:
        """The stored bytes of tensor `name`: a read-only view of the mapping, nothing is copied."""
        info = self.tensor(name)
        return self._part(info).view[info.offset : info.offset + info.n_bytes]

    def is_mapped(self, name: str) -> bool:
        """Whether dropped pages of tensor `name` come back out of a file: not when it is in memory only."""
        return self._part(self.tensor(name)).map is not None

    def release(self, name: str) -> None:
        """Drop the pages of tensor `name` from this process; touching them again reads them again."""
        self._advise(name, "MADV_DONTNEED")

    def prefetch(self, name: str) -> None:
        """Ask the system to start reading tensor `name` from disk."""
        self._advise(name, "MADV_WILLNEED")

    def _advise(self, name: str, advice: str) -> None:
        info = self.tensor(name)
        if not info.n_bytes or not hasattr(mmap, advice):
            return
        mapped = self._part(info).map
        if mapped is None:
            return
        start = info.offset // mmap.PAGESIZE * mmap.PAGESIZE
        mapped.madvise(getattr(mmap, advice), start, info.offset + info.n_bytes - start)

    def _part(self, info: TensorInfo) -> Part:
        if not self._parts:
            raise ValueError(f"{self.path} is closed")
        return self._parts[info.part]


def open_gguf(path: str | os.PathLike[str], *, any_type: bool = False) -> GGUFFile:
    """Open the model at `path`: a file, or any part of a split set whose other parts lie beside it.

    Every count and offset is checked against the real size of the file. Raises a ModelFileError
    (minfer.gguf.errors lists them) for everything that can be wrong with it. With `any_type` it may hold
    tensors that cannot be decoded: enough to look at what it is.
    """
    parts, tensors = open_parts(Path(path))
    if not any_type:
        require_decoders(tensors, [str(part.path) for part in parts])
    return GGUFFile(parts, tensors)


def open_bytes(data: bytes, name: str = "memory") -> GGUFFile:
    """A model that is in memory as a whole, as if it were the file `name`. Raises as `open_gguf` does."""
    view = memoryview(data)
    part = Part(Path(name), None, view, parse_header(view, name))
    tensors = part.tensors(0)
    require_decoders(tensors, [name])
    return GGUFFile((part,), tensors)


def read_beginning(data: bytes, n_bytes: int, name: str) -> tuple[Metadata, dict[str, TensorInfo]]:
    """Metadata and tensor table of a file of `n_bytes` of which `data` is the beginning.

    Raises TruncatedFileError when that is too little; its `needed_bytes` says how much more to bring,
    and is past `n_bytes` when the file itself is cut off. Otherwise raises as `open_gguf` with `any_type`.
    """
    view = memoryview(data)
    header = parse_header(view, name)
    return Metadata(view, header.entries, name), place_tensors(header, n_bytes, name)
