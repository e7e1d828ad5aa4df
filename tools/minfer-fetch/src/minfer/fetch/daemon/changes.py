"""What happens to the models of a cache, seen by comparing what was with what is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal

from minfer.fetch.daemon.live_catalog import LiveCatalog
from minfer.store.daemon_facts import ListedModel

_LOOK_AGAIN_S = 1.0


Kind = Literal["KIND_PRESENT", "KIND_SETTLED", "KIND_CHANGED", "KIND_REMOVED"]


def changes(
    catalog: LiveCatalog, is_going_on: Callable[[], bool]
) -> Iterator[tuple[Kind, ListedModel | None]]:
    """(kind of minfer.store.v1.WatchResponse, model): all that is there, KIND_SETTLED, then each change."""
    known = {model.path: model for model in catalog.listed()}
    for model in known.values():
        yield "KIND_PRESENT", model
    yield "KIND_SETTLED", None
    while is_going_on():
        catalog.wait(_LOOK_AGAIN_S)
        now = {model.path: model for model in catalog.listed()}
        yield from difference(known, now)
        known = now


def difference(
    before: dict[str, ListedModel], now: dict[str, ListedModel]
) -> Iterator[tuple[Kind, ListedModel | None]]:
    """What changed between two states of a cache, by path."""
    for path, model in before.items():
        if path not in now:
            yield "KIND_REMOVED", model
    for path, model in now.items():
        if path not in before:
            yield "KIND_PRESENT", model
        elif model != before[path]:
            yield "KIND_CHANGED", model
