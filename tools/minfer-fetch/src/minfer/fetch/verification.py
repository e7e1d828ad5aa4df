"""Is every file what its source announced? From recorded digests, without any network."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from minfer.core.errors import ModelFileError
from minfer.core.reference import HubReference, RemoteReference
from minfer.fetch.hashing import hash_file
from minfer.gguf import open_gguf
from minfer.store.cached_model import CachedModel
from minfer.store.file_sets import ListedFile
from minfer.store.progress import OnProgress
from minfer.store.records import read_record, write_record

GOOD = ("verified", "unverified")


@dataclass(frozen=True, slots=True)
class Finding:
    """What is known about one model; `problem` says what is wrong.

    `state`: 'verified', 'unverified' (no digest is recorded, and it reads as GGUF), 'corrupt', 'incomplete',
    'unreadable'. `wrong`: those of its files whose digest or length is another than the recorded one.
    """

    model: CachedModel
    state: str
    problem: str = ""
    wrong: tuple[ListedFile, ...] = ()

    @property
    def is_good(self) -> bool:
        """True when nothing speaks against using the model."""
        return self.state in GOOD


def verify_model(cache: Path, model: CachedModel, on_progress: OnProgress) -> Finding:
    """Hash every file of `model` and compare; a right one whose time had changed counts as verified again."""
    if not model.is_complete:
        return Finding(model, "incomplete", f"missing: {', '.join(model.files.missing[:8])}")
    try:
        problems = dict(_wrong_files(cache, model, on_progress))
        if problems:
            return Finding(model, "corrupt", "; ".join(problems.values()), tuple(problems))
        if all(read_record(cache, file.path) for file in model.files.files):
            return Finding(model, "verified")
        with open_gguf(cache / model.path, any_type=True):
            return Finding(model, "unverified", "no digest is recorded; the header is sound")
    except OSError as error:
        return Finding(model, "unreadable", str(error.strerror))
    except ModelFileError as error:
        return Finding(model, "corrupt", error.fact)


def _wrong_files(
    cache: Path, model: CachedModel, on_progress: OnProgress
) -> Iterator[tuple[ListedFile, str]]:
    for file in model.files.files:
        problem = _problem(cache, file, on_progress)
        if problem:
            yield file, problem


def _problem(cache: Path, file: ListedFile, on_progress: OnProgress) -> str:
    """What is wrong with a recorded file, '' if nothing."""
    record = read_record(cache, file.path)
    if record is None:
        return ""
    path = cache / file.path
    status = path.stat()
    if status.st_size != record.n_bytes:
        return f"{file.name} has {status.st_size} bytes, its source announced {record.n_bytes}"
    if (found := hash_file(path, on_progress)) != record.sha256:
        return f"{file.name} has sha256 {found}, its source announced {record.sha256}"
    if record.modified_ns != status.st_mtime_ns:
        write_record(cache, replace(record, modified_ns=status.st_mtime_ns))
    return ""


def source_reference(model: CachedModel) -> RemoteReference | None:
    """The reference that fetches `model` again; None for a file that came from nowhere known."""
    if isinstance(model.reference, HubReference):
        return replace(model.reference, selector=model.in_repository.first.path)
    return model.reference
