"""Sharing a step: decodes first, then prompts in order, never beyond the budget."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from minfer.engine.scheduler import share_step


def test_decodes_go_before_a_long_prompt() -> None:
    assert share_step([1000, 1, 1], 16) == [14, 1, 1]


def test_prompts_share_what_is_left_in_their_order() -> None:
    assert share_step([10, 20, 5], 16) == [10, 6, 0]


def test_more_decodes_than_budget() -> None:
    assert share_step([1, 1, 1], 2) == [1, 1, 0]


@given(st.lists(st.integers(0, 50), max_size=12), st.integers(1, 64))
def test_never_more_than_pending_nor_budget_and_no_budget_wasted(pending: list[int], budget: int) -> None:
    rows = share_step(pending, budget)
    assert all(0 <= row <= n_tokens for row, n_tokens in zip(rows, pending, strict=True))
    assert sum(rows) == min(budget, sum(pending))
