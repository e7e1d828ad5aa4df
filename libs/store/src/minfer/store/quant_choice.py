"""Which file of a repository is meant: the rule for quant labels. Pure.

A file set's label is the last dash- or dot-separated part of its base name that reads as a quant type, with
a prefix such as `UD-`; where the base name has none, its folder's. A request matches a whole label ignoring
case (`Q4_K_XL` is not `UD-Q4_K_XL`), or a base name, or a file's exact name, a part standing for its whole
set. Without a request the only set is taken. Everything else is an error that lists the choices.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from minfer.core.errors import AmbiguousModelError, ModelNotFoundError
from minfer.core.units import human_bytes
from minfer.store.file_sets import FileSet, ListedFile, group

_QUANT = re.compile(
    r"(?:I?Q[1-8](?:_[A-Z0-9]{1,3}){0,3}|TQ[12]_0|BF16|FP?16|FP?32|F64|MXFP4(?:_MOE)?|NVFP4)", re.IGNORECASE
)
_LABEL_PREFIXES = ("ud", "i1")  # dynamic quants; weighted quants
_NEVER_MODEL = ("mmproj", "imatrix")
_SIDE_WORDS = ("lora", "adapter", "draft", "drafter", "mtp", "eagle", "eagle3", "dflash", "dspark")
_SENSIBLE = ("Q4_K_M", "Q4_K_S", "Q4_0", "Q4_1", "IQ4_NL", "IQ4_XS", "Q5_K_M", "Q5_0", "Q6_K", "Q8_0")

_MAX_CANDIDATES = 50


class NoSuchQuantError(ModelNotFoundError):
    """The repository has no file of that name or quant type."""

    code = "no-such-quant"


class AmbiguousQuantError(AmbiguousModelError):
    """The repository has several models and the reference does not say which."""

    code = "ambiguous-quant"


class IncompleteSetError(ModelNotFoundError):
    """The source lacks parts of a split model."""

    code = "incomplete-set"


def label(chosen: FileSet) -> str | None:
    """The quant label of a set, as written: 'q4_0', 'UD-Q4_K_XL'; None when nothing reads as one."""
    folder = chosen.directory.rpartition("/")[2]
    return _label_in(chosen.base) or _label_in(folder)


def _label_in(name: str) -> str | None:
    parts = re.split(r"[-.]", name)
    for index in range(len(parts) - 1, -1, -1):
        if _QUANT.fullmatch(parts[index]):
            if index and parts[index - 1].lower() in _LABEL_PREFIXES:
                return f"{parts[index - 1]}-{parts[index]}"
            return parts[index]
    return None


def choices(files: Iterable[ListedFile]) -> tuple[FileSet, ...]:
    """The models of a repository: sets without side files, the sensible ones first.

    Projectors and importance matrices never count. Adapters and drafts do not either, unless the repository
    holds nothing else (there are repositories of draft models).
    """
    sets = [found for found in group(files) if not _has_word(found, _NEVER_MODEL)]
    models = [found for found in sets if not _is_side_file(found)] or sets
    return tuple(sorted(models, key=lambda found: (_rank(found), found.n_bytes or 0, found.base)))


def _has_word(found: FileSet, words: Sequence[str]) -> bool:
    return not set(words).isdisjoint(re.split(r"[^a-z0-9]+", found.base.lower()))


def _is_side_file(found: FileSet) -> bool:
    """True for `lora-x.gguf` and `x-lora-F16.gguf`, not for `alpaca-lora-7b.Q4_0.gguf`."""
    words = [word for word in re.split(r"[-.\s]+", found.base.lower()) if not _QUANT.fullmatch(word)]
    return bool(words) and (words[0] in _SIDE_WORDS or words[-1] in _SIDE_WORDS)


def _rank(found: FileSet) -> int:
    name = (label(found) or "").upper()
    return _SENSIBLE.index(name) if name in _SENSIBLE else len(_SENSIBLE)


def matching(sets: Iterable[FileSet], request: str) -> tuple[FileSet, ...]:
    """The sets that `request` can mean: by file or path, else by base name, else by label."""
    wanted = request.lower()
    found = list(sets)
    by_path = [s for s in found if any(request == file.path for file in s.files)]
    by_file = [s for s in found if any(request == file.name for file in s.files)]
    by_base = [s for s in found if wanted in (s.base.lower(), f"{s.base}.gguf".lower(), _path(s).lower())]
    by_label = [s for s in found if (label(s) or "").lower() == wanted]
    by_folder = [s for s in found if s.directory.lower() == wanted]
    return tuple(by_path or by_file or by_base or by_label or by_folder)


def _path(found: FileSet) -> str:
    return f"{found.directory}/{found.base}" if found.directory else found.base


def selector(chosen: FileSet, sets: Sequence[FileSet]) -> str:
    """The shortest request that means `chosen` alone among `sets`: its label, base name or path."""
    for request in (label(chosen), chosen.base):
        if request and (len(sets) == 1 or matching(sets, request) == (chosen,)):
            return request
    return chosen.first.path


def choose(files: Iterable[ListedFile], request: str | None, repository: str) -> FileSet:
    """The set of `files` that `request` means; `repository` ('hf:ORG/REPO') begins every suggestion.

    Raises NoSuchQuantError, AmbiguousQuantError (sizes beside the candidates), IncompleteSetError.
    """
    every = tuple(files)
    sets = choices(every)
    found = sets if request is None else matching(sets, request) or _exact_file(every, request)
    if len(found) == 1:
        return _complete(found[0], repository)
    if not sets:
        raise NoSuchQuantError(
            f"{repository} holds no .gguf model", hint="look for a repository whose name ends in -GGUF"
        )
    listed = found or sets
    shown = listed[:_MAX_CANDIDATES]  # each costs a look at every set
    candidates = tuple(f"{repository}:{selector(s, sets)}" for s in shown)
    sizes = tuple("" if s.n_bytes is None else human_bytes(s.n_bytes) for s in shown)
    hint = f"minfer-fetch pull {candidates[0]}"
    if not found:
        fact = f"{repository} has no model {request!r}; it has"
        raise NoSuchQuantError(fact, hint=hint, candidates=candidates, labels=sizes)
    fact = (
        f"{repository} has {len(listed)} models"
        + (f" named {request!r}" if request else "")
        + "; say which one"
    )
    raise AmbiguousQuantError(fact, hint=hint, candidates=candidates, labels=sizes)


def _exact_file(files: Iterable[ListedFile], request: str) -> tuple[FileSet, ...]:
    """An adapter or draft, when its exact name was written; never a projector or importance matrix."""
    sets = (found for found in group(files) if not _has_word(found, _NEVER_MODEL))
    return tuple(s for s in sets if any(request in (file.path, file.name) for file in s.files))


def _complete(chosen: FileSet, repository: str) -> FileSet:
    if chosen.missing:
        raise IncompleteSetError(
            f"{repository} lacks {len(chosen.missing)} of the {chosen.n_parts} parts of {chosen.base}: "
            + ", ".join(chosen.missing[:8]),
            hint="the upload is not finished; choose another file",
        )
    return chosen
