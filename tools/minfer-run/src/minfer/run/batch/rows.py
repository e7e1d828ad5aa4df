"""Many prompts in one batch: JSON lines in, JSON lines out, in order; a run that was cut off goes on.

A row in is {"prompt": "…"} or {"messages": […]}, with "id", "seed" and "n_predict" if wanted. A row out is
{"index", "id", "key", "text", "reason", "n_prompt", "n_generated"}, where "key" is a digest of the row in and
the settings. Rows are written as soon as all before them are.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from minfer.core.errors import MinferError, UsageError

if TYPE_CHECKING:
    from minfer.engine.params import GenerationParams

_MAX_ROWS: Final = 1_000_000
_MAX_ROW_BYTES: Final = 16 << 20
_MAX_FILE_BYTES: Final = 1 << 30
_FIELDS: Final = {"prompt", "messages", "id", "seed", "n_predict"}


class PromptRowError(UsageError):
    """A row of the prompts cannot be understood."""

    code = "prompt-row"


class OtherOutputError(UsageError):
    """The output file holds something else than the beginning of this run's answers."""

    code = "prompts-output"


@dataclass(frozen=True, slots=True)
class Row:
    """One prompt. key: digest of what its answer depends on."""

    index: int
    id: Any
    messages: tuple[Mapping[str, Any], ...] | None
    prompt: str | None
    params: GenerationParams
    key: str


def read_rows(path: Path, params: GenerationParams, fingerprint: str) -> list[Row]:
    """The prompts of a file. fingerprint: of all else that the answers depend on. Raises PromptRowError."""
    try:
        if path.stat().st_size > _MAX_FILE_BYTES:
            raise PromptRowError(f"{path} holds more than {_MAX_FILE_BYTES >> 20} MiB", hint="split it")
        with path.open("rb") as stream:
            lines = [line for line in stream if line.strip()]
    except OSError as error:
        raise PromptRowError(
            f"the prompts {path} cannot be read: {error.strerror}", hint="check the path"
        ) from None
    if not lines or len(lines) > _MAX_ROWS:
        raise PromptRowError(f"{path} has {len(lines)} prompts", hint=f"give 1 to {_MAX_ROWS}, one a line")
    return [
        _row(index, line, params, fingerprint, f"{path}, prompt {index + 1}")
        for index, line in enumerate(lines)
    ]


def _row(index: int, line: bytes, params: GenerationParams, fingerprint: str, where: str) -> Row:
    hint = 'a row is {"prompt": "…"} or {"messages": […]}, with "id", "seed", "n_predict" if wanted'
    try:
        fields = json.loads(line) if len(line) <= _MAX_ROW_BYTES else None
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict):
        raise PromptRowError(f"{where} is no JSON object", hint=hint)
    unknown = sorted(fields.keys() - _FIELDS)
    if unknown:
        raise PromptRowError(f"{where} has an unknown field {unknown[0]!r}", hint=hint)
    prompt, messages = fields.get("prompt"), fields.get("messages")
    is_messages = (
        isinstance(messages, list) and bool(messages) and all(isinstance(one, dict) for one in messages)
    )
    if (prompt is None) == (messages is None) or not (isinstance(prompt, str) or is_messages):
        raise PromptRowError(f"{where} needs either a prompt or messages", hint=hint)
    own = {name: fields[name] for name in ("seed", "n_predict") if name in fields}
    try:
        settings = params.updated(own)
    except MinferError as error:
        raise PromptRowError(f"{where}: {error.fact}", hint=error.hint) from None
    digest = hashlib.sha256(repr((fingerprint, fields, asdict(settings))).encode("utf-8", "surrogatepass"))
    return Row(
        index, fields.get("id", index), None if messages is None else tuple(messages), prompt, settings,
        digest.hexdigest()[:16],
    )  # fmt: skip


def n_answered(path: Path, rows: Sequence[Row]) -> int:
    """How many answers the output holds already; a last line that was cut off is removed.

    Raises OtherOutputError when a line is no answer to the prompt in its place.
    """
    if not path.exists():
        return 0
    n, length = 0, 0
    try:
        with path.open("rb+") as stream:
            for line in stream:
                if not line.endswith(b"\n"):
                    break
                if n >= len(rows) or _key(line) != rows[n].key:
                    raise OtherOutputError(
                        f"line {n + 1} of {path} is no answer to prompt {n + 1} with these settings",
                        hint="name another --out file, or remove this one",
                    )
                n, length = n + 1, length + len(line)
            stream.truncate(length)
    except OSError as error:
        raise OtherOutputError(
            f"{path} cannot be read and written: {error.strerror}", hint="choose another --out"
        ) from None
    return n


def _key(line: bytes) -> str | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return row.get("key") if isinstance(row, dict) else None
