"""Steps that change the logits of single tokens: bias, penalties, DRY.

Each answers which tokens it changes and how. So the chain can ask the head for exactly those, and the
rest of the vocabulary is never touched.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from minfer.engine.params import GenerationParams
from minfer.engine.sampling.dry import Breakers, repeated


class Change(NamedTuple):
    """New logit = (logit / factor, or logit * factor where it is not positive) - offset."""

    factor: float
    offset: float

    def apply(self, logit: float) -> float:
        """The changed logit."""
        return (logit / self.factor if logit > 0 else logit * self.factor) - self.offset


Changes = Mapping[int, Change]


def recent(history: Sequence[int], n: int) -> Sequence[int]:
    """The last n tokens; -1 = all."""
    return history if n == -1 else history[max(0, len(history) - n) :]


def logit_bias(history: Sequence[int], params: GenerationParams, breakers: Breakers) -> Changes:
    """Add a fixed amount to the logits of listed tokens; minus infinity bans one."""
    total: dict[int, float] = {}
    for id_, bias in params.logit_bias:
        total[id_] = total.get(id_, 0.0) + bias
    return {id_: Change(1.0, -bias) for id_, bias in total.items()}


def penalties(history: Sequence[int], params: GenerationParams, breakers: Breakers) -> Changes:
    """Repeat, frequency and presence penalties on the tokens of the recent text.

    The repeat penalty divides positive logits and multiplies the others (Keskar et al. 2019,
    arXiv:1909.05858, with the usual repair for negative logits); the other two are OpenAI's.
    """
    counts = Counter(recent(history, params.repeat_last_n))
    factor, frequency, presence = params.repeat_penalty, params.frequency_penalty, params.presence_penalty
    if frequency == 0:
        return dict.fromkeys(counts, Change(factor, presence))
    return {id_: Change(factor, count * frequency + presence) for id_, count in counts.items()}


_LARGEST_LOG: Final = math.log(3.4028234663852886e38)  # of float32: llama.cpp stops the power there


def dry(history: Sequence[int], params: GenerationParams, breakers: Breakers) -> Changes:
    """DRY: lower the tokens that would continue a sequence which occurred before, the more the longer it is.

    Penalty: multiplier * base ** (length - allowed_length).
    """
    window = recent(history, params.dry_penalty_last_n)
    lengths = repeated(window, params.dry_allowed_length, breakers)
    log_base = math.log(params.dry_base)
    most = int(_LARGEST_LOG / log_base) if params.dry_base > 1.000001 else math.inf
    return {
        id_: Change(
            1.0, params.dry_multiplier * params.dry_base ** min(length - params.dry_allowed_length, most)
        )
        for id_, length in lengths.items()
    }


def _has_penalties(params: GenerationParams) -> bool:
    is_neutral = params.repeat_penalty == 1 and params.frequency_penalty == params.presence_penalty == 0
    return params.repeat_last_n != 0 and not is_neutral


def _penalties_only_lower(params: GenerationParams) -> bool:
    return params.repeat_penalty >= 1 and params.frequency_penalty >= 0 and params.presence_penalty >= 0


@dataclass(frozen=True, slots=True)
class Adjustment:
    """A row of the table of adjusting steps.

    is_on: whether the parameters ask for it. only_lowers: whether with these parameters no logit can
    become larger by it.
    """

    name: str
    changes: Callable[[Sequence[int], GenerationParams, Breakers], Changes]
    is_on: Callable[[GenerationParams], bool]
    only_lowers: Callable[[GenerationParams], bool]


ADJUSTMENTS: Final = (
    Adjustment(
        "logit bias",
        logit_bias,
        lambda params: bool(params.logit_bias),
        lambda params: all(bias <= 0 for _, bias in params.logit_bias),
    ),
    Adjustment("penalties", penalties, _has_penalties, _penalties_only_lower),
    Adjustment(
        "DRY",
        dry,
        lambda params: params.dry_multiplier != 0 and params.dry_penalty_last_n != 0,
        lambda params: True,
    ),
)
"""In llama.cpp's order."""
