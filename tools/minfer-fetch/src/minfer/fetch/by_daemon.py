"""Fetching through the daemon, and in this process where there can be none."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from minfer.core.reference import RemoteReference, parse_reference
from minfer.store.client import Resolved
from minfer.store.lookup import look_up
from minfer.store.progress import OnProgress, Progress
from minfer.store.resolution import Local
from minfer.store.settings import Settings

if TYPE_CHECKING:
    from minfer.fetch.pull import Pulled


def resolve(text: str, settings: Settings, on_progress: OnProgress) -> Resolved:
    """As `minfer.store.resolve`, with this process instead of a child."""
    reference = parse_reference(text)
    outcome = look_up(reference, settings)
    if isinstance(outcome, Local):
        return Resolved(outcome.path, "path" if outcome.model is None else "cache", reference)
    # only now: a cached model is to be answered without waiting for HTTP clients to be imported
    from minfer.store.address import NoDaemonError
    from minfer.store.daemon import with_daemon

    name = str(outcome.reference)
    try:
        path, was_cached = with_daemon(settings, lambda client: client.resolve(name, on_progress))
    except NoDaemonError:
        from minfer.fetch.pull import obtain

        listener = _while_wanted(on_progress, settings)
        pulled = obtain(outcome.reference, settings, listener, refresh=False)
        path, was_cached = pulled.path, pulled.was_cached
    return Resolved(path, "cache" if was_cached else "fetched", reference)


def _while_wanted(on_progress: OnProgress, settings: Settings) -> OnProgress:
    """`on_progress` that ends the work once the process that this one works for was killed."""
    from minfer.fetch.download.errors import CancelledError
    from minfer.store.child import PARENT

    parent = settings.environment.get(PARENT, "")
    if not parent.isdecimal():
        return on_progress

    def listen(event: Progress) -> None:
        if os.getppid() != int(parent):
            raise CancelledError("nobody waits for the download any more", hint="what came is kept")
        on_progress(event)

    return listen


def pull_detached(reference: RemoteReference, settings: Settings, on_progress: OnProgress) -> Pulled | None:
    """Start a download that outlives this process; its result if there was nothing to download.

    Raises NoDaemonError, and what the source says before the first byte.
    """
    from minfer.fetch.pull import Pulled
    from minfer.store.daemon import with_daemon

    path = with_daemon(settings, lambda client: client.pull_detached(str(reference), on_progress))
    return None if path is None else Pulled(path, True)
