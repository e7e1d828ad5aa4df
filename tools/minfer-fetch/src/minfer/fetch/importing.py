"""Bring model files from elsewhere on this disk into the cache: linked when possible, else copied."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from pathlib import Path

from minfer.core.errors import UsageError
from minfer.fetch.download.errors import DestinationTakenError
from minfer.fetch.hashing import hash_file
from minfer.fetch.publish import check_space, disk_error, make_directory, partial_path, publish
from minfer.gguf import open_gguf
from minfer.store.locks import downloading
from minfer.store.progress import OnProgress, Progress
from minfer.store.records import Record, read_record

METHODS = ("auto", "link", "reflink", "copy")
DIRECTORY = "local"
_FICLONE = 0x40049409  # linux/fs.h: share the blocks of another file until one of the two is written


class CannotLinkError(UsageError):
    """The method that was asked for is not possible between these two places."""

    code = "cannot-link"


def import_model(source: Path, cache: Path, method: str, on_progress: OnProgress) -> Path:
    """Give the model at `source` (any part of a split set) a place in the cache; the path to open.

    `method`: 'link' (a hard link: the same file under a second name), 'reflink', 'copy', or 'auto', the first
    of these that works. The digest is recorded, so that `verify` can tell later changes. Raises the errors of
    `open_gguf`, DestinationTakenError, CannotLinkError, NoSpaceError and CacheNotWritableError.
    """
    with open_gguf(source, any_type=True) as model:
        parts = model.parts
    make_directory(cache / DIRECTORY)
    try:
        placed = [_locked_import(part, cache, method, on_progress) for part in reversed(parts)]
    except OSError as error:
        raise disk_error(error, cache / DIRECTORY) from error
    return placed[-1]  # part 1, which comes last


def _locked_import(source: Path, cache: Path, method: str, on_progress: OnProgress) -> Path:
    """One process at a time; `gc` knows from the lock that the unfinished file is somebody's work."""
    waiting = Progress(source.name, note="another process is importing it; waiting")
    with downloading(cache, f"{DIRECTORY}/{source.name}", lambda: on_progress(waiting)):
        return _import_file(source, cache, method, on_progress)


def _import_file(source: Path, cache: Path, method: str, on_progress: OnProgress) -> Path:
    path = f"{DIRECTORY}/{source.name}"
    target = cache / path
    sha256 = hash_file(source, on_progress)
    if target.exists():
        record = read_record(cache, path)
        if record is not None and record.sha256 == sha256 and record.fits(target.stat()):
            return target
        raise DestinationTakenError(
            f"{str(target)!r} is there already and is another file",
            hint=f"give {source.name} another name first, or `minfer-fetch rm {source.stem}`",
        )
    partial = partial_path(cache, path, f"{os.getpid()}.import")
    partial.unlink(missing_ok=True)
    try:
        _bring(source.resolve(), partial, method, cache)
        return publish(cache, partial, Record(path, partial.stat().st_size, sha256))
    finally:
        partial.unlink(missing_ok=True)


def _bring(source: Path, target: Path, method: str, cache: Path) -> None:
    """Make `target` from `source` by the first allowed method that the file systems support."""
    if method in ("auto", "link"):
        try:
            return os.link(source, target)
        except OSError as error:
            _refuse_or_go_on(error, method, source)
    if method in ("auto", "reflink"):
        try:
            return _reflink(source, target)
        except OSError as error:
            _refuse_or_go_on(error, method, source)
    check_space(cache, source.stat().st_size)
    shutil.copyfile(source, target)
    return None


def _refuse_or_go_on(error: OSError, method: str, source: Path) -> None:
    """With 'auto' another method is tried, except when the disk is full."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        raise error
    if method != "auto":
        raise CannotLinkError(
            f"{str(source)!r} cannot be brought in by {method}: {error.strerror}", hint="leave --method out"
        ) from error


def _reflink(source: Path, target: Path) -> None:
    with source.open("rb") as original, target.open("wb") as clone:
        fcntl.ioctl(clone.fileno(), _FICLONE, original.fileno())
