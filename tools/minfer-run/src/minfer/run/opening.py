"""How the commands that take a MODEL get at it: resolved, held in the cache, open."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

from minfer.engine import LoadOptions, open_model
from minfer.gguf.errors import ModelIsDirectoryError
from minfer.run.oneshot import find_model
from minfer.store import hold

if TYPE_CHECKING:
    from minfer.engine.model import OpenedModel
    from minfer.run.status import Status


@contextmanager
def opened_for(
    command: str, reference: str, status: Status, options: LoadOptions | None = None
) -> Iterator[OpenedModel]:
    """The open model of a `minfer-run COMMAND MODEL`, which nobody removes from the cache meanwhile.

    When it is a directory, its files become command lines that can be pasted.
    """
    resolved = find_model(reference, status)
    with hold(resolved) or nullcontext():
        try:
            opened = open_model(resolved.path, options)
        except ModelIsDirectoryError as error:
            error.candidates = tuple(f"minfer-run {command} {shlex.quote(one)}" for one in error.candidates)
            raise
        with opened:
            yield opened
