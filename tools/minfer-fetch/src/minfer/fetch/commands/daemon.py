"""minfer-fetch daemon: the process that fetches for everybody, and answers from memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from minfer.cli.commands import HELP
from minfer.core.errors import MinferError
from minfer.core.units import human_bytes, human_seconds
from minfer.fetch.output import Output, output_flags
from minfer.store.settings import Settings

if TYPE_CHECKING:
    from minfer.fetch.daemon.listening import Listening
    from minfer.store.daemon_facts import DetachedPull, Status

_Command = TypeVar("_Command", bound=Callable[..., Any])


class DaemonBusyError(MinferError):
    """A daemon is running and stays as it is: at work, or listening elsewhere."""

    code, exit_status, http_status = "daemon-busy", 1, 409


@click.group(context_settings=HELP)
def daemon() -> None:
    """Run, start, stop or look at the store daemon of the cache.

    Tools start it when they need it, and it ends when nobody has needed it for MINFER_STORE_IDLE seconds
    (default 600; 0: stays). MINFER_STORE_SOCKET names another socket, or the TCP address of a daemon that
    was started with --listen (tcp://HOST:PORT; its token in MINFER_STORE_TOKEN_FILE or MINFER_STORE_TOKEN);
    `off` does without a daemon.
    """


def _listen_flags(command: _Command) -> _Command:
    """Where else to listen than at the socket."""
    wrapped: Any = command
    for option in reversed(
        (
            click.option(
                "--listen",
                default="",
                metavar="HOST:PORT",
                help="Listen at a TCP address too, for callers with the token, until it is stopped.",
            ),
            click.option(
                "--token-file",
                default="",
                metavar="FILE",
                help="The token, mode 600; made if it is not there. Default: that of the environment.",
            ),
            click.option(
                "--allow-remote",
                is_flag=True,
                help="Accept an address that other machines can reach. Nothing is encrypted.",
            ),
        )
    ):
        wrapped = option(wrapped)
    return wrapped  # type: ignore[no-any-return]


@daemon.command(context_settings=HELP)
@_listen_flags
@output_flags
def run(listen: str, token_file: str, allow_remote: bool, output: Output) -> None:
    """Be the daemon, in this process, until it is idle or told to stop."""
    from minfer.fetch.daemon.listening import listening
    from minfer.fetch.daemon.server import serve

    settings = Settings.of()
    with output.working():
        where = listening(settings, listen, token_file, may_be_remote=allow_remote)
        is_done = serve(settings, where, lambda: output.say(f"Listening at {_places(where)}"))
        if not is_done:
            _require_same(where, settings)
    if not is_done:
        output.say(f"A daemon is listening at {_places(where)} already")


@daemon.command(context_settings=HELP)
@_listen_flags
@output_flags
def start(listen: str, token_file: str, allow_remote: bool, output: Output) -> None:
    """Start a daemon in the background, if none is running."""
    from minfer.fetch.daemon.listening import listening
    from minfer.store.daemon import is_listening

    settings = Settings.of()
    with output.working():
        where = listening(settings, listen, token_file, may_be_remote=allow_remote)
        log = Path(f"{where.socket}.log")
        if not is_listening(where.socket):
            _start(settings, where, log)
        _require_same(where, settings)
    output.say(f"The daemon of {settings.cache} is running")
    if output.as_json:
        tcp = str(where.tcp) if where.tcp else None
        output.data({"running": True, "socket": str(where.socket), "tcp": tcp, "log": str(log)})


def _places(where: Listening) -> str:
    return f"{where.socket} and {where.tcp}" if where.tcp else str(where.socket)


def _start(settings: Settings, where: Listening, log: Path) -> None:
    from minfer.fetch.daemon.detaching import detached
    from minfer.store.address import NoDaemonError

    def work(on_ready: Callable[[], None]) -> bool:
        from minfer.fetch.daemon.server import serve

        if serve(settings, where, on_ready):
            return True
        on_ready()  # another one listens there
        return False

    if not detached(log, work):
        raise NoDaemonError("the daemon did not start", hint=f"its last words are in {str(log)!r}")


def _require_same(where: Listening, settings: Settings) -> None:
    """Raises DaemonBusyError when the daemon that runs does not listen at the address that was asked for."""
    if where.tcp is None:
        return
    from minfer.store.daemon_client import DaemonClient

    with DaemonClient(where.socket, settings) as client:
        found = client.status().tcp_address
    if found != str(where.tcp):
        raise DaemonBusyError(
            f"a daemon of this cache is running already, and does not listen at {where.tcp}",
            hint="minfer-fetch daemon stop, then the same again",
        )


@daemon.command(context_settings=HELP)
@click.option("--force", is_flag=True, help="Also when it is at work; downloads keep what is verified.")
@output_flags
def stop(force: bool, output: Output) -> None:
    """Ask the daemon to end."""
    from minfer.store.address import NoDaemonError
    from minfer.store.daemon import reach

    settings = Settings.of()
    was_running = True
    with output.working():
        try:
            with reach(settings) as client:
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
        "tcp": found.tcp_address or None,
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
    if found.tcp_address:
        output.line(f"also listening at {found.tcp_address}, for callers with the token")
    output.line(f"calls in progress: {found.n_calls}")
    for pull in found.pulls:
        output.line(f"{pull.state}: {pull.reference}{_how_far(pull)}")


def _how_far(pull: DetachedPull) -> str:
    if pull.problem:
        return f": {pull.problem}"
    done, total = pull.progress.n_done, pull.progress.n_total
    return "" if done is None or total is None else f", {human_bytes(done)} of {human_bytes(total)}"
