"""How the commands that take a MODEL get at it: resolved, held in the cache, open."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

from minfer.cli.progress import printable, progress_view
from minfer.core.errors import ModelNotFoundError
from minfer.engine import LoadOptions, open_model
from minfer.gguf.errors import ModelIsDirectoryError
from minfer.store import Resolved, hold, resolve

if TYPE_CHECKING:
    from pathlib import Path

    from minfer.engine.model import OpenedModel
    from minfer.run.status import Status


_FOREIGN_WORDS = {
    "run": "leave `run` out: minfer-run MODEL your prompt",
    "chat": "a conversation is started with minfer-run MODEL --cnv",
    "serve": "the server is a program of its own: minfer-serve MODEL",
    **{
        word: f"models are looked after by another program: minfer-fetch {word}"
        for word in ("list", "ls", "pull", "download", "rm")
    },
}
"""First words that other tools have commands for, and what to write here."""


def find_model(reference: str, status: Status) -> Resolved:
    """Where the model is, downloaded when it has to be; said unless the user wrote a path."""
    try:
        with progress_view("none" if status.is_quiet else "auto") as on_progress:
            resolved = resolve(reference, on_progress=on_progress)
    except ModelNotFoundError as error:
        error.hint = _FOREIGN_WORDS.get(reference) or _near_command(reference) or error.hint
        raise
    if not resolved.is_path_like:
        status.say(f"Model ready: {printable(str(resolved.path))}")
    return resolved


def _near_command(word: str) -> str:
    """The command that was meant, if the word is nearly one's name."""
    from difflib import get_close_matches

    from minfer.run.cli import COMMANDS

    near = get_close_matches(word, [row.name for row in COMMANDS], n=1, cutoff=0.75)
    return f"did you mean the command: minfer-run {near[0]} MODEL" if near else ""


def open_path(
    path: Path, options: LoadOptions | None = None, *, before: str = "", after: str = ""
) -> OpenedModel:
    """Open a model file. A directory's models become command lines that can be pasted: the words `before`
    and `after` are what stood around the MODEL."""
    try:
        return open_model(path, options)
    except ModelIsDirectoryError as error:
        error.candidates = tuple(
            " ".join(filter(None, ("minfer-run", before, shlex.quote(one), after)))
            for one in error.candidates
        )
        raise


@contextmanager
def opened_for(
    command: str, reference: str, status: Status, options: LoadOptions | None = None
) -> Iterator[OpenedModel]:
    """The open model of a `minfer-run COMMAND MODEL`, which nobody removes from the cache meanwhile.

    When it is a directory, its files become command lines that can be pasted.
    """
    resolved = find_model(reference, status)
    with hold(resolved) or nullcontext(), open_path(resolved.path, options, before=command) as opened:
        yield opened
