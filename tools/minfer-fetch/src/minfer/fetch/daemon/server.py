"""One daemon from its election to its end."""

from __future__ import annotations

import os
import signal
import socket as sockets
import stat
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

# Everything that a call may need is imported now: the environment may be upgraded or removed under a daemon.
import minfer.fetch.sources.hf
import minfer.fetch.sources.ollama
import minfer.fetch.sources.python_package  # noqa: F401
from minfer.fetch.daemon.activity import Activity, Counting
from minfer.fetch.daemon.election import elected, remove_stale
from minfer.fetch.daemon.listening import Listening
from minfer.fetch.daemon.live_catalog import LiveCatalog
from minfer.fetch.daemon.service import ModelStore
from minfer.fetch.daemon.token import Authenticating
from minfer.store.address import NoDaemonError
from minfer.store.rpc import grpc, services
from minfer.store.settings import Settings
from minfer.store.tcp import TcpAddress

Server: TypeAlias = Any  # grpc.Server, which has no types

_N_THREADS = 128  # one for each caller that waits; more are refused, and do without a daemon
_TICK_S = 1.0
_ELECTION_S = 5.0
_GRACE_S = 5.0
_MAX_LOG_BYTES = 1 << 20
_OPTIONS = (
    ("grpc.so_reuseport", 0),
    ("grpc.max_metadata_size", 64 << 10),
    ("grpc.http2.min_ping_interval_without_data_ms", 20_000),  # clients ask every minute whether it lives
)
_SERVICE = "minfer.store.v1.ModelStoreService"


def serve(settings: Settings, listening: Listening, on_ready: Callable[[], None]) -> bool:
    """Be the daemon of `settings.cache` until it is idle or told to go.

    False when another one listens there. Only in the main thread. Raises NoDaemonError, OSError.
    """
    socket, idle_s = listening.socket, listening.idle_s
    activity = Activity()
    with elected(socket, _ELECTION_S) as is_elected:
        if not is_elected:
            return False
        remove_stale(socket)
        cache = Path(os.path.realpath(settings.cache))
        catalog = LiveCatalog(cache)
        store = ModelStore(cache, activity, catalog, idle_s, str(listening.tcp or ""))
        counting = Counting(activity)
        servers = [_server(store, [counting])]
        if listening.tcp:  # a server of its own: strangers take up no thread of the socket's users
            servers.append(_server(store, [Authenticating(listening.token), counting]))
            _require_free(listening.tcp)
            _bind(servers[1], str(listening.tcp))
        _bind_socket(servers[0], socket)
        identity = _identity(socket)
        with _signals(activity.leaving):
            on_ready()
            _live(activity, catalog, idle_s, lambda: _identity(socket) == identity)
        # gone from the disk before calls are refused for good: who comes now starts another daemon
        if _identity(socket) == identity:
            socket.unlink(missing_ok=True)
        catalog.stop()
        for stopping in [each.stop(_GRACE_S) for each in servers]:
            stopping.wait()
    return True


def _server(store: ModelStore, interceptors: Sequence[grpc.ServerInterceptor]) -> Server:
    server = grpc.server(
        ThreadPoolExecutor(_N_THREADS),
        interceptors=interceptors,
        options=_OPTIONS,
        maximum_concurrent_rpcs=_N_THREADS,
    )
    services.add_ModelStoreServiceServicer_to_server(store, server)
    state = health.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(state, server)
    for name in ("", _SERVICE):
        state.set(name, health_pb2.HealthCheckResponse.SERVING)
    reflection.enable_server_reflection((_SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME), server)
    return server


def _bind_socket(server: Server, socket: Path) -> None:
    before = os.umask(0o077)  # for the socket alone: models are for whoever may read the cache
    try:
        _bind(server, f"unix:{socket}")
    finally:
        os.umask(before)


def _require_free(address: TcpAddress) -> None:
    """Ask the system first: gRPC logs its refusal and does not say why. Raises NoDaemonError."""
    family = sockets.AF_INET6 if ":" in address.host else sockets.AF_INET
    try:
        sockets.create_server((address.host, address.port), family=family).close()
    except OSError as error:
        raise NoDaemonError(
            f"it is not possible to listen at {address}: {error.strerror}", hint="choose another port"
        ) from error


def _bind(server: Server, address: str) -> None:
    try:
        port = server.add_insecure_port(address)
    except RuntimeError:  # gRPC's word for it; its older versions answer with port 0
        port = 0
    if not port:
        raise NoDaemonError(f"it is not possible to listen at {address}")
    server.start()


def _identity(socket: Path) -> tuple[int, int] | None:
    try:
        status = socket.lstat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _live(activity: Activity, catalog: LiveCatalog, idle_s: float, is_reachable: Callable[[], bool]) -> None:
    """Until it is time to go: told so, idle, or unreachable because the socket was removed."""
    tick_s = min(_TICK_S, idle_s / 4) if idle_s else _TICK_S
    catalog.watch()
    while not activity.leaving.wait(tick_s):
        catalog.watch()
        _cut_log()
        is_done = (idle_s and activity.idle_s >= idle_s) or not is_reachable()
        if is_done:
            activity.leave(n_calls=0)


def _cut_log() -> None:
    """A detached daemon's stderr is a file beside its socket; it may not grow without end."""
    status = os.fstat(2)
    if stat.S_ISREG(status.st_mode) and status.st_size > _MAX_LOG_BYTES and not os.isatty(2):
        os.ftruncate(2, 0)


@contextmanager
def _signals(leaving: threading.Event) -> Iterator[None]:
    before = {number: signal.signal(number, lambda *_: leaving.set()) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
