"""Whatever numbers the metadata hold, a graph is built or a ModelFileError is raised, and soon."""

from __future__ import annotations

import io
import time
from functools import lru_cache

from hypothesis import given, settings
from hypothesis import strategies as st

from minfer.core.errors import ModelFileError
from minfer.engine.architectures import build_graph
from minfer.engine.testing import TINY_MODELS, tiny_model
from minfer.gguf import GGUFFile, open_bytes
from minfer.gguf.encode import Plain
from minfer.gguf.writer import encoded, tensors_of, write_stream

_KEYS = (
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.layer_norm_rms_epsilon",
    "attention.sliding_window",
    "attention.sliding_window_pattern",
    "attention.value_length",
    "block_count",
    "context_length",
    "embedding_length",
    "expert_count",
    "expert_feed_forward_length",
    "expert_used_count",
    "feed_forward_length",
    "rope.dimension_count",
    "rope.freq_base",
    "rope.freq_base_swa",
    "rope.scaling.attn_factor",
    "rope.scaling.factor",
    "rope.scaling.original_context_length",
    "rope.scaling.type",
    "rope.scaling.yarn_beta_fast",
    "rope.scaling.yarn_beta_slow",
)
_VALUES: st.SearchStrategy[Plain] = st.one_of(
    st.sampled_from([0, 1, 2, 3, 7, 64, 2**31 - 1, 2**32 - 1, 2**63 - 1, -1, -(2**31)]),
    st.sampled_from([0.0, 1.0, -1.0, 1e-30, 1e30, 1.5, float("nan"), float("inf"), float("-inf")]),
    st.sampled_from(["", "yarn", "linear", "longrope", "none", "?"]),
    st.booleans(),
    st.lists(st.integers(-3, 9), max_size=8),
)


@lru_cache
def _tiny(name: str) -> GGUFFile:
    return open_bytes(tiny_model(TINY_MODELS[name]))


@settings(max_examples=300, deadline=None)
@given(
    name=st.sampled_from(sorted(TINY_MODELS)),
    changes=st.dictionaries(st.sampled_from(_KEYS), _VALUES, min_size=1, max_size=4),
)
def test_no_metadata_bring_another_error(name: str, changes: dict[str, Plain]) -> None:
    tiny = _tiny(name)
    architecture = tiny.metadata.string("general.architecture")
    pairs = encoded(tiny.metadata) | {f"{architecture}.{key}": value for key, value in changes.items()}
    stream = io.BytesIO()
    write_stream(stream, pairs, tensors_of(tiny))
    file = open_bytes(stream.getvalue())
    start = time.process_time()
    try:
        graph = build_graph(file.metadata, file)
    except ModelFileError:
        pass
    else:
        assert graph.nodes[graph.logits].features == 259
    assert time.process_time() - start < 2
