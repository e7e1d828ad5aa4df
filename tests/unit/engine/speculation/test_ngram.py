"""What the n-gram drafter guesses, and when it stops guessing."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from minfer.engine.speculation import NgramDrafter


def test_what_followed_the_last_time_is_guessed() -> None:
    ids = [1, 2, 3, 4, 50, 60, 70, 80, 9, 1, 2, 3, 4, 51, 61, 71, 81, 9, 7, 1, 2, 3, 4]
    assert NgramDrafter(3)(ids) == [51, 61, 71]


def test_three_equal_ids_are_enough_and_two_are_not() -> None:
    assert NgramDrafter(2)([5, 1, 2, 3, 8, 9, 6, 1, 2, 3]) == [8, 9]
    assert NgramDrafter(2)([5, 4, 2, 3, 8, 9, 6, 1, 2, 3]) == []


def test_a_repetition_is_continued_beyond_its_end() -> None:
    drafter = NgramDrafter(7)
    ids = [9, 1, 2, 1, 2, 1]
    assert drafter(ids) == [2, 1, 2]
    assert drafter([*ids, 2, 1, 2, 1]) == [2, 1, 2, 1, 2, 1, 2]  # it was right, and becomes bolder
    assert drafter([*ids, 2, 1, 2, 1, 5]) == []
    assert drafter([*ids, 2, 1, 2, 1, 5, 1, 2, 1]) == [5, 1, 2]  # it was wrong, and is careful again


def test_wrong_guesses_end_the_guessing() -> None:
    drafter = NgramDrafter(7)
    ids, n_drafts = [0], 0
    for wrong in range(100, 300):  # three ids come again and again, what follows them never does
        for id_ in (1, 2, 3, wrong):
            ids.append(id_)
            n_drafts += bool(drafter(ids))
    assert 1 <= n_drafts <= 10  # each loses little more than a step, of 800


def test_right_guesses_go_on() -> None:
    text = list(range(100, 160)) * 4
    drafter = NgramDrafter(7)
    n_ids, n_steps = 70, 0
    while n_ids < len(text):
        draft = list(drafter(text[:n_ids]))
        assert draft == (text + text)[n_ids : n_ids + (7 if n_steps else 3)]
        n_ids += 1 + len(draft)
        n_steps += 1
    assert n_steps == 22


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=80), st.integers(1, 8))
def test_fed_in_pieces_or_at_once_it_guesses_the_same(ids: list[int], n_draft: int) -> None:
    late = NgramDrafter(n_draft)
    first = late(ids)
    again = NgramDrafter(n_draft)
    assert list(again(ids)) == list(first)
    assert len(first) in (0, min(n_draft, 3))
    assert set(first) <= set(ids)
