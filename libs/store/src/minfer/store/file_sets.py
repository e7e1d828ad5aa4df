"""Which files are one model: the parts of a split set belong together. Names only, pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from minfer.core.split_names import SplitName


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A file of a listing: its path inside the repository or cache ('/' between parts), and its length."""

    path: str
    n_bytes: int | None = None  # None: the source does not say

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class FileSet:
    """One model: a single file, or the parts of a split set in order (those that are there)."""

    directory: str  # '' or 'A/B'
    base: str  # file name without '-0000X-of-0000Y' and without '.gguf'
    files: tuple[ListedFile, ...]
    n_parts: int = 1

    @property
    def first(self) -> ListedFile:
        """The file that is opened: part 1, or the only one."""
        return self.files[0]

    @property
    def n_bytes(self) -> int | None:
        """Length of all parts together, None when one is unknown."""
        sizes = [file.n_bytes for file in self.files]
        return None if None in sizes else sum(size for size in sizes if size is not None)

    @property
    def missing(self) -> tuple[str, ...]:
        """Names of the parts that the listing lacks."""
        if self.n_parts == 1:
            return ()
        there = {file.name for file in self.files}
        wanted = map(str, SplitName(self.base, 1, self.n_parts).all_parts())
        return tuple(name for name in wanted if name not in there)


def lock_name(path: str) -> str:
    """The name of a model for its locks: `path`, and for a part of a split set that of part 1."""
    directory, slash, name = path.rpartition("/")
    part = SplitName.parse(name)
    return f"{directory}{slash}{part._replace(number=1)}" if part else path


def group(files: Iterable[ListedFile]) -> tuple[FileSet, ...]:
    """The models among `files`, ordered by path; what is not a .gguf file is left out."""
    sets: dict[tuple[str, str, int], list[ListedFile]] = {}
    for file in files:
        directory, _, name = file.path.rpartition("/")
        if name[-5:].lower() != ".gguf":
            continue
        part = SplitName.parse(name)
        base, count = (part.base, part.n_parts) if part else (name[:-5], 1)
        sets.setdefault((directory, base, count), []).append(file)
    return tuple(
        FileSet(directory, base, tuple(_in_order(members)), count)
        for (directory, base, count), members in sorted(sets.items())
    )


def _in_order(members: list[ListedFile]) -> list[ListedFile]:
    return sorted(members, key=lambda file: file.path) if len(members) > 1 else members
