"""From a model file's metadata to its tokenizer."""

from __future__ import annotations

from typing import Final

from minfer.engine.tokenizer.byte_bpe import ByteLevelBPE
from minfer.engine.tokenizer.errors import UnsupportedTokenizerError, VocabularyError
from minfer.engine.tokenizer.pretokenizers import pre_tokenizer
from minfer.engine.tokenizer.sentencepiece import SentencePiece
from minfer.engine.tokenizer.string_table import read_string_table
from minfer.engine.tokenizer.tokenizer import IdsOnly, Tokenizer
from minfer.engine.tokenizer.vocabulary import HIDDEN, Spellings, Vocabulary, read_vocabulary
from minfer.gguf import Metadata

_MOST_TOKENS: Final = 1 << 22  # bounds the memory that a lying file can cost
_IDS_ONLY: Final = ("test", "none", "no_vocab")
# What llama.cpp takes where the file names no id.
_BYTE_BPE_ROLES: Final = {"bos": 11, "eos": 11}
_SENTENCEPIECE_ROLES: Final = {"bos": 1, "eos": 2, "unk": 0}


def load_tokenizer(metadata: Metadata) -> Tokenizer:
    """Build the tokenizer that `tokenizer.ggml.*` describes.

    Raises UnsupportedTokenizerError, UnknownPreTokenizerError, VocabularyError, and minfer.gguf's errors
    for keys that are absent or have the wrong type.
    """
    model = metadata.string("tokenizer.ggml.model", "none")
    if model == "gpt2":
        return _byte_level_bpe(metadata)
    if model == "llama":
        return _sentencepiece(metadata)
    if model in _IDS_ONLY:
        return _ids_only(metadata, model)
    raise UnsupportedTokenizerError(
        f"tokenizer.ggml.model is {model!r}; built in are gpt2 (byte-level BPE) and llama (SentencePiece)",
        hint="this model's tokenizer cannot be run here yet; give token ids, or use another model",
    )


def _byte_level_bpe(metadata: Metadata) -> Tokenizer:
    rule = pre_tokenizer(metadata.string("tokenizer.ggml.pre", "default"))
    vocabulary = read_vocabulary(metadata, _BYTE_BPE_ROLES)
    ranks = read_string_table(metadata, "tokenizer.ggml.merges", keeps_first=True)
    return Tokenizer(
        vocabulary,
        ByteLevelBPE(_spellable(vocabulary), ranks, rule),
        adds_bos=metadata.boolean("tokenizer.ggml.add_bos_token", rule.adds_bos),
        adds_eos=metadata.boolean("tokenizer.ggml.add_eos_token", False),
    )


def _sentencepiece(metadata: Metadata) -> Tokenizer:
    vocabulary = read_vocabulary(metadata, _SENTENCEPIECE_ROLES)
    scores = metadata.numbers("tokenizer.ggml.scores")
    if len(scores) < len(vocabulary.spellings):
        raise VocabularyError(
            f"the vocabulary has {len(vocabulary.spellings)} tokens and the scores of {len(scores)}",
            hint="download the file again or convert the model anew",
        )
    rule = SentencePiece(
        _spellable(vocabulary),
        scores,
        adds_space_prefix=metadata.boolean("tokenizer.ggml.add_space_prefix", True),
        unknown=vocabulary.roles.get("unk"),
    )
    return Tokenizer(
        vocabulary,
        rule,
        adds_bos=metadata.boolean("tokenizer.ggml.add_bos_token", True),
        adds_eos=metadata.boolean("tokenizer.ggml.add_eos_token", False),
    )


def _ids_only(metadata: Metadata, model: str) -> Tokenizer:
    has_texts = "tokenizer.ggml.tokens" in metadata
    vocabulary = read_vocabulary(metadata, {}) if has_texts else _nameless(metadata)
    return Tokenizer(
        vocabulary,
        IdsOnly(model),
        adds_bos=metadata.boolean("tokenizer.ggml.add_bos_token", False),
        adds_eos=metadata.boolean("tokenizer.ggml.add_eos_token", False),
    )


def _nameless(metadata: Metadata) -> Vocabulary:
    """As many tokens without text as the architecture says it has."""
    n = metadata.integer(f"{metadata.string('general.architecture', '')}.vocab_size", 0)
    if not 0 <= n <= _MOST_TOKENS:
        raise VocabularyError(
            f"the file claims a vocabulary of {n} tokens; {_MOST_TOKENS} is the most there can be",
            hint="download the file again or convert the model anew",
        )
    return Vocabulary(Spellings.of([""] * n), bytes(n), {}, frozenset(), frozenset())


def _spellable(vocabulary: Vocabulary) -> Spellings:
    """Tokens that text may become. llama.cpp's merges could reach a control token by its spelling; ours
    must not, or a user could type one."""
    return vocabulary.spellings.without(vocabulary.ids_of_kind(HIDDEN))
