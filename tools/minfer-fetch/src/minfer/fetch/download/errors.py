"""What can go wrong between a registry and a file, one class per thing a user would do differently.

    TransferError
    └── DownloadError                    download
        ├── NetworkError                 network            no answer, or the connection broke
        │   ├── StalledError             stalled            connected, and no bytes arrive
        │   └── TlsError                 tls                the certificate is not accepted
        ├── HttpStatusError              http-status        the server refused, with a status
        │   ├── RateLimitedError         rate-limited
        │   └── TemporaryStatusError     temporary-status   one that often goes away by itself
        ├── AccessDeniedError            access-denied      the token is missing, wrong or too narrow
        │   └── GatedModelError          gated-model        terms have to be accepted first
        ├── RedirectRefusedError         redirect-refused   a redirect that could leak or reach inside
        ├── AnswerError                  registry-answer    not what the protocol says
        │   ├── NotAModelError           not-a-model        a web page or an error text in a model's place
        │   ├── SizeMismatchError        size-mismatch
        │   ├── RangeError               range-mismatch     the server's partial answers cannot be used
        │   └── ChangedError             changed-upstream   another file than when the download began
        ├── ChecksumError                checksum
        ├── DestinationTakenError        destination-taken
        ├── HostileNameError             hostile-name       a name that would leave the cache
        └── CancelledError               cancelled
    ModelNotFoundError
    ├── RepositoryNotFoundError          repository-not-found
    └── RevisionNotFoundError            revision-not-found

A full disk, an incomplete split set and a digest that is none have their classes elsewhere:
minfer.fetch.publish, minfer.store.quant_choice, minfer.core.digest.
`retries` on a class says how often the same failure is worth another try.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from minfer.core.errors import ModelNotFoundError, TransferError


class DownloadError(TransferError):
    """A download failed. `retry_after_s`: when the server asked to be asked again, if it said so."""

    code = "download"
    retries: ClassVar[int] = 0
    retry_after_s: float | None = None


class NetworkError(DownloadError):
    """The host gave no answer, or the connection broke."""

    code, retries = "network", 5


class StalledError(NetworkError):
    """The connection stands and (almost) no bytes arrive."""

    code = "stalled"


class TlsError(NetworkError):
    """The server's certificate is not accepted."""

    code, retries = "tls", 0


class HttpStatusError(DownloadError):
    """The server refused. `error_code` is Hugging Face's X-Error-Code; `redirected`: another host said it."""

    code = "http-status"

    def __init__(
        self, status: int, host: str, *, headers: Mapping[str, str], text: str, redirected: bool = False
    ) -> None:
        detail = f": {text}" if text else ""
        super().__init__(f"{host} answered {status}{detail}")
        self.status = status
        self.host = host
        self.headers = headers
        self.text = text
        self.redirected = redirected

    @property
    def error_code(self) -> str:
        """The Hub's own name of the failure, '' elsewhere."""
        return self.headers.get("X-Error-Code", "")


class RateLimitedError(HttpStatusError):
    """Too many requests."""

    code, retries = "rate-limited", 5


class TemporaryStatusError(HttpStatusError):
    """A status that often goes away by itself (408, 5xx, or a signed address that expired)."""

    code, retries = "temporary-status", 5


class AccessDeniedError(DownloadError):
    """The token is missing, wrong, or does not reach that far."""

    code, http_status = "access-denied", 403


class GatedModelError(AccessDeniedError):
    """The owner wants terms to be accepted before anybody downloads."""

    code = "gated-model"


class RedirectRefusedError(DownloadError):
    """The server points to an address that a download must not follow."""

    code = "redirect-refused"


class AnswerError(DownloadError):
    """The answer is not what the protocol says it should be."""

    code, retries = "registry-answer", 2


class NotAModelError(AnswerError):
    """A web page, an error text or a pointer came in a model's place."""

    code = "not-a-model"


class SizeMismatchError(AnswerError):
    """The server offers another number of bytes than the listing announced."""

    code = "size-mismatch"


class RangeError(AnswerError):
    """A partial answer is not the part that was asked for."""

    code = "range-mismatch"


class ChangedError(AnswerError):
    """The server has another file than when the download began."""

    code = "changed-upstream"


class ChecksumError(DownloadError):
    """All bytes are there and they are not the announced ones."""

    code = "checksum"


class DestinationTakenError(DownloadError):
    """Another file has the final name."""

    code, http_status = "destination-taken", 409


class HostileNameError(DownloadError):
    """A registry announces a name that must not become a path."""

    code = "hostile-name"


class CancelledError(DownloadError):
    """Nobody waits for the download any more; what is verified stays."""

    code = "cancelled"


class RepositoryNotFoundError(ModelNotFoundError):
    """The registry has no such repository, or hides it."""

    code = "repository-not-found"


class RevisionNotFoundError(ModelNotFoundError):
    """The repository has no such branch, tag or commit."""

    code = "revision-not-found"
