"""What a server was asked to be, as values; the command fills it and nothing below reads flags."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from minfer.engine.params import GenerationParams


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeSettings:
    """One server. Times are in seconds, sizes in bytes.

    params: the defaults of every request; params.n_ctx is the total of all slots. itl_target: the longest
    gap between two tokens of a stream that a prompt of somebody else may cause; 0 = no limit.
    """

    reference: str
    params: GenerationParams
    host: str = "127.0.0.1"
    port: int = 8080
    n_slots: int = 4
    max_queue: int = 64
    n_threads: int | None = None
    kv_type: Literal["f16", "f32"] = "f16"
    api_keys: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    allowed_hosts: tuple[str, ...] = ()
    cors_origins: tuple[str, ...] = ()
    chat_template: str | None = None
    is_strict: bool = False
    itl_target: float = 0.2
    use_prefix_cache: bool = True
    slots_file: Path | None = None
    max_body: int = 16 << 20
    body_timeout: float = 30.0
    request_timeout: float = 0.0
    stall_timeout: float = 120.0
    ping_interval: float = 10.0
    drain_timeout: float = 30.0
    log_format: Literal["text", "json", "none"] = "text"
    pooling: Literal["last", "mean"] = "last"
