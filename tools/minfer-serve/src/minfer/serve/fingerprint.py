"""A short mark of all that decides which bytes a seed gives: file, KV type, backend, version.

The file is its metadata whole, which holds the tokenizer and the rotation of positions, and a sample of
each tensor.
"""

from __future__ import annotations

import hashlib
from importlib.metadata import version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from minfer.engine.model import Model

_SAMPLE = 4096  # bytes of each tensor: enough to tell two quantizations or fine-tunes apart


def fingerprint(model: Model, kv_type: str) -> str:
    """`fp_` and 16 hexadecimal digits. Instruction sets of the native backend share one: same bits."""
    digest = hashlib.blake2b(digest_size=8)
    kind = model.backend_name.partition("-")[0]
    digest.update(f"{version('minfer-engine')} {kind} {kv_type} {model.file.n_bytes}".encode())
    metadata = model.file.metadata
    for key in sorted(metadata):
        if not key.startswith("split."):
            digest.update(key.encode())
            digest.update(metadata.raw(key))
    for name, info in sorted(model.file.tensors.items()):
        digest.update(f"{name} {info.shape} {int(info.quant)}".encode())
        digest.update(model.file.data(name)[:_SAMPLE])
    return f"fp_{digest.hexdigest()}"
