"""Ollama's own store on this machine, read only: a blob that is there need not be fetched again.

manifests/HOST/NAMESPACE/MODEL/TAG     the registry's manifest, byte for byte
blobs/sha256-HEX                       the layers (older installations wrote sha256:HEX)
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from minfer.core.reference import OllamaReference
from minfer.fetch.download.partial import partial_directory
from minfer.fetch.publish import disk_error, make_directory, sync_directories
from minfer.store.progress import OnProgress, Progress
from minfer.store.records import Record, write_record

_MAX_MANIFEST_BYTES = 4 * 1024 * 1024
_READ_BYTES = 4 * 1024 * 1024
_EVENT_EVERY_S = 0.1


def local_manifest(stores: Iterable[Path], reference: OllamaReference) -> bytes | None:
    """The manifest that Ollama stored for `reference`, None when it has none."""
    for store in stores:
        path = store.joinpath(
            "manifests", reference.host, reference.namespace, reference.model, reference.tag
        )
        try:
            with path.open("rb") as file:
                return file.read(_MAX_MANIFEST_BYTES)
        except OSError:
            continue
    return None


def link_blob(stores: Iterable[Path], cache: Path, record: Record, on_progress: OnProgress) -> Path | None:
    """Give the blob `record.sha256` of Ollama's store the name `record.path` in the cache; its path there.

    A hard link where the file systems allow it (Ollama may then remove its own name), else a symbolic one.
    None when no store has the blob with that length and digest, or when the cache has the file already.
    Raises CacheNotWritableError.
    """
    blob = _find(stores, record, on_progress)
    target = cache / record.path
    if blob is None or target.exists():
        return None
    make_directory(target.parent)
    make_directory(partial_directory(cache))
    temporary = partial_directory(cache) / f"{record.sha256}.{os.getpid()}.link"
    try:
        _link(blob, temporary)
        now = datetime.now(UTC).isoformat(timespec="seconds")
        write_record(cache, replace(record, fetched=now, modified_ns=temporary.stat().st_mtime_ns))
        os.replace(temporary, target)
        sync_directories(target.parent, cache)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise disk_error(error, target) from error
    return target


def _find(stores: Iterable[Path], record: Record, on_progress: OnProgress) -> Path | None:
    for store in stores:
        for name in (f"sha256-{record.sha256}", f"sha256:{record.sha256}"):
            path = store / "blobs" / name
            try:
                if path.stat().st_size == record.n_bytes and _is_intact(path, record, on_progress):
                    return path.resolve()
            except OSError:
                continue
    return None


def _is_intact(path: Path, record: Record, on_progress: OnProgress) -> bool:
    """Whether the blob has the digest that its name promises: Ollama does not look again, minfer does."""
    digest = hashlib.sha256()
    n_done, said_at = 0, time.monotonic()
    with path.open("rb") as file:
        while piece := file.read(_READ_BYTES):
            digest.update(piece)
            n_done += len(piece)
            if time.monotonic() - said_at > _EVENT_EVERY_S:
                said_at = time.monotonic()
                on_progress(Progress(f"check {record.source}", n_done, record.n_bytes))
    return digest.hexdigest() == record.sha256


def _link(blob: Path, target: Path) -> None:
    target.unlink(missing_ok=True)
    try:
        os.link(blob, target)
    except OSError:  # another file system, or a file of another user
        os.symlink(blob, target)
