"""Where the daemon of a cache listens: a Unix socket in a directory that only its user may enter.

The directory is all the protection there is (a server cannot see who connects), so it is looked at first.
It is never inside the cache or the home: on a shared file system another host's socket looks stale. Callers
whose environment names a TCP address go there instead (`minfer.store.tcp`).
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from minfer.core.errors import TransferError
from minfer.store.settings import Settings
from minfer.store.tcp import SCHEME, TcpAddress

MAX_BYTES = 100  # the system's limit is 108 on Linux and 104 elsewhere
OFF = "off"  # the value of MINFER_STORE_SOCKET that means: no daemon


class NoDaemonError(TransferError):
    """No daemon can serve this cache here; everything works without one, but for what outlives its caller."""

    code = "no-daemon"


class DaemonGoneError(NoDaemonError):
    """The daemon ended before it could answer; asking once more starts another."""

    code = "daemon-gone"


def daemon_address(settings: Settings) -> Path | TcpAddress:
    """Where the caller's daemon is to be reached. Raises NoDaemonError, BadListenAddressError."""
    chosen = settings.environment.get("MINFER_STORE_SOCKET", "")
    if chosen.lower().startswith(SCHEME):
        return TcpAddress.parse(chosen[len(SCHEME) :].removesuffix("/"))
    return socket_path(settings)


def socket_path(settings: Settings) -> Path:
    """The socket of the daemon for `settings.cache`; its directory exists and is private.

    $MINFER_STORE_SOCKET unless that is a TCP address, else a name made from the cache's real path in
    $XDG_RUNTIME_DIR/minfer, else in a directory of the user's below the temporary one. Raises NoDaemonError.
    """
    chosen = settings.environment.get("MINFER_STORE_SOCKET", "")
    if chosen.lower() == OFF:
        raise NoDaemonError("the daemon is switched off by MINFER_STORE_SOCKET")
    if chosen and not chosen.lower().startswith(SCHEME):
        return _checked(Path(chosen).absolute())
    name = hashlib.sha256(os.fsencode(os.path.realpath(settings.cache))).hexdigest()[:16] + ".sock"
    refusals = []
    for directory in _directories(settings.environment):
        try:
            return _checked(directory / name)
        except NoDaemonError as error:
            refusals.append(error.fact)
    raise NoDaemonError("; ".join(refusals))


def _directories(environment: Mapping[str, str]) -> Iterator[Path]:
    runtime = environment.get("XDG_RUNTIME_DIR", "")
    if runtime.startswith("/"):
        yield Path(runtime) / "minfer"
    temporary = environment.get("TMPDIR", "")
    yield Path(temporary if temporary.startswith("/") else "/tmp") / f"minfer-daemon-{os.getuid()}"


def _checked(path: Path) -> Path:
    if len(os.fsencode(path)) > MAX_BYTES:
        raise NoDaemonError(f"{str(path)!r} is too long for a socket")
    directory = path.parent
    try:
        directory.mkdir(mode=0o700, exist_ok=True)
        status = directory.lstat()
    except OSError as error:
        raise NoDaemonError(f"{str(directory)!r} cannot be made ({error.strerror})") from error
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise NoDaemonError(f"{str(directory)!r} is not a directory of this user's alone (mode 700)")
    if not os.access(directory, os.W_OK | os.X_OK):
        raise NoDaemonError(f"{str(directory)!r} cannot be written to")
    return path
