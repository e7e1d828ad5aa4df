"""The KV cache beside a session file, so that going on needs no reading again.

    magic | length of the facts, u32 | facts, JSON | blocks: group by group, first kept one first | sha256

It is worth nothing by itself: whatever is not as expected, it is left alone and the reason is told.
"""

from __future__ import annotations

import hashlib
import json
import struct
from array import array
from pathlib import Path
from typing import TYPE_CHECKING, Any

from minfer.core.errors import MinferError
from minfer.engine.backends.step import BLOCK_POSITIONS
from minfer.run.conversation.session import write_atomically

if TYPE_CHECKING:
    from minfer.run.conversation.chat import Chat

_MAGIC = b"minfer-kv 3\n"
_LENGTH = struct.Struct("<I")
_DIGEST_BYTES = 32


class CompanionIgnoredError(MinferError):
    """The saved cache does not belong here; the fact is the reason."""

    code = "kv-companion-ignored"


def companion(session: Path) -> Path:
    """Where the cache of a session is."""
    return session.with_name(session.name + ".kv")


def save_cache(chat: Chat, path: Path, fingerprint: str) -> None:
    """Write what the chat's cache holds. Raises SessionFileError."""
    sequence, store = chat.sequence, chat.cache.store
    facts = json.dumps(_facts(chat, fingerprint) | {"ids": list(sequence.ids), "first": sequence.first_kept})
    parts = [_MAGIC, _LENGTH.pack(len(facts)), facts.encode()]
    for group, (table, first) in enumerate(zip(sequence.tables, sequence.first_kept, strict=True)):
        parts += [store.read_block(group, block) for block in table[first:]]
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    write_atomically(path, *parts, digest.digest())


def restore_cache(chat: Chat, path: Path, fingerprint: str) -> int:
    """Put a saved cache into the chat's empty one; how many tokens. Raises CompanionIgnoredError."""
    facts, blocks = _checked(path)
    expected = _facts(chat, fingerprint)
    for name, value in expected.items():
        if facts.get(name) != value:
            raise CompanionIgnoredError(f"{name} is {_short(value)} and was {_short(facts.get(name))}")
    ids, first = _counts(facts.get("ids")), _counts(facts.get("first"))
    if len(first) != len(chat.sequence.tables):
        raise CompanionIgnoredError("its facts are damaged")
    n_blocks = -(-len(ids) // BLOCK_POSITIONS)
    sizes = [len(chat.cache.store.read_block(group, 0)) for group in range(len(first))]
    if sum((n_blocks - one) * size for one, size in zip(first, sizes, strict=True)) != len(blocks):
        raise CompanionIgnoredError("its blocks have another size")
    if not chat.cache.rebuild(chat.sequence, array("i", ids), first):
        raise CompanionIgnoredError(f"its {len(ids)} tokens do not fit the context")
    start = 0
    for group, (table, size) in enumerate(zip(chat.sequence.tables, sizes, strict=True)):
        for block in table[first[group] :]:
            chat.cache.store.write_block(group, block, blocks[start : start + size])
            start += size
    return len(ids)


def _checked(path: Path) -> tuple[dict[str, Any], bytes]:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise CompanionIgnoredError(f"it cannot be read: {error.strerror}") from None
    if not data.startswith(_MAGIC):
        raise CompanionIgnoredError("it is of another version")
    if hashlib.sha256(memoryview(data)[:-_DIGEST_BYTES]).digest() != data[-_DIGEST_BYTES:]:
        raise CompanionIgnoredError("its checksum is wrong")
    start = len(_MAGIC) + _LENGTH.size
    (length,) = _LENGTH.unpack_from(data, len(_MAGIC))
    try:
        facts = json.loads(data[start : start + length])
    except ValueError:
        facts = None
    if not isinstance(facts, dict):
        raise CompanionIgnoredError("its facts are damaged")
    return facts, data[start + length : -_DIGEST_BYTES]


def _facts(chat: Chat, fingerprint: str) -> dict[str, Any]:
    """What must be the same for the bytes to mean the same."""
    groups = chat.model.graph.cache_groups
    return {
        "model": fingerprint,
        "backend": chat.model.backend_name,
        "cache type": groups[0].dtype if groups else "",
        "layout": [len(chat.model.graph.cache_slots), BLOCK_POSITIONS],
    }


def _counts(value: object) -> list[int]:
    if not isinstance(value, list) or not all(type(one) is int and 0 <= one < 2**31 for one in value):
        raise CompanionIgnoredError("its facts are damaged")
    return value


def _short(value: object) -> str:
    return f"{value!s:.16}"
