"""BLAS threads follow the thread count that was asked for.

numpy's BLAS reads the environment once, when numpy is first imported, which a library cannot time. So
the count is set through threadpoolctl, which finds whichever BLAS numpy brought, and set again only
when another count is wanted.
"""

from __future__ import annotations

from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]


class _Blas:
    """The controller (looking for libraries takes milliseconds) and the count that is in force."""

    controller: ThreadpoolController | None = None
    n_threads = 0


def use_threads(n_threads: int) -> None:
    """Let BLAS use n_threads threads from now on, in the whole process."""
    if _Blas.n_threads == n_threads:
        return
    if _Blas.controller is None:
        _Blas.controller = ThreadpoolController()
    _Blas.controller.limit(limits=n_threads, user_api="blas")
    _Blas.n_threads = n_threads
