"""The sampler chain: what it needs of the head, and the draw of one token.

    logit bias → penalties → DRY → top-k → typical → top-p → min-p → XTC → temperature → draw
    logit bias → temperature → mirostat → draw                         (with mirostat on)
    … and with temperature 0 the likeliest candidate in place of temperature and draw

The order and the formulas are llama.cpp's, tests/parity compares them. Everything is computed in float64.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Final

from minfer.engine.backends.step import HeadQuery
from minfer.engine.params import GenerationParams, ParameterError, check_biases
from minfer.engine.sampling import mirostat
from minfer.engine.sampling.adjust import ADJUSTMENTS, Changes, recent
from minfer.engine.sampling.candidates import BrokenLogitsError, Candidates, Pool
from minfer.engine.sampling.counter import uniform
from minfer.engine.sampling.dry import Vocabulary, find_breakers
from minfer.engine.sampling.full_row import pool_of_row
from minfer.engine.sampling.truncate import STEPS, Uniform

_MOST_LISTED: Final = 1024
"""Candidates beyond which asking for the full vocabulary is cheaper."""


@dataclass(frozen=True, slots=True)
class Stage:
    """The candidates after one step: ids in order with their probabilities at that point."""

    name: str
    ids: tuple[int, ...]
    probabilities: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Draw:
    """A drawn token.

    logprob: of the model itself (no penalty, temperature 1), natural log. probability: among the
    candidates it was drawn from. n_kept: how many those were (listed ones). stages: what each step
    left, if asked for.
    """

    id: int
    logprob: float
    probability: float
    n_kept: int
    stages: tuple[Stage, ...] = ()


class SamplerChain:
    """The sampling of one sequence: parameters, checked, plus the facts of its vocabulary.

    Draws depend on (seed, choice, position), the candidates and the history alone; calling again for
    an earlier position (after `/regen` or a rejected draft) draws the same. Only mirostat carries
    state from position to position; it is kept by position.
    """

    def __init__(self, params: GenerationParams, vocabulary: Vocabulary) -> None:
        """`params.seed` must be resolved (minfer.engine.params.with_seed). Raises ParameterError."""
        params.check()
        if params.seed < 0:
            raise ParameterError("seed", "the seed is still random", hint="resolve it with with_seed first")
        check_biases(params, vocabulary.n_vocab)
        self._params = params
        self._n_vocab = vocabulary.n_vocab
        has_mirostat = params.mirostat != 0 and params.temp > 0
        self._mirostat = mirostat.VERSIONS[params.mirostat] if has_mirostat else None
        self._adjustments = [row for row in ADJUSTMENTS if row.is_on(params)]
        self._steps = [row for row in STEPS if row.is_on(params)]
        if self._mirostat:
            self._adjustments = [row for row in self._adjustments if row.name == "logit bias"]
            self._steps = []
        elif params.temp == 0 and all(row.keeps_best for row in self._steps):
            self._steps = []
        needs_breakers = params.dry_sequence_breakers and any(row.name == "DRY" for row in self._adjustments)
        self._breakers = find_breakers(params.dry_sequence_breakers, vocabulary) if needs_breakers else {}
        self._n_wanted = self._candidates_wanted()
        self._mu_after: dict[tuple[int, int], float] = {}
        self._window: Sequence[int] | None = None
        self._layers: list[Changes] = []

    def query(self, history: Sequence[int], at_least: int = 0) -> HeadQuery:
        """What the head must deliver for the token after `history` (one row), so that the draw is exact.

        `at_least`: candidates that the caller itself wants to see.
        """
        if self._n_wanted == 0:
            return HeadQuery()
        layers = self._layers_for(history)
        # k unchanged candidates are always among the k + n largest if n change; of the changed ones, those
        # that can rise may come from below and are listed.
        n_changed = len(layers[0]) if len(layers) == 1 else len(set().union(*layers))
        top = max(self._n_wanted, at_least) + n_changed
        if top > _MOST_LISTED or top >= self._n_vocab:
            return HeadQuery()
        rising = {
            id_
            for layer, row in zip(layers, self._adjustments, strict=True)
            if not row.only_lowers(self._params)
            for id_ in layer
        }
        return HeadQuery(top=top, listed=(tuple(sorted(rising)),) if rising else ())

    def sample(
        self,
        candidates: Candidates,
        history: Sequence[int],
        position: int,
        choice: int = 0,
        *,
        explain: bool = False,
    ) -> Draw:
        """Draw the token at `position` out of what `query(history)` asked for.

        Raises BrokenLogitsError if the logits are not numbers, ParameterError if every one is banned.
        """
        if not math.isfinite(candidates.log_sum_exp):
            raise BrokenLogitsError(
                f"the model's logits at position {position} are not numbers",
                hint="the file is damaged or its type is not supported right; try another quantization",
            )
        layers = self._layers_for(history)
        stages = self._adjusted_stages(candidates, layers) if explain else []
        pool = _pool(candidates, layers)
        number = partial(uniform, self._params.seed, choice, position)
        for step in self._steps:
            pool = step.run(pool, self._params, number)
            if explain:
                stages.append(_stage(step.name, pool))
        return self._draw(pool, candidates, (choice, position), stages)

    def _candidates_wanted(self) -> int:
        """Unchanged candidates that the first cut can want; 0 = all of the vocabulary."""
        if self._params.temp == 0 and not self._steps:
            return 1
        return max(0, self._params.top_k) if not self._mirostat else 0

    def _layers_for(self, history: Sequence[int]) -> list[Changes]:
        """The changes of each adjusting step; remembered for the second call of a position."""
        if not self._adjustments:
            return []
        n = 0
        for reach in (self._params.repeat_last_n, self._params.dry_penalty_last_n):
            n = -1 if reach == -1 or n == -1 else max(n, reach)
        window = tuple(recent(history, n))
        if window != self._window:
            layers = [row.changes(window, self._params, self._breakers) for row in self._adjustments]
            self._window, self._layers = window, layers
        return self._layers

    def _draw(self, pool: Pool, candidates: Candidates, where: tuple[int, int], stages: list[Stage]) -> Draw:
        params = self._params
        choice, position = where
        if params.temp == 0:
            id_ = pool.ids[0]
            return Draw(id_, candidates.logprob(id_), 1.0, 1, tuple(stages))
        mu = self._mu_after.get((choice, position - 1), 2 * params.mirostat_tau)
        if self._mirostat:
            pool = self._mirostat(pool, params.temp, mu, self._n_vocab)
        index, probability, pool = _pick(pool, params.temp, partial(uniform, params.seed, choice, position))
        if self._mirostat:
            self._mu_after[where] = mirostat.corrected(
                mu, probability, params.mirostat_tau, params.mirostat_eta
            )
        if stages:
            stages.append(_stage("mirostat" if self._mirostat else "temperature", pool, params.temp))
        id_ = pool.ids[index]
        return Draw(id_, candidates.logprob(id_), probability, len(pool.ids), tuple(stages))

    def _adjusted_stages(self, candidates: Candidates, layers: list[Changes]) -> list[Stage]:
        names = ["model", *(row.name for row in self._adjustments)]
        return [_stage(name, _pool(candidates, layers[:n])) for n, name in enumerate(names)]


def _pool(candidates: Candidates, layers: Sequence[Changes]) -> Pool:
    """The candidates in total order after the changes of each layer; banned ones left out."""
    if candidates.row is not None:
        pool = pool_of_row(candidates.row, layers)
    else:
        logits = dict(zip(candidates.ids, candidates.logits, strict=True))
        for layer in layers:
            for id_ in layer.keys() & logits.keys():
                logits[id_] = layer[id_].apply(logits[id_])
        ids = sorted(logits)
        ids.sort(key=logits.__getitem__, reverse=True)  # stable: equal logits stay in the order of ids
        while ids and logits[ids[-1]] == -math.inf:
            ids.pop()
        pool = Pool(ids, [logits[id_] for id_ in ids])
    if not pool.ids:
        raise ParameterError("logit_bias", "logit_bias bans every candidate token")
    return pool


def _pick(pool: Pool, temperature: float, number: Uniform) -> tuple[int, float, Pool]:
    """Index and probability of the drawn candidate, and the pool it is in (listed further if need be)."""
    weights, total = pool.weights(temperature)
    index = bisect_right(list(accumulate(weights)), number(b"draw") * total)
    if index < len(weights):
        return index, weights[index] / total, pool
    if pool.tail is not None:
        return _pick(pool.longer(), temperature, number)
    index = max(index for index, weight in enumerate(weights) if weight > 0)  # rounding: the sum fell short
    return index, weights[index] / total, pool


def _stage(name: str, pool: Pool, temperature: float = 1.0) -> Stage:
    return Stage(name, tuple(pool.ids), tuple(pool.probabilities(temperature)))
