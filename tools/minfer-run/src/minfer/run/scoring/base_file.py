"""The file of distributions that a second model is compared with. Little-endian, version 1:

    magic "minferKL", uint32 version, uint32 length of the header, the header as JSON:
        model, backend, n_vocab, n_ctx, n_windows, top
    for each window:
        int32[n_ctx] ids
        for each scored row: float32 log probability of the token that follows,
            uint32[top] likeliest ids, float32[top] their log probabilities, both in falling order
        uint32 CRC-32 of the window's bytes

Only the likeliest ids are kept and the others stand together for the rest of the probability, so a window
takes 2 MiB where the whole distributions of 262,144 tokens would take 128.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Final

from minfer.core.errors import ModelFileError

TOP: Final = 1024
"""Ids kept of each distribution."""

_MAGIC: Final = b"minferKL"
_VERSION: Final = 1
_MAX_HEADER: Final = 1 << 16
_MAX_VOCAB: Final = 1 << 24
_MAX_CTX: Final = 1 << 20
_MAX_WINDOWS: Final = 1 << 20


class BaseFileError(ModelFileError):
    """The file of distributions cannot be read or written."""

    code = "kl-base-file"


@dataclass(frozen=True, slots=True)
class Header:
    """What the file holds."""

    model: str
    backend: str
    n_vocab: int
    n_ctx: int
    n_windows: int
    top: int

    @property
    def n_rows(self) -> int:
        """Scored rows of a window."""
        return self.n_ctx - 1 - self.n_ctx // 2

    @property
    def window_bytes(self) -> int:
        """Bytes of a window, its checksum included."""
        return 4 * self.n_ctx + self.n_rows * (4 + 8 * self.top) + 4


@dataclass(frozen=True, slots=True)
class BaseRow:
    """One distribution, and what it gave to the token that followed."""

    logprob: float
    ids: tuple[int, ...]
    logprobs: tuple[float, ...]


class BaseWriter:
    """Writes a file window by window, under a name of its own until it is complete."""

    def __init__(self, path: Path, header: Header) -> None:
        """Raises BaseFileError when the file cannot be made."""
        self._path = path
        self._partial = path.with_name(path.name + ".partial")
        self._header = header
        words = json.dumps(asdict(header)).encode()
        try:
            self._stream: IO[bytes] = self._partial.open("wb")
            self._stream.write(_MAGIC + struct.pack("<II", _VERSION, len(words)) + words)
        except OSError as error:
            raise _unwritable(path, error) from None

    def add(self, window: Sequence[int], rows: Sequence[BaseRow]) -> None:
        """One window, whose rows are those of the header."""
        top = self._header.top
        parts = [struct.pack(f"<{len(window)}i", *window)]
        parts += [struct.pack(f"<f{top}I{top}f", row.logprob, *row.ids, *row.logprobs) for row in rows]
        data = b"".join(parts)
        try:
            self._stream.write(data + struct.pack("<I", zlib.crc32(data)))
        except OSError as error:
            raise _unwritable(self._path, error) from None

    def close(self, *, is_complete: bool) -> None:
        """Give the file its name, or remove it when it is not complete."""
        try:
            self._stream.close()
            if is_complete:
                self._partial.replace(self._path)
            else:
                self._partial.unlink(missing_ok=True)
        except OSError as error:
            raise _unwritable(self._path, error) from None


class BaseReader:
    """Reads a file window by window."""

    def __init__(self, path: Path) -> None:
        """Raises BaseFileError when it is no such file or its length is not what it says."""
        self._path = path
        try:
            self._stream: IO[bytes] = path.open("rb")
        except OSError as error:
            raise BaseFileError(f"{path} cannot be read: {error.strerror}", hint=_HINT) from None
        try:
            self.header = self._read_header()
        except BaseFileError:
            self._stream.close()
            raise

    def windows(self) -> Iterator[tuple[tuple[int, ...], list[BaseRow]]]:
        """Ids and rows of each window. Raises BaseFileError for damaged ones."""
        header = self.header
        form = struct.Struct(f"<f{header.top}I{header.top}f")
        for number in range(header.n_windows):
            data = self._stream.read(header.window_bytes)
            body, end = data[:-4], data[-4:]
            if len(data) != header.window_bytes or zlib.crc32(body) != struct.unpack("<I", end)[0]:
                raise self._broken(f"its window {number} is damaged")
            ids = struct.unpack_from(f"<{header.n_ctx}i", body)
            rows = [
                BaseRow(values[0], values[1 : header.top + 1], values[header.top + 1 :])
                for values in form.iter_unpack(body[4 * header.n_ctx :])
            ]
            if not all(0 <= id_ < header.n_vocab for id_ in ids) or not all(
                max(row.ids) < header.n_vocab for row in rows
            ):
                raise self._broken(f"its window {number} has ids outside the vocabulary")
            yield ids, rows

    def close(self) -> None:
        """Give the file back."""
        self._stream.close()

    def _read_header(self) -> Header:
        start = self._stream.read(16)
        if len(start) != 16 or start[:8] != _MAGIC:
            raise self._broken("it does not begin like one")
        version, length = struct.unpack("<II", start[8:])
        if version != _VERSION:
            raise self._broken(f"it has version {version}, and this program reads {_VERSION}")
        if length > _MAX_HEADER:
            raise self._broken(f"its header is said to have {length} bytes")
        try:
            header = _checked(json.loads(self._stream.read(length)))
        except (ValueError, TypeError, KeyError, RecursionError):
            raise self._broken("its header cannot be understood") from None
        needed = 16 + length + header.n_windows * header.window_bytes
        if self._path.stat().st_size != needed:
            raise self._broken(f"it has {self._path.stat().st_size} bytes, and its header tells of {needed}")
        return header

    def _broken(self, why: str) -> BaseFileError:
        return BaseFileError(f"{self._path} is no usable file of distributions: {why}", hint=_HINT)


_HINT: Final = "write one with: minfer-run perplexity MODEL -f TEXT --kl-divergence-base FILE"


def _checked(words: dict[str, object]) -> Header:
    """A header whose numbers are within bounds; ValueError otherwise."""
    numbers = {name: words[name] for name in ("n_vocab", "n_ctx", "n_windows", "top")}
    if not all(type(value) is int for value in numbers.values()):
        raise TypeError("numbers are whole")
    n_vocab, n_ctx, n_windows, top = (int(str(value)) for value in numbers.values())
    is_sound = 1 <= top <= n_vocab <= _MAX_VOCAB and 8 <= n_ctx <= _MAX_CTX and 1 <= n_windows <= _MAX_WINDOWS
    if not is_sound or top > TOP:
        raise ValueError("a number is out of bounds")
    return Header(str(words["model"]), str(words["backend"]), n_vocab, n_ctx, n_windows, top)


def _unwritable(path: Path, error: OSError) -> BaseFileError:
    return BaseFileError(
        f"{path} cannot be written: {error.strerror}", hint="choose another path, or make room"
    )
