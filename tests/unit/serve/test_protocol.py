"""Connections that begin and never end, on a real socket."""

from __future__ import annotations

import asyncio
import socket
import time

import pytest

from minfer.engine.params import GenerationParams
from minfer.serve.log import Log
from minfer.serve.process import Server, _config
from minfer.serve.protocol import BoundedProtocol
from minfer.serve.settings import ServeSettings
from minfer.serve.state import ServerState

HEAD = b"GET /v1/models HTTP/1.1\r\nhost: localhost\r\n"
PATIENCE = 0.4


async def _until_closed(port: int, first: bytes, drip: bytes) -> tuple[bytes, float]:
    """Send `first`, then `drip` now and then; what was answered, and the seconds until the other closed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    began = time.monotonic()
    writer.write(first)
    answer = asyncio.create_task(reader.read())
    while not answer.done() and time.monotonic() - began < 10:
        await asyncio.sleep(0.05)
        writer.write(drip)
    writer.close()
    return answer.result(), time.monotonic() - began


@pytest.mark.parametrize(
    ("first", "drip", "n_answers"),
    [
        (b"", b"", 0),
        (HEAD, b"x-drip: 1\r\n", 0),
        (HEAD + b"\r\n" + HEAD, b"x-drip: 1\r\n", 1),
        (HEAD + b"connection: close\r\n\r\n", b"", 1),
    ],
    ids=["silent", "dripping", "dripping after an answer", "complete"],
)
def test_nobody_holds_a_connection_without_a_request(
    monkeypatch: pytest.MonkeyPatch, first: bytes, drip: bytes, n_answers: int
) -> None:
    monkeypatch.setattr(BoundedProtocol, "head_timeout", PATIENCE)

    async def run() -> tuple[bytes, float]:
        settings = ServeSettings(reference="none", params=GenerationParams())
        state = ServerState(settings, Log("none"))
        server = Server(_config(state), state)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            serving = asyncio.create_task(server.serve(sockets=[listener]))
            outcome = await _until_closed(listener.getsockname()[1], first, drip)
            server.should_exit = True
            await serving
        return outcome

    answer, seconds = asyncio.run(run())
    assert answer.count(b"HTTP/1.1 200") == n_answers
    assert seconds < 5
