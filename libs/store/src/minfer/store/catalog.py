"""Which models are in the cache: one walk over the disk, no file opened."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from minfer.store.cached_model import CachedModel
from minfer.store.file_sets import ListedFile, group
from minfer.store.names import NameIndex

_MAX_DEPTH = 12


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
    if not directory.is_dir():
        return Catalog(directory, exists=False)
    unreadable: list[str] = []
    files = _walk(str(directory), unreadable, with_sizes=with_sizes)
    return Catalog(directory, tuple(map(CachedModel, group(files))), unreadable=tuple(unreadable))


def _walk(root: str, unreadable: list[str], *, with_sizes: bool) -> list[ListedFile]:
    """The .gguf files below `root`. The depth is bounded because links may go in circles."""
    files = []
    directories = [(root, 0)]
    while directories:
        directory, depth = directories.pop()
        try:
            entries = os.scandir(directory)
        except OSError:
            unreadable.append(directory[len(root) + 1 :])
            continue
        with entries:
            for entry in entries:
                name = entry.name
                if name[-5:].lower() == ".gguf":
                    if _holds(entry.is_file):
                        files.append(ListedFile(entry.path[len(root) + 1 :], _size(entry, with_sizes)))
                elif depth < _MAX_DEPTH and name[0] != "." and _holds(entry.is_dir):
                    directories.append((entry.path, depth + 1))
    return files


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
