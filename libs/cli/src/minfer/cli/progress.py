"""Progress of downloads on stderr: bars on a terminal, plain lines elsewhere, JSON for programs."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from minfer.core.units import human_bytes
from minfer.store.progress import OnProgress, Progress, ignore_progress

if TYPE_CHECKING:
    from rich.progress import Progress as Bars
    from rich.progress import TaskID

MODES = ("auto", "bar", "plain", "json", "none")
_SECONDS_BETWEEN_LINES = 5.0
_SECONDS_BETWEEN_EVENTS = 0.1


@contextmanager
def progress_view(mode: str = "auto") -> Iterator[OnProgress]:
    """A listener that shows progress while the block runs. `mode` is one of MODES."""
    if mode == "none":
        yield ignore_progress
    elif mode == "json":
        yield _JsonLines()
    elif mode == "bar" or (mode == "auto" and sys.stderr.isatty()):
        with _bars() as bars:
            yield _Bars(bars)
    else:
        yield _PlainLines()


class _JsonLines:
    """Each event as a JSON object, at most ten a second for each label."""

    def __init__(self) -> None:
        self._last: dict[str, float] = {}

    def __call__(self, event: Progress) -> None:
        from minfer.store.wire import progress_to_json

        now = time.monotonic()
        is_step = event.n_done is not None and event.n_done != event.n_total
        if is_step and now - self._last.get(event.label, 0.0) < _SECONDS_BETWEEN_EVENTS:
            return
        self._last[event.label] = now
        import json

        click.echo(json.dumps(progress_to_json(event)), err=True)


class _PlainLines:
    """A line when something starts, every few seconds, and when it is complete."""

    def __init__(self) -> None:
        self._next: dict[str, float] = {}

    def __call__(self, event: Progress) -> None:
        if event.n_done is None:
            click.echo(printable(f"{event.label}: {event.note}"), err=True)
            return
        now = time.monotonic()
        is_complete = event.n_done == event.n_total
        if is_complete and event.label in self._next and self._next[event.label] == float("inf"):
            return
        if not is_complete and now < self._next.get(event.label, 0.0):
            return
        self._next[event.label] = float("inf") if is_complete else now + _SECONDS_BETWEEN_LINES
        click.echo(printable(_amount(event)), err=True)


def _amount(event: Progress) -> str:
    done = human_bytes(event.n_done or 0)
    if not event.n_total:
        return f"{event.label}: {done}"
    percent = 100 * (event.n_done or 0) // event.n_total
    return f"{event.label}: {percent} % ({done} of {human_bytes(event.n_total)})"


def _bars() -> Bars:
    """One bar a label. rich is imported here: it takes a tenth of a second."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
    from rich.progress import Progress as Bars

    columns = (BarColumn(), DownloadColumn(binary_units=True), TransferSpeedColumn(), TimeRemainingColumn())
    return Bars(TextColumn("{task.description}", markup=False), *columns, console=Console(stderr=True))


class _Bars:
    """Events drawn as bars; notes appear above them."""

    def __init__(self, bars: Bars) -> None:
        self._bars = bars
        self._tasks: dict[str, TaskID] = {}

    def __call__(self, event: Progress) -> None:
        if event.n_done is None:
            self._bars.console.print(printable(f"{event.label}: {event.note}"), markup=False, highlight=False)
            return
        if event.label not in self._tasks:
            self._tasks[event.label] = self._bars.add_task(printable(event.label), total=event.n_total)
        self._bars.update(self._tasks[event.label], completed=event.n_done, total=event.n_total)


def printable(text: str) -> str:
    """`text` with everything that a terminal would obey written as an escape."""
    return "".join(
        letter if letter.isprintable() or letter in "\t\n" else repr(letter)[1:-1] for letter in text
    )
