"""Several downloads at a time, with everything that is said about them said in the caller's own thread."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from minfer.store.progress import OnProgress, Progress

_HEARTBEAT_S = 0.5
_JOIN_S = 5.0

T = TypeVar("T")
Task = Callable[[OnProgress], T]


class Crew(Generic[T]):
    """Runs `tasks` in at most `n_threads` threads; each gets a function that reports progress.

    Threads are needed because hashing, writing and receiving all release the GIL. `stop` is called as soon as
    one task fails or the caller is interrupted, and has to make the others end.
    """

    def __init__(self, tasks: list[Task[T]], n_threads: int, stop: Callable[[], None]) -> None:
        self._waiting = deque(enumerate(tasks))
        self._results: dict[int, T] = {}
        self._n_tasks = len(tasks)
        self._n_threads = max(1, min(n_threads, len(tasks)))
        self._stop = stop
        self._reports: queue.SimpleQueue[Progress | BaseException | None] = queue.SimpleQueue()

    def run(self, on_progress: OnProgress) -> list[T]:
        """The results in the order of the tasks. Raises the first failure; the others have ended by then.

        `on_progress` may raise to stop everything: that is how a caller cancels. When nothing moves, it hears
        the last event again, twice a second.
        """
        threads = [threading.Thread(target=self._work, daemon=True) for _ in range(self._n_threads)]
        for thread in threads:
            thread.start()
        try:
            failure = self._listen(on_progress)
        except BaseException:
            self._end(threads)
            raise
        if failure is not None:
            self._end(threads)
            raise failure
        return [self._results[index] for index in range(self._n_tasks)]

    def _listen(self, on_progress: OnProgress) -> BaseException | None:
        n_working = self._n_threads
        last: Progress | None = None
        while n_working:
            try:
                report = self._reports.get(timeout=_HEARTBEAT_S)
            except queue.Empty:
                if last is not None:
                    on_progress(last)
                continue
            if report is None:
                n_working -= 1
            elif isinstance(report, BaseException):
                return report
            else:
                on_progress(report)
                last = report if report.n_done is not None else last
        return None

    def _work(self) -> None:
        try:
            for index, task in self._tasks():
                self._results[index] = task(self._reports.put)
        except BaseException as error:  # noqa: BLE001 — handed to the caller's thread, which raises it
            self._reports.put(error)
        else:
            self._reports.put(None)

    def _tasks(self) -> Iterator[tuple[int, Task[T]]]:
        while True:
            try:
                yield self._waiting.popleft()
            except IndexError:
                return

    def _end(self, threads: list[threading.Thread]) -> None:
        self._waiting.clear()
        self._stop()
        for thread in threads:
            thread.join(_JOIN_S)
