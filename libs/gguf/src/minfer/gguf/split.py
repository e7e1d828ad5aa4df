"""Split sets: a model in several files, each a GGUF of its own, named `…-00001-of-00003.gguf`.

The metadata of each part says `split.no` (from 0), `split.count` and `split.tensors.count` (of the set).
"""

from __future__ import annotations

import re
from pathlib import Path

from minfer.gguf.errors import SplitMismatchError, SplitPartMissingError
from minfer.gguf.metadata import Metadata
from minfer.gguf.part import Part, TensorInfo, open_part

_NAME = re.compile(r"(?P<base>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.DOTALL)
_MAX_NAMED = 5


def split_name(base: str, number: int, count: int) -> str:
    """The file name of part `number` (from 1) of `count`."""
    return f"{base}-{number:05d}-of-{count:05d}.gguf"


def open_parts(path: Path) -> tuple[tuple[Part, ...], dict[str, TensorInfo]]:
    """Open the file at `path` and, if it is part of a split set, all its siblings, in order."""
    entry = open_part(path)
    count = _metadata(entry).integer("split.count", 1)
    if count <= 1:
        return (entry,), entry.tensors(0)
    paths = _siblings(path, count)
    parts = tuple(entry if sibling == path else open_part(sibling) for sibling in paths)
    return parts, _merge(parts)


def _metadata(part: Part) -> Metadata:
    return Metadata(part.view, part.header.entries, str(part.path))


def _siblings(path: Path, count: int) -> tuple[Path, ...]:
    """The paths of all `count` parts; raises when the name does not tell them or some are absent."""
    match = _NAME.fullmatch(path.name)
    if match is None or int(match["count"]) != count:
        raise SplitMismatchError(
            f"{path} is one of {count} parts of a split model, and its name does not say so",
            hint=f"give the parts their names back: {split_name('NAME', 1, count)} and so on",
        )
    paths = tuple(path.with_name(split_name(match["base"], i + 1, count)) for i in range(count))
    missing = [sibling.name for sibling in paths if not sibling.exists()]
    if missing:
        more = f" and {len(missing) - _MAX_NAMED} more" if len(missing) > _MAX_NAMED else ""
        raise SplitPartMissingError(
            f"{path} is one of {count} parts; missing beside it: {', '.join(missing[:_MAX_NAMED])}{more}",
            hint=f"put all parts into {path.parent}",
        )
    return paths


def _merge(parts: tuple[Part, ...]) -> dict[str, TensorInfo]:
    """The tensors of all parts; checks that the parts belong together."""
    tensors: dict[str, TensorInfo] = {}
    first = parts[0].path
    for i, part in enumerate(parts):
        metadata = _metadata(part)
        number, count = metadata.integer("split.no", None), metadata.integer("split.count", None)
        if number != i or count != len(parts):
            raise SplitMismatchError(
                f"{part.path} should be part {i + 1} of {len(parts)}; its metadata says split.no {number} "
                f"(counted from 0) and split.count {count}",
                hint="download the parts of one set again, and keep their names",
            )
        placed = part.tensors(i)
        twice = tensors.keys() & placed.keys()
        if twice:
            raise SplitMismatchError(
                f"{part.path} has tensor {min(twice)!r}, which an earlier part has too",
                hint="download the parts of one set again",
            )
        tensors |= placed
    total = _metadata(parts[0]).integer("split.tensors.count", len(tensors))
    if total != len(tensors):
        raise SplitMismatchError(
            f"the parts of {first} hold {len(tensors)} tensors, and split.tensors.count says {total}",
            hint="download the parts of one set again",
        )
    return tensors
