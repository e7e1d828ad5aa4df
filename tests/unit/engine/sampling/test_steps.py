"""Each sampling step on a handful of candidates whose answer a reader can check."""

from __future__ import annotations

import math

import pytest

from minfer.engine.params import GenerationParams
from minfer.engine.sampling import mirostat
from minfer.engine.sampling.adjust import Change, dry, logit_bias, penalties
from minfer.engine.sampling.candidates import Pool
from minfer.engine.sampling.dry import find_breakers, repeated
from minfer.engine.sampling.truncate import min_p, top_k, top_p, typical, xtc
from vocabularies import Words

FOUR = Pool([7, 3, 9, 1], [math.log(p) for p in (0.4, 0.3, 0.2, 0.1)])


def _never(purpose: bytes) -> float:
    raise AssertionError(purpose)


@pytest.mark.parametrize(("k", "kept"), [(1, [7]), (2, [7, 3]), (9, [7, 3, 9, 1])])
def test_top_k(k: int, kept: list[int]) -> None:
    assert top_k(FOUR, GenerationParams(top_k=k), _never).ids == kept


@pytest.mark.parametrize(
    ("p", "kept"), [(0.0, [7]), (0.39, [7]), (0.41, [7, 3]), (0.71, [7, 3, 9]), (0.99, [7, 3, 9, 1])]
)
def test_top_p(p: float, kept: list[int]) -> None:
    assert top_p(FOUR, GenerationParams(top_p=p), _never).ids == kept


@pytest.mark.parametrize(("p", "kept"), [(1.0, [7]), (0.7, [7, 3]), (0.26, [7, 3, 9]), (0.2, [7, 3, 9, 1])])
def test_min_p(p: float, kept: list[int]) -> None:
    assert min_p(FOUR, GenerationParams(min_p=p), _never).ids == kept


@pytest.mark.parametrize(
    # The entropy is 1.28 nats, the surprises 0.92, 1.20, 1.61, 2.30: most typical are 3, 9, 7, 1.
    ("p", "kept"),
    [(0.0, [3]), (0.29, [3]), (0.4, [3, 9]), (0.6, [7, 3, 9]), (0.95, [7, 3, 9, 1])],
)
def test_typical(p: float, kept: list[int]) -> None:
    assert typical(FOUR, GenerationParams(typical_p=p), _never).ids == kept


@pytest.mark.parametrize(
    ("threshold", "kept"),
    [(0.1, [1]), (0.15, [9, 1]), (0.25, [3, 9, 1]), (0.35, [7, 3, 9, 1]), (0.5, [7, 3, 9, 1])],
)
def test_xtc_removes_all_but_the_last_likely_one(threshold: float, kept: list[int]) -> None:
    params = GenerationParams(xtc_probability=0.5, xtc_threshold=threshold - 1e-9)
    assert xtc(FOUR, params, lambda purpose: 0.49).ids == kept
    assert xtc(FOUR, params, lambda purpose: 0.5) == FOUR


def test_penalties() -> None:
    params = GenerationParams(
        repeat_penalty=2.0, repeat_last_n=3, frequency_penalty=0.5, presence_penalty=0.25
    )
    changes = penalties([1, 5, 6, 5], params, {})
    assert changes == {5: Change(2.0, 1.25), 6: Change(2.0, 0.75)}
    assert changes[5].apply(4.0) == 4.0 / 2 - 1.25
    assert changes[6].apply(-4.0) == -4.0 * 2 - 0.75
    assert penalties([1, 5], GenerationParams(repeat_last_n=-1), {}).keys() == {1, 5}


def test_logit_bias_adds_up_and_bans() -> None:
    params = GenerationParams(logit_bias=((3, 1.0), (3, 0.5), (4, -math.inf)))
    changes = logit_bias([], params, {})
    assert changes[3].apply(2.0) == 3.5
    assert changes[4].apply(2.0) == -math.inf


def test_dry_grows_with_the_length_of_the_repetition() -> None:
    params = GenerationParams(dry_multiplier=0.5, dry_base=2.0, dry_allowed_length=2)
    #  1 2 3 occurred before and was followed by 4; 2 3 was also followed by 9
    changes = dry([1, 2, 3, 4, 2, 3, 9, 1, 2, 3], params, {})
    assert changes == {4: Change(1.0, 0.5 * 2.0), 9: Change(1.0, 0.5)}


def test_dry_stops_at_sequence_breakers() -> None:
    window = [1, 2, 3, 4, 1, 2, 3]
    assert repeated(window, 2, {}) == {4: 3}
    assert repeated(window, 2, {1: ((),)}) == {4: 2}
    assert repeated(window, 2, {2: ((),)}) == {}
    assert repeated(window, 2, {4: ((),)}) == {}  # a breaker may be repeated
    assert repeated(window, 2, {1: ((2,),)}) == {}  # 1 2 together are the breaker
    assert repeated(window, 2, {1: ((9,),)}) == {4: 3}


def test_breakers_are_found_inside_and_across_tokens() -> None:
    words = Words(["a", ":", "x:y", "-", ">", "->", " -", "b"])
    assert find_breakers([":", "->"], words) == {1: [()], 2: [()], 5: [()], 3: [(4,)], 6: [(4,)]}
    assert find_breakers(["->", "-"], words) == {5: [(), ()], 3: [(4,), ()], 6: [(4,), ()]}
    assert find_breakers(["aa"], Words(["aa", "aaba", "a", "b"])) == {0: [()], 1: [()], 2: [(2,)]}


def test_mirostat_2_cuts_by_surprise() -> None:
    # Surprises in bits: 1.32, 1.74, 2.32, 3.32.
    assert mirostat.version_2(FOUR, 1.0, 2.0, 100).ids == [7, 3]
    assert mirostat.version_2(FOUR, 1.0, 0.5, 100).ids == [7]
    assert mirostat.corrected(10.0, 0.25, 5.0, 0.1) == pytest.approx(10.3)  # 2 bits, 3 below the target


def test_mirostat_1_follows_zipf() -> None:
    """Weights of 1/rank are Zipf's law with exponent 1, where k = 2**mu / log(n_vocab)."""
    pool = Pool(list(range(1000)), [-math.log(rank) for rank in range(1, 1001)])
    n_kept = len(mirostat.version_1(pool, 1.0, 9.0, 1000).ids)
    assert n_kept == int(2**9 / math.log(1000))
    assert mirostat.version_1(FOUR.keep(1), 1.0, 9.0, 1000).ids == [7]
