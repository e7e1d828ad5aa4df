"""A real HTTP/1.1 server on loopback that serves files with ranges and misbehaves when told to."""

from __future__ import annotations

import hashlib
import json
import re
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Self

Fault = Callable[["Exchange"], None]


@dataclass(frozen=True, slots=True)
class Seen:
    """A request as it arrived. `host` is what the client wrote in its Host header."""

    path: str
    headers: Mapping[str, str]

    @property
    def range(self) -> str:
        return self.headers.get("Range", "")

    @property
    def authorization(self) -> str:
        return self.headers.get("Authorization", "")


@dataclass
class Exchange:
    """One request in the hands of a fault or a route."""

    handler: BaseHTTPRequestHandler
    body: bytes
    start: int
    server: FileServer

    def head(self, status: int, headers: Mapping[str, str]) -> None:
        self.handler.send_response(status)
        for name, value in headers.items():
            self.handler.send_header(name, value)
        self.handler.end_headers()

    def write(self, data: bytes) -> None:
        self.handler.wfile.write(data)
        if self.body:
            self.server.count(len(data))

    def hang_up(self) -> None:
        """Break the connection off with everything sent so far delivered."""
        self.handler.wfile.flush()
        self.handler.connection.shutdown(socket.SHUT_RDWR)
        self.handler.close_connection = True

    def good_head(self, *, length: int | None = None, etag: str | None = None) -> None:
        rest = len(self.body) - self.start
        headers = {
            "Content-Length": str(rest if length is None else length),
            "ETag": etag or self.server.etag_of(self.body),
            "Content-Type": "application/octet-stream",
        }
        if self.start:
            headers["Content-Range"] = f"bytes {self.start}-{len(self.body) - 1}/{len(self.body)}"
        self.head(206 if self.start else 200, headers)

    def answer_well(self) -> None:
        self.good_head()
        self.write(self.body[self.start :])


@dataclass
class FileServer:
    """Files and routes by path; `faults` are used up one per request for a file, then all goes well.

    A route answers any path with its prefix. `honours_if_range`: a stale If-Range gets the whole file.
    `n_sent`: bytes of files that were handed to the system.
    """

    files: dict[str, bytes] = field(default_factory=dict)
    routes: dict[str, Callable[[Exchange], None]] = field(default_factory=dict)
    faults: deque[Fault] = field(default_factory=deque)
    seen: list[Seen] = field(default_factory=list)
    bytes_per_s: float = 0
    certificate: tuple[Path, Path] | None = None  # certificate and key: speak TLS
    n_sent: int = 0
    _server: ThreadingHTTPServer | None = None
    _counting: threading.Lock = field(default_factory=threading.Lock)

    def __enter__(self) -> Self:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                outer.answer(self)

            def log_message(self, format: str, *args: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 64

            def handle_error(self, request: object, client_address: object) -> None:
                pass  # clients that hang up are part of the tests

        self._server = Server(("127.0.0.1", 0), Handler)
        if self.certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*self.certificate)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *unused: object) -> None:
        assert self._server is not None
        self._server.shutdown()
        self._server.server_close()

    @property
    def port(self) -> int:
        assert self._server is not None
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        return f"{'https' if self.certificate else 'http'}://127.0.0.1:{self.port}"

    @property
    def other_url(self) -> str:
        """The same server under another name: another origin."""
        return f"http://localhost:{self.port}"

    def etag_of(self, body: bytes) -> str:
        return f'"{hashlib.md5(body).hexdigest()}"'

    def count(self, n_bytes: int) -> None:
        with self._counting:
            self.n_sent += n_bytes

    def n_requests(self, path: str) -> int:
        return sum(seen.path.partition("?")[0] == path for seen in self.seen)

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        path = handler.path.partition("?")[0]
        self.seen.append(Seen(handler.path, dict(handler.headers.items())))
        for prefix, route in self.routes.items():
            if path.startswith(prefix):
                route(Exchange(handler, b"", 0, self))
                return
        if path not in self.files:
            json_answer({"error": "not found"}, status=404)(Exchange(handler, b"", 0, self))
            return
        body = self.files[path]
        exchange = Exchange(handler, body, self._start(handler, body), self)
        if self.faults:
            self.faults.popleft()(exchange)
        elif exchange.start > len(body) or (exchange.start == len(body) and body):
            exchange.head(416, {"Content-Range": f"bytes */{len(body)}", "Content-Length": "0"})
        elif self.bytes_per_s:
            drip(self.bytes_per_s)(exchange)
        else:
            exchange.answer_well()

    def _start(self, handler: BaseHTTPRequestHandler, body: bytes) -> int:
        found = re.fullmatch(r"bytes=(\d+)-", handler.headers.get("Range", ""))
        if handler.headers.get("If-Range", self.etag_of(body)) != self.etag_of(body):
            return 0
        return int(found[1]) if found else 0


def json_answer(value: object, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Fault:
    body = json.dumps(value).encode()

    def run(exchange: Exchange) -> None:
        exchange.head(
            status,
            {"Content-Type": "application/json", "Content-Length": str(len(body)), **(headers or {})},
        )
        exchange.write(body)

    return run


def status(code: int, headers: Mapping[str, str] | None = None, body: bytes = b"no") -> Fault:
    def run(exchange: Exchange) -> None:
        exchange.head(code, {"Content-Length": str(len(body)), **(headers or {})})
        exchange.write(body)

    return run


def redirect(target: str, code: int = 302) -> Fault:
    return status(code, {"Location": target}, b"")


def cut_after(n_bytes: int) -> Fault:
    """The right head, `n_bytes` of the body, and the connection breaks."""

    def run(exchange: Exchange) -> None:
        exchange.good_head()
        exchange.write(exchange.body[exchange.start : exchange.start + n_bytes])
        exchange.hang_up()

    return run


def no_answer(exchange: Exchange) -> None:
    exchange.hang_up()


def ignore_range(exchange: Exchange) -> None:
    exchange.start = 0
    exchange.answer_well()


def wrong_range(exchange: Exchange) -> None:
    """A 206 that starts one byte late."""
    body, start = exchange.body, exchange.start + 1
    exchange.head(
        206,
        {
            "Content-Range": f"bytes {start}-{len(body) - 1}/{len(body)}",
            "Content-Length": str(len(body) - start),
        },
    )
    exchange.write(body[start:])


def silent_shift(exchange: Exchange) -> None:
    """A 206 that claims the right range and sends other bytes: only the digest can tell."""
    exchange.good_head()
    rest = exchange.body[exchange.start :]
    exchange.write(rest[1:] + rest[:1])


def no_content_range(exchange: Exchange) -> None:
    rest = exchange.body[exchange.start :]
    exchange.head(206, {"Content-Length": str(len(rest))})
    exchange.write(rest)


def web_page(exchange: Exchange) -> None:
    page = b"<!DOCTYPE html><html><body>Please log in</body></html>"
    exchange.head(200, {"Content-Type": "text/html; charset=utf-8", "Content-Length": str(len(page))})
    exchange.write(page)


def disguised_page(exchange: Exchange) -> None:
    """A web page of exactly the right length and with an innocent content type."""
    page = (b"<!DOCTYPE html>" + b" " * len(exchange.body))[: len(exchange.body)]
    exchange.head(200, {"Content-Type": "application/octet-stream", "Content-Length": str(len(page))})
    exchange.write(page)


def short_length(exchange: Exchange) -> None:
    """A complete answer of half the file."""
    body = exchange.body[: len(exchange.body) // 2]
    exchange.head(200, {"Content-Length": str(len(body))})
    exchange.write(body)


def compressed(exchange: Exchange) -> None:
    exchange.head(200, {"Content-Encoding": "gzip", "Content-Length": str(len(exchange.body))})
    exchange.write(exchange.body)


def changed_etag(exchange: Exchange) -> None:
    exchange.good_head(etag='"another"')
    exchange.write(exchange.body[exchange.start :])


def _chunks(exchange: Exchange, data: bytes) -> None:
    exchange.handler.send_response(206 if exchange.start else 200)
    exchange.handler.send_header("Transfer-Encoding", "chunked")
    if exchange.start:
        total = len(exchange.body)
        exchange.handler.send_header("Content-Range", f"bytes {exchange.start}-{total - 1}/{total}")
    exchange.handler.end_headers()
    for start in range(0, len(data), 7777):
        piece = data[start : start + 7777]
        exchange.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")


def chunked(exchange: Exchange) -> None:
    _chunks(exchange, exchange.body[exchange.start :])
    exchange.write(b"0\r\n\r\n")


def chunked_cut(exchange: Exchange) -> None:
    _chunks(exchange, exchange.body[exchange.start :][:200_000])
    exchange.hang_up()


def chunked_long(exchange: Exchange) -> None:
    _chunks(exchange, exchange.body[exchange.start :] + b"more")
    exchange.write(b"0\r\n\r\n")


def small_pieces(exchange: Exchange) -> None:
    """Thousands of writes of a few bytes, then the rest."""
    exchange.handler.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    exchange.good_head()
    for start in range(exchange.start, exchange.start + 60_000, 20):
        exchange.write(exchange.body[start : start + 20])
    exchange.write(exchange.body[exchange.start + 60_000 :])


def hang(seconds: float, n_bytes: int = 0) -> Fault:
    def run(exchange: Exchange) -> None:
        exchange.good_head()
        exchange.write(exchange.body[exchange.start : exchange.start + n_bytes])
        time.sleep(seconds)
        exchange.hang_up()

    return run


def drip(bytes_per_s: float, piece: int = 16384) -> Fault:
    def run(exchange: Exchange) -> None:
        exchange.good_head()
        for start in range(exchange.start, len(exchange.body), piece):
            exchange.write(exchange.body[start : start + piece])
            time.sleep(piece / bytes_per_s)

    return run


@contextmanager
def serving(files: Mapping[str, bytes]) -> Iterator[FileServer]:
    with FileServer(dict(files)) as server:
        yield server
