"""`minfer-run perplexity` as users meet it, on tiny models."""

from __future__ import annotations

import json
import re

import pytest

from minfer.engine.testing import TinyModel, tiny_model
from program import Program, minfer_run

__all__ = ["minfer_run"]

TEXT = "It was the best of times, it was the worst of times. " * 4


@pytest.fixture
def tiny(minfer_run: Program) -> Program:
    """A world with two models of one vocabulary and a text of 212 bytes."""
    for name, seed in (("one", 0), ("two", 1)):
        (minfer_run.cache / f"{name}.gguf").write_bytes(tiny_model(TinyModel("llama", seed=seed)))
    (minfer_run.here / "text").write_text(TEXT)
    return minfer_run


def test_a_line_on_stdout_and_progress_on_stderr(tiny: Program) -> None:
    outcome = tiny("perplexity", "one", "-f", "text", "-c", "64")
    assert outcome.status == 0
    assert re.fullmatch(
        r"Perplexity: \d+\.\d{4} ± \d+\.\d{4} \(93 tokens in 3 windows of 64\)\n", outcome.out
    )
    assert "3 of 3: " in outcome.err
    piped = json.loads(tiny("perplexity", "-q", "one", "-c", "64", "--json", stdin=TEXT).out)
    assert f"{piped['perplexity']:.4f}" in outcome.out
    short = json.loads(
        tiny("perplexity", "-q", "one", "-c", "64", "--chunks", "1", "--json", "-f", "text").out
    )
    assert (short["n_windows"], short["n_tokens"]) == (1, 31)


def test_a_model_does_not_differ_from_itself_and_does_from_another(tiny: Program) -> None:
    saved = tiny("perplexity", "-q", "one", "-c", "64", "-f", "text", "--kl-divergence-base", "base")
    assert saved.status == 0
    flags = ("-q", "--kl-divergence-base", "base", "--kl-divergence")
    same = json.loads(tiny("perplexity", "one", *flags, "--json").out)
    assert (same["kl_max"], same["same_top"]) == (pytest.approx(0, abs=1e-6), 1)
    assert f"{same['perplexity']:.4f}" in saved.out
    assert same["base_rest"] == pytest.approx(0, abs=1e-5)  # 259 tokens are all kept
    other = json.loads(tiny("perplexity", "two", *flags, "--json").out)
    assert other["kl_mean"] > 0.01
    assert other["base_perplexity"] == pytest.approx(same["perplexity"])
    table = tiny("perplexity", "two", *flags).out
    assert f"KL divergence, mean         {other['kl_mean']:.6f}" in table


@pytest.mark.parametrize(
    ("flags", "status", "message"),
    [
        (("-f", "absent"), 2, "absent cannot be read"),
        (("-f", "text", "-c", "250"), 2, "has 212 tokens, which do not fill one window of 250"),
        (("-f", "text", "--kl-divergence"), 2, "--kl-divergence needs --kl-divergence-base FILE"),
        (("--kl-divergence", "--kl-divergence-base", "text"), 4, "it does not begin like one"),
    ],
)
def test_mistakes(tiny: Program, flags: tuple[str, ...], status: int, message: str) -> None:
    outcome = tiny("perplexity", "-q", "one", *flags)
    assert (outcome.status, outcome.out) == (status, "")
    assert message in outcome.err
