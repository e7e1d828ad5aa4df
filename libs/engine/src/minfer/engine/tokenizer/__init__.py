"""Tokenizers of GGUF models: byte-level BPE and SentencePiece, ids equal to llama.cpp's."""

from __future__ import annotations

from minfer.engine.tokenizer.load import load_tokenizer
from minfer.engine.tokenizer.stream import Utf8Stream
from minfer.engine.tokenizer.tokenizer import Tokenizer

__all__ = ["Tokenizer", "Utf8Stream", "load_tokenizer"]
