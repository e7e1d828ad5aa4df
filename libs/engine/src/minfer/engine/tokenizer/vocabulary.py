"""The vocabulary of a model: texts, kinds, and the roles of special tokens, read from GGUF metadata.

Loading is on the way to the first token, so nothing here makes an object for every token: a vocabulary of
262,144 takes a hundredth of a second.
"""

from __future__ import annotations

import re
import sys
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntFlag
from typing import Final

from minfer.engine.tokenizer import special_texts
from minfer.engine.tokenizer.errors import VocabularyError
from minfer.engine.tokenizer.string_table import PlainStringTable, StringTable, read_string_table
from minfer.gguf import Metadata


class Kind(IntFlag):
    """What a token is; a control token may also be something else."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 4
    USER_DEFINED = 8
    UNUSED = 16
    BYTE = 32


HIDDEN: Final = int(Kind.CONTROL | Kind.UNKNOWN)
"""Never parsed out of user text, and never printed unless asked for."""

_SPECIAL: Final = HIDDEN | int(Kind.USER_DEFINED)
# tokenizer.ggml.token_type: 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte.
_KIND_OF_TYPE: Final = bytes([0, Kind.NORMAL, Kind.UNKNOWN, Kind.CONTROL, Kind.USER_DEFINED, Kind.UNUSED,
                              Kind.BYTE]).ljust(256, b"\0")  # fmt: skip
_KEYS: Final = {
    "bos": ("bos_token_id",),
    "eos": ("eos_token_id",),
    "eot": ("eot_token_id",),
    "eom": ("eom_token_id",),
    "unk": ("unknown_token_id",),
    "pad": ("padding_token_id",),
    "fim_pre": ("fim_pre_token_id", "prefix_token_id"),
    "fim_suf": ("fim_suf_token_id", "suffix_token_id"),
    "fim_mid": ("fim_mid_token_id", "middle_token_id"),
    "fim_pad": ("fim_pad_token_id",),
    "fim_rep": ("fim_rep_token_id",),
    "fim_sep": ("fim_sep_token_id",),
}


class Spellings:
    """How tokens are spelled: texts by id, and ids by text (of equal texts the last one's)."""

    def __init__(self, table: StringTable, hidden: frozenset[str] = frozenset()) -> None:
        """hidden: texts that are not found."""
        self._table = table
        self._hidden = hidden

    @classmethod
    def of(cls, texts: Sequence[str]) -> Spellings:
        """The spellings of the ids 0, 1, …"""
        return cls(PlainStringTable([text.encode() for text in texts]))

    def __len__(self) -> int:
        return len(self._table)

    def __getitem__(self, token: int) -> str:
        """The text of a token; one that the file left empty gets a name, as llama.cpp's does."""
        spelled = self._table[token]
        return spelled.decode("utf-8", "replace") if spelled else f"[EMPTY_{token}]"

    def get(self, text: str) -> int | None:
        """The id of the token that is spelled so."""
        return None if text in self._hidden else self._table.get(text)

    def without(self, tokens: Sequence[int]) -> Spellings:
        """The same, but texts of these tokens are not found."""
        return Spellings(self._table, self._hidden | {self[token] for token in tokens})

    def containing(self, part: str, start: int = 0) -> list[str]:
        """The texts that can be found and hold `part` at byte `start` or behind."""
        texts = [self[token] for token in self._table.containing(part.encode(), start)]
        return [text for text in texts if text not in self._hidden]


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """spellings; kinds[id] as bits of Kind; roles by name (bos, eos, eot, eom, unk, pad, fim_…; absent ones
    are missing); right_strips: special tokens that swallow the white space after them."""

    spellings: Spellings
    kinds: bytes
    roles: Mapping[str, int]
    end_of_generation: frozenset[int]
    right_strips: frozenset[int]

    def ids_of_kind(self, kinds: int) -> list[int]:
        """Ascending ids of tokens that are any of `kinds` (bits of Kind)."""
        wanted = bytes(value for value in range(64) if value & kinds)
        return [match.start() for match in re.finditer(b"[" + re.escape(wanted) + b"]", self.kinds)]

    def special_ids(self) -> list[int]:
        """Control, unknown and user-defined tokens: those a text is parted at."""
        return self.ids_of_kind(_SPECIAL)


def read_vocabulary(metadata: Metadata, default_roles: Mapping[str, int]) -> Vocabulary:
    """Read `tokenizer.ggml.*`; default_roles stand where the file does not name one.

    Raises VocabularyError, or minfer.gguf's errors for absent or mistyped keys.
    """
    spellings = Spellings(read_string_table(metadata, "tokenizer.ggml.tokens"))
    kinds = _read_kinds(metadata, len(spellings))
    roles = _read_roles(metadata, len(spellings), default_roles)
    _add_roles_by_text(spellings, roles, kinds)
    ends = _ends_of_generation(spellings, roles, kinds)
    strips = _right_strips(metadata, spellings, kinds)
    return Vocabulary(spellings, bytes(kinds), roles, frozenset(ends), strips)


def _read_kinds(metadata: Metadata, n: int) -> bytearray:
    types = metadata.integers("tokenizer.ggml.token_type", None)
    if types is None:
        return bytearray([Kind.NORMAL]) * n
    if len(types) < n:
        raise VocabularyError(
            f"the vocabulary has {n} tokens and the types of {len(types)}",
            hint="download the file again or convert the model anew",
        )
    assert isinstance(types, array)  # what integers() gives; nothing is made for each of them here
    data, width = types[:n].tobytes(), types.itemsize
    low = 0 if sys.byteorder == "little" else width - 1
    if any(data[place::width].strip(b"\0") for place in range(width) if place != low):
        raise VocabularyError(
            f"a token has a type outside 0 to 255: {max(types, key=abs)}",
            hint="download the file again or convert the model anew",
        )
    return bytearray(data[low::width]).translate(_KIND_OF_TYPE)


def _read_roles(metadata: Metadata, n: int, defaults: Mapping[str, int]) -> dict[str, int]:
    """Roles by key; an id outside the vocabulary counts as not given."""
    roles: dict[str, int] = {}
    for role, keys in _KEYS.items():
        found = [metadata.integer(f"tokenizer.ggml.{key}", -1) for key in keys]
        valid = [i for i in (*reversed(found), defaults.get(role, -1)) if 0 <= i < n]
        if valid:
            roles[role] = valid[0]
    return roles


def _add_roles_by_text(spellings: Spellings, roles: dict[str, int], kinds: bytearray) -> None:
    by_text = {
        "eot": special_texts.END_OF_TURN,
        "eom": (special_texts.END_OF_MESSAGE,),
        **special_texts.INFILL_ROLES,
    }
    for role, texts in by_text.items():
        if role not in roles:
            found = next(iter(_found(spellings, texts).values()), None)
            if found is not None:
                roles[role] = found
                kinds[found] |= Kind.CONTROL


def _found(spellings: Spellings, texts: Iterable[str]) -> dict[str, int]:
    """The ids of those texts that are tokens, in their order."""
    numbered = ((text, spellings.get(text)) for text in texts)
    return {text: token for text, token in numbered if token is not None}


def _ends_of_generation(spellings: Spellings, roles: Mapping[str, int], kinds: bytearray) -> set[int]:
    by_text = _found(spellings, special_texts.END_OF_GENERATION)
    for token in by_text.values():
        kinds[token] |= Kind.CONTROL
    for token in _found(spellings, special_texts.ALWAYS_VISIBLE).values():
        kinds[token] = Kind.USER_DEFINED
    ends = set(by_text.values())
    ends.update(roles[role] for role in ("eos", "eot", "eom", *special_texts.INFILL_ENDS) if role in roles)
    for text, companies in special_texts.NOT_AN_END:
        if by_text.get(text) in ends and all(others & by_text.keys() for others in companies):
            ends.discard(by_text[text])
            kinds[by_text[text]] = Kind.USER_DEFINED if text == "<|end|>" else Kind.NORMAL
    return ends


def _right_strips(metadata: Metadata, spellings: Spellings, kinds: bytearray) -> frozenset[int]:
    """Phi-3's tokenizer.json marks its special tokens as swallowing white space; GGUF has no key for it."""
    name = metadata.string("general.name", "").lower()
    if "phi-3" not in name and "phi3" not in name:
        return frozenset()
    special = {i for i, kind in enumerate(kinds) if kind & _SPECIAL}
    return frozenset(special - set(_found(spellings, ("<unk>", "<s>", "<|endoftext|>")).values()))
