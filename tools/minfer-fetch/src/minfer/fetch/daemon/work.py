"""Long work on behalf of a call, in a thread of its own, so that the call can end it at any moment."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from minfer.core.errors import MinferError
from minfer.fetch.daemon.activity import Activity
from minfer.fetch.download.errors import CancelledError
from minfer.store.progress import Progress

_N_EVENTS = 256  # more progress than that is not kept for a slow reader
_JOIN_S = 8.0

T = TypeVar("T")
E = TypeVar("E")


class Crash(MinferError):  # noqa: N818 — it wraps one
    """A fault of minfer-fetch itself; its traceback is in the daemon's log."""

    code = "daemon-crash"


class Work(Generic[E, T]):
    """Runs `task(emit)`; what it emits comes out of `events`, what it returns out of `result`.

    `emit` raises CancelledError once the work is cancelled, which is how tasks are stopped: what they have
    verified by then stays. A reader that is slow misses progress, nothing else.
    """

    def __init__(self, activity: Activity, task: Callable[[Callable[[E], None]], T]) -> None:
        self._activity = activity
        self._task = task
        self._events: queue.SimpleQueue[E | None] = queue.SimpleQueue()
        self._cancelled = threading.Event()
        self._result: list[T] = []
        self._failure: MinferError = Crash("the daemon failed", hint="see its log beside its socket")
        activity.begin_work()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def cancel(self) -> None:
        """Make the task stop at its next event."""
        self._cancelled.set()

    def join(self) -> None:
        """Wait a while for a cancelled task to put its work away."""
        self._thread.join(_JOIN_S)

    def wait(self) -> None:
        """Until the task has ended."""
        self._thread.join()

    def events(self) -> Iterator[E]:
        """What the task emits, until it ends."""
        while (event := self._events.get()) is not None:
            yield event

    def result(self) -> T:
        """What the task returned, once `events` has ended; raises the task's error."""
        if not self._result:
            raise self._failure
        return self._result[0]

    def _run(self) -> None:
        try:
            self._result.append(self._task(self._emit))
        except MinferError as error:
            self._failure = error
        finally:
            self._activity.end_work()
            self._events.put(None)

    def _emit(self, event: E) -> None:
        if self._cancelled.is_set() or self._activity.leaving.is_set():
            raise CancelledError("the download was stopped", hint="run the same command again to go on")
        if not isinstance(event, Progress) or self._events.qsize() < _N_EVENTS:
            self._events.put(event)
