"""One model of the cache, as a value."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from minfer.core.reference import RemoteReference
from minfer.store.file_sets import FileSet
from minfer.store.layout import place_of, reference_of


@dataclass(frozen=True)
class CachedModel:
    """One model of the cache; paths are relative to it."""

    files: FileSet

    @property
    def path(self) -> str:
        """The file to open, relative to the cache."""
        return self.files.first.path

    @cached_property
    def place(self) -> str:
        """The directory of its repository, registry name or package; '' for a file put there by hand."""
        return place_of(self.path)

    @cached_property
    def reference(self) -> RemoteReference | None:
        """What leads to `place`, without a selector."""
        return reference_of(self.place)

    @property
    def source(self) -> str:
        """'hf', 'ollama', 'pypi', or 'local' for a file that somebody put there."""
        return "local" if self.reference is None else self.place.partition("/")[0]

    @property
    def is_complete(self) -> bool:
        """True when no part of a split set is missing."""
        return not self.files.missing

    @cached_property
    def in_repository(self) -> FileSet:
        """The files with paths inside their Hub repository, which is what selectors speak of."""
        files = tuple(replace(file, path=file.path.split("/", 3)[3]) for file in self.files.files)
        return replace(self.files, directory=files[0].path.rpartition("/")[0], files=files)
