"""`minfer-run tokenize` and `info` on a tiny model, whose tokens are the bytes of the text."""

from __future__ import annotations

import json

import pytest

from minfer.engine.testing import END, IM_END, TinyModel, tiny_model
from program import Program, minfer_run

__all__ = ["minfer_run"]


@pytest.fixture
def tiny(minfer_run: Program) -> Program:
    """A world with `tiny.gguf` in the cache."""
    (minfer_run.cache / "tiny.gguf").write_bytes(tiny_model(TinyModel("llama")))
    return minfer_run


def test_each_token_is_a_row_with_its_bytes(tiny: Program) -> None:
    outcome = tiny("tokenize", "-q", "tiny", "é\n<|im_end|>", "--show-count")
    assert outcome.status == 0
    assert outcome.out.splitlines() == [
        "195  c3                '\\xc3'",
        "169  a9                '\\xa9'",
        " 10  0a                '\\n'",
        "258  3c7c696d5f656e647c3e  '<|im_end|>'  (control)",
        "4 tokens",
    ]


def test_ids_are_a_list_and_control_tokens_can_be_text(tiny: Program) -> None:
    assert tiny("tokenize", "-q", "tiny", "--ids", "a<|im_end|>").out == f"[97, {IM_END}]\n"
    plain = json.loads(tiny("tokenize", "-q", "tiny", "--ids", "--no-parse-special", "a<|im_end|>").out)
    assert bytes(plain) == b"a<|im_end|>"


def test_json_and_the_ways_a_text_comes_in(tiny: Program) -> None:
    (tiny.here / "text").write_text("hi\n\n")
    from_file = json.loads(tiny("tokenize", "tiny", "--json", "-f", "text").out)
    assert from_file == json.loads(tiny("tokenize", "tiny", "--json", stdin="hi\n\n").out)
    assert from_file["n_tokens"] == 3
    assert from_file["tokens"][0] == {"id": 104, "piece": "h", "bytes": "68", "control": False}


def test_a_doubled_bos_is_warned_of(minfer_run: Program) -> None:
    data = tiny_model(TinyModel("llama"))
    key = b"tokenizer.ggml.add_bos_token\x07\x00\x00\x00"
    assert data.count(key) == 1
    (minfer_run.here / "bos.gguf").write_bytes(data.replace(key + b"\x00", key + b"\x01"))
    outcome = minfer_run("tokenize", "./bos.gguf", "--ids", "<|endoftext|>a")
    assert outcome.out == f"[{END}, {END}, 97]\n"
    assert outcome.err.startswith("Warning: the text begins with two '<|endoftext|>' tokens (id 256)")
    single = minfer_run("tokenize", "./bos.gguf", "--ids", "--no-bos", "<|endoftext|>a")
    assert (single.out, single.err) == (f"[{END}, 97]\n", "")


def test_a_directory_gives_commands_that_can_be_pasted(tiny: Program) -> None:
    (tiny.here / "models").mkdir()
    (tiny.here / "models" / "a.gguf").write_bytes(b"")
    outcome = tiny("tokenize", "./models", "hi")
    assert outcome.status == 4
    assert "  minfer-run tokenize models/a.gguf\n" in outcome.err


def test_info_tells_of_file_memory_tokenizer_and_template(tiny: Program) -> None:
    facts = json.loads(tiny("info", "tiny", "--json", "--n-ctx", "64", MINFER_KERNELS="numpy").out)
    assert facts["file"]["architecture"] == "llama"
    assert facts["backend"]["name"] == "numpy"
    assert facts["backend"]["because"] == "MINFER_KERNELS=numpy"
    assert facts["memory"]["context"] == 64
    # two layers, keys and values of 2 heads of 16; the numpy backend keeps four bytes each
    assert facts["memory"]["cache_bytes"] == 64 * 2 * 2 * 2 * 16 * 4
    assert facts["tokenizer"]["special_tokens"]["eos"] == {"id": IM_END, "text": "<|im_end|>"}
    assert facts["template"]["system_messages"] is True
    assert facts["metadata"]["tokenizer.ggml.tokens"]["n_items"] == 259
    assert {"name": "output_norm.weight", "shape": [64], "type": "F32", "bytes": 256} in facts["tensors"]


def test_info_for_people_has_every_section(tiny: Program) -> None:
    lines = tiny("info", "tiny").out.splitlines()
    headings = [line for line in lines if not line.startswith(" ")]
    assert headings[:5] == ["File:", "Backend:", "Memory:", "Tokenizer:", "Template:"]
    assert any("token_embd.weight" in line and "259 × 64" in line for line in lines)
