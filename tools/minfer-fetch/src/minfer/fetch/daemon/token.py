"""Calls that come over TCP show a token first, whatever they ask for."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterator
from typing import Any

from minfer.fetch.daemon.activity import Context, Handler
from minfer.store.messages import TOKEN_KEY, token_value
from minfer.store.rpc import grpc


class Authenticating(grpc.ServerInterceptor):  # type: ignore[misc]  # gRPC has no types
    """Answers calls without the token, of known and unknown names alike, before anything of them is read."""

    def __init__(self, token: str) -> None:
        self._expected = token_value(token).encode()

    def intercept_service(self, continuation: Callable[..., Any], details: Any) -> Handler:  # noqa: ANN401
        """gRPC's hook: the handler of the call, or the one that refuses it."""
        shown = [value for key, value in details.invocation_metadata if key == TOKEN_KEY]
        given = shown[0] if len(shown) == 1 else ""
        data = given.encode() if isinstance(given, str) else bytes(given)
        return continuation(details) if hmac.compare_digest(data, self._expected) else _REFUSING


def _refuse(requests: Iterator[bytes], context: Context) -> Iterator[bytes]:
    context.abort(grpc.StatusCode.UNAUTHENTICATED, "a token is needed")
    yield b""


# Of the kind that waits for no message: it serves calls of every kind.
_REFUSING = grpc.stream_stream_rpc_method_handler(_refuse)
