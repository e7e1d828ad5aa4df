"""A conversation as a file: messages in OpenAI's shape, settings, and the model's fingerprint, in JSON."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from minfer.core.errors import UsageError
from minfer.engine.params import GenerationParams
from minfer.run.conversation.dialogue import Branch, Dialogue, Turn

if TYPE_CHECKING:
    from minfer.gguf import GGUFFile

FORMAT, VERSION = "minfer-conversation", 1
_MAX_BYTES = 256 << 20
_SAMPLES, _SAMPLE_BYTES = 64, 4096
_HEAD_BYTES = 1 << 20


class SessionFileError(UsageError):
    """A session cannot be read or written."""

    code = "session-file"


@dataclass(frozen=True, slots=True)
class Session:
    """What a session file holds. reference: the model as the user wrote it."""

    dialogue: Dialogue
    params: GenerationParams
    fingerprint: str
    reference: str


def fingerprint(file: GGUFFile) -> str:
    """A digest that tells model files apart without reading them whole: sizes, heads, samples."""
    digest = hashlib.sha256()
    for part in file.parts:
        with part.open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            digest.update(size.to_bytes(8, "little") + stream.read(_HEAD_BYTES))
            for index in range(_SAMPLES):
                stream.seek(size * index // _SAMPLES)
                digest.update(stream.read(_SAMPLE_BYTES))
    return digest.hexdigest()


def write_session(path: Path, session: Session) -> None:
    """Write the file: at any moment either the old or the new one is there. Raises SessionFileError."""
    text = json.dumps(_as_json(session), ensure_ascii=False, indent=1)
    write_atomically(path, text.encode("utf-8", "backslashreplace"))


def write_atomically(path: Path, *parts: bytes) -> None:
    """Replace a file in one step, readable by its owner alone. Raises SessionFileError."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as stream:
            for part in parts:
                stream.write(part)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise SessionFileError(
            f"{str(path)!r} cannot be written: {error.strerror}", hint="choose another file"
        ) from None


def read_session(path: Path) -> Session:
    """Read a file that write_session made, or a plain list of messages. Raises SessionFileError."""
    try:
        with path.open("rb") as stream:
            data = stream.read(_MAX_BYTES + 1)
    except OSError as error:
        raise SessionFileError(
            f"{str(path)!r} cannot be read: {error.strerror}", hint="check the path"
        ) from None
    if len(data) > _MAX_BYTES:
        raise SessionFileError(f"{str(path)!r} is larger than {_MAX_BYTES >> 20} MiB")
    try:
        return _of_json(json.loads(data))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise SessionFileError(
            f"{str(path)!r} is no conversation: {_said(error)}",
            hint="name a file that --session or /save wrote, or a JSON list of messages",
        ) from None


def _said(error: Exception) -> str:
    return f"{error.args[0]} is missing" if isinstance(error, KeyError) else str(error)[:200]


def _as_json(session: Session) -> dict[str, Any]:
    dialogue = session.dialogue
    others = {name: branch for name, branch in dialogue.branches.items() if name != dialogue.current}
    return {
        "format": FORMAT,
        "version": VERSION,
        "model": {"reference": session.reference, "fingerprint": session.fingerprint},
        "settings": asdict(session.params),
        "branch": dialogue.current,
        "n_dropped": dialogue.branch.n_dropped,
        "messages": [
            *([] if dialogue.system is None else [{"role": "system", "content": dialogue.system}]),
            *map(_turn_as_json, dialogue.turns),
        ],
        "branches": {
            name: {"n_dropped": branch.n_dropped, "messages": list(map(_turn_as_json, branch.turns))}
            for name, branch in others.items()
        },
    }


def _turn_as_json(turn: Turn) -> dict[str, Any]:
    message: dict[str, Any] = {"role": turn.role, "content": turn.text}
    if turn.role == "assistant":
        message["choice"] = turn.choice
        if turn.ids is not None:
            message |= {"ids": list(turn.ids), "tail": turn.tail}
    return message


def _of_json(data: Any) -> Session:  # noqa: ANN401 - whatever the file holds
    if isinstance(data, list):
        data = {"messages": data}
    elif data.get("format") != FORMAT:
        raise ValueError("it is JSON of something else")
    elif data.get("version") != VERSION:
        raise ValueError(f"its version {data.get('version')!r:.20} is not known here")
    messages = data["messages"]
    system = None
    if messages and messages[0]["role"] == "system":
        system, messages = _text(messages[0]["content"]), messages[1:]
    dialogue = Dialogue(system)
    current = _text(data.get("branch", dialogue.current))
    dialogue.branches = {current: _branch(messages, data)}
    for name, branch in data.get("branches", {}).items():
        dialogue.branches[_text(name)] = _branch(branch["messages"], branch)
    dialogue.current = current
    model = data.get("model", {})
    params = GenerationParams().updated(_listed(data.get("settings", {})))
    return Session(dialogue, params, _text(model.get("fingerprint", "")), _text(model.get("reference", "")))


def _listed(settings: Mapping[str, Any]) -> dict[str, object]:
    """JSON's lists of pairs as the parameters take them."""
    return {
        name: tuple(map(tuple, value)) if name == "logit_bias" else value for name, value in settings.items()
    }


def _branch(messages: list[dict[str, Any]], data: Mapping[str, Any]) -> Branch:
    turns = [_turn(message) for message in messages]
    n_dropped = data.get("n_dropped", 0)
    if type(n_dropped) is not int or not 0 <= n_dropped <= max(0, len(turns) - 1):
        raise ValueError(f"n_dropped is {n_dropped!r}")
    return Branch(turns, n_dropped)


def _turn(message: Mapping[str, Any]) -> Turn:
    role = message["role"]
    if role not in ("user", "assistant"):
        raise ValueError(f"a message has the role {role!r:.40}")
    ids, choice = message.get("ids"), message.get("choice", 0)
    if ids is not None and not (isinstance(ids, list) and all(type(one) is int and one >= 0 for one in ids)):
        raise ValueError("ids are not a list of token ids")
    if type(choice) is not int or not 0 <= choice < 2**31:
        raise ValueError(f"choice is {choice!r:.40}")
    return Turn(
        role,
        _text(message["content"]),
        None if ids is None else tuple(ids),
        _text(message.get("tail", "")),
        choice,
    )


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r:.40} is not text")
    return value
