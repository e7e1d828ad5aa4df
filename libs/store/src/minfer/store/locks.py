"""Lock files in the cache: one download per model, and no removal of a model in use.

Both are `flock` on files below `.minfer/locks`, so death releases them, however it comes. The files are never
deleted: that would let two processes hold two different files of one name. A model is named by its path in
the cache (part 1 of a split set); before a source has said which file that will be, by its directory
(`pypi/PACKAGE`).
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from minfer.core.errors import MinferError

STATE_DIRECTORY = ".minfer"  # everything in the cache that is not a model: locks, records, partial files

_WAIT_S = 0.2


class ModelInUseError(MinferError):
    """A tool holds the model, so it may not be removed or replaced."""

    code, exit_status, http_status = "model-in-use", 1, 409


class Hold:
    """A model kept from removal until `release`, the end of a `with`, or the end of the process."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    def release(self) -> None:
        """Let the model go; a second call does nothing."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> Hold:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def hold(cache: Path, model: str) -> Hold:
    """Keep `model` from being removed. In a cache that cannot be written to, nobody can remove it either."""
    try:
        descriptor = _open(cache, model, "hold")
    except OSError:
        try:  # made by another user, who may remove models: a shared lock needs only to read it
            path = lock_path(cache, model, "hold")
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            descriptor = os.open(os.devnull, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    return Hold(descriptor)


@contextmanager
def removing(cache: Path, model: str) -> Iterator[None]:
    """Own `model` alone for a removal or replacement. Raises ModelInUseError when a tool holds it."""
    descriptor = _open(cache, model, "hold")
    try:
        if not _try_lock(descriptor):
            raise ModelInUseError(
                f"{model} is in use by a running tool", hint="stop that tool first, or add --force"
            )
        yield
    finally:
        os.close(descriptor)


@contextmanager
def downloading(cache: Path, model: str, on_wait: Callable[[], None]) -> Iterator[None]:
    """Be the one process that downloads `model`; while another one is at it, call `on_wait` repeatedly.

    `on_wait` may show how far the other one is, and may raise to stop waiting. Afterwards, look again before
    downloading: the other process has probably finished the work.
    """
    descriptor = _open(cache, model, "download")
    try:
        while not _try_lock(descriptor):
            on_wait()
            time.sleep(_WAIT_S)
        yield
    finally:
        os.close(descriptor)


def is_locked(cache: Path, model: str, purpose: str) -> bool:
    """True while some process holds (`purpose` 'hold') or downloads ('download') `model`."""
    try:
        descriptor = os.open(lock_path(cache, model, purpose), os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return not _try_lock(descriptor)
    finally:
        os.close(descriptor)


def lock_path(cache: Path, model: str, purpose: str) -> Path:
    """The lock file of `model` for `purpose`; a digest, because names of files may be 255 bytes already."""
    name = hashlib.sha256(model.encode(errors="surrogateescape")).hexdigest()[:32]
    return cache / STATE_DIRECTORY / "locks" / f"{name}.{purpose}"


def _open(cache: Path, model: str, purpose: str) -> int:
    path = lock_path(cache, model, purpose)
    path.parent.mkdir(parents=True, exist_ok=True)
    # as readable and writable as the cache is: users who share one have to see each other's locks
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
