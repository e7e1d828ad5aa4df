"""What a generation tells its caller, in order: PromptTokens if asked for, Prefilled, Tokens, Stopped."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from minfer.core.errors import MinferError


class StopReason(StrEnum):
    """Why a generation ended."""

    END_OF_GENERATION = "end"  # the model said so
    STOP_STRING = "stop"
    LENGTH = "length"  # n_predict tokens were made
    CONTEXT = "context"  # the context is full
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Prefilled:
    """The prompt is in the cache. n_reused of its n_prompt tokens were there already."""

    n_prompt: int
    n_reused: int
    seconds: float


@dataclass(frozen=True, slots=True)
class PromptToken:
    """A token of the prompt, for requests that score it: what the model thought of it where it stands.

    logprob: None for the first one, which has nothing before it.
    """

    id: int
    logprob: float | None
    alternatives: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Embedded:
    """The pooled state of a prompt, for requests that ask for it; not normalized. Then comes Stopped."""

    vector: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Token:
    """One token was drawn. `text` is what may be shown now: it can be empty (held back) or more than
    this token's own text.

    logprob: natural log of the token's probability in the full softmax of the raw logits.
    alternatives: (id, logprob) of the most likely tokens, as many as were asked for.
    """

    id: int
    text: str
    logprob: float
    alternatives: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Stopped:
    """The end. `text` is what was held back and belongs to the answer; seconds are of decoding alone."""

    reason: StopReason
    text: str
    n_generated: int
    seconds: float
    stop_string: str = ""
    n_drafted: int = 0
    n_accepted: int = 0


@dataclass(frozen=True, slots=True)
class Failed:
    """The end of this generation alone: its logits or its sampling failed. In place of Stopped."""

    error: MinferError


Event = Prefilled | PromptToken | Embedded | Token | Stopped | Failed
