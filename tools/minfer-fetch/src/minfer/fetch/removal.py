"""Take a model out of the cache: its files, its records, and directories that are empty then."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from minfer.fetch.publish import disk_error
from minfer.store.cached_model import CachedModel
from minfer.store.file_sets import ListedFile, lock_name
from minfer.store.locks import removing
from minfer.store.records import remove_record


def remove_model(cache: Path, model: CachedModel, *, force: bool = False) -> None:
    """Remove `model`. Raises ModelInUseError while a tool holds it, unless forced; CacheNotWritableError.

    A tool that holds a model keeps its mapping when the file's name goes: forcing cannot crash it.
    """
    remove_files(cache, model, model.files.files, force=force)


def remove_files(
    cache: Path, model: CachedModel, files: Sequence[ListedFile], *, force: bool = False
) -> None:
    """Remove some `files` of `model`. Raises as `remove_model`."""
    try:
        guard: AbstractContextManager[None] = (
            nullcontext() if force else removing(cache, lock_name(model.path))
        )
        with guard:
            # part 1 last: an interrupted removal leaves a set that still shows what it lacks
            for file in reversed(files):
                (cache / file.path).unlink(missing_ok=True)
                remove_record(cache, file.path)
    except OSError as error:
        raise disk_error(error, cache / model.path) from error
    prune_directories(cache, (cache / model.path).parent)


def prune_directories(cache: Path, directory: Path) -> None:
    """Remove `directory` and its parents below the cache as long as they are empty."""
    while directory != cache and cache in directory.parents:
        try:
            directory.rmdir()
        except OSError:
            return
        directory = directory.parent
