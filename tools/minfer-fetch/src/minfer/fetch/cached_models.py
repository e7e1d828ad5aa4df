"""From the words of a command to models of the cache, which is all that can be removed or verified."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from minfer.core.errors import AmbiguousModelError, ModelNotFoundError
from minfer.core.reference import NameReference, PathReference, parse_reference
from minfer.store.cached_model import CachedModel
from minfer.store.catalog import Catalog
from minfer.store.client import existing_path
from minfer.store.resolution import Local, cached_matches, decide
from minfer.store.settings import Settings
from minfer.store.spelling import pasteable, spelling


class NotInCacheError(ModelNotFoundError):
    """The word names something, and that is no model of the cache."""

    code = "not-in-cache"


def cached_model(word: str, catalog: Catalog, settings: Settings) -> CachedModel:
    """The model that `word` means: a cached name, a reference, or a path into the cache; complete or not.

    Raises NotInCacheError, AmbiguousModelError, BadReferenceError.
    """
    reference = parse_reference(word)
    if isinstance(reference, PathReference):
        return _at(word, existing_path(reference, settings), catalog)
    if isinstance(reference, NameReference):
        outcome = decide(reference, None, catalog, offline=True)
        assert isinstance(outcome, Local)  # a name is found or refused
        assert outcome.model is not None
        return outcome.model
    found = cached_matches(reference, catalog)
    if len(found) > 1:
        raise AmbiguousModelError(
            f"{word!r} can mean {len(found)} models of the cache",
            hint="write one of them",
            candidates=tuple(pasteable(spelling(model, catalog)) for model in found),
        )
    if not found:
        raise NotInCacheError(f"{reference} is not in the cache", hint="`minfer-fetch list` shows what is")
    return found[0]


def cached_models(words: Sequence[str], catalog: Catalog, settings: Settings) -> tuple[CachedModel, ...]:
    """The models that `words` mean, each once; all of the cache when there are no words."""
    if not words:
        return catalog.models
    return tuple(
        {model.path: model for model in (cached_model(w, catalog, settings) for w in words)}.values()
    )


def _at(word: str, path: Path | None, catalog: Catalog) -> CachedModel:
    """The model with a file at `path`; links in the way to it do not matter."""
    if path is not None:
        wanted = path.parent.resolve() / path.name
        directory = catalog.directory.resolve()
        for model in catalog.models:
            if any(directory / file.path == wanted for file in model.files.files):
                return model
    raise NotInCacheError(
        f"{word!r} is no model of the cache {str(catalog.directory)!r}",
        hint="files elsewhere are yours to manage; `minfer-fetch list` shows what is in the cache",
    )
