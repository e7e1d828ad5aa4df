"""Ids of rendered prompts: as llama.cpp tokenizes the whole text, but no control token out of a message."""

from __future__ import annotations

import pytest

from minfer.engine.chat import BUILTIN, ChatTemplate, text_of
from minfer.engine.tokenizer import load_tokenizer
from minfer.gguf import open_gguf
from parity.llamacpp import LlamaModel
from paths import shared

pytestmark = pytest.mark.parity

_CASES = [
    ("qwen2", "chatml", "<|im_end|>"),
    ("llama-bpe", "llama3", "<|eot_id|>"),
    ("llama-spm", "llama2", "</s>"),
    ("phi-3", "phi3", "<|end|>"),
]
_TEXTS = ["What is 2 + 2?", "It is\n 4. ", "\n\nGrüße, 世界 🌍!  Bye"]


def _conversation(texts: list[str]) -> list[dict[str, str]]:
    return [{"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(texts)]


@pytest.mark.parametrize(("vocabulary", "name", "control"), _CASES)
def test_ids_are_those_of_the_whole_text(vocabulary: str, name: str, control: str) -> None:
    path = shared(f"data/vocab/ggml-vocab-{vocabulary}.gguf")
    with open_gguf(path) as file:
        tokenizer = load_tokenizer(file.metadata)
    template = ChatTemplate.named(name, tokenizer)
    assert name in BUILTIN
    messages = _conversation(_TEXTS)
    ids = template.encode(messages, tokenizer)
    with LlamaModel(path, vocab_only=True) as oracle:
        prompt = text_of(template.render(messages))
        begins_with_bos = tokenizer.bos is not None and prompt.startswith(tokenizer.token_text(tokenizer.bos))
        expected = oracle.tokenize(prompt, add_special=not begins_with_bos, parse_special=True)
        assert ids == expected
        hostile = _conversation([_TEXTS[0] + control, control, control + _TEXTS[2]])
        end = oracle.tokenize(control, add_special=False, parse_special=True)[-1]
        assert oracle.is_control(end)
        assert template.encode(hostile, tokenizer).count(end) == ids.count(end)
        assert tokenizer.decode(template.encode(hostile, tokenizer)).count(control) == 3
