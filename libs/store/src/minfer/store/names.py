"""Cached models by name: the steps from a bare word to a model. Pure.

Exact file name, then exact name without `.gguf`, then prefix; then the same three ignoring case. The first
step that finds anything decides. Parts of one split set are one model.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import cached_property

from minfer.store.cached_model import CachedModel


class NameIndex:
    """The names of `models`, prepared for many look-ups."""

    def __init__(self, models: Sequence[CachedModel]) -> None:
        """Costs about two milliseconds for a thousand models."""
        self._models = models
        self._exact = _Names(models, str)

    def find(self, name: str) -> tuple[CachedModel, ...]:
        """The models that `name` can mean, by the first step that finds any; () when none does."""
        return self._exact.find(name) or self._ignoring_case.find(name)

    @cached_property
    def _ignoring_case(self) -> _Names:
        return _Names(self._models, str.lower)


class _Names:
    """Exact names, names without `.gguf`, and prefixes, all passed through `fold`."""

    def __init__(self, models: Sequence[CachedModel], fold: Callable[[str], str]) -> None:
        self._fold = fold
        self._exact: dict[str, list[CachedModel]] = {}
        self._stems: dict[str, list[CachedModel]] = {}
        for model in models:
            for file in model.files.files:
                name = fold(file.name)
                self._exact.setdefault(name, []).append(model)
                self._stems.setdefault(name[:-5], []).append(model)
        self._sorted = sorted(self._exact)

    def find(self, name: str) -> tuple[CachedModel, ...]:
        wanted = self._fold(name)
        found = self._exact.get(wanted) or self._stems.get(wanted) or self._with_prefix(wanted)
        return tuple(dict.fromkeys(found))

    def _with_prefix(self, prefix: str) -> list[CachedModel]:
        found: list[CachedModel] = []
        for name in self._sorted[bisect_left(self._sorted, prefix) :]:
            if not name.startswith(prefix):
                break
            found += self._exact[name]
        return found
