"""Request bodies: what is taken, refused and warned about."""

from __future__ import annotations

import pytest

from minfer.engine.params import GenerationParams
from minfer.serve.errors import RequestError, UnknownFieldError, UnsupportedFieldError, error_body
from minfer.serve.wire.body import parse_body, parse_json, read_sampling
from minfer.serve.wire.requests import ChatBody, CompletionBody

MESSAGES = [{"role": "user", "content": "hi"}]


def _chat(**fields: object) -> ChatBody:
    return parse_body(ChatBody, {"messages": MESSAGES, **fields})


def test_parameters_go_by_their_aliases_and_null_is_not_given() -> None:
    body = _chat(temperature=0, max_tokens=5, stop="x", top_p=None, logit_bias={"7": -1.5, "8": False})
    sampling = read_sampling(body, GenerationParams(), is_strict=True)
    assert sampling.params.temp == 0
    assert sampling.params.n_predict == 5
    assert sampling.params.stop_strings == ("x",)
    assert sampling.params.top_p == GenerationParams().top_p
    assert sampling.params.logit_bias == ((7, -1.5), (8, float("-inf")))
    assert sampling.warnings == ()


@pytest.mark.parametrize(
    "order", [("max_tokens", "max_completion_tokens"), ("max_completion_tokens", "max_tokens")]
)
def test_the_newer_name_of_the_limit_wins(order: tuple[str, str]) -> None:
    values = {"max_tokens": 5, "max_completion_tokens": 9}
    body = _chat(**{name: values[name] for name in order})
    assert read_sampling(body, GenerationParams(), is_strict=True).params.n_predict == 9


def test_fields_of_openais_service_are_taken_without_a_word() -> None:
    body = _chat(user="me", metadata={"a": "b"}, store=False, parallel_tool_calls=True, service_tier="auto")
    assert read_sampling(body, GenerationParams(), is_strict=True).warnings == ()


def test_unknown_fields_are_told_and_refused_when_strict() -> None:
    body = _chat(tempratur=1)
    (warning,) = read_sampling(body, GenerationParams(), is_strict=False).warnings
    assert "tempratur" in warning
    with pytest.raises(UnknownFieldError) as raised:
        read_sampling(body, GenerationParams(), is_strict=True)
    assert raised.value.param == "tempratur"


def test_unknown_options_of_a_stream_too() -> None:
    known = {"include_usage": True, "include_obfuscation": False}
    assert read_sampling(_chat(stream_options=known), GenerationParams(), is_strict=True).warnings == ()
    body = _chat(stream_options={**known, "include_usages": True})
    (warning,) = read_sampling(body, GenerationParams(), is_strict=False).warnings
    assert "stream_options.include_usages" in warning
    with pytest.raises(UnknownFieldError):
        read_sampling(body, GenerationParams(), is_strict=True)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tools", [{"type": "function", "function": {"name": "f"}}]),
        ("tool_choice", "required"),
        ("response_format", {"type": "json_schema", "json_schema": {"name": "x", "schema": {}}}),
        ("grammar", "root ::= 'a'"),
        ("functions", [{"name": "f"}]),
    ],
)
def test_constraints_are_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(UnsupportedFieldError) as raised:
        read_sampling(_chat(**{name: value}), GenerationParams(), is_strict=False)
    assert raised.value.param == name
    assert raised.value.http_status == 400


def test_constraints_that_ask_for_nothing_pass() -> None:
    body = _chat(tools=[], tool_choice="none", response_format={"type": "text"}, grammar="")
    assert read_sampling(body, GenerationParams(), is_strict=True).warnings == ()


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": [{"content": "hi"}]}, "messages.0.role"),
        ({"messages": [{"role": "king", "content": "hi"}]}, "messages.0.role"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages.0.content"),
        ({"n": 0}, "n"),
        ({"n": 10**6}, "n"),
        ({"n": True}, "n"),
        ({"stream": "yes"}, "stream"),
        ({"top_logprobs": 21}, "top_logprobs"),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": float(10**9)}, "temperature"),
        ({"max_tokens": -5}, "max_tokens"),
        ({"stop": [5]}, "stop"),
        ({"stop": ["x" * 5000]}, "stop"),
        ({"logit_bias": {"a": 1}}, "logit_bias"),
        ({"seed": 2**80}, "seed"),
    ],
)
def test_a_wrong_field_is_named(fields: dict[str, object], param: str) -> None:
    with pytest.raises(RequestError) as raised:
        read_sampling(_chat(**fields), GenerationParams(), is_strict=False)
    body = error_body(raised.value)["error"]
    assert body["param"] is not None
    assert body["param"].startswith(param)
    assert body["type"] == "invalid_request_error"
    assert set(body) == {"message", "type", "param", "code"}


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"nul", b"{'a': 1}", b'{"a": NaN}', b'{"a": 1} x', b"\xff\xfe{}", b'"\\ud800"', b"[" * 5000],
)
def test_what_is_not_json_is_refused(data: bytes) -> None:
    with pytest.raises(RequestError):
        parse_json(data)


@pytest.mark.parametrize("data", [[], "text", 5, None, True])
def test_a_body_is_an_object(data: object) -> None:
    with pytest.raises(RequestError):
        parse_body(CompletionBody, data)


@pytest.mark.parametrize(
    "prompt", [None, [], [[]], [1, "a"], ["a", 1], [[1], "a"], [-1], [2**40], [1.5], {}, True]
)
def test_prompts_of_mixed_or_no_shape_are_refused(prompt: object) -> None:
    with pytest.raises(RequestError) as raised:
        parse_body(CompletionBody, {"prompt": prompt})
    assert (raised.value.param or "").startswith("prompt")
