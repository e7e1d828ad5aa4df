"""Which ids an answer keeps, and where they go in a rendering."""

from __future__ import annotations

import pytest

from minfer.engine.chat import Segment
from minfer.engine.testing import IM_END, IM_START, TinyModel, tiny_model
from minfer.engine.tokenizer import Tokenizer, load_tokenizer
from minfer.gguf import open_bytes
from minfer.run.conversation.dialogue import Turn
from minfer.run.conversation.splice import spelled, splice


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return load_tokenizer(open_bytes(tiny_model(TinyModel("llama"))).metadata)


@pytest.mark.parametrize(
    ("ids", "text", "n_kept", "tail"),
    [
        (b"abc", "abc", 3, ""),
        (b"abc", "ab", 2, ""),
        ("a🙂".encode(), "a", 1, ""),
        ("語b".encode()[:2], "\ufffd", 0, "\ufffd"),  # an unfinished character is not kept
        (b"a\xffb", "a\ufffdb", 3, ""),
        (b"", "", 0, ""),
    ],
)
def test_the_ids_that_spell_a_text(
    tokenizer: Tokenizer, ids: bytes, text: str, n_kept: int, tail: str
) -> None:
    assert spelled(list(ids), text, tokenizer) == (tuple(ids[:n_kept]), tail)


def _rendered(*parts: str) -> list[Segment]:
    """Texts of the caller, each behind a control token."""
    return [
        segment for part in parts for segment in (Segment("<|im_start|>", True), Segment(part, False)) if part
    ] + [Segment("<|im_end|>", True)]


def test_sampled_ids_stand_for_the_answers_text_alone(tokenizer: Tokenizer) -> None:
    turns = [Turn("user", "same"), Turn("assistant", " same\n", (1, 2)), Turn("user", "same")]
    segments = _rendered("be brief", "same", "same", "same")
    assert splice(segments, "be brief", turns, tokenizer) == [
        *(IM_START, *b"be brief"), *(IM_START, *b"same"), *(IM_START, 1, 2), *(IM_START, *b"same"), IM_END,
    ]  # fmt: skip


def test_a_rewritten_answer_is_text(tokenizer: Tokenizer) -> None:
    turns = [Turn("user", "q"), Turn("assistant", "<think>x</think>a", (1, 2)), Turn("user", "r")]
    assert splice(_rendered("q", "a", "r"), None, turns, tokenizer) == [
        IM_START, *b"q", IM_START, *b"a", IM_START, *b"r", IM_END,
    ]  # fmt: skip


def test_what_no_id_spells_is_encoded_behind_them(tokenizer: Tokenizer) -> None:
    turns = [Turn("user", "q"), Turn("assistant", "ab", (1,), tail="b")]
    assert splice(_rendered("q", "ab"), None, turns, tokenizer) == [
        IM_START, *b"q", IM_START, 1, *b"b", IM_END,
    ]  # fmt: skip
