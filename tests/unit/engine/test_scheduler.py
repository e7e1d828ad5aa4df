"""Sharing a step: decodes first, then prompts, never beyond the budget."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from minfer.engine.scheduler import share_step


def test_decodes_go_before_a_long_prompt() -> None:
    assert share_step([1000, 1, 1], 16) == [14, 1, 1]


def test_the_first_prompt_and_then_the_shortest_take_what_is_left() -> None:
    assert share_step([10, 20, 5], 16) == [10, 1, 5]


def test_more_decodes_than_budget() -> None:
    assert share_step([1, 1, 1], 2) == [1, 1, 0]


@given(st.lists(st.integers(0, 50), max_size=12), st.integers(1, 64))
def test_never_more_than_pending_nor_budget_and_no_budget_wasted(pending: list[int], budget: int) -> None:
    rows = share_step(pending, budget)
    assert all(0 <= row <= n_tokens for row, n_tokens in zip(rows, pending, strict=True))
    assert sum(rows) == min(budget, sum(pending))


def test_a_limit_for_prompts_leaves_decodes_alone() -> None:
    assert share_step([1000, 1, 1, 1000], 512, 16) == [16, 1, 1, 0]


def test_a_short_prompt_passes_a_long_one_and_the_long_one_still_advances() -> None:
    assert share_step([10_000, 30], 64) == [34, 30]
