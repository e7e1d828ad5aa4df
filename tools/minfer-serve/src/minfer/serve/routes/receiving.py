"""Reading a request's body, bounded in size and time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, TypeVar

from starlette.requests import ClientDisconnect, Request

from minfer.serve.errors import BodyTooLargeError, BodyTooSlowError, ContentTypeError, RequestError
from minfer.serve.wire.body import Body, parse_body, parse_json

if TYPE_CHECKING:
    from minfer.serve.state import ServerState

_LARGE: Final = 1 << 16  # beyond this, decoding would hold up other clients
B = TypeVar("B", bound=Body)


def state_of(request: Request) -> ServerState:
    """The server's state."""
    state: ServerState = request.app.state.server
    return state


async def read_body(request: Request, kind: type[B]) -> B:
    """The checked body. Raises ContentTypeError, BodyTooLargeError, BodyTooSlowError, RequestError."""
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != "application/json":
        raise ContentTypeError(
            f"the content type is {content_type[:80] or 'missing'!r}", hint="send application/json"
        )
    settings = state_of(request).settings
    try:
        async with asyncio.timeout(settings.body_timeout):
            data = await _read(request, settings.max_body)
    except TimeoutError:
        raise BodyTooSlowError(
            f"the request body did not arrive within {settings.body_timeout:g} seconds"
        ) from None
    except ClientDisconnect:
        raise RequestError("the client went away while sending its request") from None
    if len(data) > _LARGE:
        return await asyncio.to_thread(_decode, data, kind)
    return _decode(data, kind)


def _decode(data: bytes, kind: type[B]) -> B:
    return parse_body(kind, parse_json(data))


async def _read(request: Request, limit: int) -> bytes:
    announced = request.headers.get("content-length", "")
    too_large = BodyTooLargeError(f"the request body is larger than {limit} bytes")
    if announced.isdecimal() and int(announced[:20]) > limit:
        raise too_large
    parts, n_bytes = [], 0
    async for part in request.stream():
        parts.append(part)
        n_bytes += len(part)
        if n_bytes > limit:
            raise too_large
    return b"".join(parts)
