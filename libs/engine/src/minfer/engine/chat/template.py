"""Chat templates: a conversation in, a prompt out.

Jinja is imported when the first template is rendered, not before.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from minfer.engine.chat.builtin import BUILTIN
from minfer.engine.chat.errors import (
    MessageError,
    TemplateFailedError,
    TemplateLimitError,
    TemplateRefusedError,
    TemplateSyntaxError,
    UnknownTemplateError,
)
from minfer.engine.chat.limits import Budget, LimitError
from minfer.engine.chat.messages import Message, marked, normal_messages
from minfer.engine.chat.segments import Encoder, Segment, encode_segments, segments_of, text_of

if TYPE_CHECKING:
    import jinja2


_SECONDS: Final = 5.0
_KEY: Final = "tokenizer.chat_template"
_OURS: Final = frozenset(
    {"messages", "tools", "add_generation_prompt", "strftime_now", "raise_exception", "range"}
)
_THINKING: Final = (
    ("<think>", "</think>"),
    ("<|channel|>analysis<|message|>", "<|end|>"),
    ("<seed:think>", "</seed:think>"),
    ("[THINK]", "[/THINK]"),
)


class Vocabulary(Protocol):
    """What a template wants to know of a tokenizer."""

    @property
    def bos(self) -> int | None:
        """The id that begins a text."""

    @property
    def eos(self) -> int | None:
        """The id that ends a text."""

    def token_text(self, token: int, /) -> str:
        """A token as the vocabulary spells it."""


@dataclass(frozen=True, slots=True)
class Thinking:
    """How a model sets off its reasoning: the marks around it, and the variable that switches it, if any."""

    begin: str
    end: str
    switch: str | None


class ChatTemplate:
    """A model's chat template. May be used by several threads at once."""

    def __init__(
        self, source: str, *, name: str = "", bos: str = "", eos: str = "", tool_use: str = ""
    ) -> None:
        """`name` is for messages to people; `tool_use` is the source to take when tools are given."""
        self.source = source
        self.name = name
        self._specials = {"bos_token": bos, "eos_token": eos}
        self._tool_use = (
            ChatTemplate(tool_use, name=f"{name} (tool_use)", bos=bos, eos=eos) if tool_use else None
        )

    @classmethod
    def from_metadata(
        cls, metadata: Mapping[str, Any], tokenizer: Vocabulary, variant: str = "default"
    ) -> ChatTemplate | None:
        """The template that a model file brings along; None if it has none (of that variant)."""
        sources = {name: _string(metadata, f"{_KEY}.{name}") for name in ("tool_use", variant)}
        sources["default"] = _string(metadata, _KEY) or sources.get("default", "")
        source = sources[variant]
        if not source:
            return None
        tool_use = sources["tool_use"] if variant == "default" else ""
        return cls(source, name="of the model", tool_use=tool_use, **_special_texts(tokenizer))

    @classmethod
    def named(cls, name: str, tokenizer: Vocabulary) -> ChatTemplate:
        """A built-in template, or the one in a file. Raises UnknownTemplateError, TemplateLimitError."""
        source = BUILTIN.get(name)
        if source is None:
            source = _read(name)
        return cls(source, name=name, **_special_texts(tokenizer))

    def render(
        self,
        messages: Sequence[Message],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        date: datetime.date | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> tuple[Segment, ...]:
        """The prompt for a conversation, ready for the assistant's answer.

        tools: JSON schemas of functions. date: what the template shall take for now. extra: further
        variables that the template knows, such as enable_thinking. Raises TemplateError (refused, failed,
        too costly), MessageError.
        """
        if tools and self._tool_use:
            return self._tool_use.render(
                messages, add_generation_prompt=add_generation_prompt, tools=tools, date=date, extra=extra
            )
        reserved = _OURS & (extra or {}).keys()
        if reserved:
            raise MessageError(f"the template variable {min(reserved)!r} cannot be set")
        variables = {
            "messages": self._normal(messages),
            "tools": marked(list(tools)) if tools else None,
            "documents": None,
            "add_generation_prompt": add_generation_prompt,
            **{name: marked(value) for name, value in (extra or {}).items()},
        }
        return self._render(variables, messages, date)

    def encode(
        self,
        messages: Sequence[Message],
        tokenizer: Encoder,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        date: datetime.date | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> list[int]:
        """Token ids of the prompt: control tokens come from the template alone, never from a message."""
        return encode_segments(self.render(messages, tools=tools, date=date, extra=extra), tokenizer)

    @cached_property
    def variables(self) -> frozenset[str]:
        """Names that the template reads, among them the settings it knows. Raises TemplateSyntaxError."""
        import jinja2.meta

        from minfer.engine.chat.sandbox import environment

        self._compiled  # noqa: B018 - for its errors
        return frozenset(jinja2.meta.find_undeclared_variables(environment().parse(self.source)))

    @property
    def takes_tools(self) -> bool:
        """True if the template has a place for tools."""
        return self._tool_use is not None or "tools" in self.variables

    @property
    def reads_date(self) -> bool:
        """True if the prompt depends on the day on which it is rendered."""
        return "strftime_now" in self.variables

    @cached_property
    def takes_system(self) -> bool:
        """True if a system message shows up in the prompt."""
        return "S7q" in self._probe(
            [{"role": "system", "content": "S7q"}, {"role": "user", "content": "U7q"}]
        )

    @cached_property
    def takes_parts(self) -> bool:
        """True if the template itself understands content given as a list of parts."""
        parts = [{"type": "text", "text": "P7q"}]
        prompt = self._probe([{"role": "user", "content": parts}], takes_parts=True)
        return "P7q" in prompt and "'text'" not in prompt and '"text"' not in prompt

    @cached_property
    def thinking(self) -> Thinking | None:
        """How the model sets off its reasoning, as far as the template tells."""
        for begin, end in _THINKING:
            if begin in self.source:
                switch = next(
                    (name for name in ("enable_thinking", "thinking") if name in self.variables), None
                )
                return Thinking(begin, end, switch)
        return None

    def begins_thinking(self, segments: Sequence[Segment]) -> bool:
        """True if the prompt ends inside a block of reasoning, so that the answer continues it."""
        if self.thinking is None:
            return False
        last = segments[-1] if segments else Segment("", True)
        begun = last.text.rfind(self.thinking.begin)
        return last.is_template and begun >= 0 and self.thinking.end not in last.text[begun:]

    @cached_property
    def _compiled(self) -> jinja2.Template:
        import jinja2

        from minfer.engine.chat.sandbox import compile_template

        try:
            return compile_template(self.source)
        except jinja2.TemplateSyntaxError as error:
            raise TemplateSyntaxError(
                f"the chat template is broken in line {error.lineno}: {error.message}"
            ) from None
        except LimitError as error:
            raise TemplateLimitError(f"the chat template is refused: {error}") from None
        except (RecursionError, SyntaxError, ValueError, MemoryError) as error:
            raise TemplateSyntaxError(f"the chat template cannot be compiled: {_said(error)}") from None

    def _normal(self, messages: Sequence[Message]) -> list[dict[str, Any]]:
        has_parts = any(
            isinstance(m, Mapping) and isinstance(m.get("content"), list | tuple) for m in messages
        )
        return normal_messages(
            messages,
            takes_parts=has_parts and self.takes_parts,
            takes_developer="developer" in self.source,
        )

    def _render(
        self, variables: Mapping[str, Any], messages: Sequence[Message], date: datetime.date | None = None
    ) -> tuple[Segment, ...]:
        import jinja2

        from minfer.engine.chat.sandbox import RefusalError, render_parts, strftime_now

        template = self._compiled
        budget = Budget(_size(variables), _SECONDS)
        now = strftime_now(date if date is not None else datetime.datetime.now())
        try:
            parts = render_parts(template, {**self._specials, "strftime_now": now, **variables}, budget)
        except RefusalError as error:
            raise self._refusal(str(error), messages) from None
        except LimitError as error:
            raise TemplateLimitError(f"the chat template is stopped: {error}") from None
        except (
            jinja2.TemplateError,
            TypeError,
            ValueError,
            LookupError,
            ArithmeticError,
            AttributeError,
            RuntimeError,  # RecursionError among them
            MemoryError,
        ) as error:
            raise TemplateFailedError(f"the chat template fails on these messages: {_said(error)}") from None
        return segments_of(parts)

    def _refusal(self, rule: str, messages: Sequence[Message]) -> TemplateRefusedError:
        roles = [str(message.get("role")) for message in messages]
        if "system" in roles and not self.takes_system:
            hint = "this template takes no system message: put its text into the first user message"
        else:
            hint = f"the messages have the roles {', '.join(roles[:20])}{', …' if len(roles) > 20 else ''}"
        return TemplateRefusedError(f'the chat template refuses the messages: "{rule}"', rule, hint=hint)

    def _probe(self, messages: list[dict[str, Any]], *, takes_parts: bool = False) -> str:
        """The prompt for a trial conversation; empty if the template does not take it."""
        normal = normal_messages(messages, takes_parts=takes_parts, takes_developer=True)
        variables = {"messages": normal, "tools": None, "add_generation_prompt": True}
        try:
            return text_of(self._render(variables, ()))
        except (TemplateRefusedError, TemplateFailedError):
            return ""


def _special_texts(tokenizer: Vocabulary) -> dict[str, str]:
    bos, eos = tokenizer.bos, tokenizer.eos
    return {
        "bos": "" if bos is None else tokenizer.token_text(bos),
        "eos": "" if eos is None else tokenizer.token_text(eos),
    }


def _string(metadata: Mapping[str, Any], key: str) -> str:
    value = metadata.get(key)
    return value if isinstance(value, str) else ""


def _read(name: str) -> str:
    try:
        with Path(name).expanduser().open("rb") as file:
            return file.read(1 << 20).decode()
    except UnicodeDecodeError:
        raise UnknownTemplateError(f"{name} is not a text file in UTF-8") from None
    except OSError as error:
        raise UnknownTemplateError(
            f"there is no chat template {name!r} ({error.strerror})",
            hint=f"name a file or one of: {', '.join(BUILTIN)}",
        ) from None


def _size(value: object) -> int:
    """Characters of all texts in plain data."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, Mapping):
        return sum(_size(key) + _size(entry) for key, entry in value.items())
    return sum(map(_size, value)) if isinstance(value, list) else 1


def _said(error: BaseException) -> str:
    """What an exception says, in one bounded line."""
    return (" ".join(str(error).split()) or type(error).__name__)[:300]
