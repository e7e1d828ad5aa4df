"""Requests with rules: own redirects, tokens bound to one origin, capped answers, typed failures."""

from __future__ import annotations

import json
import os
import re
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import requests
import urllib3

from minfer.fetch.download.errors import (
    AnswerError,
    CancelledError,
    HttpStatusError,
    NetworkError,
    RateLimitedError,
    StalledError,
    TemporaryStatusError,
    TlsError,
)
from minfer.fetch.download.redirects import MAX_REDIRECTS, Credentials, host_of, next_address, origin
from minfer.fetch.download.retry import RetryPolicy, retry_after_s
from minfer.fetch.download.settings import NetworkSettings

MAX_JSON_BYTES = 32 * 1024 * 1024
_CONNECT_S = 15.0
_JSON_DEADLINE_S = 120.0
_ERROR_TEXT_BYTES = 2048
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_TEMPORARY = frozenset({408, 421, 425, 500, 502, 503, 504, 520, 521, 522, 523, 524, 529})
Retryable = NetworkError | HttpStatusError | AnswerError
_ERROR_NUMBER = re.compile(r"\[Errno -?\d+\] ")
_USER_AGENT = "minfer-fetch/0.1.0"


@dataclass(frozen=True, slots=True)
class Answer:
    """A small body that was read whole. `url`: where it came from in the end; headers ignore case."""

    body: bytes
    headers: Mapping[str, str]
    url: str

    def json(self) -> object:
        """The body as JSON; AnswerError when it is none."""
        try:
            values: object = json.loads(self.body)
        except (ValueError, RecursionError):
            kind = self.headers.get("Content-Type", "no content type")
            raise AnswerError(
                f"{host_of(self.url)} answered with something that is not JSON ({kind})",
                hint="a proxy or a login page may be in between; `minfer-fetch doctor` looks at the network",
            ) from None
        return values


class _Bearer(requests.auth.AuthBase):
    """Sets the token, for its own origin only."""

    def __init__(self, credentials: Credentials | None) -> None:
        self._credentials = credentials

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        header = self._credentials.header_for(request.url or "") if self._credentials else None
        if header:
            request.headers["Authorization"] = header
        return request


class HttpClient:
    """One caller's way to the network. Safe to share among threads; `abort` ends every open answer."""

    def __init__(
        self,
        settings: NetworkSettings,
        *,
        retry: RetryPolicy | None = None,
        on_wait: Callable[[str, float], None] | None = None,
    ) -> None:
        """`on_wait(reason, seconds)` hears of each pause before a small request is tried again."""
        self.settings = settings
        self.retry = retry or RetryPolicy()
        self.cancelled = threading.Event()
        self._on_wait = on_wait
        self._open: set[requests.Response] = set()
        self._guard = threading.Lock()
        # Without a Session: that one would read ~/.netrc and, for each redirect, the whole body.
        self._adapter = requests.adapters.HTTPAdapter(pool_connections=16, pool_maxsize=16, max_retries=0)

    def abort(self) -> None:
        """Break off everything that is under way: blocked reads end at once, later requests are refused."""
        self.cancelled.set()
        with self._guard:
            open_now = tuple(self._open)
        for response in open_now:
            try:
                response.raw.shutdown()
            except (OSError, RuntimeError, ValueError, AttributeError):
                continue  # already ended by itself

    def close(self) -> None:
        """Close idle connections."""
        self._adapter.close()

    def get(
        self,
        url: str,
        *,
        credentials: Credentials | None = None,
        headers: Mapping[str, str] | None = None,
        max_bytes: int = MAX_JSON_BYTES,
    ) -> Answer:
        """A small body, read whole, retried when the failure is of the passing kind.

        Raises a DownloadError: HttpStatusError for a status of 400 or more, AnswerError for a body over
        `max_bytes`, NetworkError and its kin when the host cannot be reached.
        """
        failures = 0
        while True:
            try:
                return self._get_once(url, credentials, headers or {}, max_bytes)
            except (NetworkError, HttpStatusError, AnswerError) as error:
                failures += 1
                self.pause(error, failures)

    def pause(self, error: Retryable, failures: int) -> float:
        """Wait before the next attempt, or raise `error` when another one is not worth it."""
        wait_s = self.retry_wait_s(error, failures)
        if wait_s is None:
            raise error
        if self._on_wait:
            self._on_wait(error.fact, wait_s)
        self.sleep(wait_s)
        return wait_s

    def retry_wait_s(self, error: Retryable, failures: int) -> float | None:
        """Seconds to wait after the `failures`-th failure in a row; None: give up."""
        if failures > error.retries or failures >= self.retry.attempts:
            return None
        return self.retry.wait_s(failures, error.retry_after_s)

    def sleep(self, seconds: float) -> None:
        """Wait; CancelledError as soon as `abort` is called."""
        if self.cancelled.wait(seconds):
            raise CancelledError("the download was stopped", hint="run the same command again to go on")

    @contextmanager
    def stream(
        self, url: str, *, credentials: Credentials | None = None, headers: Mapping[str, str] | None = None
    ) -> Iterator[requests.Response]:
        """An answer of status 2xx with its body still unread. `response.url` is where redirects led.

        One attempt. Raises as `get`; a 401, 403 or 404 from another host than `url` is temporary, because
        there it means that a signed address has expired.
        """
        response = self._follow(url, credentials, headers or {})
        with self._guard:
            self._open.add(response)
        try:
            if response.status_code >= 300:
                raise _status_error(response, is_redirected=origin(response.url) != origin(url))
            yield response
        finally:
            with self._guard:
                self._open.discard(response)
            response.close()

    def _get_once(
        self, url: str, credentials: Credentials | None, headers: Mapping[str, str], max_bytes: int
    ) -> Answer:
        with self.stream(url, credentials=credentials, headers=headers) as response:
            body = _read_capped(response, max_bytes)
            return Answer(body, response.headers, response.url)

    def _follow(
        self, start: str, credentials: Credentials | None, headers: Mapping[str, str]
    ) -> requests.Response:
        url = start
        for _ in range(MAX_REDIRECTS):
            response = self._send(url, credentials, headers)
            location = response.headers.get("Location")
            if response.status_code not in _REDIRECTS or location is None:
                return response
            response.close()
            url = next_address(start, url, location.encode("latin-1").decode("utf-8", "replace"))
        raise AnswerError(f"{host_of(start)} redirects more than {MAX_REDIRECTS} times")

    def _send(
        self, url: str, credentials: Credentials | None, headers: Mapping[str, str]
    ) -> requests.Response:
        if self.cancelled.is_set():
            raise CancelledError("the download was stopped", hint="run the same command again to go on")
        bundle = self.settings.ca_bundle
        if bundle and not os.path.exists(bundle):
            raise TlsError(
                f"the certificates {bundle!r} are not there",
                hint="the file is named by REQUESTS_CA_BUNDLE, CURL_CA_BUNDLE or SSL_CERT_FILE",
            )
        every = {"User-Agent": _USER_AGENT, "Accept-Encoding": "identity", **headers}
        with network_errors(url):
            request = requests.Request("GET", url, headers=every, auth=_Bearer(credentials)).prepare()
            return self._adapter.send(
                request,
                stream=True,
                timeout=(_CONNECT_S, self.settings.stall_s),
                proxies=self.settings.proxies_for(url),
                verify=bundle or True,
            )


@contextmanager
def network_errors(url: str) -> Iterator[None]:
    """Turn what `requests`, urllib3 and sockets raise while talking to `url` into NetworkError and kin."""
    host = host_of(url)
    hint = "check the connection and proxy settings; `minfer-fetch doctor` looks at the network"
    try:
        yield
    except (requests.exceptions.ReadTimeout, urllib3.exceptions.ReadTimeoutError, TimeoutError):
        raise StalledError(f"{host} sent nothing for too long", hint=hint) from None
    except (requests.exceptions.SSLError, urllib3.exceptions.SSLError, ssl.SSLError) as error:
        raise TlsError(
            f"the certificate of {host} is not accepted ({_reason(error)})",
            hint="behind a company proxy, name its certificates in REQUESTS_CA_BUNDLE",
        ) from None
    except (requests.exceptions.InvalidURL, requests.exceptions.InvalidSchema, UnicodeError) as error:
        raise AnswerError(f"{url.partition('?')[0][:200]!r} is no web address") from error
    except (requests.exceptions.ProxyError, urllib3.exceptions.ProxyError) as error:
        raise NetworkError(
            f"the proxy does not connect to {host} ({_reason(error)})",
            hint="the proxy is named by https_proxy, http_proxy or all_proxy; no_proxy lists exceptions",
        ) from None
    except (requests.exceptions.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
        raise NetworkError(f"the connection to {host} failed ({_reason(error)})", hint=hint) from None


def _reason(error: BaseException) -> str:
    """The innermost cause in a few words, without addresses that may carry a signature."""
    for _ in range(8):
        causes = [getattr(error, "reason", None), *error.args]
        inner = next((cause for cause in causes if isinstance(cause, BaseException)), None)
        if inner is None:
            break
        error = inner
    text = getattr(error, "strerror", None) or str(error).rpartition(": ")[2]
    text = _ERROR_NUMBER.sub("", text)
    is_readable = text and text.isprintable() and "?" not in text and len(text) <= 200
    return text if is_readable else type(error).__name__


def _status_error(response: requests.Response, *, is_redirected: bool) -> HttpStatusError:
    status = response.status_code
    kind: type[HttpStatusError] = HttpStatusError
    if status == 429:
        kind = RateLimitedError
    elif status in _TEMPORARY or (is_redirected and status in {401, 403, 404, 410}):
        kind = TemporaryStatusError
    error = kind(
        status,
        host_of(response.url),
        headers=response.headers,
        text=_error_text(response),
        redirected=is_redirected,
    )
    if kind is not HttpStatusError:
        error.retry_after_s = retry_after_s(response.headers)
        wait = f" in {error.retry_after_s:.0f} s" if error.retry_after_s else " later"
        error.hint = f"try again{wait}; what is already here is kept"
    return error


def _error_text(response: requests.Response) -> str:
    """The server's own words: X-Error-Message, a JSON `error` or `errors[].message`, or one line of text."""
    text = response.headers.get("X-Error-Message", "")
    if not text:
        try:
            with network_errors(response.url):
                body = response.raw.read(_ERROR_TEXT_BYTES, decode_content=False) or b""
        except NetworkError:
            body = b""
        text = _words_of(body)
    return "".join(c for c in " ".join(text.split()) if c.isprintable())[:200]


def _words_of(body: bytes) -> str:
    text = body.decode("utf-8", "replace").strip()
    if text.startswith("<"):
        return ""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    if not isinstance(value, dict):
        return ""
    errors = value.get("errors")
    first = errors[0] if isinstance(errors, list) and errors else {}
    message = value.get("error") or (first.get("message") if isinstance(first, dict) else "")
    return message if isinstance(message, str) else ""


def _read_capped(response: requests.Response, max_bytes: int) -> bytes:
    pieces: list[bytes] = []
    n_bytes = 0
    deadline = time.monotonic() + _JSON_DEADLINE_S
    announced = response.headers.get("Content-Length", "")
    with network_errors(response.url):
        while piece := response.raw.read1(64 * 1024, decode_content=False):
            pieces.append(piece)
            n_bytes += len(piece)
            if n_bytes > max_bytes:
                raise AnswerError(f"{host_of(response.url)} sent more than {max_bytes} bytes of answer")
            if time.monotonic() > deadline:
                raise StalledError(f"{host_of(response.url)} took over {_JSON_DEADLINE_S:.0f} s to answer")
    if announced.isdecimal() and int(announced) != n_bytes:
        raise NetworkError(f"{host_of(response.url)} broke off after {n_bytes} of {announced} bytes")
    return b"".join(pieces)
