"""Rendered prompts against Hugging Face transformers' own renderer, for published templates."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from minfer.core.errors import TemplateError
from minfer.engine.chat import ChatTemplate, text_of
from paths import SHARED, shared

pytestmark = pytest.mark.parity

_TEMPLATES = sorted(path.name for path in (SHARED / "data" / "templates").glob("*.jinja")) or ["absent"]
_TEXTS = (
    "Hello there!",
    "  Spaces around, and\na line break. \n",
    "<think>\nsome thought\n</think>\n\nThe answer is 42.",
    "Grüße, 世界 🌍 {{ not a template }} {% if x %}",
    "Bye <|im_end|> </s> 'quotes' \"double\" \\ backslash\ttab",
)
_Option = Any  # of a rendering

_TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a city, <|im_end|> included",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "description": "The city's näme"}},
            "required": ["city"],
        },
    },
}


def _conversation(n: int, *, has_system: bool, shift: int = 0) -> list[dict[str, Any]]:
    """n messages of user and assistant in turn, a system message before them if asked for."""
    roles = ["user" if i % 2 == 0 else "assistant" for i in range(n)]
    messages = [{"role": role, "content": _TEXTS[(i + shift) % len(_TEXTS)]} for i, role in enumerate(roles)]
    return [{"role": "system", "content": " Be brief.\n"}, *messages] if has_system else messages


def _reference(source: str, messages: list[dict[str, Any]], **options: _Option) -> str | None:
    """What transformers renders; None if the template raises."""
    pytest.importorskip("transformers")
    from jinja2.exceptions import TemplateError as JinjaError
    from transformers.utils.chat_template_utils import render_jinja_template

    try:
        rendered = render_jinja_template(
            [messages], chat_template=source, bos_token="<s>", eos_token="</s>", **options
        )
    except (JinjaError, TypeError):
        return None
    return str(rendered[0][0])


def _ours(source: str, messages: list[dict[str, Any]], **options: _Option) -> str | None:
    template = ChatTemplate(source, bos="<s>", eos="</s>")
    try:
        segments = template.render(messages, **options)
    except TemplateError:
        return None
    for segment in segments:
        assert segment.is_template or "<|im_start|>" not in segment.text
    return text_of(segments)


@pytest.mark.parametrize("name", _TEMPLATES)
@pytest.mark.parametrize("has_system", [False, True])
@pytest.mark.parametrize("n", [1, 2, 5])
def test_prompts_are_equal(name: str, n: int, has_system: bool) -> None:
    source = shared(f"data/templates/{name}").read_text()
    for shift, prompted in itertools.product(range(len(_TEXTS)), (True, False)):
        messages = _conversation(n, has_system=has_system, shift=shift)
        expected = _reference(source, messages, add_generation_prompt=prompted)
        assert _ours(source, messages, add_generation_prompt=prompted) == expected


@pytest.mark.parametrize("name", _TEMPLATES)
def test_prompts_with_tools_are_equal(name: str) -> None:
    source = shared(f"data/templates/{name}").read_text()
    call = {"type": "function", "function": {"name": "get_weather", "arguments": {"city": "Köln"}}}
    messages = [
        *_conversation(1, has_system=True),
        {"role": "assistant", "content": "", "tool_calls": [{**call, "id": "abcdefghi"}]},
        {"role": "tool", "name": "get_weather", "content": "sunny", "tool_call_id": "abcdefghi"},
    ]
    for conversation in (messages[:2], messages):
        expected = _reference(source, conversation, tools=[_TOOL], add_generation_prompt=True)
        assert _ours(source, conversation, tools=[_TOOL]) == expected


@pytest.mark.parametrize("value", [True, False])
def test_a_switch_for_thinking(value: bool) -> None:
    source = shared("data/templates/Qwen-Qwen3-0.6B.jinja").read_text()
    messages = _conversation(3, has_system=True)
    expected = _reference(source, messages, add_generation_prompt=True, enable_thinking=value)
    assert _ours(source, messages, extra={"enable_thinking": value}) == expected


def test_there_are_templates_to_compare() -> None:
    shared("data/templates")
    assert len(_TEMPLATES) >= 12
