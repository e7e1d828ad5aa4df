"""Ways of running graphs, and the choice between them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from minfer.core.errors import UsageError

if TYPE_CHECKING:
    from minfer.engine.backends.step import Backend

VARIABLE = "MINFER_KERNELS"


class UnknownBackendError(UsageError):
    """The backend that was asked for does not exist, or not on this machine."""

    code = "unknown-backend"


def choose(name: str | None = None) -> Backend:
    """The backend called `name`, else the one MINFER_KERNELS names, else the best there is.

    Raises UnknownBackendError.
    """
    name = name or os.environ.get(VARIABLE) or "numpy"
    if name != "numpy":
        raise UnknownBackendError(
            f"there is no backend {name!r} on this machine", hint=f"unset {VARIABLE}, or use: numpy"
        )
    from minfer.engine.backends.numpy_backend import NumpyBackend

    return NumpyBackend()
