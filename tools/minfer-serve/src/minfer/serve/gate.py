"""What every request passes before a route sees it: name, Host, Origin, key; and the access log.

Plain ASGI, so that streams pass through untouched.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import os
import re
import time
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse, Response

from minfer.core.errors import MinferError
from minfer.serve.errors import ForbiddenError, InvalidKeyError, error_body, error_headers

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from minfer.serve.settings import ServeSettings
    from minfer.serve.state import ServerState

PUBLIC: Final = frozenset({"/health", "/v1/health", "/", "/docs", "/openapi.json"})
"""Paths without a secret in them; they need no key."""
_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_LOCAL_ORIGIN: Final = re.compile(
    r"https?://(localhost|[a-z0-9-]+\.localhost|127\.0\.0\.1|\[::1\])(:\d{1,5})?"
)
_HEADER_NAMES: Final = re.compile(r"[A-Za-z0-9-]{1,64}(\s*,\s*[A-Za-z0-9-]{1,64}){0,63}")
"""Whatever a page may send is good: OpenAI's client for browsers adds a dozen of its own."""
_CORS_METHODS: Final = "GET, POST, OPTIONS"


class Gate:
    """The outermost layer of the application."""

    def __init__(self, app: ASGIApp, state: ServerState) -> None:
        self._app = app
        self._state = state
        self._hosts = HostRule(state.settings)
        self._keys = KeyRing(state.settings.api_keys)
        self._origins = frozenset(state.settings.cors_origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the request through with its name and owner, or answer it here."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()
        headers = Headers(scope=scope)
        name = _request_id(headers)
        status = 0

        async def named_send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                self._add_headers(MutableHeaders(scope=message), headers, name)
            await send(message)

        try:
            answer = self._answer(scope, headers, name)
            await (answer or self._app)(scope, receive, named_send)
        finally:
            self._note(scope, status, time.perf_counter() - began, name)

    def _answer(self, scope: Scope, headers: Headers, name: str) -> Response | None:
        """A refusal or a preflight's answer; None lets the request through."""
        try:
            self._hosts.check(headers.get("host", ""))
            self._check_origin(scope, headers.get("origin"))
            if scope["method"] == "OPTIONS":
                return Response(status_code=204, headers={"allow": _CORS_METHODS})
            owner = b"" if scope["path"] in PUBLIC else self._keys.owner(headers)
        except MinferError as error:
            return JSONResponse(error_body(error), error.http_status, error_headers(error))
        scope.setdefault("state", {})
        scope["state"] |= {"request_id": name, "owner": owner}
        return None

    def _check_origin(self, scope: Scope, origin: str | None) -> None:
        if origin is not None and scope["method"] != "GET" and not self._allows(origin):
            raise ForbiddenError(
                f"pages from {origin[:100]!r} may not use this server",
                hint="start it with --cors-origin ORIGIN to allow them",
            )

    def _allows(self, origin: str) -> bool:
        return (
            "*" in self._origins
            or origin in self._origins
            or _LOCAL_ORIGIN.fullmatch(origin.lower()) is not None
        )

    def _add_headers(self, answer: MutableHeaders, headers: Headers, name: str) -> None:
        answer["x-request-id"] = name
        origin = headers.get("origin")
        if origin is None or not self._allows(origin):
            return
        answer["access-control-allow-origin"] = origin
        answer["access-control-expose-headers"] = "x-request-id, retry-after, server-timing"
        answer.add_vary_header("origin")
        if "access-control-request-method" in headers:
            answer["access-control-allow-methods"] = _CORS_METHODS
            wanted = headers.get("access-control-request-headers", "")
            answer["access-control-allow-headers"] = wanted if _HEADER_NAMES.fullmatch(wanted) else ""
            answer["access-control-max-age"] = "600"

    def _note(self, scope: Scope, status: int, seconds: float, name: str) -> None:
        route = getattr(scope.get("route"), "path", "other")
        self._state.metrics.requests.labels(route, str(status)).inc()
        if route in ("/health", "/metrics") and status == 200:
            return
        self._state.log.request({
            "request_id": name,
            "client": (scope.get("client") or ("-",))[0],
            "method": scope["method"],
            "path": scope["path"][:200],
            "status": status,
            "ms": round(seconds * 1000, 1),
        })  # fmt: skip


class HostRule:
    """Which Host headers are answered: a page that rebinds a name to this machine has its own name there."""

    def __init__(self, settings: ServeSettings) -> None:
        """Loopback servers answer loopback names; others answer all, unless hosts are listed."""
        self._allowed = frozenset(host.lower() for host in settings.allowed_hosts)
        self._is_open = "*" in self._allowed or (not is_loopback(settings.host) and not self._allowed)

    def check(self, host: str) -> None:
        """Raises ForbiddenError."""
        name = _without_port(host.strip().lower())
        if not (self._is_open or name in self._allowed or is_loopback(name)):
            raise ForbiddenError(
                f"the host {name[:100]!r} is not one that this server answers",
                hint="start it with --allowed-host NAME to allow it",
            )


def is_loopback(host: str) -> bool:
    """Whether a name or address means this machine alone."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class KeyRing:
    """The API keys, as digests: comparing them takes the same time whatever was sent."""

    def __init__(self, keys: tuple[str, ...]) -> None:
        self._digests = [_digest(os.fsencode(key)) for key in keys]

    def owner(self, headers: Mapping[str, str]) -> bytes:
        """The mark of the request's key; empty without keys. Raises InvalidKeyError."""
        if not self._digests:
            return b""
        scheme, _, token = headers.get("authorization", "").partition(" ")
        given = token.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", "")
        digest = _digest(given.encode("latin-1"))  # as the header's bytes were
        matches = [hmac.compare_digest(digest, known) for known in self._digests]
        if not any(matches):
            raise InvalidKeyError(
                "the API key is missing" if not given else "the API key is not one of this server's",
                hint="send it as Authorization: Bearer KEY",
            )
        return digest


def _digest(key: bytes) -> bytes:
    return hashlib.blake2b(key, digest_size=16).digest()


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.rpartition(":")[0] if host.count(":") == 1 else host


def _request_id(headers: Mapping[str, str]) -> str:
    given = headers.get("x-request-id", "")
    return given if _REQUEST_ID.fullmatch(given) else f"req_{uuid.uuid4().hex}"
