"""What a daemon tells about itself and its cache, as values; no protobuf here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from minfer.store.progress import Progress


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """Who serves which cache."""

    api_major: int
    version: str
    cache: Path
    pid: int


@dataclass(frozen=True, slots=True)
class ListedModel:
    """One model of the cache. `path` is relative to it; `n_bytes` of the files that are here.

    `state`: 'verified', 'unverified', 'changed', 'incomplete'.
    """

    path: str
    spelling: str
    reference: str | None  # None for a file that no reference leads to
    source: str
    n_bytes: int
    n_parts: int
    missing: tuple[str, ...]
    state: str


@dataclass(frozen=True, slots=True)
class DescribedTensor:
    """A tensor of a model file. `shape`: slowest dimension first; `part`: index into the model's parts."""

    name: str
    shape: tuple[int, ...]
    quant: str
    n_bytes: int
    part: int


@dataclass(frozen=True, slots=True)
class DescribedModel:
    """What a model file says about itself.

    `parts`: paths or addresses; `metadata`: values as JSON, long ones cut.
    """

    parts: tuple[str, ...]
    n_bytes: int
    gguf_version: int
    metadata: Mapping[str, str]
    tensors: tuple[DescribedTensor, ...]


@dataclass(frozen=True, slots=True)
class VerifiedModel:
    """What comparing a model with its digests found. `path`: relative to the cache; `problem`: '' if none.

    `state`: 'verified', 'unverified', 'corrupt', 'incomplete', 'unreadable'.
    """

    path: str
    state: str
    problem: str


@dataclass(frozen=True, slots=True)
class DetachedPull:
    """A download that goes on without a caller. `state`: 'running', 'done', 'failed'."""

    reference: str
    progress: Progress
    state: str
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Status:
    """What a daemon is doing; times are seconds, `idle_s` 0 means that it stays.

    `tcp_address`: where it listens besides its socket, '' for nowhere.
    """

    server: ServerFacts
    uptime_s: float
    n_calls: int
    idle_s: float
    n_models: int
    is_watching: bool
    tcp_address: str
    pulls: tuple[DetachedPull, ...]
