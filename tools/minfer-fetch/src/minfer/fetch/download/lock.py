"""One download per content: a lock file that dies with its holder.

The lock is flock on a file in the cache, so that the daemon, child processes and other tools agree. Its
holder may leave a note in it: whoever waited reads that the file was published and need look no further.
"""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path
from types import TracebackType
from typing import Self

_NO_LOCKS_HERE = frozenset({errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})


class FileLock:
    """An exclusive lock on `path`, released by `close` or by the death of the process.

    `is_trusted` is False where the file system knows no locks, or only says so; then the caller must share
    nothing.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.note = b""
        self.is_trusted = True
        self._is_held = False
        self._descriptor = -1

    def try_acquire(self) -> bool:
        """Take the lock if it is free; never waits. `note` then holds what the last holder left."""
        while not self._is_held:
            if self._descriptor < 0:
                self._open()
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            except OSError as error:
                if error.errno not in _NO_LOCKS_HERE:
                    raise
                self.is_trusted = False
            self.note = os.pread(self._descriptor, 4096, 0) or self.note
            if self._is_current():
                self._is_held = True
                self.is_trusted = self.is_trusted and self._excludes_others()
            else:  # the last holder removed the file between our open and our lock: take the new one
                self.close()
        return True

    def leave_note(self, note: bytes) -> None:
        """Tell those who wait now what became of the download; at most 4,096 bytes."""
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, note[:4096], 0)

    def close(self) -> None:
        """Let the next one in; for who still waits: stop waiting.

        The file goes before the lock does, else a later comer could lock a file that nobody else sees.
        """
        if self._is_held and self._is_current():
            self.path.unlink(missing_ok=True)
        self._is_held = False
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _open(self) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        self._descriptor = os.open(self.path, flags, 0o666)

    def _excludes_others(self) -> bool:
        """False on file systems where flock says yes to everybody."""
        second = os.open(self.path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(second)
        return False

    def _is_current(self) -> bool:
        ours = os.fstat(self._descriptor)
        try:
            there = os.stat(self.path, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return (ours.st_dev, ours.st_ino) == (there.st_dev, there.st_ino)
