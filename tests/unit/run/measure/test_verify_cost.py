"""From timings to what they mean."""

from __future__ import annotations

import json

import pytest

from minfer.run.measure.verify_cost import Phase, VerifyCost, as_markdown, break_even, expected_tokens, report


def _cost(milliseconds: dict[int, float]) -> VerifyCost:
    phases = tuple(Phase(nt, (value,) * 5) for nt, value in milliseconds.items())
    return VerifyCost(512, phases, phases[::-1])


def test_an_affine_cost_is_fitted_and_amortized() -> None:
    facts = report(_cost({1: 10, 3: 14, 5: 18}), "m.gguf", "native", 2)
    assert facts["fit"] == {"fixed_ms": 8.0, "per_token_ms": 2.0}
    assert facts["amortization"] == {"1": 1.0, "3": round(30 / 14, 4), "5": round(50 / 18, 4)}
    assert facts["gate_pass"] is False
    # two drafts: 1 + a + a² = 1.4
    assert facts["break_even_acceptance"]["2"] == pytest.approx((-1 + (1 + 4 * 0.4) ** 0.5) / 2, abs=1e-4)
    assert "8.00 ms + 2.00 ms a token" in as_markdown(facts)


def test_what_was_not_measured_is_null_and_the_json_is_valid() -> None:
    facts = report(_cost({2: 10}), "m.gguf", "native", 2)
    assert facts["fit"] is None
    assert facts["gate_pass"] is None
    assert facts["amortization"] == {"2": None}
    assert json.loads(json.dumps(facts, allow_nan=False)) == facts
    assert "not measured" in as_markdown(facts)


def test_break_even_at_its_ends() -> None:
    assert break_even(2, 3.5) is None
    assert break_even(2, 0.9) == 0
    assert break_even(2, 3.0) == pytest.approx(1)
    assert expected_tokens(3, 0.5) == 1.875
