"""The edge of a process: errors become text and an exit status here and nowhere else."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Sequence
from typing import NoReturn

import click

from minfer.cli.streams import OutputLostError, ReaderLeftError, settle_streams
from minfer.core.errors import MinferError

_INTERRUPTED = 130


def main(command: click.Command, name: str, arguments: Sequence[str] | None = None) -> NoReturn:
    """Run `command` as the program `name` and exit with the status that ARCHITECTURE.md lists.

    stdout that was closed by its reader ends the program quietly with 0; Ctrl-C with 130. stdout that
    cannot be written (a full disk) is an error; stderr that cannot be written is not.
    A traceback is shown only for an unexpected failure and only with --verbose.
    """
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # from here on Ctrl-C unwinds
    settle_streams()
    status = _flush_stdout(_run(command, name, arguments))
    gc.freeze()  # all memory goes back at once: the interpreter need not search it for garbage first
    sys.exit(status)


def _run(command: click.Command, name: str, arguments: list[str]) -> int:
    if f"_{name.replace('-', '_').upper()}_COMPLETE" in os.environ:
        command.main(arguments, prog_name=name)  # answers the shell's completion and exits
    try:
        # Not command.main: it exits with 1 when stdout was closed.
        with command.make_context(name, list(arguments)) as context:
            result = command.invoke(context)
    except Exception as error:  # noqa: BLE001 - the one place where anything may end
        return _report(error, verbose="--verbose" in arguments)
    except KeyboardInterrupt:
        return _INTERRUPTED
    return result if isinstance(result, int) else 0


def _report(error: Exception, *, verbose: bool) -> int:
    """Say what ended the program; the exit status."""
    match error:
        case click.exceptions.Exit():
            return error.exit_code
        case click.ClickException():
            error.show(sys.stderr)
            return error.exit_code
        case MinferError():
            click.echo(error.render(), err=True)
            return error.exit_status
        case click.Abort():
            return _INTERRUPTED
        case ReaderLeftError():
            _silence_stdout()
            return 0
    return _unexpected(error, verbose=verbose)


def _unexpected(error: Exception, *, verbose: bool) -> int:
    click.echo(f"Error: unexpected failure: {type(error).__name__}: {error}", err=True)
    if verbose:
        import traceback

        traceback.print_exception(error, file=sys.stderr)
    else:
        click.echo("Hint: run again with --verbose for the details to report", err=True)
    return 1


def _flush_stdout(status: int) -> int:
    """Write what stdout still holds; the exit status after that."""
    try:
        sys.stdout.flush()
    except (BrokenPipeError, ValueError):
        _silence_stdout()
        return 0 if status in (0, 1) else status
    except OutputLostError as error:
        _silence_stdout()
        return status or _report(error, verbose=False)
    return status


def _silence_stdout() -> None:
    """Point stdout at nothing: the interpreter flushes once more when it exits."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.close(nothing)
