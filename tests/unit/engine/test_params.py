"""GenerationParams: defaults, bounds, profiles, and values from requests and flags."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest

from minfer.core.errors import UsageError
from minfer.engine.params import (
    KNOBS,
    PROFILES,
    GenerationParams,
    ParameterError,
    field_of,
    parse_value,
    profile,
    with_seed,
)


def test_defaults_are_those_of_the_contract() -> None:
    params = GenerationParams()
    params.check()
    assert (params.n_predict, params.temp, params.top_k, params.top_p, params.min_p) == (
        512,
        0.8,
        40,
        0.95,
        0,
    )
    assert (params.typical_p, params.repeat_penalty, params.repeat_last_n) == (1, 1.1, 64)
    assert (params.frequency_penalty, params.presence_penalty) == (0, 0)
    assert (params.dry_multiplier, params.xtc_probability, params.mirostat, params.logit_bias) == (
        0,
        0,
        0,
        (),
    )
    assert (params.seed, params.n_ctx, params.stop_strings) == (42, 4096, ())


def test_every_field_says_what_it_is() -> None:
    flags = [flag for knob in KNOBS.values() for flag in (*knob.flags, *(flag for flag, _ in knob.switches))]
    assert set(KNOBS) == {f.name for f in dataclasses.fields(GenerationParams)}
    assert all(knob.help and knob.flags for knob in KNOBS.values())
    assert len(flags) == len(set(flags))
    assert all(flag.startswith("-") for flag in flags)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("temp", -0.1, "temp must be at least 0, got -0.1"),
        ("temp", math.nan, "temp must be finite, got nan"),
        ("temp", math.inf, "temp must be finite, got inf"),
        ("temp", 101.0, "temp must be at most 100, got 101.0"),
        ("temp", "hot", "temp must be a number, got 'hot'"),
        ("temp", True, "temp must be a number, got True"),
        ("top_k", 1.5, "top_k must be a whole number, got 1.5"),
        ("top_k", -2, "top_k must be at least -1, got -2"),
        ("top_p", 1.01, "top_p must be at most 1, got 1.01"),
        ("repeat_penalty", 0.0, "repeat_penalty must be above 0, got 0.0"),
        ("mirostat", 3, "mirostat must be at most 2, got 3"),
        ("seed", 2**63, f"seed must be at most {2**63 - 1}, got {2**63}"),
        ("n_predict", -2, "n_predict must be at least -1, got -2"),
        ("stop_strings", ("",), "stop_strings must hold texts that are not empty, got ''"),
        ("stop_strings", "x", "stop_strings must be a list, got 'x'"),
        ("stop_strings", ("x" * 1025,), "stop_strings must hold texts of at most 1024 characters, got 1025"),
        ("stop_strings", ("x",) * 1025, "stop_strings must have at most 1024 entries, got 1025"),
        (
            "logit_bias",
            ((-1, 0.0),),
            "logit_bias must pair token ids from 0 with finite numbers or -inf, got (-1, 0.0)",
        ),
        (
            "logit_bias",
            ((1, math.inf),),
            "logit_bias must pair token ids from 0 with finite numbers or -inf, got (1, inf)",
        ),
    ],
)
def test_a_bad_value_is_named_with_its_bound(field: str, value: object, message: str) -> None:
    with pytest.raises(ParameterError) as caught:
        dataclasses.replace(GenerationParams(), **{field: value}).check()  # type: ignore[arg-type]
    assert caught.value.fact == message
    assert caught.value.name == field
    assert isinstance(caught.value, UsageError)
    assert caught.value.exit_status == 2


def test_values_at_their_bounds_pass() -> None:
    for name, knob in KNOBS.items():
        if not knob.is_list:
            number = int if knob.kind == "int" else float
            for bound in (knob.high, *(() if knob.low_is_open else (knob.low,))):
                dataclasses.replace(GenerationParams(), **{name: number(bound)}).check()  # type: ignore[arg-type]


def test_profiles() -> None:
    assert profile("minfer") == GenerationParams()
    today = profile("llama.cpp")
    assert (today.repeat_penalty, today.min_p, today.seed, today.n_predict, today.n_ctx) == (
        1.0,
        0.05,
        -1,
        -1,
        0,
    )
    assert profile("ollama").top_p == 0.9
    assert (profile("openai").temp, profile("openai").top_p, profile("openai").top_k) == (1.0, 1.0, 0)
    for name in PROFILES:
        profile(name).check()
    with pytest.raises(ParameterError, match="there is no profile 'vllm'"):
        profile("vllm")


def test_request_bodies() -> None:
    params = GenerationParams().updated(
        {
            "temperature": 1,
            "max_tokens": 7.0,
            "stop": "END",
            "logit_bias": {"11": -2, "12": False},
            "seed": None,
        }
    )
    assert (params.temp, params.n_predict, params.stop_strings) == (1.0, 7, ("END",))
    assert params.logit_bias == ((11, -2.0), (12, -math.inf))
    assert params.seed == 42
    assert GenerationParams().updated({"logit_bias": [[11, 1.5]]}).logit_bias == ((11, 1.5),)


@pytest.mark.parametrize(
    "body",
    [
        {"temperature": "1"},
        {"temperature": 10**400},
        {"stop": [1]},
        {"stop": {"a": 1}},
        {"logit_bias": {"x": 1}},
        {"logit_bias": 3},
        {"logit_bias": [[1]]},
        {"max_tokens": True},
        {"top_k": 2.5},
        {"top_kk": 1},
    ],
)
def test_bad_request_bodies_are_refused(body: dict[str, Any]) -> None:
    with pytest.raises(ParameterError):
        GenerationParams().updated(body)


def test_names_are_found_or_the_nearest_is_told() -> None:
    assert field_of("top-k") == field_of("--top-k") == "top_k"
    assert field_of("temperature") == "temp"
    with pytest.raises(ParameterError) as caught:
        field_of("top_kk")
    assert caught.value.hint == "did you mean top_k?"


@pytest.mark.parametrize(
    ("name", "texts", "value"),
    [
        ("temp", "0.5", 0.5),
        ("top_k", ["1", "2"], 2),
        ("stop_strings", ["a", "b"], ("a", "b")),
        ("dry_sequence_breakers", ["none"], ()),
        ("stop_strings", "none", ("none",)),
        ("logit_bias", ["15043+1", "3-0.5", "4-inf"], ((15043, 1.0), (3, -0.5), (4, -math.inf))),
    ],
)
def test_words_of_a_command_line(name: str, texts: str | list[str], value: object) -> None:
    assert parse_value(name, texts) == value


@pytest.mark.parametrize(
    ("name", "text"), [("temp", "hot"), ("top_k", "1.5"), ("logit_bias", "15043"), ("logit_bias", "+1")]
)
def test_bad_words_of_a_command_line(name: str, text: str) -> None:
    with pytest.raises(ParameterError, match=name):
        parse_value(name, text)


def test_a_random_seed_is_chosen_once_and_can_be_reported() -> None:
    chosen = with_seed(profile("llama.cpp"))
    assert 0 <= chosen.seed < 2**32
    assert with_seed(chosen) is chosen
