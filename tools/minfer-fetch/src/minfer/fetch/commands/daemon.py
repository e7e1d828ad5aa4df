"""minfer-fetch daemon: the process that fetches for everybody, and answers from memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from minfer.cli.commands import HELP
from minfer.core.errors import MinferError, UsageError
from minfer.core.units import human_bytes, human_seconds
from minfer.fetch.output import Output, output_flags
from minfer.store.settings import Settings

if TYPE_CHECKING:
    from minfer.store.daemon_facts import DetachedPull, Status

_IDLE_S = 600.0


class DaemonBusyError(MinferError):
    """The daemon is at work and was not told to drop it."""

    code, exit_status, http_status = "daemon-busy", 1, 409


@click.group(context_settings=HELP)
def daemon() -> None:
    """Run, start, stop or look at the store daemon of the cache.

    Tools start it when they need it, and it ends when nobody has needed it for MINFER_STORE_IDLE seconds
    (default 600; 0: stays). MINFER_STORE_SOCKET names another socket; `off` does without a daemon.
    """


@daemon.command(context_settings=HELP)
@output_flags
def run(output: Output) -> None:
    """Be the daemon, in this process, until it is idle or told to stop."""
    from minfer.store.address import socket_path

    settings = Settings.of()
    with output.working():
        socket, idle_s = socket_path(settings), idle_seconds(settings.environment)
        is_done = _serve(settings, socket, idle_s, lambda: output.say(f"Listening at {socket}"))
    if not is_done:
        output.say(f"A daemon is listening at {socket} already")


@daemon.command(context_settings=HELP)
@output_flags
def start(output: Output) -> None:
    """Start a daemon in the background, if none is running."""
    from minfer.fetch.daemon.detaching import detached
    from minfer.store.address import NoDaemonError, socket_path
    from minfer.store.daemon import is_listening

    settings = Settings.of()
    with output.working():
        socket, idle_s = socket_path(settings), idle_seconds(settings.environment)
        log = Path(f"{socket}.log")
        if not is_listening(socket) and not detached(
            log, lambda ready: _serve(settings, socket, idle_s, ready)
        ):
            raise NoDaemonError("the daemon did not start", hint=f"its last words are in {str(log)!r}")
    output.say(f"The daemon of {settings.cache} is running")
    if output.as_json:
        output.data({"running": True, "socket": str(socket), "log": str(log)})


@daemon.command(context_settings=HELP)
@click.option("--force", is_flag=True, help="Also when it is at work; downloads keep what is verified.")
@output_flags
def stop(force: bool, output: Output) -> None:
    """Ask the daemon to end."""
    from minfer.store.address import NoDaemonError
    from minfer.store.daemon import connect

    settings = Settings.of()
    was_running = True
    with output.working():
        try:
            with connect(settings, may_start=False) as client:
                if not client.leave(even_if_busy=force):
                    raise DaemonBusyError(
                        "the daemon is at work",
                        hint="`minfer-fetch daemon status` shows what it does; --force stops it anyway",
                    )
        except NoDaemonError:
            was_running = False
    output.say(f"{'Stopped' if was_running else 'No daemon is running'} for {settings.cache}")
    if output.as_json:
        output.data({"was_running": was_running})


@daemon.command(context_settings=HELP)
@output_flags
def status(output: Output) -> None:
    """Show whether a daemon is running and what it does."""
    from minfer.store.address import NoDaemonError
    from minfer.store.daemon import connect

    settings = Settings.of()
    with output.working():
        try:
            with connect(settings, may_start=False) as client:
                found = client.status()
        except NoDaemonError as error:
            if output.as_json:
                output.data({"running": False, "reason": error.fact})
            else:
                output.line(f"not running: {error.fact}")
            return
    if output.as_json:
        output.data(_status_data(found))
    else:
        _print(found, output)


def idle_seconds(environment: Mapping[str, str]) -> float:
    """MINFER_STORE_IDLE. Raises UsageError for what is no number of seconds."""
    text = environment.get("MINFER_STORE_IDLE", "")
    try:
        seconds = float(text) if text else _IDLE_S
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise UsageError(f"MINFER_STORE_IDLE is {text!r}", hint="a number of seconds; 0: stay")
    return seconds


def _serve(settings: Settings, socket: Path, idle_s: float, on_ready: Callable[[], None]) -> bool:
    from minfer.fetch.daemon.server import serve

    if serve(settings, socket, idle_s, on_ready):
        return True
    on_ready()  # another one listens there
    return False


def _status_data(found: Status) -> dict[str, Any]:
    return {
        "running": True,
        "pid": found.server.pid,
        "version": found.server.version,
        "api_major": found.server.api_major,
        "cache": str(found.server.cache),
        "uptime_s": found.uptime_s,
        "idle_s": found.idle_s,
        "n_calls": found.n_calls,
        "n_models": found.n_models,
        "is_watching": found.is_watching,
        "pulls": [
            {
                "reference": pull.reference,
                "state": pull.state,
                "problem": pull.problem,
                "done": pull.progress.n_done,
                "total": pull.progress.n_total,
            }
            for pull in found.pulls
        ],
    }


def _print(found: Status, output: Output) -> None:
    server = found.server
    output.line(
        f"running: process {server.pid}, version {server.version}, for {human_seconds(found.uptime_s)}"
    )
    output.line(f"cache: {server.cache}, {found.n_models} models")
    output.line(f"calls in progress: {found.n_calls}")
    for pull in found.pulls:
        output.line(f"{pull.state}: {pull.reference}{_how_far(pull)}")


def _how_far(pull: DetachedPull) -> str:
    if pull.problem:
        return f": {pull.problem}"
    done, total = pull.progress.n_done, pull.progress.n_total
    return "" if done is None or total is None else f", {human_bytes(done)} of {human_bytes(total)}"
