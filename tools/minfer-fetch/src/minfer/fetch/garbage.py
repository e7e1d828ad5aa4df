"""What in the cache serves nobody: unfinished downloads, records without a file, links to nowhere."""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from minfer.fetch.publish import disk_error
from minfer.fetch.removal import prune_directories
from minfer.store.locks import STATE_DIRECTORY
from minfer.store.records import all_records, record_path

_SECONDS_A_DAY = 86_400.0
_SECONDS_TO_WRITE = 60.0  # a record; a younger unfinished one may be somebody's work


@dataclass(frozen=True, slots=True)
class Garbage:
    """One thing that can go. `kind`: 'partial', 'record', 'link', 'directory', 'temporary'."""

    path: Path
    kind: str
    n_bytes: int


def find_garbage(cache: Path, *, older_than_days: float = 0.0) -> tuple[Garbage, ...]:
    """What `sweep` would remove: partial files older than `older_than_days`, and everything orphaned."""
    return (
        *_partials(cache, time.time() - older_than_days * _SECONDS_A_DAY),
        *_orphan_records(cache),
        *_dead_links_and_empty_directories(cache),
    )


def sweep(cache: Path, garbage: Garbage) -> bool:
    """Remove it; False when somebody is using it. Raises CacheNotWritableError."""
    with _unused(cache, garbage) as is_unused:
        if is_unused:
            try:
                _remove(cache, garbage)
            except OSError as error:
                raise disk_error(error, garbage.path) from error
        return is_unused


def _remove(cache: Path, garbage: Garbage) -> None:
    if garbage.kind == "directory":
        prune_directories(cache, garbage.path)
    elif garbage.path.is_dir() and not garbage.path.is_symlink():
        shutil.rmtree(garbage.path)
    else:
        garbage.path.unlink(missing_ok=True)
        if garbage.kind == "link":
            prune_directories(cache, garbage.path.parent)


@contextmanager
def _unused(cache: Path, garbage: Garbage) -> Iterator[bool]:
    """Owns the lock of a partial download while the block runs; True when it was free.

    A download of one content is locked beside its partial file, that of a package under the model's name.
    """
    if garbage.kind != "partial":
        yield True
        return
    stem = garbage.path.name.partition(".")[0]
    candidates = (
        garbage.path.with_name(f"{stem}.lock"),
        cache / STATE_DIRECTORY / "locks" / f"{stem}.download",
    )
    descriptors = []
    try:
        is_free = True
        for path in candidates:
            try:
                descriptors.append(os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW))
                fcntl.flock(descriptors[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                is_free = False
            except OSError:
                continue
        yield is_free
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _partials(cache: Path, before: float) -> Iterator[Garbage]:
    directory = cache / STATE_DIRECTORY / "partial"
    for path in sorted(directory.iterdir()) if directory.is_dir() else ():
        if path.suffix == ".lock":
            continue  # a process may hold it; it is empty
        try:
            n_bytes, changed = _size_and_time(path)
        except OSError:
            continue
        if changed <= before:
            yield Garbage(path, "partial", n_bytes)


def _size_and_time(path: Path) -> tuple[int, float]:
    """Bytes in a file or everything below a directory, and when something there last changed."""
    status = path.lstat()
    n_bytes, changed = (0 if path.is_dir() else status.st_size), status.st_mtime
    for inner in path.rglob("*") if path.is_dir() else ():
        inner_status = inner.lstat()
        n_bytes += 0 if inner.is_dir() else inner_status.st_size
        changed = max(changed, inner_status.st_mtime)
    return n_bytes, changed


def _orphan_records(cache: Path) -> Iterator[Garbage]:
    for record in all_records(cache):
        if not (cache / record.path).exists():
            yield Garbage(record_path(cache, record.path), "record", 0)
    directory = cache / STATE_DIRECTORY / "records"
    for path in sorted(directory.glob("*.tmp")) if directory.is_dir() else ():
        with suppress(OSError):  # its writer has just finished
            if time.time() - path.stat().st_mtime > _SECONDS_TO_WRITE:
                yield Garbage(path, "temporary", 0)


def _dead_links_and_empty_directories(cache: Path) -> Iterator[Garbage]:
    """Links of models to nowhere, and directories below the sources' that hold nothing."""
    for source in ("hf", "ollama", "pypi", "local"):
        for directory, names, files in os.walk(cache / source):
            if not names and not files:
                yield Garbage(Path(directory), "directory", 0)
            for name in files:
                path = Path(directory, name)
                if path.is_symlink() and not path.exists():
                    yield Garbage(path, "link", 0)
