"""Messages in OpenAI's shape, brought into the one that chat templates are written for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from minfer.engine.chat.errors import MessageError
from minfer.engine.chat.marked_text import written

Message = Mapping[str, Any]
"""`{"role": …, "content": …}`, with whatever further keys the model's template knows."""

_KNOWN_ROLES: Final = frozenset(
    {"system", "developer", "user", "assistant", "tool", "function", "ipython", "model", "observation"}
)
"""Roles that may be read as a part of a control token, `<|user|>`; other ones are the caller's text."""

_REASONING_KEYS: Final = ("reasoning_content", "thinking", "reasoning")
_MOST_DEPTH: Final = 64


def normal_messages(
    messages: Sequence[Message], *, takes_parts: bool, takes_developer: bool
) -> list[dict[str, Any]]:
    """Copies of the messages, with the caller's text marked.

    Keys without a value are left out, as templates test whether a key is there. Reasoning is given
    under each name in use. takes_parts: content may be a list of parts; if not, text parts are joined by
    line breaks. takes_developer: the template knows that role; if not, it is `system`. Raises
    MessageError.
    """
    result = []
    for index, message in enumerate(messages):
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise MessageError(f"message {index} has no role", hint='give {"role": "user", "content": "…"}')
        role = message["role"]
        if role == "developer" and not takes_developer:
            role = "system"
        copy = {key: marked(value) for key, value in message.items() if value is not None}
        copy["role"] = role if role in _KNOWN_ROLES else marked(role)
        copy["content"] = _content(index, message.get("content"), takes_parts)
        if copy["content"] is None:
            del copy["content"]
        reasoning = next((copy[key] for key in _REASONING_KEYS if key in copy), None)
        if reasoning is not None:
            copy = {"thinking": reasoning, **copy, "reasoning_content": reasoning}
        result.append(copy)
    return result


def _content(index: int, content: object, takes_parts: bool) -> object:
    if content is None or isinstance(content, str):
        return marked(content)
    if not isinstance(content, list | tuple):
        raise MessageError(f"the content of message {index} is neither text nor a list of parts")
    texts = []
    for part in content:
        kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
        if kind != "text" or not isinstance(part.get("text"), str):
            raise MessageError(
                f"message {index} has a part of type {kind!r}, only text is understood",
                hint='give {"type": "text", "text": "…"}',
            )
        texts.append(part["text"])
    return marked(content) if takes_parts else marked("\n".join(texts))


def marked(value: object, depth: int = 0) -> Any:  # noqa: ANN401
    """A copy of plain data in which every text is marked as the caller's. Raises MessageError."""
    if isinstance(value, str):
        return written(value)
    if value is None or isinstance(value, bool | int | float):
        return value
    if depth > _MOST_DEPTH:
        raise MessageError(f"a message is nested deeper than {_MOST_DEPTH} levels")
    if isinstance(value, Mapping):
        return {marked(key, depth + 1): marked(entry, depth + 1) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [marked(entry, depth + 1) for entry in value]
    raise MessageError(f"a message holds a {type(value).__name__}, which is not plain data")


def fold_system(messages: Sequence[Message]) -> list[Message]:
    """The same conversation with leading system messages at the front of the first user message.

    For templates that take no system message. The caller tells the user that it did so. Raises
    MessageError if there is no user message to fold into.
    """
    n = next((n for n, message in enumerate(messages) if message.get("role") != "system"), len(messages))
    if n == 0:
        return list(messages)
    if n == len(messages) or messages[n].get("role") != "user":
        raise MessageError("a system message needs a user message after it to be folded into")
    contents = [_content(i, messages[i].get("content"), takes_parts=False) for i in range(n + 1)]
    folded = "\n\n".join(content for content in contents if isinstance(content, str))
    return [{**messages[n], "content": folded}, *messages[n + 1 :]]
