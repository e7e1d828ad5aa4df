"""Ctrl-C: it stops a running answer, and leaves when it comes twice within two seconds."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_SECONDS = 2.0


class LeaveError(KeyboardInterrupt):
    """Ctrl-C came twice in an answer: the user wants to leave."""


class Interrupts:
    """Remembers the last Ctrl-C."""

    def __init__(self) -> None:
        self._last = -math.inf

    def comes_again(self) -> bool:
        """Note one; whether the one before was less than two seconds ago."""
        now = time.monotonic()
        is_again = now - self._last < _SECONDS
        self._last = now
        return is_again


@contextmanager
def stopping(stop: Callable[[], None]) -> Iterator[None]:
    """While the block runs, Ctrl-C calls `stop`. A second one raises LeaveError when the block has
    ended, so that what was stopped is kept; a third one at once.
    """
    n_seen = 0

    def interrupted(_number: int, _frame: FrameType | None) -> None:
        nonlocal n_seen
        n_seen += 1
        stop()
        if n_seen > 2:
            raise KeyboardInterrupt

    previous = signal.signal(signal.SIGINT, interrupted)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
    if n_seen > 1:
        raise LeaveError
