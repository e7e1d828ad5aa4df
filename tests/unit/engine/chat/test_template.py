"""Chat templates: what is the template's own and what the caller's, refusals, capabilities, built-in ones."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from minfer.engine.chat import BUILTIN, ChatTemplate, Message, Segment, encode_segments, fold_system, text_of
from minfer.engine.chat.errors import MessageError, TemplateRefusedError, UnknownTemplateError

_CHATML = BUILTIN["chatml"]


class _Tokenizer:
    """Characters are ids; `<|…|>` in text that may hold control tokens is 1000 + its length."""

    bos: int | None = 1
    eos: int | None = 2
    adds_bos = False

    def token_text(self, token: int, /) -> str:
        return {1: "<s>", 2: "</s>"}[token]

    def encode_pieces(self, pieces: Iterable[tuple[str, bool]], *, add_special: bool) -> list[int]:
        assert not add_special
        ids: list[int] = []
        for piece, parse in pieces:
            text = piece
            while parse and (start := text.find("<")) >= 0:
                stop = text.index(">") + 1
                ids += [*map(ord, text[:start]), 1 if text[start:stop] == "<s>" else 1000 + stop - start]
                text = text[stop:]
            ids += map(ord, text)
        return ids


def _template(source: str) -> ChatTemplate:
    return ChatTemplate(source, bos="<s>", eos="</s>")


def _user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def test_the_callers_text_is_kept_apart() -> None:
    segments = _template(_CHATML).render([_user("Say <|im_end|>!")])
    assert segments == (
        Segment("<|im_start|>user\n", True),
        Segment("Say <|im_end|>!", False),
        Segment("<|im_end|>\n<|im_start|>assistant\n", True),
    )


@pytest.mark.parametrize(
    "expression",
    [
        "m.content",
        "m.content|trim",
        "m.content.strip()",
        "m.content + ''",
        "'' ~ m.content",
        "m['content'][0:]",
        "[m.content]|join('-')",
        "'-'.join([m.content])",
        "m.content|replace('x', 'y')",
        "m.content.split('x')[0]",
        "'%s' % m.content",
        "'{}'.format(m.content)",
        "m.content|upper|lower",
        "m.content|title|lower",
        "m.content|safe",
        "('<|im_start|>'|safe) + m.content",
        "namespace(x=m.content).x",
        "m.content|e|safe",
        "m.content|e|replace('&lt;', '<')|replace('&gt;', '>')",
        "m|tojson",
        "m.content|list|join",
        "[m.content]|first",
        "[m.content]",
        "m.content|center(40)",
        "m.content|indent",
        "m.content * 2",
        "m.content|reverse|reverse|join",
        "{m.content: 1}|tojson",
        "m.tool_calls[0].arguments|tojson",
        "m.tool_calls[0].arguments.keys()|join",
    ],
)
def test_no_control_token_comes_out_of_a_message(expression: str) -> None:
    """However a template turns the caller's text around, no letter of it counts as the template's."""
    control = "<|im_end|>"
    source = "{% set m = messages[0] %}<|im_start|>{{ " + expression + " }}<|im_end|>"
    message = {**_user(control), "tool_calls": [{"arguments": {control: control}}]}
    segments = _template(source).render([message])
    own = "".join(segment.text for segment in segments if segment.is_template)
    assert own.count(control) == 1
    assert own.startswith("<|im_start|>")
    assert "im_end" in "".join(segment.text for segment in segments if not segment.is_template)


def test_a_role_can_be_a_part_of_a_control_token_only_if_it_is_known() -> None:
    template = _template("{% for m in messages %}<|{{ m.role }}|>{% endfor %}")
    assert template.render([_user("")]) == (Segment("<|user|>", True),)
    assert Segment("endoftext", False) in template.render([{"role": "endoftext", "content": ""}])


def test_tools_and_settings_are_the_callers_text_too() -> None:
    template = _template("{{ tools|tojson }}{{ effort }}{{ deep }}")
    segments = template.render(
        [], tools=[{"name": "<|im_end|>"}], extra={"effort": "<|im_end|>", "deep": True}
    )
    assert [segment.text for segment in segments] == ['[{"name": "<|im_end|>"}]<|im_end|>', "True"]
    assert not segments[0].is_template


def test_settings_cannot_replace_our_names() -> None:
    with pytest.raises(MessageError, match="'raise_exception' cannot be set"):
        _template("").render([], extra={"raise_exception": "x"})


def test_encoding_reads_control_tokens_out_of_the_template_alone() -> None:
    ids = _template(_CHATML).encode([_user("<|x|>")], _Tokenizer())
    assert ids == [1012, *map(ord, "user\n"), *map(ord, "<|x|>"), 1010, 10, 1012, *map(ord, "assistant\n")]


@pytest.mark.parametrize("source", ["{{ bos_token }}Hi", "Hi"])
@pytest.mark.parametrize("adds_bos", [False, True])
def test_one_bos_where_the_model_wants_one(source: str, adds_bos: bool) -> None:
    tokenizer = _Tokenizer()
    tokenizer.adds_bos = adds_bos
    ids = _template(source).encode([], tokenizer)
    assert ids.count(1) == int(adds_bos or "bos" in source)
    assert encode_segments((), tokenizer) == ([1] if adds_bos else [])


def test_a_refusal_tells_the_rule_and_what_to_do() -> None:
    with pytest.raises(TemplateRefusedError) as caught:
        _template(BUILTIN["gemma"]).render([{"role": "system", "content": "x"}, _user("y")])
    error = caught.value
    assert error.exit_status == 5
    assert error.rule == "System role not supported"
    assert error.fact == 'the chat template refuses the messages: "System role not supported"'
    assert "takes no system message" in error.hint
    with pytest.raises(TemplateRefusedError) as caught:
        _template(BUILTIN["llama2"]).render([_user("x"), _user("y")])
    assert caught.value.hint == "the messages have the roles user, user"


def test_a_system_message_can_be_folded_in() -> None:
    messages = [
        {"role": "system", "content": "Be brief."},
        _user("Hi"),
        {"role": "assistant", "content": "Ho"},
    ]
    assert fold_system(messages) == [_user("Be brief.\n\nHi"), messages[2]]
    assert fold_system(messages[1:]) == messages[1:]
    with pytest.raises(MessageError):
        fold_system(messages[:1])


def test_the_date_is_what_it_is_told() -> None:
    template = _template("{{ strftime_now('%d %b %Y') }}")
    assert text_of(template.render([], date=datetime.date(2024, 7, 26))) == "26 Jul 2024"
    assert template.reads_date
    assert not _template(_CHATML).reads_date


def test_capabilities() -> None:
    assert _template(_CHATML).takes_system
    assert not _template(BUILTIN["gemma"]).takes_system
    assert not _template("{{ messages[-1].content }}").takes_system
    parts = "{% for p in messages[0].content %}{% if p.type == 'text' %}{{ p.text }}{% endif %}{% endfor %}"
    assert _template(parts).takes_parts
    assert not _template(_CHATML).takes_parts
    assert not _template("{{ messages[0].content }}").takes_parts
    assert _template("{% if tools %}{{ tools }}{% endif %}").takes_tools
    assert not _template(_CHATML).takes_tools


def test_thinking() -> None:
    switched = _template(
        "{% if enable_thinking is false %}<think>\n\n</think>\n{% else %}<think>\n{% endif %}"
    )
    assert switched.thinking is not None
    assert (switched.thinking.begin, switched.thinking.end) == ("<think>", "</think>")
    assert switched.thinking.switch == "enable_thinking"
    assert switched.begins_thinking(switched.render([]))
    assert not switched.begins_thinking(switched.render([], extra={"enable_thinking": False}))
    assert not switched.begins_thinking((Segment("<think>", False),))
    assert _template(_CHATML).thinking is None


def test_content_in_parts() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    message = {"role": "user", "content": parts}
    assert Segment("a\nb", False) in _template(_CHATML).render([message])
    itself = "{% for m in messages %}{% for p in m.content %}[{{ p.text }}]{% endfor %}{% endfor %}"
    assert text_of(_template(itself).render([message])) == "[a][b]"


@pytest.mark.parametrize(
    ("message", "fact"),
    [
        ({"content": "x"}, "message 0 has no role"),
        ({"role": 1, "content": "x"}, "message 0 has no role"),
        ("text", "message 0 has no role"),
        ({"role": "user", "content": 3}, "the content of message 0 is neither text nor a list of parts"),
        (
            {"role": "user", "content": [{"type": "image_url"}]},
            "message 0 has a part of type 'image_url', only text is understood",
        ),
        ({"role": "user", "content": ["x"]}, "message 0 has a part of type 'str', only text is understood"),
        (
            {"role": "user", "content": "x", "y": object()},
            "a message holds a object, which is not plain data",
        ),
    ],
)
def test_bad_messages_are_named(message: Message, fact: str) -> None:
    with pytest.raises(MessageError) as caught:
        _template(_CHATML).render([message])
    assert caught.value.fact == fact
    assert caught.value.exit_status == 2


def test_deep_data_is_refused() -> None:
    value: Any = "x"
    for _ in range(10_000):
        value = [value]
    with pytest.raises(MessageError, match="nested deeper"):
        _template(_CHATML).render([{**_user("x"), "y": value}])


def test_keys_without_a_value_are_left_out() -> None:
    template = _template("{{ 'tool_calls' in messages[0] }}{{ 'content' in messages[0] }}")
    assert (
        text_of(template.render([{"role": "assistant", "content": None, "tool_calls": None}])) == "FalseFalse"
    )


def test_reasoning_goes_by_each_of_its_names() -> None:
    template = _template("{{ messages[0].reasoning_content }}{{ messages[0].thinking }}")
    assert text_of(template.render([{"role": "assistant", "content": "", "reasoning": "x"}])) == "xx"


def test_a_developer_is_the_system_where_the_template_knows_none() -> None:
    message = {"role": "developer", "content": "x"}
    assert text_of(_template("{{ messages[0].role }}").render([message])) == "system"
    assert text_of(_template("{#developer#}{{ messages[0].role }}").render([message])) == "developer"


def test_templates_of_a_file() -> None:
    metadata = {
        "tokenizer.chat_template": "{{ bos_token }}default{{ eos_token }}",
        "tokenizer.chat_template.tool_use": "for tools",
        "tokenizer.chat_template.rag": "for documents",
    }
    template = ChatTemplate.from_metadata(metadata, _Tokenizer())
    assert template is not None
    assert text_of(template.render([])) == "<s>default</s>"
    assert text_of(template.render([], tools=[{"name": "f"}])) == "for tools"
    assert template.takes_tools
    rag = ChatTemplate.from_metadata(metadata, _Tokenizer(), "rag")
    assert rag is not None
    assert text_of(rag.render([])) == "for documents"
    assert ChatTemplate.from_metadata({}, _Tokenizer()) is None
    assert ChatTemplate.from_metadata(metadata, _Tokenizer(), "other") is None


@pytest.mark.parametrize(
    ("name", "prompt"),
    [
        ("chatml", "<|im_start|>user\n Hi <|im_end|>\n<|im_start|>assistant\n"),
        ("gemma", "<s><start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\n"),
        ("llama2", "<s>[INST] Hi [/INST]"),
        (
            "llama3",
            "<s><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n",
        ),
        ("mistral", "<s>[INST]  Hi  [/INST]"),
        ("phi3", "<|user|>\n Hi <|end|>\n<|assistant|>\n"),
        ("vicuna", "<s>USER:  Hi \nASSISTANT:"),
        ("zephyr", "<|user|>\n Hi </s>\n<|assistant|>\n"),
    ],
)
def test_built_in_templates(name: str, prompt: str) -> None:
    template = ChatTemplate.named(name, _Tokenizer())
    assert text_of(template.render([_user(" Hi ")])) == prompt
    longer = [_user("a"), {"role": "assistant", "content": "b"}, _user("c")]
    assert all(letter in text_of(template.render(longer)) for letter in "abc")


def test_every_built_in_template_is_tested() -> None:
    (mark,) = test_built_in_templates.pytestmark  # type: ignore[attr-defined]
    assert {name for name, _ in mark.args[1]} == set(BUILTIN)


def test_a_template_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.jinja"
    path.write_text("mine")
    assert text_of(ChatTemplate.named(str(path), _Tokenizer()).render([])) == "mine"
    path.write_bytes(b"\xff")
    with pytest.raises(UnknownTemplateError, match="not a text file"):
        ChatTemplate.named(str(path), _Tokenizer())
    with pytest.raises(UnknownTemplateError) as caught:
        ChatTemplate.named("chatm", _Tokenizer())
    assert caught.value.fact == "there is no chat template 'chatm' (No such file or directory)"
    assert "chatml, gemma" in caught.value.hint
