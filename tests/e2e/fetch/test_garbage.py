"""Servers that send bytes which are hardly HTTP: every answer ends in a typed error or the right file."""

from __future__ import annotations

import hashlib
import random
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from minfer.core.errors import MinferError
from minfer.fetch.download import FileJob, HttpClient, NetworkSettings, RetryPolicy, download
from minfer.store.progress import ignore_progress
from minfer.store.records import Record

BODY = b"GGUF" + random.Random(1).randbytes(2000)
HEX = hashlib.sha256(BODY).hexdigest()
OK = b"HTTP/1.1 200 OK\r\n"
GOOD = OK + b'ETag: "x"\r\nContent-Length: %d\r\n\r\n' % len(BODY) + BODY


@contextmanager
def saying(reply: bytes) -> Iterator[str]:
    """A server that answers every request with `reply` and hangs up."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(65536)
            with suppress(OSError):  # the client had enough
                self.request.sendall(reply)

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        allow_reuse_address = True

    with Server(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/tiny.gguf"
        server.shutdown()


def fetch(url: str, cache: Path) -> MinferError | None:
    """The error of a download, None when it ended well; any other exception is a failed test."""
    client = HttpClient(NetworkSettings(stall_s=0.5), retry=RetryPolicy(attempts=2, first_wait_s=0.001))
    job = FileJob(url, Record("hf/a/b/tiny.gguf", len(BODY), HEX))
    try:
        download([job], cache, client, ignore_progress)
    except MinferError as error:
        return error
    return None


def chunked(*chunks: bytes) -> bytes:
    return OK + b"Transfer-Encoding: chunked\r\n\r\n" + b"".join(chunks)


GARBAGE = {
    "nothing": b"",
    "zeros": bytes(5000),
    "noise": random.Random(2).randbytes(5000),
    "a greeting of another protocol": b"SSH-2.0-OpenSSH_9.2\r\n",
    "no status": b"HTTP/1.1\r\n\r\n",
    "a status of letters": b"HTTP/1.1 abc OK\r\n\r\n",
    "a status of four digits": b"HTTP/1.1 2000 OK\r\n\r\n",
    "version 9": b"HTTP/9.9 200 OK\r\n\r\n" + BODY,
    "a very long line": OK + b"X: " + b"x" * 200_000 + b"\r\n\r\n",
    "very many headers": OK + b"X: x\r\n" * 5000 + b"\r\n",
    "a header without a colon": OK + b"nonsense\r\n\r\n" + BODY[:-1],
    "a negative length": OK + b"Content-Length: -5\r\n\r\n" + BODY[:-1],
    "a length of letters": OK + b"Content-Length: abc\r\n\r\n" + BODY[:-1],
    "two lengths": OK + b"Content-Length: 5\r\nContent-Length: 7\r\n\r\n" + BODY,
    "a huge length": OK + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n" + BODY,
    "a length in other digits": OK + "Content-Length: ١٢٣\r\n\r\n".encode() + BODY[:-1],
    "a chunk size of letters": chunked(b"zz\r\nabc\r\n0\r\n\r\n"),
    "a negative chunk size": chunked(b"-5\r\nabc\r\n0\r\n\r\n"),
    "a huge chunk size": chunked(b"f" * 100 + b"\r\nabc\r\n"),
    "a chunk without end": chunked(b"7d4\r\n" + BODY[:100]),
    "an endless chunk line": chunked(b"1" * 100_000),
    "a redirect to nowhere": b"HTTP/1.1 302 Found\r\nLocation: \r\n\r\n",
    "a redirect of bytes": b"HTTP/1.1 302 Found\r\nLocation: http://\xff\xfe\xfd/\r\n\r\n",
    "a redirect to a bad port": b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:99999/\r\n\r\n",
    "a redirect to a long name": b"HTTP/1.1 302 Found\r\nLocation: http://" + b"a" * 300 + b"/\r\n\r\n",
    "a redirect to an empty label": b"HTTP/1.1 302 Found\r\nLocation: http://a..b/\r\n\r\n",
    "a redirect with a body": b"HTTP/1.1 302 Found\r\nLocation: /x\r\nContent-Length: 9999999\r\n\r\n" + BODY,
    "not modified": b"HTTP/1.1 304 Not Modified\r\n\r\n",
    "a part nobody asked for": b"HTTP/1.1 206 Partial\r\nContent-Range: bytes 0-9/10\r\n\r\n" + BODY,
    "no content": b"HTTP/1.1 204 No Content\r\n\r\n",
    "an early hint only": b"HTTP/1.1 103 Early Hints\r\n\r\n",
    "many hundreds": b"HTTP/1.1 100 Continue\r\n\r\n" * 2000,
    "an error with an endless text": b"HTTP/1.1 400 Bad\r\n\r\n" + b"x" * 3_000_000,
    "an error with commands": b"HTTP/1.1 400 Bad\r\nContent-Length: 12\r\n\r\n\x1b[2J\x1b]0;x\x07ok",
    "nested errors": b"HTTP/1.1 400 Bad\r\n\r\n" + b'{"error":' * 5000,
    "errors of the wrong kind": b'HTTP/1.1 400 Bad\r\n\r\n{"errors":[{"message":{"a":1}}]}',
    "a retry in the year 99999": b"HTTP/1.1 503 No\r\nRetry-After: Thu, 01 Jan 99999 00:00:00 GMT\r\n\r\n",
}


@pytest.mark.parametrize("name", GARBAGE)
def test_garbage_is_a_typed_error(name: str, tmp_path: Path) -> None:
    with saying(GARBAGE[name]) as url:
        error = fetch(url, tmp_path / "models")
    assert error is not None
    text = error.render()
    assert all(character.isprintable() or character == "\n" for character in text)
    assert len(text) < 2000
    assert not list(tmp_path.rglob("*.gguf"))


@pytest.mark.parametrize("seed", range(60))
def test_a_good_answer_with_a_few_wrong_bytes_never_stores_a_wrong_file(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    reply = bytearray(GOOD)
    for _ in range(chance.randint(1, 4)):
        place = chance.randrange(80) if chance.random() < 0.7 else chance.randrange(len(reply))
        match chance.randrange(3):
            case 0:
                reply[place] = chance.randrange(256)
            case 1:
                del reply[place : place + chance.randint(1, 5)]
            case _:
                reply[place:place] = chance.randbytes(chance.randint(1, 5))
    cache = tmp_path / "models"
    with saying(bytes(reply)) as url:
        error = fetch(url, cache)
    finals = [path.read_bytes() for path in cache.rglob("*.gguf")]
    assert finals == ([] if error else [BODY])
