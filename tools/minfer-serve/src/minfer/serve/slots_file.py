"""The prefix cache in a file: what it holds, and how a file that is not ours is told.

    magic · length of the header, 8 bytes · header in JSON · blocks in the header's order · SHA-256 of all

The header names the fingerprint of the model and, for each block, its group and its digest. Digests carry
the mark of the API key, so what one key left is found by that key alone after a restart too.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from minfer.core.errors import UsageError

if TYPE_CHECKING:
    from minfer.engine.kv_cache import KVCache

_MAGIC: Final = b"minfer-slots-2\n"
_MOST_HEADER: Final = 64 << 20


class SlotsFileError(UsageError):
    """The file cannot be written, or does not fit this server."""

    code, http_status = "slots-file-unusable", 409


def save(cache: KVCache, path: Path, fingerprint: str) -> int:
    """Write every known block; the number of blocks. A failure leaves an older file as it was."""
    rows: list[tuple[int, str]] = []
    blocks: list[bytes] = []
    for group, digest, data in cache.export_known():
        rows.append((group, digest.hex()))
        blocks.append(data)
    header = json.dumps({"fingerprint": fingerprint, "blocks": rows}).encode()
    checksum = hashlib.sha256()
    partial = path.with_name(f"{path.name}.partial")
    try:
        with partial.open("wb") as file:
            for data in (_MAGIC, len(header).to_bytes(8, "little"), header, *blocks):
                checksum.update(data)
                file.write(data)
            file.write(checksum.digest())
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise SlotsFileError(f"{path} cannot be written: {error.strerror}") from None
    return len(rows)


def restore(cache: KVCache, path: Path, fingerprint: str) -> int:
    """Take in the blocks of a file; how many were new and had room. Raises SlotsFileError."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise SlotsFileError(f"{path} cannot be read: {error.strerror}") from None
    header, start = _header(data, path)
    if header.get("fingerprint") != fingerprint:
        raise SlotsFileError(
            f"{path} is of another model, quantization or version", hint="save it again with this server"
        )
    sizes = [len(cache.store.read_block(group, 0)) for group in range(len(cache.n_free))]
    rows = _rows(header, len(sizes), path)
    if start + sum(sizes[group] for group, _ in rows) + 32 != len(data):
        raise SlotsFileError(f"{path} does not hold the blocks that it lists")
    n_taken = 0
    for group, digest in rows:
        n_taken += cache.import_known(group, digest, data[start : start + sizes[group]])
        start += sizes[group]
    return n_taken


def _header(data: bytes, path: Path) -> tuple[dict[str, Any], int]:
    """The header and where the blocks begin, of a file whose checksum is right."""
    if not data.startswith(_MAGIC):
        raise SlotsFileError(f"{path} is not a slots file")
    if hashlib.sha256(data[:-32]).digest() != data[-32:]:
        raise SlotsFileError(f"{path} is damaged: its checksum is wrong")
    first = len(_MAGIC) + 8
    n_bytes = int.from_bytes(data[len(_MAGIC) : first], "little")
    if n_bytes > min(_MOST_HEADER, len(data) - first - 32):
        raise SlotsFileError(f"{path} has no header")
    try:
        header = json.loads(data[first : first + n_bytes])
    except ValueError:
        raise SlotsFileError(f"{path} has no header") from None
    return header if isinstance(header, dict) else {}, first + n_bytes


def _rows(header: dict[str, Any], n_groups: int, path: Path) -> list[tuple[int, bytes]]:
    nonsense = SlotsFileError(f"{path} has a header that makes no sense")
    rows = []
    try:
        for group, digest in header["blocks"]:
            if not (isinstance(group, int) and 0 <= group < n_groups):
                raise nonsense
            rows.append((group, bytes.fromhex(digest)))
    except (KeyError, TypeError, ValueError):
        raise nonsense from None
    return rows
