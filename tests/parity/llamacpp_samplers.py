"""llama.cpp's sampler objects: each function makes one, `apply_samplers` runs a list of them over logits.

    with contextlib.ExitStack() as stack:
        chain = [stack.enter_context(s) for s in (top_k(40), top_p(0.9), temperature(0.7))]
        kept = apply_samplers(logits, chain).kept          # [(id, logit, p), ...]

A sampler may keep state (penalties, DRY, mirostat, XTC's random numbers): make a new one for each case.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from parity.llamacpp import Candidate, Candidates, LlamaModel, LogitBias, Owner, library


class Kept(NamedTuple):
    """One candidate that a chain kept; p is 0 until a sampler computes probabilities."""

    id: int
    logit: float
    p: float


class Applied(NamedTuple):
    """What a chain left, in the order it left it, and the id selected if a sampler selects one."""

    kept: list[Kept]
    selected: int | None


class Sampler(Owner):
    """One llama_sampler object."""

    def __init__(self, handle: int | None, name: str) -> None:
        super().__init__(handle, "llama_sampler_free", f"the sampler {name}")

    def accept(self, token: int) -> None:
        """Tell the sampler that this token was taken (history of penalties and DRY, state of mirostat)."""
        library().llama_sampler_accept(self.handle, token)


def _make(name: str, *arguments: object) -> Sampler:
    return Sampler(getattr(library(), f"llama_sampler_init_{name}")(*arguments), name)


def top_k(k: int) -> Sampler:
    """Keep the k largest logits; k <= 0 keeps all."""
    return _make("top_k", k)


def top_p(p: float, min_keep: int = 1) -> Sampler:
    """Nucleus sampling."""
    return _make("top_p", p, min_keep)


def min_p(p: float, min_keep: int = 1) -> Sampler:
    """Keep tokens of at least p times the largest probability."""
    return _make("min_p", p, min_keep)


def typical(p: float, min_keep: int = 1) -> Sampler:
    """Locally typical sampling."""
    return _make("typical", p, min_keep)


def temperature(t: float) -> Sampler:
    """Divide logits by t; t <= 0 leaves only the largest above minus infinity."""
    return _make("temp", t)


def dynamic_temperature(t: float, delta: float, exponent: float) -> Sampler:
    """Temperature between t - delta and t + delta by entropy."""
    return _make("temp_ext", t, delta, exponent)


def xtc(p: float, threshold: float, min_keep: int = 1, seed: int = 0) -> Sampler:
    """Exclude top choices; p = 1 always does."""
    return _make("xtc", p, threshold, min_keep, seed)


def top_n_sigma(n: float) -> Sampler:
    """Keep logits within n standard deviations of the largest."""
    return _make("top_n_sigma", n)


def dist(seed: int) -> Sampler:
    """Softmax, then draw one: gives every kept candidate its final p."""
    return _make("dist", seed)


def greedy() -> Sampler:
    """Select the largest logit."""
    return _make("greedy")


def mirostat(n_vocab: int, seed: int, tau: float, eta: float, m: int = 100) -> Sampler:
    """Mirostat 1; selects."""
    return _make("mirostat", n_vocab, seed, tau, eta, m)


def mirostat_v2(seed: int, tau: float, eta: float) -> Sampler:
    """Mirostat 2; selects."""
    return _make("mirostat_v2", seed, tau, eta)


def penalties(
    n_vocab: int, last_n: int, repeat: float = 1.0, frequency: float = 0.0, presence: float = 0.0
) -> Sampler:
    """Repetition, frequency and presence penalties over the last_n accepted tokens."""
    return _make("penalties", n_vocab, last_n, repeat, frequency, presence)


def dry(
    model: LlamaModel,
    multiplier: float,
    base: float,
    allowed_length: int,
    last_n: int,
    breakers: Sequence[str] = ("\n", ":", '"', "*"),
) -> Sampler:
    """DRY over the accepted tokens; the model's vocabulary is needed for the breakers."""
    texts = (ctypes.c_char_p * len(breakers))(*[text.encode() for text in breakers])
    return _make("dry", model.vocab, multiplier, base, allowed_length, last_n, texts, len(breakers))


def logit_bias(n_vocab: int, biases: Mapping[int, float]) -> Sampler:
    """Add to the logits of the ids given."""
    array = (LogitBias * max(1, len(biases)))(*[LogitBias(i, b) for i, b in biases.items()])
    return _make("logit_bias", n_vocab, len(biases), array)


def grammar(model: LlamaModel, text: str, root: str = "root") -> Sampler:
    """A GBNF grammar: forbidden candidates get minus infinity."""
    return _make("grammar", model.vocab, text.encode(), root.encode())


def apply_samplers(
    logits: Sequence[float] | npt.NDArray[np.float32],
    chain: Sequence[Sampler],
    *,
    history: Sequence[int] = (),
) -> Applied:
    """Run the chain over all logits [n_vocab], after every sampler has accepted `history` in order."""
    lib = library()
    for sampler in chain:
        for token in history:
            sampler.accept(token)
    data = (Candidate * len(logits))()
    for i, logit in enumerate(logits):
        data[i].id, data[i].logit = i, float(logit)
    state = Candidates(ctypes.cast(data, ctypes.POINTER(Candidate)), len(logits), -1, False)
    for sampler in chain:
        lib.llama_sampler_apply(sampler.handle, ctypes.byref(state))
    kept = [Kept(c.id, c.logit, c.p) for c in state.data[: state.size]]
    return Applied(kept, kept[state.selected].id if state.selected >= 0 else None)
