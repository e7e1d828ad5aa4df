"""The daemon over TCP: only when somebody asks for it, and only with a token.

    MINFER_STORE_SOCKET=tcp://127.0.0.1:7411 MINFER_STORE_TOKEN_FILE=~/.minfer-token minfer-fetch pull …

The token comes from a file or the environment, never from a command line, which every user of a machine can
read. Nothing is encrypted: beyond the machine the way for it is a tunnel.
"""

from __future__ import annotations

import ipaddress
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from minfer.core.errors import UsageError
from minfer.store.settings import expand_user

SCHEME = "tcp://"
TOKEN = "MINFER_STORE_TOKEN"
TOKEN_FILE = "MINFER_STORE_TOKEN_FILE"

_ADDRESS = re.compile(
    r"(?:\[(?P<six>[0-9A-Fa-f:.%\w]+)\]|(?P<host>[A-Za-z0-9.-]+)):(?P<port>\d{1,5})", re.ASCII
)
_TOKEN = re.compile(r"[!-~]{16,512}")


class BadListenAddressError(UsageError):
    """What was written is no address that can be listened at or connected to."""

    code = "bad-listen-address"


class BadTokenError(UsageError):
    """There is no token, or it is one that must not be used."""

    code = "bad-store-token"


@dataclass(frozen=True, slots=True)
class TcpAddress:
    """Where a daemon listens. `host`: an IP address without brackets, or for clients a name."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """`text` is HOST:PORT, an IPv6 address in brackets; 'localhost' means 127.0.0.1.

        Raises BadListenAddressError.
        """
        match = _ADDRESS.fullmatch(text)
        port = int(match["port"]) if match else 0
        if match is None or not 1 <= port <= 65535:
            raise BadListenAddressError(
                f"{text!r} is no address to listen at", hint="write HOST:PORT, such as 127.0.0.1:7411"
            )
        host = match["six"] or match["host"].lower()
        if match["six"] and _ip(host) is None:
            raise BadListenAddressError(f"{host!r} is no IPv6 address", hint="such as [::1]:7411")
        return cls("127.0.0.1" if host == "localhost" else host, port)

    @property
    def is_numeric(self) -> bool:
        """False for a name, which somebody else decides the meaning of."""
        return _ip(self.host) is not None

    @property
    def is_loopback(self) -> bool:
        """True when only this machine can reach it."""
        address = _ip(self.host)
        return address is not None and address.is_loopback

    @property
    def target(self) -> str:
        """The address as gRPC writes it, with the scheme that keeps a host 'unix' from being a socket."""
        address = _ip(self.host)
        return f"dns:///{self}" if address is None else f"ipv{address.version}:{self}"

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def _ip(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def token_of(environment: Mapping[str, str]) -> str:
    """The token that the environment gives, itself or in a file. Raises BadTokenError."""
    if path := environment.get(TOKEN_FILE):
        return read_token(Path(expand_user(path, environment)))
    token = environment.get(TOKEN, "")
    if not token:
        raise BadTokenError(
            "a daemon at a TCP address wants a token, and none is set",
            hint=f"set {TOKEN_FILE} to the file that it is in, or {TOKEN}",
        )
    return _checked(token, TOKEN)


def read_token(path: Path) -> str:
    """The token in the first line of `path`, which nobody else may read. Raises BadTokenError."""
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            line = file.read(1024).partition(b"\n")[0]
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not a file name"
        raise BadTokenError(
            f"the token file {str(path)!r} cannot be read: {reason}",
            hint="`minfer-fetch daemon run --listen HOST:PORT --token-file FILE` makes one",
        ) from error
    if stat.S_ISREG(status.st_mode) and status.st_mode & 0o077:
        raise BadTokenError(f"others may read the token file {str(path)!r}", hint=f"chmod 600 {path}")
    return _checked(line.strip().decode("ascii", "replace"), str(path))


def make_token(path: Path) -> bool:
    """Put a new token at `path`, for its user alone; False when something is there. Raises BadTokenError."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return False
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not a file name"
        raise BadTokenError(f"the token file {str(path)!r} cannot be made: {reason}") from error
    import secrets

    with os.fdopen(descriptor, "w") as file:
        file.write(f"{secrets.token_urlsafe(32)}\n")
    return True


def _checked(token: str, origin: str) -> str:
    if not _TOKEN.fullmatch(token):
        raise BadTokenError(
            f"the token of {origin} is not one word of 16 to 512 printable ASCII characters",
            hint="python3 -c 'import secrets; print(secrets.token_urlsafe(32))' makes a good one",
        )
    return token
