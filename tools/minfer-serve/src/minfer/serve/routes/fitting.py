"""Texts so long that no tokenization of them fits: told before minutes go into one."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

from minfer.serve.errors import ContextLengthError

if TYPE_CHECKING:
    from minfer.engine.tokenizer import Tokenizer
    from minfer.serve.state import Service

_SURELY_SHORT: Final = 1 << 16  # bytes that are tokenized in no time


def check_could_fit(service: Service, n_bytes: int) -> None:
    """Raises ContextLengthError for a text that leaves no room even if all its tokens were the longest.

    One thread tokenizes for all clients; a text without spaces takes it seconds for each megabyte.
    """
    if n_bytes > _SURELY_SHORT:
        n_least = -(-n_bytes // _longest_piece(service.model.tokenizer))
        if n_least >= service.n_ctx:
            raise ContextLengthError(n_least, service.n_ctx, is_least=True)


@cache
def _longest_piece(tokenizer: Tokenizer) -> int:
    """Bytes of the longest token, and at least those of the longest character: one may be unknown."""
    return max(4, *(len(tokenizer.piece(id_, special=True)) for id_ in range(tokenizer.n_vocab)))
