"""Which redirects a download may follow, and where a token may go."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from urllib.parse import SplitResult, urljoin, urlsplit

from minfer.fetch.download.errors import RedirectRefusedError

MAX_REDIRECTS = 10
_PORTS = {"http": 80, "https": 443}


def origin(url: str) -> tuple[str, str, int]:
    """Scheme, host and port of `url`: what a token is bound to. ('', '', 0) when it is no web address."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return ("", "", 0)
    scheme = parts.scheme.lower()
    host = (parts.hostname or "").lower().rstrip(".")
    if scheme not in _PORTS or not host:
        return ("", "", 0)
    return (scheme, host, port or _PORTS[scheme])


def host_of(url: str) -> str:
    """The host (and port, where it is unusual) for messages; never the path or the query, which may sign."""
    scheme, host, port = origin(url)
    return host if port == _PORTS.get(scheme) else f"{host}:{port}"


@dataclass(frozen=True, slots=True)
class Credentials:
    """A bearer token and the only origin (scheme, host, port) that may see it."""

    token: str = field(repr=False)
    endpoint: str

    def header_for(self, url: str) -> str | None:
        """The Authorization header for `url`, None when it is not the endpoint's own origin."""
        is_own = bool(origin(url)[0]) and origin(url) == origin(self.endpoint)
        return f"Bearer {self.token}" if self.token and is_own else None


def next_address(start: str, here: str, location: str) -> str:
    """Where a redirect from `here` leads, checked against `start`, the address the user asked for.

    Raises RedirectRefusedError for other schemes than http(s), for https to http, for addresses with a user
    name, and for addresses of this machine or its network unless the user's own address is one.
    """
    try:
        target = urljoin(here, location)
        parts = urlsplit(target)
        scheme, host, _ = origin(target)
    except ValueError:
        parts, scheme, host = SplitResult("", "", "", "", ""), "", ""
    if not scheme:
        raise _refusal(here, f"to {location[:80]!r}, which is no web address")
    if origin(here)[0] == "https" and scheme == "http":
        raise _refusal(here, f"from https to http on {host}")
    if parts.username or parts.password:
        raise _refusal(here, f"to an address with a user name on {host}")
    if is_inside(host) and not is_inside(origin(start)[1]):
        raise _refusal(here, f"to {host}, an address inside this machine or network")
    return target


def is_inside(host: str) -> bool:
    """Whether `host` names this machine or an address that is not on the public internet."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return not ipaddress.ip_address(host.partition("%")[0]).is_global
    except ValueError:
        # 127.1, 0x7f000001 and 2130706433 are addresses to the resolver and none to `ipaddress`.
        last = host.rpartition(".")[2]
        return last.isdigit() or last.startswith("0x")


def is_loopback(host: str) -> bool:
    """Whether `host` is this machine: where plain http needs no permission."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _refusal(here: str, what: str) -> RedirectRefusedError:
    return RedirectRefusedError(
        f"{host_of(here)} redirects {what}",
        hint="a mirror or proxy may be set up wrongly; `minfer-fetch doctor` looks at the network",
    )
