"""Ways of running graphs, and the choice between them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from minfer.core.errors import UsageError

if TYPE_CHECKING:
    from minfer.engine.backends.step import Backend

VARIABLE = "MINFER_KERNELS"


class UnknownBackendError(UsageError):
    """The backend that was asked for does not exist, or not on this machine."""

    code = "unknown-backend"


@dataclass(frozen=True, slots=True)
class Choice:
    """A backend, why it was taken, and what a user should be told about it (empty: nothing)."""

    backend: Backend
    reason: str
    notice: str = ""


def choice(name: str | None = None) -> Choice:
    """The backend called `name`, else the one MINFER_KERNELS names, else the best there is.

    Raises UnknownBackendError.
    """
    wanted = name or os.environ.get(VARIABLE)
    if wanted not in (None, "numpy"):
        raise UnknownBackendError(
            f"there is no backend {wanted!r} on this machine", hint=f"unset {VARIABLE}, or use: numpy"
        )
    from minfer.engine.backends.numpy_backend import NumpyBackend

    if wanted is None:
        return Choice(NumpyBackend(), "the reference; no compiled kernels are built")
    return Choice(NumpyBackend(), "as asked" if name else f"{VARIABLE}={wanted}")


def choose(name: str | None = None) -> Backend:
    """The backend of `choice`."""
    return choice(name).backend
