"""A model's files from the network into the cache: all of them or none gets its final name.

`download` waits for whoever downloads the same content, checks what is here already and the room on the disk,
fetches several files at a time, verifies each, and publishes them, the one that is opened last.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from minfer.core.errors import MinferError
from minfer.fetch.download.crew import Crew
from minfer.fetch.download.errors import DestinationTakenError
from minfer.fetch.download.http import HttpClient
from minfer.fetch.download.job import FileJob
from minfer.fetch.download.lock import FileLock
from minfer.fetch.download.one_file import FileDownload
from minfer.fetch.download.partial import Partial, n_bytes_of, partial_directory
from minfer.fetch.publish import check_space, disk_error, make_directory, publish
from minfer.store.progress import OnProgress, Progress
from minfer.store.records import Record, read_record

_WAIT_S = 0.2
DEFAULT_JOBS = 4


def download(
    jobs: Sequence[FileJob],
    cache: Path,
    client: HttpClient,
    on_progress: OnProgress,
    *,
    n_jobs: int = DEFAULT_JOBS,
) -> list[Path]:
    """Bring every job's file into `cache`; the paths in the order of `jobs`, the first is the entry.

    Raises DownloadError and its kin, NoSpaceError, CacheNotWritableError, or what the job's source says.
    Interruption at any moment keeps every byte that came. `client` is aborted when the download fails.
    """
    directory = partial_directory(cache)
    make_directory(directory)
    with ExitStack() as stack, _typed_disk_errors(cache):
        locks = {}
        for key in sorted({job.key for job in jobs}):  # one order for all processes: no deadlock
            lock = stack.enter_context(FileLock(directory / f"{key}.lock"))
            _wait_for(lock, [job for job in jobs if job.key == key], cache, on_progress)
            locks[key] = lock
        absent = [job for job in jobs if not _is_here(job, cache, locks[job.key].note)]
        if absent:
            _fetch_and_publish(absent, cache, client, locks, on_progress, n_jobs)
    return [cache / job.record.path for job in jobs]


def _fetch_and_publish(
    jobs: Sequence[FileJob],
    cache: Path,
    client: HttpClient,
    locks: dict[str, FileLock],
    on_progress: OnProgress,
    n_jobs: int,
) -> None:
    for job in jobs:
        _check_writable(cache / job.record.path)
    distinct = {job.key: job for job in jobs}
    check_space(cache, sum(max(0, job.n_bytes - n_bytes_of(cache, job.key)) for job in distinct.values()))
    directory = partial_directory(cache)
    names = {key: key if locks[key].is_trusted else f"{key}.{secrets.token_hex(4)}" for key in distinct}
    tasks = [_task(job, directory, names[job.key], client) for job in distinct.values()]
    verified = dict(zip(distinct, Crew(tasks, n_jobs, client.abort).run(on_progress), strict=True))
    for index in reversed(range(len(jobs))):
        job = jobs[index]
        partial = directory / f"{names[job.key]}.partial"
        is_wanted_again = any(other.key == job.key for other in jobs[:index])
        _publish(job, verified[job.key], cache, partial, locks[job.key], keep=is_wanted_again)


def _task(job: FileJob, directory: Path, name: str, client: HttpClient) -> Callable[[OnProgress], Record]:
    def run(on_progress: OnProgress) -> Record:
        with Partial(directory, name) as partial:
            return FileDownload(job, partial, client, on_progress).run()

    return run


def _publish(
    job: FileJob, verified: Record, cache: Path, partial: Path, lock: FileLock, *, keep: bool
) -> None:
    """Give the verified partial its final name; `keep`: the same content is wanted under another name too."""
    record = replace(job.record, sha256=verified.sha256)
    target = cache / record.path
    make_directory(target.parent)
    if keep or target.parent.stat().st_dev != partial.stat().st_dev:  # a rename works on one device only
        copy = target.with_name(f".{verified.sha256[:16]}.partial")
        publish(cache, Path(shutil.copyfile(partial, copy)), record)
    else:
        publish(cache, partial, record)
    if not keep:
        partial.unlink(missing_ok=True)
        partial.with_suffix(".json").unlink(missing_ok=True)
    status = target.stat()
    lock.leave_note(json.dumps([record.path, record.sha256, status.st_size, status.st_mtime_ns]).encode())


def _check_writable(target: Path) -> None:
    """Raise CacheNotWritableError now, rather than after hours, when `target` will not be allowed."""
    existing = target.parent
    while not existing.exists():
        existing = existing.parent
    if not os.access(existing, os.W_OK | os.X_OK):
        raise disk_error(PermissionError(errno.EACCES, os.strerror(errno.EACCES)), existing)


def _is_here(job: FileJob, cache: Path, note: bytes) -> bool:
    """Whether the final file is already the announced one: published while we waited, recorded, or by hash.

    Raises DestinationTakenError when it is another file.
    """
    path = cache / job.record.path
    try:
        status = path.stat()
    except FileNotFoundError:
        return False
    digest = job.record.sha256
    if _note_values(note) == [job.record.path, digest, status.st_size, status.st_mtime_ns]:
        return True
    known = read_record(cache, job.record.path)
    if known and known.fits(status) and known.n_bytes == job.n_bytes and digest in ("", known.sha256):
        return True
    if digest and status.st_size == job.n_bytes and _digest_of(path) == digest:
        return True
    raise DestinationTakenError(
        f"{str(path)!r} is another file than {job.label} of {job.record.source or 'its source'} is now",
        hint="it is left as it is; `minfer-fetch rm` it first if you want the new one",
    )


def _note_values(note: bytes) -> object:
    try:
        return json.loads(note or b"null")
    except ValueError:
        return None


def _digest_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _wait_for(lock: FileLock, jobs: list[FileJob], cache: Path, on_progress: OnProgress) -> None:
    """Take `lock`; while another process has it, say how far that one is."""
    if lock.try_acquire():
        return
    for job in jobs:
        on_progress(Progress(job.label, note="another process is downloading it; waiting"))
    while not lock.try_acquire():
        for job in jobs:
            n_done = n_bytes_of(cache, job.key)
            on_progress(Progress(job.label, min(n_done, job.n_bytes), job.n_bytes))
        time.sleep(_WAIT_S)


@contextmanager
def _typed_disk_errors(cache: Path) -> Iterator[None]:
    try:
        yield
    except MinferError:
        raise
    except OSError as error:
        raise disk_error(error, Path(os.fsdecode(error.filename)) if error.filename else cache) from error
