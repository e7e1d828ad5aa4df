"""The process: a socket, an event loop, a model loading beside it, signals, and an orderly end."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import threading
from collections.abc import Iterator
from types import FrameType
from typing import TYPE_CHECKING, Final

import uvicorn

from minfer.core.errors import MinferError, UsageError
from minfer.serve.app import create_app
from minfer.serve.errors import EngineFailedError
from minfer.serve.gate import is_loopback
from minfer.serve.loading import load_service
from minfer.serve.log import Log
from minfer.serve.protocol import BoundedProtocol
from minfer.serve.state import ServerState

if TYPE_CHECKING:
    from minfer.serve.settings import ServeSettings
    from minfer.serve.state import Service

_HEADER_BYTES: Final = 64 << 10
_SEND_BYTES: Final = 128 << 10
_BACKLOG: Final = 512


class AddressError(UsageError):
    """The address cannot be listened on."""

    code = "address-unusable"


class OpenToOthersError(UsageError):
    """Other machines would reach a server that asks for no key."""

    code = "open-without-key"


def serve(settings: ServeSettings, *, is_insecure: bool = False) -> int:
    """Serve until a signal; the exit status. Raises what keeps the model from loading, unless the log is
    JSON: then that is its last line.
    """
    log = Log(settings.log_format)
    with log.in_charge():
        try:
            if not (is_loopback(settings.host) or settings.api_keys or is_insecure):
                raise OpenToOthersError(
                    f"--host {settings.host} lets other machines use this server without a key",
                    hint="set a key with --api-key, or say --insecure if that is what you want",
                )
            with _bind(settings) as listener:
                return asyncio.run(_serve(settings, listener, log))
        except MinferError as error:
            if not log.is_json:
                raise
            return log.failed(error)


async def _serve(settings: ServeSettings, listener: socket.socket, log: Log) -> int:
    state = ServerState(settings, log)
    server = Server(_config(state), state)
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    log.say(f"Listening on http://{shown}:{port} (docs at /docs)")
    loading = asyncio.create_task(_load(state, server))
    await server.serve(sockets=[listener])
    loading.cancel()
    if state.service is not None:
        await asyncio.to_thread(state.service.close)
    if state.failure is not None:
        raise state.failure
    return 0


async def _load(state: ServerState, server: Server) -> None:
    """Load on a daemon thread: a signal during a long load ends the process all the same."""
    events = asyncio.get_running_loop()
    outcome: asyncio.Future[Service] = events.create_future()

    def settle(service: Service | None, error: MinferError | None) -> None:
        if outcome.cancelled():
            if service is not None:
                service.close()
        elif service is not None:
            outcome.set_result(service)
        elif error is not None:
            outcome.set_exception(error)

    def work() -> None:
        service, error = None, None
        try:
            service = load_service(state.settings, events, state.log)
        except MinferError as raised:
            error = raised
        finally:
            if service is None and error is None:
                error = EngineFailedError("loading ended unexpectedly", hint="see above")
            with contextlib.suppress(RuntimeError):  # the event loop is closed
                events.call_soon_threadsafe(settle, service, error)

    threading.Thread(target=work, name="loading", daemon=True).start()
    try:
        state.service = await outcome
    except MinferError as error:
        state.failure = error
        server.should_exit = True
        return
    state.is_loaded.set()
    state.log.say(f"Ready: {state.service.names[0]}")
    await _watch_engine(state, server)


async def _watch_engine(state: ServerState, server: Server) -> None:
    """A process without an engine is of no use: end it, so that whoever supervises it can act."""
    while state.service is not None and state.service.engine.is_alive():
        await asyncio.sleep(0.5)
    if not state.is_draining:
        state.failure = EngineFailedError("the engine stopped unexpectedly", hint="see the traceback above")
        server.should_exit = True


class Server(uvicorn.Server):
    """uvicorn with another end: the first signal lets running answers finish, the second one does not."""

    def __init__(self, config: uvicorn.Config, state: ServerState) -> None:
        super().__init__(config)
        self._state = state
        self._draining: asyncio.Task[None] | None = None

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle SIGINT and SIGTERM on the event loop, where there is one of the main thread."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        events = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            events.add_signal_handler(number, self.handle_exit, number, None)
        try:
            yield
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                events.remove_signal_handler(number)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to drain, or abort what is left of it."""
        if self._draining is None:
            self._state.is_draining = True
            self._draining = asyncio.get_running_loop().create_task(self._drain())
            return
        self._state.log.say("Aborting")
        if self._state.service is not None:
            self._state.service.engine.close()
        self.force_exit = self.should_exit = True

    async def _drain(self) -> None:
        """Wait for running answers, at most drain_timeout seconds; then end them."""
        service = self._state.service
        timeout = self._state.settings.drain_timeout
        if service is not None and not service.engine.is_idle:
            self._state.log.say(
                f"Shutting down: running answers may take up to {timeout:g} s more (again to abort)"
            )
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    while not service.engine.is_idle and service.engine.is_alive():
                        await asyncio.sleep(0.05)
            await asyncio.sleep(0.1)  # the last chunks are on their way
        if service is not None:
            service.engine.close()
        self.should_exit = True


def _config(state: ServerState) -> uvicorn.Config:
    return uvicorn.Config(
        create_app(state),
        loop="asyncio",
        http=BoundedProtocol,
        ws="none",
        lifespan="off",
        access_log=False,
        log_config=None,
        log_level="error",
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=5,
        h11_max_incomplete_event_size=_HEADER_BYTES,
    )


def _bind(settings: ServeSettings) -> socket.socket:
    """A listening socket. Raises AddressError."""
    host = settings.host.strip("[]")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Connections inherit it: what a slow reader leaves unread shall not be megabytes in the kernel.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BYTES)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError as error:
        raise AddressError(
            f"cannot listen on {settings.host} port {settings.port}: {error.strerror or error}",
            hint="choose another one with --port N, or --port 0 for any free one",
        ) from None
    return listener
