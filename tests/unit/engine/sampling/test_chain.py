"""The chain as a whole: exact on what it asks for, repeatable, and honest about bad input."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minfer.engine.backends.step import HeadQuery, StepResult
from minfer.engine.params import GenerationParams, ParameterError
from minfer.engine.sampling import BrokenLogitsError, Candidates, SamplerChain, combine_queries
from vocabularies import Words, numbered

PLAIN = GenerationParams(repeat_penalty=1.0)


def _deliver(row: npt.NDArray[np.float32], query: HeadQuery) -> Candidates:
    """What a backend delivers for one row, from its definition."""
    total = float(np.logaddexp.reduce(row.astype(np.float64)))
    if query.top == 0:
        return Candidates.of_step(StepResult(logits=row[None], log_sum_exp=[total]), 0)
    order = np.lexsort((np.arange(len(row)), -row))[: query.top]
    listed = query.listed[0] if query.listed else ()
    result = StepResult(
        top_ids=[order.tolist()],
        top_logits=[row[order].tolist()],
        listed_logits=[row[list(listed)].tolist()] if listed else (),
        log_sum_exp=[total],
    )
    return Candidates.of_step(result, 0, listed)


_COARSE = st.integers(-12, 12).map(lambda n: n / 2)  # many ties

_PARAMS = st.builds(
    GenerationParams,
    temp=st.sampled_from([0.0, 0.7, 1.0]),
    top_k=st.integers(0, 8),
    top_p=st.sampled_from([0.5, 0.9, 1.0]),
    min_p=st.sampled_from([0.0, 0.2]),
    typical_p=st.sampled_from([0.5, 1.0]),
    repeat_penalty=st.sampled_from([0.5, 1.0, 1.3]),
    repeat_last_n=st.sampled_from([-1, 0, 3]),
    frequency_penalty=st.sampled_from([-0.5, 0.0, 0.5]),
    presence_penalty=st.sampled_from([-1.0, 0.0, 1.0]),
    dry_multiplier=st.sampled_from([0.0, 0.8]),
    dry_allowed_length=st.just(1),
    xtc_probability=st.sampled_from([0.0, 0.5]),
    mirostat=st.sampled_from([0, 0, 0, 1, 2]),
    logit_bias=st.lists(
        st.tuples(st.integers(0, 39), st.sampled_from([-math.inf, -2.0, 3.0])), max_size=3
    ).map(tuple),
    seed=st.integers(0, 1000),
)


@settings(max_examples=400, deadline=None)
@given(
    params=_PARAMS,
    row=st.lists(_COARSE, min_size=40, max_size=40),
    history=st.lists(st.integers(0, 39), max_size=8),
)
def test_what_the_query_asks_for_is_enough(
    params: GenerationParams, row: list[float], history: list[int]
) -> None:
    """The draw from the queried candidates equals the draw from the whole vocabulary, bit for bit."""
    logits = np.array(row, dtype=np.float32)
    vocabulary = numbered(40)
    needed = SamplerChain(params, vocabulary)
    draw = needed.sample(_deliver(logits, needed.query(history)), history, len(history))
    whole = SamplerChain(params, vocabulary).sample(_deliver(logits, HeadQuery()), history, len(history))
    more = SamplerChain(params, vocabulary)
    generous = more.sample(_deliver(logits, more.query(history, at_least=12)), history, len(history))
    assert draw == whole == generous


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    params=st.builds(
        GenerationParams,
        top_k=st.sampled_from([0, 700]),
        top_p=st.sampled_from([0.3, 0.9, 1.0]),
        min_p=st.sampled_from([0.0, 0.001, 0.1]),
        typical_p=st.sampled_from([0.6, 1.0]),
        xtc_probability=st.sampled_from([0.0, 1.0]),
        xtc_threshold=st.sampled_from([0.0001, 0.02]),
        mirostat=st.sampled_from([0, 0, 1, 2]),
        mirostat_tau=st.sampled_from([3.0, 6.0]),
        temp=st.sampled_from([0.6, 1.0, 2.0]),
    ),
)
def test_a_bulk_tail_changes_nothing(seed: int, params: GenerationParams) -> None:
    """A row beyond the listed candidates is drawn from as if all of it were listed."""
    random = np.random.default_rng(seed)
    row = random.normal(0, 1 + seed % 3, 2000).astype(np.float32)
    history = [int(id_) for id_ in random.integers(0, 2000, 30)]
    vocabulary = numbered(2000)
    candidates = Candidates.of_row(row)
    listed = replace(candidates, ids=list(range(2000)), logits=row.tolist(), row=None)
    bulk = SamplerChain(params, vocabulary).sample(candidates, history, 30)
    plain = SamplerChain(params, vocabulary).sample(listed, history, 30)
    assert (bulk.id, bulk.logprob) == (plain.id, plain.logprob)
    assert bulk.probability == pytest.approx(plain.probability, rel=1e-6)


def test_queries() -> None:
    vocabulary = numbered(50_000)
    history = [5, 6, 5]

    def ask(**values: Any) -> HeadQuery:
        return SamplerChain(replace(GenerationParams(), **values), vocabulary).query(history)

    assert ask() == HeadQuery(top=42)  # two ids can only fall
    assert ask(repeat_penalty=0.9) == HeadQuery(top=42, listed=((5, 6),))
    assert ask(temp=0.0) == HeadQuery(top=3)
    assert ask(temp=0.0, repeat_penalty=1.0) == HeadQuery(top=1)
    assert ask(logit_bias=((9, 1.0), (8, -1.0))) == HeadQuery(top=44, listed=((8, 9),))
    assert ask(top_k=0) == ask(mirostat=2) == HeadQuery()
    assert ask(temp=0.0, typical_p=0.5) == HeadQuery(top=42)
    assert SamplerChain(PLAIN, numbered(30)).query(history) == HeadQuery()  # smaller than 40: all of it


def test_one_query_for_several_rows() -> None:
    assert combine_queries([HeadQuery(top=3), HeadQuery(top=9, listed=((1,),))]) == HeadQuery(9, ((), (1,)))
    assert combine_queries([HeadQuery(top=3), HeadQuery(top=9)]) == HeadQuery(top=9)
    assert combine_queries([HeadQuery(top=3), HeadQuery()]) == HeadQuery()


def test_draws_depend_on_their_place_alone() -> None:
    row = np.random.default_rng(1).normal(0, 2, 100).astype(np.float32)
    chain = SamplerChain(replace(PLAIN, temp=1.5), numbered(100))
    candidates = Candidates.of_row(row)
    first = [chain.sample(candidates, [], position).id for position in range(50)]
    again = [chain.sample(candidates, [], position).id for position in reversed(range(50))][::-1]
    other = [chain.sample(candidates, [], position, choice=1).id for position in range(50)]
    reseeded = SamplerChain(replace(PLAIN, temp=1.5, seed=43), numbered(100))
    assert first == again
    assert first != other
    assert first != [reseeded.sample(candidates, [], position).id for position in range(50)]


def test_mirostat_remembers_by_position() -> None:
    row = np.random.default_rng(2).normal(0, 2, 1000).astype(np.float32)
    chain = SamplerChain(replace(PLAIN, mirostat=2, mirostat_tau=4.0, mirostat_eta=1.0), numbered(1000))
    candidates = Candidates.of_row(row)
    first = [chain.sample(candidates, [], position) for position in range(20)]
    assert [chain.sample(candidates, [], position) for position in range(20)] == first
    assert len({draw.n_kept for draw in first}) > 1
    mean = sum(-math.log2(draw.probability) for draw in first) / 20
    assert 2.5 < mean < 5.5


def test_frequencies_follow_the_probabilities() -> None:
    row = np.log(np.array([0.5, 0.25, 0.125, 0.125])).astype(np.float32)
    chain = SamplerChain(replace(PLAIN, temp=1.0, top_p=1.0), numbered(4))
    ids = [chain.sample(Candidates.of_row(row), [], position).id for position in range(4000)]
    shares = [ids.count(id_) / 4000 for id_ in range(4)]
    assert shares == pytest.approx([0.5, 0.25, 0.125, 0.125], abs=0.03)


def test_greedy_takes_the_lowest_id_of_equal_logits() -> None:
    row = np.array([1.0, 2.0, 2.0, 0.0], dtype=np.float32)
    draw = SamplerChain(replace(PLAIN, temp=0.0), numbered(4)).sample(Candidates.of_row(row), [], 0)
    assert (draw.id, draw.probability) == (1, 1.0)
    assert draw.logprob == pytest.approx(2 - math.log(math.e + 2 * math.e**2 + 1))


def test_stages_tell_what_each_step_did() -> None:
    row = np.log(np.array([0.4, 0.3, 0.2, 0.1])).astype(np.float32)
    params = replace(PLAIN, temp=0.5, top_k=3, top_p=0.7, logit_bias=((0, -math.inf),))
    chain = SamplerChain(params, numbered(4))
    stages = chain.sample(Candidates.of_row(row), [], 0, explain=True).stages
    assert [(stage.name, stage.ids) for stage in stages] == [
        ("model", (0, 1, 2, 3)),
        ("logit bias", (1, 2, 3)),
        ("top-k", (1, 2, 3)),
        ("top-p", (1, 2)),
        ("temperature", (1, 2)),
    ]
    assert stages[1].probabilities == pytest.approx((1 / 2, 1 / 3, 1 / 6))
    assert stages[-1].probabilities == pytest.approx((9 / 13, 4 / 13))
    assert chain.sample(Candidates.of_row(row), [], 0).stages == ()


def test_breakers_come_from_the_vocabulary() -> None:
    words = Words(["a", "b", "c", ":"])
    row = np.zeros(4, dtype=np.float32)
    row[2] = 0.1
    params = replace(PLAIN, temp=0.0, dry_multiplier=1.0, dry_allowed_length=2)
    repeats = [0, 1, 2, 0, 1]
    assert SamplerChain(params, words).sample(Candidates.of_row(row), repeats, 5).id == 0
    broken = [3, 1, 2, 3, 1]  # the colon ends the sequence, one token is left
    assert SamplerChain(params, words).sample(Candidates.of_row(row), broken, 5).id == 2


def test_bad_input_is_named() -> None:
    with pytest.raises(BrokenLogitsError, match="at position 3 are not numbers"):
        SamplerChain(PLAIN, numbered(2)).sample(Candidates([0], [math.nan], math.nan), [], 3)
    bans = replace(PLAIN, logit_bias=((0, -math.inf), (1, -math.inf)))
    with pytest.raises(ParameterError, match="bans every candidate"):
        SamplerChain(bans, numbered(2)).sample(Candidates.of_row([1.0, 2.0]), [], 0)
    with pytest.raises(ParameterError, match="names token 2, and the model's tokens are 0 to 1"):
        SamplerChain(replace(PLAIN, logit_bias=((2, 1.0),)), numbered(2))
    with pytest.raises(ParameterError, match="still random"):
        SamplerChain(replace(PLAIN, seed=-1), numbered(2))
