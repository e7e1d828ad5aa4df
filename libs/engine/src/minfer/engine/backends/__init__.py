"""Ways of running graphs, and the choice between them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from minfer.core.errors import UsageError

if TYPE_CHECKING:
    from minfer.engine.backends.step import Backend

VARIABLE = "MINFER_KERNELS"
_NUMPY = ("numpy", "numpy-blockwise")


class UnknownBackendError(UsageError):
    """The backend that was asked for does not exist, or not on this machine."""

    code = "unknown-backend"


@dataclass(frozen=True, slots=True)
class Choice:
    """A backend, why it was taken, and what a user should be told about it (empty: nothing).

    is_blockwise: weights shall be decoded at each use, although memory may suffice.
    """

    backend: Backend
    reason: str
    notice: str = ""
    is_blockwise: bool = False


def available() -> tuple[str, ...]:
    """The names `choice` takes on this machine, the best first: instruction sets, then numpy's two ways."""
    try:
        from minfer.engine.backends.native import isas
    except ImportError:  # built without a compiler
        return _NUMPY
    return (*isas(), *_NUMPY)


def choice(name: str | None = None) -> Choice:
    """The backend called `name`, else the one MINFER_KERNELS names, else the best there is.

    Raises UnknownBackendError.
    """
    names = available()
    wanted = name or os.environ.get(VARIABLE)
    if wanted and wanted not in names:
        raise UnknownBackendError(
            f"there is no backend {wanted!r} on this machine",
            hint=f"unset {VARIABLE}, or use one of: {', '.join(names)}",
        )
    if wanted:
        reason = "as asked" if name else f"{VARIABLE}={wanted}"
        return Choice(_backend(wanted), reason, is_blockwise=wanted == "numpy-blockwise")
    if names != _NUMPY:
        return Choice(_backend(names[0]), "the fastest kernels this machine runs")
    return Choice(
        _backend("numpy"),
        "the reference; no compiled kernels are built",
        "minfer was installed without compiled kernels (no C compiler?): the reference kernels "
        "in numpy are used, which are many times slower",
    )


def choose(name: str | None = None) -> Backend:
    """The backend of `choice`."""
    return choice(name).backend


def _backend(name: str) -> Backend:
    if name in _NUMPY:
        from minfer.engine.backends.numpy_backend import NumpyBackend

        return NumpyBackend()
    from minfer.engine.backends.native import NativeBackend

    return NativeBackend(name)
