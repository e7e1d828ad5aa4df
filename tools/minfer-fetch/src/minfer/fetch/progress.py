"""Three ways to show progress: bars on a terminal, plain lines elsewhere, nothing when quiet."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TextIO

from minfer.core.units import human_bytes
from minfer.store.progress import Progress

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

_PLAIN_EVERY_S = 10.0


class Renderer(Protocol):
    """Shows progress until it is closed. A context manager, so that a terminal is always left tidy."""

    def __call__(self, event: Progress) -> None:
        """Show one event."""

    def __enter__(self) -> Renderer:
        """Begin."""

    def __exit__(self, *unused: object) -> None:
        """Leave the terminal as it was found."""


def renderer_for(stream: TextIO, *, is_quiet: bool = False) -> Renderer:
    """Bars on a terminal, plain lines elsewhere, nothing when quiet."""
    if is_quiet:
        return Silent()
    return Bars(stream) if stream.isatty() else PlainLines(stream)


class Silent:
    """Shows nothing."""

    def __call__(self, event: Progress) -> None:
        """Ignore the event."""

    def __enter__(self) -> Silent:
        return self

    def __exit__(self, *unused: object) -> None:
        return None


class PlainLines:
    """A line when a file starts, is complete or has news, and one every ten seconds: for logs and pipes."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._due: dict[str, float] = {}
        self._notes: dict[str, str] = {}

    def __enter__(self) -> PlainLines:
        return self

    def __exit__(self, *unused: object) -> None:
        return None

    def __call__(self, event: Progress) -> None:
        """Write a line, or none when nothing new is worth one."""
        line = self._line(event)
        if line:
            name = f"{printable(event.label)}: " if event.label else ""
            print(name + line, file=self._stream, flush=True)

    def _line(self, event: Progress) -> str:
        note = printable(event.note)
        if event.n_done is None or not event.n_total:
            return note
        now = self._clock()
        is_news = event.label not in self._due or note != self._notes.get(event.label, "")
        if not is_news and now < self._due[event.label]:
            return ""
        self._due[event.label] = now + _PLAIN_EVERY_S
        self._notes[event.label] = note
        if event.n_done == event.n_total:
            return f"{human_bytes(event.n_total)}, {note or 'complete'}"
        at = f"{100 * event.n_done // event.n_total} % of {human_bytes(event.n_total)}"
        return f"{note}, at {at}" if note else f"downloading, at {at}"


class Bars:
    """One bar per file, drawn by rich."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._progress: RichProgress | None = None
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> Bars:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            TextColumn,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )
        from rich.progress import Progress as RichProgress

        self._progress = RichProgress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            DownloadColumn(binary_units=True),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            console=Console(file=self._stream),
        )
        self._progress.start()
        return self

    def __exit__(self, *unused: object) -> None:
        if self._progress:
            self._progress.stop()

    def __call__(self, event: Progress) -> None:
        """Move a bar, or write a line above the bars."""
        if self._progress is None:
            return
        label, note = printable(event.label), printable(event.note)
        if event.n_done is not None and event.n_total:
            text = f"{label} ({note})" if note else label
            self._move(label, text, event.n_done, event.n_total)
        elif note:
            line = f"{label}: {note}" if label else note
            self._progress.console.print(line, markup=False, highlight=False)

    def _move(self, label: str, text: str, n_done: int, n_total: int) -> None:
        if self._progress is None:
            return
        if label not in self._tasks:
            self._tasks[label] = self._progress.add_task(text, total=n_total, completed=n_done)
        self._progress.update(self._tasks[label], completed=n_done, total=n_total, description=text)


def printable(text: str) -> str:
    """`text` without what could move a cursor or reorder a line: such characters become '?'."""
    return "".join(c if c.isprintable() else "?" for c in text)
