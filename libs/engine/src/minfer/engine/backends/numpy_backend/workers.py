"""Threads that share a job piece by piece.

Each piece is done whole by one thread, so results do not depend on how many there are, and whoever is
free takes the next one: a thread that the system lets wait holds nobody up. BLAS's own threads split
each product evenly and spin until the last is done, which costs more than it brings as soon as another
process wants a core.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable

import numpy as np

Task = Callable[[int], object]


class _Job:
    """Pieces 0 … n-1 of a task."""

    def __init__(self, task: Task, n: int) -> None:
        self.error: BaseException | None = None
        self.finished = threading.Lock()
        self.finished.acquire()
        self._task, self._n = task, n
        self._next = itertools.count()
        self._n_left = n
        self._counting = threading.Lock()

    def work(self) -> None:
        """Do pieces until none is left to begin; the last one done opens `finished`."""
        while (piece := next(self._next)) < self._n:
            try:
                self._task(piece)
            except BaseException as error:  # noqa: BLE001 - raised again by the thread that waits
                self.error = error
            with self._counting:
                self._n_left -= 1
                is_last = self._n_left == 0
            if is_last:
                self.finished.release()


class Workers:
    """The calling thread and n_threads - 1 others, which sleep between jobs."""

    def __init__(self, n_threads: int) -> None:
        self._n_helpers = max(0, n_threads - 1)
        self._starts: list[threading.Lock] = []
        self._job: _Job | None = None

    def run(self, task: Task, n_pieces: int) -> None:
        """Call task(0) … task(n_pieces - 1), in any order and thread; return when all are done."""
        if self._n_helpers == 0 or n_pieces < 2:
            for piece in range(n_pieces):
                task(piece)
            return
        job = self._job = _Job(task, n_pieces)
        self._wake()
        job.work()
        job.finished.acquire()
        self._job = None
        if job.error is not None:
            raise job.error

    def close(self) -> None:
        """End the threads; the next job starts new ones."""
        starts, self._starts = self._starts, []
        self._job = None
        for start in starts:
            _open(start)

    def _wake(self) -> None:
        while len(self._starts) < self._n_helpers:
            start = threading.Lock()
            start.acquire()
            self._starts.append(start)
            threading.Thread(target=self._help, args=(start,), daemon=True, name="minfer-numpy").start()
        for start in self._starts:
            _open(start)

    def _help(self, start: threading.Lock) -> None:
        with np.errstate(all="ignore"):  # the setting belongs to a thread
            while True:
                start.acquire()
                if start not in self._starts:
                    return
                job = self._job
                if job is not None:
                    job.work()


def _open(start: threading.Lock) -> None:
    """Let the thread behind the lock go on, now or when it comes back. Only one thread ever opens it."""
    if start.locked():
        start.release()
