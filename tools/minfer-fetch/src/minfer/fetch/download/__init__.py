"""Downloads that cannot leave a wrong file under a final name: engine, HTTP client, errors."""

from __future__ import annotations

from minfer.fetch.download.engine import DEFAULT_JOBS, download
from minfer.fetch.download.errors import (
    AccessDeniedError,
    AnswerError,
    CancelledError,
    ChecksumError,
    DestinationTakenError,
    DownloadError,
    GatedModelError,
    HostileNameError,
    HttpStatusError,
    NetworkError,
    NotAModelError,
    RateLimitedError,
    RedirectRefusedError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
    SizeMismatchError,
    StalledError,
    TlsError,
)
from minfer.fetch.download.http import Answer, HttpClient
from minfer.fetch.download.job import FileJob
from minfer.fetch.download.partial import n_bytes_of, partial_directory
from minfer.fetch.download.redirects import Credentials
from minfer.fetch.download.retry import RetryPolicy
from minfer.fetch.download.settings import NetworkSettings

__all__ = [
    "DEFAULT_JOBS",
    "AccessDeniedError",
    "Answer",
    "AnswerError",
    "CancelledError",
    "ChecksumError",
    "Credentials",
    "DestinationTakenError",
    "DownloadError",
    "FileJob",
    "GatedModelError",
    "HostileNameError",
    "HttpClient",
    "HttpStatusError",
    "NetworkError",
    "NetworkSettings",
    "NotAModelError",
    "RateLimitedError",
    "RedirectRefusedError",
    "RepositoryNotFoundError",
    "RetryPolicy",
    "RevisionNotFoundError",
    "SizeMismatchError",
    "StalledError",
    "TlsError",
    "download",
    "n_bytes_of",
    "partial_directory",
]
