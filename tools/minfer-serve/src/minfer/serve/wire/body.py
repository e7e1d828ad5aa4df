"""A request body to a checked model, with its mistakes named the way OpenAI names them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import from_json

from minfer.engine.params import KNOBS, GenerationParams, ParameterError, field_of
from minfer.serve.errors import RequestError, UnknownFieldError, UnsupportedFieldError

MOST_CHOICES: Final = 32
M = TypeVar("M", bound="Body")

HARMLESS: Final = frozenset(
    {
        "user", "metadata", "store", "safety_identifier", "prompt_cache_key", "prompt_cache_retention",
        "service_tier", "parallel_tool_calls", "verbosity",
    }
)  # fmt: skip
"""Fields that concern OpenAI's service and not the answer: taken without a word."""

NEUTRAL: Final[Mapping[str, tuple[Any, ...]]] = {
    "response_format": ({"type": "text"},),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "grammar": ("",),
    "json_schema": (),
    "guided_json": (),
    "guided_regex": (),
    "guided_choice": (),
    "guided_grammar": (),
    "structured_outputs": (),
    "modalities": (["text"],),
    "audio": (),
    "prediction": (),
    "web_search_options": (),
    "suffix": ("",),
    "use_beam_search": (False,),
    "lora": ([],),
}
"""Fields that would change the answer and cannot be honoured, with the values that ask for nothing."""

# n_ctx belongs to the server; the others are spelt out in the bodies.
_NOT_FROM_BODIES: Final = frozenset({"n_ctx"})


class Body(BaseModel):
    """What every request body shares: strict types, and further fields kept for inspection."""

    model_config = ConfigDict(extra="allow", strict=True)

    model: str | None = Field(None, description="the model's name; left out, it is the one there is")


class StreamOptions(BaseModel):
    """Options of a stream."""

    model_config = ConfigDict(extra="allow", strict=True)

    include_usage: bool | None = Field(None, description="send token counts in a last chunk")
    include_obfuscation: bool | None = Field(None, description="taken without effect")


class GenerationBody(Body):
    """What chat and text completions share. Sampling parameters are further fields: see sampling_schema."""

    stream: bool | None = Field(None, description="send the answer as server-sent events")
    stream_options: StreamOptions | None = None
    n: int | None = Field(None, ge=1, le=MOST_CHOICES, description="answers to each prompt")
    ignore_eos: bool | None = Field(None, description="go on when the model would end the answer")
    cache_prompt: bool | None = Field(None, description="whether to use the prefix cache; true by default")
    timeout: float | None = Field(
        None, gt=0, le=86400, description="seconds until the answer ends with what there is"
    )


@dataclass(frozen=True, slots=True)
class Sampling:
    """The parameters of a request, its seed not yet settled, and what was ignored."""

    params: GenerationParams
    warnings: tuple[str, ...]


def parse_json(data: bytes) -> object:
    """Decode a body. Raises RequestError: UTF-8, no NaN, bounded depth."""
    try:
        return from_json(data, allow_inf_nan=False)
    except ValueError as error:
        raise RequestError(
            f"the request body is not valid JSON: {str(error)[:200]}", hint="send one JSON object in UTF-8"
        ) from None


def parse_body(kind: type[M], data: object) -> M:
    """Check a decoded body. Raises RequestError that names the first field at fault."""
    if not isinstance(data, dict):
        raise RequestError(f"the request body must be a JSON object, got {_kind_of(data)}")
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        raise _first_mistake(error) from None


def read_sampling(body: Body, defaults: GenerationParams, *, is_strict: bool) -> Sampling:
    """Sort the further fields of a body into parameters, refusals and warnings.

    Raises ParameterError, UnsupportedFieldError, and UnknownFieldError when strict.
    """
    values: dict[str, object] = {}
    warnings: list[str] = []
    for name, value in (body.model_extra or {}).items():
        if value is None or name in HARMLESS:
            continue
        if name in NEUTRAL:
            _refuse_unless_neutral(name, value)
        elif _is_knob(name):
            values[name] = value
        else:
            warnings.append(_unknown(name, is_strict=is_strict))
    options = getattr(body, "stream_options", None)
    for name in (options.model_extra or {}) if options else ():
        warnings.append(_unknown(f"stream_options.{name}", is_strict=is_strict))
    if "max_completion_tokens" in values:
        values.pop("max_tokens", None)  # the newer name wins
    return Sampling(_updated(defaults, values), tuple(warnings))


def unknown_fields(body: Body, *, is_strict: bool) -> tuple[str, ...]:
    """Warnings of the further fields of a body that takes none. Raises UnknownFieldError when strict."""
    extra = body.model_extra or {}
    names = [name for name, value in extra.items() if value is not None and name not in HARMLESS]
    return tuple(_unknown(name, is_strict=is_strict) for name in names)


def _updated(defaults: GenerationParams, values: Mapping[str, object]) -> GenerationParams:
    """Apply values one by one, so that a mistake is reported under the name that the client wrote."""
    params = defaults
    for name, value in values.items():
        try:
            params = params.updated({name: value})
        except ParameterError as error:
            raise RequestError(error.fact, param=name, hint=error.hint) from None
    return params


def _refuse_unless_neutral(name: str, value: object) -> None:
    if value not in NEUTRAL[name]:
        raise UnsupportedFieldError(
            f"{name} is not supported by this server",
            param=name,
            hint="leave it out; it is refused because ignoring it would change the answer",
        )


def _unknown(name: str, *, is_strict: bool) -> str:
    shown = name[:80]
    if is_strict:
        raise UnknownFieldError(
            f"unknown field {shown!r}", param=shown, hint="this server runs with --strict; see /openapi.json"
        )
    return f"unknown field {shown!r} was ignored"


def _is_knob(name: str) -> bool:
    try:
        return field_of(name) not in _NOT_FROM_BODIES
    except ParameterError:
        return False


def _first_mistake(error: ValidationError) -> RequestError:
    """The first of pydantic's errors, in words."""
    first = error.errors(include_url=False, include_context=False)[0]
    # Members of a union add their own names to the path: keep what a client can find in its body.
    path = [str(part) for part in first["loc"] if isinstance(part, int) or part.replace("_", "").isalnum()]
    param = ".".join(path)[:200] or None
    said = first["msg"].replace("Input should", "it should").replace("Value error, ", "")
    shown = "" if first["type"] == "missing" else f", got {_kind_of(first.get('input'))}"
    return RequestError(f"{param or 'the body'} is not right: {said[:200]}{shown}", param=param)


def _kind_of(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", type(None): "null"}
    if isinstance(value, int | float) and not isinstance(value, bool):
        return repr(value)[:40]
    return names.get(type(value), type(value).__name__)


def sampling_schema() -> dict[str, dict[str, Any]]:
    """JSON schema properties of the sampling parameters, for the OpenAPI document."""
    kinds: dict[str, dict[str, Any]] = {
        "int": {"type": ["integer", "null"]},
        "float": {"type": ["number", "null"]},
        "strings": {"type": ["string", "array", "null"], "items": {"type": "string"}},
        "biases": {"type": ["object", "null"], "additionalProperties": {"type": ["number", "boolean"]}},
    }
    properties: dict[str, dict[str, Any]] = {}
    for name, knob in KNOBS.items():
        if name in _NOT_FROM_BODIES:
            continue
        bounds = knob.bounds()
        text = f"{knob.help} ({bounds})" if bounds else knob.help
        for spelling in (name, *knob.aliases):
            properties[spelling] = {**kinds[knob.kind], "description": text}
    return properties
