"""What the head delivers for one row, and the pool that the sampling steps narrow down.

Everything is in the total order of the engine: logit descending, then id ascending.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from minfer.core.errors import ModelFileError
from minfer.engine.backends.step import HeadQuery, StepResult

Row = Any
"""All logits of a vocabulary: a float32 buffer [n_vocab], as ndarray, memoryview or list."""


class BrokenLogitsError(ModelFileError):
    """The model computed logits that are not numbers."""

    code = "broken-logits"


class Tail(Protocol):
    """The candidates below a pool's last one, in bulk: what remains of a full vocabulary row."""

    def mass(self, maximum: float, temperature: float) -> float:
        """Sum of exp((logit - maximum) / temperature) over the tail."""

    def first(self, n: int) -> Pool:
        """Its first n candidates in total order (all if there are fewer), and the tail behind them."""


class Pool(NamedTuple):
    """Candidates in total order with their current logits, before temperature.

    `tail` stands for all that come after them and were not listed yet; most steps cut above it.
    """

    ids: list[int]
    logits: list[float]
    tail: Tail | None = None

    def keep(self, n: int) -> Pool:
        """The first n candidates; n is at most the number of listed ones."""
        return Pool(self.ids[:n], self.logits[:n])

    def longer(self, n: int = 0) -> Pool:
        """The same pool with at least n candidates listed, as far as there are; 0 = eight times as many."""
        if self.tail is None or 0 < n <= len(self.ids):
            return self
        more = self.tail.first(n - len(self.ids) if n else 7 * len(self.ids))
        return Pool(self.ids + more.ids, self.logits + more.logits, more.tail)

    def weights(self, temperature: float = 1.0) -> tuple[list[float], float]:
        """exp((logit - largest) / temperature) of each listed candidate, and the sum including the tail."""
        largest = self.logits[0]
        exp = math.exp
        if temperature == 1.0:
            weights = [exp(logit - largest) for logit in self.logits]
        else:
            weights = [exp((logit - largest) / temperature) for logit in self.logits]
        total = sum(weights)
        if self.tail is not None:
            total += self.tail.mass(largest, temperature)
        return weights, total

    def probabilities(self, temperature: float = 1.0) -> list[float]:
        """The share of each listed candidate."""
        weights, total = self.weights(temperature)
        return [weight / total for weight in weights]


@dataclass(frozen=True, slots=True)
class Candidates:
    """One row of logits: the largest ones (and any listed ids), or `row` with all of them.

    ids, logits: distinct ids with raw logits, in any order. row: float32 [n_vocab] in place of them.
    log_sum_exp: over the full vocabulary.
    """

    ids: Sequence[int]
    logits: Sequence[float]
    log_sum_exp: float
    row: Row | None = None

    @classmethod
    def of_step(cls, result: StepResult, row: int, listed: Sequence[int] = ()) -> Candidates:
        """Row `row` of a step's result; `listed` are the ids that the step's query listed for it."""
        total = float(result.log_sum_exp[row])
        if result.logits is not None:
            return cls((), (), total, row=_row(result.logits, row))
        ids, logits = _plain(result.top_ids[row]), _plain(result.top_logits[row])
        if listed:
            known = set(ids)
            for id_, logit in zip(listed, _plain(result.listed_logits[row]), strict=True):
                if id_ not in known:
                    ids.append(id_)
                    logits.append(logit)
        return cls(ids, logits, total)

    @classmethod
    def of_row(cls, row: Row, log_sum_exp: float | None = None) -> Candidates:
        """All logits of a vocabulary."""
        if log_sum_exp is None:
            largest = max(row)
            log_sum_exp = largest + math.log(math.fsum(math.exp(logit - largest) for logit in row))
        return cls((), (), float(log_sum_exp), row=row)

    def logit(self, id_: int) -> float:
        """The raw logit of a candidate."""
        return float(self.row[id_] if self.row is not None else self.logits[self.ids.index(id_)])

    def logprob(self, id_: int) -> float:
        """Natural log of the model's own probability of a candidate: no penalty, temperature 1."""
        return self.logit(id_) - self.log_sum_exp


def _row(logits: Any, row: int) -> Row:  # noqa: ANN401 - a matrix of either backend
    """One row of a matrix; memoryviews of two dimensions cannot be sliced."""
    if not isinstance(logits, memoryview):
        return logits[row]
    n_vocab = logits.shape[1] if logits.shape else 0
    return logits.cast("B").cast("f")[row * n_vocab : (row + 1) * n_vocab]


def _plain(values: Sequence[int] | Sequence[float]) -> list[Any]:
    """A list of Python numbers out of an array, a memoryview or a list."""
    return values.tolist() if hasattr(values, "tolist") else list(values)


def combine_queries(queries: Iterable[HeadQuery]) -> HeadQuery:
    """One query that serves several rows, given in the order of the step's logit rows.

    Rows that asked for less get more candidates than they need, which changes no draw.
    """
    queries = list(queries)
    if any(query.top == 0 for query in queries):
        return HeadQuery()
    listed = tuple(query.listed[0] if query.listed else () for query in queries)
    return HeadQuery(top=max(query.top for query in queries), listed=listed if any(listed) else ())
