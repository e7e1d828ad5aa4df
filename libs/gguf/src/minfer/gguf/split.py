"""Split sets: a model in several files, each a GGUF of its own.

The metadata of each part says `split.no` (from 0), `split.count` and `split.tensors.count` (of the set);
the rest of the model's metadata is in the first part.
"""

from __future__ import annotations

from pathlib import Path

from minfer.core.split_names import SplitName
from minfer.gguf.errors import SplitMismatchError, SplitPartMissingError
from minfer.gguf.metadata import Metadata
from minfer.gguf.part import Part, TensorInfo, open_part

NUMBER = "split.no"
COUNT = "split.count"
TENSORS = "split.tensors.count"

_MAX_NAMED = 5
_DOWNLOAD_SET = "download the parts of one set again, and keep their names"


def open_parts(path: Path) -> tuple[tuple[Part, ...], dict[str, TensorInfo]]:
    """Open the file at `path` and, if it is part of a split set, all its siblings, in order."""
    entry = open_part(path)
    count = _metadata(entry).integer(COUNT, 1)
    if count <= 1:
        return (entry,), entry.tensors(0)
    paths = _siblings(path, count)
    parts = tuple(entry if sibling == path else open_part(sibling) for sibling in paths)
    return parts, _merge(parts)


def _metadata(part: Part) -> Metadata:
    return Metadata(part.view, part.header.entries, str(part.path))


def _siblings(path: Path, count: int) -> tuple[Path, ...]:
    """The paths of all `count` parts; raises when the name does not tell them or some are absent."""
    name = SplitName.parse(path.name)
    if name is None or name.n_parts != count:
        raise SplitMismatchError(
            f"{path} is one of {count} parts of a split model, and its name does not say so",
            hint=f"give the parts their names back: {SplitName('NAME', 1, count)} and so on",
        )
    paths = tuple(path.with_name(str(part)) for part in name.all_parts())
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
    for i, part in enumerate(parts):
        metadata = _metadata(part)
        number, count = metadata.integer(NUMBER, None), metadata.integer(COUNT, None)
        if number != i or count != len(parts):
            raise SplitMismatchError(
                f"{part.path} should be part {i + 1} of {len(parts)}; its metadata says {NUMBER} {number} "
                f"(counted from 0) and {COUNT} {count}",
                hint=_DOWNLOAD_SET,
            )
        placed = part.tensors(i)
        twice = tensors.keys() & placed.keys()
        if twice:
            raise SplitMismatchError(
                f"{part.path} has tensor {min(twice)!r}, which an earlier part has too", hint=_DOWNLOAD_SET
            )
        tensors |= placed
    total = _metadata(parts[0]).integer(TENSORS, len(tensors))
    if total != len(tensors):
        raise SplitMismatchError(
            f"the parts of {parts[0].path} hold {len(tensors)} tensors, and {TENSORS} says {total}",
            hint=_DOWNLOAD_SET,
        )
    return tensors
