"""Find or start the daemon of a cache; whoever cannot have one does without.

Nothing here imports gRPC before a daemon is known to listen.
"""

from __future__ import annotations

import os
import socket as sockets
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from minfer.store.address import DaemonGoneError, NoDaemonError, daemon_address
from minfer.store.child import NoFetchToolError, fetch_command
from minfer.store.settings import Settings
from minfer.store.tcp import TOKEN, TcpAddress, token_of

if TYPE_CHECKING:
    from minfer.store.daemon_client import DaemonClient

_API_MAJOR = 1
_PROBE_S = 2.0
_LEAVE_S = 5.0
_START_S = 15.0  # a starter that fails says so at once; this is for one that hangs
_SECRETS = (
    "HF_TOKEN",
    "HUGGING_FACE_HUB_TOKEN",
    TOKEN,
)  # travel with requests, a daemon needs none of its own

T = TypeVar("T")


def is_listening(address: Path | TcpAddress) -> bool:
    """True when some process accepts connections there."""
    try:
        if isinstance(address, TcpAddress):
            sockets.create_connection((address.host, address.port), _PROBE_S).close()
            return True
        with sockets.socket(sockets.AF_UNIX, sockets.SOCK_STREAM) as probe:
            probe.settimeout(_PROBE_S)
            probe.connect(str(address))
    except (OSError, UnicodeError):  # UnicodeError: a name that cannot be one of a host
        return False
    return True


def start(settings: Settings, socket: Path) -> None:
    """Start a daemon at `socket` unless one listens. Returns when it does; raises NoDaemonError."""
    try:
        command = [*fetch_command(settings), "daemon", "start", "--quiet"]
        environment = {name: value for name, value in settings.environment.items() if name not in _SECRETS}
        starter = subprocess.Popen(
            command,
            env={**environment, "MINFER_MODEL_DIR": str(settings.cache), "MINFER_STORE_SOCKET": str(socket)},
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for the caller
        )
    except (OSError, NoFetchToolError) as error:
        raise NoDaemonError(f"the daemon cannot be started: {error}") from error
    with starter:
        try:
            _client_type()  # both processes import gRPC, at the same time
            status = starter.wait(_START_S)
        except BaseException as error:
            starter.kill()
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            raise NoDaemonError(f"the daemon did not start within {_START_S:.0f} s") from error
    if status != 0:
        raise NoDaemonError(f"the daemon did not start: minfer-fetch ended with {status}")


def connect(settings: Settings, *, may_start: bool = True) -> DaemonClient:
    """A client of the cache's daemon, which is started when there is none. Raises NoDaemonError.

    A daemon that speaks another major version is asked to leave; one that is busy stays, and is not used.
    One at a TCP address is never started nor replaced. Raises BadTokenError, and TokenRefusedError for a
    wrong one.
    """
    address = daemon_address(settings)
    may_start = may_start and not isinstance(address, TcpAddress)  # perhaps it is of another machine
    gone: DaemonGoneError | None = None
    for _ in range(2):
        if may_start and isinstance(address, Path) and not is_listening(address):
            start(settings, address)
        client = reach(settings)
        try:
            if _is_usable(client, settings, may_replace=may_start):
                return client
        except DaemonGoneError as error:
            gone = error  # it ended after it was seen to listen: start another
        except BaseException:
            client.close()
            raise
        client.close()
        _wait_for_end(address)
    raise gone or NoDaemonError("the daemon speaks another version of the protocol")


def reach(settings: Settings) -> DaemonClient:
    """A client of the daemon that listens, of whatever version: good for `server` and `leave`.

    Raises NoDaemonError when none listens.
    """
    address = daemon_address(settings)
    token = token_of(settings.environment) if isinstance(address, TcpAddress) else ""
    if not is_listening(address):
        where = f"listening at {address}" if token else f"running for {str(settings.cache)!r}"
        raise NoDaemonError(f"no daemon is {where}")
    return _client_type()(address, settings, token)


def _wait_for_end(address: Path | TcpAddress) -> None:
    """Of a daemon that is leaving: it listens for a moment longer."""
    deadline = time.monotonic() + _LEAVE_S
    while is_listening(address) and time.monotonic() < deadline:
        time.sleep(0.05)


def _client_type() -> type[DaemonClient]:
    try:
        from minfer.store.daemon_client import DaemonClient
    except ImportError as error:
        raise NoDaemonError(f"gRPC cannot be used here ({error})") from error
    return DaemonClient


def _is_usable(client: DaemonClient, settings: Settings, *, may_replace: bool) -> bool:
    """False when an unsuitable daemon has agreed to leave, so that another can start."""
    facts = client.server()
    if facts.api_major != _API_MAJOR:
        if may_replace and client.leave():
            return False
        raise NoDaemonError(f"a daemon is there that speaks version {facts.api_major} of the protocol")
    if facts.cache != Path(os.path.realpath(settings.cache)):
        raise NoDaemonError(f"the daemon at that socket serves {str(facts.cache)!r}")
    return True


def with_daemon(settings: Settings, work: Callable[[DaemonClient], T]) -> T:
    """`work` done with a client; once more if the daemon ends meanwhile, which every call allows.

    Raises NoDaemonError when there is no daemon to be had, and what `work` raises.
    """
    try:
        return _once(settings, work)
    except DaemonGoneError:
        return _once(settings, work)


def _once(settings: Settings, work: Callable[[DaemonClient], T]) -> T:
    with connect(settings) as client:
        return work(client)
