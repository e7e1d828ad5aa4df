"""What is known about each downloaded file: where it came from and which sha256 the source announced.

One small JSON file per model file below `.minfer/records`. Disk is the truth: a record that does not fit its
file (other length or modification time) says nothing, and a file without one is usable, shown as unverified.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from minfer.store.locks import STATE_DIRECTORY

_MAX_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Record:
    """One downloaded file. `path` is relative to the cache, `source` the reference that led to it."""

    path: str
    n_bytes: int
    sha256: str
    source: str = ""  # 'hf:ORG/REPO', 'ollama:MODEL:TAG', 'pypi:PACKAGE', '' for an imported file
    revision: str = ""  # the commit, manifest digest or package version that was fetched
    asked: str = ""  # the revision that was written in the reference, '' for the default
    fetched: str = ""  # UTC, ISO 8601
    modified_ns: int = 0  # of the file when it was verified

    def fits(self, status: os.stat_result) -> bool:
        """True when the file is still the one that was verified, as far as its length and time tell."""
        return status.st_size == self.n_bytes and status.st_mtime_ns == self.modified_ns


def record_path(cache: Path, path: str) -> Path:
    """Where the record of the file at `path` (relative to the cache) is."""
    name = hashlib.sha256(path.encode(errors="surrogateescape")).hexdigest()[:32]
    return cache / STATE_DIRECTORY / "records" / f"{name}.json"


def read_record(cache: Path, path: str) -> Record | None:
    """The record of `path`, None when there is none or it cannot be read."""
    record = _read(record_path(cache, path))
    return record if record is not None and record.path == path else None


def write_record(cache: Path, record: Record) -> None:
    """Store `record`, replacing an older one in one step. Raises OSError."""
    target = record_path(cache, record.path)
    target.parent.mkdir(parents=True, exist_ok=True)
    # Where locks do not work two threads, or two machines with equal process ids, may be here at once.
    partial = target.with_suffix(f".{os.getpid()}-{os.urandom(4).hex()}.tmp")
    with partial.open("w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(json.dumps(asdict(record), indent=1) + "\n")
        file.flush()
        os.fsync(file.fileno())  # else a power cut leaves an empty record of a file that is whole
    os.replace(partial, target)


def remove_record(cache: Path, path: str) -> None:
    """Forget `path`; nothing happens when it has no record."""
    record_path(cache, path).unlink(missing_ok=True)


def all_records(cache: Path) -> Iterator[Record]:
    """Every readable record, in no particular order."""
    directory = f"{cache}/{STATE_DIRECTORY}/records"
    try:
        names = os.listdir(directory)
    except OSError:
        return
    for name in names:
        if name.endswith(".json") and (record := _read(f"{directory}/{name}")):
            yield record


_FIELDS = {
    field.name: int if field.default == 0 or field.name == "n_bytes" else str for field in fields(Record)
}


def _read(path: Path | str) -> Record | None:
    try:
        with open(path, "rb", buffering=0) as file:
            length = min(os.fstat(file.fileno()).st_size, _MAX_BYTES)  # room for more costs what is not there
            values = json.loads(file.read(length))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(values, dict):
        return None
    known = {name: values[name] for name, kind in _FIELDS.items() if type(values.get(name)) is kind}
    if not {"path", "n_bytes", "sha256"} <= known.keys():
        return None
    return Record(**known)
