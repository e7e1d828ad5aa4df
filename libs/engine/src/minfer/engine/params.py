"""GenerationParams: every knob of one generation, once.

The command line, HTTP and profiles read the fields of this class, their bounds and help texts; nothing
else lists them. Adding a knob is adding a field.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, TypedDict, TypeVar, Unpack

from minfer.core.errors import UsageError

LogitBias = tuple[int, float]
"""A token id and what is added to its logit; minus infinity bans it."""

T = TypeVar("T")
Value = int | float | tuple[str, ...] | tuple[LogitBias, ...]

_MAX_LIST = 1024  # entries of a list knob: a request must not make sampling slow by itself
_MAX_TEXT = 1024  # characters of one stop string or sequence breaker
_LARGEST = 2**31 - 1


class ParameterError(UsageError):
    """A generation parameter has a value it cannot have; `name` is the field."""

    code = "bad-parameter"

    def __init__(self, name: str, fact: str, *, hint: str = "") -> None:
        super().__init__(fact, hint=hint)
        self.name = name


@dataclass(frozen=True, slots=True)
class Knob:
    """What is known of a field besides its name, type and default.

    kind: "int", "float", "strings" or "biases". aliases: further names in request bodies. low, high:
    the bounds, included unless low_is_open. switches: flags without a value, and what they set.
    empty_word: the word that a user types for an empty list.
    """

    kind: str
    help: str
    flags: tuple[str, ...]
    aliases: tuple[str, ...] = ()
    low: float = 0.0
    high: float = _LARGEST
    low_is_open: bool = False
    switches: tuple[tuple[str, Value], ...] = ()
    empty_word: str = ""

    @property
    def is_list(self) -> bool:
        """True where the flag may be repeated and the value is a tuple."""
        return self.kind in {"strings", "biases"}

    def bounds(self) -> str:
        """The bounds in words, for help texts: `0 to 1`, `above 0, to 100`; empty for lists."""
        if self.is_list:
            return ""
        low = f"above {self.low:g}," if self.low_is_open else f"{self.low:g}"
        return f"{low} or more" if self.high >= _LARGEST else f"{low} to {self.high:g}"


class _Limits(TypedDict, total=False):
    """The optional fields of Knob."""

    aliases: tuple[str, ...]
    low: float
    high: float
    low_is_open: bool
    switches: tuple[tuple[str, Value], ...]
    empty_word: str


def _knob(default: T, kind: str, text: str, flags: str, **limits: Unpack[_Limits]) -> T:
    """A dataclass field that carries its Knob; `flags` are separated by blanks."""
    return field(default=default, metadata={"knob": Knob(kind, text, tuple(flags.split()), **limits)})


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationParams:
    """Every knob of one generation. Values are not checked until `check` is called.

    Order and formulas of the sampling fields are llama.cpp's (minfer.engine.sampling).
    """

    n_predict: int = _knob(
        512,
        "int",
        "most tokens to generate; -1 = until the context is full",
        "-n --n-predict",
        low=-1,
        aliases=("max_tokens", "max_completion_tokens"),
    )
    temp: float = _knob(
        0.8,
        "float",
        "temperature; 0 takes the likeliest token",
        "--temp --temperature",
        high=100,
        aliases=("temperature",),
        switches=(("--greedy", 0.0),),
    )
    top_k: int = _knob(40, "int", "keep the k likeliest tokens; 0 or -1 = all", "--top-k", low=-1)
    top_p: float = _knob(
        0.95, "float", "keep the likeliest tokens up to this total probability; 1 = all", "--top-p", high=1
    )
    min_p: float = _knob(
        0.0,
        "float",
        "keep tokens at least this likely, relative to the likeliest; 0 = off",
        "--min-p",
        high=1,
    )
    typical_p: float = _knob(
        1.0,
        "float",
        "locally typical sampling up to this total probability; 1 = off",
        "--typical-p --typical",
        high=1,
        aliases=("typ_p",),
    )
    repeat_penalty: float = _knob(
        1.1,
        "float",
        "make tokens of the recent text less likely; 1 = off",
        "--repeat-penalty",
        low_is_open=True,
        high=100,
    )
    repeat_last_n: int = _knob(
        64, "int", "tokens that count as recent for penalties; -1 = all, 0 = off", "--repeat-last-n", low=-1
    )
    frequency_penalty: float = _knob(
        0.0,
        "float",
        "lower a token's logit by this for each time it occurred",
        "--frequency-penalty",
        low=-100,
        high=100,
    )
    presence_penalty: float = _knob(
        0.0,
        "float",
        "lower a token's logit by this once it has occurred",
        "--presence-penalty",
        low=-100,
        high=100,
    )
    dry_multiplier: float = _knob(
        0.0,
        "float",
        "strength of the DRY penalty on repeated sequences; 0 = off",
        "--dry-multiplier",
        high=100,
    )
    dry_base: float = _knob(
        1.75, "float", "how fast the DRY penalty grows with the sequence", "--dry-base", low=1, high=100
    )
    dry_allowed_length: int = _knob(
        2,
        "int",
        "repeated sequences shorter than this are free of the DRY penalty",
        "--dry-allowed-length",
        low=1,
    )
    dry_penalty_last_n: int = _knob(
        64,
        "int",
        "tokens that DRY searches for repetitions; -1 = all, 0 = off",
        "--dry-penalty-last-n",
        low=-1,
    )
    dry_sequence_breakers: tuple[str, ...] = _knob(
        ("\n", ":", '"', "*"),
        "strings",
        "text that ends a sequence for DRY; repeatable; the word none = no breakers",
        "--dry-sequence-breaker",
        empty_word="none",
    )
    xtc_probability: float = _knob(
        0.0, "float", "chance that XTC removes the likeliest tokens; 0 = off", "--xtc-probability", high=1
    )
    xtc_threshold: float = _knob(
        0.1,
        "float",
        "XTC removes all but the last token this likely; above 0.5 = off",
        "--xtc-threshold",
        high=1,
    )
    mirostat: int = _knob(
        0,
        "int",
        "hold the surprise steady instead of truncating: 1 or 2, its versions; 0 = off",
        "--mirostat",
        high=2,
    )
    mirostat_tau: float = _knob(
        5.0, "float", "surprise that mirostat aims at, in bits", "--mirostat-ent --mirostat-tau", high=100
    )
    mirostat_eta: float = _knob(
        0.1, "float", "how fast mirostat corrects itself", "--mirostat-lr --mirostat-eta", high=1
    )
    logit_bias: tuple[LogitBias, ...] = _knob(
        (),
        "biases",
        "add to a token's logit: 15043+1 or 15043-0.5; 15043-inf bans it; repeatable",
        "--logit-bias",
    )
    seed: int = _knob(
        42,
        "int",
        "the same seed gives the same text; -1 = a new one each time",
        "--seed",
        low=-1,
        high=2**63 - 1,
    )
    n_ctx: int = _knob(
        4096,
        "int",
        "context to reserve, in tokens, raised to what the request needs; 0 = all the model has",
        "--n-ctx",
        aliases=("num_ctx",),
    )
    stop_strings: tuple[str, ...] = _knob(
        (), "strings", "end the answer before this text; repeatable", "--stop", aliases=("stop",)
    )

    def check(self) -> None:
        """Raise ParameterError for the first value that is of the wrong type or out of its bounds."""
        for name, knob in KNOBS.items():
            _CHECKS[knob.kind](name, knob, getattr(self, name))

    def updated(self, values: Mapping[str, object]) -> GenerationParams:
        """A copy with some values replaced, checked. Names are fields or their aliases; None is "not given".

        Integers are taken for floats, integral floats for integers, and a single text for a list of
        one; logit_bias may be an object of id to bias or `false`. Raises ParameterError.
        """
        changed: dict[str, Any] = {}
        for given, value in values.items():
            if value is None:
                continue
            name = field_of(given)
            changed[name] = _normal(name, KNOBS[name], value)
        result = replace(self, **changed)
        result.check()
        return result


KNOBS: Final[Mapping[str, Knob]] = {f.name: f.metadata["knob"] for f in fields(GenerationParams)}
"""Every field of GenerationParams with its Knob, in order."""

_FIELD_OF: Final = {alias: name for name, knob in KNOBS.items() for alias in (name, *knob.aliases)}

_PROFILES: Final[Mapping[str, Mapping[str, Value]]] = {
    "minfer": {},
    # Defaults of llama.cpp's common_params_sampling, read in 2026: the model's own context, random seed.
    "llama.cpp": {"repeat_penalty": 1.0, "min_p": 0.05, "seed": -1, "n_predict": -1, "n_ctx": 0},
    # Ollama's api.DefaultOptions.
    "ollama": {"top_p": 0.9, "seed": -1, "n_predict": -1},
    # The API reference of OpenAI: plain sampling from the whole distribution.
    "openai": {
        "temp": 1.0, "top_p": 1.0, "top_k": 0, "repeat_penalty": 1.0, "seed": -1, "n_predict": -1, "n_ctx": 0,
    },
}  # fmt: skip

PROFILES: Final = tuple(_PROFILES)
"""Names that `profile` knows, the default one first."""


def profile(name: str) -> GenerationParams:
    """All defaults of the named tool. Raises ParameterError with the known names."""
    if name not in _PROFILES:
        raise ParameterError(
            "profile", f"there is no profile {name!r}", hint=f"use one of: {', '.join(PROFILES)}"
        )
    return replace(GenerationParams(), **_PROFILES[name])  # type: ignore[arg-type]


def field_of(name: str) -> str:
    """The field that a name in a request or a `/set` means. Raises ParameterError with the nearest name."""
    known = name.replace("-", "_").lstrip("_")
    if known in _FIELD_OF:
        return _FIELD_OF[known]
    from difflib import get_close_matches

    near = get_close_matches(known, _FIELD_OF, n=1)
    hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(KNOBS)}"
    raise ParameterError(name, f"there is no generation parameter {name!r}", hint=hint)


def check_biases(params: GenerationParams, n_vocab: int) -> None:
    """Raise ParameterError when a bias is for a token that a vocabulary of n_vocab does not have."""
    for token, _ in params.logit_bias:
        if token >= n_vocab:
            raise ParameterError(
                "logit_bias",
                f"logit_bias names token {token}, and the model's tokens are 0 to {n_vocab - 1}",
                hint="`minfer-run tokenize MODEL TEXT` shows the tokens of a text with their ids",
            )


def parse_value(name: str, texts: str | Sequence[str]) -> Value:
    """The value of a field out of the words a user typed; several only for list fields.

    Bounds are left to `check`. Raises ParameterError.
    """
    knob = KNOBS[field_of(name)]
    words = [texts] if isinstance(texts, str) else list(texts)
    if knob.kind == "biases":
        return tuple(_parse_bias(name, word) for word in words)
    if knob.kind == "strings":
        return () if words == [knob.empty_word] else tuple(words)
    try:
        return int(words[-1]) if knob.kind == "int" else float(words[-1])
    except ValueError:
        wanted = "a whole number" if knob.kind == "int" else "a number"
        raise ParameterError(name, f"{name} must be {wanted}, got {words[-1]!r}", hint=knob.help) from None


def with_seed(params: GenerationParams) -> GenerationParams:
    """The same parameters with a seed that can be reported: -1 becomes a fresh 32-bit number."""
    if params.seed != -1:
        return params
    return replace(params, seed=int.from_bytes(os.urandom(4), "little"))


def _parse_bias(name: str, word: str) -> LogitBias:
    at = max(word.find("+", 1), word.find("-", 1))
    try:
        return int(word[:at] if at > 0 else ""), float(word[at:])
    except ValueError:
        raise ParameterError(
            name, f"{name} {word!r} is not a token id followed by + or - and a number", hint=KNOBS[name].help
        ) from None


def _normal(name: str, knob: Knob, value: object) -> object:
    """Bring a decoded JSON value into the field's type where nothing is lost by it."""
    if knob.kind == "strings":
        return (
            (value,) if isinstance(value, str) else tuple(value) if isinstance(value, list | tuple) else value
        )
    if knob.kind == "biases":
        return _normal_biases(name, value)
    if isinstance(value, bool):
        return value  # check refuses it
    if knob.kind == "float" and isinstance(value, int) and abs(value) <= _LARGEST:
        return float(value)
    if knob.kind == "int" and isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _normal_biases(name: str, value: object) -> object:
    pairs: Iterable[Any] = value.items() if isinstance(value, Mapping) else value  # type: ignore[assignment]
    if not isinstance(value, Mapping | list | tuple):
        return value
    try:
        return tuple((int(token), -math.inf if bias is False else float(bias)) for token, bias in pairs)
    except (TypeError, ValueError, OverflowError):
        raise ParameterError(
            name, f"{name} must map token ids to numbers", hint='for example {"15043": -1.5, "11": false}'
        ) from None


def _check_number(name: str, knob: Knob, value: object) -> None:
    is_right_type = type(value) is int if knob.kind == "int" else type(value) in (int, float)
    if not is_right_type or not isinstance(value, int | float):
        wanted = "a whole number" if knob.kind == "int" else "a number"
        raise ParameterError(name, f"{name} must be {wanted}, got {value!r:.80}", hint=knob.help)
    if isinstance(value, float) and not math.isfinite(value):
        raise ParameterError(name, f"{name} must be finite, got {value}", hint=knob.help)
    if value < knob.low or (knob.low_is_open and value == knob.low):
        bound = f"above {knob.low:g}" if knob.low_is_open else f"at least {knob.low:g}"
        raise ParameterError(name, f"{name} must be {bound}, got {value!r:.40}", hint=knob.help)
    if value > knob.high:
        high = int(knob.high) if knob.kind == "int" else f"{knob.high:g}"
        raise ParameterError(name, f"{name} must be at most {high}, got {value!r:.40}", hint=knob.help)


def _check_length(name: str, knob: Knob, value: object) -> tuple[object, ...]:
    if not isinstance(value, tuple):
        raise ParameterError(name, f"{name} must be a list, got {value!r:.80}", hint=knob.help)
    if len(value) > _MAX_LIST:
        raise ParameterError(name, f"{name} must have at most {_MAX_LIST} entries, got {len(value)}")
    return value


def _check_strings(name: str, knob: Knob, value: object) -> None:
    for text in _check_length(name, knob, value):
        if not isinstance(text, str) or not text:
            raise ParameterError(
                name, f"{name} must hold texts that are not empty, got {text!r:.80}", hint=knob.help
            )
        if len(text) > _MAX_TEXT:
            raise ParameterError(
                name, f"{name} must hold texts of at most {_MAX_TEXT} characters, got {len(text)}"
            )


def _check_biases(name: str, knob: Knob, value: object) -> None:
    for entry in _check_length(name, knob, value):
        match entry:
            case (int(token), float(bias) | int(bias)) if token >= 0 and -math.inf <= bias < math.inf:
                continue
        raise ParameterError(
            name,
            f"{name} must pair token ids from 0 with finite numbers or -inf, got {entry!r:.80}",
            hint=knob.help,
        )


_CHECKS: Final = {
    "int": _check_number,
    "float": _check_number,
    "strings": _check_strings,
    "biases": _check_biases,
}
