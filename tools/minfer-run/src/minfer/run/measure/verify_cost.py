"""What one forward over nt tokens at a depth costs, and from which acceptance on drafting pays.

Verifying d drafted tokens is one forward of d + 1 tokens with logits for each. The rows are computed at the
same positions again and again, so depth and shape stay fixed; the second pass goes through the lengths in
reverse order and shows whether the machine drifted meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from minfer.core.units import counted
from minfer.engine.feeding import Feeder
from minfer.run.measure.prompts import synthetic_ids
from minfer.run.measure.statistics import Line, fit_line, percentile

if TYPE_CHECKING:
    from minfer.engine.model import Model

WARM_UPS: Final = 3
GATE: Final = 2.5
"""What three tokens in one forward must be worth for the gate of earlier programs to pass."""


@dataclass(frozen=True, slots=True)
class Phase:
    """The timed forwards over nt tokens, in milliseconds."""

    nt: int
    samples: tuple[float, ...]

    @property
    def median(self) -> float:
        """The middle one."""
        return median(self.samples)

    def as_json(self, *, with_samples: bool) -> dict[str, Any]:
        """n_out is the number of logit rows: each token's."""
        facts: dict[str, Any] = {
            "nt": self.nt,
            "n_out": self.nt,
            "median_ms": round(self.median, 4),
            "p10_ms": round(percentile(self.samples, 0.1), 4),
            "p90_ms": round(percentile(self.samples, 0.9), 4),
        }
        if with_samples:
            facts["samples_ms"] = [round(one, 4) for one in self.samples]
        return facts


@dataclass(frozen=True, slots=True)
class VerifyCost:
    """Both passes over the same lengths."""

    depth: int
    first: tuple[Phase, ...]
    second: tuple[Phase, ...]

    @property
    def costs(self) -> dict[int, float]:
        """Median milliseconds by nt, over the samples of both passes."""
        return {
            one.nt: median(one.samples + other.samples)
            for one, other in zip(self.first, reversed(self.second), strict=True)
        }

    @property
    def line(self) -> Line | None:
        """The fitted cost of a forward: fixed milliseconds, and milliseconds a token."""
        return fit_line([(nt, cost) for nt, cost in self.costs.items()])

    def amortization(self, nt: int) -> float | None:
        """How many single steps' worth of tokens a forward over nt gives, if all are accepted."""
        costs = self.costs
        return nt * costs[1] / costs[nt] if 1 in costs and nt in costs else None


def measure(
    model: Model, depth: int, reps: int, lengths: Sequence[int], say: Callable[[str], None]
) -> VerifyCost:
    """Fill the cache with `depth` tokens and time forwards over each of `lengths` at its end."""
    ids = synthetic_ids(depth, model.tokenizer.n_vocab)
    feeder = Feeder(model, model.new_cache(depth))
    feeder.feed(ids)
    passes: list[tuple[Phase, ...]] = []
    for number, order in enumerate((list(lengths), list(reversed(lengths))), 1):
        phases = []
        for nt in order:
            say(f"pass {number} of 2: {counted(nt, 'token')} at depth {depth}, {reps} times")
            phases.append(Phase(nt, _time(feeder, ids, nt, reps)))
        passes.append(tuple(phases))
    return VerifyCost(depth, *passes)


def _time(feeder: Feeder, ids: Sequence[int], nt: int, reps: int) -> tuple[float, ...]:
    samples = []
    for rep in range(WARM_UPS + reps):
        feeder.truncate(len(ids) - nt)
        began = time.perf_counter()
        feeder.feed(ids[-nt:], nt)
        if rep >= WARM_UPS:
            samples.append((time.perf_counter() - began) * 1000)
    return tuple(samples)


def expected_tokens(n_drafted: int, acceptance: float) -> float:
    """Tokens a verification yields when each drafted one is right with that probability by itself."""
    return sum(acceptance**n for n in range(n_drafted + 1))


def break_even(n_drafted: int, cost_ratio: float) -> float | None:
    """The acceptance at which verifying that many free drafts is as fast as single steps.

    cost_ratio: the forward over n_drafted + 1 tokens against that over one. None: it can never pay.
    """
    if cost_ratio > n_drafted + 1:
        return None
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        if expected_tokens(n_drafted, middle) < cost_ratio:
            low = middle
        else:
            high = middle
    return high if cost_ratio > 1 else 0.0


def report(cost: VerifyCost, model_name: str, backend: str, n_threads: int) -> dict[str, Any]:
    """All of it as one object; what the measured lengths do not tell is null."""
    costs, line = cost.costs, cost.line
    gate = cost.amortization(3)
    return {
        "tool": "minfer-run specverify",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "model": model_name,
        "backend": backend,
        "threads": n_threads,
        "kv_depth": cost.depth,
        "reps": len(cost.first[0].samples),
        "warmups": WARM_UPS,
        "pass1": [one.as_json(with_samples=True) for one in cost.first],
        "pass2_drift_check": [one.as_json(with_samples=False) for one in cost.second],
        "cost_ms": {str(nt): round(value, 4) for nt, value in costs.items()},
        "amortization": {str(nt): _rounded(cost.amortization(nt)) for nt in costs},
        "fit": None if line is None else {
            "fixed_ms": round(line.intercept, 4), "per_token_ms": round(line.slope, 4)
        },
        "break_even_acceptance": {
            str(nt - 1): _rounded(break_even(nt - 1, costs[nt] / costs[1]))
            for nt in costs if nt > 1 and 1 in costs
        },
        "gate": GATE,
        "gate_pass": None if gate is None else gate >= GATE,
    }  # fmt: skip


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def as_markdown(facts: dict[str, Any]) -> str:
    """A heading, a row for each length, and what follows from them."""
    lines = [
        f"## Verifying drafts: {facts['model']}, {facts['backend']}, {facts['threads']} threads, "
        f"depth {facts['kv_depth']}",
        "",
        "| tokens | median ms | p10 ms | p90 ms | worth, in single steps | break-even acceptance |",
        "|---:|---:|---:|---:|---:|---:|",
    ]
    for phase in facts["pass1"]:
        nt = str(phase["nt"])
        worth = facts["amortization"].get(nt)
        even = facts["break_even_acceptance"].get(str(phase["nt"] - 1))
        lines.append(
            f"| {nt} | {facts['cost_ms'][nt]:.2f} | {phase['p10_ms']:.2f} | {phase['p90_ms']:.2f} "
            f"| {_cell(worth)} | {'-' if nt == '1' else 'never' if even is None else _cell(even)} |"
        )
    fit = facts["fit"]
    lines.append("")
    if fit is not None:
        lines.append(f"Cost of a forward: {fit['fixed_ms']:.2f} ms + {fit['per_token_ms']:.2f} ms a token.")
    verdict = {True: "yes", False: "no", None: "not measured"}[facts["gate_pass"]]
    lines.append(f"Three tokens are worth {GATE:g} single steps or more: {verdict}.")
    return "\n".join(lines) + "\n"


def _cell(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
