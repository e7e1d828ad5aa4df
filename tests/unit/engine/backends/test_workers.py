"""Threads that share a job."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from minfer.engine.backends.numpy_backend.workers import Workers


@pytest.mark.parametrize("n_threads", [1, 2, 5])
def test_every_piece_is_done_once(n_threads: int) -> None:
    workers = Workers(n_threads)
    for n in [0, 1, 2, 17, 300] * 20:
        done: list[int] = []
        workers.run(done.append, n)
        assert sorted(done) == list(range(n))
    workers.close()


def test_pieces_run_at_the_same_time() -> None:
    meeting = threading.Barrier(3, timeout=30)
    workers = Workers(3)
    workers.run(lambda _piece: meeting.wait(), 3)
    workers.close()


def test_an_error_in_any_thread_reaches_the_caller() -> None:
    workers = Workers(2)
    names: set[str] = set()

    def fail(piece: int) -> None:
        names.add(threading.current_thread().name)
        time.sleep(0.01)
        if piece == 7:
            raise MemoryError("piece 7")

    with pytest.raises(MemoryError, match="piece 7"):
        workers.run(fail, 8)
    assert len(names) == 2
    done: list[int] = []
    workers.run(done.append, 8)
    assert len(done) == 8
    workers.close()


def test_threads_are_as_quiet_about_arithmetic_as_the_program_is() -> None:
    workers = Workers(2)
    zero = np.zeros(1000, np.float32)
    with np.errstate(all="ignore"):
        workers.run(lambda _piece: 1 / zero, 50)  # a warning would be an error
    workers.close()


def test_closing_ends_the_threads() -> None:
    before = set(threading.enumerate())
    workers = Workers(4)
    workers.run(lambda _piece: None, 10)
    started = set(threading.enumerate()) - before
    assert len(started) == 3
    workers.close()
    for thread in started:
        thread.join(5)
    assert not any(thread.is_alive() for thread in started)
