"""The catalog kept in memory: events of the file system are hints to look again; a sweep does so anyway."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

from watchdog.events import (
    DirCreatedEvent,
    DirDeletedEvent,
    DirMovedEvent,
    FileClosedEvent,
    FileCreatedEvent,
    FileDeletedEvent,
    FileMovedEvent,
    FileSystemEvent,
    FileSystemEventHandler,
)
from watchdog.observers import Observer

from minfer.fetch.listing import listed_models
from minfer.store.catalog import Catalog, read_catalog
from minfer.store.daemon_facts import ListedModel
from minfer.store.locks import STATE_DIRECTORY

_SWEEP_S = 5.0  # how old an answer may be while the system announces changes
_BLIND_SWEEP_S = 0.5  # and while it does not
_EVENTS: list[type[FileSystemEvent]] = [
    DirCreatedEvent,
    DirDeletedEvent,
    DirMovedEvent,
    FileClosedEvent,
    FileCreatedEvent,
    FileDeletedEvent,
    FileMovedEvent,
]


class LiveCatalog(FileSystemEventHandler):
    """The models of `cache`. All methods may be called from any thread."""

    def __init__(self, cache: Path) -> None:
        self.cache = cache
        self._scanning = threading.RLock()
        self._changed = threading.Condition()
        self._n_changes = 0
        self._seen_changes = -1
        self._scanned_at = 0.0
        self._catalog = Catalog(cache, exists=False)
        self._listed: tuple[ListedModel, ...] | None = None
        self._observer: Observer | None = None  # type: ignore[valid-type]  # a class chosen per system
        self._watched: tuple[int, int] | None = None

    @property
    def is_watching(self) -> bool:
        """True while the system announces changes."""
        return self._observer is not None

    def current(self) -> Catalog:
        """The catalog as of the last change that is known."""
        limit = _SWEEP_S if self.is_watching else _BLIND_SWEEP_S
        with self._scanning:
            is_old = time.monotonic() - self._scanned_at > limit
            return self.fresh() if is_old or self._seen_changes != self._n_changes else self._catalog

    def fresh(self) -> Catalog:
        """The catalog as of now."""
        with self._scanning:
            self._seen_changes = self._n_changes
            self._catalog = read_catalog(self.cache)
            self._scanned_at = time.monotonic()
            self._listed = None
            return self._catalog

    def listed(self) -> tuple[ListedModel, ...]:
        """The models of `current` as they are shown."""
        with self._scanning:
            catalog = self.current()
            if self._listed is None:
                self._listed = listed_models(catalog)
            return self._listed

    def wait(self, seconds: float) -> None:
        """Until something may have changed, at most `seconds`."""
        with self._changed:
            before = self._n_changes
            self._changed.wait_for(lambda: self._n_changes != before, seconds)

    def touch(self) -> None:
        """Something may have changed."""
        with self._changed:
            self._n_changes += 1
            self._changed.notify_all()

    def on_any_event(self, event: FileSystemEvent) -> None:
        """watchdog's hook. The daemon's own partial files and locks are not news, records are."""
        own = f"{os.sep}{STATE_DIRECTORY}{os.sep}"
        for path in (os.fsdecode(event.src_path), os.fsdecode(event.dest_path)):
            if path and (own not in path or f"{own}records" in path):
                self.touch()
                return

    def watch(self) -> None:
        """Begin to watch, or again when the directory is another one than before. Called now and then."""
        try:
            status = self.cache.stat()
            identity = (status.st_dev, status.st_ino)
        except OSError:
            identity = None
        if identity == self._watched:
            return
        self.stop()
        self._watched = identity
        if identity is not None:
            observer = Observer()
            observer.schedule(self, str(self.cache), recursive=True, event_filter=_EVENTS)
            try:
                observer.start()
            except OSError:  # the system's limit of watches; looking does without
                return
            self._observer = observer
        self.touch()

    def stop(self) -> None:
        """Watch no more."""
        if self._observer is not None:
            self._observer.stop()
            self._observer = None
