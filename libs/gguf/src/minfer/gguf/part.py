"""One file on disk: identified, mapped, its header read, its tensors placed and checked."""

from __future__ import annotations

import mmap
import os
import stat
from dataclasses import dataclass
from math import prod
from pathlib import Path

from minfer.gguf.blocks import FORMATS
from minfer.gguf.errors import (
    DOWNLOAD_AGAIN,
    CorruptFileError,
    GitLFSPointerError,
    ModelFileMissingError,
    ModelFileUnreadableError,
    ModelIsDirectoryError,
    NotGGUFError,
    TensorTypeError,
    TruncatedFileError,
    WebPageError,
)
from minfer.gguf.header import MAGIC, Header, RawTensor, parse_header
from minfer.gguf.types import QuantType

_SNIFF_BYTES = 1024
_MAX_CANDIDATES = 50
_OTHER_FORMATS = (
    (b"PK\x03\x04", "a zip archive (PyTorch weights, perhaps)"),
    (b"tjgg", "the GGJT format that came before GGUF"),
    (b"lmgg", "the GGML format that came before GGUF"),
    (b"\x1f\x8b", "a gzip archive"),
)


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """A stored tensor. `shape` is in numpy's order (slowest dimension first: the file's, reversed);
    `offset` is its first byte in the file `parts[part]`, which holds `n_bytes` of it."""

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
    """A mapped file with its header; `view` is read-only and as long as the file."""

    path: Path
    map: mmap.mmap
    view: memoryview
    header: Header

    def tensors(self, part: int) -> dict[str, TensorInfo]:
        """The tensors of this file, placed; `part` is its index in its set. Raises as `open_part` does."""
        return {raw.name: self._place(raw, part) for raw in self.header.tensors}

    def _place(self, raw: RawTensor, part: int) -> TensorInfo:
        quant = _quant(raw, self.path)
        form = FORMATS[quant]
        if (raw.dimensions[0] if raw.dimensions else 1) % form.block_weights:
            raise CorruptFileError(
                f"{self.path} is corrupt: rows of tensor {raw.name!r} have {raw.dimensions[0]} numbers, "
                f"and {quant.name} stores {form.block_weights} at a time"
            )
        n_bytes = form.n_bytes(prod(raw.dimensions))
        offset = self.header.data_start + raw.offset
        if raw.offset % self.header.alignment:
            raise CorruptFileError(
                f"{self.path} is corrupt: tensor {raw.name!r} is at offset {raw.offset}, "
                f"which is no multiple of {self.header.alignment}"
            )
        self._check_end(raw.name, offset + n_bytes)
        return TensorInfo(raw.name, raw.dimensions[::-1], quant, n_bytes, part, offset)

    def _check_end(self, name: str, end: int) -> None:
        if end <= len(self.view):
            return
        if end > 1 << 44:
            raise CorruptFileError(
                f"{self.path} is corrupt: tensor {name!r} would end at byte {end}, "
                f"and the file has {len(self.view)}"
            )
        raise TruncatedFileError(
            f"{self.path} is cut off: tensor {name!r} ends at byte {end}, and the file has {len(self.view)}",
            needed_bytes=end,
        )


def _quant(raw: RawTensor, path: Path) -> QuantType:
    known = {int(quant) for quant in QuantType}
    quant = QuantType(raw.type_id) if raw.type_id in known else None
    if quant in FORMATS:
        return quant
    kind = quant.name if quant is not None else f"type {raw.type_id}"
    readable = ", ".join(row.name for row in FORMATS)
    raise TensorTypeError(
        f"{path} stores tensor {raw.name!r} as {kind}, which minfer cannot read",
        hint=f"use a file in one of {readable}",
    )


def open_part(path: Path) -> Part:
    """Map the file at `path` and read its header. Raises the ModelFileError that fits what is there."""
    try:
        status = path.stat()
        _check_kind(path, status.st_mode)
        with path.open("rb") as stream:
            head = stream.read(_SNIFF_BYTES)
            if not head.startswith(MAGIC):
                _refuse(path, head)
            mapped = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    except FileNotFoundError:
        raise ModelFileMissingError(f"there is no file {path}", hint=_missing_hint(path)) from None
    except OSError as error:
        raise ModelFileUnreadableError(f"{path} cannot be read: {error.strerror}") from error
    view = memoryview(mapped)
    return Part(path, mapped, view, parse_header(view, str(path)))


def _missing_hint(path: Path) -> str:
    if path.is_symlink():
        return f"it is a link to {os.readlink(path)}, which is gone"
    return "check the spelling"


def _check_kind(path: Path, mode: int) -> None:
    if stat.S_ISDIR(mode):
        candidates = model_files(path)
        hint = "name one of the files in it" if candidates else "there are no .gguf files in it"
        raise ModelIsDirectoryError(f"{path} is a directory", hint=hint, candidates=candidates)
    if not stat.S_ISREG(mode):
        raise ModelFileUnreadableError(f"{path} is not a regular file", hint="name a .gguf file on disk")


def model_files(directory: Path) -> tuple[str, ...]:
    """Paths of the `.gguf` files in `directory`, else in its folders; of split sets the first part."""
    found = sorted(directory.glob("*.gguf")) or sorted(directory.glob("*/*.gguf"))
    names = [str(path) for path in found if path.is_file() and not _is_later_part(path)]
    return tuple(names[:_MAX_CANDIDATES])


def _is_later_part(path: Path) -> bool:
    stem, _, count = path.name.removesuffix(".gguf").rpartition("-of-")
    number = stem.rpartition("-")[2]
    return count.isdecimal() and number.isdecimal() and int(number) > 1


def _refuse(path: Path, head: bytes) -> None:
    """Say what the file is instead."""
    if MAGIC.startswith(head):
        raise TruncatedFileError(f"{path} is cut off: it has {len(head)} bytes", needed_bytes=24)
    if head.startswith(b"version https://git-lfs"):
        raise GitLFSPointerError(
            f"{path} is a Git LFS pointer, not the model itself",
            hint="run `git lfs pull` in its repository, or download the file again",
        )
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if text.startswith((b"<!doctype", b"<html", b"<head", b"<?xml", b"<error", b'{"error')):
        raise WebPageError(
            f"{path} is a web page or a server's error text, not a model",
            hint="download the file itself: on a model page, the link named `resolve`, not `blob`",
        )
    for magic, kind in _OTHER_FORMATS:
        if head.startswith(magic):
            raise NotGGUFError(f"{path} is not a GGUF file but {kind}", hint="use the model's GGUF file")
    raise NotGGUFError(
        f"{path} is not a GGUF file: it begins with {head[:4]!r}, not {MAGIC!r}", hint=DOWNLOAD_AGAIN
    )
