"""What a reference means on this machine: the rules of `minfer.store.resolution`, given the disk."""

from __future__ import annotations

from contextlib import suppress

from minfer.core.errors import ModelNotFoundError
from minfer.core.reference import PathReference, Reference
from minfer.store.catalog import Catalog, read_catalog, read_part
from minfer.store.client import existing_path
from minfer.store.resolution import Fetch, Local, decide
from minfer.store.settings import Settings


def look_up(reference: Reference, settings: Settings) -> Local | Fetch:
    """What `reference` means, without asking any source. Raises the ModelNotFoundError family."""
    existing = existing_path(reference, settings)
    return look_in_cache(reference, settings) if existing is None else Local(existing)


def look_in_cache(reference: Reference, settings: Settings) -> Local | Fetch:
    """As `look_up`, for a reference that names no path on this disk.

    Most words mean one complete model, and the part of the cache that they can mean is soon read. Every other
    outcome speaks of the rest as well, so it is decided on the whole.
    """
    if isinstance(reference, PathReference):
        return decide(reference, None, Catalog(settings.cache), offline=settings.offline)
    with suppress(ModelNotFoundError):
        outcome = decide(reference, None, read_part(settings.cache, reference), offline=settings.offline)
        if isinstance(outcome, Local):
            return outcome
    catalog = read_catalog(settings.cache, with_sizes=False)
    return decide(reference, None, catalog, offline=settings.offline)
