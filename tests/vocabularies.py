"""A vocabulary for sampling tests: one token for each of the given texts."""

from __future__ import annotations

from collections.abc import Sequence


class Words:
    """Token i is the i-th text; encoding takes the longest token each time."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = list(texts)

    @property
    def n_vocab(self) -> int:
        return len(self._texts)

    def piece(self, id_: int, /) -> bytes:
        return self._texts[id_].encode()

    def encode(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        assert not add_special
        assert not parse_special
        ids = []
        while text:
            id_ = max(
                (i for i, t in enumerate(self._texts) if text.startswith(t)),
                key=lambda i: len(self._texts[i]),
            )
            ids.append(id_)
            text = text[len(self._texts[id_]) :]
        return ids


def numbered(n: int) -> Words:
    """n tokens without meaning."""
    return Words([f"<{i}>" for i in range(n)])
