"""Tiny models of every architecture, with random weights and a byte tokenizer, built in memory.

    file = open_bytes(tiny_model(TinyModel("qwen3")))

Each token is one byte of text (id = byte), then come END, IM_START and IM_END. The same TinyModel is the
same bytes, whichever machine builds it.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from minfer.gguf import FORMATS, BlockFormat, QuantType
from minfer.gguf.encode import Plain
from minfer.gguf.writer import StoredTensor, write_stream

END, IM_START, IM_END = 256, 257, 258
"""Control tokens: end of text, and ChatML's two."""
N_VOCAB = 259

_PLAIN: Final[dict[QuantType, Callable[[npt.NDArray[np.float32]], bytes]]] = {
    QuantType.F32: lambda numbers: numbers.tobytes(),
    QuantType.F16: lambda numbers: numbers.astype("<f2").tobytes(),
    QuantType.BF16: lambda numbers: (numbers.view("<u4") >> 16).astype("<u2").tobytes(),
}

CHATML: Final = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@dataclass(frozen=True, slots=True)
class TinyModel:
    """What to build. quant: how matrices are stored; block formats need widths of whole blocks.

    n_experts: 0 is dense. window: gemma3's. has_template: whether it carries a ChatML template.
    """

    architecture: str
    n_layers: int = 2
    width: int = 64
    n_heads: int = 4
    n_kv_heads: int = 2
    head_dim: int = 16
    feed_forward: int = 96
    n_experts: int = 0
    n_context: int = 256
    window: int = 24
    quant: QuantType = QuantType.F32
    seed: int = 0
    has_template: bool = True


TINY_MODELS: Final[dict[str, TinyModel]] = {
    "llama": TinyModel("llama"),
    "llama-experts": TinyModel("llama", n_experts=4),
    "qwen2": TinyModel("qwen2"),
    "qwen3": TinyModel("qwen3", head_dim=32),
    "qwen3moe": TinyModel("qwen3moe", n_experts=4),
    "gemma3": TinyModel("gemma3", n_layers=7),
}
"""One model of every kind that can be built."""


def tiny_model(model: TinyModel) -> bytes:
    """The bytes of the model's GGUF file."""
    stream = io.BytesIO()
    write_stream(stream, _metadata(model), _tensors(model))
    return stream.getvalue()


def _metadata(model: TinyModel) -> dict[str, Plain]:
    name = model.architecture
    pairs: dict[str, Plain] = {
        "general.architecture": name,
        "general.name": f"tiny {name}",
        f"{name}.context_length": model.n_context,
        f"{name}.embedding_length": model.width,
        f"{name}.block_count": model.n_layers,
        f"{name}.feed_forward_length": model.feed_forward,
        f"{name}.attention.head_count": model.n_heads,
        f"{name}.attention.head_count_kv": model.n_kv_heads,
        f"{name}.attention.key_length": model.head_dim,
        f"{name}.attention.value_length": model.head_dim,
        f"{name}.attention.layer_norm_rms_epsilon": 1e-5,
        f"{name}.rope.freq_base": 10000.0,
    }
    if model.n_experts:
        pairs[f"{name}.expert_count"] = model.n_experts
        pairs[f"{name}.expert_used_count"] = 2
        pairs[f"{name}.expert_feed_forward_length"] = model.feed_forward
    if name == "gemma3":
        pairs[f"{name}.attention.sliding_window"] = model.window
    return pairs | _vocabulary(model)


def _vocabulary(model: TinyModel) -> dict[str, Plain]:
    pairs: dict[str, Plain] = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": [*_byte_texts(), "<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        "tokenizer.ggml.token_type": [1] * 256 + [3] * 3,
        "tokenizer.ggml.merges": ["Ā ā"],  # bytes 0 and 1, which no text has side by side
        "tokenizer.ggml.bos_token_id": END,
        "tokenizer.ggml.eos_token_id": IM_END,
        "tokenizer.ggml.add_bos_token": False,
    }
    if model.has_template:
        pairs["tokenizer.chat_template"] = CHATML
    return pairs


def _byte_texts() -> list[str]:
    """The letter that byte-level BPE writes for each byte: printable Latin-1 is itself, others follow 255."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = (chr(256 + i) for i in range(256))
    return [chr(byte) if byte in printable else next(others) for byte in range(256)]


def _tensors(model: TinyModel) -> Iterator[StoredTensor]:
    make = _Weights(np.random.default_rng(model.seed), model.quant)
    yield make.matrix("token_embd", model.width, (N_VOCAB, model.width))
    for layer in range(model.n_layers):
        for name, shape in _layer_shapes(model):
            full = f"blk.{layer}.{name}"
            if len(shape) == 1:
                yield make.vector(full, shape[0], bias=name.endswith(".bias"))
            else:
                yield make.matrix(full, shape[-1], shape)
    yield make.vector("output_norm.weight", model.width, bias=False)


def _layer_shapes(model: TinyModel) -> Iterator[tuple[str, tuple[int, ...]]]:
    width, hidden = model.width, model.feed_forward
    n_q, n_kv = model.n_heads * model.head_dim, model.n_kv_heads * model.head_dim
    yield from {
        "attn_norm.weight": (width,),
        "attn_q": (n_q, width),
        "attn_k": (n_kv, width),
        "attn_v": (n_kv, width),
        "attn_output": (width, n_q),
        "ffn_norm.weight": (width,),
    }.items()
    if model.architecture == "qwen2":
        yield from {"attn_q.bias": (n_q,), "attn_k.bias": (n_kv,), "attn_v.bias": (n_kv,)}.items()
    if model.architecture in ("qwen3", "qwen3moe", "gemma3"):
        yield from {"attn_q_norm.weight": (model.head_dim,), "attn_k_norm.weight": (model.head_dim,)}.items()
    if model.architecture == "gemma3":
        yield from {"post_attention_norm.weight": (width,), "post_ffw_norm.weight": (width,)}.items()
    if model.n_experts:
        n = model.n_experts
        yield "ffn_gate_inp", (n, width)
        yield from {"ffn_gate_exps": (n, hidden, width), "ffn_up_exps": (n, hidden, width)}.items()
        yield "ffn_down_exps", (n, width, hidden)
    else:
        yield from {
            "ffn_gate": (hidden, width),
            "ffn_up": (hidden, width),
            "ffn_down": (width, hidden),
        }.items()


class _Weights:
    """Random tensors whose products keep the size of what goes in."""

    def __init__(self, random: np.random.Generator, quant: QuantType) -> None:
        self._random = random
        self._quant = quant

    def vector(self, name: str, n: int, *, bias: bool) -> StoredTensor:
        data = self._random.normal(0.0 if bias else 1.0, 0.1, n).astype("<f4")
        return StoredTensor(name, (n,), QuantType.F32, data.tobytes())

    def matrix(self, tensor: str, n_in: int, shape: tuple[int, ...]) -> StoredTensor:
        name, spread = f"{tensor}.weight", 1.0 / math.sqrt(n_in)
        # Routers stay in F32, as converters leave them.
        quant = QuantType.F32 if tensor.endswith("_inp") else self._quant
        if quant in _PLAIN:
            numbers = self._random.normal(0.0, spread, math.prod(shape)).astype("<f4")
            return StoredTensor(name, shape, quant, _PLAIN[quant](numbers))
        return StoredTensor(name, shape, quant, random_blocks(self._random, quant, math.prod(shape), spread))


def random_blocks(random: np.random.Generator, quant: QuantType, n_weights: int, spread: float) -> bytes:
    """Blocks of a type with random codes, scaled so that the weights spread about that much around zero."""
    form = FORMATS[quant]
    raw = random.bytes(n_weights // form.block_weights * form.block_bytes)
    blocks: npt.NDArray[np.void] = np.frombuffer(raw, form.dtype).copy()
    factors = [item.name for item in form.layout if item.code in ("f2", "f4")]
    alone = {name: _decoded_with(form, blocks, {name: 1.0}) for name in factors}
    scale, *minimum = factors
    chosen = {scale: spread / float(alone[scale].std())}
    if minimum:  # its part of the weights balances the mean of the other's
        chosen[minimum[0]] = -chosen[scale] * float(alone[scale].mean() / alone[minimum[0]].mean())
    for name, factor in chosen.items():
        blocks[name] = random.uniform(0.9, 1.1, blocks[name].shape) * factor
    return blocks.tobytes()


def _decoded_with(
    form: BlockFormat, blocks: npt.NDArray[np.void], factors: dict[str, float]
) -> npt.NDArray[np.float32]:
    """What the codes decode to when the named factors are these and all others zero."""
    trial = blocks.copy()
    for item in form.layout:
        if item.code in ("f2", "f4"):
            trial[item.name] = factors.get(item.name, 0.0)
    return form.decode(trial.tobytes())
