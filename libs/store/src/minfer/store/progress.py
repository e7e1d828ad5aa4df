"""How a long operation says how far it is: events, printed by tools."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Progress:
    """One step of a transfer. `label` names the file or package; the numbers are bytes.

    An event without numbers is a note for the reader: what is being waited for, what was retried.
    """

    label: str
    n_done: int | None = None
    n_total: int | None = None
    note: str = ""


OnProgress = Callable[[Progress], None]


def ignore_progress(_: Progress) -> None:
    """The listener of callers that do not care."""
