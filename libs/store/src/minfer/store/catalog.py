"""Which models are in the cache: one walk over the disk, no file opened."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from minfer.core.reference import NameReference, RemoteReference
from minfer.store.cached_model import CachedModel
from minfer.store.file_sets import ListedFile, group
from minfer.store.layout import directory_of
from minfer.store.names import NameIndex

_MAX_DEPTH = 12  # links to directories elsewhere may lead back


@dataclass(frozen=True)
class Catalog:
    """The models of one cache, ordered by path."""

    directory: Path
    models: tuple[CachedModel, ...] = ()
    exists: bool = True  # False: the directory is not there, which is not the same as being empty
    unreadable: tuple[str, ...] = ()  # directories below it that may not be read

    @cached_property
    def names(self) -> NameIndex:
        """The models by file name."""
        return NameIndex(self.models)

    @cached_property
    def by_place(self) -> dict[str, list[CachedModel]]:
        """The models of each repository, registry name or package, by its directory."""
        found: dict[str, list[CachedModel]] = {}
        for model in self.models:
            found.setdefault(model.place, []).append(model)
        return found

    def path_of(self, model: CachedModel) -> Path:
        """The absolute path of the file to open."""
        return self.directory / model.path


def read_catalog(directory: Path, *, with_sizes: bool = True) -> Catalog:
    """Walk `directory`. Hidden directories and everything that is not a .gguf file are passed over.

    `with_sizes` costs one more look at every file; finding a name does without.
    """
    return _read(directory, "", _Walk(with_sizes=with_sizes))


def read_part(directory: Path, reference: RemoteReference | NameReference) -> Catalog:
    """The part of the catalog that `reference` can mean, without sizes: all of it, if it finds something.

    What is not found here may still be in the whole: a repository in other capitals.
    """
    if isinstance(reference, NameReference):
        return _read(directory, "", _Walk(beginning=reference.name.lower()))
    return _read(directory, directory_of(reference), _Walk())


def _read(directory: Path, below: str, walk: _Walk) -> Catalog:
    if not directory.is_dir():
        return Catalog(directory, exists=False)
    if not below or (directory / below).is_dir():
        walk.visit(str(directory), below)
    return Catalog(directory, tuple(map(CachedModel, group(walk.files))), unreadable=tuple(walk.unreadable))


class _Walk:
    """Finds .gguf files. With `beginning` only folders where a name begins with it (in small letters)."""

    def __init__(self, *, with_sizes: bool = False, beginning: str = "") -> None:
        self._with_sizes = with_sizes
        self._beginning = beginning
        self.files: list[ListedFile] = []
        self.unreadable: list[str] = []

    def visit(self, root: str, below: str = "") -> None:
        """All of `root`/`below`; paths count from `root`."""
        cut = len(root) + 1
        directories = [(f"{root}/{below}" if below else root, 0)]
        while directories:
            directory, depth = directories.pop()
            try:
                entries = os.scandir(directory)
            except OSError:
                self.unreadable.append(directory[cut:])
                continue
            found = []
            with entries:
                for entry in entries:
                    name = entry.name
                    if name[-5:].lower() == ".gguf":
                        found.append(entry)
                    elif depth < _MAX_DEPTH and name[0] != "." and _is_way(entry, directory):
                        directories.append((entry.path, depth + 1))
            if found and self._is_wanted(found):
                self.files += [
                    ListedFile(entry.path[cut:], _size(entry, self._with_sizes))
                    for entry in found
                    if _holds(entry.is_file)
                ]

    def _is_wanted(self, found: Sequence[os.DirEntry[str]]) -> bool:
        """All files of a folder together: the parts of a split set have one folder."""
        beginning = self._beginning
        return not beginning or any(entry.name.lower().startswith(beginning) for entry in found)


def _is_way(entry: os.DirEntry[str], directory: str) -> bool:
    """True for a directory; not for a link to one that it is in itself, where every model would be again."""
    if not _holds(entry.is_dir):
        return False
    if not entry.is_symlink():
        return True
    target = os.path.realpath(entry.path)
    return os.path.commonpath((target, os.path.realpath(directory))) != target


def _holds(is_kind: Callable[[], bool]) -> bool:
    """False too for a link that leads nowhere, in a circle, or into a directory that may not be read."""
    try:
        return is_kind()
    except OSError:
        return False


def _size(entry: os.DirEntry[str], is_wanted: bool) -> int | None:
    try:
        return entry.stat().st_size if is_wanted else None
    except OSError:
        return None  # removed this moment
