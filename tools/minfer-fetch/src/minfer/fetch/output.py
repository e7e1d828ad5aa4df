"""What every command of minfer-fetch shares: its flags, and where its words go.

stdout carries data (paths, tables, JSON), stderr everything else. With `--json` a failure is an object on
stdout too.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from minfer.cli.progress import MODES, printable, progress_view
from minfer.core.errors import MinferError
from minfer.store.progress import OnProgress

_Command = TypeVar("_Command", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Output:
    """How one run of a command speaks."""

    as_json: bool
    quiet: bool
    progress_mode: str

    def say(self, text: str) -> None:
        """A line for the person at the terminal."""
        if not self.quiet and self.progress_mode != "json":
            click.echo(printable(text), err=True)

    def line(self, text: str) -> None:
        """A line of data. Undecodable bytes of file names leave as they came."""
        sys.stdout.flush()
        sys.stdout.buffer.write(text.encode("utf-8", "surrogateescape") + b"\n")

    def data(self, value: object) -> None:
        """The answer for a program."""
        click.echo(json.dumps(value, indent=None if self.progress_mode == "json" else 2))

    @contextmanager
    def working(self) -> Iterator[OnProgress]:
        """The body of a command: shows progress; with `--json` turns an error into an object on stdout."""
        try:
            with progress_view("none" if self.quiet else self.progress_mode) as on_progress:
                yield on_progress
        except MinferError as error:
            if not self.as_json:
                raise
            from minfer.store.wire import error_to_json

            self.data({"error": error_to_json(error)})
            if self.progress_mode != "json":
                click.echo(error.render(), err=True)
            raise click.exceptions.Exit(error.exit_status) from error


def output_flags(command: _Command) -> _Command:
    """Add `--json`, `-q`, `--progress` and `--verbose`; the command gets one `output`."""
    from functools import wraps

    @wraps(command)
    def with_output(as_json: bool, quiet: bool, progress_mode: str, verbose: bool, **rest: object) -> object:
        return command(output=Output(as_json, quiet, progress_mode), **rest)

    wrapped: Any = with_output
    for option in reversed(
        (
            click.option("--json", "as_json", is_flag=True, help="Print JSON."),
            click.option("-q", "--quiet", is_flag=True, help="Print nothing but the answer and errors."),
            click.option(
                "--progress",
                "progress_mode",
                type=click.Choice(MODES),
                default="auto",
                show_default=True,
                help="How to show progress on stderr; auto: bars on a terminal, plain lines elsewhere.",
            ),
            click.option("--verbose", is_flag=True, help="Show the details of unexpected failures."),
        )
    ):
        wrapped = option(wrapped)
    return wrapped  # type: ignore[no-any-return]
