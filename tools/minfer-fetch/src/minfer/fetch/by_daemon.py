"""Fetching through the daemon, and in this process where there can be none."""

from __future__ import annotations

from minfer.core.reference import RemoteReference, parse_reference
from minfer.fetch.pull import Pulled, obtain
from minfer.store.address import NoDaemonError
from minfer.store.client import Resolved
from minfer.store.daemon import with_daemon
from minfer.store.lookup import look_up
from minfer.store.progress import OnProgress
from minfer.store.resolution import Local
from minfer.store.settings import Settings


def resolve(text: str, settings: Settings, on_progress: OnProgress) -> Resolved:
    """As `minfer.store.resolve`, with this process instead of a child."""
    reference = parse_reference(text)
    outcome = look_up(reference, settings)
    if isinstance(outcome, Local):
        return Resolved(outcome.path, "path" if outcome.model is None else "cache", reference)
    name = str(outcome.reference)
    try:
        path, was_cached = with_daemon(settings, lambda client: client.resolve(name, on_progress))
    except NoDaemonError:
        pulled = obtain(outcome.reference, settings, on_progress, refresh=False)
        path, was_cached = pulled.path, pulled.was_cached
    return Resolved(path, "cache" if was_cached else "fetched", reference)


def pull_detached(reference: RemoteReference, settings: Settings, on_progress: OnProgress) -> Pulled | None:
    """Start a download that outlives this process; its result if there was nothing to download.

    Raises NoDaemonError, and what the source says before the first byte.
    """
    path = with_daemon(settings, lambda client: client.pull_detached(str(reference), on_progress))
    return None if path is None else Pulled(path, True)
