"""Text to token ids and back.

Special tokens are parted out first, what is between them goes to the model's own rule (byte_bpe.py,
sentencepiece.py). Control tokens are read only out of text that is allowed to hold them, so what a user
types never becomes one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from minfer.engine.tokenizer.errors import NoTextTokenizerError
from minfer.engine.tokenizer.parting import SpecialTokens
from minfer.engine.tokenizer.vocabulary import HIDDEN, Kind, Vocabulary


class TextRule(Protocol):
    """What turns text without special tokens into ids."""

    adds_space_prefix: bool
    """Whether a text at the start, or behind a special token, gets a space in front."""

    def encode(self, text: str) -> list[int]:
        """The ids of a text that is not empty."""

    def piece(self, text: str) -> bytes:
        """The bytes that a normal token of this spelling stands for."""


class Tokenizer:
    """A model's tokenizer. Safe to use from several threads.

    bos, eos, eot, eom, unk, pad: ids, or None. end_of_generation: every id that ends an answer. adds_bos,
    adds_eos: what add_special does.
    """

    def __init__(self, vocabulary: Vocabulary, rule: TextRule, *, adds_bos: bool, adds_eos: bool) -> None:
        self._vocabulary = vocabulary
        self._rule = rule
        self._special: SpecialTokens | None = None
        self._pieces: dict[int, bytes] = {}
        roles = vocabulary.roles
        self.n_vocab = len(vocabulary.spellings)
        self.bos, self.eos = roles.get("bos"), roles.get("eos")
        self.eot, self.eom = roles.get("eot"), roles.get("eom")
        self.unk, self.pad = roles.get("unk"), roles.get("pad")
        self.adds_bos = adds_bos and self.bos is not None
        self.adds_eos = adds_eos and self.eos is not None
        self.end_of_generation = vocabulary.end_of_generation

    @property
    def has_text(self) -> bool:
        """Whether the model can be given text; if not, encode and encode_pieces refuse."""
        return not isinstance(self._rule, IdsOnly)

    def encode(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        """The ids of a text.

        add_special: put BOS in front and EOS behind where the model wants them. parse_special: read
        control tokens out of the text; user-defined tokens are read in any case. Lone surrogates count as
        U+FFFD. Raises NoTextTokenizerError.
        """
        return self.encode_pieces([(text, parse_special)], add_special=add_special)

    def encode_pieces(
        self, pieces: Iterable[tuple[str, bool]], *, add_special: bool, continues: bool = False
    ) -> list[int]:
        """The ids of the joined texts; each comes with whether control tokens may be read out of it.

        continues: the text goes on behind other text, so it gets no space in front.

        This is for a rendered template: its own text may hold control tokens, the messages in it may not,
        and merges reach across their seams as if it were one text.
        """
        if self._special is None:
            self._special = SpecialTokens(self._vocabulary)
        parts = self._special.part([(_without_surrogates(text), parse) for text, parse in pieces])
        ids: list[int] = []
        if add_special and self.adds_bos and self.bos is not None:
            ids.append(self.bos)
        after_special = not continues
        for part in parts:
            if isinstance(part, int):
                ids.append(part)
            else:
                ids += self._rule.encode(
                    " " + part if after_special and self._rule.adds_space_prefix else part
                )
            after_special = isinstance(part, int)
        if add_special and self.adds_eos and self.eos is not None:
            ids.append(self.eos)
        return ids

    def piece(self, token: int, *, special: bool = False) -> bytes:
        """The bytes of a token, which need not be whole characters; control tokens have none unless special.

        Raises IndexError for an id outside 0 to n_vocab - 1.
        """
        if not special and self._vocabulary.kinds[token] & HIDDEN:
            return b""
        found = self._pieces.get(token)
        if found is None:
            found = self._pieces[token] = self._make_piece(token)
        return found

    def _make_piece(self, token: int) -> bytes:
        if not 0 <= token < self.n_vocab:
            raise IndexError(f"token {token} is outside a vocabulary of {self.n_vocab}")
        text, kind = self._vocabulary.spellings[token], self._vocabulary.kinds[token]
        if kind & (HIDDEN | Kind.USER_DEFINED):
            return text.encode()
        if kind & Kind.BYTE:
            return bytes([int(text[3:5], 16)]) if _is_byte_token(text) else text.encode()
        return self._rule.piece(text) if kind & Kind.NORMAL else b""

    def decode(self, ids: Sequence[int], *, special: bool = False) -> str:
        """The text of ids: what encode was given, for text that the vocabulary can spell.

        The space that encode puts in front is taken away again, so the text of a continuation is that of
        its pieces and not of this. Bytes that are not UTF-8 become U+FFFD.
        """
        data = b"".join(self.piece(token, special=special) for token in ids)
        if self._rule.adds_space_prefix and data.startswith(b" "):
            data = data[1:]
        return data.decode("utf-8", "replace")

    def is_control(self, token: int) -> bool:
        """Whether the token is a control token."""
        return bool(self._vocabulary.kinds[token] & Kind.CONTROL)

    def token_text(self, token: int) -> str:
        """The token as the vocabulary spells it."""
        return self._vocabulary.spellings[token]

    def id_of(self, text: str) -> int | None:
        """The id of the token that the vocabulary spells so."""
        return self._vocabulary.spellings.get(text)


class IdsOnly:
    """The rule of a model without a text tokenizer."""

    adds_space_prefix = False

    def __init__(self, model: str) -> None:
        self._model = model

    def encode(self, text: str) -> list[int]:
        """Raises NoTextTokenizerError."""
        raise NoTextTokenizerError(
            f"this model has no text tokenizer (tokenizer.ggml.model is {self._model!r}), so it cannot read "
            f"{text[:20]!r}",
            hint="give token ids instead, or use another model",
        )

    def piece(self, text: str) -> bytes:
        """The spelling itself."""
        return text.encode()


def _is_byte_token(text: str) -> bool:
    return len(text) == 6 and text[:3] == "<0x" and text[5] == ">" and _is_hexadecimal(text[3:5])


def _is_hexadecimal(digits: str) -> bool:
    return all(digit in "0123456789abcdefABCDEF" for digit in digits)


def _without_surrogates(text: str) -> str:
    """Pairs joined, lone ones replaced: JSON and command lines can carry both."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
