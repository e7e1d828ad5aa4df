"""One file from first byte to verified partial: attempts, resumption, and the check at the end."""

from __future__ import annotations

import time
from dataclasses import replace

from minfer.core.units import human_bytes, human_seconds
from minfer.fetch.download.body import BodyReader, RangeRequest, check_answer, copy_body, strong_etag
from minfer.fetch.download.errors import (
    AnswerError,
    ChangedError,
    ChecksumError,
    HttpStatusError,
    NetworkError,
    NotAModelError,
    RangeError,
)
from minfer.fetch.download.http import HttpClient, Retryable
from minfer.fetch.download.job import FileJob
from minfer.fetch.download.partial import Identity, Partial
from minfer.fetch.download.redirects import host_of
from minfer.store.progress import OnProgress, Progress
from minfer.store.records import Record

_EVENT_EVERY_S = 0.1


class FileDownload:
    """Fetches one job into its partial file. `run` once; the caller holds the lock of the job's key."""

    def __init__(self, job: FileJob, partial: Partial, client: HttpClient, on_progress: OnProgress) -> None:
        self._job = job
        self._partial = partial
        self._client = client
        self._on_progress = on_progress
        self._credentials = job.credentials
        self._ask_for_ranges = True
        self._n_sources = 0  # how many answers (or earlier processes) the bytes here came from
        self._host = host_of(job.url)
        self._said_at = 0.0

    def run(self) -> Record:
        """The job's record with the computed digest; the partial file is then whole and verified.

        Raises a DownloadError, the error of the job's source, or OSError from the disk.
        """
        job = self._job
        identity = Identity(job.n_bytes, job.record.sha256, "", job.record.path)
        self._partial.resume(identity, self._checking)
        self._n_sources = 1 if self._partial.n_bytes_here else 0
        if self._partial.n_bytes_here:
            here = human_bytes(self._partial.n_bytes_here)
            self._on_progress(Progress(job.label, note=f"going on from {here} of an earlier download"))
        self._said_at = 0.0
        self._say(self._partial.n_bytes_here)
        while True:
            self._fetch_rest()
            digest = self._partial.digest()
            self._check_magic()
            if job.record.sha256 in ("", digest):
                return replace(job.record, sha256=digest)
            self._refuse_or_restart(digest)

    def _fetch_rest(self) -> None:
        """Attempts, until every byte is here or another attempt is not worth it."""
        failures = 0
        while self._partial.n_bytes_here < self._job.n_bytes:
            before = self._partial.n_bytes_here
            try:
                self._attempt()
            except (NetworkError, HttpStatusError, AnswerError) as error:
                gained = self._partial.n_bytes_here - before
                failures = 1 if gained >= self._client.retry.progress_bytes else failures + 1
                self._recover(error, failures)

    def _attempt(self) -> None:
        job, partial = self._job, self._partial
        offset = partial.n_bytes_here if self._ask_for_ranges else 0
        asked = RangeRequest(offset, partial.etag)
        headers = asked.headers(is_pinned=bool(job.record.sha256))
        with self._client.stream(job.url, credentials=self._credentials, headers=headers) as response:
            start = check_answer(response, job, asked)
            self._host = host_of(response.url)
            self._n_sources += 1
            if start == partial.n_bytes_here:
                partial.remember_etag(strong_etag(response))
            reader = BodyReader(response, self._client.settings.stall_s, self._client.cancelled)
            copy_body(reader, partial, job, start, self._say)

    def _recover(self, error: Retryable, failures: int) -> None:
        """Prepare the next attempt and wait for it, or raise."""
        if isinstance(error, HttpStatusError) and self._has_renewed(error, failures):
            return
        if isinstance(error, HttpStatusError) and error.status == 416 and self._ask_for_ranges:
            error = RangeError(error.fact)
        if isinstance(error, ChangedError):
            self._restart()
        elif isinstance(error, RangeError):
            self._ask_for_ranges = False  # what is here stays, and is compared with what comes
        wait_s = self._client.retry_wait_s(error, failures)
        if wait_s is None:
            raise self._job.explain(error) if isinstance(error, HttpStatusError) else error
        note = f"{error.fact}; trying again in {human_seconds(wait_s)}"
        self._on_progress(Progress(self._job.label, note=note))
        self._client.sleep(wait_s)

    def _has_renewed(self, error: HttpStatusError, failures: int) -> bool:
        """Whether a 401 led to new credentials; tokens of registries live for minutes."""
        if error.status != 401 or self._job.renew is None or failures > 2:
            return False
        self._credentials = self._job.renew(error)
        return self._credentials is not None

    def _check_magic(self) -> None:
        """The last guard for files without a digest, and for empty ones, which never had a first byte."""
        head = self._partial.head(len(self._job.magic))
        if head != self._job.magic:
            self._partial.discard()
            raise NotAModelError(f"{self._job.label} from {self._host} is no model: it starts with {head!r}")

    def _refuse_or_restart(self, digest: str) -> None:
        """Bytes from several answers may not fit together: start over once. Those of one are simply wrong."""
        job = self._job
        if self._n_sources > 1:
            self._restart()
            self._on_progress(Progress(job.label, note="the pieces do not fit together; starting over"))
            return
        self._partial.discard()
        raise ChecksumError(
            f"{job.label} from {self._host} is damaged or was replaced: its sha256 is {digest}, "
            f"{job.record.sha256} was announced",
            hint="nothing was stored; try again later, and tell the model's publisher if it stays so",
        )

    def _restart(self) -> None:
        self._partial.truncate()
        self._n_sources = 0

    def _say(self, n_done: int) -> None:
        now = time.monotonic()
        if now - self._said_at >= _EVENT_EVERY_S or n_done == self._job.n_bytes:
            self._said_at = now
            self._on_progress(Progress(self._job.label, n_done, self._job.n_bytes))

    def _checking(self, n_done: int, n_here: int) -> None:
        now = time.monotonic()
        if now - self._said_at >= _EVENT_EVERY_S:
            self._said_at = now
            self._on_progress(Progress(f"check {self._job.label}", n_done, n_here))
