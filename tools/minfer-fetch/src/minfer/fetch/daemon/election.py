"""Who may listen at a socket: the holder of the lock beside it.

A gRPC server takes over a live socket without a word, and the loser's exit unlinks the winner's. So the lock
is taken before binding and held to the end of the process; its file is never removed.
"""

from __future__ import annotations

import fcntl
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from minfer.store.daemon import is_listening

_POLL_S = 0.05


@contextmanager
def elected(socket: Path, wait_s: float) -> Iterator[bool]:
    """True for the one process that may bind `socket`, for as long as the block lasts.

    A daemon that is leaving has the lock for a moment longer: waits at most `wait_s`, and for one that
    listens not at all.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(f"{socket}.lock", flags, 0o600)
    try:
        yield _has_lock(descriptor, socket, time.monotonic() + wait_s)
    finally:
        os.close(descriptor)


def _has_lock(descriptor: int, socket: Path, deadline: float) -> bool:
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if is_listening(socket) or time.monotonic() > deadline:
                return False
            time.sleep(_POLL_S)
        else:
            return True


def remove_stale(socket: Path) -> None:
    """Remove what a dead daemon left at `socket`; for the elected only. Raises OSError for other things."""
    try:
        status = socket.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(status.st_mode):
        raise FileExistsError(f"{str(socket)!r} is no socket")
    socket.unlink()
