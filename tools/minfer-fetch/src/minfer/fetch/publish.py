"""The last step of every download: a verified file gets its final name, durably and in one step."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from minfer.core.errors import TransferError
from minfer.core.units import human_bytes
from minfer.store.locks import STATE_DIRECTORY
from minfer.store.records import Record, write_record


class NoSpaceError(TransferError):
    """The disk of the cache has not enough room."""

    code = "no-space"


class CacheNotWritableError(TransferError):
    """The cache cannot be written to."""

    code = "cache-not-writable"


def partial_path(cache: Path, path: str, suffix: str = "partial") -> Path:
    """Where the unfinished file of `path` (relative to the cache) grows; never ends in .gguf, folder made.

    Raises CacheNotWritableError.
    """
    name = hashlib.sha256(path.encode(errors="surrogateescape")).hexdigest()[:32]
    directory = cache / STATE_DIRECTORY / "partial"
    make_directory(directory)
    return directory / f"{name}.{suffix}"


def make_directory(directory: Path) -> None:
    """Create `directory` and its parents. Raises CacheNotWritableError."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CacheNotWritableError(
            f"the cache directory {str(directory)!r} cannot be made: {error.strerror}",
            hint="set MINFER_MODEL_DIR to a directory that you may write to",
        ) from error


def check_space(cache: Path, n_bytes: int) -> None:
    """Raise NoSpaceError when fewer than `n_bytes` are free where the cache is."""
    existing = cache
    while not existing.exists():
        existing = existing.parent
    free = shutil.disk_usage(existing).free
    if free < n_bytes:
        raise NoSpaceError(
            f"{human_bytes(n_bytes)} are needed below {str(cache)!r} and {human_bytes(free)} are free",
            hint="make room (minfer-fetch rm MODEL, minfer-fetch gc) or set MINFER_MODEL_DIR to another disk",
        )


def disk_error(error: OSError, path: Path) -> TransferError:
    """The typed error for an OSError met while writing `path`."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return NoSpaceError(
            f"the disk is full: {str(path)!r} could not be written",
            hint="what was verified is kept; make room and run the same command again",
        )
    return CacheNotWritableError(
        f"{str(path)!r} cannot be written: {error.strerror}",
        hint="set MINFER_MODEL_DIR to a directory that you may write to",
    )


def publish(cache: Path, partial: Path, record: Record) -> Path:
    """Give the verified file at `partial` the name `record.path` below `cache`; the final path.

    The record goes first: a crash in between leaves a record without its file, which says nothing,
    and never a file that looks unverified. `fetched` and `modified_ns` are filled in here. Raises
    TransferError.
    """
    target = cache / record.path
    make_directory(target.parent)
    try:
        with partial.open("rb") as file:
            os.fsync(file.fileno())
            modified_ns = os.fstat(file.fileno()).st_mtime_ns
        now = datetime.now(UTC).isoformat(timespec="seconds")
        write_record(cache, replace(record, fetched=now, modified_ns=modified_ns))
        make_directory(target.parent)  # once more: while the disk was busy, gc may have met it empty
        os.replace(partial, target)
        sync_directories(target.parent, cache)
    except OSError as error:
        raise disk_error(error, target) from error
    return target


def sync_directories(directory: Path, cache: Path) -> None:
    """Make the names in `directory`, and the directories on the way to it, survive a power cut."""
    while True:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if directory == cache or cache not in directory.parents:
            return
        directory = directory.parent
