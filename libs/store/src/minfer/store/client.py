"""The one door to models: from the word that a user wrote to the path of a file on this disk."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from minfer.core.reference import NameReference, PathReference, Reference, parse_reference
from minfer.store.progress import OnProgress, ignore_progress
from minfer.store.settings import Settings, expand_user

if TYPE_CHECKING:
    from minfer.store.locks import Hold


@dataclass(frozen=True, slots=True)
class Resolved:
    """Where a model is. `source`: 'path' (as written), 'cache' (was there), 'fetched' (by minfer-fetch)."""

    path: Path
    source: str
    reference: Reference

    @property
    def is_path_like(self) -> bool:
        """True when the user wrote a path; then nobody needs to be told where the model is."""
        return isinstance(self.reference, PathReference)


def resolve(
    reference: str, *, settings: Settings | None = None, on_progress: OnProgress = ignore_progress
) -> Resolved:
    """The model that `reference` means, downloaded when it has to be.

    A path touches neither cache nor network, and a complete match in the cache is answered in this process.
    Raises BadReferenceError and the ModelNotFoundError and TransferError families.
    """
    settings = settings or Settings.of()
    parsed = parse_reference(reference)
    existing = existing_path(parsed, settings)
    if existing is not None:
        return Resolved(existing, "path", parsed)
    from minfer.store.lookup import look_in_cache
    from minfer.store.resolution import Fetch

    outcome = look_in_cache(parsed, settings)
    if isinstance(outcome, Fetch):
        return Resolved(_fetched(str(parsed), settings, on_progress), "fetched", parsed)
    return Resolved(outcome.path, "path" if outcome.model is None else "cache", parsed)


def _fetched(reference: str, settings: Settings, on_progress: OnProgress) -> Path:
    """Fetched by the daemon, or where there can be none by a child process."""
    from minfer.store.address import NoDaemonError
    from minfer.store.daemon import with_daemon

    try:
        path, _ = with_daemon(settings, lambda client: client.resolve(reference, on_progress))
    except NoDaemonError:
        from minfer.store.child import resolve_in_child

        return resolve_in_child(reference, settings, on_progress)
    return path


def existing_path(reference: Reference, settings: Settings) -> Path | None:
    """The path that `reference` names on this disk if something is there. `~` is settled here."""
    match reference:
        case PathReference(text):
            path, is_written = Path(expand_user(text, settings.environment)), True
        case NameReference(name):
            path, is_written = Path(name), False
        case _:
            return None
    try:
        path.stat()
    except OSError as error:
        # a circle, or a place where nobody is let in: there, and its reader says what is wrong
        is_there = error.errno == errno.ELOOP or (error.errno == errno.EACCES and is_written)
        return path if is_there else None
    except ValueError:  # a name that no file system can hold
        return None
    return path


def hold(resolved: Resolved, settings: Settings | None = None) -> Hold | None:
    """Keep the model from being removed while the result lives; None for a file outside the cache.

    How the path to it was written does not matter: relative, or through links to directories.
    """
    settings = settings or Settings.of()
    cache = Path(os.path.realpath(settings.cache))
    path = Path(os.path.realpath(resolved.path.parent), resolved.path.name)
    if not path.is_relative_to(cache):
        return None
    from minfer.store.file_sets import lock_name
    from minfer.store.locks import hold as hold_model

    return hold_model(settings.cache, lock_name(str(path.relative_to(cache))))
