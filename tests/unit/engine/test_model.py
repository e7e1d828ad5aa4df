"""From a path to a model that can run a step."""

from __future__ import annotations

from array import array
from pathlib import Path

import numpy as np
import pytest

from engine_steps import ALL, random_ids
from minfer.engine import model as model_module
from minfer.engine.architectures.errors import UnsupportedArchitectureError
from minfer.engine.backends import UnknownBackendError, choice, choose
from minfer.engine.backends.step import StepBatch
from minfer.engine.kv_cache import KVCache
from minfer.engine.machine import CpuBudget
from minfer.engine.model import LoadOptions, Model, VocabularyMismatchError, load_model, open_model
from minfer.engine.testing import N_VOCAB, TINY_MODELS, TinyModel, tiny_model
from minfer.gguf import open_gguf
from minfer.gguf.encode import Plain
from minfer.gguf.errors import ModelFileMissingError
from minfer.gguf.writer import encoded, tensors_of, write_gguf

_NUMPY = LoadOptions(backend="numpy", n_threads=1)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.gguf"
    path.write_bytes(tiny_model(TINY_MODELS["llama"]))
    return path


def _logits(model: Model, cache: KVCache) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    ids = random_ids(20)
    sequence = cache.new_sequence()
    assert cache.reserve(sequence, 20)
    positions = array("i", range(20))
    step = StepBatch(array("i", ids), positions, positions, (cache.step(sequence, 0, 20),), positions)
    return np.asarray(model.program.run(step, cache.store, ALL).logits)


def test_an_opened_model_knows_its_facts_before_loading(path: Path) -> None:
    with open_model(path, _NUMPY) as opened:
        assert opened.architecture == "llama"
        assert opened.n_ctx_train == 256
        assert opened.tokenizer.n_vocab == N_VOCAB
        assert opened.backend_name == "numpy"
        assert (opened.n_threads, opened.threads_reason) == (1, "as asked")
        plan = opened.plan(128)
        assert plan.fits
        assert plan.weight_bytes > 300_000


def test_a_loaded_model_outlives_its_file(path: Path) -> None:
    for weights in ("resident", "blockwise"):
        options = LoadOptions(backend="numpy", weights=weights)
        model = load_model(path, options)
        path_logits = _logits(model, model.new_cache(64))
        assert path_logits.shape == (20, N_VOCAB)
        assert np.isfinite(path_logits).all()
        model.close()


def test_threads_follow_the_machine_unless_told(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_module, "cpu_budget", lambda: CpuBudget(8, 2.5))
    with open_model(path) as opened:
        assert opened.n_threads == 3
        assert opened.threads_reason == "of 8 CPUs, quota 2.5"


def test_short_memory_leaves_weights_stored(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    big = TinyModel("llama", n_layers=1, width=512, feed_forward=8192)
    path.write_bytes(tiny_model(big))
    with open_model(path, _NUMPY) as opened:
        resident = opened.plan(64)
        monkeypatch.setattr(model_module, "available_memory", lambda: resident.total_bytes - 1)
        smaller = opened.plan(64)
        assert smaller.weight_bytes < resident.weight_bytes
        assert smaller.fits
        assert any("memory is short" in note for note in opened.notices)
        with opened.load() as model:
            assert model.program.n_bytes < resident.weight_bytes // 4


def test_weights_stay_stored_when_the_backend_is_asked_for_so(path: Path) -> None:
    with open_model(path, LoadOptions(backend="numpy-blockwise")) as opened, opened.load() as model:
        assert model.program.n_bytes < opened.file.n_bytes // 10
        assert not model.notices


def test_an_unsupported_architecture_is_refused_at_once(path: Path) -> None:
    with open_gguf(path) as file:
        write_gguf(path, encoded(file.metadata) | {"general.architecture": "mamba"}, tensors_of(file))
    with pytest.raises(UnsupportedArchitectureError, match="mamba"):
        open_model(path)


def test_a_tokenizer_larger_than_the_network_is_refused(path: Path) -> None:
    with open_gguf(path) as file:
        tokens = [*file.metadata.strings("tokenizer.ggml.tokens"), "<extra>"]
        kinds = [*file.metadata.integers("tokenizer.ggml.token_type"), 3]
        pairs: dict[str, Plain] = {"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": kinds}
        write_gguf(path, encoded(file.metadata) | pairs, tensors_of(file))
    with open_model(path) as opened, pytest.raises(VocabularyMismatchError, match="260 tokens"):
        opened.plan(16)


def test_a_missing_file_is_the_readers_to_tell(tmp_path: Path) -> None:
    with pytest.raises(ModelFileMissingError):
        open_model(tmp_path / "absent.gguf")


def test_an_unknown_backend_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnknownBackendError, match="abacus"):
        choose("abacus")
    monkeypatch.setenv("MINFER_KERNELS", "numpy")
    assert choice().reason == "MINFER_KERNELS=numpy"
