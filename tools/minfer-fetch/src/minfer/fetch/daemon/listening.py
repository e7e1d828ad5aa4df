"""Where a daemon listens: always at the socket of its cache, and at a TCP address only when that is asked."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from minfer.core.errors import UsageError
from minfer.store.address import socket_path
from minfer.store.settings import Settings, expand_user
from minfer.store.tcp import BadListenAddressError, TcpAddress, make_token, read_token, token_of

_IDLE_S = 600.0


@dataclass(frozen=True, slots=True)
class Listening:
    """`idle_s`: seconds without work after which the daemon goes, 0: never. `token` is for `tcp`."""

    socket: Path
    idle_s: float
    tcp: TcpAddress | None = None
    token: str = field(default="", repr=False)


def listening(settings: Settings, listen: str, token_file: str, *, may_be_remote: bool) -> Listening:
    """What the flags of `daemon run` and `daemon start` ask for; '' for those that were not written.

    A token file that does not exist is made. Raises UsageError and NoDaemonError.
    """
    socket = socket_path(settings)
    if not listen:
        if token_file or may_be_remote:
            raise UsageError(
                "a token is for a daemon that listens at a TCP address", hint="add --listen 127.0.0.1:PORT"
            )
        return Listening(socket, idle_seconds(settings.environment))
    address = _permitted(TcpAddress.parse(listen), may_be_remote=may_be_remote)
    # no client of a TCP address can start another: it stays, unless somebody says for how long
    idle_s = idle_seconds(settings.environment, default=0)
    return Listening(socket, idle_s, address, _token(settings, token_file))


def _permitted(address: TcpAddress, *, may_be_remote: bool) -> TcpAddress:
    if not address.is_numeric:
        raise BadListenAddressError(
            f"{address.host!r} is a name; to listen, an IP address is needed", hint="such as 127.0.0.1:7411"
        )
    if not address.is_loopback and not may_be_remote:
        raise BadListenAddressError(
            f"other machines can reach {address}, and neither the token nor anything else is encrypted",
            hint="listen at 127.0.0.1 and make a tunnel (ssh -L), or add --allow-remote",
        )
    return address


def _token(settings: Settings, token_file: str) -> str:
    if not token_file:
        return token_of(settings.environment)
    path = Path(expand_user(token_file, settings.environment))
    make_token(path)
    return read_token(path)


def idle_seconds(environment: Mapping[str, str], *, default: float = _IDLE_S) -> float:
    """MINFER_STORE_IDLE. Raises UsageError for what is no number of seconds."""
    text = environment.get("MINFER_STORE_IDLE", "")
    try:
        seconds = float(text) if text else default
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise UsageError(f"MINFER_STORE_IDLE is {text!r}", hint="a number of seconds; 0: stay")
    return seconds
