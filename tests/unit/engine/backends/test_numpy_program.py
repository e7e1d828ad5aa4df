"""The numpy backend over whole graphs: batches, chunks, windows, queries, taps, cancelling."""

from __future__ import annotations

from array import array
from dataclasses import replace

import numpy as np
import pytest

from engine_steps import ALL, Runner, batch, random_ids
from minfer.engine.architectures import BuildOptions, build_graph
from minfer.engine.backends.numpy_backend import NumpyBackend
from minfer.engine.backends.step import Cancelled, CompileOptions, HeadQuery, StepBatch
from minfer.engine.kv_cache import HOLE
from minfer.engine.testing import TINY_MODELS, TinyModel, tiny_model
from minfer.gguf import FORMATS, QuantType, open_bytes

_BACKEND = NumpyBackend()
_CLOSE = 2e-4  # logits spread by about 1; float32 sums in another order


@pytest.fixture(params=TINY_MODELS)
def tiny(request: pytest.FixtureRequest) -> TinyModel:
    return TINY_MODELS[request.param]


def _close(found: object, expected: object) -> None:
    np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=0, atol=_CLOSE)


@pytest.mark.parametrize("chunk", [1, 7, 50])
def test_chunks_do_not_change_logits(tiny: TinyModel, chunk: int) -> None:
    runner = Runner.of(_BACKEND, tiny)
    ids = random_ids(110)
    _close(runner.logits(ids, chunk), runner.logits(ids))


def test_sequences_in_one_batch_do_not_see_each_other(tiny: TinyModel) -> None:
    runner = Runner.of(_BACKEND, tiny)
    texts = [random_ids(n, seed=n) for n in (40, 3, 61)]
    alone = [runner.logits(ids) for ids in texts]
    sequences = [runner.cache.new_sequence() for _ in texts]
    runner.feed([(sequences[1], texts[1][:1])])  # so that they start at different lengths
    parts = [(sequences[0], texts[0]), (sequences[1], texts[1][1:]), (sequences[2], texts[2])]
    together = np.asarray(runner.feed(parts).logits)
    _close(together[:40], alone[0])
    _close(together[40:42], alone[1][1:])
    _close(together[42:], alone[2])


def test_blocks_behind_a_window_are_never_read() -> None:
    runner = Runner.of(_BACKEND, TINY_MODELS["gemma3"])
    ids = random_ids(200)
    expected = runner.logits(ids)
    sequence = runner.cache.new_sequence()
    runner.feed([(sequence, ids[:120])])
    windowed = next(i for i, spec in enumerate(runner.graph.cache_groups) if spec.window)
    assert sequence.tables[windowed][0] == HOLE
    other = runner.cache.new_sequence()
    runner.feed([(other, random_ids(180, seed=9))])  # takes the freed blocks and fills them
    rest = [np.asarray(runner.feed([(sequence, [id_])]).logits)[0] for id_ in ids[120:]]
    _close(rest, expected[120:])


def test_a_fork_goes_its_own_way() -> None:
    runner = Runner.of(_BACKEND, TINY_MODELS["llama"])
    ids = random_ids(60)
    first = runner.cache.new_sequence()
    runner.feed([(first, ids[:20])])
    second = runner.cache.fork(first)
    left = runner.feed([(first, ids[20:40])])
    right = runner.feed([(second, ids[40:60])])
    _close(left.logits, runner.logits(ids[:40])[20:])
    _close(right.logits, runner.logits(ids[:20] + ids[40:])[20:])


def test_an_adopted_prefix_gives_the_same_logits() -> None:
    runner = Runner.of(_BACKEND, TINY_MODELS["gemma3"])
    ids = random_ids(70)
    expected = runner.logits(ids)
    sequence = runner.cache.new_sequence()
    assert runner.cache.adopt(sequence, ids[:-1]) == 64
    _close(runner.feed([(sequence, ids[64:])]).logits, expected[64:])


def test_f16_caches_round_what_they_store(tiny: TinyModel) -> None:
    exact = Runner.of(_BACKEND, tiny).logits(random_ids(40))
    rounded = Runner.of(_BACKEND, tiny, BuildOptions(kv_type="f16"))
    compact = Runner.of(_BACKEND, tiny, BuildOptions(kv_type="f16"), CompileOptions(weights="blockwise"))
    found = rounded.logits(random_ids(40), 9)
    assert 1e-6 < np.abs(found - exact).max() < 0.02
    # A sum in another order can round to the neighbouring half.
    np.testing.assert_allclose(compact.logits(random_ids(40)), found, rtol=0, atol=2e-3)
    assert compact.cache.store.n_bytes * 2 == rounded.cache.store.n_bytes


@pytest.mark.parametrize("quant", FORMATS)
def test_blockwise_weights_give_the_logits_of_resident_ones(quant: QuantType) -> None:
    model = TinyModel("llama", n_layers=1, width=256, head_dim=64, feed_forward=512, quant=quant)
    resident = Runner.of(_BACKEND, model)
    blockwise = Runner.of(_BACKEND, model, options=CompileOptions(weights="blockwise"))
    ids = random_ids(12)
    _close(blockwise.logits(ids), resident.logits(ids))
    assert blockwise.program.n_bytes * 20 < resident.program.n_bytes


def test_bits_do_not_depend_on_the_number_of_threads() -> None:
    model = TinyModel("llama", width=256, head_dim=64, feed_forward=4096)  # large enough to be shared
    ids = random_ids(300)
    logits = []
    for n_threads in (1, 2, 3):
        runner = Runner.of(_BACKEND, model, options=CompileOptions(n_threads=n_threads))
        logits.append(runner.logits(ids, 299))
        np.testing.assert_array_equal(runner.logits(ids, 299), logits[-1])
    np.testing.assert_array_equal(logits[1], logits[0])
    np.testing.assert_array_equal(logits[2], logits[0])


def test_top_and_listed_logits_are_taken_from_the_full_ones() -> None:
    runner = Runner.of(_BACKEND, TINY_MODELS["llama"])
    ids = random_ids(9)
    full = runner.logits(ids).astype(np.float64)
    listed = tuple((i, 2 * i) for i in range(9))
    found = runner.feed([(runner.cache.new_sequence(), ids)], HeadQuery(5, listed))
    assert found.logits is None
    for row, logits in enumerate(full):
        best = sorted(range(len(logits)), key=lambda i: (-logits[i], i))[:5]
        assert list(found.top_ids[row]) == best
        _close(found.top_logits[row], logits[best])
        _close(found.listed_logits[row], logits[list(listed[row])])
        _close(found.max_logit[row], logits.max())
        _close(found.log_sum_exp[row], np.log(np.exp(logits).sum()))


def test_only_the_rows_that_want_logits_get_them() -> None:
    runner = Runner.of(_BACKEND, TINY_MODELS["llama-experts"])
    ids = random_ids(20)
    expected = runner.logits(ids)
    sequence = runner.cache.new_sequence()
    some = runner.feed([(sequence, ids)], logits_of=[3, 19])
    _close(some.logits, expected[[3, 19]])
    none = runner.feed([(sequence, ids)], HeadQuery(3), logits_of=[])
    assert none.logits is None
    assert not none.top_ids
    assert not none.max_logit


def test_rows_can_stand_in_for_ids() -> None:
    model = replace(TINY_MODELS["llama"], n_layers=1)
    file = open_bytes(tiny_model(model))
    runner = Runner.of(_BACKEND, file)
    table = np.frombuffer(file.data("token_embd.weight"), "<f4").reshape(-1, model.width)
    ids = random_ids(10)
    step = batch(ids, 0, [list(range(4))] * len(runner.graph.cache_groups))
    rows = StepBatch(array("i"), step.rope_pos, step.cache_pos, step.sequences, step.logit_rows, table[ids])
    _close(runner.program.run(rows, runner.cache.store, ALL).logits, runner.logits(ids))


def test_ids_outside_the_vocabulary_are_refused() -> None:
    runner = Runner.of(_BACKEND, TINY_MODELS["llama"])
    for bad in (-1, 259):
        with pytest.raises(ValueError, match="259 rows"):
            runner.feed([(runner.cache.new_sequence(), [bad])])


def test_taps_show_values_without_changing_logits() -> None:
    model = TINY_MODELS["gemma3"]
    plain = Runner.of(_BACKEND, model)
    ids = random_ids(40)
    names = (*(node.name for node in plain.graph), "blk.2.attention.probabilities")
    tapped = Runner.of(_BACKEND, model, options=CompileOptions(taps=names))
    sequence = tapped.cache.new_sequence()
    tapped.feed([(sequence, ids[:30])])
    result = tapped.feed([(sequence, ids[30:])])
    np.testing.assert_allclose(np.asarray(result.logits), plain.logits(ids)[30:], rtol=0, atol=_CLOSE)
    for node in tapped.graph:
        if node.name in result.taps and not node.name.endswith("cache_write"):
            assert result.taps[node.name].shape == (10, node.features)
    (probabilities,) = result.taps["blk.2.attention.probabilities"]
    assert probabilities.shape == (model.n_heads, 10, 40)
    _close(probabilities.sum(axis=-1), np.ones((model.n_heads, 10)))
    row, window = 3, model.window  # a query at 33 sees 33 - 23 … 33
    assert not probabilities[:, row, : 33 - window + 1].any()
    assert not probabilities[:, row, 34:].any()
    assert (probabilities[:, row, 33 - window + 1 : 34] > 0).all()


def test_cancelling_stops_between_layers_and_leaves_the_books_alone() -> None:
    runner = Runner.of(_BACKEND, TINY_MODELS["gemma3"])
    ids = random_ids(30)
    sequence = runner.cache.new_sequence()
    asked: list[int] = []

    def after_three_layers() -> bool:
        asked.append(1)
        return len(asked) > 3

    with pytest.raises(Cancelled):
        runner.feed([(sequence, ids)], cancel=after_three_layers)
    assert len(asked) == 4
    assert sequence.length == 0
    _close(runner.feed([(sequence, ids)]).logits, runner.logits(ids))


def test_a_block_can_leave_and_come_back() -> None:
    runner = Runner.of(_BACKEND, TINY_MODELS["gemma3"])
    ids = random_ids(40)
    expected = runner.logits(ids)
    sequence = runner.cache.new_sequence()
    runner.feed([(sequence, ids[:39])])
    store = runner.cache.store
    for group, table in enumerate(sequence.tables):
        saved = store.read_block(group, table[0])
        store.write_block(group, table[0], bytes(len(saved)))
        assert store.read_block(group, table[0]) != saved
        store.write_block(group, table[0], saved)
        with pytest.raises(ValueError, match="another size"):
            store.write_block(group, table[0], saved[:-1])
    _close(runner.feed([(sequence, ids[39:])]).logits, expected[39:])


def test_the_plan_covers_what_is_kept(tiny: TinyModel) -> None:
    file = open_bytes(tiny_model(tiny))
    graph = build_graph(file.metadata, file)
    options = CompileOptions(max_tokens=16, max_logit_rows=4)
    program = _BACKEND.compile(graph, file, options)
    planned = _BACKEND.plan_bytes(graph, file, options)
    assert program.n_bytes <= planned
    cache = program.new_cache((3,) * len(graph.cache_groups))
    assert cache.n_bytes == 3 * sum(_BACKEND.cache_bytes(spec, options) for spec in graph.cache_slots)


def test_a_closed_program_holds_nothing() -> None:
    runner = Runner.of(_BACKEND, TINY_MODELS["llama"])
    assert runner.program.n_bytes > 0
    runner.program.close()
    assert runner.program.n_bytes == 0
