"""The bytes of an unfinished download, and the journal that says how far they can be trusted.

`<key>.partial` grows from the front and never has the final name. `<key>.json` beside it records, every
64 MiB, the sha256 of everything up to there, written only after those bytes were synced to the disk:

    {"version": 1, "n_bytes": N, "sha256": "...", "etag": "...", "path": "hf/ORG/REPO/FILE.gguf",
     "boot": "...", "checkpoints": [[67108864, "sha256 of the prefix"], ...]}

To resume, the prefix is read and hashed again and each checkpoint compared. Bytes behind the last checkpoint
count only within the same boot: death of the process cannot lose what `write` took, a power cut can.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import BoundedSemaphore, Lock
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from minfer.store.locks import STATE_DIRECTORY

if TYPE_CHECKING:
    pass

CHECKPOINT_BYTES = 64 * 1024 * 1024
_READ_BYTES = 1024 * 1024
_BATCHES_AHEAD = 16  # how far writing may be ahead of hashing
_MAX_JOURNAL_BYTES = 4 * 1024 * 1024
_VERSION = 1
_sync_data = getattr(os, "fdatasync", os.fsync)  # macOS has no fdatasync


@dataclass(frozen=True, slots=True)
class Identity:
    """What the partial is a part of; a journal of something else is worth nothing."""

    n_bytes: int
    sha256: str
    etag: str
    path: str


def partial_directory(cache: Path) -> Path:
    """Where unfinished downloads, their journals and locks are."""
    return cache / STATE_DIRECTORY / "partial"


def n_bytes_of(cache: Path, key: str) -> int:
    """Bytes of an unfinished download of `key`, not yet checked again; 0 when there are none."""
    try:
        return (partial_directory(cache) / f"{key}.partial").stat().st_size
    except OSError:
        return 0


class Partial:
    """An unfinished file, opened for appending. Owned by one process: the caller holds the lock.

    `n_bytes_here` is how many bytes stand; `append` adds to them, `truncate` gives all of them up.
    A context manager; leaving it keeps the bytes.
    """

    def __init__(self, directory: Path, key: str) -> None:
        """Raises OSError."""
        self.path = directory / f"{key}.partial"
        self.journal_path = directory / f"{key}.json"
        self.n_bytes_here = 0
        self.etag = ""
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        self._descriptor = os.open(self.path, flags, 0o666)
        if not stat.S_ISREG(os.fstat(self._descriptor).st_mode):
            os.close(self._descriptor)
            raise OSError(f"{self.path} is not a regular file")
        self._hash = hashlib.sha256()
        self._checkpoints: list[tuple[int, str]] = []
        self._identity = Identity(0, "", "", "")
        self._hashing = ThreadPoolExecutor(1, thread_name_prefix="sha256")
        self._syncing = ThreadPoolExecutor(1, thread_name_prefix="sync")
        self._room = BoundedSemaphore(_BATCHES_AHEAD)
        self._failure: list[BaseException] = []
        self._journal_lock = Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._hashing.shutdown()
        self._syncing.shutdown()
        os.close(self._descriptor)

    def resume(self, identity: Identity, on_checked: Callable[[int, int], None]) -> None:
        """Keep what an earlier attempt left, as far as it can be trusted; `on_checked(n_done, n_here)`.

        Raises OSError.
        """
        self._identity = identity
        journal = _read_journal(self.journal_path)
        size = os.fstat(self._descriptor).st_size
        n_trusted = _trusted_bytes(journal, identity, size)
        checkpoints = [(offset, digest) for offset, digest in journal.checkpoints if offset <= n_trusted]
        self.n_bytes_here = self._check_prefix(n_trusted, checkpoints, on_checked)
        self.etag = journal.etag if self.n_bytes_here else ""
        os.ftruncate(self._descriptor, self.n_bytes_here)
        os.lseek(self._descriptor, self.n_bytes_here, os.SEEK_SET)
        self._write_journal()

    def append(self, data: bytes) -> None:
        """Write `data` behind what is here and hash it in another thread. Raises OSError."""
        if self._failure:
            raise self._failure[0]
        _write_all(self._descriptor, data)
        before = self.n_bytes_here
        self.n_bytes_here += len(data)
        self._room.acquire()
        self._watch(self._hashing.submit(self._hash_data, data))
        if before // CHECKPOINT_BYTES != self.n_bytes_here // CHECKPOINT_BYTES:
            self._watch(self._hashing.submit(self._note_checkpoint, self.n_bytes_here))

    def truncate(self, etag: str = "") -> None:
        """Give up every byte: they are of something else. `etag`: what is about to come. Raises OSError."""
        self._drain()
        self._hash = hashlib.sha256()
        self._checkpoints = []
        self.n_bytes_here = 0
        self.etag = etag
        os.ftruncate(self._descriptor, 0)
        os.lseek(self._descriptor, 0, os.SEEK_SET)
        self._write_journal()

    def remember_etag(self, etag: str) -> None:
        """Record which version of the remote file these bytes are of. Raises OSError."""
        if etag != self.etag:
            self.etag = etag
            self._write_journal()

    def digest(self) -> str:
        """The sha256 of all that is here, 64 hex digits."""
        self._drain()
        return self._hash.hexdigest()

    def head(self, n_bytes: int) -> bytes:
        """The first bytes of the file."""
        return os.pread(self._descriptor, n_bytes, 0)

    def discard(self) -> None:
        """Remove the file and its journal: they are of no use to a later attempt."""
        self.path.unlink(missing_ok=True)
        self.forget_journal()

    def forget_journal(self) -> None:
        """Remove the journal, once the file has its final name."""
        self.journal_path.unlink(missing_ok=True)

    def _check_prefix(
        self, n_trusted: int, checkpoints: list[tuple[int, str]], on_checked: Callable[[int, int], None]
    ) -> int:
        """Hash the first `n_trusted` bytes; how many of them hold, with `_hash` and `_checkpoints` set."""
        offset = 0
        for end, expected in [*checkpoints, (n_trusted, "")]:
            here = self._hash.copy()
            start = offset
            while offset < end:
                piece = os.pread(self._descriptor, min(_READ_BYTES, end - offset), offset)
                if not piece:
                    break
                here.update(piece)
                offset += len(piece)
                on_checked(offset, n_trusted)
            if offset < end or (expected and here.hexdigest() != expected):
                return start
            self._hash = here
            if expected:
                self._checkpoints.append((end, expected))
        return offset

    def _hash_data(self, data: bytes) -> None:
        try:
            self._hash.update(data)
        finally:
            self._room.release()

    def _note_checkpoint(self, offset: int) -> None:
        """In the hashing thread: the digest so far goes to the syncing thread."""
        self._watch(self._syncing.submit(self._sync_checkpoint, offset, self._hash.hexdigest()))

    def _sync_checkpoint(self, offset: int, digest: str) -> None:
        _sync_data(self._descriptor)
        self._checkpoints.append((offset, digest))
        self._write_journal()

    def _watch(self, future: Future[None]) -> None:
        future.add_done_callback(self._note_failure)

    def _note_failure(self, future: Future[None]) -> None:
        error = future.exception()
        if error is not None:
            self._failure.append(error)

    def _drain(self) -> None:
        """Wait until all is hashed and journalled."""
        self._hashing.submit(int).result()
        self._syncing.submit(int).result()
        if self._failure:
            raise self._failure[0]

    def _write_journal(self) -> None:
        values = {
            "version": _VERSION,
            "n_bytes": self._identity.n_bytes,
            "sha256": self._identity.sha256,
            "etag": self.etag,
            "path": self._identity.path,
            "boot": _boot(),
            "checkpoints": self._checkpoints,
        }
        with self._journal_lock:
            _replace_json(self.journal_path, values)


@dataclass(frozen=True, slots=True)
class _Journal:
    n_bytes: int = -1
    sha256: str = ""
    etag: str = ""
    boot: str = ""
    checkpoints: tuple[tuple[int, str], ...] = ()


def _trusted_bytes(journal: _Journal, identity: Identity, size: int) -> int:
    """How many of the `size` bytes on disk may be part of `identity`, before they are hashed again."""
    same = (journal.n_bytes, journal.sha256) == (identity.n_bytes, identity.sha256)
    # Without an announced digest only the server's own version mark ties old bytes to new ones.
    if not same or not (identity.sha256 or journal.etag):
        return 0
    if journal.boot == _boot() and size <= identity.n_bytes:
        return size
    return max(
        (offset for offset, _ in journal.checkpoints if offset <= min(size, identity.n_bytes)), default=0
    )


def _read_journal(path: Path) -> _Journal:
    """The journal at `path`; an empty one when it is missing or makes no sense."""
    try:
        with path.open("rb") as file:
            values: Any = json.loads(file.read(_MAX_JOURNAL_BYTES))
        if values["version"] != _VERSION:
            return _Journal()
        return _Journal(
            int(values["n_bytes"]),
            str(values["sha256"]),
            str(values["etag"]),
            str(values["boot"]),
            tuple(sorted((int(offset), str(digest)) for offset, digest in values["checkpoints"])),
        )
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return _Journal()


def _replace_json(path: Path, values: dict[str, Any]) -> None:
    replacement = path.with_suffix(".json.new")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(replacement, flags, 0o666), "w", encoding="ascii") as file:
        json.dump(values, file)
        file.flush()
        _sync_data(file.fileno())
    os.replace(replacement, path)


def _write_all(descriptor: int, data: bytes) -> None:
    written = os.write(descriptor, data)
    while written < len(data):  # a nearly full disk takes a part and refuses the rest with an errno
        written += os.write(descriptor, memoryview(data)[written:])


def _boot() -> str:
    """An identifier of this boot of the machine; '' (which no journal trusts) where there is none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return f"no boot id, process {os.getpid()}"
