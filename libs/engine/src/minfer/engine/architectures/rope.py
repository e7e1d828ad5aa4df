"""Rotary position embedding: from metadata to one frequency for each rotated pair.

Scalings: none; linear (positions divided by the factor); yarn (fast pairs extrapolate, slow pairs
interpolate, magnitude corrected; Peng et al., arXiv:2309.00071); llama3 (the file's `rope_freqs.weight`
divides the frequencies); longrope (a long and a short set of divisors, chosen once at load).
A factor of zero means no scaling.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Self

from minfer.engine.architectures.errors import HyperparameterError
from minfer.engine.graph.ops import Rope

if TYPE_CHECKING:
    from minfer.engine.graph.builder import GraphBuilder
    from minfer.gguf import Metadata

ScalingKind = Literal["none", "linear", "yarn", "longrope"]
_KINDS: dict[str, ScalingKind] = {"none": "none", "linear": "linear", "yarn": "yarn", "longrope": "longrope"}


@dataclass(frozen=True, slots=True)
class RopeConfig:
    """What the metadata say about rotation. factor: how much further than trained positions reach.

    n_rotated: rotated features of each head. n_original: context length before any extension.
    """

    n_rotated: int
    base: float
    kind: ScalingKind = "none"
    factor: float = 1.0
    n_original: int = 0
    magnitude: float = 1.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0

    @classmethod
    def read(cls, metadata: Metadata, prefix: str, head_dim: int, n_context: int) -> Self:
        """The keys `<prefix>.rope.*`. Raises HyperparameterError for values that cannot rotate."""
        at = f"{prefix}.rope"
        n_rotated = metadata.integer(f"{at}.dimension_count", head_dim)
        if n_rotated % 2 or not 0 < n_rotated <= head_dim:
            raise HyperparameterError(f"{at}.dimension_count", n_rotated, f"even and at most {head_dim}")
        factor = metadata.number(f"{at}.scaling.factor", metadata.number(f"{at}.scale_linear", 0.0))
        kind = metadata.string(f"{at}.scaling.type", "linear")
        if kind not in _KINDS:
            raise HyperparameterError(f"{at}.scaling.type", kind, f"one of {', '.join(_KINDS)}")
        number = _PositiveNumbers(metadata, at)
        return cls(
            n_rotated,
            number.read("freq_base", 10000.0, least=1.0 + 1e-6),
            "none" if factor == 0.0 and kind in ("linear", "yarn") else _KINDS[kind],
            number.read("scaling.factor", factor) if factor else 1.0,
            max(1, metadata.integer(f"{at}.scaling.original_context_length", n_context)),
            number.read("scaling.attn_factor", 1.0),
            number.read("scaling.yarn_beta_fast", 32.0),
            number.read("scaling.yarn_beta_slow", 1.0),
        )

    def frequencies(self, divisors: Sequence[float] | None = None) -> tuple[float, ...]:
        """Radians a position for each pair; `divisors` are the file's own, one for each pair."""
        n_pairs = self.n_rotated // 2
        plain = [self.base ** (-2.0 * i / self.n_rotated) for i in range(n_pairs)]
        if divisors is not None:
            _check_divisors(divisors)
            plain = [frequency / divisor for frequency, divisor in zip(plain, divisors, strict=True)]
        if self.kind in ("linear", "longrope"):
            return tuple(frequency / self.factor for frequency in plain)
        if self.kind == "yarn":
            return tuple(
                frequency * (kept + (1.0 - kept) / self.factor)
                for frequency, kept in zip(plain, self._extrapolated_shares(), strict=True)
            )
        return tuple(plain)

    @property
    def total_magnitude(self) -> float:
        """The factor on cosine and sine."""
        if self.kind != "yarn" or self.factor <= 1.0:
            return self.magnitude
        return self.magnitude * (1.0 + 0.1 * math.log(self.factor))

    def _extrapolated_shares(self) -> list[float]:
        """For each pair the share, 0 to 1, of its trained frequency that YaRN keeps."""

        def pair_with(n_turns: float) -> float:
            """The pair, fractional, that turns so often over the original context."""
            wavelengths = self.n_original / (n_turns * 2.0 * math.pi)
            return self.n_rotated * math.log(wavelengths) / (2.0 * math.log(self.base))

        low = max(0.0, math.floor(pair_with(self.beta_fast)))
        high = min(self.n_rotated - 1.0, math.ceil(pair_with(self.beta_slow)))
        width = max(0.001, high - low)
        return [1.0 - min(1.0, max(0.0, (i - low) / width)) for i in range(self.n_rotated // 2)]


def rotation(
    config: RopeConfig, n_heads: int, head_dim: int, pairing: Literal["halves", "neighbours"],
    divisors: Sequence[float] | None = None,
) -> Rope:  # fmt: skip
    """The Rope operation over n_heads heads."""
    return Rope(n_heads, head_dim, config.frequencies(divisors), pairing, magnitude=config.total_magnitude)


def file_divisors(g: GraphBuilder, config: RopeConfig, n_context: int) -> tuple[float, ...] | None:
    """The divisors the file carries: `rope_freqs`, or longrope's long set beyond the original context.

    n_context: the context length the model is opened with. It decides once; steps never change it.
    """
    n_pairs = config.n_rotated // 2
    if (single := g.constants("rope_freqs.weight", n_pairs)) is not None:
        return single
    chosen = "long" if n_context > config.n_original else "short"
    return g.constants(f"rope_factors_{chosen}.weight", n_pairs)


@dataclass(frozen=True, slots=True)
class _PositiveNumbers:
    """Reads of numbers that must be positive and finite."""

    metadata: Metadata
    at: str

    def read(self, key: str, default: float, least: float = 0.0) -> float:
        value = self.metadata.number(f"{self.at}.{key}", default)
        if not (math.isfinite(value) and value > least):
            raise HyperparameterError(f"{self.at}.{key}", value, f"a number above {least:g}")
        return value


def _check_divisors(divisors: Sequence[float]) -> None:
    for i, divisor in enumerate(divisors):
        if not math.isfinite(divisor) or divisor == 0.0:
            raise HyperparameterError(f"rope divisor {i}", divisor, "finite and not zero")
