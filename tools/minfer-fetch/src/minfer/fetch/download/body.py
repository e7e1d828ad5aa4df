"""From a web answer to bytes on disk: is it the range that was asked for, and do its bytes keep coming?"""

from __future__ import annotations

import hashlib
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import requests

from minfer.fetch.download.errors import (
    AnswerError,
    CancelledError,
    ChangedError,
    DownloadError,
    NetworkError,
    NotAModelError,
    RangeError,
    SizeMismatchError,
    StalledError,
)
from minfer.fetch.download.http import network_errors
from minfer.fetch.download.job import FileJob
from minfer.fetch.download.partial import Partial
from minfer.fetch.download.redirects import host_of

_CONTENT_RANGE = re.compile(r"bytes (\d{1,19})-(\d{1,19})/(\d{1,19}|\*)")
_LEAST_READ = 32 * 1024  # TLS yields at most 16 KiB a read, plain sockets what is there
_BATCH_BYTES = 1024 * 1024
_BATCH_S = 0.1  # a batch goes to disk when it is this old, however small
_MIN_BYTES_PER_S = 256  # slower than this over a whole stall period is no download


@dataclass(frozen=True, slots=True)
class RangeRequest:
    """What an attempt asks for: everything from `offset` on."""

    offset: int
    etag: str

    def headers(self, *, is_pinned: bool) -> dict[str, str]:
        """Range, and If-Range when only the server's mark (not a digest) tells versions apart."""
        if not self.offset:
            return {}
        headers = {"Range": f"bytes={self.offset}-"}
        if self.etag and not is_pinned:
            headers["If-Range"] = self.etag
        return headers


def strong_etag(response: requests.Response) -> str:
    """The answer's ETag if it can prove two answers equal byte for byte, else ''."""
    etag = response.headers.get("ETag", "")
    return etag if len(etag) < 512 and etag.startswith('"') and etag.isascii() else ""


def check_answer(response: requests.Response, job: FileJob, asked: RangeRequest) -> int:
    """The offset at which the body of `response` starts: `asked.offset` (206) or 0 (200).

    Raises AnswerError or a subclass when the answer cannot be (the rest of) the announced file.
    """
    host = host_of(response.url)
    if response.headers.get("Content-Encoding", "identity").lower() not in ("", "identity"):
        raise AnswerError(f"{host} sent {job.label} compressed, which was not asked for")
    if response.status_code == 200:
        start, end = 0, job.n_bytes
    elif response.status_code == 206 and asked.offset:
        start, end = _range_of(response, job, asked)
    else:
        raise AnswerError(f"{host} answered {response.status_code} to a request for {job.label}")
    kind = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if kind in ("text/html", "application/json") and job.magic:
        raise NotAModelError(
            f"{host} sent {kind} in place of {job.label}",
            hint="a proxy or a login page may be in between; `minfer-fetch doctor` looks at the network",
        )
    length = response.headers.get("Content-Length", "")
    if length.isdecimal() and int(length[:19]) != end - start:
        raise SizeMismatchError(
            f"{host} offers {int(length[:19])} bytes of {job.label} and {end - start} were announced"
        )
    return start


def _range_of(response: requests.Response, job: FileJob, asked: RangeRequest) -> tuple[int, int]:
    text = response.headers.get("Content-Range", "")
    found = _CONTENT_RANGE.fullmatch(text.strip())
    host = host_of(response.url)
    if not found:
        raise RangeError(f"{host} sent a part of {job.label} without saying which ({text[:80]!r})")
    first, last = int(found[1]), int(found[2])
    total = job.n_bytes if found[3] == "*" else int(found[3])
    if first != asked.offset or not first <= last < job.n_bytes or total != job.n_bytes:
        raise RangeError(
            f"{host} sent {text[:80]!r} of {job.label}, asked for bytes {asked.offset}- of {job.n_bytes}"
        )
    etag = strong_etag(response)
    if not job.record.sha256 and asked.etag and etag and etag != asked.etag:
        raise ChangedError(f"{job.label} changed on {host} in the middle of the download")
    return first, last + 1


class BodyReader:
    """Reads the body of one answer in batches; a StalledError when bytes stop coming."""

    def __init__(self, response: requests.Response, stall_s: float, cancelled: threading.Event) -> None:
        self._response = response
        self._stall_s = stall_s
        self._cancelled = cancelled
        self._window_ends = time.monotonic() + stall_s
        self._window_bytes = 0
        self._failure: DownloadError | None = None
        self._read_bytes = _LEAST_READ

    def batches(self, n_bytes: int) -> Iterator[bytes]:
        """`n_bytes` bytes in all, in pieces of about a MiB. Raises NetworkError when the body ends early."""
        left = n_bytes
        while left:
            batch = self._batch(left)
            left -= len(batch)
            yield batch

    def expect_end(self, job: FileJob) -> None:
        """Raise SizeMismatchError when more follows. Only an unannounced length can hide more."""
        if "Content-Length" in self._response.headers:
            return
        with network_errors(self._response.url):
            extra = self._response.raw.read1(1, decode_content=False)
        if extra:
            host = host_of(self._response.url)
            raise SizeMismatchError(
                f"{host} sends more of {job.label} than the announced {job.n_bytes} bytes"
            )

    def _batch(self, n_bytes: int) -> bytes:
        """At least one byte. A failure after the first is kept for the next call: no byte is lost."""
        if self._failure:
            raise self._failure
        pieces: list[bytes] = []
        try:
            with network_errors(self._response.url):
                self._read_into(pieces, n_bytes)
        except DownloadError as error:
            if not pieces:
                raise
            self._failure = error
        return b"".join(pieces)

    def _read_into(self, pieces: list[bytes], n_bytes: int) -> None:
        """Read until the batch is full or old enough. For 1 GB over TLS the loop runs 65,000 times."""
        read, n_here = self._response.raw.read1, 0
        now = time.monotonic()
        until = now + _BATCH_S
        while n_here < min(n_bytes, _BATCH_BYTES) and now < until:
            if self._cancelled.is_set():
                raise CancelledError("the download was stopped", hint="run the same command again to go on")
            piece = read(min(self._read_bytes, n_bytes - n_here), decode_content=False)
            if not piece:
                host = host_of(self._response.url)
                raise NetworkError(f"{host} broke off {n_bytes - n_here} bytes before the end")
            pieces.append(piece)
            n_here += len(piece)
            # Twice what came: room to grow, and no MiB allocated for each 16 KiB of TLS.
            self._read_bytes = min(max(2 * len(piece), _LEAST_READ), _BATCH_BYTES)
            now = time.monotonic()
        self._check_pace(now, n_here)

    def _check_pace(self, now: float, n_bytes: int) -> None:
        self._window_bytes += n_bytes
        if now < self._window_ends:
            return
        if self._window_bytes < _MIN_BYTES_PER_S * self._stall_s:
            raise StalledError(
                f"{host_of(self._response.url)} sent {self._window_bytes} bytes in {self._stall_s:.0f} s"
            )
        self._window_ends = now + self._stall_s
        self._window_bytes = 0


def copy_body(
    reader: BodyReader, partial: Partial, job: FileJob, start: int, on_bytes: Callable[[int], None]
) -> None:
    """Append the body, which starts at `start`, to what `partial` holds; `on_bytes(n_here)` as it grows.

    A server that ignores ranges sends from 0 what is here already: those bytes are compared, not written.
    Raises ChangedError when they differ, NotAModelError when the first bytes are none.
    """
    if start < partial.n_bytes_here:
        _compare_prefix(reader, partial)
    for batch in reader.batches(job.n_bytes - partial.n_bytes_here):
        if partial.n_bytes_here == 0:
            _check_magic(batch, job)
        partial.append(batch)
        on_bytes(partial.n_bytes_here)
    reader.expect_end(job)


def _compare_prefix(reader: BodyReader, partial: Partial) -> None:
    again = hashlib.sha256()
    for batch in reader.batches(partial.n_bytes_here):
        again.update(batch)
    if again.hexdigest() != partial.digest():
        raise ChangedError("the server has another file now than when the download began")


def _check_magic(batch: bytes, job: FileJob) -> None:
    head = batch[:512]
    n_known = min(len(head), len(job.magic))
    if head[:n_known] == job.magic[:n_known]:
        return
    raise NotAModelError(
        f"what came in place of {job.label} is {_looks_like(head)}",
        hint="nothing was stored; the repository or a proxy in between is at fault",
    )


def _looks_like(head: bytes) -> str:
    text = head.lstrip().lower()
    if text.startswith(b"<"):
        return "a web page"
    if text.startswith((b"{", b"[")):
        return "a JSON text"
    if text.startswith(b"version https://git-lfs"):
        return "a Git-LFS pointer"
    return f"no model (it starts with {head[:4]!r})"
