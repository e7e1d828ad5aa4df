"""The sha256 of a file on disk."""

from __future__ import annotations

import hashlib
from pathlib import Path

from minfer.store.progress import OnProgress, Progress

_CHUNK = 1 << 20


def hash_file(path: Path, on_progress: OnProgress) -> str:
    """The sha256 of the file at `path`, 64 hexadecimal digits. Raises OSError."""
    digest, n_total, n_done = hashlib.sha256(), path.stat().st_size, 0
    with path.open("rb") as file:
        while data := file.read(_CHUNK):
            digest.update(data)
            n_done += len(data)
            on_progress(Progress(f"check {path.name}", n_done, n_total))
    return digest.hexdigest()
