"""Where each reference lives below the cache, and back. Pure.

    hf/ORG/REPO/…                    hf/ORG/REPO@REVISION/… for a pinned revision
    ollama/MODEL:TAG/                ollama/HOST/NAMESPACE/MODEL:TAG/ for other registries and namespaces
    pypi/PACKAGE/                    pypi/PACKAGE==VERSION/ for a pinned version

A pinned revision has a directory of its own, so that asking for one never replaces another that works.
"""

from __future__ import annotations

from urllib.parse import quote, unquote

from minfer.core.errors import UsageError
from minfer.core.reference import (
    DEFAULT_NAMESPACE,
    DEFAULT_REGISTRY,
    HubReference,
    OllamaReference,
    PackageReference,
    RemoteReference,
    parse_reference,
)


def directory_of(reference: RemoteReference) -> str:
    """The directory of `reference`, relative to the cache, '/' between parts."""
    match reference:
        case HubReference(repo, _, revision):
            return f"hf/{repo}" + (f"@{quote(revision, safe='')}" if revision else "")
        case OllamaReference(model, tag, namespace, host):
            name = f"{model}:{tag}"
            if (host, namespace) == (DEFAULT_REGISTRY, DEFAULT_NAMESPACE):
                return f"ollama/{name}"
            return f"ollama/{host}/{namespace}/{name}"
        case PackageReference():
            return f"pypi/{str(reference).removeprefix('pypi:')}"


_DEPTHS = {"hf": (2,), "ollama": (1, 3), "pypi": (1,)}  # directories below the source's own


def place_of(path: str) -> str:
    """The part of `path` (a file's, relative to the cache) that a reference can name; '' if none can."""
    source, *parts = path.split("/")
    parts = parts[:-1]
    depths = _DEPTHS.get(source, ())
    exact = source == "ollama"  # elsewhere the files of one model may have folders of their own
    depth = next((d for d in depths if len(parts) == d or (len(parts) > d and not exact)), 0)
    return "/".join((source, *parts[:depth])) if depth else ""


def reference_of(place: str) -> RemoteReference | None:
    """The reference that leads to `place`, None when none does. `directory_of(reference_of(p)) == p`."""
    source, _, rest = place.partition("/")
    if source not in _DEPTHS:
        return None
    name, at, revision = rest.partition("@")
    reference = _parse(f"{source}:{name}{at}{unquote(revision)}")
    return reference if reference is not None and directory_of(reference) == place else None


def _parse(text: str) -> RemoteReference | None:
    try:
        reference = parse_reference(text)
    except UsageError:
        return None  # a directory that no reference leads to
    return reference if isinstance(reference, RemoteReference) else None
