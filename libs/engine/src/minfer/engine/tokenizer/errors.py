"""What a tokenizer refuses.

TemplateError
├── UnsupportedTokenizerError    the file's kind of tokenizer is not one of ours
├── UnknownPreTokenizerError     byte-level BPE that splits text by rules nobody told us
└── NoTextTokenizerError         the model has ids only
ModelFileError
└── VocabularyError              the vocabulary in the file contradicts itself
"""

from __future__ import annotations

from minfer.core.errors import ModelFileError, TemplateError


class UnsupportedTokenizerError(TemplateError):
    """`tokenizer.ggml.model` names a kind of tokenizer that is not built in."""

    code, http_status = "unsupported-tokenizer", 422


class UnknownPreTokenizerError(TemplateError):
    """`tokenizer.ggml.pre` names rules that are not in the table; a guess would yield wrong ids silently."""

    code, http_status = "unknown-pre-tokenizer", 422


class NoTextTokenizerError(TemplateError):
    """The model has no text tokenizer; it can be fed with ids alone."""

    code = "no-text-tokenizer"


class VocabularyError(ModelFileError):
    """Tokens, types, scores and merges of the file do not fit together."""

    code = "vocabulary"
