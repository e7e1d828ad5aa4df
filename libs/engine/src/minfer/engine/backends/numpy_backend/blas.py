"""BLAS works in the thread that calls it.

The backend shares products out to threads of its own (workers.py says why). numpy's BLAS reads its
thread count from the environment once, when numpy is first imported, which a library cannot time; so it
is set through threadpoolctl, which finds whichever BLAS numpy brought.
"""

from __future__ import annotations

from functools import lru_cache

from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]


@lru_cache(maxsize=1)
def use_one_thread() -> None:
    """Let BLAS use no threads of its own from now on, in the whole process."""
    ThreadpoolController().limit(limits=1, user_api="blas")
