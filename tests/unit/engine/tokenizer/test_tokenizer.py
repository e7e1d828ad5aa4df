"""Special tokens, BOS and EOS, ends of generation, pieces: through load_tokenizer, as a file would."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

import pytest

from metadata_of import Scalar, metadata_of
from minfer.engine.tokenizer import Tokenizer, load_tokenizer
from minfer.engine.tokenizer.byte_bpe import BYTE_ALPHABET
from minfer.engine.tokenizer.errors import (
    NoTextTokenizerError,
    UnknownPreTokenizerError,
    UnsupportedTokenizerError,
    VocabularyError,
)
from minfer.gguf.errors import MetadataKeyError

_NORMAL, _UNKNOWN, _CONTROL, _USER, _UNUSED, _BYTE = 1, 2, 3, 4, 5, 6
Special = tuple[str, int]


def _bpe(*special: Special, **keys: Scalar | Sequence[Scalar]) -> Tokenizer:
    """Bytes are their own ids; special tokens follow from 256 on."""
    texts = [*BYTE_ALPHABET, *(text for text, _ in special)]
    return load_tokenizer(
        metadata_of(
            {
                "tokenizer.ggml.model": "gpt2",
                "tokenizer.ggml.pre": "gpt-2",
                "tokenizer.ggml.tokens": texts,
                "tokenizer.ggml.token_type": [_NORMAL] * 256 + [kind for _, kind in special],
                "tokenizer.ggml.merges": ["a b"],
                "tokenizer.ggml.bos_token_id": 255,
                "tokenizer.ggml.eos_token_id": 254,
                **{f"tokenizer.ggml.{key}": value for key, value in keys.items()},
            }
        )
    )


_SPM_TEXTS = ["<unk>", "<s>", "</s>", "▁", "a", "b", "▁a", "<0x0A>", "odd", "<", "s", ">", "<s"]
_SPM_KINDS = [_UNKNOWN, _CONTROL, _CONTROL, _NORMAL, _NORMAL, _NORMAL, _NORMAL, _BYTE, _UNUSED]


def _spm(**keys: Scalar | Sequence[Scalar]) -> Tokenizer:
    kinds = _SPM_KINDS + [_NORMAL] * (len(_SPM_TEXTS) - len(_SPM_KINDS))
    return load_tokenizer(
        metadata_of(
            {
                "tokenizer.ggml.model": "llama",
                "tokenizer.ggml.tokens": _SPM_TEXTS,
                "tokenizer.ggml.token_type": kinds,
                "tokenizer.ggml.scores": [0.0] * len(_SPM_TEXTS),
                **{f"tokenizer.ggml.{key}": value for key, value in keys.items()},
            }
        )
    )


def _plain(tokenizer: Tokenizer, text: str) -> list[int]:
    return tokenizer.encode(text, add_special=False, parse_special=False)


def _parsed(tokenizer: Tokenizer, text: str) -> list[int]:
    return tokenizer.encode(text, add_special=False, parse_special=True)


def test_control_tokens_are_parsed_on_request_only() -> None:
    tokenizer = _bpe(("<|x|>", _CONTROL))
    assert _parsed(tokenizer, "a<|x|>") == [97, 256]
    assert _plain(tokenizer, "a<|x|>") == [97, *b"<|x|>"]


def test_user_defined_tokens_are_always_parsed() -> None:
    tokenizer = _bpe(("<tool>", _USER))
    assert _plain(tokenizer, "a<tool>") == [97, 256]
    assert _parsed(tokenizer, "a<tool>") == [97, 256]


def test_the_longest_special_token_wins_even_to_the_right() -> None:
    tokenizer = _bpe(("<a", _USER), ("a<bc", _USER))
    assert _plain(tokenizer, "<a<bc") == [60, 257]


def test_many_special_tokens_with_one_first_letter() -> None:
    names = [f"<unused{i}>" for i in range(200)]
    tokenizer = _bpe(*((name, _CONTROL) for name in names))
    assert _parsed(tokenizer, "<unused7><unused77> <unused200>")[:3] == [263, 333, 32]
    assert tokenizer.decode(_parsed(tokenizer, "<unused199>b"), special=True) == "<unused199>b"


def test_a_message_cannot_end_its_own_turn() -> None:
    tokenizer = _bpe(("<|im_end|>", _CONTROL))
    pieces = [("hi<|im_", False), ("end|><|im_end|>", True), ("<|im_end|>", False)]
    ids = tokenizer.encode_pieces(pieces, add_special=False)
    assert ids == [*b"hi<|im_end|>", 256, *b"<|im_end|>"]


def test_merges_reach_across_the_seams_of_a_template() -> None:
    tokenizer = _bpe(("ab", _NORMAL))
    assert tokenizer.encode_pieces([("a", True), ("b", False)], add_special=False) == [256]


def test_adjacent_template_pieces_are_one() -> None:
    tokenizer = _bpe(("<|x|>", _CONTROL))
    assert tokenizer.encode_pieces([("<|", True), ("", False), ("x|>", True)], add_special=False) == [256]


def test_bos_and_eos_where_the_file_wants_them() -> None:
    assert _bpe().encode("", add_special=True, parse_special=False) == []
    both = _bpe(add_bos_token=True, add_eos_token=True)
    assert both.encode("a", add_special=True, parse_special=False) == [255, 97, 254]
    assert both.encode("a", add_special=False, parse_special=False) == [97]
    assert both.adds_bos


def test_llama_3_rules_add_bos_without_being_told() -> None:
    assert _bpe(pre="llama-bpe").adds_bos
    assert not _bpe(pre="llama-bpe", add_bos_token=False).adds_bos


def test_sentencepiece_puts_a_space_in_front_and_behind_special_tokens() -> None:
    assert _spm().encode("a", add_special=True, parse_special=False) == [1, 6]
    assert _parsed(_spm(), "a</s>a") == [6, 2, 6]
    assert _spm(add_space_prefix=False).encode("a", add_special=True, parse_special=False) == [1, 4]


def test_merging_never_spells_a_control_token() -> None:
    """The vocabulary has "<s", so merging by spelling alone would reach "<s>"."""
    assert _plain(_spm(), "<s>") == [3, 12, 11]


def test_decode_takes_the_space_away_again() -> None:
    tokenizer = _spm()
    for text in ("a", " a", "", "a b\na"):
        assert tokenizer.decode(_plain(tokenizer, text)) == text
    assert tokenizer.decode([1, 6, 2]) == "a"
    assert tokenizer.decode([1, 6, 2], special=True) == "<s> a</s>"


def test_pieces_by_kind() -> None:
    tokenizer = _spm()
    assert tokenizer.piece(6) == b" a"
    assert tokenizer.piece(7) == b"\n"
    assert tokenizer.piece(1) == b""
    assert tokenizer.piece(1, special=True) == b"<s>"
    assert tokenizer.piece(8) == b""  # unused
    assert _bpe(("<tool>", _USER)).piece(256) == b"<tool>"
    assert _bpe().piece(0xE9) == b"\xe9"


@pytest.mark.parametrize("token", [-1, 256])
def test_an_id_outside_the_vocabulary_is_an_index_error(token: int) -> None:
    with pytest.raises(IndexError):
        _bpe().piece(token)


def test_texts_and_ids() -> None:
    tokenizer = _bpe(("<|x|>", _CONTROL))
    assert tokenizer.n_vocab == 257
    assert tokenizer.token_text(256) == "<|x|>"
    assert tokenizer.id_of("<|x|>") == 256
    assert tokenizer.id_of("nothing") is None
    assert tokenizer.is_control(256)
    assert not tokenizer.is_control(97)


def test_every_end_of_generation_is_found() -> None:
    tokenizer = _bpe(
        ("<|im_end|>", _CONTROL), ("<end_of_turn>", _NORMAL), ("<|eom_id|>", _CONTROL), ("my_end", _CONTROL),
        eot_token_id=259,
    )  # fmt: skip
    assert tokenizer.end_of_generation == {254, 256, 257, 258, 259}
    assert (tokenizer.eos, tokenizer.eot, tokenizer.eom) == (254, 259, 258)
    assert tokenizer.is_control(257)  # by its text, whatever the file says
    assert tokenizer.piece(257) == b""


def test_eot_is_known_by_its_text() -> None:
    assert _bpe(("<|endoftext|>", _CONTROL), ("<|im_end|>", _CONTROL)).eot == 257
    assert _bpe().eot is None


def test_parts_of_an_answer_do_not_end_it() -> None:
    harmony = _bpe(("<|end|>", _CONTROL), ("<|return|>", _CONTROL), ("<|call|>", _CONTROL))
    assert harmony.end_of_generation == {254, 257, 258}
    assert _bpe(("<|end|>", _CONTROL)).end_of_generation == {254, 256}
    gemma4 = _bpe(("</s>", _NORMAL), ("<|tool_response>", _CONTROL))
    assert gemma4.end_of_generation == {254, 257}


def test_other_files_of_a_repository_end_a_completion() -> None:
    tokenizer = _bpe(("<|fim_pad|>", _CONTROL), ("<|repo_name|>", _NORMAL), ("<|fim_prefix|>", _CONTROL))
    assert tokenizer.end_of_generation == {254, 256, 257}


def test_ids_outside_the_vocabulary_count_as_absent() -> None:
    tokenizer = _bpe(bos_token_id=9999, add_bos_token=True)
    assert tokenizer.bos == 11  # llama.cpp's default for this kind of tokenizer
    assert _spm(eos_token_id=-5).eos == 2


def test_phi_3_special_tokens_swallow_white_space() -> None:
    values: dict[str, Scalar | Sequence[Scalar]] = {
        "general.name": "Phi-3 mini",
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": ["<unk>", "<s>", "</s>", "<|end|>", "▁", "a"],
        "tokenizer.ggml.token_type": [_UNKNOWN, _CONTROL, _CONTROL, _CONTROL, _NORMAL, _NORMAL],
        "tokenizer.ggml.scores": [0.0] * 6,
        "tokenizer.ggml.add_space_prefix": False,
    }
    tokenizer = load_tokenizer(metadata_of(values))
    assert _parsed(tokenizer, "a<|end|> \n a<s> a") == [5, 3, 5, 1, 4, 5]


def test_lone_surrogates_count_as_replacement_characters() -> None:
    tokenizer = _bpe()
    assert _plain(tokenizer, "\ud83d\ude00") == list("😀".encode())
    assert _plain(tokenizer, "\ud83d") == list("\N{REPLACEMENT CHARACTER}".encode())
    assert _plain(tokenizer, "\udcff") == list("\N{REPLACEMENT CHARACTER}".encode())


def test_a_model_without_text() -> None:
    tokenizer = load_tokenizer(
        metadata_of({"tokenizer.ggml.model": "test", "tokenizer.ggml.tokens": ["tok_0", "tok_1"]})
    )
    assert not tokenizer.has_text
    assert tokenizer.n_vocab == 2
    assert tokenizer.piece(1) == b"tok_1"
    assert _plain(tokenizer, "") == []
    with pytest.raises(NoTextTokenizerError) as caught:
        _plain(tokenizer, "hello")
    assert "'test'" in caught.value.fact
    assert caught.value.exit_status == 5


def test_a_model_without_tokens_has_as_many_as_its_architecture_says() -> None:
    values: dict[str, Scalar | Sequence[Scalar]] = {"general.architecture": "llama", "llama.vocab_size": 9}
    tokenizer = load_tokenizer(metadata_of(values))
    assert tokenizer.n_vocab == 9
    assert tokenizer.piece(8) == b""
    assert load_tokenizer(metadata_of({"general.name": "no tokenizer"})).n_vocab == 0
    with pytest.raises(VocabularyError, match="2000000000"):
        load_tokenizer(metadata_of({**values, "llama.vocab_size": 2_000_000_000}))


def test_other_kinds_are_refused_by_name() -> None:
    with pytest.raises(UnsupportedTokenizerError, match="'bert'"):
        load_tokenizer(metadata_of({"tokenizer.ggml.model": "bert"}))
    with pytest.raises(UnknownPreTokenizerError, match="'klingon'"):
        _bpe(pre="klingon")


def test_vocabularies_that_contradict_themselves() -> None:
    with pytest.raises(VocabularyError, match="types of 2"):
        _bpe(token_type=[1, 1])
    with pytest.raises(VocabularyError, match="300"):
        _bpe(token_type=[300] * 256)
    with pytest.raises(VocabularyError, match="scores of 1"):
        _spm(scores=[0.0])
    with pytest.raises(MetadataKeyError, match="merges"):
        load_tokenizer(metadata_of({"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.tokens": ["a"]}))


def test_an_empty_token_gets_a_name() -> None:
    tokenizer = load_tokenizer(
        metadata_of({"tokenizer.ggml.model": "test", "tokenizer.ggml.tokens": ["a", ""]})
    )
    assert tokenizer.token_text(1) == "[EMPTY_1]"


def test_loading_imports_neither_numpy_nor_regex() -> None:
    """They cost tens of milliseconds that the first token would wait for."""
    code = "import sys, minfer.engine.tokenizer; print({'numpy', 'regex', 'jinja2'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
