"""Opening whole files."""

from __future__ import annotations

from minfer.gguf import QuantType, open_gguf
from minfer.gguf.arrays import read_tensor
from paths import shared


def test_a_small_model_opens() -> None:
    with open_gguf(shared("data/architectures/llama-dense.gguf")) as file:
        assert file.metadata.string("general.architecture") == "llama"
        info = file.tensors["token_embd.weight"]
        assert info.quant is QuantType.F32
        assert info.n_bytes == 4 * info.n_weights == len(file.data(info.name))
        assert read_tensor(file, info.name).shape == info.shape
