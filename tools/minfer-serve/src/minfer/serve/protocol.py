"""HTTP/1.1 on one connection: uvicorn's, with an end to waiting for the head of a request."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_TIMEOUT: Final = 30.0
"""Seconds in which a request's line and headers have to come, from their first byte or the connection."""


class BoundedProtocol(H11Protocol):
    """Closes connections on which a request is begun, or awaited at first, and never told to its end.

    Whoever sends a byte now and then would keep a file descriptor as long as it likes.
    """

    head_timeout = HEAD_TIMEOUT

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self._giving_up: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait."""
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Wait on while the head is not complete."""
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        super().connection_lost(exc)
        self._rest()

    def _watch(self) -> None:
        if self.conn.their_state is not h11.IDLE:
            self._rest()
        elif self._giving_up is None:
            self._giving_up = self.loop.call_later(self.head_timeout, self.transport.close)

    def _rest(self) -> None:
        if self._giving_up is not None:
            self._giving_up.cancel()
            self._giving_up = None
