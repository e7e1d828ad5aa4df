"""From a model of the cache to the shortest word that means it. Pure."""

from __future__ import annotations

import re
from shlex import quote

from minfer.core.errors import UsageError
from minfer.core.reference import HubReference, NameReference, parse_reference
from minfer.store.cached_model import CachedModel
from minfer.store.catalog import Catalog
from minfer.store.quant_choice import selector

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")


def spelling(model: CachedModel, catalog: Catalog) -> str:
    """The shortest word that means `model` alone: a file name, else a reference, else its path.

    Ollama's models are all called `model.gguf`, so they get their reference.
    """
    if model.source != "ollama":
        for name in (model.files.base, model.files.first.name):
            if _is_bare(name) and catalog.names.find(name) == (model,):
                return name
    reference = full_reference(model, catalog)
    return reference or str(catalog.path_of(model))


def full_reference(model: CachedModel, catalog: Catalog) -> str | None:
    """The reference that means `model` alone, None when there is none."""
    if model.reference is None:
        return None
    siblings = catalog.by_place[model.place]
    if not isinstance(model.reference, HubReference):
        return str(model.reference) if len(siblings) == 1 else None
    chosen = selector(model.in_repository, [other.in_repository for other in siblings])
    return str(HubReference(model.reference.repo, chosen, model.reference.revision))


def _is_bare(name: str) -> bool:
    """True when the word `name` is read as a name and not as a path, a reference or a mistake."""
    try:
        return parse_reference(name) == NameReference(name) and not name.startswith("-")
    except UsageError:
        return False


def pasteable(word: str) -> str:
    """`word` as a shell reads it, with nothing in it that a terminal would obey."""
    if not _CONTROL.search(word):
        return quote(word)
    escaped = word.replace("\\", "\\\\").replace("'", "\\'")
    return "$'" + _CONTROL.sub(_escape, escaped) + "'"


def _escape(match: re.Match[str]) -> str:
    data = match[0].encode(errors="surrogateescape")
    return "".join(f"\\x{byte:02x}" for byte in data)
