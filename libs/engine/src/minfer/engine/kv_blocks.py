"""The blocks of one cache group: who holds them, which may be handed out, and which still hold a prefix."""

from __future__ import annotations

import hashlib
from array import array
from collections import OrderedDict
from collections.abc import Sequence

Digest = bytes
ROOT: Digest = b""
"""The digest before the first block of any sequence."""


def chain(previous: Digest, ids: Sequence[int]) -> Digest:
    """The digest of a full block of token ids after everything before it."""
    return hashlib.blake2b(previous + array("i", ids).tobytes(), digest_size=16).digest()


class BlockPool:
    """Blocks 0 … n-1, each with a count of holders.

    A block that nobody holds but whose content is known stays findable by its digest until it is
    needed for something else; the one given up longest ago goes first.
    """

    def __init__(self, n_blocks: int) -> None:
        self.n_blocks = n_blocks
        self._holders = [0] * n_blocks
        self._blank = list(range(n_blocks - 1, -1, -1))
        self._remembered: OrderedDict[int, None] = OrderedDict()
        self._digest_of: dict[int, Digest] = {}
        self._block_of: dict[Digest, int] = {}

    @property
    def n_free(self) -> int:
        """Blocks that could be allocated now."""
        return len(self._blank) + len(self._remembered)

    def allocate(self) -> int:
        """A block with one holder and undefined content. Raises IndexError when none is free."""
        if self._blank:
            block = self._blank.pop()
        elif self._remembered:
            block, _ = self._remembered.popitem(last=False)
            self.forget(block)
        else:
            raise IndexError("no free block")
        self._holders[block] = 1
        return block

    def share(self, block: int) -> None:
        """One more holder."""
        self._remembered.pop(block, None)
        self._holders[block] += 1

    def release(self, block: int) -> None:
        """One holder less; a block without any can be allocated again."""
        if self._holders[block] < 1:
            raise ValueError(f"block {block} has no holder")
        self._holders[block] -= 1
        if self._holders[block] == 0:
            if block in self._digest_of:
                self._remembered[block] = None
            else:
                self._blank.append(block)

    def is_shared(self, block: int) -> bool:
        """Whether several hold it, so that writing needs a copy."""
        return self._holders[block] > 1

    def remember(self, block: int, digest: Digest) -> None:
        """The block is full and holds what the digest names; the first block of equal ones is kept."""
        if digest not in self._block_of and block not in self._digest_of:
            self._block_of[digest] = block
            self._digest_of[block] = digest

    def forget(self, block: int) -> None:
        """The block's content is about to change."""
        digest = self._digest_of.pop(block, None)
        if digest is not None:
            del self._block_of[digest]

    def known(self) -> list[tuple[Digest, int]]:
        """Digests and their blocks: those nobody holds first, the ones given up longest ago before others."""
        first = [(self._digest_of[block], block) for block in self._remembered]
        return first + [(d, b) for d, b in self._block_of.items() if b not in self._remembered]

    def allocate_blank(self) -> int | None:
        """A block that holds nothing known, with one holder; None when there is none."""
        return self.allocate() if self._blank else None

    def find(self, digest: Digest) -> int | None:
        """A block with that content, held or not."""
        return self._block_of.get(digest)
