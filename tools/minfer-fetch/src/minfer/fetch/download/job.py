"""What a download is to do: a value that a source makes and the engine executes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field

from minfer.core.errors import MinferError
from minfer.fetch.download.errors import HttpStatusError
from minfer.fetch.download.redirects import Credentials
from minfer.store.records import Record

GGUF_MAGIC = b"GGUF"


def as_it_is(error: HttpStatusError) -> MinferError:
    """For sources that know no better words for a status."""
    return error


@dataclass(frozen=True, slots=True)
class FileJob:
    """One file to fetch from `url` to `record.path` below the cache.

    `record.n_bytes` and `record.sha256` are what the source announced; a sha256 of '' means that it told
    none, then the length and the magic are all that can be checked. `magic`: what the file starts with.
    `explain` turns a refusal into the source's own error; `renew`
    gets new credentials after a 401, where a source can.
    """

    url: str = field(repr=False)
    record: Record
    credentials: Credentials | None = None
    magic: bytes = GGUF_MAGIC
    explain: Callable[[HttpStatusError], MinferError] = field(default=as_it_is, repr=False)
    renew: Callable[[HttpStatusError], Credentials | None] | None = field(default=None, repr=False)

    @property
    def label(self) -> str:
        """The file's name for progress and messages."""
        return self.record.path.rpartition("/")[2]

    @property
    def n_bytes(self) -> int:
        """The announced length."""
        return self.record.n_bytes

    @property
    def key(self) -> str:
        """The name of the partial file: the content's digest, so that all who want it share one."""
        if self.record.sha256:
            return self.record.sha256
        identity = f"{self.url.partition('?')[0]}\n{self.n_bytes}"
        return "url-" + hashlib.sha256(identity.encode(errors="surrogateescape")).hexdigest()
