"""How an answer or an error crosses from one process to another: JSON objects, one a line."""

from __future__ import annotations

from typing import Any

from minfer.core.errors import (
    CheckFailedError,
    MinferError,
    ModelFileError,
    ModelNotFoundError,
    TransferError,
    UsageError,
)
from minfer.store.progress import Progress

_FAMILIES: tuple[type[MinferError], ...] = (
    UsageError,
    ModelNotFoundError,
    ModelFileError,
    TransferError,
    CheckFailedError,
)


def error_to_json(error: MinferError) -> dict[str, Any]:
    """`error` as it is printed by `--json`."""
    return {
        "code": error.code,
        "message": error.fact,
        "hint": error.hint,
        "candidates": list(error.candidates),
        "labels": list(error.labels),
        "exit_status": error.exit_status,
    }


def error_from_json(value: dict[str, Any]) -> MinferError:
    """The error again: of its own class where that is known here, else of the family with its exit status."""
    code, status = str(value.get("code", "failure")), value.get("exit_status", 1)
    kind = _known(MinferError, code)
    if kind is None:
        family = next((family for family in _FAMILIES if family.exit_status == status), MinferError)
        kind = type(family.__name__, (family,), {"code": code, "__module__": __name__})
    return kind(
        str(value.get("message", "")),
        hint=str(value.get("hint", "")),
        candidates=tuple(map(str, value.get("candidates", ()))),
        labels=tuple(map(str, value.get("labels", ()))),
    )


def _known(kind: type[MinferError], code: str) -> type[MinferError] | None:
    """The class below `kind` with that code, if it is built as the base is."""
    if kind.code == code and kind.__init__ is MinferError.__init__:
        return kind
    found = (_known(below, code) for below in kind.__subclasses__())
    return next((each for each in found if each is not None), None)


def progress_to_json(event: Progress) -> dict[str, Any]:
    """`event` as a line of `--progress json`."""
    return {"label": event.label, "done": event.n_done, "total": event.n_total, "note": event.note}


def progress_from_json(value: dict[str, Any]) -> Progress:
    """The event again; what is not a number counts as absent."""
    done, total = (number if isinstance(number := value.get(key), int) else None for key in ("done", "total"))
    return Progress(str(value.get("label", "")), done, total, str(value.get("note", "")))
